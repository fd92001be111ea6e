"""Reader of TensorFlow Lite models (https://ai.google.dev/edge/litert): FlatBuffers with operators and weights.

The graph becomes nodes of the domain ``DOMAIN``, with the names and types of the file, for display, selection and
pairing. Only LiteRT runs the model, from the file itself (``executors/native``). Tensors computed only from constants
are weights too: float16 weights are dequantised in this way. A quantised input is declared as float32 real values;
codes of the model's own type are accepted unchanged. Empty and shared names are numbered. Source of the field and
operator numbers: the public schema, tensorflow/lite/schema/schema.fbs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.dumps.onnx_network import FUSED
from sgsdump.errors import FormatError, ModelError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.files.flatbuffer import Buffer, Table, root
from sgsdump.files.mapped import map_file
from sgsdump.models.graph import dtype_of
from sgsdump.models.model import CODES, Model, Native
from sgsdump.tensors.dtypes import dtype_named
from sgsdump.tensors.types import NHWC, Quant

if TYPE_CHECKING:
    pass

MAGIC = b"TFL3"
DOMAIN = "org.tensorflow.lite"
_CUSTOM = 32
_MOST_AXES = 32
_TYPES = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant "
    "uint32 uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2"
).split()
_OPERATORS = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
    LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
    CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
    BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
    ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE
    TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK
    LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
    RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N
    GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
    PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE
    HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
    ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
    DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
    STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
    STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM
    STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT
    STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW
    STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
    REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
""".split()


_ACTIVATIONS = ("", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
# Operator -> field of its options with the fused activation.
_ACTIVATION_FIELDS = {
    **dict.fromkeys(("FULLY_CONNECTED", "ADD", "SUB", "MUL", "DIV", "L2_NORMALIZATION"), 0),
    **dict.fromkeys(("CONCATENATION", "SVDF"), 1),
    **dict.fromkeys(("CONV_2D", "TRANSPOSE_CONV"), 3),
    **dict.fromkeys(("DEPTHWISE_CONV_2D", "CONV_3D"), 4),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), 5),
}


@dataclass(frozen=True)
class _Tensor:
    """Tensor of the file; None in ``shape`` is an open size, ``extent`` is offset and size in bytes of its values."""

    name: str
    kind: str
    shape: tuple[int | None, ...]
    quant: Quant | None
    extent: tuple[int, int]


@dataclass(frozen=True)
class _Operator:
    """Operator of the file; ``activation`` is its fused activation, or ""."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    activation: str = ""


@dataclass(frozen=True)
class _Net:
    """Main graph; ``bodies`` are the names of other graphs, which control flow runs."""

    tensors: tuple[_Tensor, ...]
    operators: tuple[_Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: tuple[str, ...] = field(default=())


def read(path: Path) -> Model:
    """Read a TFLite model. Raises ModelError for a truncated or damaged file, and for another format."""
    try:
        data = map_file(path)
    except FormatError as error:
        raise ModelError(str(error)) from None
    if data[4:8] != MAGIC:
        raise ModelError(f"{path} is not a TFLite model: the identifier TFL3 is missing")
    try:
        return _model(path, _with_own_names(_net_of(data)))
    except FormatError as error:
        raise ModelError(
            f"{path}: TensorFlow Lite model {error}; if the file is truncated or damaged, convert the model again"
        ) from None


def _net_of(data: Buffer) -> _Net:
    model = root(data)
    kinds = [_kind(code) for code in model.tables(1)]
    graphs = list(model.tables(2))
    if not graphs:
        raise FormatError("holds no graph")
    extents = [_extent(buffer) for buffer in model.tables(4)]
    main = graphs[0]
    tensors = tuple(_tensor(table, extents) for table in main.tables(0))
    operators = tuple(_operators(main, kinds, len(tensors)))
    inputs, outputs = (tensor_indices(main, field, len(tensors)) for field in (1, 2))
    if not operators or not outputs:
        raise FormatError("holds no operators; nothing can be run")
    bodies = tuple(graph.text(4) or f"graph {number}" for number, graph in enumerate(graphs[1:], 1))
    return _Net(tensors, operators, inputs, outputs, bodies)


def _kind(code: Table) -> str:
    return operator_name(max(code.number(0, "b"), code.number(3, "i")), code.text(1))


def operator_name(number: int, custom: str) -> str:
    """Return the schema's name of a builtin operator, or a custom operator's own name."""
    if number == _CUSTOM:
        return custom or "CUSTOM"
    return _OPERATORS[number] if 0 <= number < len(_OPERATORS) else f"BUILTIN_{number}"


def _extent(buffer: Table) -> tuple[int, int]:
    """Return the offset and size of a buffer; in files of over 2 GiB, values follow the tables at a given position."""
    inside = buffer.extent(0, 1)
    return inside if inside[1] else (buffer.number(1, "Q"), buffer.number(2, "Q"))


def _tensor(table: Table, extents: list[tuple[int, int]]) -> _Tensor:
    kind, buffer = table.number(1, "b"), table.number(2, "I")
    if not 0 <= kind < len(_TYPES):
        raise FormatError(f"has a tensor of the unknown type {kind}")
    sizes = table.numbers(7, "i4")
    sizes = table.numbers(0, "i4") if not len(sizes) else sizes
    if len(sizes) > _MOST_AXES:
        raise FormatError(f"has a tensor with {len(sizes)} axes; at most {_MOST_AXES} are supported")
    shape = tuple(int(size) if size >= 0 else None for size in sizes)
    if buffer >= len(extents):
        raise FormatError(f"has a tensor with buffer index {buffer}, but has only {len(extents)} buffers")
    return _Tensor(table.text(3), _TYPES[kind], shape, _quant(table.table(4), _TYPES[kind]), extents[buffer])


def _quant(table: Table | None, kind: str) -> Quant | None:
    if table is None or not kind.startswith(("int", "uint")):
        return None
    scales, zero_points = table.numbers(2, "f4"), table.numbers(3, "i8")
    if not len(scales):
        return None
    dtype = dtype_named(kind)
    if len(scales) == 1:
        return Quant(dtype, float(scales[0]), int(zero_points[0]) if len(zero_points) else 0, exact=True)
    zero_point = int(zero_points[0]) if len(zero_points) else 0
    return Quant(dtype, scales, zero_point, table.number(6, "i"), exact=True)


def _operators(graph: Table, kinds: list[str], tensors: int) -> Iterator[_Operator]:
    for table in graph.tables(3):
        code = table.number(0, "I")
        if code >= len(kinds):
            raise FormatError(
                f"has an operator with code {code}, but the file defines only {len(kinds)} operator codes"
            )
        inputs, outputs = tensor_indices(table, 1, tensors, absent=True), tensor_indices(table, 2, tensors)
        yield _Operator(kinds[code], inputs, outputs, _activation(kinds[code], table.table(4)))


def _activation(kind: str, options: Table | None) -> str:
    number = options.number(_ACTIVATION_FIELDS[kind], "b") if options and kind in _ACTIVATION_FIELDS else 0
    return _ACTIVATIONS[number] if 0 <= number < len(_ACTIVATIONS) else ""


def tensor_indices(table: Table, field: int, tensors: int, absent: bool = False) -> tuple[int, ...]:
    """Return the tensors that a vector names; with ``absent``, -1 is an absent input. Raises FormatError."""
    indices = tuple(map(int, table.numbers(field, "i4")))
    for index in indices:
        if not (0 <= index < tensors or (absent and index == -1)):
            raise FormatError(f"refers to tensor {index}, but has only {tensors} tensors")
    return indices


def _with_own_names(net: _Net) -> _Net:
    """Give every tensor a unique name."""
    taken: set[str] = set()
    tensors = []
    for index, tensor in enumerate(net.tensors):
        name = tensor.name or f"tensor_{index}"
        while name in taken:
            name = f"{name}#{index}"
        taken.add(name)
        tensors.append(_Tensor(name, tensor.kind, tensor.shape, tensor.quant, tensor.extent))
    return _Net(tuple(tensors), net.operators, net.inputs, net.outputs, net.bodies)


def _model(path: Path, net: _Net) -> Model:
    import onnx

    constant = {index for index, tensor in enumerate(net.tensors) if tensor.extent[1]}
    proto = onnx.ModelProto(ir_version=8, producer_name="TFLite")
    proto.opset_import.add(domain="", version=17)
    proto.opset_import.add(domain=DOMAIN, version=1)
    graph = proto.graph
    graph.name = path.stem
    for number, operator in enumerate(net.operators):
        reads = [index for index in operator.inputs if index >= 0]
        if reads and constant.issuperset(reads):
            constant.update(operator.outputs)
            continue
        node = graph.node.add(
            op_type=operator.kind,
            domain=DOMAIN,
            name=f"{operator.kind}_{number}",
            input=[net.tensors[index].name if index >= 0 else "" for index in operator.inputs],
            output=[net.tensors[index].name for index in operator.outputs],
        )
        if operator.activation:
            node.attribute.append(onnx.helper.make_attribute(FUSED, operator.activation))
    if not graph.node:
        raise FormatError("has no operator that computes a tensor from the inputs")
    made = {name for node in graph.node for name in node.output}
    for index, tensor in enumerate(net.tensors):
        if index in constant and tensor.name not in made:
            graph.initializer.add(name=tensor.name, data_type=_onnx_type(tensor), dims=[n or 0 for n in tensor.shape])
        elif index in net.inputs:
            _declare(graph.input, tensor, real=True)
        elif index not in net.outputs:
            _declare(graph.value_info, tensor)
    for index in dict.fromkeys(net.outputs):
        _declare(graph.output, net.tensors[index])
    order = {net.tensors[index].name: position for position, index in enumerate(net.inputs)}
    inputs = sorted(graph.input, key=lambda info: order[info.name])
    del graph.input[:]
    graph.input.extend(inputs)
    quants = {tensor.name: tensor.quant for tensor in net.tensors if tensor.quant is not None}
    makers = {index: number for number, operator in enumerate(net.operators) for index in operator.outputs}
    keys = {tensor.name: (index, makers.get(index, -1)) for index, tensor in enumerate(net.tensors)}
    inside = dict.fromkeys(net.bodies, "is the body of an IF or WHILE, whose tensors LiteRT does not give")
    extents = {tensor.name: tensor.extent for tensor in net.tensors if tensor.extent[1]}
    return Model(proto, path, native=Native("tflite", "TFLite", NHWC, quants, keys, inside, extents))


def constant(model: Model, name: str) -> np.ndarray | None:
    """Return the stored values of a constant; None for other tensors, and for a type that numpy lacks.

    Raises ModelError if the file has changed.
    """
    assert model.native is not None
    start, size = model.native.constants.get(name, (0, 0))
    tensor = next((each for each in model.proto.graph.initializer if each.name == name), None)
    dtype = None if tensor is None else dtype_of(tensor.data_type)
    if not size or tensor is None or dtype is None or dtype.isbuiltin != 1:
        return None
    shape = tuple(tensor.dims)
    if size != math.prod(shape) * dtype.itemsize:
        return None
    with reading(model.path, ModelError), open_file(model.path) as file:
        file.seek(start)
        data = file.read(size)
    if len(data) < size:
        raise ModelError(f"{model.path} became shorter while it was read")
    return np.frombuffer(data, dtype).reshape(shape)


def operator_of(model: Model, name: str) -> int:
    """Return the file's index of the operator that computes a tensor; -1 for an input or a constant."""
    assert model.native is not None
    return int(model.native.keys[name][1])


def _declare(infos: object, tensor: _Tensor, real: bool = False) -> None:
    """Declare a tensor; with ``real``, a quantised tensor becomes float32 with a note of its own type."""
    import onnx

    is_codes = real and tensor.quant is not None
    kind = onnx.TensorProto.FLOAT if is_codes else _onnx_type(tensor)
    info = onnx.helper.make_tensor_value_info(tensor.name, kind, tensor.shape)
    if is_codes:
        info.metadata_props.add(key=CODES, value=tensor.kind)
    infos.append(info)  # type: ignore[attr-defined]


def _onnx_type(tensor: _Tensor) -> int:
    import onnx

    names = {"float32": "FLOAT", "float64": "DOUBLE", "float8_e4m3fn": "FLOAT8E4M3FN", "float8_e5m2": "FLOAT8E5M2"}
    return getattr(onnx.TensorProto, names.get(tensor.kind, tensor.kind.upper()), onnx.TensorProto.UNDEFINED)
