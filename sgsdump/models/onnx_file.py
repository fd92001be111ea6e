"""Reader of ONNX files (https://onnx.ai), each one protobuf ModelProto.

Weights are inside or in external data files. Any bytes can look like protobuf, so this reader is tried last and checks
the content: an ``ir_version`` and a non-empty graph. External data stay on disk (onnxruntime maps them). Their
locations are checked here: a model is untrusted and must not make sgsdump read outside the model's folder.

For callers that only run a model, large weights inside the model can stay in the file too. Parsing copies every weight
and briefly holds it twice, but such a caller reads one weight at a time. These weights become external data whose file
is the model's own. A ModelProto has its graph in field 7, a GraphProto its initializers in field 5, a TensorProto its
values in field 9 (raw_data). All bytes other than raw_data are kept unchanged.
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
# Fields of a weight that contain text.
_TENSOR_TEXTS = ("name", "doc_string", "external_data", "metadata_props")
_MOST_VERSION = 2**31
_MOST_VALUES = 2**40
FACTS = ("dims", "data_type", "name", "doc_string", "metadata_props")
Buffer = bytes | mmap.mmap


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix not in (".prototxt", ".caffemodel")


def _read(path: Path) -> Model:
    """Read the model without its external data and inline its functions. Raises ModelError."""
    proto, external = read_proto(path)
    with _understood(path):
        return Model(inline_functions(proto), path, path.parent if external else None)


def _read_in_place(path: Path) -> Model:
    """Read the model with its large weights left in the file; fall back to ``_read`` if not useful or not possible."""
    resolved = path.resolve()
    proto = _parsed_in_place(resolved)
    if proto is None:
        return _read(path)
    with _understood(path):
        _check(proto, path)
        _check_external(proto.graph, resolved)
        return Model(inline_functions(proto), path, resolved.parent)


def _parsed_in_place(path: Path) -> onnx.ModelProto | None:
    """Return the model without large weights; None for a small or damaged file, or one with its own external data."""
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
    """Return the checked model of a file without its external data, and whether it has any. Raises ModelError."""
    import onnx
    from google.protobuf.message import DecodeError

    with reading(path, ModelError):
        size = path.stat().st_size
        if size > PROTOBUF_LIMIT:
            raise ModelError(
                f"{path} has {size} bytes, more than the 2 GiB limit of an ONNX file; save it with external data"
            )
        data = read_whole(path)
    if data[4:8] in OTHER_KINDS:
        raise ModelError(f"{path} is {OTHER_KINDS[data[4:8]]}, not an ONNX file; convert it to ONNX first")
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX file, or is truncated or damaged") from None
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX file: it holds no graph")
    if not proto.graph.node:
        raise ModelError(f"{path} holds no operators; nothing can be run")
    with _understood(path):
        _check(proto, path)
        return proto, _check_external(proto.graph, path)


def _check(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError for invalid content; remove sizes of -1, which some exporters write for open sizes, in place."""
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("value")
    _check_texts(proto, path)
    _check_numbers(proto, path)
    _check_inputs(proto, path)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Convert any exception that the onnx library raises for a damaged model to ModelError."""
    try:
        yield
    except (SgsdumpError, OSError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(str(error))[:200]}"
        raise ModelError(
            f"{path} cannot be read by the onnx library ({reason}); if the file is damaged, export the model again"
        ) from None


def _check_texts(message: Message, path: Path) -> None:
    """Raise ModelError for a text that is not UTF-8, which protobuf returns as bytes and cannot write again."""
    texts = _TENSOR_TEXTS if message.DESCRIPTOR.name == "TensorProto" else None
    # The values of a weight are skipped: access would copy them.
    listed = message.ListFields() if texts is None else [(f, getattr(message, f.name)) for f in _named(message, texts)]
    for field, value in listed:
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for item in (value,) if isinstance(value, str | bytes) or hasattr(value, "DESCRIPTOR") else value:
            if isinstance(item, bytes):
                raise ModelError(
                    f"{path}: its {field.name} is not UTF-8 text ({item[:40]!r}); if the file is damaged, "
                    f"export the model again"
                )
            if not isinstance(item, str):
                _check_texts(item, path)


def _named(message: Message, names: Iterable[str]) -> list[FieldDescriptor]:
    return [message.DESCRIPTOR.fields_by_name[name] for name in names]


def _check_numbers(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError for an invalid version or shape."""
    for opset in proto.opset_import:
        if not 0 <= opset.version < _MOST_VERSION:
            raise ModelError(
                f"{path} has the invalid opset {opset.version} of {opset.domain or 'ai.onnx'!r}; if the "
                f"file is damaged, export the model again"
            )
    for tensor in graph_tensors(proto.graph):
        if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > _MOST_VALUES:
            raise ModelError(
                f"{path}: weight {tensor.name!r} has the invalid shape {list(tensor.dims)}; if the file "
                f"is damaged, export the model again"
            )


def _check_inputs(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError for a node of a standard operator that lacks a required input."""
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
                f"{path}: node {node.name or node.op_type!r} ({node.op_type}) has {len(node.input)} inputs but needs "
                f"{needed}; if the file is damaged, export the model again"
            )


def _check_external(graph: onnx.GraphProto, path: Path) -> bool:
    """Return whether a weight is in an external file; raise ModelError if the file is missing, short or elsewhere."""
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
        raise ModelError(f"{what} points to {location!r}, outside the model's folder; such files are not read")
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        raise ModelError(f"{what} has an offset or length that is not a number") from None
    file = path.parent / location
    if not file.is_file():
        raise ModelError(f"{what} is in the file {file}, which is missing; put it beside the model")
    size = file.stat().st_size
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(f"{what} needs bytes {offset} to {offset + length} of {file}, which has only {size}")


def _leaves_folder(location: str) -> bool:
    return PurePosixPath(location).is_absolute() or ".." in location.replace("\\", "/").split("/")


def can_be_named(location: str) -> bool:
    """Return whether a file of this name may be the location of external data."""
    return not PureWindowsPath(location).anchor and "\\" not in location and location.isprintable()


def without_weights(data: Buffer, location: str) -> bytes:
    """Return the serialised model ``data`` with large weights as external data in ``location``, which holds ``data``.

    Raises WireError, and protobuf's errors for a weight that is not a message.
    """

    def tensor(start: int, end: int) -> bytes | None:
        return _as_external(data, start, end, location)

    def graph(start: int, end: int) -> bytes:
        return _replaced(data, start, end, INITIALIZER, tensor)

    return _replaced(data, 0, len(data), GRAPH, graph)


def _replaced(data: Buffer, start: int, end: int, number: int, change: Callable[[int, int], bytes | None]) -> bytes:
    """Return a message with the fields of this number rebuilt by ``change(begin, end)``; None keeps a field."""
    parts, done = [], start
    for field in fields(data, start, end):
        value = change(field.value, field.end) if (field.number, field.wire_type) == (number, BYTES) else None
        if value is not None:
            parts += [data[done : field.start], varint(number << 3 | BYTES), varint(len(value)), value]
            done = field.end
    return b"".join((*parts, data[done:end]))


def _as_external(data: Buffer, start: int, end: int, location: str) -> bytes | None:
    """Return a weight with the location of its values instead of the values; None if small or not plain."""
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
    """Return whether a weight without its raw data is a large array of a numpy type that needs ``size`` bytes."""
    if any(field.name not in FACTS for field, _ in tensor.ListFields()):
        return False
    dtype, count = dtype_of(tensor.data_type), math.prod(tensor.dims)
    return dtype is not None and count > SMALL_WEIGHT and dtype.isbuiltin == 1 and count * dtype.itemsize == size


READER = ModelReader("onnx", _recognises, _read, read_in_place=_read_in_place)
