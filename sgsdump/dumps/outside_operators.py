"""Records of operators that ran outside any module, before a round of a program, and of the round's outermost module.

Such operators compute sampling, masks and bookkeeping. The dumping tool records their arguments, and a checksum and
statistics of each tensor, but no values.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OutsideTensor:
    """A tensor without values.

    checksum  equal for equal values; None if not recorded.
    figures   maximum, minimum, mean and L2 norm; () if not recorded.
    """

    dtype: str
    shape: tuple[int, ...]
    checksum: int | None
    figures: tuple[float, ...]


@dataclass(frozen=True)
class OutsideOperator:
    """An operator that ran between two rounds.

    kind       operator type in the vocabulary of its library: ``aten.div``.
    source     program line of the call, ``net.py:28``.
    arguments  non-tensor arguments by name, as JSON.
    """

    kind: str
    source: str
    arguments: Mapping[str, str] = field(hash=False)
    inputs: tuple[OutsideTensor, ...]
    outputs: tuple[OutsideTensor, ...]


@dataclass(frozen=True)
class OutermostModule:
    """Inputs and outputs of a round's outermost module, as value identities (``Operator.values``).

    ``name`` is the module's class or the name of a compiled function.
    """

    name: str = ""
    inputs: tuple[Hashable, ...] = ()
    outputs: tuple[Hashable, ...] = ()
