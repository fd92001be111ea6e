"""What a program runs outside any module, between two of its rounds: sampling, masks, bookkeeping.

The dumping tool records no values of it, but what each operator was called with, and of each tensor a checksum and
statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OutsideTensor:
    """A tensor without its values.

    checksum  equal for equal values; None where it was not taken.
    figures   the largest and the smallest value, mean and L2 norm; () where they were not taken.
    """

    dtype: str
    shape: tuple[int, ...]
    checksum: int | None
    figures: tuple[float, ...]


@dataclass(frozen=True)
class OutsideOperator:
    """An operator between two rounds.

    kind       in the words of its library: ``aten.div``.
    source     the line of the program that called it, ``net.py:28``.
    arguments  those that are no tensors, by name, as JSON.
    """

    kind: str
    source: str
    arguments: Mapping[str, str] = field(hash=False)
    inputs: tuple[OutsideTensor, ...]
    outputs: tuple[OutsideTensor, ...]
