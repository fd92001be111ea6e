"""Pair two dumps of programs by position in the network: module, operator and data flow; names are not needed.

This works for one program in two versions, on two devices or compiled, and for one network in two libraries. Operators
are paired by their module, and inside each module by order and kind. Modules may be unknown (a traced program, a
compiled graph). An operator is then paired with an operator of its kind that reads the same tensors, directly or
through operators that only one side has. Remaining operators are paired in order between paired neighbours. Inputs of
paired operators are paired by slot if one library ran both, else by their origin or shape.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from sgsdump.comparison.alignment import Pair, compared, ids_of
from sgsdump.comparison.naming.compiled_graphs import COMPILED_GRAPH, ends, inside_graphs
from sgsdump.comparison.naming.composed_operators import MOVING, ends_of_modules, ends_of_operators, moved
from sgsdump.comparison.naming.flow import NORMALISATIONS, Couple, after_folding, in_order, pairs_by_place, tail
from sgsdump.comparison.naming.network import Node, Nodes, nodes_of, plain
from sgsdump.comparison.naming.sides import OneSided, Places, Settled, Sides
from sgsdump.dumps.dump import Record
from sgsdump.dumps.onnx_network import OnnxNetwork

MODULE, PLACE = "module and operator", "place in the dataflow"
_CARRYING = frozenset(
    (*MOVING, "identity", "slice", "select", "expand", "split", "unsafe_split", "unbind", "as_strided")
)


class NodePair(NamedTuple):
    """Two paired operators.

    ``ends`` are the operators whose outputs are equal: further downstream if one side folds following operators.
    """

    sample: Node
    benchmark: Node
    how: str
    ends: Couple


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair tensors at the same position of both networks, unless names make all pairs, and record their positions.

    Two dumps of models are paired by name first, unless their graphs show that a name belongs to another operator:
    operators that one side fuses would shift the operators of the same kind.
    """
    dumps, operators = (sides.sample, sides.benchmark), sides.operators
    networks = nodes_of(sides.sample, operators[0]), nodes_of(sides.benchmark, operators[1])
    modules = {id(record): node.module for side in networks for node in side for record in _records(node)}
    records = [compared(dump, sides.inputs) for dump in dumps]
    names = [{(record.io, record.name) for record in side} for side in records]
    if settled.is_told or not all(networks) or names[0] == names[1]:
        places = Places(modules, _own_sources(networks[1]), dict(_weights(networks)))
        return replace(settled, places=places)
    in_graphs = inside_graphs(networks)
    is_implied = not all(dump.network() for dump in dumps)  # a network follows only from names
    nodes = _paired(networks if not in_graphs else _without(networks, in_graphs))
    if is_implied and not all(side.has_flow for side in networks) and not all(side.modules for side in networks):
        nodes = []  # only the order of the operators is known
    unpaired = {id(record) for side in records for record in side} - settled.ids
    of_models = not any(dump.network() for dump in dumps)
    are_models = all(isinstance(network, OnnxNetwork) or not network for network in sides.networks)
    if are_models:
        shared = (names[0] & names[1]) - _other_operators(networks) - _before_folding(nodes)
        unpaired -= {id(record) for side in records for record in side if (record.io, record.name) in shared}
    pairs = [*settled.pairs, *_of_outermost(sides, in_graphs, unpaired)]
    unpaired -= ids_of(pairs)
    of_libraries = _has_inputs(networks[0]) != _has_inputs(networks[1])
    for pair in (pair for both in nodes for pair in _pairs(both)):
        if (of_libraries or are_models or is_implied) and _size(pair.sample) != _size(pair.benchmark):
            continue  # another operator of this kind: one side uses several operators for one of the other
        if ids_of([pair]) <= unpaired:
            unpaired -= ids_of([pair])
            pairs.append(pair)
    reasons = {} if of_models else _reasons(networks, nodes)
    folded = _folded(nodes)
    reasons |= folded
    in_graphs = inside_graphs(networks, {node for both in nodes for node in (*both[:2], *both.ends)})
    of_graphs = {id(record): reason for node, reason in in_graphs.items() for record in _records(node)}
    reasons |= of_graphs
    left = {record: reason for record, reason in reasons.items() if record in unpaired}
    certain = {record: left[record] for record in left.keys() & (of_graphs.keys() | folded)} if is_implied else left
    unmatched = {**settled.unmatched, **certain}
    if is_implied:  # names may still pair them
        settled = replace(settled, reasons={**left, **settled.reasons})
    by_inputs = any(pair.benchmark.io == "in" for pair in pairs)
    sources = {} if by_inputs else dict(_sources(networks, nodes, pairs))
    makers = dict(_one_sided(networks, nodes))
    origins = {record: f"made by {maker.name}, which only the {maker.side} has" for record, maker in makers.items()}
    origins |= _weights(networks)
    expected = settled.expected | (frozenset() if of_models else _of_no_counterpart(networks))
    expected |= (
        of_graphs.keys()
        | folded.keys()
        | _inside_whole_modules(networks, nodes)
        | (_reshaped(networks, nodes) if of_libraries else frozenset())
    )
    places = Places(modules, sources, origins, makers)
    settled = replace(settled, pairs=tuple(pairs), unmatched=unmatched, expected=expected, places=places)
    return replace(settled, compiled=frozenset(of_graphs))


def _without(networks: tuple[Nodes, Nodes], skipped: Collection[Node]) -> tuple[Nodes, Nodes]:
    sample, benchmark = (Nodes([node for node in side if node not in skipped], side.format) for side in networks)
    return sample, benchmark


def _of_outermost(sides: Sides, in_graphs: Collection[Node], unpaired: Set[int]) -> list[Pair]:
    """Return pairs of inputs and outputs of the outermost modules if a compiled graph holds their operators."""
    if not any(not node.module and node.word == COMPILED_GRAPH for node in in_graphs):
        return []
    return [pair for pair in ends((sides.sample, sides.benchmark), sides.networks) if ids_of([pair]) <= unpaired]


def _other_operators(networks: tuple[Nodes, Nodes]) -> set[tuple[str, str]]:
    """Return names that belong to another operator, or another module, on the other side."""
    sample, benchmark = (
        {(record.io, record.name): node for node in side for record in node.outputs.values()} for side in networks
    )
    both = ((name, sample[name], benchmark[name]) for name in sample.keys() & benchmark.keys())
    return {
        name
        for name, ours, theirs in both
        if ours.kind != theirs.kind or (ours.module and theirs.module and ours.module != theirs.module)
    }


def _before_folding(nodes: Iterable[NodePair]) -> set[tuple[str, str]]:
    """Return names of outputs before a normalisation that the other side folds into the weights of the operator."""
    folded = (both for both in nodes if any(end.kind in NORMALISATIONS for end in both.ends if end not in both[:2]))
    return {(record.io, record.name) for both in folded for node in both[:2] for record in node.outputs.values()}


def _folded(nodes: Iterable[NodePair]) -> dict[int, str]:
    """Return the reason for outputs before a normalisation that the other side folds, by the record's ``id``."""
    return {
        id(record): f"values before {end.word}, which the {other} folds into its {node.kind}; compared after {end.word}"
        for both in nodes
        for node, end, other in zip(both[:2], both.ends, ("benchmark", "sample"))
        if end is not node and end.kind in NORMALISATIONS
        for record in node.outputs.values()
    }


def _paired(networks: tuple[Nodes, Nodes]) -> list[NodePair]:
    if not all(networks):
        return []
    if _has_inputs(networks[0]) != _has_inputs(networks[1]) or _are_modules(networks[0]) != _are_modules(networks[1]):
        return _of_libraries(networks)
    by_module = pairs_by_module(*networks)
    by_place = pairs_by_place(*networks, by_module)
    by_place += renamed_modules(*networks, [*by_module, *by_place])
    return _with_ends(networks, by_module, by_place)


def _of_libraries(networks: tuple[Nodes, Nodes]) -> list[NodePair]:
    """Pair two libraries that split operators and modules differently, and move values differently."""
    sample, benchmark = networks
    mine, theirs = ends_of_modules(sample, benchmark), ends_of_modules(benchmark, sample)
    ends = [(after_folding(sample, benchmark, end.module, end.last), end.last) for end in mine]
    ends += [(end.last, after_folding(benchmark, sample, end.module, end.last)) for end in theirs]
    skipped = {node for end in (*mine, *theirs) for node in end.members}
    skipped |= {node for side in networks for node in side if node.kind in MOVING and not node.is_module}
    by_module = [*ends, *pairs_by_module(sample, benchmark, {*skipped, *(node for pair in ends for node in pair)})]
    by_place = pairs_by_place(sample, benchmark, by_module, skipped, sample.modules & benchmark.modules)
    by_place += renamed_modules(sample, benchmark, [*by_module, *by_place])
    paired = {node for pair in (*by_module, *by_place) for node in pair}
    by_module += ends_of_operators(sample, benchmark, paired)
    by_module += [(last, node) for node, last in ends_of_operators(benchmark, sample, paired)]
    pairs = _with_ends(networks, by_module, by_place)
    pairs += [NodePair(*pair, PLACE, pair) for pair in moved(networks, [pair.ends for pair in pairs])]
    taken = {node for pair in pairs for node in (*pair[:2], *pair.ends)}
    whole = [(end.module, end.last) for end in ends_of_modules(sample, benchmark, outer=True)]
    whole += [(end.last, end.module) for end in ends_of_modules(benchmark, sample, outer=True)]
    return pairs + [NodePair(*pair, MODULE, pair) for pair in whole if taken.isdisjoint(pair)]


def _with_ends(networks: tuple[Nodes, Nodes], by_module: list[Couple], by_place: list[Couple]) -> list[NodePair]:
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
            paired.append(NodePair(sample, benchmark, how, ends))
    return paired


def _weights(networks: Iterable[Nodes]) -> Iterator[tuple[int, str]]:
    """Yield the inputs that are weights."""
    for node in (node for side in networks for node in side):
        for (io, slot), name in node.weights.items():
            record = (node.inputs if io == "in" else node.outputs).get(slot)
            if record is not None:
                yield id(record), f"the weight {name}"


def _one_sided(networks: tuple[Nodes, Nodes], nodes: Iterable[NodePair]) -> Iterator[tuple[int, OneSided]]:
    """Yield tensors of paired operators and modules that an operator without a partner produced.

    These are inputs of paired operators, and inputs and outputs of paired modules.
    """
    nodes = list(nodes)
    paired = {node for both in nodes for node in both[:2]}
    modules = {node for both in nodes if both.sample.is_module and both.benchmark.is_module for node in both[:2]}
    for side, name in zip(networks, ("sample", "benchmark")):
        inner, outer = paired.intersection(side.inner), [node for node in side if node.is_outer and node in modules]
        made = [(record, side.maker(node, slot)) for node in inner for slot, record in node.inputs.items()]
        made += [(record, side.giver(node, slot)) for node in outer for slot, record in node.outputs.items()]
        made += [(record, side.giver(node, slot, "in")) for node in outer for slot, record in node.inputs.items()]
        for record, maker in made:
            if maker is not None and maker not in paired and maker.outputs:
                yield id(record), _of_one_side(side, maker, paired, name)
    yield from _before_outputs(networks, nodes, paired)


def _before_outputs(
    networks: tuple[Nodes, Nodes], nodes: Iterable[NodePair], paired: Collection[Node]
) -> Iterator[tuple[int, OneSided]]:
    """Yield outputs of paired operators without recorded inputs that read a tensor of an operator without a partner."""
    nodes = list(nodes)
    folded = {node for both in nodes for node in both.ends}
    for both in nodes:
        operators = both.sample, both.benchmark
        if any(one.is_module or one.inputs for one in operators):
            continue
        read = [side.feeding.get(node.place, ()) for side, node in zip(networks, operators)]
        for makers in zip(*read):
            for side, name, node, maker in zip(networks, ("sample", "benchmark"), operators, makers):
                if (
                    maker is None
                    or maker in paired
                    or maker in folded
                    or not all(one and one.outputs for one in makers)
                ):
                    continue
                records = tuple(next(iter(one.outputs.values())) for one in makers if one is not None)
                found = _of_one_side(side, maker, paired, name)._replace(read=(records[0], records[1]))
                yield from ((id(record), found) for record in node.outputs.values())


def _of_one_side(side: Nodes, maker: Node, paired: Collection[Node], name: str) -> OneSided:
    """Return the operator that computed ``maker``'s value, skipping operators that only move or cast it."""
    chain, waiting = {maker: None}, [maker]
    while waiting:
        feeding = side.feeding.get(waiting.pop(0).place, ())
        more = [node for node in feeding if node is not None and node not in paired and node not in chain]
        chain |= dict.fromkeys(more)
        waiting += more
    node = next((node for node in chain if node.kind not in _CARRYING and node.outputs), maker)
    kinds = tuple(plain(node.word) for node in sorted(chain, key=lambda node: node.place))
    return OneSided(next(iter(node.outputs.values())).name, node.word, node.module, name, kinds)


def _records(node: Node) -> Iterator[Record]:
    yield from node.inputs.values()
    yield from node.outputs.values()


def _has_inputs(nodes: Nodes) -> bool:
    return any(node.inputs for node in nodes)


def _are_modules(nodes: Nodes) -> bool:
    return all(node.is_module for node in nodes)


def _pairs(both: NodePair) -> Iterator[Pair]:
    """Yield the pairs of tensors of two paired operators."""
    sample, benchmark, how, ends = both
    folded = [
        f"{end.word} of the {side}" for end, node, side in zip(ends, both, ("sample", "benchmark")) if end is not node
    ]
    yield from _inputs(sample, benchmark, how, bool(folded))
    note = f"compared after {' and '.join(folded)}: the other side fuses it into its {sample.kind}" if folded else ""
    yield from _by_slot(ends[0].outputs, ends[1].outputs, how, note)


def _by_slot(sample: Mapping[int, Record], benchmark: Mapping[int, Record], how: str, note: str = "") -> Iterator[Pair]:
    yield from (Pair(sample[slot], benchmark[slot], how, note) for slot in sample if slot in benchmark)


def _inputs(sample: Node, benchmark: Node, how: str, folded: bool) -> Iterator[Pair]:
    """Yield pairs of inputs: by slot for modules and equal operators, else by unique shape.

    Square matrices are not paired by shape, because one may be transposed. Operators that fold others have own weights.
    """
    alike = sample.is_module or plain(sample.word) == plain(benchmark.word)
    if sample.is_module == benchmark.is_module and alike:
        slots = [slot for slot in sample.inputs if slot == 0 or not folded]
        yield from _by_slot({slot: sample.inputs[slot] for slot in slots}, benchmark.inputs, how)
        return
    shapes = [[record.tensor.shape for record in node.inputs.values()] for node in (sample, benchmark)]
    for record in sample.inputs.values():
        shape = record.tensor.shape
        if [side.count(shape) for side in shapes] == [1, 1] and not _is_square(shape):
            (other,) = (candidate for candidate in benchmark.inputs.values() if candidate.tensor.shape == shape)
            yield Pair(record, other, how)


def _size(record: Record) -> int:
    return math.prod(record.tensor.shape or ())


def _is_square(shape: tuple[int, ...] | None) -> bool:
    return shape is not None and len(shape) == 2 and shape[0] == shape[1] > 1


def _reasons(networks: tuple[Nodes, Nodes], nodes: Iterable[NodePair]) -> dict[int, str]:
    """Return why tensors have no partner, by the record's ``id``."""
    partners = {node: other for both in nodes for node, other in ((both[0], both[1]), (both[1], both[0]))}
    reasons: dict[int, str] = {}
    for side, opposite, other in ((*networks, "benchmark"), (*networks[::-1], "sample")):
        has_inputs, has_modules = _has_inputs(opposite), any(node.is_outer for node in opposite)
        for node in side:
            where = f"at this place of the network ({node.module or 'its outermost module'})"
            reason = f"the {other} has no {node.kind} {where}"
            if node in partners:
                reason = f"{node.word} differs in inputs or outputs from the {other}'s {partners[node].word} {where}"
            if node.is_outer and not has_modules:
                reason = f"a tensor of a module; the {other} records only operators"
            reasons |= {id(record): reason for record in _records(node)}
            if not has_inputs:
                reasons |= {
                    id(record): f"an input; the {other} records only outputs" for record in node.inputs.values()
                }
    return reasons


def _of_no_counterpart(networks: tuple[Nodes, Nodes]) -> frozenset[int]:
    """Return the ``id`` of inputs and module tensors that the other side does not record at all."""
    without: set[int] = set()
    for side, opposite in (networks, networks[::-1]):
        has_inputs, has_modules = _has_inputs(opposite), any(node.is_outer for node in opposite)
        for node in side:
            if node.is_outer and not has_modules:
                without |= {id(record) for record in _records(node)}
            if not has_inputs:
                without |= {id(record) for record in node.inputs.values()}
    return frozenset(without)


def _inside_whole_modules(networks: tuple[Nodes, Nodes], nodes: Iterable[NodePair]) -> frozenset[int]:
    """Return the ``id`` of tensors inside modules that are paired as a whole with an operator."""
    inside: set[int] = set()
    for both in nodes:
        for node, other, side in zip(both[:2], both[1::-1], networks):
            if node.is_outer and not other.is_module:
                members = (member for member in side if f"{member.module}.".startswith(f"{node.module}."))
                inside |= {id(record) for member in members if member is not node for record in _records(member)}
    return frozenset(inside)


def _reshaped(networks: tuple[Nodes, Nodes], nodes: Iterable[NodePair]) -> frozenset[int]:
    """Return the ``id`` of tensors that only one library reshapes: same values and order as the tensor before."""
    paired = {node for both in nodes for node in (*both[:2], *both.ends)}
    reshaped: dict[Node, None] = {}
    for side in networks:
        for node in side.inner:
            feeding = {maker for maker in side.feeding[node.place] if maker is not None}
            if node.kind in ("reshape", "identity") and feeding and feeding <= paired | reshaped.keys():
                reshaped[node] = None
    return frozenset(id(record) for node in reshaped if node not in paired for record in _records(node))


def _own_sources(network: Nodes) -> dict[str, tuple[str, ...]]:
    """Return output -> outputs that feed it, for a dump that records the data flow without inputs."""
    if _has_inputs(network) or not any(node.values for node in network):
        return {}
    return {
        record.name: tuple(r.name for feeder in network.nearest(node, _has_outputs) for r in feeder.outputs.values())
        for node in network.inner
        for record in node.outputs.values()
    }


def _has_outputs(node: Node) -> bool:
    return bool(node.outputs)


def _sources(
    networks: tuple[Nodes, Nodes], nodes: Iterable[NodePair], pairs: Iterable[Pair]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield outputs with their sources from the data flow of the benchmark if known, else of the sample."""
    names = {id(record): pair.benchmark.name for pair in pairs for record in (pair.sample, pair.benchmark)}
    side = 1 if any(node.values for node in networks[1]) else 0

    def is_compared(node: Node) -> bool:
        return any(id(record) in names for record in node.outputs.values())

    for both in nodes:
        couple = both[:2]
        of = 1 - side if couple[side].is_outer else side  # a module's sources are known only through its operators
        feeding = networks[of].nearest(couple[of], is_compared)
        sources = [names[id(r)] for feeder in feeding for r in feeder.outputs.values() if id(r) in names]
        for record in both.ends[1].outputs.values():
            if id(record) in names:
                yield record.name, tuple(dict.fromkeys(sources))


def pairs_by_module(sample: Nodes, benchmark: Nodes, skipped: Collection[Node] = ()) -> list[Couple]:
    """Pair modules by path and call number, and operators inside a module by kind and order.

    Operators that only one side has, and ``skipped`` operators, are passed over. If only one side has modules, the
    operators outside all modules do not correspond to each other.
    """
    pairs: list[Couple] = []
    calls = [_by_module(node for node in side if node.is_module) for side in (sample, benchmark)]
    for path, modules in calls[0].items():
        pairs += zip(modules, calls[1].get(path, ()))
    if bool(sample.modules) != bool(benchmark.modules):
        return pairs
    paired = {*skipped, *(node for pair in pairs for node in pair)}
    places = [_calls(side) for side in (sample, benchmark)]
    several = {path for path, own in places[0].items() if 1 < len(own) == len(places[1].get(path, ()))}
    of_sample, of_benchmark = (
        _by_call([node for node in side.inner if node not in paired], {path: own[path] for path in several})
        for side, own in zip((sample, benchmark), places)
    )
    leaves = _leaves(sample, benchmark)
    for call, nodes in of_sample.items():
        others = of_benchmark.get(call, ())
        found = [*_called_alike([*in_order(nodes, others)], nodes, others)]
        if not found and others and call[0] in leaves:  # both sides compute it by other operators
            ends = sample.exit(nodes), benchmark.exit(others)
            found = [(ends[0], ends[1])] if ends[0] is not None and ends[1] is not None else []
        pairs += found
    return pairs


def _leaves(*sides: Nodes) -> set[str]:
    """Return the paths of modules without inner modules; empty if a dump has the outputs of modules."""
    if any(node.is_module for side in sides for node in side):
        return set()
    paths = {path for side in sides for path in side.modules}
    inner = {path.rpartition(".")[0] for path in paths}
    while inner - {""}:
        paths -= inner
        inner = {path.rpartition(".")[0] for path in inner}
    return paths


def _called_alike(pairs: Sequence[Couple], sample: Sequence[Node], benchmark: Sequence[Node]) -> Iterator[Couple]:
    """Yield the pairs of a module, corrected by arguments and output shape.

    If the order paired two operators with different arguments, and an unpaired operator matches one of them, these two
    are paired instead.
    """
    free = [dict.fromkeys(side) for side in (sample, benchmark)]
    for pair in pairs:
        for side, node in zip(free, pair):
            del side[node]
    for mine, theirs in pairs:
        if not _is_alike(mine, theirs):
            other = next((node for node in free[1] if _is_alike(mine, node)), None)
            own = next((node for node in free[0] if _is_alike(node, theirs)), None) if other is None else None
            for side, taken, left in ((free[1], other, theirs), (free[0], own, mine)):
                if taken is not None:
                    del side[taken]
                    side[left] = None
            mine, theirs = own or mine, other or theirs
        yield mine, theirs


def _is_alike(sample: Node, benchmark: Node) -> bool:
    shapes = ({slot: record.tensor.shape for slot, record in node.outputs.items()} for node in (sample, benchmark))
    return sample.kind == benchmark.kind and sample.arguments == benchmark.arguments and next(shapes) == next(shapes)


def renamed_modules(sample: Nodes, benchmark: Nodes, pairs: Iterable[Couple]) -> Iterator[Couple]:
    """Yield pairs of modules with different paths whose operators in ``pairs`` all belong to each other."""
    pairs = list(pairs)
    paired = {node for pair in pairs for node in pair}
    calls = [_by_module(node for node in side if node.is_outer and node not in paired) for side in (sample, benchmark)]
    others: defaultdict[str, set[str]] = defaultdict(set)
    for sample_node, benchmark_node in pairs:
        path, other = sample_node.module, benchmark_node.module
        while path and other:
            others[path].add(other)
            path, other = path.rpartition(".")[0], other.rpartition(".")[0]
    for path, modules in calls[0].items():
        (same, *more) = others.get(path) or [""]
        if not more and len(modules) == len(calls[1].get(same, ())):
            yield from zip(modules, calls[1][same])


def _by_module(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    groups: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[node.module].append(node)
    return dict(groups)


def _calls(side: Nodes) -> dict[str, list[int]]:
    """Return path -> positions in execution order of the calls of each module that contains operators."""
    return {path: [node.place for node in own] for path, own in _by_module(n for n in side if n.is_outer).items()}


def _by_call(nodes: Iterable[Node], calls: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], list[Node]]:
    """Group operators by module, and by call if a module has several: a decoder runs its layers for each token."""
    groups: defaultdict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in nodes:
        groups[node.module, bisect_right(calls.get(node.module, ()), node.place)].append(node)
    return dict(groups)
