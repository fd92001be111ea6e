"""An editable copy of a model whose weights are rewritten.

Tensor names stay. New weights and biases of a convolution keep their names too. A constant with several readers is
never changed but copied for the node that changes it. New constants are named after their node's output:
``TENSOR_weight``, ``TENSOR_bias``, with a further underscore if the name is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.analysis import is_convolution
from sgsdump.models.graph import Graph, attribute

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class Editing:
    """The copy ``proto`` and the ``graph`` of its nodes; read constants with ``value``."""

    def __init__(self, proto: ModelProto):
        self.proto = type(proto)()
        self.proto.CopyFrom(proto)
        self.graph = Graph(self.proto)

    def value(self, name: str) -> np.ndarray:
        """Return a float constant as float64."""
        return self.graph.value(name).astype(np.float64)

    def convolutions(self) -> list[NodeProto]:
        """Return the convolutions and fully connected operators with constant weights and bias, in order."""
        return [node for node in self.graph.nodes if self.is_plain(node)]

    def is_plain(self, node: NodeProto) -> bool:
        """Return whether a node is a convolution or fully connected operator with constant weights and bias."""
        constant = len(node.input) < 3 or not node.input[2] or node.input[2] in self.graph.constants
        return constant and is_convolution(self.graph, node)

    def weight(self, node: NodeProto) -> np.ndarray:
        return self.value(node.input[1])

    def bias(self, node: NodeProto, channels: int) -> np.ndarray:
        """Return one value per output channel; 0 without a bias, times beta for a Gemm."""
        if len(node.input) < 3 or not node.input[2]:
            return np.zeros(channels)
        factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
        return np.broadcast_to(self.value(node.input[2]).reshape(-1) * factor, (channels,)).copy()

    def set_weight(self, node: NodeProto, values: np.ndarray) -> None:
        self.set(node, 1, values, "weight")

    def set_bias(self, node: NodeProto, values: np.ndarray) -> None:
        if not values.any() and (len(node.input) < 3 or not node.input[2]):
            return
        factor = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
        self.set(node, 2, values / (factor or 1.0), "bias")

    def add_to_bias(self, node: NodeProto, added: np.ndarray) -> bool:
        """Add one value per output channel to the bias; for a MatMul, to the constant of the Add after it.

        Returns False if there is no such constant.
        """
        if node.op_type != "MatMul":
            self.set_bias(node, self.bias(node, added.size) + added)
            return True
        following = self.graph.sole_consumer(node.output[0])
        if following is None or following.op_type != "Add":
            return False
        for index, name in enumerate(following.input):
            if name in self.graph.constants and self.graph.constants[name].dims[-1:] == [added.size]:
                self.set(following, index, self.value(name) + added, "constant")
                return True
        return False

    def set(self, node: NodeProto, index: int, values: np.ndarray, kind: str) -> None:
        """Set the node's input of this index to ``values`` as float32."""
        from onnx import numpy_helper

        while len(node.input) <= index:
            node.input.append("")
        name = node.input[index]
        tensor = self.graph.constants.get(name)
        array = np.ascontiguousarray(values, np.float32)
        if tensor is not None and len(self.graph.consumers.get(name, ())) == 1 and list(node.input).count(name) == 1:
            tensor.CopyFrom(numpy_helper.from_array(array, name))
            return
        node.input[index] = name = self._free(f"{node.output[0]}_{kind}")
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        self.graph.constants[name] = self.proto.graph.initializer[-1]
        self.graph.consumers[name] = [node]

    def _free(self, name: str) -> str:
        taken = {*self.graph.inputs, *self.graph.producer, *self.graph.constants}
        while name in taken:
            name += "_"
        return name
