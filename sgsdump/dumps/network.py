"""Where in a program's network the operators of a dump stand, as far as the dumping tool recorded it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

Value = tuple[str, int]


@dataclass(frozen=True)
class Operator:
    """The operator of one ``op_index``.

    module     the path of the module that it runs in, or that it is: ``layer1.0.conv``; "" for the outermost.
    kind       what it computes, in the words of the library that ran it: ``aten.convolution``, ``Conv2d``, ``Conv``.
    is_module  it is a module, whose operators may be in the dump too.
    values     what it reads ("in", slot) and makes ("out", slot), by whatever tells values of this run apart: what one
               operator makes and another reads is the same. It may name inputs that were not dumped.
    weights    the name of each value that is a weight of the network.
    """

    module: str
    kind: str
    is_module: bool = False
    values: Mapping[Value, Hashable] = field(default_factory=dict, hash=False)
    weights: Mapping[Value, str] = field(default_factory=dict, hash=False)


Network = Mapping[int, Operator]
