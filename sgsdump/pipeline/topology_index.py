"""The topological index of the SDAA dump tool: the running number of a tensor over the outputs of all nodes.

Every named output of every node counts, in the file's order; Constant nodes do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
