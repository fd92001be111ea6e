"""Creation of onnxruntime sessions: providers, options, shared memory and weights, model versions, values, errors.

onnxruntime lags behind onnx: a model from today's ``onnx.helper.make_model`` may carry an IR version and an opset that
onnxruntime refuses. Most such models use no operator that has changed since, so they mean the same under older numbers.

Large weights are passed to a session beside its model, so that no weight is serialised, parsed and unpacked. The model
holds a stub of the location "external" instead. A weight in memory is shared without a copy. A weight that was left in
the model's own file (``models/onnx_file.py``) or outside (``models/external_data.py``) is read for this session, into
memory with onnxruntime's own alignment. onnxruntime itself maps weights in other files.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, TypeProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as binding

from sgsdump.errors import ConfigError, ModelError
from sgsdump.files.bounded_read import open_file
from sgsdump.files.mapped import identity
from sgsdump.models.external_data import entries_of, is_outside, read_outside
from sgsdump.models.graph import MAIN_DOMAINS, all_nodes
from sgsdump.tensors.dtypes import packed, packed_size, unpacked

# Element types that numpy supports.
PLAIN_WORDS = "FLOAT FLOAT16 DOUBLE BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64"
PLAIN = frozenset(TensorProto.DataType.Value(word) for word in PLAIN_WORDS.split())
# Element types from ml_dtypes; onnxruntime packs two 4-bit elements into a byte, the first in the low half.
BEYOND_WORDS = "BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 FLOAT4E2M1 INT4 UINT4"
BEYOND = frozenset(map(TensorProto.DataType.Value, set(BEYOND_WORDS.split()) & set(TensorProto.DataType.keys())))
# Alignment of a tensor in memory, in bytes: fastest for processors, and the value that onnxruntime uses itself.
ALIGNMENT = 64
ELEMENT_NAMES = {"float": "FLOAT", "double": "DOUBLE"}
# onnxruntime's names of tensor types with PLAIN elements.
PLAIN_TYPES = frozenset(f"tensor({word.lower()})" for word in PLAIN_WORDS.split())
CPU = "CPUExecutionProvider"
# The first versions with functions and their overloads; every supported onnxruntime accepts them.
LOWEST_IR, LOWEST_OPSET = 9, 17
# Exceptions that onnxruntime raises if it cannot load or run a graph; they have no common base class of their own.
REFUSALS = (
    *(binding.Fail, binding.InvalidArgument, binding.InvalidGraph, binding.InvalidProtobuf, binding.NotImplemented),
    *(binding.RuntimeException, binding.NoSuchFile, binding.EPFail, RuntimeError),
)
_FATAL = 4  # onnxruntime's severities are 0 verbose, 1 info, 2 warning, 3 error, 4 fatal
_AS_REQUESTED = 1  # grow the memory pool by the requested size, not to the next power of two
# Smaller weights may be shape parameters, whose values onnxruntime needs within the model.
MIN_ELEMENTS = 1024
Values = dict[str, ort.OrtValue]


def type_proto(text: str, shape: Sequence[int] | None) -> TypeProto:
    """Return onnxruntime's type name (``tensor(float)``, ``optional(seq(tensor(int64)))``) as a TypeProto.

    A plain tensor gets ``shape``, the shape of the value: some operators (Resize with sizes) refuse a free dimension.
    """
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if kind == "tensor":
        return onnx.helper.make_tensor_type_proto(_element_type(inner), shape)
    if kind == "sparse_tensor":
        return onnx.helper.make_sparse_tensor_type_proto(_element_type(inner), None)
    if kind == "seq":
        return onnx.helper.make_sequence_type_proto(type_proto(inner, None))
    if kind == "optional":
        return onnx.helper.make_optional_type_proto(type_proto(inner, None))
    if kind == "map":
        key, _, value = inner.partition(",")
        return onnx.helper.make_map_type_proto(_element_type(key), type_proto(value, None))
    raise ModelError(
        f"the model computes a value of type {text}, which sgsdump cannot pass from one model segment to the next"
    )


def _element_type(word: str) -> int:
    return TensorProto.DataType.Value(ELEMENT_NAMES.get(word, word).upper())


def shape_of(value: ort.OrtValue) -> list[int] | None:
    """Return the shape of a tensor, or None for any other value and for an empty optional."""
    return list(value.shape()) if value.has_value() and value.is_tensor() else None


def from_array(array: np.ndarray, elem_type: int) -> ort.OrtValue:
    """Return an OrtValue of element type ``elem_type``; arrays of numpy's own types share their memory with it."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if elem_type not in BEYOND:
        return ort.OrtValue.ortvalue_from_numpy(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), elem_type)
    data = packed(array)
    if data:
        ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def aligned_memory(size: int) -> np.ndarray:
    """Return ``size`` uninitialised bytes at an address that is a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def why_not(value: ort.OrtValue) -> str:
    """Return the reason why a value cannot become an array, or ""."""
    if not value.has_value():
        return "an optional value that is absent"
    if not value.is_tensor():
        kind = value.data_type().partition("(")[0]
        return f"a {'sequence' if kind == 'seq' else kind}, not a tensor"
    kind = value.element_type()
    if kind == TensorProto.STRING:
        return "holds text, not numbers"
    if kind in PLAIN or kind in BEYOND:
        return ""
    return f"holds {TensorProto.DataType.Name(kind).lower()} values, which cannot be read"


def to_array(value: ort.OrtValue) -> np.ndarray:
    """Return the values of a tensor in its own element type; ``why_not`` must be empty for it."""
    kind = value.element_type()
    if kind in PLAIN:
        return value.numpy()
    shape = tuple(value.shape())
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    size = packed_size(dtype, math.prod(shape))
    # Copy: the value owns the memory and may be freed before the array.
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return unpacked(raw, dtype, math.prod(shape)).reshape(shape)


def message_of(error: Exception) -> str:
    """Return the first line of onnxruntime's message, without the error code."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error).strip())
    return text.splitlines()[0] if text else type(error).__name__


def operator_types() -> frozenset[str]:
    """Return the operator types that the installed onnxruntime knows: ONNX's and its own domains'."""
    runtime_schemas = getattr(binding, "get_all_operator_schema", list)  # absent in builds for small devices
    return frozenset(schema.name for schema in (*onnx.defs.get_all_schemas(), *runtime_schemas()))


def providers(name: str) -> list[str]:
    """Return the provider of this name (``CUDA`` for short), then the CPU, which runs operators that the former lacks.

    Raises ConfigError if the installed onnxruntime lacks the provider.
    """
    available = ort.get_available_providers()
    for provider in available:
        if name.lower() in (provider.lower(), provider.lower().removesuffix("executionprovider")):
            return list(dict.fromkeys((provider, CPU)))
    raise ConfigError(f"onnxruntime has no execution provider {name!r}; installed are {', '.join(available)}")


def quiet() -> ort.SessionOptions:
    """Return session options with the log off and less memory use than by default."""
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    # A memory pattern puts all tensors of a run into one block, twice as large as the tensors that are alive at once.
    # Graphs with large tensors also run slower with it.
    options.enable_mem_pattern = False
    # Run nodes in model order. The default is depth first: all parts of an integer convolution are then computed before
    # any two are added, and two to five times as much memory is in use.
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    return options


def unoptimised(folder: Path | None) -> ort.SessionOptions:
    """Return options for a model, or a part of one, that runs node by node without optimisation.

    ``folder`` holds the external data files; None if there are none.
    """
    options = quiet()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = False
    if folder is not None:
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(folder.resolve()))
    return options


def for_one_run() -> ort.SessionOptions:
    """Return options for a self-contained model that runs once, node by node; threads wait without spinning."""
    options = unoptimised(None)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def fake_quantised(threads: int) -> ort.SessionOptions:
    """Return options for QuantizeLinear-DequantizeLinear graphs that run many times; ``threads`` 0: every core."""
    options = quiet()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = threads
    # Fake quantisation must run as written; the pairs must not be fused into integer kernels.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def use_shared_arena(options: ort.SessionOptions) -> None:
    """Let a session take tensor memory from the process's single pool, which grows to the needs of the largest part.

    Without a pool, every tensor gets fresh pages that the system clears: half as much time again. With one pool per
    session, every part of a model keeps memory that only this part can use.
    """
    _register_arena()
    options.enable_cpu_mem_arena = True
    options.add_session_config_entry("session.use_env_allocators", "1")


def release_unused() -> None:
    """Return unused memory of the process's pool and of the C heap to the system.

    glibc's heap keeps free pieces of up to 32 MB.
    """
    _smallest().run(None, {"x": np.zeros(1, np.float32)}, shrinking())
    with suppress(AttributeError, OSError, TypeError):  # C libraries other than glibc
        ctypes.CDLL(None).malloc_trim(0)


@cache
def only_requested() -> ort.RunOptions:
    """Return options for a run that computes only what the requested outputs need."""
    options = ort.RunOptions()
    options.only_execute_path_to_fetches = True
    return options


@cache
def shrinking() -> ort.RunOptions:
    """Return options for a run that frees the pool's unused memory at its end."""
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


@cache
def _smallest() -> ort.InferenceSession:
    options = quiet()
    use_shared_arena(options)
    options.intra_op_num_threads = 1
    return ort.InferenceSession(_identity(LOWEST_IR, LOWEST_OPSET), options, providers=[CPU])


@cache
def _register_arena() -> None:
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    with suppress(RuntimeError):  # the host program has registered an allocator already; use that
        ort.create_and_register_allocator(memory, ort.OrtArenaCfg({"arena_extend_strategy": _AS_REQUESTED}))


def header(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without a graph: IR version, operator sets and functions of ``proto``, lowered for onnxruntime.

    An operator whose newest version only accepts more element types counts as unchanged. Raises ModelError for an
    operator that has changed, and for a model without an operator set.
    """
    if not proto.opset_import:
        raise ModelError(
            "the model declares no operator set, so the model is older than ONNX 1.0. onnxruntime cannot run "
            "such a model. Export the model again."
        )
    lowered = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    if proto.ir_version > LOWEST_IR:
        lowered.ir_version = min(proto.ir_version, newest_ir())
    _lower(lowered.opset_import, proto.graph.node)
    for function in lowered.functions:
        _lower(function.opset_import, function.node)
    return lowered


def loadable(proto: onnx.ModelProto) -> bytes:
    """Return the model serialised under versions that onnxruntime accepts. Raises ModelError as ``header``."""
    lowered = header(proto)
    parts = (lowered.ir_version, lowered.opset_import, lowered.functions)
    if parts == (proto.ir_version, proto.opset_import, proto.functions):
        return proto.SerializeToString()
    lowered.graph.CopyFrom(proto.graph)
    return lowered.SerializeToString()


@cache
def newest_ir() -> int:
    """Return the newest IR version that the installed onnxruntime loads."""
    return next((v for v in range(onnx.IR_VERSION, LOWEST_IR, -1) if _loads(v, LOWEST_OPSET)), LOWEST_IR)


@cache
def newest_opset() -> int:
    """Return the newest operator set that the installed onnxruntime loads."""
    newest = onnx.defs.onnx_opset_version()
    return next((v for v in range(newest, LOWEST_OPSET, -1) if _loads(LOWEST_IR, v)), LOWEST_OPSET)


def _lower(imports: Iterable[onnx.OperatorSetIdProto], nodes: Iterable[NodeProto]) -> None:
    """Lower the main operator set in place."""
    for entry in imports:
        if entry.domain not in MAIN_DOMAINS or entry.version <= max(LOWEST_OPSET, newest_opset()):
            continue
        takes = (
            f"onnxruntime {ort.__version__} supports opsets up to {newest_opset()}. Export the model with this opset."
        )
        if entry.version > onnx.defs.onnx_opset_version():
            raise ModelError(f"the model has opset {entry.version}; {takes}")
        for node in all_nodes(nodes):
            changed = _changed(node, entry.version)
            if changed:
                raise ModelError(
                    f"the model has opset {entry.version}, but {node.op_type} changed in opset {changed}; {takes}"
                )
        entry.version = newest_opset()


def _changed(node: NodeProto, version: int) -> int:
    """Return the opset in which the node's operator changed beyond onnxruntime's support, or 0."""
    if node.domain not in MAIN_DOMAINS:
        return 0
    now = _schema(node.op_type, version)
    if now is None or now.since_version <= newest_opset():
        return 0
    before = _schema(node.op_type, newest_opset())
    return 0 if before is not None and _meaning(now) == _meaning(before) else now.since_version


def _schema(op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return None


def _meaning(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    """Return the part of a schema that stays equal if a new version only accepts more element types."""
    attributes = {n: (str(a.type), str(a.default_value), a.required) for n, a in schema.attributes.items()}
    return schema.doc, attributes, [i.name for i in schema.inputs], [o.name for o in schema.outputs]


def _loads(ir_version: int, opset: int) -> bool:
    try:
        ort.InferenceSession(_identity(ir_version, opset), quiet(), providers=[CPU])
    except Exception:
        return False
    return True


def _identity(ir_version: int, opset: int) -> bytes:
    info = helper.make_tensor_value_info
    identity = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([identity], "g", [info("x", 1, [1])], [info("y", 1, [1])])
    model = helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)])
    return bytes(model.SerializeToString())


class ModelFile(NamedTuple):
    """A model's own file, and the file's ``identity`` at the time when its weights were left there."""

    path: Path
    identity: tuple[int, ...]


def share_initializers(
    options: ort.SessionOptions, weights: Mapping[str, Any], file: ModelFile | None = None
) -> tuple[dict[str, Any], Values]:
    """Return the stub of each weight for the model, and the shared values, which must outlive the session.

    options  options of the future session; the values are added to them.
    file     the model's own file, which may hold large weights.

    Raises ModelError if a weight has fewer or more bytes than its shape needs, or its file is unreadable or has
    changed.
    """
    in_file = {name: weight for name, weight in weights.items() if file and _lies_in(weight, file.path)}
    read = _read(in_file, file) if file and in_file else {}
    for name, value in read.items():
        options.add_initializer(name, value)
    stubs, in_memory = dict(weights), {}
    for name, weight in weights.items():
        if name not in in_file and (shared := _shared(weight)):
            stubs[name], in_memory[name] = shared
    options.add_external_initializers(list(in_memory), list(in_memory.values()))
    return stubs, read | in_memory


def _shared(weight: Any) -> tuple[TensorProto, ort.OrtValue] | None:
    """Return the stub and the value of a large dense weight, or None for any other weight."""
    if not isinstance(weight, TensorProto) or weight.data_type not in PLAIN:
        return None
    if weight.data_location == TensorProto.EXTERNAL:
        return (_stub(weight), _read_outside(weight)) if is_outside(weight) else None
    if not weight.HasField("raw_data"):
        return None
    count = math.prod(weight.dims)
    if count < MIN_ELEMENTS:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    raw = weight.raw_data
    if len(raw) != count * dtype.itemsize:
        raise ModelError(
            f"the weight {weight.name!r} of shape {list(weight.dims)} needs {count * dtype.itemsize} "
            f"bytes, but the model holds {len(raw)} bytes. The model is damaged; export it again."
        )
    value = ort.OrtValue.ortvalue_from_numpy(np.frombuffer(raw, dtype).reshape(weight.dims))
    return _stub(weight), value


def _stub(weight: TensorProto) -> TensorProto:
    stub = TensorProto(name=weight.name, dims=weight.dims, data_type=weight.data_type)
    stub.data_location = TensorProto.EXTERNAL
    stub.external_data.add(key="location", value="shared")
    return stub


def _read_outside(weight: TensorProto) -> ort.OrtValue:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type)
    room = aligned_memory(math.prod(weight.dims) * dtype.itemsize)
    return ort.OrtValue.ortvalue_from_numpy(read_outside(weight, room))


def _lies_in(weight: Any, file: Path) -> bool:
    return (
        isinstance(weight, TensorProto)
        and weight.data_location == TensorProto.EXTERNAL
        and entries_of(weight).get("location") == file.name
    )


def _read(weights: Mapping[str, TensorProto], file: ModelFile) -> Values:
    """Read weights from the model's own file. Raises ModelError."""
    values = {}
    try:
        with open_file(file.path) as stream:
            if identity(os.fstat(stream.fileno())) != file.identity:
                raise OSError("the file changed while in use; run the command again")
            for name, weight in weights.items():
                array = _aligned(tuple(weight.dims), onnx.helper.tensor_dtype_to_np_dtype(weight.data_type))
                stream.seek(int(entries_of(weight).get("offset") or 0))
                if stream.readinto(array.data) != array.nbytes:  # type: ignore[attr-defined]
                    raise OSError("the file became shorter while in use")
                values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    except OSError as error:
        raise ModelError(f"cannot read {file.path}: {error.strerror or error}") from None
    return values


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array aligned as onnxruntime's own: the last bits of a sum can depend on where vectors begin."""
    return aligned_memory(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
