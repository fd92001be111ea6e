"""Why two torch programs differ, by their exact values: what differs in exact arithmetic, and where sums are coarser.

Both programs were computed again in float64 (``exact_differences.py``). An operator inside a module that gives the same
on both sides is no cause, whatever differs at it: the module computes the same in another way. If a module differs and
nothing was found in it, the operators that one side lacks are found by value: they make what the other side has nowhere
in the module. If nothing differs in exact arithmetic, what is left is rounding, be it that one side keeps a sum in a
narrower type.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.exact_differences import apart
from sgsdump.comparison.finding import ACCUMULATION, Finding
from sgsdump.comparison.low_precision import Rounding
from sgsdump.comparison.naming.network import kind_of, only_moves, plain
from sgsdump.comparison.row import SAME, Row, differs, is_narrow, is_rounding
from sgsdump.dumps.dump import Network, Operator, Record
from sgsdump.replay import torch_operators
from sgsdump.replay.exact import ExactRun
from sgsdump.tensors.dtypes import KNOWN

if TYPE_CHECKING:
    import torch

_PRODUCTS = ("matmul", "conv", "sum", "mean")
_ADDS = 3  # additions one after another that make a sum of parts
_COARSER = 1.6  # times the other side's rounding, where a narrower type shows in what follows
_SHAPING = frozenset("reshape identity expand to_copy".split())  # they give what they read, in its order
_LAST = 1 << 62
_MOST_VALUES = 4000  # of a module, beyond which no values are looked for


@dataclass(frozen=True, eq=False)
class ExactSides:
    """Two runs computed again, with what stands where.

    rows      the compared rows, with their exact values; ``pairs`` are theirs.
    networks  of the sample and of the benchmark, ``runs`` likewise, ``records`` by operator.
    """

    rows: Sequence[Row]
    pairs: Sequence[Pair]
    networks: tuple[Network, Network]
    runs: tuple[ExactRun, ExactRun]
    records: tuple[Sequence[Record], Sequence[Record]]

    @property
    def are_known(self) -> bool:
        """Whether the exact values of most that differs are known."""
        differing = [row for row in self.rows if row.io == "out" and row.indices is None and differs(row)]
        return 2 * sum(row.exact is not None for row in differing) >= len(differing)

    @cached_property
    def same_modules(self) -> frozenset[str]:
        """The paths of modules that give the same in exact arithmetic, in every call, some of it in floats."""
        given = [(self.networks[1][row.op_index].module, row) for row in self.rows if self.is_module_output(row)]
        floats = {module for module, row in given if row.indices is None}
        return frozenset(floats - {module for module, row in given if _is_other(row)})

    def is_inside_same(self, module: str) -> bool:
        """Return whether a module, or one around it, gives the same on both sides."""
        paths = (module.rsplit(".", count)[0] for count in range(module.count(".") + 1))
        return any(path in self.same_modules for path in paths) or "" in self.same_modules

    @cached_property
    def ends(self) -> list[Row]:
        """The rows of what no operator reads."""
        read = {number for op in self.networks[1].values() for (io, _), number in op.values.items() if io == "in"}
        return [row for row in self.rows if row.io == "out" and self._number(row) not in read]

    @cached_property
    def gives_the_same(self) -> bool:
        """Whether all that the program gives in the end is the same: what its modules give, and what nothing reads."""
        given = [*filter(self.is_module_output, self.rows), *self.ends]
        return not any(_is_other(row) and not self.is_inside_same(row.module) for row in given)

    def is_module_output(self, row: Row) -> bool:
        """Return whether a row is of what a module gives."""
        operator = self.networks[1].get(row.op_index)
        return row.io == "out" and operator is not None and operator.is_module

    def _number(self, row: Row) -> Hashable:
        operator = self.networks[1].get(row.op_index)
        return None if operator is None else operator.values.get((row.io, row.slot))

    def is_innocent(self, finding: Finding) -> bool:
        """Whether a finding is of an operator inside a module that gives the same on both sides."""
        row = next((r for r in self.rows if r.name == finding.layer), None)
        if row is not None and row.exact is not None and is_rounding(row):
            return True
        module = finding.facts.get("module") or (row.module if row is not None else "")
        return self.is_inside_same(module) or (self.gives_the_same and not (self.read_otherwise and not module))

    @cached_property
    def read_otherwise(self) -> bool:
        """Whether a module reads other whole numbers (positions, tokens, indices), be they without effect."""
        return any(
            row.io == "in" and row.indices is not None and differs(row) and self.networks[1][row.op_index].is_module
            for row in self.rows
        )


def of_exact(
    sides: ExactSides, arguments: Sequence[Finding], found: Sequence[Finding], rounding: Rounding
) -> tuple[Finding, ...]:
    """Return the causes.

    Parameters
    ----------
    sides
        Both runs, computed again.
    arguments
        Arguments, types and weights that differ.
    found
        The same, after the first operator that differs by more than rounding.
    rounding
        In which types both sides compute.
    """
    kept = [finding for finding in found if not _is_type(finding) and not sides.is_innocent(finding)]
    coarser = [] if rounding.is_converted else list(_coarser(sides, arguments, found))
    if not sides.gives_the_same and not any(map(names_the_operator, kept[:1])):
        lacking = list(_lacking(sides))
        kept = [*lacking, *(kept[1:] if lacking else kept)]
        kept = kept or coarser or list(_at_the_end(sides))
    if kept or coarser:
        return tuple(dict.fromkeys((*kept, *coarser)))
    may_differ = (r for r in sides.rows if r.io == "out" and (r.exact is not None or not rounding.is_converted))
    inside = next(filter(_is_other, may_differ), None)
    if inside is None and not rounding.is_low:
        return ()
    facts = {"types": ", ".join(rounding.types or ["float32"])} | ({} if inside is None else {"inside": inside.name})
    return (Finding("rounding", facts=facts),) if any(map(differs, sides.rows)) else ()


def names_the_operator(finding: Finding) -> bool:
    """Return whether a finding says more than where a difference is seen first: an operator of one kind and with the
    same arguments gives the same of the same inputs."""
    is_argument = finding.kind == "argument" and finding.facts["what"] != "reads"
    return is_argument or bool(finding.facts.keys() & {"how", "only_in"})


def _is_type(finding: Finding) -> bool:
    return finding.kind == "argument" and finding.facts["what"] == "type"


def _is_other(row: Row) -> bool:
    """Whether a row differs by more than rounding, in exact arithmetic where that is known. NaN and infinity on one
    side alone count."""
    if row.exact is not None and not row.odd_apart:
        return row.exact.differs
    return differs(row) and not is_rounding(row)


def _coarser(sides: ExactSides, arguments: Sequence[Finding], found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield where the sample keeps a sum, or what is computed with, in a narrower type, if that shows."""
    accumulations = list(_accumulations(sides))
    yield from accumulations[:1]
    if accumulations:
        return
    for finding in arguments:
        if _is_type(finding) and _shows(sides, finding):
            yield finding
            return
    rows = {row.name: row.exact for row in sides.rows if row.exact is not None and row.exact.is_coarser}
    for finding in found:
        exact = next((rows[name] for name in (finding.layer, *finding.names) if name in rows), None)
        if finding.kind == "cause" and exact is not None and exact.sample > exact.benchmark:
            yield finding
            return


def _shows(sides: ExactSides, finding: Finding) -> bool:
    """Whether the sample is coarser than the benchmark in what a module gives after a type that differs."""
    if not _is_narrower(finding.facts["sample"], finding.facts["benchmark"]):
        return False
    place = next((i for i, row in enumerate(sides.rows) if row.name == finding.layer), None)
    if place is None:
        return False
    if plain(sides.networks[1][sides.rows[place].op_index].kind) == "to_copy":
        return True  # the program says so, as by an argument
    module = finding.facts.get("module", "")
    after = [
        row.exact
        for row in sides.rows[place:]
        if row.exact is not None and not row.dtype_note and row.io == "out" and row.module == module
    ]
    return not all(exact.sample <= _COARSER * max(exact.benchmark, exact.rounding / 32) for exact in after[:_ADDS])


def _is_narrower(word: str, other: str) -> bool:
    one, two = KNOWN.get(word), KNOWN.get(other)
    return one is not None and two is not None and one.itemsize < two.itemsize


def _accumulations(sides: ExactSides) -> Iterator[Finding]:
    """Yield each product or sum of the benchmark that the sample adds up from parts in a narrow type."""
    sample, benchmark = (_Region(sides, side, range(_LAST)) for side in (0, 1))
    for index, depth in sample.additions().items():
        if depth < _ADDS:
            continue
        number = sample.network[index].values.get(("out", 0))
        partner = benchmark.maker_of(sample.run.values.get(number), sample.network[index].module)
        if partner is None or kind_of(benchmark.network[partner].kind) not in _PRODUCTS:
            continue
        operator, record = sample.network[index], sample.output(index)
        errors = [_rounding_of(region, at) for region, at in ((sample, index), (benchmark, partner))]
        if record is None or not errors[0] > errors[1]:
            continue
        figures = {"error": errors[0], "benchmark_error": errors[1], "additions": float(depth)}
        facts = {"how": ACCUMULATION, "module": operator.module, "dtype": record.tensor.dtype.name}
        facts |= {"source": operator.source, "added": operator.kind}
        named = benchmark.output(partner)
        name = record.name if named is None else named.name
        yield Finding("cause", name, plain(benchmark.network[partner].kind), figures, "by value", facts=facts)


def _rounding_of(region: _Region, index: int) -> float:
    record = region.output(index)
    exact = region.run.values.get(region.network[index].values.get(("out", 0)))
    if record is None or exact is None:
        return math.nan
    return apart(torch_operators.wide(record.tensor.stored_view()), exact)


class _Region:
    """The operators of one side within a range of numbers, with what they make."""

    def __init__(self, sides: ExactSides, side: int, numbers: range):
        self.network, self.run = sides.networks[side], sides.runs[side]
        self.operators = [i for i in sorted(self.network) if i in numbers and not self.network[i].is_module]
        self._outputs = {r.op_index: r for r in reversed(sides.records[side]) if r.io == "out"}

    def output(self, index: int) -> Record | None:
        return self._outputs.get(index)

    @cached_property
    def makers(self) -> dict[Hashable, int]:
        """The operator that made each value; one that gives its input on made nothing."""
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
        """Yield the values of this side that are the same, in this order, in whatever shape."""
        total = _sum(values)
        for other, number in self._by_size.get(values.numel(), ()):
            near = abs(total - other) <= SAME * max(abs(total), abs(other)) * values.numel() or total == other
            if near and apart(self.run.values[number], values) <= SAME:
                yield number

    def maker_of(self, values: torch.Tensor | None, module: str) -> int | None:
        """Return the operator of this side that makes the same, within a module that holds ``module`` or is in it."""
        for number in self.like(values) if values is not None else ():
            index = self.makers.get(number)
            if index is not None and not only_moves(self.network[index].kind):
                own = f"{self.network[index].module}."
                if own.startswith(f"{module}.") or f"{module}.".startswith(own):
                    return index
        return None

    def additions(self) -> dict[int, int]:
        """Return the additions in a narrow type, each with how many follow one another up to it."""
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
        """Return the operators that these values are made by, in the end."""
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


def _lacking(sides: ExactSides) -> Iterator[Finding]:
    """Yield the first operator that only one side has of those that make what differs, by value."""
    if (differing := _differing_end(sides)) is None:
        return
    row, pair, is_module = differing
    regions = [
        _Region(sides, side, _inside(sides.networks[side], record) if is_module else range(_LAST))
        for side, record in enumerate(pair.records)
    ]
    if any(len(region.operators) > _MOST_VALUES for region in regions):
        return
    unlike = [list(_unlike(regions[side], regions[1 - side], pair.records[side])) for side in (0, 1)]
    kinds = [Counter(plain(regions[side].network[i].kind) for i, _ in unlike[side]) for side in (0, 1)]
    for is_first in (True, False):  # those whose inputs both sides have come before all others
        for side in (0, 1):
            more = kinds[side] - kinds[1 - side]
            for index, reads_the_same in unlike[side]:
                operator = regions[side].network[index]
                is_wanted = reads_the_same if is_first else kind_of(operator.kind) not in _SHAPING
                if is_wanted and more[plain(operator.kind)]:
                    yield _of_lacking(row, operator, regions[side].output(index), side)
                    return


def _at_the_end(sides: ExactSides) -> Iterator[Finding]:
    """Yield the module, or what the program gives, that differs first, if no operator is known."""
    if (differing := _differing_end(sides)) is not None:
        row = differing[0]
        figures = {"error": row.error, "rmse": row.rmse, "cos": row.cos}
        facts = {"module": row.module, "inputs": "equal" if differing[2] else "unknown"}
        yield Finding("cause", row.name, row.op_type, figures, "by value", facts=facts)


def _differing_end(sides: ExactSides) -> tuple[Row, Pair, bool] | None:
    """Return the first module that differs while what it reads does not, else what the program gives in the end."""
    fed_otherwise = {row.op_index for row in sides.rows if row.io == "in" and _is_other(row)}
    modules = (
        row
        for row in sides.rows
        if sides.is_module_output(row) and _is_other(row) and row.op_index not in fed_otherwise
        if not sides.is_inside_same(row.module)
    )
    module = next(modules, None)
    row = module or next(filter(_is_other, sides.ends), None)
    pair = next((p for p in sides.pairs if row is not None and _is_of(p, row)), None)
    return None if row is None or pair is None else (row, pair, module is not None)


def _is_of(pair: Pair, row: Row) -> bool:
    record = pair.benchmark
    return (record.io, record.op_index, record.slot, record.name) == (row.io, row.op_index, row.slot, row.name)


def _of_lacking(module: Row, operator: Operator, record: Record | None, side: int) -> Finding:
    facts = {"module": operator.module, "only_in": ("sample", "benchmark")[side], "inputs": "differ"}
    facts["source"] = operator.source
    figures = {"error": module.error, "rmse": module.rmse, "cos": module.cos}
    name = module.name if record is None else record.name
    return Finding("cause", name, operator.kind, figures, "by value", names=(module.name,), facts=facts)


def _unlike(region: _Region, other: _Region, module: Record) -> Iterator[tuple[int, bool]]:
    """Yield the operators that make what a module gives of which the other side has nothing like it, in order, and
    whether the other side has all that they read."""
    gives = [n for (io, _), n in region.network[module.op_index].values.items() if io == "out"]
    needed = region.needed(gives)
    known: dict[Hashable, bool] = {}

    def has(number: Hashable) -> bool:
        if number not in known:
            values = region.run.values.get(number)
            known[number] = values is not None and next(other.like(values), None) is not None
        return known[number]

    for index in region.operators:
        values = region.network[index].values
        made = [n for (io, _), n in values.items() if io == "out"]
        if index in needed and made and not all(map(has, made)):
            yield index, all(has(n) for (io, _), n in values.items() if io == "in" and n is not None)


def _inside(network: Network, module: Record) -> range:
    """Return the numbers of the operators that run in a call of a module."""
    path = network[module.op_index].module
    end = module.op_index + 1
    last = max(network)
    while end <= last and (end not in network or not path or f"{network[end].module}.".startswith(f"{path}.")):
        end += 1
    return range(module.op_index + 1, end)


def _sum(values: torch.Tensor) -> float:
    return float(torch_operators.as_reals(values).nan_to_num().sum())
