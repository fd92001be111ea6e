"""Reader of OpenVINO models (IR, https://docs.openvino.ai): graph in ``net.xml``, weights in ``net.bin`` beside it.

The graph becomes nodes of the domain ``DOMAIN``, with the names and types of the file, for display, selection and
pairing. Only OpenVINO runs the model, from the files themselves (``executors/native``). A tensor has the first name
that its port lists, which is the name in the converted model; otherwise the name of its layer. Tensors computed only
from constants are weights too: compressed and quantised weights are scaled in this way. Tensors inside TensorIterator,
Loop and If are not available, and are listed as not dumped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from sgsdump.errors import FormatError, ModelError, one_line
from sgsdump.files.bounded_read import read_all, reading
from sgsdump.models.model import Model, Native
from sgsdump.tensors.types import NCHW

if TYPE_CHECKING:
    import onnx

DOMAIN = "org.openvino"
_MOST_BYTES = 256 << 20
_NO_NODES = ("Parameter", "Result", "Const", "Constant")
_TYPES = {
    **{"FP32": "FLOAT", "FP16": "FLOAT16", "BF16": "BFLOAT16", "FP64": "DOUBLE", "BOOL": "BOOL", "STRING": "STRING"},
    **{f"I{bits}": f"INT{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"U{bits}": f"UINT{bits}" for bits in (4, 8, 16, 32, 64)},
    **{"F8E4M3": "FLOAT8E4M3FN", "F8E5M2": "FLOAT8E5M2"},
}
_BODIES = ("body", "then_body", "else_body")  # first: TensorIterator and Loop; others: If
_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True)
class _Port:
    """Output of a layer; None in ``shape`` is an open size."""

    names: tuple[str, ...]
    precision: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class _Layer:
    """Layer of the network.

    extent  offset and size in bytes of a constant's values in the weight file
    bodies  names of the networks inside the layer
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: dict[str, _Port]
    extent: tuple[int, int]
    bodies: tuple[str, ...] = ()


def read(path: Path) -> Model:
    """Read an OpenVINO model.

    Raises ModelError for a truncated or damaged file, for a file that is not IR, and for missing or truncated weights.
    """
    try:
        net = _parsed(path)
        layers = {layer.get("id", ""): _layer(layer) for layer in net.iterfind("layers/layer")}
        edges = [tuple(edge.get(key, "") for key in _EDGE) for edge in net.iterfind("edges/edge")]
        _check_weights(path, layers.values())
        return _model(path, layers, {(edge[2], edge[3]): (edge[0], edge[1]) for edge in edges})
    except FormatError as error:
        raise ModelError(f"{path} {error}; if the file is truncated or damaged, convert the model again") from None


_EDGE = ("from-layer", "from-port", "to-layer", "to-port")


def _parsed(path: Path) -> ElementTree.Element:
    with reading(path, ModelError):
        data = read_all(path, _MOST_BYTES, "the graph of an OpenVINO model")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise FormatError("has XML definitions (DOCTYPE or ENTITY), which no OpenVINO model has")
    try:
        net = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError) as error:
        raise FormatError(f"is not the graph of an OpenVINO model ({one_line(str(error))})") from None
    if net.tag != "net" or net.find("layers") is None:
        raise FormatError(f"is not the graph of an OpenVINO model: its root is <{one_line(net.tag)[:40]}>")
    return net


def _layer(layer: ElementTree.Element) -> _Layer:
    data = layer.find("data")
    extent = (0, 0) if data is None else (_number(data.get("offset", "0")), _number(data.get("size", "0")))
    return _Layer(
        layer.get("name", ""),
        layer.get("type", ""),
        tuple(port.get("id", "") for port in layer.iterfind("input/port")),
        {port.get("id", ""): _port(port) for port in layer.iterfind("output/port")},
        extent if layer.get("type") in ("Const", "Constant") else (0, 0),
        tuple(body for body in _BODIES if layer.find(body) is not None),
    )


def _port(port: ElementTree.Element) -> _Port:
    names = [name.replace("\\,", ",") for name in _COMMA.split(port.get("names", "")) if name]
    sizes = [_number(dim.text or "") for dim in port.iterfind("dim")]
    return _Port(tuple(names), port.get("precision", ""), tuple(size if size >= 0 else None for size in sizes))


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise FormatError(f"has {text[:40]!r} instead of a number") from None
    if abs(number) >= 2**62:
        raise FormatError(f"has {text[:40]!r} instead of a size")
    return number


def _check_weights(path: Path, layers: object) -> None:
    """Raise ModelError if the weight file is missing or too short."""
    extents = [layer.extent for layer in layers if layer.extent[1]]  # type: ignore[attr-defined]
    weights = path.with_suffix(".bin")
    if not extents:
        return
    if not weights.is_file():
        raise ModelError(f"{path} has its weights in {weights}, which is missing; put it beside the model")
    size, needed = weights.stat().st_size, max(offset + length for offset, length in extents)
    if needed > size or min(map(min, extents)) < 0:
        raise ModelError(
            f"{path} needs {needed:,} bytes of weights, but {weights} has {size:,}; check that it is this model's "
            f"complete weight file"
        )


def _model(path: Path, layers: dict[str, _Layer], edges: dict[tuple[str, str], tuple[str, str]]) -> Model:
    import onnx

    names = _names(layers)
    constant = {key for key, layer in layers.items() if layer.kind in ("Const", "Constant")}
    proto = onnx.ModelProto(ir_version=8, producer_name="OpenVINO")
    proto.opset_import.add(domain="", version=17)
    proto.opset_import.add(domain=DOMAIN, version=1)
    graph = proto.graph
    graph.name = path.stem
    keys: dict[str, tuple[str | int, ...]] = {}
    for key in _sorted(layers, edges):
        layer = layers[key]
        makers = [edges.get((key, port), ("", "")) for port in layer.inputs]
        for number, port in enumerate(layer.outputs):
            keys[names[key, port]] = (layer.name, number)
        if layer.kind == "Parameter":
            graph.input.extend(_declared(names[key, port], layer.outputs[port]) for port in layer.outputs)
        elif layer.kind == "Result":
            made = layers[makers[0][0]].outputs.get(makers[0][1]) if makers and makers[0][0] in layers else None
            if made is None:
                raise FormatError(f"has an output {layer.name[:80]!r} that no layer computes")
            if names[makers[0]] not in {info.name for info in graph.output}:
                graph.output.append(_declared(names[makers[0]], made))
        elif key in constant or (makers and constant.issuperset(maker for maker, _ in makers)):
            constant.add(key)
            for port, facts in layer.outputs.items():
                sizes = [size or 0 for size in facts.shape]
                graph.initializer.add(name=names[key, port], data_type=_onnx_type(facts), dims=sizes)
        else:
            graph.node.add(
                op_type=layer.kind,
                domain=DOMAIN,
                name=layer.name,
                input=[names.get(maker, "") for maker in makers],
                output=[names[key, port] for port in layer.outputs],
            )
            graph.value_info.extend(_declared(names[key, port], facts) for port, facts in layer.outputs.items())
    if not graph.node or not graph.output:
        raise FormatError("holds no operators; nothing can be run")
    outputs = {info.name for info in graph.output}
    inner = [info for info in graph.value_info if info.name not in outputs]
    del graph.value_info[:]
    graph.value_info.extend(inner)
    inside = {
        f"{layer.name}/{body}": f"is inside a {layer.kind}, whose tensors OpenVINO does not give"
        for layer in layers.values()
        for body in layer.bodies
    }
    return Model(proto, path, native=Native("openvino", "OpenVINO", NCHW, {}, keys, inside))


def _sorted(layers: dict[str, _Layer], edges: dict[tuple[str, str], tuple[str, str]]) -> Iterator[str]:
    """Yield the layers, each after its inputs, otherwise in file order; raise FormatError for a cycle."""
    done: set[str] = set()
    for first in layers:
        waiting = [first]
        opened: set[str] = set()
        while waiting:
            key = waiting[-1]
            if key in done:
                waiting.pop()
                continue
            reads = [edges[key, port][0] for port in layers[key].inputs if (key, port) in edges]
            missing = [maker for maker in reads if maker in layers and maker not in done]
            if missing and key in opened:
                raise FormatError(f"has a cycle at layer {layers[key].name[:80]!r}")
            opened.add(key)
            waiting += reversed(missing)
            if not missing:
                done.add(waiting.pop())
                yield key


def _names(layers: dict[str, _Layer]) -> dict[tuple[str, str], str]:
    """Return a unique name for every output of every layer."""
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for key, layer in layers.items():
        for number, (port, facts) in enumerate(layer.outputs.items()):
            plain = layer.name or f"layer_{key}"
            name = next(iter(facts.names), plain if len(layer.outputs) == 1 else f"{plain}.{number}")
            while name in taken:
                name = f"{name}#{key}"
            taken.add(name)
            names[key, port] = name
    return names


def _declared(name: str, port: _Port) -> onnx.ValueInfoProto:
    import onnx

    return onnx.helper.make_tensor_value_info(name, _onnx_type(port), port.shape)


def _onnx_type(port: _Port) -> int:
    import onnx

    return getattr(onnx.TensorProto, _TYPES.get(port.precision.upper(), ""), onnx.TensorProto.UNDEFINED)
