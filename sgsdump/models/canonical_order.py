"""Canonical order of a graph's nodes, independent of file order and names.

Fitting draws random numbers and groups layers along the nodes. In this order the same network gives the same result,
whatever the node order of its file.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from sgsdump.models.graph import Graph, needs, sorted_nodes, with_nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def in_canonical_order(proto: ModelProto) -> ModelProto:
    """Return the model with its nodes sorted by longest path from the inputs, then by a digest of their computation.

    The digest covers the operator, attributes, constants, and the digests of other inputs. Nodes with the same digest
    keep the file's order. Raises ModelError as ``sorted_nodes`` does.
    """
    graph, nodes = Graph(proto), sorted_nodes(proto.graph)
    digests = {name: _digest(b"input %d" % place) for place, name in enumerate(graph.inputs)}
    for name in graph.constants:
        value = graph.value(name)
        digests[name] = _digest(str((value.dtype, value.shape)).encode(), value.tobytes())
    depths: dict[str, int] = {}
    keyed = []
    for node in nodes:
        attributes = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
        operator = f"{node.domain} {node.op_type}".encode()
        own = _digest(operator, *attributes, *(digests.get(name, b"") for name in node.input))
        depth = 1 + max((depths.get(name, 0) for name in needs(node)), default=0)
        for place, name in enumerate(node.output):
            digests[name], depths[name] = _digest(own, b"%d" % place), depth
        keyed.append((depth, own, node))
    return with_nodes(proto, [node for *_, node in sorted(keyed, key=lambda each: each[:2])])


def in_file_order(proto: ModelProto, file: Iterable[NodeProto]) -> ModelProto:
    """Return the model with its nodes in the order of ``file``, matched by outputs; others precede their readers."""
    known = {name: place for place, node in enumerate(file) for name in node.output}
    readers: dict[str, int] = {}
    keyed = []
    for node in reversed(sorted_nodes(proto.graph)):
        own = [known[name] for name in node.output if name in known]
        place = min(own or [readers[name] for name in node.output if name in readers], default=len(known))
        keyed.append((place, bool(own), node))
        for name in needs(node):
            readers[name] = min(readers.get(name, place), place)
    result = with_nodes(proto, [node for *_, node in sorted(keyed, key=lambda each: each[:2])])
    return with_nodes(result, sorted_nodes(result.graph))


def _digest(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
