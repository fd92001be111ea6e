"""Operators that were not compared because a compared layer contains them, for example in a fused operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sgsdump.comparison.dataflow import has_reads, reads_of
from sgsdump.dumps.dump import Dump
from sgsdump.dumps.onnx_network import OnnxNetwork

MOST = 32  # operators of a layer


@dataclass(frozen=True)
class Part:
    """Operator inside a layer.

    Attributes
    ----------
    name : str
        Output of the operator.
    op_type : str
        Type of the operator; "" if unknown.
    reads : tuple of str
        Parts and layers that the operator reads.
    """

    name: str
    op_type: str
    reads: tuple[str, ...]


def parts_of(names: Sequence[str], dump: Dump | None) -> dict[str, tuple[Part, ...]]:
    """Return the parts of each layer, in execution order; layers without parts are left out.

    The parts of a layer are the operators between the layer and the next layers upstream. An operator between several
    layers belongs to the first of them.

    Parameters
    ----------
    names : sequence of str
        Names of the compared layers in the dump, in execution order.
    dump : Dump or None
        Dump whose operators are searched.
    """
    if dump is None:
        return {}
    reads, types = _graph_of(dump)
    layers = set(names)
    taken: set[str] = set()
    found: dict[str, tuple[Part, ...]] = {}
    for layer in names:
        inside: list[str] = []
        waiting = [name for name in reads.get(layer, ()) if name not in layers]
        while waiting and len(inside) < MOST:
            name = waiting.pop()
            if name in taken or name not in reads:
                continue
            taken.add(name)
            inside.append(name)
            waiting += [source for source in reads[name] if source not in layers]
        if inside:
            known = layers | taken
            found[layer] = tuple(
                Part(name, types.get(name, ""), tuple(source for source in reads[name] if source in known))
                for name in reversed(inside)
            )
    return found


def direct_reads(names: Iterable[str], dump: Dump | None) -> dict[str, tuple[str, ...]]:
    """Return what the operator of each layer reads itself."""
    if dump is None:
        return {}
    reads, _ = _graph_of(dump)
    return {name: tuple(reads[name]) for name in names if name in reads}


def _graph_of(dump: Dump) -> tuple[Mapping[str, Sequence[str]], Mapping[str, str]]:
    """Return what each tensor's operator reads, and its type."""
    if reads := reads_of(dump):
        network = dump.network()
        nodes = network.quantised.nodes if isinstance(network, OnnxNetwork) else ()
        return reads, {name: node[1] for node in nodes for name in node[3] if name}
    if not has_reads(dump):
        return {}, {}
    inputs: dict[int, list[str]] = defaultdict(list)
    for record in dump.records:
        if record.io == "in" and not record.constant:
            inputs[record.op_index].append(record.name)
    outputs = [record for record in dump.records if record.io == "out"]
    return (
        {record.name: inputs[record.op_index] for record in outputs},
        {record.name: record.op_type for record in outputs},
    )
