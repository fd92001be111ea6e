"""Two calibrations: ``tensor_min_max`` texts, quant files, or files of other tools. Apart: a mode without dumps."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sgsdump.commands.compare.kinds import holds_ranges
from sgsdump.commands.terminal import print_lines
from sgsdump.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from sgsdump.commands.compare.options import Options
    from sgsdump.comparison.range_change import RangeChange

APART = "apart"
MOST_LISTED = 20


def compare_ranges_of(options: Options) -> int:
    """Print and write the comparison; 1 where a range is past a limit, or, with limits, ranges are missing.

    Raises ConfigError for limits of other metrics and for a side that is no calibration, FormatError for a damaged one.
    """
    from sgsdump.comparison.range_change import compare_ranges
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.reports.compared_ranges import range_csv, range_json, range_lines
    from sgsdump.sidecars.tensor_min_max import read_ranges

    limits, output = options.measuring.limit, options.output
    other = next((name for _, name, _ in limits if name != APART), None)
    if other is not None:
        raise ConfigError(
            f"--limit {other}: for calibration ranges, only the metric {APART!r} can have a limit, "
            f"for example --limit {APART}=1.5"
        )
    check_outputs([output.csv, output.json], [options.sample, options.benchmark])
    for path, beside in ((options.sample, options.benchmark), (options.benchmark, options.sample)):
        if not holds_ranges(path) and path.exists():
            raise ConfigError(
                f"{beside} holds calibration ranges, but {path} does not; give two files of the same kind"
            )
    sides = [read_ranges(path) for path in (options.sample, options.benchmark)]
    compared = compare_ranges(*sides)
    if not compared.changes:
        raise FormatError(
            f"no tensor in common: {options.sample} has {len(sides[0])} ranges, {options.benchmark} "
            f"has {len(sides[1])}. Do both files belong to the same model?"
        )
    past = [change for change in compared.changes if not change.apart <= _limit_of(change, limits)]
    if output.csv:
        replace_text(output.csv, range_csv(compared))
    if output.json:
        replace_text(output.json, range_json(compared, past))
    most = output.top or MOST_LISTED
    print_lines(range_lines(compared, past, most))
    left = len(compared.changes) - most
    if left > 0 and not output.top:
        print(
            f"{left} more pairs of ranges differ less; --top {len(compared.changes)} lists all, --csv FILE writes all."
        )
    is_whole = options.measuring.allow_missing or not (compared.only_in_sample or compared.only_in_benchmark)
    return 1 if limits and (past or not is_whole) else 0


def _limit_of(change: RangeChange, limits: Sequence[tuple[str, str, float]]) -> float:
    """The limit of this tensor: one for its name goes before one for all."""
    own = [limit for layer, _, limit in limits if layer and fnmatchcase(change.name, layer)]
    return next(iter([*own, *(limit for layer, _, limit in limits if not layer)]), float("inf"))
