"""Pairing the tensors of two dumps of programs by where they stand in the network: module and operator, then place.

It holds for one program in two versions, on two devices or compiled, and for one network in two libraries. Inputs of
paired operators pair by slot where one library ran both, else by what they come from or by their shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sgsdump.comparison.naming.network import Node, Nodes, nodes_of, plain
from sgsdump.comparison.naming.pairs_by_module import NodePair, pairs_by_module, renamed_modules
from sgsdump.comparison.naming.pairs_by_place import pairs_by_place, tail
from sgsdump.comparison.pairing.alignment import Given, Pair, compared
from sgsdump.dumps.dump import Dump, Record

MODULE, PLACE = "module and operator", "place in the dataflow"


@dataclass(frozen=True)
class Placed:
    """What two networks say of a comparison.

    given    the pairs, and what must not be paired by its name, which may be another operator's.
    modules  the module of each record, by ``id``.
    origins  what an input is that no paired operator made, by ``id``.
    sources  by name of a benchmark's output the outputs that feed it, where the dumps have no inputs to tell it by.
    """

    given: Given = field(default_factory=Given)
    modules: Mapping[int, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origins: Mapping[int, str] = field(default_factory=dict)

    def module_of(self, pair: Pair) -> str:
        return self.modules.get(id(pair.benchmark)) or self.modules.get(id(pair.sample), "")

    def origin_of(self, pair: Pair) -> str:
        of_both = (self.origins.get(id(record)) for record in (pair.sample, pair.benchmark))
        return " against ".join(dict.fromkeys(filter(None, of_both)))


class Both(NamedTuple):
    """Two paired operators; ``ends`` are those whose outputs are the same, further down where one side folded what
    follows into its operator."""

    sample: Node
    benchmark: Node
    how: str
    ends: NodePair


def placed(sample: Dump, benchmark: Dump, inputs: bool, given: Given, pairing: bool = True) -> Placed:
    """Without ``pairing``, and where names make all pairs, ``given`` stays as it is. A pair in it is never undone.

    Two dumps of models, of whose networks nothing is known but what these names say, pair by names first: operators
    that one of them fuses would shift those of the same kind."""
    networks = nodes_of(sample), nodes_of(benchmark)
    modules = {id(record): node.module for side in networks for node in side for record in _records(node)}
    wanted = [compared(dump, inputs) for dump in (sample, benchmark)]
    names = [{(record.io, record.name) for record in side} for side in wanted]
    if not pairing or not all(networks) or names[0] == names[1]:
        return Placed(given, modules, _own_sources(networks[1]), dict(_weights(networks)))
    nodes = _paired(networks)
    left = {id(record) for side in wanted for record in side} - given.apart.keys()
    of_models = not (sample.network() or benchmark.network())
    if of_models:
        left -= {id(record) for side in wanted for record in side if (record.io, record.name) in names[0] & names[1]}
    left -= {id(record) for pair in given.pairs for record in (pair.sample, pair.benchmark)}
    pairs = list(given.pairs)
    of_libraries = _has_inputs(networks[0]) != _has_inputs(networks[1])
    for pair in (pair for both in nodes for pair in _pairs(both)):
        if of_libraries and _size(pair.sample) != _size(pair.benchmark):
            continue  # another operator of this kind: one library makes several where the other has one
        if {id(pair.sample), id(pair.benchmark)} <= left:
            left -= {id(pair.sample), id(pair.benchmark)}
            pairs.append(pair)
    reasons = {} if of_models else _reasons(networks, nodes)
    apart = {**given.apart, **{record: reason for record, reason in reasons.items() if record in left}}
    by_inputs = any(pair.benchmark.io == "in" for pair in pairs)
    sources = {} if by_inputs else dict(_sources(networks, nodes, pairs))
    origins = {**dict(_one_sided(networks, nodes)), **dict(_weights(networks))}
    return Placed(Given(tuple(pairs), apart, given.reasons), modules, sources, origins)


def _paired(networks: tuple[Nodes, Nodes]) -> list[Both]:
    by_module = pairs_by_module(*networks)
    by_place = pairs_by_place(*networks, by_module)
    by_place += renamed_modules(*networks, [*by_module, *by_place])
    taken = {node for pair in [*by_module, *by_place] for node in pair}
    paired = []
    for how, pairs in ((MODULE, by_module), (PLACE, by_place)):
        for sample, benchmark in pairs:
            ends = sample, benchmark
            if not (sample.is_module or benchmark.is_module):
                ends = (
                    tail(networks[0], sample, networks[1], benchmark, taken),
                    tail(networks[1], benchmark, networks[0], sample, taken),
                )
            paired.append(Both(sample, benchmark, how, ends))
    return paired


def _weights(networks: Iterable[Nodes]) -> Iterator[tuple[int, str]]:
    """The inputs that are weights."""
    for node in (node for side in networks for node in side):
        for (io, slot), name in node.weights.items():
            record = (node.inputs if io == "in" else node.outputs).get(slot)
            if record is not None:
                yield id(record), f"the weight {name}"


def _one_sided(networks: tuple[Nodes, Nodes], nodes: Iterable[Both]) -> Iterator[tuple[int, str]]:
    """The inputs of paired operators that an operator made which has no partner."""
    paired = {node for both in nodes for node in both[:2]}
    for side, name in zip(networks, ("sample", "benchmark")):
        for node in (node for node in side.inner if node in paired):
            for slot, record in node.inputs.items():
                maker = side.maker(node, slot)
                if maker is not None and maker not in paired and maker.outputs:
                    made = next(iter(maker.outputs.values()))
                    yield id(record), f"made by {made.name}, which only the {name} has"


def _records(node: Node) -> Iterator[Record]:
    yield from node.inputs.values()
    yield from node.outputs.values()


def _has_inputs(nodes: Nodes) -> bool:
    return any(node.inputs for node in nodes)


def _pairs(both: Both) -> Iterator[Pair]:
    """The tensors of two paired operators."""
    sample, benchmark, how, ends = both
    folded = [
        f"{end.word} of the {side}" for end, node, side in zip(ends, both, ("sample", "benchmark")) if end is not node
    ]
    yield from _inputs(sample, benchmark, how, bool(folded))
    note = f"compared behind {' and '.join(folded)}, which the other side has in its {sample.kind}" if folded else ""
    yield from _by_slot(ends[0].outputs, ends[1].outputs, how, note)


def _by_slot(sample: Mapping[int, Record], benchmark: Mapping[int, Record], how: str, note: str = "") -> Iterator[Pair]:
    yield from (Pair(sample[slot], benchmark[slot], how, note) for slot in sample if slot in benchmark)


def _inputs(sample: Node, benchmark: Node, how: str, folded: bool) -> Iterator[Pair]:
    """By slot where both are modules, or call the operator alike, else those whose shape no other input has; not square
    ones, which may be transposed. An operator that took others in has weights of its own."""
    alike = sample.is_module or plain(sample.word) == plain(benchmark.word)
    if sample.is_module == benchmark.is_module and alike:
        slots = [slot for slot in sample.inputs if slot == 0 or not folded]
        yield from _by_slot({slot: sample.inputs[slot] for slot in slots}, benchmark.inputs, how)
        return
    shapes = [[record.tensor.shape for record in node.inputs.values()] for node in (sample, benchmark)]
    for record in sample.inputs.values():
        shape = record.tensor.shape
        if [side.count(shape) for side in shapes] == [1, 1] and not _is_square(shape):
            (other,) = (one for one in benchmark.inputs.values() if one.tensor.shape == shape)
            yield Pair(record, other, how)


def _size(record: Record) -> int:
    return math.prod(record.tensor.shape or ())


def _is_square(shape: tuple[int, ...] | None) -> bool:
    return shape is not None and len(shape) == 2 and shape[0] == shape[1] > 1


def _reasons(networks: tuple[Nodes, Nodes], nodes: Iterable[Both]) -> dict[int, str]:
    """Why a tensor has no partner, by the record's ``id``."""
    partners = {node: other for both in nodes for node, other in ((both[0], both[1]), (both[1], both[0]))}
    reasons: dict[int, str] = {}
    for side, opposite, other in ((*networks, "benchmark"), (*networks[::-1], "sample")):
        has_inputs, has_modules = _has_inputs(opposite), any(node.is_outer for node in opposite)
        for node in side:
            where = f"at this place of the network ({node.module or 'its outermost module'})"
            reason = f"the {other} has no {node.kind} {where}"
            if node in partners:
                reason = f"{node.word} has other inputs or outputs than the {other}'s {partners[node].word} {where}"
            if node.is_outer and not has_modules:
                reason = f"a module's; the {other} has operators alone"
            reasons |= {id(record): reason for record in _records(node)}
            if not has_inputs:
                reasons |= {id(record): f"an input; the {other} has outputs alone" for record in node.inputs.values()}
    return reasons


def _own_sources(network: Nodes) -> dict[str, tuple[str, ...]]:
    """Which outputs feed which, of a dump that has no inputs and tells it otherwise."""
    if _has_inputs(network) or not any(node.values for node in network):
        return {}
    return {
        record.name: tuple(r.name for one in network.nearest(node, _has_outputs) for r in one.outputs.values())
        for node in network.inner
        for record in node.outputs.values()
    }


def _has_outputs(node: Node) -> bool:
    return bool(node.outputs)


def _sources(
    networks: tuple[Nodes, Nodes], nodes: Iterable[Both], pairs: Iterable[Pair]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By the data flow of the benchmark, where it is known, else by that of the sample."""
    names = {id(record): pair.benchmark.name for pair in pairs for record in (pair.sample, pair.benchmark)}
    side = 1 if any(node.values for node in networks[1]) else 0

    def is_compared(node: Node) -> bool:
        return any(id(record) in names for record in node.outputs.values())

    for both in nodes:
        feeding = networks[side].nearest(both.benchmark if side else both.sample, is_compared)
        sources = [names[id(r)] for one in feeding for r in one.outputs.values() if id(r) in names]
        for record in both.ends[1].outputs.values():
            if id(record) in names:
                yield record.name, tuple(dict.fromkeys(sources))
