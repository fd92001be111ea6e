"""What stands around a round of a program: the outermost module, and what ran before it, outside any module.

Before a round run sampling, masks and bookkeeping. The dumping tool records no values of these operators, but what each
was called with, and of each tensor a checksum and statistics.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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


@dataclass(frozen=True)
class OutermostModule:
    """What the outermost module of a round took and gave, by whatever tells values of this run apart
    (``Operator.values``); ``name`` is its class, or the name of a compiled function."""

    name: str = ""
    inputs: tuple[Hashable, ...] = ()
    outputs: tuple[Hashable, ...] = ()
