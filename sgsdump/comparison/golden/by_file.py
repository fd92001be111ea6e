"""The golden comparison of what has the same file name on every side."""

from __future__ import annotations

from collections.abc import Mapping

from sgsdump.comparison.golden.measure import Load, row_of
from sgsdump.comparison.golden.row import GoldenComparison, GoldenRow
from sgsdump.comparison.golden.settings import check_settings, counts
from sgsdump.errors import ValuesError
from sgsdump.progress import SILENT, Progress, each


def compare_files(
    sample: Mapping[str, Load],
    benchmark: Mapping[str, Load],
    golden: Mapping[str, Load] | None = None,
    *,
    tag: float = 10.0,
    th1: float = 1e-6,
    th2: float = 1e-3,
    titles: tuple[str, str, str | None] = ("sample", "benchmark", "golden"),
    progress: Progress = SILENT,
) -> GoldenComparison:
    """Compare what has the same file name on every side. ``sample["relu.npy"]()`` gives the array.

    A loader that raises SgsdumpError makes its row not comparable. Raises ValuesError when no name is on every side,
    ConfigError for a tag or threshold that is negative or NaN.
    """
    check_settings(tag, th1, th2)
    both = sample.keys() & benchmark.keys()
    names = sorted(both if golden is None else both & golden.keys())
    if not names:
        raise ValuesError(f"no file in common: {counts(titles, sample, benchmark, golden)}; are they of one model?")

    def row(name: str) -> GoldenRow:
        sides = [side[name] for side in (sample, benchmark, golden) if side is not None]
        return row_of(name, name, sides, tag, th1)

    return GoldenComparison(
        tuple(each(progress, map(row, names), "compare", "tensor", len(names))),
        (titles[0], titles[1], titles[2] if golden is not None else None),
        tag,
        th1,
        th2,
        tuple(sorted(sample.keys() - benchmark.keys())),
        tuple(sorted(benchmark.keys() - sample.keys())),
        tuple(sorted(golden.keys() - sample.keys())) if golden is not None else (),
        tuple(sorted(both - golden.keys())) if golden is not None else (),
    )
