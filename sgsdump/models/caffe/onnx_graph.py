"""A Caffe net and its weights -> an ONNX ModelProto that computes the same blobs.

Under pycaffe's names (``to_onnx``): a layer that writes in place makes a new tensor. The last one bears the blob's
name, as pycaffe shows it; the ones before are named after their layer. Under the SDK's (``to_staged_onnx``): stages.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.caffe.layers import LAYERS
from sgsdump.models.caffe.net import Net, who_makes
from sgsdump.models.caffe.piece import INT_MAX, Names, Piece, Shape, Value
from sgsdump.models.caffe.prototxt import Layer
from sgsdump.models.caffe.stages import Step, steps
from sgsdump.models.caffe.weights import Weights
from sgsdump.models.stage_table import write_stages
from sgsdump.registry import hint
from sgsdump.tensors.stages import Stage

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

OPSET = 13
IR_VERSION = 8
IDENTITIES = ("Dropout", "Split")


@dataclass(eq=False)
class OnnxNet:
    """``blobs``: the tensors pycaffe would show, inputs included. ``overwritten``: what in-place layers hid."""

    proto: ModelProto
    blobs: frozenset[str]
    overwritten: frozenset[str]


@dataclass(eq=False)
class _Graph:
    """What grows while the layers are read in order; ``current`` is what each blob stands for by now."""

    proto: ModelProto
    current: dict[str, Value]
    names: tuple[Names, Names] = field(default_factory=lambda: (Names(), Names()))
    shapes: dict[str, Shape] = field(default_factory=dict)


def to_onnx(net: Net, weights: Weights | None) -> OnnxNet:
    """Raises ModelError for a layer of an unknown type, one that does not fit its inputs or weights, and a cycle."""
    named = _as_pycaffe(net)
    graph = _filled(net, named, weights, staged=False)
    blobs = {*net.inputs, *(value.name for value in graph.current.values())}
    overwritten = {name for step in named for name in step.tops} - blobs
    _declare(net, graph, _tensors(graph, _cut_at(net)))
    return OnnxNet(graph.proto, frozenset(blobs), frozenset(overwritten))


def to_staged_onnx(net: Net, weights: Weights | None, outputs: Sequence[str] = ()) -> ModelProto:
    """The model with the SDK's tensors under the SDK's names.

    outputs  blobs that leave it, beside those that nothing reads; empty for those that its post-processing read.
    The model carries the table of its stages (``stage_table``). Raises what ``to_onnx`` raises.
    """
    outputs = outputs or _cut_at(net)
    named = steps(net, outputs)
    graph = _filled(net, named, weights, staged=True)
    _declare(net, graph, _tensors(graph, outputs))
    write_stages(graph.proto, [stage for step in named for stage in _stages(step)])
    return graph.proto


def _stages(step: Step) -> Iterator[Stage]:
    if step.passes:
        return
    if step.joined is not None and step.joined.tops != step.layer.tops:
        yield Stage("", step.joined.tops[0], step.joined.name)
    if step.product is not None:
        yield Stage(step.product, step.layer.tops[0], (step.joined or step.layer).name)
    for name, blob in zip(step.tops, step.layer.tops):
        yield Stage(name, blob, step.layer.name)


def _filled(net: Net, named: Sequence[Step], weights: Weights | None, staged: bool) -> _Graph:
    """The graph with a node for every layer."""
    graph = _Graph(_empty_model(net), {name: Value(name, shape) for name, shape in net.inputs.items()})
    for name, shape in net.inputs.items():
        _check_size(f"{net.path}: input {name!r}", shape)
    for step in named:
        graph.names[0].taken.update(step.tops, (step.product,) if step.product else ())
    graph.names[0].taken.update(net.inputs)
    _check_weight_names(net, weights)
    for step in named:
        _add(net, step, weights, graph, staged)
    return graph


def _as_pycaffe(net: Net) -> list[Step]:
    """The layers under the names that pycaffe shows; Dropout in place does nothing at all in the TEST phase."""
    layers = [layer for layer in net.layers if layer.type not in IDENTITIES or layer.bottoms != layer.tops]
    left = Counter(top for layer in layers for top in layer.tops)
    taken = Names({*net.inputs, *left})
    named = []
    for layer in layers:
        tops = []
        for top in layer.tops:
            left[top] -= 1
            name = top
            if left[top] or top in net.inputs:
                name = layer.name if layer.name not in taken and len(layer.tops) == 1 else f"{top}@{layer.name}"
            tops.append(name if name == top else taken.fresh(name))
        named.append(Step(layer, tuple(tops)))
    return named


def _add(net: Net, step: Step, weights: Weights | None, graph: _Graph, staged: bool) -> None:
    layer = step.layer
    _check_type(layer)
    if step.joined is not None:
        _check_blobs(net, step.joined, graph)
        graph.current[step.joined.tops[0]] = graph.current[step.joined.bottoms[0]]
    _check_blobs(net, layer, graph)
    inputs = tuple(graph.current[bottom] for bottom in layer.bottoms)
    if step.passes:
        graph.current.update((top, inputs[0]) for top in layer.tops)
        return
    joined = None if step.joined is None else Piece(step.joined, inputs, step.tops, weights, graph.names, staged)
    piece = Piece(layer, inputs, step.tops, weights, graph.names, staged, step.product, joined)
    try:
        values = LAYERS[layer.type](piece)
    except (ValueError, IndexError, ArithmeticError) as error:
        raise ModelError(f"{layer.where} has parameters that do not fit its inputs: {error}") from error
    for top, value in zip(layer.tops, values):
        _check_size(layer.where, value.shape)
        graph.current[top] = value
        graph.shapes[value.name] = value.shape
    graph.proto.graph.node.extend(piece.nodes)
    for name, array in piece.constants.items():
        _add_constant(graph.proto, name, array)


def _check_blobs(net: Net, layer: Layer, graph: _Graph) -> None:
    """What a layer reads is there, and what it makes is not, unless it is in place."""
    for bottom in layer.bottoms:
        if bottom not in graph.current:
            raise ModelError(f"{layer.where} reads the blob {bottom!r}, {who_makes(net.layers, bottom)}")
    for index, top in enumerate(layer.tops):
        if top in graph.current and layer.bottoms[index : index + 1] != (top,):
            raise ModelError(f"{layer.where} makes the blob {top!r}, which is there already")


def _check_weight_names(net: Net, weights: Weights | None) -> None:
    names = Counter(layer.name for layer in net.layers)
    for layer in net.layers:
        if weights and names[layer.name] > 1 and weights.blobs(layer.name):
            raise ModelError(f"{layer.where} is not the only one of this name; weights are found by it, so rename one")


def _check_type(layer: Layer) -> None:
    if layer.type not in LAYERS:
        near = hint(layer.type, LAYERS)
        raise ModelError(f"{layer.where} is of a type that is not known{near}")


def _check_size(where: str, shape: Shape) -> None:
    if any(size <= 0 for size in shape):
        raise ModelError(f"{where} gives a blob of shape {list(shape)}; every size must be 1 or more")
    if math.prod(shape) > INT_MAX:
        raise ModelError(
            f"{where} gives a blob of shape {list(shape)}, more than the 2^31 numbers a Caffe blob can hold"
        )


def _empty_model(net: Net) -> ModelProto:
    """Filled layer by layer: a graph made at the end would hold all weights once more."""
    from onnx import helper

    graph = helper.make_graph([], net.path.stem, [_info(name, shape) for name, shape in net.inputs.items()], [])
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, producer_name="sgsdump", opset_imports=opset, ir_version=IR_VERSION)


def _add_constant(proto: ModelProto, name: str, array: np.ndarray) -> None:
    from onnx import helper

    tensor = proto.graph.initializer.add(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor.dims.extend(array.shape)
    tensor.raw_data = array.tobytes()


def _cut_at(net: Net) -> Sequence[str]:
    return net.cut.outputs if net.cut else ()


def _tensors(graph: _Graph, blobs: Sequence[str]) -> list[str]:
    """The last values of those blobs that are there."""
    return [graph.current[blob].name for blob in blobs if blob in graph.current]


def _declare(net: Net, graph: _Graph, more: Sequence[str] = ()) -> None:
    """Name the outputs, blobs that nothing reads and ``more``, and say the shape of every blob."""
    nodes = graph.proto.graph.node
    read = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output}
    outputs = [name for name in graph.shapes if name in made - read]
    outputs += [name for name in more if name in made & read and name not in outputs]
    if not outputs:
        raise ModelError(f"{net.path} computes nothing: every blob is read again")
    graph.proto.graph.output.extend(_info(name, graph.shapes[name]) for name in outputs)
    graph.proto.graph.value_info.extend(
        _info(n, shape) for n, shape in graph.shapes.items() if n in made & read - {*outputs}
    )


def _info(name: str, shape: Shape) -> ValueInfoProto:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
