"""Source code around the line of the program that called a layer's operator, for the page (``CodeOf``).

Dumps of ``sgsdump exec --with-source`` have such code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump, Network

SIDES = ("sample", "benchmark")


@dataclass(frozen=True)
class Code:
    """Lines of a program.

    place  line that called the operator: ``net.py:28``.
    first  number of the first line.
    side   "sample" or "benchmark", if the page has to name the program; else "".
    """

    place: str
    first: int
    lines: tuple[str, ...]
    side: str = ""

    @property
    def called(self) -> int:
        """Number of the line that called the operator."""
        return int(self.place.rpartition(":")[2])

    def is_same_as(self, other: Code) -> bool:
        """Return whether the same text calls the operator, also in files of other lengths."""
        return self.lines == other.lines and self.called - self.first == other.called - other.first


@dataclass(frozen=True)
class CodeOf:
    """Code of the layers of a comparison, from both dumps."""

    sample: Dump | None
    benchmark: Dump | None

    def of_row(self, row: Row) -> tuple[Code, ...]:
        """Return the code that called a layer in the sample, else in the benchmark; of both sides if they differ."""
        found = []
        if self.sample is not None and self.sample.source_lines():
            found.append(_code(self.sample, self._numbers.get((row.io, row.sample_name)), SIDES[0]))
        found.append(_code(self.benchmark, row.op_index, SIDES[1]))
        codes = [code for code in found if code is not None]
        if len(codes) == 2 and codes[0].is_same_as(codes[1]):
            del codes[1]
        if len(codes) == 1 and row.source in ("", codes[0].place):
            return (replace(codes[0], side=""),)
        return tuple(codes)

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        """Numbers of the sample's operators, by side and name of a tensor."""
        records = self.sample.records if self.sample is not None else ()
        return {(record.io, record.name): record.op_index for record in reversed(records)}


def code_of(dump: Dump, op_index: int) -> tuple[Code, ...]:
    """Return the code that called an operator of a dump; () if there is none."""
    code = _code(dump, op_index)
    return () if code is None else (code,)


def _code(dump: Dump | None, op_index: int | None, side: str = "") -> Code | None:
    lines = dump.source_lines() if dump is not None else {}
    if dump is None or op_index is None or not lines:
        return None
    network: Network = dump.network()
    operator = network.get(op_index)
    found = lines.get(operator.source) if operator is not None else None
    return None if operator is None or found is None else Code(operator.source, *found, side)
