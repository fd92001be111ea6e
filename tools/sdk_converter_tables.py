#!/usr/bin/env python3
"""Write docs/sdk_converter.md: what SDK 1.1.5 refuses and changes, as sgsdump/fixedpoint/sdk/converter_rows.py has it.

python tools/sdk_converter_tables.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sgsdump.fixedpoint.sdk import converter_rows as facts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sdk_converter.md"
HEAD = """# What SDK 1.1.5 refuses, and what it changes

`calibrate`, `diagnose`, `tune`, `repair` and `advise` say it before anything long, in one line where it is of
more than two kinds; with `--strict-sdk` they end with status 2 instead, before anything is written. Without it they go
on: a newer SDK may take the model.

Every row was seen: a small network with that operator went through the SDK's own converter, calibrator and simulators
(the column *seen on* names it; `tools/sdk_probe/` makes such networks). Stages: **convert**, its converter ends;
**calibrate**, its calibrator ends; **simulate**, its simulator crashes.

This page is made by `python tools/sdk_converter_tables.py`.
"""


def page() -> str:
    refused = [
        (_types(row.types), row.form, row.stage, row.said.format(row.types[0]), row.probe) for row in facts.REFUSED
    ]
    caffe = [
        (_types(row.types), row.form, row.stage, row.said.format(row.types[0]), row.probe)
        for row in facts.CAFFE_REFUSED
    ]
    caffe.append(("any", *facts.OTHER_WEIGHTS))
    caffe += [(row.type, row.form, row.stage, row.said, row.probe) for row in facts.CAFFE_FORMS]
    formats = [
        (form, "", "convert", "sgs_ParserInOutConfigFile: Assertion `0' failed.", probe)
        for form, probe in facts.REFUSED_FORMATS.items()
    ]
    formats.append(("RGB, BGR", "of shape N, H, W, C", *facts.CHANNELS_LAST))
    formats.append(("RGB, BGR", "several pictures, one mean or std_value for all", *facts.ONE_FOR_ALL))
    formats.append(
        ("RGB, BGR", "`mean = R:G:B` in place of `mean_red`, `mean_green`, `mean_blue`, or no mean", *facts.NO_COLOURS)
    )
    changed = [
        (_types(row.types), row.form, row.becomes, row.probe, "as the SDK" if row.followed else "as ONNX")
        for row in facts.CHANGED
    ]
    caffe_changed = [(kind, form, becomes, probe) for kind, form, becomes, probe, _ in facts.CAFFE_CHANGED]
    caffe_changed += [(facts.RAWDATA, *facts.ONE_CHANNEL), ("RGB", *facts.GREY_PICTURE)]
    head = ("operator", "form", "stage", "the SDK's last words", "seen on")
    changed_head = ("operator", "form", "becomes", "seen on", "our fixed model")
    taken = ", ".join(sorted(facts.TAKEN))
    return "\n".join(
        [
            HEAD,
            "## Refused: ONNX",
            *_table(head, refused),
            f"Any other type that is not among these is refused as well: {taken}. Of a tensor's name at most "
            f"{facts.LONGEST_NAME} characters pass (one net was seen that the converter refuses at 165), and no "
            f"semicolon above level L1, of opsets up to {facts.NEWEST_OPSET}.",
            "",
            "## Refused: Caffe",
            *_table(head, caffe),
            "## Refused: training_input_formats",
            *_table(("format", "form", "stage", "the SDK's last words", "seen on"), formats),
            "## Changed into another function",
            "The float model keeps to ONNX, and to Caffe. The fixed model does what the last column says. See "
            "[debug a layer](debug_a_layer.md) for a float dump that differs.",
            "",
            *_table(changed_head, changed + [(*row, "as Caffe") for row in caffe_changed]),
        ]
    )


def _types(types: Iterable[str]) -> str:
    return ", ".join(types)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') or 'any' for cell in row)} |" for row in rows]
    return [*lines, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
