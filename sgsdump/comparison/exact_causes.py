"""Causes of a difference between two torch programs, from exact values: different arithmetic, or coarser sums.

Both programs were recomputed in float64 (``exact_differences.py``):

- If a module returns the same exact values on both sides, no operator inside it is a cause. The module computes the
  same function in another way.
- If a module differs and no cause was found in it, operators that one side lacks are found by value: nothing in the
  module of the other side equals their output.
- If nothing differs in exact arithmetic, the difference is rounding. One side may accumulate a sum in a narrower type.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from sgsdump.comparison.exact_differences import apart
from sgsdump.comparison.exact_sides import ALL, ExactSides, Region, is_other
from sgsdump.comparison.finding import ACCUMULATION, Finding
from sgsdump.comparison.low_precision import Rounding
from sgsdump.comparison.naming.network import kind_of, plain
from sgsdump.comparison.row import Row, differs
from sgsdump.dumps.dump import Network, Operator, Record
from sgsdump.replay import torch_operators
from sgsdump.tensors.dtypes import KNOWN

_PRODUCTS = ("matmul", "conv", "sum", "mean")
_ADDS = 3  # number of consecutive additions that form a sum of parts
_COARSER = 1.6  # ratio of both sides' rounding errors from which a narrower type shows in later layers
_SHAPING = frozenset("reshape identity expand to_copy".split())  # operators that keep values and their order
_MOST_VALUES = 4000  # number of a module's operators above which values are not searched


def of_exact(
    sides: ExactSides, arguments: Sequence[Finding], found: Sequence[Finding], rounding: Rounding
) -> tuple[Finding, ...]:
    """Return the causes.

    sides      both runs, recomputed in float64.
    arguments  arguments, types and weights that differ.
    found      ``arguments``, after the first operator that differs by more than rounding.
    rounding   the types in which both sides compute.
    """
    kept = [finding for finding in found if not _is_type(finding) and not sides.is_innocent(finding)]
    coarser = [] if rounding.is_converted else list(_coarser(sides, arguments, found))
    is_named = any(names_the_operator(finding) and not _is_made_by_both(sides, finding) for finding in kept[:1])
    if not sides.gives_the_same and not is_named:
        lacking = list(_lacking(sides)) or list(_of_other_size(sides))
        kept = [*lacking, *(kept[1:] if lacking else kept)]
        kept = kept or coarser or list(_at_the_end(sides))
    if kept or coarser:
        return tuple(dict.fromkeys((*kept, *coarser)))
    may_differ = (row for row in sides.rows if row.exact is not None or not rounding.is_converted)
    inside = next(filter(is_other, may_differ), None)
    if inside is None and not rounding.is_low:
        return ()
    facts = {"types": ", ".join(rounding.types or ["float32"])} | ({} if inside is None else {"inside": inside.name})
    return (Finding("rounding", facts=facts),) if any(map(differs, sides.rows)) else ()


def names_the_operator(finding: Finding) -> bool:
    """Return whether a finding names a fault, not only the first place of a difference.

    An operator of the same kind with the same arguments and inputs returns the same output.
    """
    is_argument = finding.kind == "argument" and finding.facts["what"] != "reads"
    return is_argument or bool(finding.facts.keys() & {"how", "only_in"})


def _is_made_by_both(sides: ExactSides, finding: Finding) -> bool:
    """Return whether the other side has the output of an operator that only one side has, as of an idle clamp."""
    if "only_in" not in finding.facts:
        return False
    side = int(finding.facts["only_in"] == "benchmark")
    region = Region(sides, side, ALL)
    made = {r.op_index for r in sides.records[side] if r.io == "out" and r.name == finding.layer}
    numbers = (n for i in made for (io, _), n in region.network[i].values.items() if io == "out")
    other = Region(sides, 1 - side, ALL)
    known = [region.run.values[number] for number in numbers if number in region.run.values]
    return any(next(other.like(values), None) is not None for values in known)


def _is_type(finding: Finding) -> bool:
    return finding.kind == "argument" and finding.facts["what"] == "type"


def _coarser(sides: ExactSides, arguments: Sequence[Finding], found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the place where the sample uses a narrower type for a sum or an operand, if it affects the values."""
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
    """Return whether, after a type that differs, the outputs of the module are coarser than the benchmark's."""
    if not _is_narrower(finding.facts["sample"], finding.facts["benchmark"]):
        return False
    place = next((i for i, row in enumerate(sides.rows) if row.name == finding.layer), None)
    if place is None:
        return False
    if plain(sides.networks[1][sides.rows[place].op_index].kind) == "to_copy":
        return True  # the program converts explicitly
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
    """Yield each product or sum of the benchmark that the sample accumulates from parts in a narrow type."""
    sample, benchmark = (Region(sides, side, ALL) for side in (0, 1))
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


def _rounding_of(region: Region, index: int) -> float:
    record = region.output(index)
    exact = region.run.values.get(region.network[index].values.get(("out", 0)))
    if record is None or exact is None:
        return math.nan
    return apart(torch_operators.wide(record.tensor.stored_view()), exact)


def _lacking(sides: ExactSides) -> Iterator[Finding]:
    """Yield the first operator that only one side has and that contributes to the first difference, by value."""
    if (differing := sides.differing_end()) is None:
        return
    row, pair, is_module = differing
    regions = [
        Region(sides, side, _inside(sides.networks[side], record) if is_module else ALL)
        for side, record in enumerate(pair.records)
    ]
    if any(len(region.operators) > _MOST_VALUES for region in regions):
        return
    unlike = [list(_unlike(regions[side], regions[1 - side], pair.records[side])) for side in (0, 1)]
    kinds = [Counter(plain(regions[side].network[i].kind) for i, _ in unlike[side]) for side in (0, 1)]
    for is_first in (True, False):  # first the operators whose inputs exist on both sides
        for side in (0, 1):
            more = kinds[side] - kinds[1 - side]
            for index, reads_the_same in unlike[side]:
                operator = regions[side].network[index]
                is_wanted = reads_the_same if is_first else kind_of(operator.kind) not in _SHAPING
                if is_wanted and more[plain(operator.kind)]:
                    yield _of_lacking(row, operator, regions[side].output(index), side)
                    return


def _of_other_size(sides: ExactSides) -> Iterator[Finding]:
    """Yield the first input of both runs whose sizes differ."""
    differing = sides.differing_end()
    pair = next(filter(sides.is_of_other_size, sides.pairs), None)
    if differing is not None and pair is not None:
        row = differing[0]
        sample, benchmark = (str(list(record.tensor.shape or ())) for record in pair.records)
        facts = {"what": "size", "argument": pair.benchmark.name, "sample": sample, "benchmark": benchmark}
        facts |= {"module": row.module, "source": row.source}
        yield Finding("argument", row.name, row.op_type, names=(pair.benchmark.name,), facts=facts)


def _at_the_end(sides: ExactSides) -> Iterator[Finding]:
    """Yield the first module or program output that differs."""
    if (differing := sides.differing_end()) is not None:
        row = differing[0]
        figures = {"error": row.error, "rmse": row.rmse, "cos": row.cos}
        facts = {"module": row.module, "inputs": "equal" if differing[2] else "unknown"}
        yield Finding("cause", row.name, row.op_type, figures, "by value", facts=facts)


def _of_lacking(module: Row, operator: Operator, record: Record | None, side: int) -> Finding:
    facts = {"module": operator.module, "only_in": ("sample", "benchmark")[side], "inputs": "differ"}
    facts["source"] = operator.source
    figures = {"error": module.error, "rmse": module.rmse, "cos": module.cos}
    name = module.name if record is None else record.name
    return Finding("cause", name, operator.kind, figures, "by value", names=(module.name,), facts=facts)


def _unlike(region: Region, other: Region, module: Record) -> Iterator[tuple[int, bool]]:
    """Yield the operators of a module, in order, whose output the other side has nowhere.

    The second value says whether the other side has all their inputs.
    """
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
    """Return the numbers of the operators that run in one call of a module."""
    path = network[module.op_index].module
    end = module.op_index + 1
    last = max(network)
    while end <= last and (end not in network or not path or f"{network[end].module}.".startswith(f"{path}.")):
        end += 1
    return range(module.op_index + 1, end)
