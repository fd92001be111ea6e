"""Data flow between the compared tensors, from the input records of a dump or from its model's graph.

A simulator's dump repeats every operator input, which gives the data flow. A framework's dump contains only outputs;
``sgsdump dump`` keeps the model's graph beside it. The data flow finds the first operator whose output differs, the
errors of its inputs, and the error that it adds. Rows follow the order in which the benchmark's operators ran. An
operator inside a module comes before the module, so that the innermost differing operator is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

from sgsdump.comparison.alignment import Pair, has_own_inputs
from sgsdump.comparison.row import LEAST, Row, differs, is_rounding
from sgsdump.dumps.dump import Dump
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.errors import listed

_SHOWN = 3
DATA = "Data"  # type of the operator that provides a graph's input or weight
_NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True)
class Difference:
    """First differing row, ``output``, and the compared ``inputs`` of its operator.

    own  the output's error minus the largest error of its inputs (RMSE; infinite for NaN or Inf on one side only).
    """

    output: Row
    inputs: tuple[Row, ...]

    @property
    def own(self) -> float:
        return self.output.rise

    @property
    def is_placed(self) -> bool:
        """True if the operator's sources or its module are known."""
        return bool(self.inputs or self.output.module or self.output.by_flow)

    @property
    def where(self) -> str:
        """Operator and module: ``conv1 (Conv2d) in layer1.0``."""
        row = self.output
        operator = f"{row.name} ({row.op_type})" if row.op_type else row.name
        return f"{operator} in {row.module}" if row.module else operator

    def __str__(self) -> str:
        """Return ``output RMSE 0.01, inputs equal (a/input_0), own error 0.01``."""
        differing = [row for row in self.inputs if differs(row)]
        text = f"{_side(self.output)} {_error(self.output)}"
        if not self.inputs:
            return text
        if not differing:
            names = listed([row.name for row in self.inputs], _SHOWN)
            return f"{text}; all inputs are equal in both dumps ({names}); the operator's own error is {self.own:.3g}"
        text += f", inputs {', '.join(f'{_with_origin(row)} {_error(row)}' for row in differing)}"
        return f"{text}, own error {max(self.own, 0.0):.3g}"


def has_flow(dump: Dump) -> bool:
    """Return whether the dump records operator inputs by the names of outputs, beyond the network's own inputs."""
    if has_own_inputs(dump):
        return False
    reading = {record.op_index for record in dump.records if record.io == "in" and not record.constant}
    making = {record.op_index for record in dump.records if record.io == "out"}
    return len(reading) > 1 or bool(reading and making <= reading)


def has_reads(dump: Dump) -> bool:
    """Return whether the dump records the inputs of its operators, possibly under separate names."""
    return has_flow(dump) or (has_own_inputs(dump) and any(record.io == "in" for record in dump.records))


def known_sources(dumps: tuple[Dump, Dump], pairs: Sequence[Pair]) -> dict[str, tuple[str, ...]]:
    """Return benchmark output -> outputs that feed it, from the model graph of the benchmark, else of the sample.

    Empty if no graph is known, or if the benchmark's records already show the data flow.
    """
    sample, benchmark = map(reads_of, dumps)
    if benchmark:
        return nearest_read(benchmark, {pair.benchmark.name for pair in pairs})
    if has_flow(dumps[1]):
        return {}
    names = {pair.sample.name: pair.benchmark.name for pair in pairs}
    flow = nearest_read(sample, names.keys())
    return {names[name]: tuple(names[source] for source in sources) for name, sources in flow.items()}


def reads_of(dump: Dump) -> Mapping[str, tuple[str, ...]]:
    """Return tensor -> tensors from which it is computed, from the dump's model graph.

    Empty if no graph is known or the graph is another model's.
    """
    network = dump.network()
    return network.reads if network and isinstance(network, OnnxNetwork) else _NONE


def nearest_read(reads: Mapping[str, Sequence[str]], wanted: Set[str]) -> dict[str, tuple[str, ...]]:
    """Return for each wanted tensor the nearest wanted tensors upstream, in the order of their use."""
    nearest: dict[str, tuple[str, ...]] = {}
    for name in wanted & reads.keys():
        found: dict[str, None] = {}
        passed: set[str] = set()
        waiting = [*reversed(reads[name])]
        while waiting:
            source = waiting.pop()
            if source in wanted:
                found[source] = None
            elif source not in passed:
                passed.add(source)
                waiting += reversed(reads.get(source, ()))
        nearest[name] = tuple(found)
    return nearest


def network_outputs(dump: Dump) -> frozenset[str]:
    """Return the outputs that no operator reads; empty if the operators' inputs are unknown."""
    if reads := reads_of(dump):
        used = {name for names in reads.values() for name in names}
        return frozenset((dump.outputs.keys() & reads.keys()) - used)
    if not has_reads(dump):
        return frozenset()
    read = {record.name for record in dump.records if record.io == "in" and not record.constant}
    return frozenset(name for name in dump.outputs if name not in read) if read else frozenset()


def nearest_sources(dump: Dump, wanted: Set[str]) -> dict[str, tuple[str, ...]]:
    """Return output name -> nearest tensors upstream that are in ``wanted``, in the order of their use.

    The search passes through tensors that are not wanted, for example because the other side fused them away.
    """
    inputs: dict[int, list[str]] = defaultdict(list)
    outputs: dict[int, list[str]] = defaultdict(list)
    for record in dump.records:
        if not record.constant:
            (inputs if record.io == "in" else outputs)[record.op_index].append(record.name)
    nearest: dict[str, tuple[str, ...]] = {}
    for index in sorted(outputs):
        sources: dict[str, None] = {}
        for name in inputs[index]:
            sources.update(dict.fromkeys([name] if name in wanted else nearest.get(name, ())))
        for name in outputs[index]:
            nearest.setdefault(name, tuple(sources))
    return nearest


def with_rises(
    rows: list[Row], sample: Dump, benchmark: Dump, known: Mapping[str, tuple[str, ...]] = _NONE
) -> list[Row]:
    """Return the rows with ``sources`` and ``rise``.

    They come from the benchmark's data flow, else from the sample's, else from the order of the rows.

    known   benchmark output -> outputs that feed it, if another source provides it.

    Rows that hold two different tensors (``misnamed``) feed nothing.
    """
    trusted = [row for row in rows if not row.misnamed]
    errors = {row.name: row.error for row in trusted}
    if known:
        sources = [tuple(name for name in known.get(row.name, ()) if name in errors) for row in rows]
        rows = [row.replaced(by_flow=row.name in known) for row in rows]
    elif has_reads(benchmark):
        flow = nearest_sources(benchmark, errors.keys())
        sources = [flow.get(row.name, ()) for row in rows]
    elif has_reads(sample):
        benchmark_names = {row.sample_name: row.name for row in trusted}
        flow = nearest_sources(sample, benchmark_names.keys())
        sources = [tuple(benchmark_names[name] for name in flow.get(row.sample_name, ())) for row in rows]
    elif not any(row.io == "in" for row in rows):
        return _risen_in_order(rows)
    else:
        sources = _rows_before(rows)
    if any(row.io == "in" for row in rows):
        sources = [names or earlier for names, earlier in zip(sources, _made_before(rows))]
    return [_risen(row, names, errors) for row, names in zip(rows, sources)]


def _made_before(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yield for each input row the output that it repeats: the last earlier output with the same difference.

    This applies if inputs are dumped as separate tensors.
    """
    makers: dict[str, str] = {}
    for row in rows:
        alike = _identity(row) if row.error and not row.misnamed else ""
        yield (makers[alike],) if row.io == "in" and alike in makers else ()
        if row.io == "out" and alike:
            makers[alike] = row.name


def risen_again(rows: list[Row], by_flow: bool = True) -> list[Row]:
    """Return the rows with ``rise`` recomputed from their errors and ``sources``, or from their order."""
    if not by_flow:
        return _risen_in_order(rows)
    errors = {row.name: row.error for row in rows if not row.misnamed}
    return [_risen(row, tuple(name for name in row.sources if name in errors), errors) for row in rows]


def _rows_before(rows: list[Row]) -> list[tuple[str, ...]]:
    sources: list[tuple[str, ...]] = []
    before: tuple[str, ...] = ()
    for row in rows:
        sources.append(before)
        before = before if row.misnamed else (row.name,)
    return sources


def _risen_in_order(rows: list[Row]) -> list[Row]:
    """Return the rows with rises over the previous row; sources stay empty because no flow is known."""
    errors = {row.name: row.error for row in rows if not row.misnamed}
    risen = [_risen(row, names, errors) for row, names in zip(rows, _rows_before(rows))]
    return [row.with_rise((), row.rise) for row in risen]


def _risen(row: Row, sources: tuple[str, ...], errors: dict[str, float]) -> Row:
    before = max((errors[name] for name in sources), default=0.0)
    # an infinite error cannot rise
    return row.with_rise(sources, row.error - before if before < float("inf") else 0.0)


def first_difference(rows: Iterable[Row], beyond_rounding: bool = False) -> Difference | None:
    """Return the first operator whose output differs, else the first differing input; None if everything is equal."""
    rows = tuple(rows)
    differing = [
        row for row in rows if differs(row) and not row.misnamed and not (beyond_rounding and is_rounding(row))
    ]
    computed = [row for row in differing if row.io == "out" and row.op_type != DATA]
    first = next(_fed_alike(rows, differing, computed), next(iter([*computed, *differing]), None))
    if first is None:
        return None
    feeding = {row.name: row for row in rows if row.io == "in" or first.by_flow}
    return Difference(first, tuple(feeding[name] for name in first.sources if name in feeding))


def _fed_alike(rows: Sequence[Row], differing: Sequence[Row], computed: Sequence[Row]) -> Iterator[Row]:
    """Yield differing outputs that no other operator's differing output feeds, as far as known.

    Rows may follow the order in which modules were listed instead of the order in which they ran. A module counts after
    its contents.
    """
    if not any(row.io == "in" for row in rows):
        return
    makers: dict[str, set[int]] = defaultdict(set)
    for row in computed:
        makers[_identity(row)].add(row.op_index)
    inputs: dict[int, list[Row]] = defaultdict(list)
    for row in differing:
        if row.io == "in":
            inputs[row.op_index].append(row)
    for row in computed:
        fed_by = set().union(*(makers.get(_identity(own), ()) for own in inputs[row.op_index]))
        if not fed_by - {row.op_index}:
            yield row


def _identity(row: Row) -> str:
    """Return a key of a pair of tensors: its difference to the last digit."""
    return repr((row.count, row.sums, *row.statistics.items()))


def _with_origin(row: Row) -> str:
    return f"{row.name} ({row.origin})" if row.origin else row.name


def _side(row: Row) -> str:
    return "output" if row.io == "out" else "input"


def _error(row: Row) -> str:
    if row.statistics or row.checksums:
        return f"statistics differ by {row.error:.3g}" if row.error > LEAST else "checksums differ"
    if row.indices is not None:
        return f"{row.indices.differing} of {row.indices.count} values differ"
    return f"RMSE {row.rmse:.3g}" if row.finite else f"NaN or Inf at {row.odd_apart} positions of one side only"
