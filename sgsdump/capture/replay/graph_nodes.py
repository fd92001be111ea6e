"""The nodes of a model as the index of its runs lists them, with the module that each stands in.

torch's newer exporter (``dynamo=True``) writes no modules into names; it has them in the metadata of each node. A node
that it made of several has the last one's, so whose weight it reads counts first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgsdump.dumps.formats.replays.tree import Node

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

SCOPES = "pkg.torch.onnx.name_scopes"
_QUOTED = re.compile(r"'([^']*)'")


def nodes_of(graph: GraphProto) -> Iterator[Node]:
    weights = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        yield node.name, node.op_type, list(node.input), list(node.output), _module(node, weights)


def _module(node: NodeProto, weights: set[str]) -> str:
    """``layer1.0.conv1``; "" for the outermost, and where the model does not say."""
    scopes = next((_QUOTED.findall(entry.value) for entry in node.metadata_props if entry.key == SCOPES), [])
    if not scopes:
        return ""
    owners = (name.rpartition(".")[0] for name in node.input if name in weights)
    return next(filter(None, owners), scopes[-2] if len(scopes) > 1 else "")
