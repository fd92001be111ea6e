"""A prototxt as Caffe runs it in the TEST phase: inputs and layers in order, up to the post-processing.

Source of the rules (remaining layers, origin of inputs): Caffe's net.cpp and upgrade_proto.cpp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.errors import ModelError
from sgsdump.models.caffe.layers import POST_PROCESSING
from sgsdump.models.caffe.prototxt import Layer, read_prototxt
from sgsdump.models.model import PostProcessingCut

DATA_TYPES = ("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "AnnotatedData", "DenseImageData")


@dataclass(frozen=True, eq=False)
class Net:
    """A Caffe network.

    inputs  blobs fed by the user, with shapes
    layers  in execution order
    cut     parts of the prototxt removed as post-processing, if any
    """

    path: Path
    inputs: dict[str, tuple[int, ...]]
    layers: tuple[Layer, ...]
    cut: PostProcessingCut | None = None

    @property
    def repeated_names(self) -> tuple[str, ...]:
        """Names shared by several layers."""
        count = Counter(layer.name for layer in self.layers)
        return tuple(name for name in count if count[name] > 1)


def read_net(path: Path) -> Net:
    """Read a prototxt. Raises ModelError."""
    message, layers = read_prototxt(path)
    layers = [layer for layer in layers if _kept(layer, message.state)]
    if not layers:
        raise ModelError(f"{path} is not a Caffe net: it holds no layers")
    layers, unread = _without_losses(layers)
    inputs = _named_inputs(path, message)
    for layer in layers:
        if layer.type in DATA_TYPES:
            raise ModelError(
                f"{layer.where} reads a training data set; use the deploy prototxt, or replace this layer with an "
                f"Input layer with the shape of {', '.join(map(repr, layer.tops))}"
            )
    has_others = bool(inputs) or any(layer.type == "Input" for layer in layers)
    for layer in layers:
        if is_input(layer, has_others):
            inputs.update(_shapes(layer))
    inputs = {name: shape for name, shape in inputs.items() if name not in unread}
    if not inputs:
        raise ModelError(f"{path} has no input; add an Input layer with the shape of the image")
    return _without_post_processing(
        Net(path, inputs, tuple(layer for layer in layers if not _is_source(layer, inputs)))
    )


def who_makes(layers: Iterable[Layer], blob: str) -> str:
    """Return the end of a message about a layer that reads a blob before it exists."""
    later = next((layer for layer in layers if blob in layer.tops), None)
    if later is None:
        return "which no layer computes"
    return f"which only the later layer {later.name!r} computes; the network has a cycle or its layers are out of order"


def is_input(layer: Layer, has_others: bool) -> bool:
    """Return whether the user feeds a layer's tops.

    DummyData is an input like Input. It is a constant only if the network has other inputs and all its fillers are
    constant.
    """
    if layer.type != "DummyData":
        return layer.type == "Input"
    fillers = layer.message.dummy_data_param.data_filler
    return not (has_others and fillers and all(filler.type == "constant" for filler in fillers))


def dummy_shapes(layer: Layer) -> list[tuple[int, ...]]:
    """Return the shape of each top of a DummyData layer, in either notation."""
    param = layer.message.dummy_data_param
    shapes = [tuple(shape.dim) for shape in param.shape]
    shapes = shapes or list(zip(param.num, param.channels, param.height, param.width))
    return _for_each_top(layer, shapes)


def _kept(layer: Layer, state: Any) -> bool:
    include, exclude = layer.message.include, layer.message.exclude
    if include and exclude:
        raise ModelError(f"{layer.where} has include and exclude rules; Caffe allows only one kind")
    if include:
        return any(_meets(rule, state) for rule in include)
    return not any(_meets(rule, state) for rule in exclude)


def _meets(rule: Any, state: Any) -> bool:
    """Return whether the TEST state of a network meets all conditions of a rule."""
    test = 1
    if rule.HasField("phase") and rule.phase != test:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    return set(rule.stage) <= set(state.stage) and not set(rule.not_stage) & set(state.stage)


def _without_losses(layers: list[Layer]) -> tuple[list[Layer], set[str]]:
    """Return the layers without unread training losses and scores, and the blobs that only these read."""
    kept = list(layers)
    while True:
        read = _read(kept)
        dropped = [layer for layer in kept if _for_training(layer.type) and not read & set(layer.tops)]
        if not dropped:
            return kept, _read(layers) - read
        kept = [layer for layer in kept if layer not in dropped]


def _without_post_processing(net: Net) -> Net:
    """Return the network that ends at the inputs of its post-processing.

    Post-processing is removed with all layers that depend on it. Its inputs become outputs if they depend on a network
    input. Others (PriorBox uses only shapes) are removed unless a remaining layer reads them.
    """
    dropped = _from_post_processing_on(net)
    if not dropped:
        return net
    without = {*dropped}
    kept = [layer for layer in net.layers if layer not in without]
    outputs = _varying_ends(net, kept, dropped)
    needed, layers = set(outputs), []
    for layer in reversed(kept):
        if needed & set(layer.tops):
            needed.update(layer.bottoms)
            layers.append(layer)
    if not layers:
        raise ModelError(
            f"{dropped[0].where} is post-processing, which sgsdump cuts off, and no other layer "
            "remains. Give the network that computes the input blobs of this layer"
        )
    layers.reverse()
    stays = {*layers}
    gone = [layer for layer in net.layers if layer not in stays]
    unread = _read(gone) - _read(layers)
    inputs = {name: shape for name, shape in net.inputs.items() if name not in unread}
    blobs = {top for layer in gone for top in layer.tops} - {top for layer in layers for top in layer.tops}
    cut = PostProcessingCut(
        first=(dropped[0].name, dropped[0].type),
        layers=tuple(layer.name for layer in gone),
        blobs=frozenset(blobs | (net.inputs.keys() - inputs.keys())),
        outputs=outputs,
    )
    return Net(net.path, inputs, tuple(layers), cut)


def _from_post_processing_on(net: Net) -> list[Layer]:
    """Return the post-processing layers and all layers that depend on them, in order."""
    available: set[str] = set(net.inputs)
    of_dropped: set[str] = set()
    dropped = []
    for layer in net.layers:
        if layer.type in POST_PROCESSING or of_dropped & set(layer.bottoms):
            for bottom in layer.bottoms:
                if bottom not in available:
                    raise ModelError(f"{layer.where} reads the blob {bottom!r}, {who_makes(net.layers, bottom)}")
            dropped.append(layer)
            of_dropped.update(layer.tops)
        else:
            of_dropped.difference_update(layer.tops)
        available.update(layer.tops)
    return dropped


def _varying_ends(net: Net, kept: list[Layer], dropped: list[Layer]) -> tuple[str, ...]:
    """Return blobs of ``kept`` that depend on an input and are read by ``dropped`` or by no layer, in order."""
    varying = set(net.inputs)
    for layer in kept:
        if layer.type != "PriorBox" and varying & set(layer.bottoms):
            varying.update(layer.tops)
        else:
            varying.difference_update(layer.tops)
    last = {top: index for index, layer in enumerate(kept) for top in layer.tops}
    read = _read(dropped)
    read_again = {name for index, layer in enumerate(kept) for name in layer.bottoms if index > last.get(name, index)}
    ends = [name for name in last if name in varying and (name in read or name not in read_again)]
    return tuple(sorted(ends, key=lambda name: last[name]))


def _read(layers: Iterable[Layer]) -> set[str]:
    return {name for layer in layers for name in layer.bottoms}


def _for_training(kind: str) -> bool:
    return kind.endswith("Loss") or kind in ("Accuracy", "Silence", "HDF5Output")


def _named_inputs(path: Path, message: Any) -> dict[str, tuple[int, ...]]:
    names = list(message.input)
    shapes = [tuple(shape.dim) for shape in message.input_shape]
    if not shapes:
        dims = list(message.input_dim)
        shapes = [tuple(dims[i : i + 4]) for i in range(0, len(dims), 4)]
    if len(shapes) != len(names):
        raise ModelError(f"{path}: {len(names)} inputs but {len(shapes)} input shapes; give one input_shape per input")
    return dict(zip(names, shapes))


def _shapes(layer: Layer) -> dict[str, tuple[int, ...]]:
    if layer.type == "DummyData":
        return dict(zip(layer.tops, dummy_shapes(layer)))
    return dict(zip(layer.tops, _for_each_top(layer, [tuple(shape.dim) for shape in layer.message.input_param.shape])))


def _for_each_top(layer: Layer, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    if len(shapes) not in (1, len(layer.tops)):
        tops = ", ".join(map(repr, layer.tops))
        raise ModelError(f"{layer.where} needs one shape per top ({tops}), but gives {len(shapes)}")
    return shapes * len(layer.tops) if len(shapes) == 1 else shapes


def _is_source(layer: Layer, inputs: dict[str, tuple[int, ...]]) -> bool:
    """Return whether a layer is an input layer, including one whose tops only dropped layers read."""
    return layer.type in ("Input", "DummyData") and (layer.type == "Input" or set(layer.tops) <= set(inputs))
