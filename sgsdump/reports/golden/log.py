"""``compare_result.log`` of the SDAA dump tools, from a comparison of two or three runs.

One line for each file on every side, in the order of their names; floats in Python's shortest form::

    index: 0 | relu.npy | nan_inf: False | diff2: 0.0 | all_close: True | th: 1e-06
    index: 0 | relu.npy | nan_inf: False | diff2: 0.0 | diff3_max=pass | diff3_mean=pass | diff3_max_sw: 0.0 | diff3_max_g: 0.0*10.0=0.0 | diff3_mean_sw: 0.0 | diff3_mean_g: 0.0*10.0=0.0

then which files stand on one side only, and three lists: files with NaN or Inf, files whose diff2 is past th2, and
files that do not pass. That tool stops at a pair of different shapes and says nothing of what golden alone lacks; here
the first is a line of its own (``index: 0 | relu.npy | not comparable: …``), the second a further line where there is
such a file. Sets are printed in order.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgsdump.comparison.golden import GoldenComparison, GoldenRow

_SUMMARY = "------------------------- summary message -------------------------"
_DIFF2 = "------------------------- diff2 list message -------------------------"
_DIFF3 = "------------------------- diff3 list message -------------------------"


def render(comparison: GoldenComparison) -> str:
    """The whole log: lines, files of one side, summary."""
    return golden_lines(comparison) + "".join(f"{line}\n" for line in _rest(comparison))


def golden_lines(comparison: GoldenComparison) -> str:
    """The ``index:`` lines alone."""
    return "".join(f"{_line(index, row, comparison)}\n" for index, row in enumerate(comparison.rows))


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


def _rest(comparison: GoldenComparison) -> Iterator[str]:
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
    yield f"other list: {[row.file for row in rows if not row.passes]}"


def _word(passes: bool) -> str:
    return "pass" if passes else "fail"


def _set(names: Iterable[str]) -> str:
    """As Python prints a set, but in order."""
    ordered = sorted(set(names))
    return "{" + ", ".join(map(repr, ordered)) + "}" if ordered else "set()"
