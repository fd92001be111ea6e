"""One fake-quantised graph for every quant plan: scales, zero points and limits are inputs, and so are the weights.

Where a fixed model holds constants this graph reads inputs, so that trying another plan is another feed and no new
model. Every stored tensor ``X`` is rounded in int16 with ``X#scale`` and ``X#zero_point``: what UINT8 can hold, int16
holds too. The zero point lies so that the type's largest integer is that of int16, which then cuts off what is above
by itself; one that some plan makes UINT8 is held to ``X#low`` first, the least value of its type. Behind a Relu
there is nothing below 0, which is in every range; a Relu behind a convolution is done by that, in com.microsoft's
FusedConv. What only moves values of one scale is not rounded again. A convolution's weights come in already
fake-quantised, as ``CONV#weight`` by the name of the convolution's output.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, drop_unused_constants
from sgsdump.quantisation.fixed_facts import FixedFacts
from sgsdump.tensors.types import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LOW, SCALE, ZERO_POINT, WEIGHT = "low", "scale", "zero_point", "weight"
FUSED_DOMAIN = "com.microsoft"
LARGEST = np.iinfo(np.int16).max


def parameter(name: str, what: str, mark: str = "#") -> str:
    """The input that sets ``what`` of a tensor or convolution; ``mark``: the float model's (``mark_of``)."""
    return f"{name}{mark}{what}"


def parametrise(
    fixed: ModelProto, facts: FixedFacts, narrow: Collection[str], moved: Collection[str], mark: str = "#"
) -> ModelProto:
    """The graph for every plan of a model, from its fixed model with all convolutions at INT16.

    narrow  tensors that are UINT8 in some plan.
    moved   tensors whose values a node only moves from one that has the same scale in every plan.
    mark    the float model's (``mark_of``).

    Picture inputs keep their constants, as their type never changes.
    """
    from onnx import ModelProto

    result = ModelProto()
    result.CopyFrom(fixed)
    stored = {tensor.stored: name for name, tensor in facts.tensors.items() if not tensor.picture}
    fed = {parameter(weight, "real", mark): conv for conv, weight in facts.convolutions.items()}
    readers = {name: len(nodes) for name, nodes in Graph(fixed).consumers.items()}
    nodes: list[NodeProto] = []
    for node in fixed.graph.node:
        output = node.output[0]
        if output in fed:
            continue
        rounds = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        tensor = (stored.get(output) or stored.get(node.input[0])) if rounds else None
        if tensor in moved:
            if output in stored:
                nodes[-1].output[0] = tensor
            continue
        copy = type(node)()
        copy.CopyFrom(node)
        for index, name in enumerate(copy.input):
            if name in fed and index == 1:
                copy.input[index] = parameter(_made_by(node, facts.convolutions, mark), WEIGHT, mark)
        if stored.get(output) in narrow:
            _hold(copy, stored[output], nodes, mark)
        if tensor:
            copy.input[1:] = [parameter(tensor, SCALE, mark), parameter(tensor, ZERO_POINT, mark)]
        if node.op_type == "Relu" and readers.get(node.input[0]) == 1 and _is_conv(nodes, node.input[0]):
            copy = _rectified(nodes.pop(), node)
        nodes.append(copy)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    if any(n.domain == FUSED_DOMAIN for n in nodes) and all(o.domain != FUSED_DOMAIN for o in result.opset_import):
        result.opset_import.add(domain=FUSED_DOMAIN, version=1)
    _add_inputs(result, list(stored.values()), list(facts.convolutions), mark)
    drop_unused_constants(result)
    return result


def _is_conv(nodes: list[NodeProto], output: str) -> bool:
    return bool(nodes) and nodes[-1].op_type == "Conv" and nodes[-1].output[0] == output


def _rectified(conv: NodeProto, relu: NodeProto) -> NodeProto:
    """The convolution that does the work of the Relu behind it too."""
    from onnx import helper

    fused = helper.make_node("FusedConv", list(conv.input), list(relu.output), conv.name, domain=FUSED_DOMAIN)
    fused.attribute.extend(conv.attribute)
    fused.attribute.append(helper.make_attribute("activation", "Relu"))
    return fused


def _made_by(node: NodeProto, convolutions: Collection[str], mark: str) -> str:
    """The convolution a node is: its output's own name, or without the mark of what is stored afterwards."""
    output = node.output[0].removesuffix(f"{mark}float")
    return output if output in convolutions else node.output[0]


def _hold(quantise: NodeProto, name: str, nodes: list[NodeProto], mark: str) -> None:
    """Add the Clip before a QuantizeLinear, unless a Relu is right before it."""
    from onnx import helper

    source, within = quantise.input[0], parameter(name, "within", mark)
    if nodes and nodes[-1].op_type in ("Relu", "FusedConv") and nodes[-1].output[0] == source:
        return
    quantise.input[0] = within
    nodes.append(helper.make_node("Clip", [source, parameter(name, LOW, mark)], [within], name=within))


def _add_inputs(proto: ModelProto, tensors: list[str], convolutions: list[str], mark: str) -> None:
    """Those of the parameters that some node reads."""
    from onnx import TensorProto, helper

    read = {name for node in proto.graph.node for name in node.input}

    def add(name: str, kind: int, shape: tuple | None) -> None:
        if name in read:
            proto.graph.input.append(helper.make_tensor_value_info(name, kind, shape))

    for name in tensors:
        for what in (LOW, SCALE):
            add(parameter(name, what, mark), TensorProto.FLOAT, ())
        add(parameter(name, ZERO_POINT, mark), TensorProto.INT16, ())
    for name in convolutions:
        add(parameter(name, WEIGHT, mark), TensorProto.FLOAT, None)


def zero_point(quant: Quant) -> np.int16:
    """The zero point in int16 with which the type's largest integer is int16's."""
    assert quant.dtype is not None, "a plan knows every type"
    return np.int16(LARGEST - np.iinfo(quant.dtype).max + quant.zero_point)


def lowest(quant: Quant) -> np.float32:
    """The real value that the type's smallest integer means."""
    assert quant.dtype is not None, "a plan knows every type"
    return np.float32((np.iinfo(quant.dtype).min - quant.zero_point) * np.float32(quant.scale))
