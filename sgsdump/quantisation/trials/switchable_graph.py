"""One fake-quantised graph for every quant plan: scales, zero points and limits are inputs, and so are the weights.

Where a fixed model holds constants this graph reads inputs, so that trying another plan is another feed and no new
model. Every stored tensor ``X`` is rounded in int16 with ``X#scale`` and ``X#zero_point``: what UINT8 can hold, int16
holds too. One that some plan makes UINT8 is held to [``X#low``, ``X#high``] first, the limits of its type; behind a
Relu to [0, ``X#high``], which does the Relu's work as well, for 0 is in every range. A convolution's weights come in
already fake-quantised, as ``CONV#weight`` by the name of the convolution's output.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import drop_unused_constants
from sgsdump.quantisation.fixed_facts import FixedFacts

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LOW, HIGH, SCALE, ZERO_POINT, WEIGHT = "low", "high", "scale", "zero_point", "weight"
ZERO = "#zero"


def parameter(name: str, what: str) -> str:
    """The input that sets ``what`` of a tensor or convolution."""
    return f"{name}#{what}"


def parametrise(fixed: ModelProto, facts: FixedFacts, narrow: Collection[str]) -> ModelProto:
    """The graph for every plan of a model, from its fixed model with all convolutions at INT16.

    narrow  tensors that are UINT8 in some plan.

    Picture inputs keep their constants, as their type never changes.
    """
    from onnx import ModelProto, numpy_helper

    result = ModelProto()
    result.CopyFrom(fixed)
    stored = {tensor.stored: name for name, tensor in facts.tensors.items() if not tensor.picture}
    fed = {f"{weight}#real": conv for conv, weight in facts.convolutions.items()}
    nodes: list[NodeProto] = []
    for node in fixed.graph.node:
        output = node.output[0]
        if output in fed:
            continue
        copy = type(node)()
        copy.CopyFrom(node)
        for index, name in enumerate(copy.input):
            if name in fed and index == 1:
                copy.input[index] = parameter(_made_by(node, facts.convolutions), WEIGHT)
        if node.op_type == "QuantizeLinear" and stored.get(output) in narrow:
            _hold(copy, stored[output], nodes)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and (output in stored or node.input[0] in stored):
            tensor = stored.get(output) or stored[node.input[0]]
            copy.input[1:] = [parameter(tensor, SCALE), parameter(tensor, ZERO_POINT)]
        nodes.append(copy)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    result.graph.initializer.append(numpy_helper.from_array(np.zeros((), np.float32), ZERO))
    _add_inputs(result, list(stored.values()), list(facts.convolutions))
    drop_unused_constants(result)
    return result


def _made_by(node: NodeProto, convolutions: Collection[str]) -> str:
    """The convolution a node is: its output's own name, or without the mark of what is stored afterwards."""
    output = node.output[0].removesuffix("#float")
    return output if output in convolutions else node.output[0]


def _hold(quantise: NodeProto, name: str, nodes: list[NodeProto]) -> None:
    """Add the Clip before a QuantizeLinear; a Relu right before it goes."""
    from onnx import helper

    source, low, within = quantise.input[0], parameter(name, LOW), f"{name}#within"
    if nodes and nodes[-1].op_type == "Relu" and nodes[-1].output[0] == source:
        source, low = nodes.pop().input[0], ZERO
    quantise.input[0] = within
    nodes.append(helper.make_node("Clip", [source, low, parameter(name, HIGH)], [within], name=within))


def _add_inputs(proto: ModelProto, tensors: list[str], convolutions: list[str]) -> None:
    """Those of the parameters that some node reads."""
    from onnx import TensorProto, helper

    read = {name for node in proto.graph.node for name in node.input}

    def add(name: str, kind: int, shape: tuple | None) -> None:
        if name in read:
            proto.graph.input.append(helper.make_tensor_value_info(name, kind, shape))

    for name in tensors:
        for what in (LOW, HIGH, SCALE):
            add(parameter(name, what), TensorProto.FLOAT, ())
        add(parameter(name, ZERO_POINT), TensorProto.INT16, ())
    for name in convolutions:
        add(parameter(name, WEIGHT), TensorProto.FLOAT, None)


def limits(dtype: np.dtype, scale: float, zero_point: int) -> tuple[np.float32, np.float32]:
    """The real values that a type's smallest and largest integers mean."""
    info = np.iinfo(dtype)
    return np.float32((info.min - zero_point) * np.float32(scale)), np.float32(
        (info.max - zero_point) * np.float32(scale)
    )
