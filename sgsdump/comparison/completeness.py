"""Completeness of a comparison: outputs and layers that the sample lacks, and layers that fusion removed.

An output is a tensor that no operator reads. If the benchmark does not record the inputs of its operators, unpaired
tensors after the last paired tensor count as missing outputs.

A tensor that the sample reads but does not contain is missing. A tensor that no operator of the sample knows was
removed by fusion, as on the chip; this requires that the sample records its dataflow or graph and contains a later
layer. Layers that the user excluded are not missing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping

from sgsdump.comparison.account import Completeness
from sgsdump.comparison.alignment import Alignment
from sgsdump.comparison.dataflow import has_flow, has_reads, network_outputs, reads_of
from sgsdump.dumps.dump import Damage, Dump, Network, Record


def completeness_of(
    sample: Dump, benchmark: Dump, whole: Alignment, kept: Alignment, sources: Mapping[str, tuple[str, ...]]
) -> Completeness:
    """Return the layers that the sample lacks.

    whole    alignment before the user's options excluded anything; ``kept`` is the alignment after them.
    sources  outputs that feed each output, if the recorded inputs do not show them.
    """
    lacking = [unpaired.record for unpaired in kept.only_in_benchmark if not unpaired.expected]
    outputs = [record for record in lacking if record.io == "out"]
    ends = _outputs(benchmark)
    if ends is None:
        missing_outputs = tuple(record.name for record in _after_last(outputs, benchmark, whole))
    else:
        network = benchmark.network()
        given = _also_given(network, kept)
        missing_outputs = tuple(r.name for r in outputs if r.name in ends and _value(r, network) not in given)
    ended = {*missing_outputs}
    inner = [record for record in outputs if record.name not in ended]
    beyond = {record.name for record in _after_last(inner, benchmark, whole)}
    fused = tuple(record.name for record in _fused_of([r for r in inner if r.name not in beyond], sample))
    inside = {*fused}
    known = tuple(name for name in benchmark.outputs if name in ends) if ends is not None else ()
    if ends is None and not missing_outputs:
        of_sample = _outputs(sample) or ()
        known = tuple(pair.benchmark.name for pair in whole.pairs if pair.sample.name in of_sample)
    return Completeness(
        bool(sources) or has_reads(benchmark) or has_reads(sample),
        known,
        missing_outputs,
        tuple(record.name for record in inner if record.name not in inside),
        fused,
        of=len(kept.pairs) + len(lacking) - len(fused) + _unreadable(benchmark),
    )


def _unreadable(dump: Dump) -> int:
    """Return the number of damaged files of the dump. Each counts as one layer."""
    return sum(isinstance(note, Damage) for note in dump.notes)


def _outputs(dump: Dump) -> Collection[str] | None:
    """Return the tensors that no operator reads; None if the dump does not record the inputs of operators."""
    if has_flow(dump) or reads_of(dump):
        return network_outputs(dump)
    operators = dump.network()
    read = {value for node in operators.values() for (io, _), value in node.values.items() if io == "in"}
    if not read:
        return None
    read |= {value for node in operators.values() for parts in node.parts.values() for value in parts}
    made = {
        record.name: operators[record.op_index].values.get(("out", 0))
        for record in dump.records
        if record.io == "out" and record.slot == 0 and record.op_index in operators
    }
    return {name for name, value in made.items() if value is not None and value not in read}


def _also_given(network: Network, kept: Alignment) -> frozenset[Hashable]:
    """Return the values of the compared outputs. A module returns the value of its last operator."""
    values = (_value(pair.benchmark, network) for pair in kept.pairs if pair.benchmark.io == "out")
    return frozenset(value for value in values if value is not None)


def _value(record: Record, network: Network) -> Hashable:
    operator = network.get(record.op_index)
    return None if operator is None else operator.values.get((record.io, record.slot))


def _after_last(lacking: list[Record], benchmark: Dump, whole: Alignment) -> Iterator[Record]:
    places = {id(record): place for place, record in enumerate(benchmark.records)}
    last = max((places[id(pair.benchmark)] for pair in whole.pairs), default=-1)
    return (record for record in lacking if places[id(record)] > last)


def _fused_of(lacking: list[Record], sample: Dump) -> list[Record]:
    """Return the layers that the sample fused.

    The graph of the sample must prove it: all inputs of its operators are in the dump. Different formats of the two
    dumps prove nothing.
    """
    if has_flow(sample):
        return [record for record in lacking if record.name not in sample.inputs]
    return lacking if _holds_its_graph(sample) else []


def _holds_its_graph(dump: Dump) -> bool:
    """Return whether the dump records a graph and contains all tensors passed between its operators."""
    operators = dump.network()
    read = {value for node in operators.values() for (io, _), value in node.values.items() if io == "in"}
    made = {value for node in operators.values() for (io, _), value in node.values.items() if io == "out"}
    if reads := reads_of(dump):
        read, made = read | {name for names in reads.values() for name in names}, made | reads.keys()
    dumped = {_value(record, operators) for record in dump.records if record.io == "out"}
    if not read:  # the graph has no values, so the dump must contain each operator
        return bool(operators) and operators.keys() <= {record.op_index for record in dump.records}
    return bool(read & made) and read & made <= dumped
