"""The short verdict under the table: which layer to look at, and every layer that was not compared."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sgsdump.comparison.alignment import NAME_WAYS
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.dataflow import first_difference, is_rounding
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.registry import listed
from sgsdump.reports.comparison.base import remark
from sgsdump.reports.layers.table import by_reason
from sgsdump.reports.shown import shown

MOST_JUMPS = 3
MOST_EXCLUDED = 5
MOST_NAMES = 60
WIDTH = 110
NAMES = " " * 4  # before names that share a reason


def render(comparison: Comparison, thresholds: Thresholds) -> str:
    """The lines, control characters as escapes; those of nothing but names (indented further) are wrapped."""
    return "".join(f"{part}\n" for line in verdict_lines(comparison, thresholds) for part in _wrapped(shown(line)))


def verdict_lines(comparison: Comparison, thresholds: Thresholds) -> Iterator[str]:
    """The verdict as lines of any length, the further ones of a paragraph indented."""
    rows, apart = comparison.rows, _not_compared(comparison)
    yield f"Compared: {len(rows)} of the benchmark's {len(rows) + apart} layers."
    if comparison.excluded:
        more = " …" if len(comparison.excluded) > MOST_EXCLUDED else ""
        yield f"Excluded: {len(comparison.excluded)} ({', '.join(comparison.excluded[:MOST_EXCLUDED])}{more})."
    if comparison.unwritten:
        yield (
            f"Not compared, as nothing had been written to their memory yet: {len(comparison.unwritten)} "
            f"({listed(comparison.unwritten, MOST_NAMES)})."
        )
    ways = Counter([row.paired for row in rows] + [failed.pair.how for failed in comparison.failed])
    if ways.keys() - set(NAME_WAYS):
        yield f"Paired: {', '.join(f'{number} by {how}' for how, number in ways.most_common())}."
    worst = comparison.worst
    if worst is not None:
        by = " by RMSE" if worst.extra or worst.vendor else ""
        yield f"Worst layer{by}: {_numbers(worst)}" if worst.error else "Worst layer: none, all values are equal."
    past = comparison.past(thresholds)
    if rows and not past:
        yield f"Past {thresholds}: none."
    elif past:
        yield f"Past {thresholds}: {len(past)} of {len(rows)}, the first is {_numbers(past[0])}"
    yield from _first(rows)
    if any(row.extra or row.vendor for row in rows):
        verdicts = Counter(row.verdict(thresholds) for row in rows) + Counter({"not comparable": apart})
        yield f"Verdicts: {', '.join(f'{n} {verdict}' for verdict, n in sorted(verdicts.items()))}."
    yield from _integers(rows)
    jumps = comparison.jumps[:MOST_JUMPS]
    if jumps:
        yield "RMSE rises most at:"
    yield from (f"  {_label(row)}, {_rise(row, comparison)}" for row in jumps)
    yield from _list("NaN or Inf, never within thresholds", [r for r in rows if not r.finite and not r.equal])
    yield from _list("Same name, another tensor (no threshold passes it)", list(comparison.suspects))
    missing = [(f.pair.benchmark.name, f.reason) for f in comparison.failed]
    alone = comparison.only_in_benchmark + comparison.only_in_sample
    missing += [(u.record.name, u.reason) for u in alone if not u.expected]
    if missing:
        yield f"Not compared: {len(missing)}"
    yield from _by_reason(missing)
    own = [(u.record.name, u.reason) for u in alone if u.expected]
    if own:
        yield f"Without counterpart, so not missing: {len(own)}"
    yield from _by_reason(own)


def _first(rows: Sequence[Row]) -> Iterator[str]:
    """The first operator that differs, and where that is rounding alone the first that differs by more."""
    first = first_difference(rows)
    if first is None or not first.is_placed:
        return
    by = f"by rounding ({first.output.benchmark_dtype})" if is_rounding(first.output) else ""
    yield f"First operator that differs{f' {by}' if by else ''}: {first.output.op_index}.{first.where}: {first}."
    if by:
        more = first_difference(rows, beyond_rounding=True)
        which = f"{more.output.op_index}.{more.where}: {more}" if more else "none"
        yield f"First that differs by more: {which}."


def _integers(rows: Sequence[Row]) -> Iterator[str]:
    """Of two runs of a fixed model: in how many layers they hold the same integers, and where the first ones differ."""
    known = [(row, row.integers) for row in rows if row.integers]
    alike = [(row, integers) for row, integers in known if not integers.unlike]
    if not alike:
        return
    text = f"integers: {sum(each.identical for _, each in alike)} of {len(alike)} layers identical"
    first = next(((row, each) for row, each in alike if not each.identical), None)
    if first:
        row, integers = first
        text += f"; the first that differs is {row.name}{f' ({row.op_type})' if row.op_type else ''}: "
        text += f"{integers.differing} of {integers.count} values{integers.size}"
    yield text
    for row, integers in known:
        if integers.unlike:
            yield f"  {_label(row)}: {integers}"


def _not_compared(comparison: Comparison) -> int:
    """How many of the benchmark's layers have no row though they could; of several runs, in none of them."""
    records = [failed.pair.benchmark for failed in comparison.failed]
    records += [unpaired.record for unpaired in comparison.only_in_benchmark if not unpaired.expected]
    if not any(row.runs for row in comparison.rows):
        return len(records)
    return len({record.name for record in records} - {row.name for row in comparison.rows})


def _by_reason(missing: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Names under their reason, which is printed once; the other reports have all of them."""
    for reason, names in by_reason(missing).items():
        if len(names) == 1:
            yield f"  {names[0]}: {reason}"
            continue
        yield f"  {reason} ({len(names)}):"
        yield f"{NAMES}{listed(names, MOST_NAMES)}"


def _wrapped(line: str) -> list[str]:
    if not line.startswith(NAMES):
        return [line]
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=NAMES, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _list(title: str, rows: list[Row]) -> Iterator[str]:
    if rows:
        yield f"{title}: {len(rows)}"
    yield from _by_reason((_label(row), remark(row)) for row in rows)


def _label(row: Row) -> str:
    return f"{row.op_index}.{row.name}" + (f" ({row.op_type})" if row.op_type else "")


def _numbers(row: Row) -> str:
    if row.statistics:
        return f"{_label(row)}, statistics apart by {row.error:.3g}."
    return f"{_label(row)}, COS {row.cos:f}, RMSE {row.rmse:f}."


def _rise(row: Row, comparison: Comparison) -> str:
    before = {r.name: r for r in comparison.alike}
    feeding = max((before[name] for name in row.sources if name in before), key=lambda r: r.error, default=None)
    if feeding is None and row.origin:
        return f"{row.origin}, {row.error:f}"
    if feeding is None:
        return f"from the input to {row.error:f}"
    return f"from {feeding.error:f} at {_label(feeding)} to {row.error:f}"
