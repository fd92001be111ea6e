"""What a mapping file says of names: that an output of an operator in one run is an output of another in the other run.

Files name operators, dumps name tensors. ``operator_keys`` gives the ways in which a tensor's name tells its operator;
``/``, ``.``, ``:`` and blanks are as good as ``_``, which is what tools make of them in file names. msit's dumps of
torch put ``root.`` before the modules' names; mapping files do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ODD = re.compile(r"[/.:\\\s]")
_LONGEST = 4096
_ROOT = "root."
_OUTPUT = (
    # npu:output:0, torch.output.0, /conv1/Conv_output_0, conv1/Relu:0
    re.compile(r"(?P<operator>.+?)(?::output:|\.output\.|_output_|:)(?P<slot>\d{1,6})", re.DOTALL),
    # a golden file's name: {operator}.{output}.{time}
    re.compile(r"(?P<operator>.+)\.(?P<slot>\d{1,6})\.\d{16,17}", re.DOTALL),
    # msit's and our dumps of torch: {module}/output, output_1 of several
    re.compile(r"(?P<operator>.+)/output(?:_(?P<slot>\d{1,6}))?", re.DOTALL),
    # msprobe: Module.{path}.{class}.forward.{call}.output.{number}
    re.compile(r"(?:Module|Cell)\.(?P<operator>.+)\.[^.]+\.forward\.\d+\.output\.(?P<slot>\d{1,6})", re.DOTALL),
)

Key = tuple[str, int]


@dataclass(frozen=True)
class Output:
    """Output ``slot`` of an operator, which has one of these names; or the tensor of such a name itself."""

    names: tuple[str, ...]
    slot: int = 0

    def keys(self) -> Iterator[Key]:
        return ((plain(name), self.slot) for name in self.names)

    def __str__(self) -> str:
        return " or ".join(map(repr, self.names)) + (f" output {self.slot}" if self.slot else "")


@dataclass(frozen=True)
class Link:
    """The sample's output is the benchmark's; ``rule`` is the file's kind in a few words. With ``unknown`` the file
    does not say which one it is, and ``unknown`` says why."""

    sample: Output
    benchmark: Output
    rule: str
    unknown: str = ""

    def swapped(self) -> Link:
        return Link(self.benchmark, self.sample, self.rule, self.unknown)


def plain(name: str) -> str:
    """A name as file names of dump tools have it: ``layer1_0_conv1`` for ``layer1.0/conv1``."""
    return _ODD.sub("_", name)


def operator_keys(name: str, slot: int) -> set[Key]:
    """The operators and outputs that a tensor of this name, output ``slot`` in its dump, may be."""
    if name.startswith(_ROOT) and name != _ROOT:
        return operator_keys(name.removeprefix(_ROOT), slot) | _keys(name, slot)
    return _keys(name, slot)


def _keys(name: str, slot: int) -> set[Key]:
    keys = {(plain(name), slot)}
    for pattern in _OUTPUT if len(name) <= _LONGEST else ():
        match = pattern.fullmatch(name)
        if match:
            keys.add((plain(match["operator"]), int(match["slot"] or 0)))
    return keys
