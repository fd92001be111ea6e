"""What a comparison lacks of its reference: outputs, layers; and what fusion removed. Apart: it reads whole dumps.

An output is a tensor that nothing reads. Where the reference does not record what reads what, the tensors after its
last paired one count as outputs that are missing. A tensor that the sample reads, and nothing of it made, was lost; one
that no operator of the sample knows was removed by fusion, as the chip does, if the sample records its dataflow or
graph, and holds something further down. What the user left out is not missing.
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
    """``whole`` is the alignment before the user's options left anything out, ``kept`` what they left; ``sources`` are
    which outputs feed which where the dumps' inputs do not tell it."""
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
    """The tensors that nothing reads; None where the dump does not record what its operators read."""
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
    """The values of what was compared: a module gives what its last operator gives."""
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
    """Return those of which the sample's own graph proves that it has no tensor between the layers around: what its
    operators read is all in the dump. That two dumps have different formats proves nothing."""
    if has_flow(sample):
        return [record for record in lacking if record.name not in sample.inputs]
    return lacking if _holds_its_graph(sample) else []


def _holds_its_graph(dump: Dump) -> bool:
    """Return whether the dump records a graph, and has all tensors that operators of the graph hand on."""
    operators = dump.network()
    read = {value for node in operators.values() for (io, _), value in node.values.items() if io == "in"}
    made = {value for node in operators.values() for (io, _), value in node.values.items() if io == "out"}
    if reads := reads_of(dump):
        read, made = read | {name for names in reads.values() for name in names}, made | reads.keys()
    dumped = {_value(record, operators) for record in dump.records if record.io == "out"}
    if not read:  # operators without values: each has to be there
        return bool(operators) and operators.keys() <= {record.op_index for record in dump.records}
    return bool(read & made) and read & made <= dumped
