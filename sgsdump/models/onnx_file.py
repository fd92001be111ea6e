"""ONNX files (https://onnx.ai), one protobuf ModelProto.

Weights are inside or in external data files. Any bytes can pass for protobuf, so this reader is asked last and decides
by what it finds: an ``ir_version`` and a graph with something in it. External data are left on the disk (onnxruntime
maps them); their locations are checked here, because a model is untrusted and must not make us read outside its own
folder.

Callers that only run a model can have the big weights inside left there too: parsing copies every weight, and for a
moment holds them twice, where such a caller reads a weight when its turn comes. They become external data whose file is
the model's own. A ModelProto has its graph in field 7, a GraphProto its initializers in field 5, a TensorProto its
values in field 9 (raw_data); everything but the bytes of raw_data is kept as it stands.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from sgsdump.errors import FormatError, ModelError, SgsdumpError, one_line
from sgsdump.files.bounded_read import read_whole, reading
from sgsdump.files.mapped import let_bytes_go, map_file
from sgsdump.files.protobuf_wire import BYTES, WireError, fields, varint
from sgsdump.models.external_data import entries_of, external_files, external_tensors, graph_tensors
from sgsdump.models.graph import MAIN_DOMAINS, SMALL_WEIGHT, dtype_of, opset_of
from sgsdump.models.model import Model, ModelReader
from sgsdump.models.passes.rewrites import inline_functions

if TYPE_CHECKING:
    import onnx
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

PROTOBUF_LIMIT = 2**31 - 1
WORTH_A_WALK = 16 << 20
OTHER_KINDS = {b"TFL3": "a TensorFlow Lite model", b"ORTM": "an onnxruntime (.ort) model"}
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
# Fields of a weight besides its values.
_TENSOR_TEXTS = ("name", "doc_string", "external_data", "metadata_props")
_MOST_VERSION = 2**31
_MOST_VALUES = 2**40
FACTS = ("dims", "data_type", "name", "doc_string", "metadata_props")
Buffer = bytes | mmap.mmap


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix not in (".prototxt", ".caffemodel")


def _read(path: Path) -> Model:
    """The model without its external data, its functions put in place. Raises ModelError."""
    proto, external = read_proto(path)
    with _understood(path):
        return Model(inline_functions(proto), path, path.parent if external else None)


def _read_in_place(path: Path) -> Model:
    """The model, its big weights left in the file; as ``_read`` where that is not worth it or cannot be."""
    resolved = path.resolve()
    proto = _parsed_in_place(resolved)
    if proto is None:
        return _read(path)
    with _understood(path):
        _check(proto, path)
        _check_external(proto.graph, resolved)
        return Model(inline_functions(proto), path, resolved.parent)


def _parsed_in_place(path: Path) -> onnx.ModelProto | None:
    """The model without its big weights; None for a small or damaged file and one with external data of its own."""
    import onnx
    from google.protobuf.message import DecodeError

    if not can_be_named(path.name):
        return None
    try:
        if not WORTH_A_WALK <= path.stat().st_size <= PROTOBUF_LIMIT:
            return None
        proto = onnx.ModelProto.FromString(without_weights(map_file(path), path.name))
    except (OSError, FormatError, DecodeError, WireError):
        return None
    if not proto.ir_version or not proto.graph.node:
        return None
    return proto if all(location == path.name for location in external_files(proto)) else None


def read_proto(path: Path) -> tuple[onnx.ModelProto, bool]:
    """The model as it stands in the file, checked, without its external data; and whether it has any. Raises
    ModelError."""
    import onnx
    from google.protobuf.message import DecodeError

    with reading(path, ModelError):
        size = path.stat().st_size
        if size > PROTOBUF_LIMIT:
            raise ModelError(
                f"{path} has {size} bytes, more than the 2 GiB of an ONNX file; save it with external data"
            )
        data = read_whole(path)
    if data[4:8] in OTHER_KINDS:
        raise ModelError(f"{path} is {OTHER_KINDS[data[4:8]]}, not an ONNX file; convert it to ONNX first")
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX file, or it is cut off or damaged") from None
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX file: it holds no graph")
    if not proto.graph.node:
        raise ModelError(f"{path} holds no operators; there is nothing to run")
    with _understood(path):
        _check(proto, path)
        return proto, _check_external(proto.graph, path)


def _check(proto: onnx.ModelProto, path: Path) -> None:
    """Raises ModelError for what no model may hold. A size of -1, which some exporters write for one that is not fixed,
    becomes no size, in place."""
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("value")
    _check_texts(proto, path)
    _check_numbers(proto, path)
    _check_inputs(proto, path)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Raises ModelError for whatever the onnx library, or what reads its messages, raises for a damaged model."""
    try:
        yield
    except (SgsdumpError, OSError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(str(error))[:200]}"
        raise ModelError(
            f"{path} cannot be read by the onnx library ({reason}); is the file damaged? Export the model anew"
        ) from None


def _check_texts(message: Message, path: Path) -> None:
    """Raises ModelError for a text that is not UTF-8, which protobuf gives as bytes and nothing can write again."""
    texts = _TENSOR_TEXTS if message.DESCRIPTOR.name == "TensorProto" else None
    # The values of a weight are left alone: to look at them is to copy them.
    listed = message.ListFields() if texts is None else [(f, getattr(message, f.name)) for f in _named(message, texts)]
    for field, value in listed:
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for item in (value,) if isinstance(value, str | bytes) or hasattr(value, "DESCRIPTOR") else value:
            if isinstance(item, bytes):
                raise ModelError(
                    f"{path}: its {field.name} is not UTF-8 text ({item[:40]!r}); is the file damaged? "
                    f"Export the model anew"
                )
            if not isinstance(item, str):
                _check_texts(item, path)


def _named(message: Message, names: Iterable[str]) -> list[FieldDescriptor]:
    return [message.DESCRIPTOR.fields_by_name[name] for name in names]


def _check_numbers(proto: onnx.ModelProto, path: Path) -> None:
    """Raises ModelError for a version or a shape that no model can have."""
    for opset in proto.opset_import:
        if not 0 <= opset.version < _MOST_VERSION:
            raise ModelError(
                f"{path} says it is of opset {opset.version} of {opset.domain or 'ai.onnx'!r}, which cannot be; is the "
                f"file damaged? Export the model anew"
            )
    for tensor in graph_tensors(proto.graph):
        if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > _MOST_VALUES:
            raise ModelError(
                f"{path}: weight {tensor.name!r} has the shape {list(tensor.dims)}, which cannot be; is the file "
                f"damaged? Export the model anew"
            )


def _check_inputs(proto: onnx.ModelProto, path: Path) -> None:
    """Raises ModelError for a node of ONNX's own that lacks an input it cannot be without."""
    import onnx

    version = opset_of(proto, absent=0)
    for node in proto.graph.node:
        if node.domain not in MAIN_DOMAINS or not onnx.defs.has(node.op_type):
            continue
        try:
            needed = onnx.defs.get_schema(node.op_type, version, "").min_input
        except onnx.defs.SchemaError:
            continue
        if len(node.input) < needed:
            raise ModelError(
                f"{path}: node {node.name or node.op_type!r} ({node.op_type}) has {len(node.input)} inputs and needs "
                f"{needed}; is the file damaged? Export the model anew"
            )


def _check_external(graph: onnx.GraphProto, path: Path) -> bool:
    """Whether a weight is in an external file. Raises ModelError when that file is missing, short or elsewhere."""
    external = False
    for tensor in external_tensors(graph):
        _check_location(tensor, path)
        external = True
    return external


def _check_location(tensor: onnx.TensorProto, path: Path) -> None:
    entries = entries_of(tensor)
    location = entries.get("location", "")
    what = f"{path}: weight {tensor.name!r}"
    if not location or PureWindowsPath(location).anchor or _leaves_folder(location):
        raise ModelError(f"{what} points to {location!r}, outside the model's own folder; it is not read")
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        raise ModelError(f"{what} gives an offset or length that is not a number") from None
    file = path.parent / location
    if not file.is_file():
        raise ModelError(f"{what} is in the file {file}, which is missing; put it beside the model")
    size = file.stat().st_size
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(f"{what} needs bytes {offset} to {offset + length} of {file}, which has {size}; it is cut off")


def _leaves_folder(location: str) -> bool:
    return PurePosixPath(location).is_absolute() or ".." in location.replace("\\", "/").split("/")


def can_be_named(location: str) -> bool:
    """Whether a file of this name may be given as the location of external data."""
    return not PureWindowsPath(location).anchor and "\\" not in location and location.isprintable()


def without_weights(data: Buffer, location: str) -> bytes:
    """The serialised model ``data``, its big weights as external data in the file ``location``, which holds ``data``.

    Raises WireError, and what protobuf raises for a weight that is not a message.
    """

    def tensor(start: int, end: int) -> bytes | None:
        return _as_external(data, start, end, location)

    def graph(start: int, end: int) -> bytes:
        return _replaced(data, start, end, INITIALIZER, tensor)

    return _replaced(data, 0, len(data), GRAPH, graph)


def _replaced(data: Buffer, start: int, end: int, number: int, change: Callable[[int, int], bytes | None]) -> bytes:
    """A message; ``change`` makes each field of this number anew from its begin and end, or keeps it by None."""
    parts, done = [], start
    for field in fields(data, start, end):
        value = change(field.value, field.end) if (field.number, field.wire_type) == (number, BYTES) else None
        if value is not None:
            parts += [data[done : field.start], varint(number << 3 | BYTES), varint(len(value)), value]
            done = field.end
    return b"".join((*parts, data[done:end]))


def _as_external(data: Buffer, start: int, end: int, location: str) -> bytes | None:
    """A weight that says where its values are instead of holding them; None if it is small or not plain."""
    if end - start <= SMALL_WEIGHT:
        return None
    raw = [field for field in fields(data, start, end) if (field.number, field.wire_type) == (RAW_DATA, BYTES)]
    if len(raw) != 1:
        return None
    first, last = raw[0].value, raw[0].end
    import onnx

    tensor = onnx.TensorProto.FromString(data[start : raw[0].start] + data[last:end])
    if not _is_plain(tensor, last - first):
        return None
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, word in (("location", location), ("offset", str(first)), ("length", str(last - first))):
        tensor.external_data.add(key=key, value=word)
    let_bytes_go(data, first, last)
    return tensor.SerializeToString()


def _is_plain(tensor: onnx.TensorProto, size: int) -> bool:
    """Whether a weight without its raw data is a big array of numpy's own types that needs so many bytes."""
    if any(field.name not in FACTS for field, _ in tensor.ListFields()):
        return False
    dtype, count = dtype_of(tensor.data_type), math.prod(tensor.dims)
    return dtype is not None and count > SMALL_WEIGHT and dtype.isbuiltin == 1 and count * dtype.itemsize == size


READER = ModelReader("onnx", _recognises, _read, read_in_place=_read_in_place)
