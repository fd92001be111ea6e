"""A prototxt as Caffe sees it in the TEST phase: its inputs and its layers, in order.

Source of the rules (which layers stay, where inputs come from): Caffe's net.cpp and upgrade_proto.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.caffe.schema import enum_label, messages
from sgsdump.errors import ModelError

# Real ones have a thousandth of that; reading text takes about a second for each megabyte.
LIMIT_BYTES = 16 << 20
V1_TYPES = {
    **{"ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "LRN": "LRN", "MVN": "MVN", "RELU": "ReLU"},
    **{"TANH": "TanH", "SOFTMAX_LOSS": "SoftmaxWithLoss", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output"},
}
DATA_TYPES = ("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "AnnotatedData", "DenseImageData")
IDENTITIES = ("Dropout", "Split")
_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}<>\n]|[A-Za-z_]\w*""")
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer as the prototxt writes it; ``message`` holds its parameters, ``where`` begins what is said about it."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    message: Any
    where: str


@dataclass(frozen=True, eq=False)
class Net:
    """``inputs`` are the blobs a user feeds, with their shapes; ``layers`` run in this order."""

    path: Path
    inputs: dict[str, tuple[int, ...]]
    layers: tuple[Layer, ...]


def read_net(path: Path) -> Net:
    """Read a prototxt of either form (``layer`` or ``layers``). Raises ModelError."""
    text = _text(path)
    message = _parsed(path, text)
    layers = [layer for layer in _layers(path, text, message) if _kept(layer, message.state)]
    if not layers:
        raise ModelError(f"{path} is not a Caffe net: it holds no layers")
    layers, unread = _without_losses(layers)
    inputs = _named_inputs(path, message)
    for layer in layers:
        if layer.type in DATA_TYPES:
            raise ModelError(
                f"{layer.where} reads a training data set; use the deploy prototxt, or put an Input layer with the "
                f"shape of {', '.join(map(repr, layer.tops))} in its place"
            )
    has_others = bool(inputs) or any(layer.type == "Input" for layer in layers)
    for layer in layers:
        if is_input(layer, has_others):
            inputs.update(_shapes(layer))
    inputs = {name: shape for name, shape in inputs.items() if name not in unread}
    if not inputs:
        raise ModelError(f"{path} has no input; add an Input layer with the shape of the picture")
    return Net(path, inputs, tuple(layer for layer in layers if not _is_source(layer, inputs) and not _in_place(layer)))


def is_input(layer: Layer, has_others: bool) -> bool:
    """Whether a layer's tops are fed by the user.

    DummyData is an input as Input is; only where a net has other inputs and a constant filler says so it is a constant.
    """
    if layer.type != "DummyData":
        return layer.type == "Input"
    fillers = layer.message.dummy_data_param.data_filler
    return not (has_others and fillers and all(filler.type == "constant" for filler in fillers))


def dummy_shapes(layer: Layer) -> list[tuple[int, ...]]:
    """The shape of each top of a DummyData layer, in either way of writing them."""
    param = layer.message.dummy_data_param
    shapes = [tuple(shape.dim) for shape in param.shape]
    shapes = shapes or list(zip(param.num, param.channels, param.height, param.width))
    return _for_each_top(layer, shapes)


def _text(path: Path) -> str:
    """The prototxt's text. Comments in other encodings than UTF-8 are common, and no reason to refuse a file."""
    try:
        data = path.read_bytes() if path.stat().st_size <= LIMIT_BYTES else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    if data is None or _BINARY.search(data):
        raise ModelError(
            f"{path} is not text, so it is no prototxt; give the .prototxt as the model and the .caffemodel with "
            f"--weight_file"
        )
    return data.decode("utf-8-sig", "replace")


def _parsed(path: Path, text: str) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, messages()["NetParameter"](), allow_unknown_field=True)
    except text_format.ParseError as error:
        line = f" line {error.GetLine()}" if error.GetLine() else ""
        reason = str(error).splitlines()[-1].rpartition("': ")[2]
        raise ModelError(f"{path}{line} is no prototxt of a Caffe net: {reason}") from None
    except (RecursionError, ValueError) as error:
        reason = "its braces are nested too deep" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise ModelError(f"{path} is no prototxt of a Caffe net: {reason}") from None


def _layers(path: Path, text: str, message: Any) -> list[Layer]:
    if message.layer and message.layers:
        raise ModelError(f"{path} mixes 'layer' and 'layers'; keep to one of the two forms")
    old = not message.layer
    lines = _lines(text, "layers" if old else "layer")
    found = []
    for item, line in zip(message.layers if old else message.layer, lines):
        if old and item.HasField("layer"):
            raise ModelError(
                f"{path} line {line} is in the form of 2013; bring it up to date with upgrade_net_proto_text"
            )
        kind = _v1_type(enum_label(item, "type")) if old else item.type
        where = f"{path} line {line}: layer {item.name!r} ({repr(kind)[1:-1] or 'no type'})"
        if not kind or kind == "None":
            raise ModelError(f"{where} has no type")
        found.append(Layer(item.name, kind, tuple(item.bottom), tuple(item.top), item, where))
    return found


def _v1_type(label: str) -> str:
    return V1_TYPES.get(label) or "".join(word.capitalize() for word in label.split("_"))


def _lines(text: str, field: str) -> list[int]:
    """Line numbers where the top-level messages of a name begin; the parser itself does not tell."""
    found, depth, line = [], 0, 1
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "{<":
            depth += 1
        elif token in "}>":
            depth -= 1
        elif depth == 0 and token == field:
            found.append(line)
    return found


def _kept(layer: Layer, state: Any) -> bool:
    include, exclude = layer.message.include, layer.message.exclude
    if include and exclude:
        raise ModelError(f"{layer.where} has rules to include and to exclude it; Caffe allows one kind only")
    if include:
        return any(_meets(rule, state) for rule in include)
    return not any(_meets(rule, state) for rule in exclude)


def _meets(rule: Any, state: Any) -> bool:
    """Whether the TEST state of a net meets a rule; all that the rule names must hold."""
    test = 1
    if rule.HasField("phase") and rule.phase != test:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    return set(rule.stage) <= set(state.stage) and not set(rule.not_stage) & set(state.stage)


def _without_losses(layers: list[Layer]) -> tuple[list[Layer], set[str]]:
    """The layers without the losses and scores of training that nothing reads; and the blobs only those read."""
    kept = list(layers)
    while True:
        read = _read(kept)
        dropped = [layer for layer in kept if _for_training(layer.type) and not read & set(layer.tops)]
        if not dropped:
            return kept, _read(layers) - read
        kept = [layer for layer in kept if layer not in dropped]


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
        raise ModelError(f"{path}: {len(names)} inputs but {len(shapes)} input shapes; give input_shape for each")
    return dict(zip(names, shapes))


def _shapes(layer: Layer) -> dict[str, tuple[int, ...]]:
    if layer.type == "DummyData":
        return dict(zip(layer.tops, dummy_shapes(layer)))
    return dict(zip(layer.tops, _for_each_top(layer, [tuple(shape.dim) for shape in layer.message.input_param.shape])))


def _for_each_top(layer: Layer, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    if len(shapes) not in (1, len(layer.tops)):
        tops = ", ".join(map(repr, layer.tops))
        raise ModelError(f"{layer.where} needs a shape for each of its tops, {tops}; it gives {len(shapes)}")
    return shapes * len(layer.tops) if len(shapes) == 1 else shapes


def _is_source(layer: Layer, inputs: dict[str, tuple[int, ...]]) -> bool:
    """Input layers; one whose tops only dropped layers read is not needed either."""
    return layer.type in ("Input", "DummyData") and (layer.type == "Input" or set(layer.tops) <= set(inputs))


def _in_place(layer: Layer) -> bool:
    """Dropout that writes over its own input does nothing at all in the TEST phase."""
    return layer.type in IDENTITIES and layer.bottoms == layer.tops
