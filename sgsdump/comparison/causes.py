"""Causes of a difference between two programs: arguments, types and weights, else the first operator that differs.

The dumping tool records the arguments and weights of each operator (``Dump.network``). A different argument counts only
if the operator's output differs too; an argument without effect on these values is not a cause. If an earlier operator
with equal arguments and weights already differs, that operator is reported first.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import ml_dtypes
import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.dataflow import DATA, Difference, first_difference
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import kind_of, only_moves, plain
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Row, differs, is_rounding
from sgsdump.dumps.dump import Network, Operator, Record
from sgsdump.dumps.onnx_network import INITIALIZER
from sgsdump.replay.bounds import COLLECTIVE
from sgsdump.tensors.dtypes import KNOWN, is_float

if TYPE_CHECKING:
    from sgsdump.comparison.low_precision import Rounding
    from sgsdump.comparison.naming.sides import OneSided

NOT_GIVEN = "not given"
# Largest and smallest values of float types. Masks contain the values of the type of their run.
_ENDS = [sign * float(ml_dtypes.finfo(name).max) for name in ("float16", "bfloat16", "float32") for sign in (1, -1)]
_AXES = frozenset("dim dims axis dim0 dim1".split())
_SHAPES, _SHAPING = frozenset(("size", "shape")), frozenset(("reshape", "expand"))  # they do not change values
# Arguments that select where a result is computed or stored, and do not change it.
_NO_EFFECT = frozenset("device layout pin_memory memory_format non_blocking requires_grad".split())


class _Call(NamedTuple):
    """Operator of the benchmark with its rows.

    ``place`` is the place of the last row, and ``rank`` the number of axes that the arguments refer to.
    """

    place: int
    rows: Sequence[Row]
    rank: int = 0

    @property
    def outputs(self) -> list[Row]:
        return [row for row in self.rows if row.io == "out"]

    @property
    def layer(self) -> Row:
        """The row that represents the operator: the first output that differs, else the first output or row."""
        outputs = self.outputs
        return next(filter(differs, outputs), (outputs or self.rows)[0])


def argument_findings(
    rows: Sequence[Row],
    pairs: Sequence[Pair],
    sample: Network,
    benchmark: Network,
    maker_of: Callable[[Pair], OneSided | None] = lambda pair: None,
    rounding: Rounding | None = None,
) -> tuple[Finding, ...]:
    """Return the arguments, types and weights that differ, in execution order.

    If the first difference is the output of an operator that only one side has, this operator comes first. Differences
    that ``rounding`` to another type explains are left out.
    """
    if rounding is not None:
        rows = [row for row in rows if not (row.io == "in" and rounding.is_converted_value(row))]
    if not (sample and benchmark) and not any(row.dtype_note for row in rows) and _first_beyond_rounding(rows) is None:
        return ()
    partners = {pair.benchmark.op_index: pair.sample.op_index for pair in pairs}
    of_operator: defaultdict[int, list[tuple[int, Row]]] = defaultdict(list)
    for place, row in enumerate(rows):
        of_operator[row.op_index].append((place, row))
    ranks = _ranks(pairs, benchmark)
    calls = {i: _Call(own[-1][0], [row for _, row in own], ranks.get(i, 0)) for i, own in of_operator.items()}
    are_recorded = all(any(op.arguments for op in network.values()) for network in (sample, benchmark))
    found: list[tuple[int, Finding]] = []
    for index, call in calls.items():
        mine, theirs = sample.get(partners.get(index, -1)), benchmark.get(index)
        if mine is not None and theirs is not None:
            found += [(call.place, f) for f in _arguments(call, mine, theirs)] if are_recorded else []
            both = call, calls.get(_reader(index, benchmark), call)
            found += [(call.place, finding) for finding in _weights(both, mine, theirs, rounding)]
    is_converted = rounding is not None and rounding.is_converted
    found += [] if is_converted else _types(calls.values())
    found.sort(key=lambda item: item[0])
    one_sided = None if is_converted else _from_one_side(_first(rows), pairs, maker_of)
    if one_sided is not None and any(f.layer == name for _, f in found for name in one_sided.names):
        one_sided = None  # an argument or weight of the operator itself explains the difference
    outside = one_sided or _from_outside(rows, calls, pairs, (sample, benchmark))
    if outside is not None and all(f.layer != outside.layer and f.names != outside.names for _, f in found):
        return (outside, *_each_weight_once(finding for _, finding in found))
    return tuple(_each_weight_once(finding for _, finding in found))


def _ranks(pairs: Iterable[Pair], network: Network) -> dict[int, int]:
    """Return the number of axes of each operator's first input, or of its output if it adds an axis."""
    ranks: dict[int, int] = {}
    for record in (pair.benchmark for pair in pairs):
        operator = network.get(record.op_index)
        of = "out" if operator is not None and plain(operator.kind) in ("stack", "unsqueeze") else "in"
        if record.io == of and record.slot == 0 and record.tensor.shape is not None:
            ranks[record.op_index] = len(record.tensor.shape)
    return ranks


def _each_weight_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings. A weight that several operators read is reported for the first one only."""
    told: set[str] = set()
    for finding in findings:
        if not finding.figures:
            yield finding
        elif finding.facts["argument"] not in told:
            told.add(finding.facts["argument"])
            yield finding


def causes(rows: Sequence[Row], arguments: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return ``arguments``, after the first operator that differs by more than rounding if no argument explains it."""
    if not any(row.by_flow or row.module or row.io == "in" for row in rows):
        return tuple(arguments)  # no row has a place in a graph or module
    if any(row.step for row in rows):
        return tuple(arguments)  # every layer of a quantised side differs, so the rise of the error tells more
    first = first_difference(rows, beyond_rounding=True)
    if first is None or not first.is_placed:
        return tuple(arguments)
    places = {row.name: place for place, row in reversed([*enumerate(rows)])}
    if arguments and arguments[0].kind == "cause":
        return tuple(arguments)
    if any(places.get(name, len(rows)) <= places[first.output.name] for f in arguments for name in (f.layer, *f.names)):
        return tuple(arguments)
    return (_by_value(first), *arguments)


def with_collectives(findings: Iterable[Finding], rows: Sequence[Row], network: Network) -> Iterator[Finding]:
    """Yield the findings. A cause at a collective operator is marked, because the fault is in another rank."""
    kinds = {row.name: network[row.op_index].kind for row in reversed(rows) if row.op_index in network}
    for finding in findings:
        kind = kinds.get(finding.layer, "")
        brought = finding.kind == "cause" and not finding.names and kind.partition(".")[0] in COLLECTIVE
        yield replace(finding, facts={**finding.facts, "collective": kind}) if brought else finding


def with_sources(
    findings: Iterable[Finding], rows: Sequence[Row], unmatched: Iterable[tuple[Record, Network]] = ()
) -> Iterator[Finding]:
    """Yield the findings with the source line that called their operator, if known.

    unmatched  records that only one side has, with their network.
    """
    lines = {row.name: row.source for row in reversed(rows) if row.source}
    for record, network in unmatched:
        if (operator := network.get(record.op_index)) is not None and operator.source:
            lines.setdefault(record.name, operator.source)
    for finding in findings:
        source = finding.facts.get("source") or lines.get(finding.layer, "")
        yield replace(finding, facts={**finding.facts, "source": source}) if source else finding


def _by_value(first: Difference) -> Finding:
    row = first.output
    figures = {"error": row.error, "own": first.own}
    inputs = "differ" if any(map(differs, first.inputs)) else "equal" if first.inputs else "unknown"
    facts = {"module": row.module, "inputs": inputs}
    return Finding("cause", row.name, row.op_type, figures, "by value", facts=facts)


def _arguments(call: _Call, sample: Operator, benchmark: Operator) -> Iterator[Finding]:
    if plain(sample.kind) != plain(benchmark.kind) or (call.outputs and not any(map(differs, call.outputs))):
        return
    both = [name for name in benchmark.arguments if name in sample.arguments]
    # If the tools name the operator differently (Relu, ReLU), their argument names differ too.
    names = dict.fromkeys([*benchmark.arguments, *sample.arguments]) if sample.kind == benchmark.kind else both
    for name in names:
        if name.startswith(INITIALIZER):
            yield from _initializers(call, *(side.arguments.get(name) for side in (sample, benchmark)))
            continue
        values = [side.arguments.get(name) for side in (sample, benchmark)]
        if (
            name.rpartition(".")[2] in _NO_EFFECT
            or (name in _SHAPES and kind_of(benchmark.kind) in _SHAPING)
            or _are_equal(*values)
            or _is_same_axis(name, values, call.rank)
        ):
            continue
        texts = [NOT_GIVEN if value is None else value for value in values]
        yield _finding(call.layer, ("argument", name), texts[0], texts[1])


def _initializers(call: _Call, sample: str | None, benchmark: str | None) -> Iterator[Finding]:
    """Yield a finding if two initializers of the same type have different values."""
    if sample is None or benchmark is None:
        return
    (_, sample_type, sample_values), (name, type, values) = json.loads(sample), json.loads(benchmark)
    if sample_type == type and sample_values != values:
        yield _finding(call.layer, ("initializer", str(name)), str(sample_values), str(values))


def _finding(row: Row, argument: tuple[str, str], sample: str, benchmark: str) -> Finding:
    what, name = argument
    facts = {"what": what, "argument": name, "sample": sample, "benchmark": benchmark, "source": ""}
    return Finding("argument", row.name, row.op_type, facts={**facts, "module": row.module})


def _are_equal(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    values = [json.loads(one), json.loads(other)]
    if all(isinstance(value, float) for value in values) and math.isfinite(sum(values)):
        values = [_as_float32(value) for value in values]  # a composite operator may pass its scalar on as float32
    return bool(values[0] == values[1]) or all(value in _ENDS for value in values)


def _as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _is_same_axis(name: str, values: Sequence[str | None], rank: int) -> bool:
    """Return whether the values are the same axes of a tensor of this rank, one counted from the end."""
    if name not in _AXES or None in values:
        return False
    one, other = (value if isinstance(value, list) else [value] for value in map(json.loads, values))  # type: ignore[arg-type]
    if len(one) != len(other) or not all(type(axis) is int for axis in (*one, *other)):
        return False
    return all(abs(a - b) in (0, rank) for a, b in zip(one, other))


def _reader(index: int, network: Network) -> int:
    """Return the operator that computes with the tensor, skipping operators that only move or convert it."""
    while only_moves(network[index].kind):
        made = {value for key, value in network[index].values.items() if key[0] == "out" and value is not None}
        later = (
            other
            for other, operator in network.items()
            if other > index and not operator.is_module and made.intersection(_read(operator))
        )
        following = next(later, None)
        if following is None:
            break
        index = following
    return index


def _read(operator: Operator) -> Iterator[Hashable]:
    return (value for (io, _), value in operator.values.items() if io == "in")


def _weights(
    calls: tuple[_Call, _Call], sample: Operator, benchmark: Operator, rounding: Rounding | None
) -> Iterator[Finding]:
    """Yield the weights of an operator that differ, also if the sample reads another weight.

    A weight that is the other side's weight, rounded, does not differ. The finding names the second call, which
    computes with the weight.
    """
    call, reader = calls
    for row in call.rows:
        name, read = (side.weights.get((row.io, row.slot)) for side in (benchmark, sample))
        if name is not None and differs(row) and not (rounding and rounding.is_converted_value(row)):
            yield _of_weight(reader, row, "weight", name, read or "")


def _of_weight(call: _Call, row: Row, what: str, name: str, read: str = "") -> Finding:
    """Return the finding on a weight; ``read`` is the weight that the sample reads instead."""
    other, own = (read, name) if read not in ("", name) else ("", "")
    facts = {"what": what, "argument": name, "sample": other, "benchmark": own, "source": "", "module": row.module}
    figures = {"error": row.error, "rmse": row.rmse, "cos": row.cos}
    layer = call.layer
    return Finding("argument", layer.name, layer.op_type, figures, "by value", names=(row.name,), facts=facts)


def _from_one_side(
    first: Row | None, pairs: Iterable[Pair], maker_of: Callable[[Pair], OneSided | None]
) -> Finding | None:
    """Return a finding if the first tensor that differs is the output of an operator that only one side has."""
    if first is None:
        return None
    place = first.io, first.op_index, first.slot, first.name
    maker = next((maker_of(pair) for pair in pairs if place == _place_of(pair.benchmark)), None)
    if maker is None or (maker.read is not None and _are_alike(*maker.read)):
        return None
    facts = {"module": maker.module, "only_in": maker.side, "inputs": "differ"}
    facts |= {"chain": ", ".join(maker.chain)} if len(maker.chain) > 1 else {}
    is_measured = not (first.statistics or first.checksums)
    figures = {"error": first.error, **({"rmse": first.rmse, "cos": first.cos} if is_measured else {})}
    return Finding("cause", maker.name, maker.kind, figures, "by value", names=(first.name,), facts=facts)


def _are_alike(sample: Record, benchmark: Record) -> bool:
    """Return whether two tensors differ by rounding at most; False if they cannot be compared."""
    row = Measures({}).result(Pair(sample, benchmark, ""))
    return isinstance(row, Row) and (not differs(row) or is_rounding(row))


def _place_of(record: Record) -> tuple[str, int, int, str]:
    return record.io, record.op_index, record.slot, record.name


def _from_outside(
    rows: Sequence[Row], calls: Mapping[int, _Call], pairs: Iterable[Pair], networks: tuple[Network, Network]
) -> Finding | None:
    first = _first_beyond_rounding(rows)
    if first is None:
        return None
    finding = _of_weight(calls[first.op_index], first, "input", first.name)
    place = first.io, first.op_index, first.slot, first.name
    pair = next((pair for pair in pairs if place == _place_of(pair.benchmark)), None)
    makers = [] if pair is None else [_maker(r, network) for r, network in zip(pair.records, networks)]
    if not all(makers) or first.io != "in":
        return finding
    facts = {**finding.facts, "what": "reads", "sample": makers[0], "benchmark": makers[1]}
    return replace(finding, facts=facts)


def _maker(record: Record, network: Network) -> str:
    """Return the operator that computed an input, with its module (``aten.mm in layers.0.mlp.up_proj``), or ""."""
    makers: dict[Hashable, Operator] = {}
    for _, operator in sorted(network.items(), reverse=True):
        if not operator.is_module:
            makers |= {number: operator for (io, _), number in operator.values.items() if io == "out"}
    reader = network.get(record.op_index)
    number = None if reader is None else reader.values.get((record.io, record.slot))
    found: Operator | None = None
    passed: set[Hashable] = set()
    while number in makers and number not in passed:
        passed.add(number)
        found = makers[number]
        if not only_moves(found.kind):
            break
        number = found.values.get(("in", 0))
    if found is None or only_moves(found.kind):  # an input of the run
        return ""
    return f"{found.kind} in {found.module}" if found.module else found.kind


def _first_beyond_rounding(rows: Sequence[Row]) -> Row | None:
    """Return the first input (weight or program input) that differs before any output differs, or None."""
    first = _first(rows)
    return None if first is None or (first.io == "out" and first.op_type != DATA) else first


def _first(rows: Sequence[Row]) -> Row | None:
    return next((r for r in rows if differs(r) and not is_rounding(r) and not r.misnamed), None)


def _types(calls: Iterable[_Call]) -> Iterator[tuple[int, Finding]]:
    """Yield the first operator whose element type differs, with the names of all such operators."""
    of_type = [(call, row) for call in calls for row in call.rows if _has_other_type(row)]
    if of_type:
        call, row = min(of_type, key=lambda item: item[0].place)
        finding = _finding(call.layer, ("type", "type"), row.sample_dtype, row.benchmark_dtype)
        names = tuple(dict.fromkeys(call.layer.name for call, _ in of_type))
        yield call.place, Finding(finding.kind, finding.layer, finding.op_type, names=names, facts=finding.facts)


def _has_other_type(row: Row) -> bool:
    types = [KNOWN.get(name) for name in (row.sample_dtype, row.benchmark_dtype)]
    return bool(row.dtype_note) and all(dtype is not None and is_float(dtype) for dtype in types)
