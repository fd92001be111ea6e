"""Conversion of a Caffe network and its weights to an ONNX ModelProto with the same blobs.

Under pycaffe's names, an in-place layer writes a new tensor. The last tensor has the blob's name, as in pycaffe;
earlier tensors are named after their layer. stages.py describes the names of the SDK's converter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ConfigError, ModelError, hint
from sgsdump.models.caffe.layer_builder import INT_MAX, LayerBuilder, Names, Shape, Value
from sgsdump.models.caffe.layers import LAYERS
from sgsdump.models.caffe.net import Net, read_net, who_makes
from sgsdump.models.caffe.prototxt import Layer
from sgsdump.models.caffe.stages import Step, steps
from sgsdump.models.caffe.weights import Weights, read_weights
from sgsdump.models.model import CaffeLayers, Model, write_stages
from sgsdump.tensors.stages import Stage

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

OPSET = 13
IR_VERSION = 8
IDENTITIES = ("Dropout", "Split")


def read(path: Path, weights: Path | None) -> Model:
    """Read the network under pycaffe's names; ``weights`` may be None for a network without weights.

    Raises ModelError, also for a layer of unknown type, a layer that does not fit its inputs or weights, and a cycle.
    """
    net = read_net(path)
    named = _as_pycaffe(net)
    graph = _Graph(net, named, read_weights(weights) if weights else None, staged=False)
    graph.declare(net.cut.outputs if net.cut else ())
    blobs = {*net.inputs, *(value.name for value in graph.current.values())}
    overwritten = {name for step in named for name in step.tops} - blobs
    return Model(graph.proto, path, blobs=frozenset(blobs), overwritten=frozenset(overwritten), cut=net.cut)


def read_staged(path: Path, weights: Path | None, outputs: Sequence[str]) -> Model:
    """Read the network with the SDK's tensors and names, and with the table of its stages.

    outputs  output blobs, besides blobs without readers; empty for the inputs of its post-processing

    Raises ConfigError for an output that only post-processing computes, and ModelError as ``read``.
    """
    net = read_net(path)
    for name in outputs:
        if net.cut is not None and name in net.cut.blobs:
            layer, kind = net.cut.first
            raise ConfigError(
                f"input_config: the key outputs names {name!r}, but {path} is cut before its "
                f"post-processing, {layer!r} ({kind}); write outputs = {','.join(net.cut.outputs)};"
            )
    outputs = outputs or (net.cut.outputs if net.cut else ())
    named = steps(net, outputs)
    learned = read_weights(weights) if weights else None
    graph = _Graph(net, named, learned, staged=True)
    graph.declare(outputs)
    write_stages(graph.proto, [stage for step in named for stage in _stages(step)])
    other = tuple(layer.name for layer in net.layers if learned and not learned.are_plain(layer.name))
    caffe = CaffeLayers(tuple((layer.name, layer.type, layer.message) for layer in net.layers), other)
    return Model(graph.proto, path, cut=net.cut, repeated_layers=net.repeated_names, caffe=caffe)


def _stages(step: Step) -> Iterator[Stage]:
    if step.passes:
        return
    if step.joined is not None and step.joined.tops != step.layer.tops:
        yield Stage("", step.joined.tops[0], step.joined.name)
    if step.product is not None:
        yield Stage(step.product, step.layer.tops[0], (step.joined or step.layer).name)
    for name, blob in zip(step.tops, step.layer.tops):
        yield Stage(name, blob, step.layer.name)


def _as_pycaffe(net: Net) -> list[Step]:
    """Return the layers under pycaffe's names; an in-place Dropout does nothing in the TEST phase."""
    layers = [layer for layer in net.layers if layer.type not in IDENTITIES or layer.bottoms != layer.tops]
    remaining = Counter(top for layer in layers for top in layer.tops)
    taken = Names({*net.inputs, *remaining})
    named = []
    for layer in layers:
        tops = []
        for top in layer.tops:
            remaining[top] -= 1
            name = top
            if remaining[top] or top in net.inputs:
                name = layer.name if layer.name not in taken and len(layer.tops) == 1 else f"{top}@{layer.name}"
            tops.append(name if name == top else taken.fresh(name))
        named.append(Step(layer, tuple(tops)))
    return named


class _Graph:
    """The ONNX graph, extended layer by layer.

    current  current tensor of each blob
    """

    def __init__(self, net: Net, named: Sequence[Step], weights: Weights | None, staged: bool):
        self._net, self._weights, self._staged = net, weights, staged
        self.proto = _empty_model(net)
        self.current = {name: Value(name, shape) for name, shape in net.inputs.items()}
        self._shapes: dict[str, Shape] = {}
        for name, shape in net.inputs.items():
            _check_size(f"{net.path}: input {name!r}", shape)
        products = (step.product for step in named if step.product)
        self._names = Names({*net.inputs, *products, *(top for step in named for top in step.tops)}), Names()
        _check_weight_names(net, weights)
        self._sizes: set[str] = set()  # tensors that only give a Crop its size
        for step in named:
            if step.layer.type == "Crop" and len(step.layer.bottoms) == 2 and step.layer.bottoms[1] in self.current:
                self._sizes.add(self.current[step.layer.bottoms[1]].name)
            self._add(step)

    def declare(self, blobs: Sequence[str]) -> None:
        """Declare the outputs (tensors without readers, last values of ``blobs``) and the shape of every tensor."""
        graph = self.proto.graph
        read = {name for node in graph.node for name in node.input}
        produced = {name for node in graph.node for name in node.output}
        outputs = [name for name in self._shapes if name in produced - read - self._sizes]
        further = [self.current[blob].name for blob in blobs if blob in self.current]
        outputs += [name for name in further if name in produced & read and name not in outputs]
        if not outputs:
            raise ModelError(f"{self._net.path} has no outputs, because every blob is the input of a layer")
        graph.output.extend(_info(name, self._shapes[name]) for name in outputs)
        inner = produced & read - {*outputs}
        graph.value_info.extend(_info(name, shape) for name, shape in self._shapes.items() if name in inner)

    def _add(self, step: Step) -> None:
        layer = step.layer
        if layer.type not in LAYERS:
            raise ModelError(f"{layer.where} has an unknown type{hint(layer.type, LAYERS)}")
        if step.joined is not None:
            self._check_blobs(step.joined)
            self.current[step.joined.tops[0]] = self.current[step.joined.bottoms[0]]
        self._check_blobs(layer)
        inputs = tuple(self.current[bottom] for bottom in layer.bottoms)
        if step.passes:
            self.current.update((top, inputs[0]) for top in layer.tops)
            return
        builder = LayerBuilder(layer, inputs, step.tops, self._weights, self._names, self._staged, step.product)
        if step.joined is not None:
            builder.joined = replace(builder, layer=step.joined, product=None, nodes=[], constants={})
        try:
            values = LAYERS[layer.type](builder)
        except (ValueError, IndexError, ArithmeticError) as error:
            raise ModelError(f"{layer.where} has parameters that do not fit its inputs: {error}") from error
        for top, value in zip(layer.tops, values):
            _check_size(layer.where, value.shape)
            self.current[top] = value
            self._shapes[value.name] = value.shape
        self.proto.graph.node.extend(builder.nodes)
        for name, array in builder.constants.items():
            _add_constant(self.proto, name, array)

    def _check_blobs(self, layer: Layer) -> None:
        """Raise ModelError if a layer reads a missing blob, or writes an existing one unless in place."""
        for bottom in layer.bottoms:
            if bottom not in self.current:
                raise ModelError(f"{layer.where} reads the blob {bottom!r}, {who_makes(self._net.layers, bottom)}")
        for index, top in enumerate(layer.tops):
            if top in self.current and layer.bottoms[index : index + 1] != (top,):
                raise ModelError(f"{layer.where} writes the blob {top!r}, which already exists")


def _check_weight_names(net: Net, weights: Weights | None) -> None:
    repeated = set(net.repeated_names)
    for layer in net.layers:
        if weights and layer.name in repeated and weights.blobs(layer.name):
            raise ModelError(
                f"{layer.where} shares its name with another layer; a layer with weights needs a unique name"
            )


def _check_size(where: str, shape: Shape) -> None:
    if any(size <= 0 for size in shape):
        raise ModelError(f"{where} gives a blob of shape {list(shape)}; every size must be 1 or more")
    if math.prod(shape) > INT_MAX:
        raise ModelError(f"{where} gives a blob of shape {list(shape)}, but a Caffe blob holds at most 2^31 numbers")


def _empty_model(net: Net) -> ModelProto:
    """Return a model to be filled layer by layer; a graph made at the end would hold all weights twice."""
    from onnx import helper

    graph = helper.make_graph([], net.path.stem, [_info(name, shape) for name, shape in net.inputs.items()], [])
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, producer_name="sgsdump", opset_imports=opset, ir_version=IR_VERSION)


def _add_constant(proto: ModelProto, name: str, array: np.ndarray) -> None:
    from onnx import helper

    tensor = proto.graph.initializer.add(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor.dims.extend(array.shape)
    tensor.raw_data = array.tobytes()


def _info(name: str, shape: Shape) -> ValueInfoProto:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
