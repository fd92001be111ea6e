"""Two calibrations of one network, tensor by tensor: which calibration range is wider, and by how much.

apart = width of the union of both ranges / width of the narrower range

The value is 1 for equal ranges, and the ratio of the widths if one range contains the other. Ranges that are shifted
against each other count as well. For ranges per channel, the worst channel counts. A range of the whole tensor is
compared with the union of the other side's channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.files.names import word
from sgsdump.tensors.types import Range

SAMPLE, BENCHMARK, NEITHER, SHIFTED = "sample", "benchmark", "equal", "shifted"
Ends = tuple[float, float]


@dataclass(frozen=True)
class RangeChange:
    """Change of one tensor's calibration range.

    sample, benchmark  lowest and highest value of both sides, for ``channel`` if there is one.
    apart     ratio of the widths, see the module; infinite if one side's range has no width.
    wider     ``sample`` or ``benchmark`` if that range contains the other, else ``equal`` or ``shifted``.
    channel   worst channel of ranges per channel, out of ``channels``.
    bits      bit widths of both sides if they differ; None for a side that states none.
    """

    name: str
    sample: Ends
    benchmark: Ends
    apart: float
    wider: str
    channel: int | None = None
    channels: int = 1
    bits: tuple[int | None, int | None] | None = None


@dataclass(frozen=True)
class RangeChanges:
    """``changes``, worst first, and tensors with a range on only one side, in file order."""

    changes: tuple[RangeChange, ...]
    only_in_sample: tuple[str, ...] = ()
    only_in_benchmark: tuple[str, ...] = ()


def compare_ranges(sample: Mapping[str, Range], benchmark: Mapping[str, Range]) -> RangeChanges:
    """Compare the ranges of all tensors of both sides.

    Names are paired as those of dumps: exactly, then by the only names that are equal without special characters.
    """
    pairs = {name: name for name in benchmark if name in sample}
    rest = _by_word(name for name in sample if name not in pairs)
    for key, names in _by_word(name for name in benchmark if name not in pairs).items():
        if len(names) == len(rest.get(key, [])) == 1:
            pairs[names[0]] = rest[key][0]
    changes = [_change(name, sample[pairs[name]], bounds) for name, bounds in benchmark.items() if name in pairs]
    paired = set(pairs.values())
    return RangeChanges(
        tuple(sorted(changes, key=lambda change: -change.apart)),
        tuple(name for name in sample if name not in paired),
        tuple(name for name in benchmark if name not in pairs),
    )


def _by_word(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(word(name), []).append(name)
    return groups


def _change(name: str, sample: Range, benchmark: Range) -> RangeChange:
    bits = None if sample.bit == benchmark.bit else (sample.bit, benchmark.bit)
    if sample.min.size != benchmark.min.size or sample.min.size == 1:
        ends = (sample.low, sample.high), (benchmark.low, benchmark.high)
        return RangeChange(name, *ends, apart(*ends), _wider(*ends), bits=bits)
    channels = [
        ((float(a), float(b)), (float(c), float(d)))
        for a, b, c, d in zip(sample.min, sample.max, benchmark.min, benchmark.max)
    ]
    worst = int(np.argmax([apart(*ends) for ends in channels]))
    ends = channels[worst]
    return RangeChange(name, *ends, apart(*ends), _wider(*ends), worst, len(channels), bits)


def apart(one: Ends, other: Ends) -> float:
    """Return the width of the union over the width of the narrower range (see the module docstring)."""
    together = max(one[1], other[1]) - min(one[0], other[0])
    narrower = min(one[1] - one[0], other[1] - other[0])
    if narrower > 0:
        return together / narrower
    return math.inf if together > 0 else 1.0


def _wider(sample: Ends, benchmark: Ends) -> str:
    if sample == benchmark:
        return NEITHER
    if sample[0] <= benchmark[0] and sample[1] >= benchmark[1]:
        return SAMPLE
    return BENCHMARK if benchmark[0] <= sample[0] and benchmark[1] >= sample[1] else SHIFTED
