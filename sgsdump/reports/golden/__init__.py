"""Comparison with a golden run as the log of the SDAA dump tools, as CSV, and as JSON.

``schemas/golden_comparison.json`` is the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.golden import GoldenComparison, GoldenRow
from sgsdump.errors import listed
from sgsdump.files.escaping import shown
from sgsdump.files.json_yaml import json_text
from sgsdump.reports.remarks import reason_lines
from sgsdump.reports.text import counted, csv_text
from sgsdump.reports.verdict_data import finding_data, verdict_data

_FIGURES = ["diff2", "all_close", "max_sw", "max_g", "mean_sw", "mean_g"]
_PASSES = ["max_passes", "mean_passes"]
COLUMNS = ["index", "file", "name", "verdict", "nan_inf", *_FIGURES, "tag", *_PASSES, "remark"]
_NAMES = 5  # number of names in a list
_OF_THREE = ("max_sw", "max_g", "mean_sw", "mean_g", "max_passes", "mean_passes", "tag")
_SUMMARY = "------------------------- summary message -------------------------"
_DIFF2 = "------------------------- diff2 list message -------------------------"
_DIFF3 = "------------------------- diff3 list message -------------------------"


def golden_log(comparison: GoldenComparison) -> str:
    """Return ``compare_result.log`` of the SDAA dump tools.

    It has ``golden_lines``, the files on one side only, and three lists: files with NaN or Inf, files whose diff2
    exceeds th2, and files that do not pass.

    The SDAA tool stops at a pair of different shapes, and does not report files that only golden lacks. Here the pair
    has a line (``index: 0 | relu.npy | not comparable: …``), and such files have a line too. Sets are printed sorted.
    """
    return golden_lines(comparison) + "".join(f"{line}\n" for line in _summary(comparison))


def golden_lines(comparison: GoldenComparison) -> str:
    """Return the ``index:`` lines of the log, one per file that is on every side, sorted by name.

    Floats are in Python's shortest form::

        index: 0 | relu.npy | nan_inf: False | diff2: 0.0 | all_close: True | th: 1e-06
        index: 0 | relu.npy | nan_inf: False | diff2: 0.0 | diff3_max=pass | diff3_mean=pass | diff3_max_sw: 0.0 | diff3_max_g: 0.0*10.0=0.0 | diff3_mean_sw: 0.0 | diff3_mean_g: 0.0*10.0=0.0
    """  # noqa: E501
    return "".join(f"{_line(index, row, comparison)}\n" for index, row in enumerate(comparison.rows))


def golden_csv(comparison: GoldenComparison) -> str:
    """Return one line per file of any side, in full precision.

    ``verdict`` is ``pass``, ``warn``, ``fail`` or ``not comparable``. Files that are not on every side come last, with
    the sides that lack them.
    """
    three = comparison.titles[2] is not None
    figures = ["nan_inf", *(["diff2", *_FIGURES[2:], "tag", *_PASSES] if three else ["diff2", "all_close"])]
    lines: list[dict[str, object]] = []
    for index, row in enumerate(comparison.rows):
        names = ["file", "name", "verdict", *([] if row.reason else figures)]
        facts = {name: getattr(row, name) for name in names}
        zeros = "all zeros in the benchmark" if row.zeros else ""
        lines.append({"index": index, "remark": row.reason or "; ".join(filter(None, [zeros, row.note]))} | facts)
    unpaired = comparison.unmatched()
    lines += [{"file": file, "verdict": "not comparable", "remark": remark} for file, remark in unpaired]
    return csv_text(COLUMNS, lines)


def golden_json(comparison: GoldenComparison, allow_missing: bool = False) -> str:
    """Return ``settings``, ``rows`` with verdicts, and files that are not on every side.

    Fields that need a golden run are null without one.
    """
    sample, benchmark, golden = comparison.titles
    document = {
        "format": "sgsdump golden comparison",
        "version": 1,
        "sample": sample,
        "benchmark": benchmark,
        "golden": golden,
        "settings": {"tag": comparison.tag, "th1": comparison.th1, "th2": comparison.th2},
        "passes": comparison.passes,
        "verdict": verdict_data(comparison.verdict(allow_missing)),
        "rows": [_row(row, golden is not None) for row in comparison.rows],
        "findings": [finding_data(finding) for finding in comparison.findings],
        "not_compared": [{"file": file, "reason": reason} for file, reason in comparison.unmatched()],
    }
    return json_text(document)


def missing_lines(comparison: GoldenComparison) -> list[str]:
    """Return the missing tensors, with the reason."""
    missing = comparison.missing
    return [f"missing: {counted(len(missing), 'tensor')}", *reason_lines(missing, _NAMES)] if missing else []


def golden_closing(comparison: GoldenComparison) -> list[str]:
    """Return the last sentences: where errors arise, and which errors are only rounding."""
    causes = [finding for finding in comparison.findings if finding.kind in ("cause", "not finite")]
    failed = [row for row in comparison.rows if not row.passes and not row.reason]
    lines = []
    if comparison.own_errors is None:
        if causes:
            how = "its sources pass" if causes[0].evidence == "by value" else "first in the order of the dump"
            reached = causes[0].facts.get("reaches")
            made = f"first failing tensor: {_called(causes[0])}, {how}"
            if reached:
                made = f"the first failing tensor is {shown(reached)}; its error arises at {_called(causes[0])}"
            lines.append(made)
    elif causes:
        own, names = causes[0].figures["own_error"], {cause.layer for cause in causes}
        made = "it produces NaN or Inf" if causes[0].kind == "not finite" else f"own error {own:.3g}"
        whose = f" in {shown(causes[0].facts['side'])}" if causes[0].facts else ""
        rest = sum(row.name not in names for row in failed)
        others = f"; {counted(rest, 'other failing tensor')} inherit the error or differ by rounding"
        lines.append(
            f"operators beyond their rounding bound (by type and sum length): {len(names)}; first "
            f"{_called(causes[0])}{whose}, {made}, recomputed from its recorded inputs{others if rest else ''}"
        )
    elif failed:
        lines.append(
            "no operator is beyond its rounding bound (by type and sum length): each operator, recomputed from its "
            "recorded inputs, gives the recorded output"
        )
    zeros = [row.name for row in comparison.rows if row.zeros]
    if zeros:
        benchmark = shown(comparison.titles[1])
        lines.append(f"all zeros in {benchmark} but not in the sample: {listed(list(map(shown, zeros)), _NAMES)}")
    return lines


def _called(finding: Finding) -> str:
    return shown(finding.layer) + (f" ({finding.op_type})" if finding.op_type else "")


def _row(row: GoldenRow, three: bool) -> dict[str, Any]:
    facts = asdict(row) | {
        "zeros": row.zeros,
        "max_passes": row.max_passes,
        "mean_passes": row.mean_passes,
        "verdict": row.verdict,
    }
    return facts if three else facts | dict.fromkeys(_OF_THREE)


def _line(index: int, row: GoldenRow, comparison: GoldenComparison) -> str:
    start = f"index: {index} | {row.file} | "
    if row.reason:
        return f"{start}not comparable: {row.reason}"
    start += f"nan_inf: {row.nan_inf} | diff2: {row.diff2} | "
    if row.all_close is not None:
        return f"{start}all_close: {row.all_close} | th: {comparison.th1}"
    return (
        f"{start}diff3_max={_word(row.max_passes)} | diff3_mean={_word(row.mean_passes)} | "
        f"diff3_max_sw: {row.max_sw} | diff3_max_g: {row.max_g}*{row.tag}={row.max_g * row.tag} | "
        f"diff3_mean_sw: {row.mean_sw} | diff3_mean_g: {row.mean_g}*{row.tag}={row.mean_g * row.tag}"
    )


def _summary(comparison: GoldenComparison) -> Iterator[str]:
    sample, benchmark, golden = comparison.titles
    rows = comparison.rows
    if golden is not None:
        yield f"Files only in {golden}: {_set(comparison.only_in_golden)}"
        if comparison.not_in_golden:
            yield f"Files not in {golden}: {_set(comparison.not_in_golden)}"
    yield f"Common files with differences: {_set(row.file for row in rows)}"
    yield f"Files only in {sample}: {_set(comparison.only_in_sample)}"
    yield f"Files only in {benchmark}: {_set(comparison.only_in_benchmark)}"
    yield _SUMMARY
    yield f"nan_inf list: {[row.file for row in rows if row.nan_inf]}"
    yield _DIFF2
    yield f"diff2 list: {[row.file for row in rows if row.diff2 > comparison.th2]}"
    yield _DIFF3
    yield f"other list: {[row.file for row in rows if not row.close]}"


def _word(passes: bool) -> str:
    return "pass" if passes else "fail"


def _set(names: Iterable[str]) -> str:
    """Return a set as Python prints it, but sorted."""
    ordered = sorted(set(names))
    return "{" + ", ".join(map(repr, ordered)) + "}" if ordered else "set()"
