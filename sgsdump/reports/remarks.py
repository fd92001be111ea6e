"""Texts on one layer of a comparison (remark, label, figures), and lists of names by reason.

The texts are written from facts, and no program logic reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from sgsdump.comparison.alignment import NAME_WAYS
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.row import EQUAL, LEAST, Row
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.errors import listed
from sgsdump.reports.text import number, shortened, unfused

CANCELLED = "cancellation: this gradient is zero in theory, so both sides contain only rounding errors"
NAMES_INDENT = " " * 4  # before names that share a reason
_REARRANGED = "the same values in another order (channels or axes permuted)"


def remark(row: Row) -> str:
    """Return the remark beside the figures of a row: NaN and Inf, another tensor, how the pair was made."""
    remarks = []
    if not row.finite:
        remarks.append(
            f"NaN: {row.sample_nan} in sample, {row.benchmark_nan} in benchmark; "
            f"Inf: {row.sample_inf} in sample, {row.benchmark_inf} in benchmark"
        )
    if row.misnamed:
        remarks.append(str(row.misnamed))
    if row.sample_name != row.name and row.paired != "cut name":
        by = "" if row.paired in NAME_WAYS else f" by {row.paired}"
        of_both = f": {row.sample_name!r} of the sample, {row.name!r} of the benchmark"
        remarks.append(f"paired{by}{of_both if row.stage else f' with {row.sample_name!r} of the sample'}")
    if row.integers and not row.integers.unlike:
        remarks.append(str(row.integers))
    remarks += _beside(row)
    if row.runs:
        remarks.append(str(row.runs))
    if row.cancelled:
        remarks.append(CANCELLED)
    if row.note:
        remarks.append(row.note)
    if row.extra or row.vendor:
        remarks += filter(None, [row.dtype_note, _left_out(row), row.vendor_message])
    return "; ".join(remarks)


def _beside(row: Row) -> Iterator[str]:
    """Yield facts that the figures of a row do not show."""
    if row.indices is not None:
        yield f"integers: {figures_text(row)}"
    if row.rearranged:
        yield _REARRANGED
    if row.is_resolution and row.sums is not None and row.rmse > (DOCUMENTED.max_rmse or 0.0):
        mean = math.sqrt(row.sums.dd / row.count)
        yield f"root mean square error {mean:.3g}, at most half of the sample's quantisation step {row.step:.3g}"
    if row.channels is not None and row.channels.lost:
        channels = row.channels
        which = "is lost:" if channels.lost == 1 else "are lost; worst:"
        yield (
            f"{channels.lost} of {channels.count} channels {which} channel {channels.worst}, "
            f"RMSE {channels.worst_rmse:.6g}"
        )


def figures_text(row: Row) -> str:
    """Return the error of a row: COS and RMSE, or the figures for integers, checksums and statistics."""
    if row.indices is not None:
        differing, count = row.indices.differing, row.indices.count
        return f"{differing} of {count} values differ" if differing else f"all {count} values are equal"
    if row.checksums == EQUAL:
        return "checksums equal"
    if row.checksums and row.error in (LEAST, math.inf):
        return "statistics equal, checksums differ" if row.statistics else "checksums differ"
    if row.statistics:
        return f"statistics differ by {row.error:.3g}"
    return f"COS {number(row.cos)}, RMSE {number(row.rmse)}"


def why(row: Row) -> str:
    """Return the remark, and the reason of the verdict ``warn`` if the table does not show it."""
    tells = row.extra or row.vendor
    return "; ".join(filter(None, [remark(row), "" if tells else row.dtype_note]))


def trouble(row: Row) -> str:
    """Return the NaN and Inf of both sides: ``sample 5 NaN, benchmark 2 Inf``; "" for none."""
    sides = []
    for side, nan, inf in (
        ("sample", row.sample_nan, row.sample_inf),
        ("benchmark", row.benchmark_nan, row.benchmark_inf),
    ):
        kinds = [f"{count:,} {kind}" for count, kind in ((nan, "NaN"), (inf, "Inf")) if count]
        sides += [f"{side} {' '.join(kinds)}"] if kinds else []
    return ", ".join(sides) if sides or row.count else "no values"


def left_out_title(missing: int, expected: int) -> str:
    """Return the heading over the layers that were not compared: missing, or without counterpart."""
    without = f"Without a counterpart by design, so not missing: {expected}"
    return f"Not compared: {missing}{f'. {without}' if expected else ''}" if missing or not expected else without


def by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names grouped by reason, from (name, reason)."""
    groups: dict[str, list[str]] = {}
    for name, reason in pairs:
        groups.setdefault(reason, []).append(name)
    return groups


def reason_lines(pairs: Iterable[tuple[str, str]], most: int | None = None) -> Iterator[str]:
    """Yield lines of (name, reason). A common reason is written once, before all names or the first ``most``."""
    for reason, names in by_reason(pairs).items():
        if len(names) == 1:
            yield f"  {names[0]}: {reason}"
        else:
            yield f"  {reason} ({len(names)}):"
            yield f"{NAMES_INDENT}{listed(names, most or len(names))}"


def label(row: Row) -> str:
    """Return ``3.conv1 (CONV_2D)``: the operator's number in the network, the layer's name and operator type."""
    return f"{row.op_index}.{unfused(row.name)}" + (f" ({row.op_type})" if row.op_type not in ("", row.name) else "")


def error_before(row: Row, comparison: Comparison) -> float:
    """Return the largest error of the rows that feed this row; 0 if there are none."""
    feeding = feeding_row(row, comparison)
    return feeding.error if feeding else 0.0


def feeding_row(row: Row, comparison: Comparison) -> Row | None:
    rows = {row.name: row for row in comparison.alike}
    return max((rows[name] for name in row.sources if name in rows), key=lambda source: source.error, default=None)


def _left_out(row: Row) -> str:
    """Return how many values the further metrics leave out; "" for none."""
    metrics: dict[int, list[str]] = {}
    for name, count in row.left_out.items():
        metrics.setdefault(count, []).append(name)
    return "; ".join(
        f"{', '.join(names)} computed without {count} values where only the benchmark is 0"
        for count, names in metrics.items()
    )


def label_in_prose(row: Row, blob: str) -> str:
    """Return the layer's name, or its Caffe blob with the stage in parentheses, and the operator type."""
    name, stage = (row.name, row.stage) if blob == row.name else (blob, row.name)
    beside = [shortened(text) for text in (stage, row.op_type) if text and text != name]
    return f"{shortened(name)} ({', '.join(beside)})" if beside else shortened(name)
