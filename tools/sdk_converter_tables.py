#!/usr/bin/env python3
"""Write docs/sdk_converter.md from the rows of sgsdump/fixedpoint/sdk/converter_rows.py.

python tools/sdk_converter_tables.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sgsdump.fixedpoint.sdk import converter_rows as facts

UNKNOWN = "op type {} yet"  # ends the message for a type that the converter does not know
PAGE = Path(__file__).resolve().parents[1] / "docs" / "sdk_converter.md"
HEAD = """# Operators that the SDK converter refuses or changes

Use this page to see whether SDK 1.1.5 accepts your model. `calibrate`, `diagnose` and `tune` check the model before
they start and report refused operators, but continue, because a newer SDK may accept the model. With `--strict-sdk`,
these commands stop with status 2 before they write anything.

For every entry, a small model with the operator was run through the SDK's converter, calibrator and simulators.
The column *stage* shows where the SDK fails:

- **convert**: the converter stops,
- **calibrate**: the calibrator stops,
- **simulate**: the simulator crashes.

`python tools/sdk_converter_tables.py` generates this page.
"""
# Clearer words for the page than those of the messages, which stand beside the operator's name.
THRESHOLD = "a Threshold whose 1 becomes one step of the input's scale, nearly 0"
CLEARER = {
    "a Slice of the first axis only, from its start": "a Slice of only the first axis, starting at index 0",
    "an operator on rows of another length, in fixed models": "the same operator on rows of a wrong length (fixed "
    "models only)",
    "a DepthToSpace with another order of pixels": "a DepthToSpace with a wrong order of pixels",
    "a Transpose with another order of axes": "a Transpose with a wrong order of axes",
    THRESHOLD: "a Threshold that outputs one quantisation step of its input (nearly 0) instead of 1",
    "a constant of several values, neither one per channel nor of the tensor's shape": (
        "with a constant of several values that match neither the channels nor the shape of the tensor"
    ),
    "of other than two tensors": "with one input, or with more than two inputs",
    "of other than two dimensions": "of tensors with one, three or more dimensions",
    "over other than two dimensions": "over one or three dimensions",
    "by a constant of several numbers": "tensor divided by a constant with several values",
    "of a constant of several numbers": "constant with several values divided by a tensor",
    "of a constant number": "constant number divided by a tensor",
    "of a constant per channel": "tensor minus one constant per channel",
    "from a constant number": "constant number minus a tensor",
    "with alpha or beta": "with alpha or beta other than 1",
    "of a Transpose": "that reads a Transpose",
    "over H and W of a Transpose": "over H and W of the output of a Transpose",
    "in groups": "with groups",
    "with its limits as attributes (opset 9)": "with starts and ends as attributes (opset 9)",
    "to negative rows or columns": "with a negative end index for rows or columns",
    "of an input, of several axes at once": "of a model input along several axes at once",
    "of several axes at once": "along several axes at once",
    "of another mode than the SDK supports": "with a mode that the SDK does not support",
    "with a value": "with a value other than 0",
    "half_pixel": "with coordinate_transformation_mode half_pixel",
    "of different scales for H and W": "with different scales for H and W",
    "of all axes": "over all axes",
    "of five dimensions": "of tensors with five dimensions",
    "of five dimensions, with a constant": "of a constant and a tensor with five dimensions",
    "as an output of the model": "whose result is an output of the model",
    "to N, H, W, C, as an output of the model": "to N, H, W, C, if the result is an output of the model",
    "PROD or MAX of more than two": "PROD or MAX of more than two inputs",
    "along another axis": "with an axis other than 1",
    "of another stride than 2": "with a stride other than 2",
    "over another axis": "over axes other than the channels",
    "backwards": "with a negative step",
    "back from N, H, W, C": "back from N, H, W, C to N, C, H, W",
    "with negative indices": "with negative starts or ends",
    "that reads a fully connected operator": "that reads the output of a fully connected operator",
    facts.ONE_CHANNEL[0]: "an ONNX input with one channel that a convolution reads",
    facts.ONE_CHANNEL[1]: "an input with three channels. For each value x, the preprocess file must give the three "
    "channel values x, 0, 0 (shape H x W x 3)",
    facts.GREY_PICTURE[0]: "an image with one channel, with training format RGB and input format GRAY",
    facts.GREY_PICTURE[
        1
    ]: "an input with three channels. The calibrator and the float simulator use only the first of the three channels. "
    "The preprocess file must give H x W x 3 values for norm=True and H x W values for norm=False",
}


def page() -> str:
    """Return the text of the page."""
    refused = _grouped(
        (row.types, row.form, row.stage, row.said) for row in facts.REFUSED if not row.said.endswith(UNKNOWN)
    )
    caffe_rows = [
        ((*row.types,), row.form, row.stage, row.said) for row in facts.CAFFE_REFUSED if not row.said.endswith(UNKNOWN)
    ]
    form, stage, said, _ = facts.OTHER_WEIGHTS
    caffe_rows.append((("any",), form, stage, said))
    caffe_rows += [((row.type,), row.form, row.stage, row.said) for row in facts.CAFFE_FORMS]
    assertion = "sgs_ParserInOutConfigFile: Assertion `0' failed."
    formats = [((name,), "", "convert", assertion) for name in facts.REFUSED_FORMATS]
    colours = ("RGB", "BGR")
    formats.append((colours, "of shape N, H, W, C", *facts.CHANNELS_LAST[:2]))
    formats.append((colours, "several image inputs, but only one mean or std_value", *facts.ONE_FOR_ALL[:2]))
    means = "with `mean = R:G:B` instead of `mean_red`, `mean_green`, `mean_blue`, or without mean"
    formats.append((colours, means, *facts.NO_COLOURS[:2]))
    changed = [
        (_types(row.types), row.form, row.becomes, "as the SDK" if row.followed else "as ONNX") for row in facts.CHANGED
    ]
    caffe_changed = [(kind, form, becomes) for kind, form, becomes, *_ in facts.CAFFE_CHANGED]
    caffe_changed += [(facts.RAWDATA, *facts.ONE_CHANNEL[:2]), ("RGB", *facts.GREY_PICTURE[:2])]
    head = ("operator", "form", "stage", "last message of the SDK")
    unknown = ", ".join(_types(row.types) for row in facts.REFUSED if row.said.endswith(UNKNOWN))
    unknown_caffe = ", ".join(_types(row.types) for row in facts.CAFFE_REFUSED if row.said.endswith(UNKNOWN))
    return "\n".join(
        [
            HEAD,
            "## Refused: ONNX",
            "The converter stops with `Mace does not support onnx op type NAME yet` at these types:",
            "",
            f"{unknown}.",
            "",
            *_table(head, refused),
            f"The SDK is known to accept only these operator types, each in at least one form: "
            f"{', '.join(sorted(facts.TAKEN))}. sgsdump reports all other types as refused.",
            "",
            "Limits on names and opsets:",
            "",
            f"- Tensor names may have at most {facts.LONGEST_NAME} characters. One model with a tensor name of 165 "
            "characters was refused.",
            "- Above level L1, tensor names must not contain a semicolon.",
            f"- The newest accepted opset is {facts.NEWEST_OPSET}.",
            "",
            "## Refused: Caffe",
            "The converter stops with `Mace does not support caffe op type NAME yet` at these types:",
            "",
            f"{unknown_caffe}.",
            "",
            *_table(head, _grouped(caffe_rows)),
            "## Refused: training_input_formats",
            *_table(("format", *head[1:]), _grouped(formats)),
            "## Changed into another function",
            "The SDK converts these operators to operators with another result. sgsdump's float model follows ONNX and "
            "Caffe. If a float dump differs, see [Debug a layer](debug_a_layer.md).",
            "",
            *_table(
                ("operator", "form", "becomes", "fixed model of sgsdump"),
                changed + [(*row, "as Caffe") for row in caffe_changed],
            ),
        ]
    )


def _grouped(rows: Iterable[tuple[tuple[str, ...], str, str, str]]) -> list[tuple[str, str, str, str]]:
    """Join the types of rows that have form, stage and message in common."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for types, form, stage, said in rows:
        groups.setdefault((form, stage, said.format(types[0])), []).extend(types)
    return [(_types(types), *rest) for rest, types in groups.items()]


def _types(types: Iterable[str]) -> str:
    return ", ".join(types)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [
        f"| {' | '.join(CLEARER.get(cell, cell).replace('|', chr(92) + '|') or 'any' for cell in row)} |"
        for row in rows
    ]
    return [*lines, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
