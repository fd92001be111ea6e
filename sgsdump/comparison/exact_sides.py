"""Two torch programs recomputed in float64, side by side: modules with equal results, and matching values.

A module with equal exact values in every call computes the same result, whatever its operators. A ``Region`` holds the
operators of one side, in which values of the other side are searched, whatever their shape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.exact_differences import apart
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import kind_of, only_moves
from sgsdump.comparison.row import SAME, Row, differs, is_narrow, is_rounding
from sgsdump.dumps.dump import Network, Record
from sgsdump.replay import torch_operators
from sgsdump.replay.exact import ExactRun

if TYPE_CHECKING:
    import torch

ALL = range(1 << 62)  # numbers of all operators


@dataclass(frozen=True, eq=False)
class ExactSides:
    """Two recomputed runs.

    rows      compared rows with their exact values; ``pairs`` belong to them.
    networks  of sample and benchmark; ``runs`` and ``records`` likewise.
    """

    rows: Sequence[Row]
    pairs: Sequence[Pair]
    networks: tuple[Network, Network]
    runs: tuple[ExactRun, ExactRun]
    records: tuple[Sequence[Record], Sequence[Record]]

    @property
    def are_known(self) -> bool:
        """True if exact values are known for most differing tensors of equal shape."""
        alike = {p.benchmark.name for p in self.pairs if p.sample.tensor.shape == p.benchmark.tensor.shape}
        made = (row for row in self.rows if row.io == "out" and row.indices is None and row.name in alike)
        differing = [row for row in made if differs(row)]
        return 2 * sum(row.exact is not None for row in differing) >= len(differing)

    @cached_property
    def same_modules(self) -> frozenset[str]:
        """Paths of modules whose outputs agree in exact arithmetic in every call, with at least one float output."""
        given = [(self.networks[1][row.op_index].module, row) for row in self.rows if self.is_module_output(row)]
        floats = {module for module, row in given if row.indices is None}
        return frozenset(floats - {module for module, row in given if is_other(row)})

    def is_inside_same(self, module: str) -> bool:
        """Return whether a module, or a module around it, gives the same result on both sides."""
        paths = (module.rsplit(".", count)[0] for count in range(module.count(".") + 1))
        return any(path in self.same_modules for path in paths) or "" in self.same_modules

    @cached_property
    def ends(self) -> list[Row]:
        """Rows of values that no operator reads.

        An operator that passes its input on, such as a view, reads nothing.
        """
        read: set[Hashable] = set()
        for operator in self.networks[1].values():
            given = {number for (io, _), number in operator.values.items() if io == "out"}
            read |= {n for (io, _), n in operator.values.items() if io == "in" and n not in given}
        return [row for row in self.rows if row.io == "out" and self._number(row) not in read]

    @cached_property
    def gives_the_same(self) -> bool:
        """True if all final results of the program agree: outputs of modules, and values that nothing reads."""
        given = [*filter(self.is_module_output, self.rows), *self.ends]
        return bool(given) and not any(is_other(row) and not self.is_inside_same(row.module) for row in given)

    def is_module_output(self, row: Row) -> bool:
        """Return whether a row is an output of a module."""
        operator = self.networks[1].get(row.op_index)
        return row.io == "out" and operator is not None and operator.is_module

    def _number(self, row: Row) -> Hashable:
        operator = self.networks[1].get(row.op_index)
        return None if operator is None else operator.values.get((row.io, row.slot))

    def is_innocent(self, finding: Finding) -> bool:
        """Return whether a finding concerns an operator inside a module that gives the same result on both sides."""
        row = next((r for r in self.rows if r.name == finding.layer), None)
        if row is not None and row.exact is not None and is_rounding(row):
            return True
        if finding.facts.get("what") == "input":  # modules pass on values that they do not use
            return self.gives_the_same
        module = finding.facts.get("module") or (row.module if row is not None else "")
        return self.is_inside_same(module) or (self.gives_the_same and not (self.read_otherwise and not module))

    def is_of_other_size(self, pair: Pair) -> bool:
        """Return whether a pair entered the two runs with different sizes, as a cache with dropped entries does."""
        operator = self.networks[1].get(pair.benchmark.op_index)
        key = pair.benchmark.io, pair.benchmark.slot
        return (
            pair.benchmark.io == "in"
            and pair.sample.tensor.shape != pair.benchmark.tensor.shape
            and operator is not None
            and key not in operator.weights
            and operator.values.get(key) in self.runs[1].outside
        )

    @cached_property
    def read_otherwise(self) -> bool:
        """True if a module reads different whole numbers (positions, tokens, indices), even without effect."""
        return any(
            row.io == "in" and row.indices is not None and differs(row) and self.networks[1][row.op_index].is_module
            for row in self.rows
        )

    def differing_end(self) -> tuple[Row, Pair, bool] | None:
        """Return the first module that differs although its inputs agree, else the first differing final result."""
        fed_otherwise = {row.op_index for row in self.rows if row.io == "in" and is_other(row)}
        modules = (
            row
            for row in self.rows
            if self.is_module_output(row) and is_other(row) and row.op_index not in fed_otherwise
            if not self.is_inside_same(row.module)
        )
        module = next(modules, None)
        row = module or next(filter(is_other, self.ends), None)
        pair = next((p for p in self.pairs if row is not None and _is_of(p, row)), None)
        return None if row is None or pair is None else (row, pair, module is not None)


class Region:
    """Operators of one side within a range of numbers, with their results."""

    def __init__(self, sides: ExactSides, side: int, numbers: range):
        self.network, self.run = sides.networks[side], sides.runs[side]
        self.operators = [i for i in sorted(self.network) if i in numbers and not self.network[i].is_module]
        self._outputs = {r.op_index: r for r in reversed(sides.records[side]) if r.io == "out"}

    def output(self, index: int) -> Record | None:
        """Return the first output of an operator; None if it was not dumped."""
        return self._outputs.get(index)

    @cached_property
    def makers(self) -> dict[Hashable, int]:
        """Operator that produced each value; an operator that passes its input on produced nothing."""
        made = (
            (i, n) for i in reversed(self.operators) for (io, _), n in self.network[i].values.items() if io == "out"
        )
        return {number: index for index, number in made}

    @cached_property
    def _by_size(self) -> dict[int, list[tuple[float, Hashable]]]:
        found: defaultdict[int, list[tuple[float, Hashable]]] = defaultdict(list)
        read = (n for i in self.operators for n in self.network[i].values.values())
        for number in dict.fromkeys(n for n in read if n in self.run.values):
            values = self.run.values[number]
            found[values.numel()].append((_sum(values), number))
        return found

    def like(self, values: torch.Tensor) -> Iterator[Hashable]:
        """Yield the values of this side that are equal, in this order, whatever their shape."""
        total = _sum(values)
        for other, number in self._by_size.get(values.numel(), ()):
            near = abs(total - other) <= SAME * max(abs(total), abs(other)) * values.numel() or total == other
            if near and apart(self.run.values[number], values) <= SAME:
                yield number

    def maker_of(self, values: torch.Tensor | None, module: str) -> int | None:
        """Return the operator of this side that produces the same values, inside or around ``module``."""
        for number in self.like(values) if values is not None else ():
            index = self.makers.get(number)
            if index is not None and not only_moves(self.network[index].kind):
                own = f"{self.network[index].module}."
                if own.startswith(f"{module}.") or f"{module}.".startswith(own):
                    return index
        return None

    def additions(self) -> dict[int, int]:
        """Return the additions in a narrow type, each with the length of the chain of additions up to it."""
        depths: dict[int, int] = {}
        for index in self.operators:
            operator, record = self.network[index], self.output(index)
            if kind_of(operator.kind) != "add" or record is None or not is_narrow(record.tensor.dtype.name):
                continue
            made_of = [self.makers.get(n) for (io, _), n in operator.values.items() if io == "in"]
            before = [made for made in made_of if made in depths]
            depths[index] = 1 + max((depths[made] for made in before), default=0)  # type: ignore[index]
        return depths

    def needed(self, numbers: Sequence[Hashable]) -> set[int]:
        """Return all operators upstream of these values."""
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            index = self.makers.get(number)
            if index is None or index in found:
                continue
            found.add(index)
            operator = self.network[index]
            waiting += [n for (io, _), n in operator.values.items() if io == "in"]
            waiting += [part for parts in operator.parts.values() for part in parts]
        return found


def is_other(row: Row) -> bool:
    """Return whether a row differs by more than rounding, in exact arithmetic if known.

    NaN and infinity on one side only count as different.
    """
    if row.exact is not None and not row.odd_apart:
        return row.exact.differs
    return differs(row) and not is_rounding(row)


def _is_of(pair: Pair, row: Row) -> bool:
    record = pair.benchmark
    return (record.io, record.op_index, record.slot, record.name) == (row.io, row.op_index, row.slot, row.name)


def _sum(values: torch.Tensor) -> float:
    return float(torch_operators.as_reals(values).nan_to_num().sum())
