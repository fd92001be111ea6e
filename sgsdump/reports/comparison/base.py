"""The contract of a comparison's report, a text made of a ``Comparison``; ``reports/`` holds the family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgsdump.comparison.alignment import NAME_WAYS
from sgsdump.files.names import normalised

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.row import Row
    from sgsdump.comparison.thresholds import Thresholds

Report = Callable[["Comparison", "Thresholds"], str]


def layer_name(row: Row) -> str:
    """A row as the SDK's script calls it, ``3.conv1_xx.xx.output0``: the benchmark's index, normalised name, slot. Of a
    Caffe blob it is the name of its stage, whichever side has it."""
    return f"{row.op_index}.{normalised(row.stage or row.name)}.xx.{row.io}put{row.slot}"


def plain_layer_name(row: Row) -> str:
    """The same with the tensor's own name, of which only ``/`` is changed: no two names of a dump look alike."""
    return f"{row.op_index}.{(row.stage or row.name).replace('/', '_')}.xx.{row.io}put{row.slot}"


def remark(row: Row) -> str:
    """The remark beside a line's numbers: non-finite values, another tensor, how the pair was made."""
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
    if row.runs:
        remarks.append(str(row.runs))
    if row.note:
        remarks.append(row.note)
    if row.extra or row.vendor:
        remarks += filter(None, [row.dtype_note, left_out(row), row.vendor_message])
    return "; ".join(remarks)


def why(row: Row) -> str:
    """The remark, and why a row's verdict is ``warn`` where its line in a table does not tell."""
    tells = row.extra or row.vendor
    return "; ".join(filter(None, [remark(row), "" if tells else row.dtype_note]))


def left_out(row: Row) -> str:
    """How many values the extra metrics left out, "" for none."""
    names: dict[int, list[str]] = {}
    for name, count in row.left_out.items():
        names.setdefault(count, []).append(name)
    return "; ".join(
        f"{count} values where only the benchmark is 0 left out of {', '.join(those)}" for count, those in names.items()
    )


def further(row: Row) -> list[tuple[str, str]]:
    """Name and value of the metrics that were asked for beyond the three, as a table shows them.

    A vendor's values are as it prints them; a name that is among the further metrics too is prefixed ``vendor``.
    """
    extra = [(name, f"{value:.6g}") for name, value in row.extra.items()]
    return extra + [(f"vendor {name}" if name in row.extra else name, text) for name, text in row.vendor.items()]
