"""ONNX models quantised with other tools: scales and zero points of tensors, and stored weights.

Sources: https://onnx.ai/onnx/operators (QuantizeLinear, DequantizeLinear and their ``axis``, ``block_size`` and
``output_dtype``), https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md (QLinearAdd …).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.dumps.quantised_graph import (
    KEY,
    MOVES,
    SCALE_SLOTS,
    Group,
    Node,
    QuantisedGraph,
    gives_codes,
    is_dequantise,
    is_edge,
    is_quantise,
    quants_text,
)
from sgsdump.errors import ModelError
from sgsdump.models.graph import Graph, attribute, dtype_of, needs, values_of, without_values
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.types import Quant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from sgsdump.models.model import Model

UINT8 = np.dtype(np.uint8)


def nodes_of(proto: ModelProto) -> Iterator[Node]:
    """Yield the nodes as input of ``QuantisedGraph``; outer values of a body count as read."""
    for node in proto.graph.node:
        reads = [*node.input, *sorted(needs(node) - set(node.input))]
        told = {"to": str(attribute(node, "to"))} if node.op_type == "Cast" else {}
        yield node.name, node.op_type, reads, list(node.output), "", told


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A weight that a quantised model stores as integers.

    name         name of the integers, or of the float initializer that the model quantises itself
    real         tensor that operators read: the output of DequantizeLinear, or the integers for an operator on codes
    codes        the integers; ``scale`` and ``zero_point`` have shapes that broadcast to them
    scaled_with  weight whose scale determines the scale of a bias without its own scale; "" for other weights
    """

    name: str
    real: str
    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    scaled_with: str = ""

    @property
    def values(self) -> np.ndarray:
        """float32 values of the integers."""
        values: np.ndarray = (self.codes.astype(np.float32) - self.zero_point.astype(np.float32)) * self.scale
        return values


class QuantisedModel:
    """A model with its groups, scales and weights. Raises ModelError for damaged constants when they are accessed."""

    def __init__(self, proto: ModelProto):
        self.proto = proto
        self.graph = Graph(proto)

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Initializers, and values of Constant nodes."""
        found = dict(self.graph.constants)
        for node in self.graph.nodes:
            if node.op_type == "Constant" and (value := attribute(node, "value")) is not None:
                found[node.output[0]] = value
        return found

    @cached_property
    def groups(self) -> QuantisedGraph:
        return QuantisedGraph(nodes_of(self.proto), self.quants)

    @property
    def is_quantised(self) -> bool:
        return self.groups.is_quantised

    @cached_property
    def quants(self) -> dict[str, Quant]:
        """Quantisation of codes and of their dequantised floats, if the scale is constant; weights are omitted."""
        quants: dict[str, Quant] = {}
        for node in self.graph.nodes:
            kind, reads = node.op_type, list(node.input)
            if not reads or not node.output:
                continue
            found: Quant | None = None
            if is_edge(kind) and len(reads) > 1 and reads[0] not in self.constants:
                source = quants.get(reads[0])
                found = self._quant(node, reads[1], reads[2] if len(reads) > 2 else "", source)
            elif gives_codes(kind, reads):
                scale, zero_point = SCALE_SLOTS[kind]
                found = self._quant(node, reads[scale], reads[zero_point] if len(reads) > zero_point else "", None)
            elif kind in MOVES and (source := quants.get(reads[0])) and self._makes_codes(reads[0]):
                quants.update(dict.fromkeys(filter(None, node.output), source))
            if found is not None:
                quants[node.output[0]] = found
        return quants

    def _makes_codes(self, name: str) -> bool:
        """Return whether a tensor with a scale holds integers, which is false only for outputs of DequantizeLinear."""
        maker, seen = self.graph.producer.get(name), set[str]()
        while maker is not None and maker.op_type in MOVES and maker.input[0] not in seen:
            seen.add(maker.input[0])
            maker = self.graph.producer.get(maker.input[0])
        return maker is not None and not is_dequantise(maker.op_type)

    def _quant(self, node: NodeProto, scale: str, zero_point: str, source: Quant | None) -> Quant | None:
        """Return the quantisation; None if a number is not constant, per block, or there are several zero points."""
        if scale not in self.constants or (zero_point and zero_point not in self.constants):
            return None
        if attribute(node, "block_size", 0):
            return None
        scales = np.asarray(values_of(self.constants[scale]), np.float64)
        dtype, zero = source.dtype if source else None, 0
        if zero_point:
            zeros = values_of(self.constants[zero_point])
            dtype = zeros.dtype
            numbers = np.unique(zeros.astype(np.int64)) if is_integer(dtype) else np.zeros(1, np.int64)
            if numbers.size != 1:
                return None
            zero = int(numbers[0])
        elif is_quantise(node.op_type):
            dtype = dtype_of(attribute(node, "output_dtype", 0)) or UINT8
        if dtype is None or scales.ndim > 1 or not scales.size:
            return None
        if scales.size == 1:
            return Quant(dtype, float(scales.reshape(-1)[0]), zero, exact=True)
        return Quant(dtype, scales, zero, int(attribute(node, "axis", 1)), exact=True)

    @cached_property
    def weights(self) -> tuple[StoredWeight, ...]:
        """Constants stored as integers and read as floats or by an operator on codes, including biases."""
        found = [weight for node in self.graph.nodes for weight in self._weights_of(node)]
        return tuple({weight.real: weight for weight in reversed(found)}.values())[::-1]

    def _weights_of(self, node: NodeProto) -> Iterator[StoredWeight]:
        reads = list(node.input)
        if is_dequantise(node.op_type) and len(reads) > 1:
            weight = self._dequantised(node)
            if weight is not None:
                yield weight
            return
        for slot, scale, zero_point in _weight_slots(node.op_type, len(reads)):
            if all(name in self.constants for name in (reads[slot], reads[scale])):
                yield self._stored(node, reads[slot], reads[slot], scale, zero_point)
        if node.op_type in ("ConvInteger", "MatMulInteger") and reads[1] in self.constants:
            weight = self._of_dynamic(node)
            if weight is not None:
                yield weight
        if node.op_type == "MatMulNBits" and len(reads) > 2:
            weight = self._of_blocks(node)
            if weight is not None:
                yield weight
        if node.op_type == "QLinearConv" and len(reads) > 8 and reads[8] in self.constants:
            bias = self._bias(reads)
            if bias is not None:
                yield bias

    def _stored(self, node: NodeProto, name: str, real: str, scale: int, zero_point: int) -> StoredWeight:
        reads = list(node.input)
        codes = values_of(self.constants[name])
        scales = np.asarray(values_of(self.constants[reads[scale]]), np.float32)
        zeros = np.zeros(1, np.int32)
        if len(reads) > zero_point and reads[zero_point] in self.constants:
            zeros = values_of(self.constants[reads[zero_point]]).astype(np.int32)
        # A MatMul has one scale per column, a convolution one per row.
        axis = codes.ndim - 1 if node.op_type == "QLinearMatMul" else 0
        return StoredWeight(name, real, codes, _spread(scales, codes, axis), _spread(zeros, codes, axis))

    def _dequantised(self, node: NodeProto) -> StoredWeight | None:
        """Return the weight that a DequantizeLinear computes from a constant or from a quantised constant."""
        source, scale, *zero = node.input
        if scale not in self.constants:
            return None
        maker = self.graph.producer.get(source)
        name = source
        if source in self.constants:
            codes = values_of(self.constants[source])
        elif maker is not None and is_quantise(maker.op_type) and maker.input[0] in self.constants:
            name = maker.input[0]
            codes = self._quantised(maker)
        else:
            return None
        axis, block = int(attribute(node, "axis", 1)), int(attribute(node, "block_size", 0))
        scales = np.asarray(values_of(self.constants[scale]), np.float32)
        zeros = values_of(self.constants[zero[0]]) if zero and zero[0] in self.constants else np.zeros(1, np.int32)
        zeros = zeros.astype(np.int32) if is_integer(zeros.dtype) else np.zeros(1, np.int32)
        scales, zeros = (_spread(numbers, codes, axis, block) for numbers in (scales, zeros))
        return StoredWeight(name, node.output[0], codes, scales, zeros)

    def _quantised(self, node: NodeProto) -> np.ndarray:
        """Return the integers that a QuantizeLinear computes from a constant, rounded half to even as in ONNX."""
        values = values_of(self.constants[node.input[0]]).astype(np.float32)
        axis, block = int(attribute(node, "axis", 1)), int(attribute(node, "block_size", 0))
        scales = np.asarray(values_of(self.constants[node.input[1]]), np.float32)
        zeros = (
            values_of(self.constants[node.input[2]]) if len(node.input) > 2 and node.input[2] else np.zeros(1, np.uint8)
        )
        if not is_integer(zeros.dtype):  # 8-bit floats
            return _rounded_to(values / _spread(scales, values, axis, block), zeros.dtype)
        low, high = limits(zeros.dtype)
        spread = _spread(np.asarray(zeros, np.int32), values, axis, block)
        codes = np.rint(values / _spread(scales, values, axis, block)) + spread
        result: np.ndarray = np.clip(codes, low, high).astype(np.int32)
        return result

    def _of_dynamic(self, node: NodeProto) -> StoredWeight | None:
        """Return the weight of an integer product that is scaled, after a Cast, by input scale times weight scale."""
        reads = list(node.input)
        sums = node.output[0]
        for kind in ("Cast", "Mul"):
            after = next((n for n in self.graph.consumers.get(sums, ()) if n.op_type == kind), None)
            if after is None:
                return None
            factors, sums = [name for name in after.input if name != sums], after.output[0]
        maker = self.graph.producer.get(factors[0]) if factors else None
        scale = next((name for name in (maker.input if maker is not None else ()) if name in self.constants), "")
        if not scale:
            return None
        codes = values_of(self.constants[reads[1]])
        zeros = np.zeros(1, np.int32)
        if len(reads) > 3 and reads[3] in self.constants:
            zeros = values_of(self.constants[reads[3]]).astype(np.int32)
        scales = np.asarray(values_of(self.constants[scale]), np.float32)
        axis = codes.ndim - 1 if node.op_type == "MatMulInteger" else 0
        return StoredWeight(reads[1], reads[1], codes, _spread(scales, codes, axis), _spread(zeros, codes, axis))

    def _of_blocks(self, node: NodeProto) -> StoredWeight | None:
        """Return the weight of a MatMulNBits as [K, N], as a MatMul reads it; None if not constant or with ``g_idx``.

        It is stored as N rows of blocks, lowest bits first, with a scale and a zero point per block. The default zero
        point is 2^(bits-1). ``g_idx`` reorders columns. Raises ModelError for sizes that do not fit.
        """
        codes, scale, zero, order = [*node.input[1:5], *[""] * 4][:4]
        if order or any(name and name not in self.constants for name in (codes, scale, zero)):
            return None
        inner, rows, bits, block = (int(attribute(node, name, 0)) for name in ("K", "N", "bits", "block_size"))
        if bits not in (2, 4, 8) or min(inner, rows, block) < 1:
            return None
        packed, scales = (values_of(self.constants[name]).reshape(-1) for name in (codes, scale))
        blocks = -(-inner // block)
        if packed.size * 8 != rows * blocks * block * bits or scales.size != rows * blocks:
            raise ModelError(
                f"the weight {codes} of {node.name or node.output[0]} does not have {inner} x {rows} values"
            )
        zeros = np.full((rows, blocks), 2 ** (bits - 1), np.float32)
        if zero:
            numbers = values_of(self.constants[zero]).reshape(rows, -1)
            unpacked = _unpacked(numbers, bits) if numbers.dtype == UINT8 else numbers
            zeros = unpacked[:, :blocks].astype(np.float32)
        scales, zeros = (np.repeat(n.reshape(rows, blocks), block, 1)[:, :inner].T for n in (scales, zeros))
        values = _unpacked(packed.reshape(rows, -1), bits)[:, :inner].T
        return StoredWeight(codes, codes, values, scales.astype(np.float32), zeros)

    def _bias(self, reads: list[str]) -> StoredWeight | None:
        """Return the bias of a QLinearConv: int32 with the scale input scale times weight scale."""
        if not all(reads[slot] in self.constants for slot in (1, 4)):
            return None
        scale = values_of(self.constants[reads[1]]).astype(np.float32) * values_of(self.constants[reads[4]])
        codes = values_of(self.constants[reads[8]])
        return StoredWeight(reads[8], reads[8], codes, _spread(scale, codes, 0), np.zeros(1, np.int32), reads[3])

    def group(self, name: str) -> Group | None:
        return self.groups.group_of.get(name)


def limits(dtype: np.dtype) -> tuple[int, int]:
    """Return the lowest and highest value of an integer type, including 4-bit types."""
    import ml_dtypes

    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def quants_of(model: Model) -> dict[str, Quant]:
    """Return ``QuantisedModel.quants``; {} for a float model, without reading its weights.

    For a model that only its own framework runs, return the quantisation that the file gives, inputs included.
    """
    graph = model.proto.graph
    if model.native is not None:
        constants = {tensor.name for tensor in graph.initializer}
        return {name: quant for name, quant in model.native.quants.items() if name not in constants}
    kinds: Iterable[str] = {node.op_type for node in graph.node}
    if not any(is_edge(kind) or kind in SCALE_SLOTS for kind in kinds):
        return {}
    return QuantisedModel(model.proto).quants


def dynamic_of(proto: ModelProto) -> dict[str, tuple[str, str]]:
    """Return codes whose scale is computed at run time -> names of scale and zero point."""
    return QuantisedGraph(nodes_of(proto)).dynamic


def graph_for_dump(model: Model) -> bytes:
    """Return the serialised model without weights but with tensor scales, as kept beside a dump.

    See ``dumps/graph_file.py``.
    """
    proto = without_values(model.proto)
    if quants := quants_of(model):
        proto.metadata_props.add(key=KEY, value=quants_text(quants))
    data: bytes = proto.SerializeToString()
    return data


def _unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    """Unpack bytes [rows, n] into integers of 2, 4 or 8 bits, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((rows[..., None] >> shifts) & ((1 << bits) - 1)).reshape(len(rows), -1)


def _rounded_to(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round float32 values to a small float type; values beyond its range become its largest (``saturate``)."""
    import ml_dtypes

    largest = float(ml_dtypes.finfo(dtype).max)
    result: np.ndarray = np.clip(values, -largest, largest).astype(dtype).astype(np.float32)
    return result


def _weight_slots(kind: str, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield the slots of an operand that may be a weight, its scale and its zero point, for an operator on codes."""
    if kind in ("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QGemm") and count > 5:
        yield 3, 4, 5
        if kind != "QLinearConv":
            yield 0, 1, 2


def _spread(numbers: np.ndarray, codes: np.ndarray, axis: int, block: int = 0) -> np.ndarray:
    """Reshape numbers per tensor, per channel or per block so that they broadcast to the codes."""
    if numbers.size == 1:
        return numbers.reshape(())
    if block:
        length = codes.shape[axis]
        return np.repeat(numbers, block, axis)[(slice(None),) * (axis % codes.ndim) + (slice(length),)]
    if numbers.ndim == 1 and codes.ndim:
        return numbers.reshape([-1 if index == axis % codes.ndim else 1 for index in range(codes.ndim)])
    return numbers
