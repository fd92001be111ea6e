"""The topological index of the SDAA dump tool: the running number of a tensor over the outputs of all nodes.

Every named output of every node counts, in the file's order; Constant nodes do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class NodeOutput:
    """One output of one node: its topological ``index``, its ``name``, and the ``node`` (name or "") that makes it."""

    index: int
    name: str
    node: str
    op_type: str
    inputs: tuple[str, ...]


def node_outputs(graph: onnx.GraphProto) -> tuple[NodeOutput, ...]:
    """Every indexed tensor of a graph, in the order of the index."""
    made = ((node, name) for node in graph.node if node.op_type != "Constant" for name in node.output if name)
    return tuple(
        NodeOutput(index, name, node.name, node.op_type, tuple(filter(None, node.input)))
        for index, (node, name) in enumerate(made)
    )


def with_indexes(
    known: Mapping[str, NodeOutput], names: Sequence[str], indexes: Sequence[int]
) -> dict[str, NodeOutput]:
    """The named tensors under indices of the caller's choice, one for each; ``known`` are those of the model.

    Raises ConfigError when there are more or fewer indices than names.
    """
    if len(indexes) != len(names):
        raise ConfigError(f"{len(indexes)} topological indices for {len(names)} outputs; give one for each")
    empty = NodeOutput(0, "", "", "", ())
    return {n: replace(known.get(n, empty), name=n, index=index) for n, index in zip(names, indexes)}
