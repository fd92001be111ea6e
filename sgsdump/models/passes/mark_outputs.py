"""Make tensors inside a graph outputs of it, behind the ones it has.

A Caffe net does not say which blobs a user wants; input_config.ini does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgsdump.models.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto


def mark_outputs(proto: ModelProto, names: Iterable[str]) -> ModelProto:
    """A copy with the named tensors as outputs too; names that no node makes are left to who checks them."""
    from onnx import ModelProto, ValueInfoProto

    result = ModelProto()
    result.CopyFrom(proto)
    graph = Graph(result)
    known = {info.name: info for info in proto.graph.value_info}
    for name in names:
        if name in graph.producer and name not in graph.outputs:
            result.graph.output.append(known.get(name) or ValueInfoProto(name=name))
    return result
