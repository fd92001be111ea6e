"""The fixed model of a fixed.sim or an offline image, as the hardware's integers (``quantisation.integer``).

Plan, scales, weights, biases, multipliers and shifts are the SDK's own; nothing is calibrated or decided here. A tensor
without a place in working memory that is no input or output of the model lies inside a fused operator: the operators
around it are one operator of the dump.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from sgsdump.errors import FormatError, ModelError
from sgsdump.fixedpoint.quantisation.analysis import one_operator
from sgsdump.fixedpoint.quantisation.float_model import Picture
from sgsdump.fixedpoint.quantisation.integer import nv12
from sgsdump.fixedpoint.quantisation.integer.emitter import Requantisation, shift
from sgsdump.fixedpoint.quantisation.integer.walk import write_integers
from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan
from sgsdump.fixedpoint.quantisation.sim_operators import Given
from sgsdump.fixedpoint.quantisation.tensor_scales import INT8, INT16, SOFTMAX_QUANT, UINT8, int16_quant, uint8_quant
from sgsdump.fixedpoint.quantisation.type_rules import MOVERS, Operator
from sgsdump.fixedpoint.sim.builder import Builder
from sgsdump.fixedpoint.sim.file import INTEGER_KINDS, SimFile, SimOperator, SimTensor
from sgsdump.fixedpoint.sim.onnx_graph import build, dumped_operator, whole_numbers
from sgsdump.fixedpoint.sim.weights import Blocks, stored_bias, stored_weights
from sgsdump.models.fixed_facts import DumpedOperator, Origin
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.models.sim_facts import ShownConstant, SimFacts, write_facts
from sgsdump.sidecars.input_config import ModelInput
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
INNER = 16
# Positions of the shifts K and n - K among a convolution's options; for a depthwise convolution one further.
_K, _N_LESS_K = 35, 37
_PICTURES = {"RGB": "RGB", "BGR": "BGR", "RGBA": "RGBA", "YUV420": "YUV_NV12"}
_MOST_SHOWN = 1 << 12
_PLAIN_MATRIX = (1024, 0, 0, 0, 1024, 0, 0, 0, 1024, 256, 256, 256)


def fixed_model(sim: SimFile) -> Model:
    """Return the fixed model of a fixed.sim or an image.

    Raises ModelError for a file that is damaged, holds no integers, or has an unknown operator.
    """
    if sim.kind not in INTEGER_KINDS:
        raise ModelError(f"{sim.path} is a float model. For the fixed model, pass fixed.sim")
    _check_finite(sim)
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            return _fixed_model(sim)
    except FormatError as error:
        raise ModelError(f"{sim.path}: the .sim model {error}. Convert the model again") from None
    except ArithmeticError:
        raise ModelError(
            f"{sim.path}: the .sim model has scales or ranges too large or too small for a multiplier. "
            "Is the file damaged? Calibrate the model again"
        ) from None


def _fixed_model(sim: SimFile) -> Model:
    builder = Builder(sim)
    builder.reals = lambda operator, tensor: _reals(sim, operator, tensor)
    builder.filler = lambda operator: _of_byte_zero(sim.tensors[operator.outputs[0]])
    proto = build(builder)
    write_facts(SimFacts((), _shown(sim), {}), proto)
    graph = Graph(proto)
    groups = tuple(_groups(sim, builder.spans))
    tensors, ranges = _tensors(sim, builder.spans, graph), _ranges(sim, builder.spans, graph)
    operators = tuple(op for group in groups for op in _operators(graph, group, tensors))
    plan = QuantPlan(operators, tensors, dict(_weight_quants(sim, builder.spans, graph)), ranges)
    given = Given(dict(_numbers(sim, builder.spans, graph)), tuple(_dumped(sim, group) for group in groups))
    pictures = {each.entry.name: each for each in _picture_inputs(sim)}
    entries = (pictures[t.name].entry if t.name in pictures else _raw_input(t) for t in _inputs(sim))
    origin = Origin(tuple(entries), ranges)
    written = write_integers(
        graph, plan, ranges, {name: each.picture for name, each in pictures.items()}, frozenset(), origin, given
    )
    return Model(written.proto, sim.path)


def is_inner(tensor: SimTensor) -> bool:
    """Return whether a tensor lies inside a fused operator, and is in no dump."""
    return tensor.flags == INNER and tensor.memory == (0, 0) and not tensor.is_constant


@dataclass(frozen=True, eq=False)
class _Group:
    """Operators of the file that form one operator of the dump, with the positions of their nodes."""

    operators: tuple[SimOperator, ...]
    nodes: tuple[int, ...]


def groups_of(sim: SimFile) -> list[tuple[SimOperator, ...]]:
    """Return the groups of a fixed model's operators that form one operator of the dump, in dump order."""
    spans = [(operator, range(0)) for operator in sim.operators]
    return [group.operators for group in _groups(sim, spans)]


def _groups(sim: SimFile, spans: Sequence[tuple[SimOperator, range]]) -> Iterator[_Group]:
    """Yield the groups in the order of their last operators."""
    root = list(range(len(spans)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    makers = {tensor: index for index, (operator, _) in enumerate(spans) for tensor in operator.outputs}
    for index, (operator, _) in enumerate(spans):
        for tensor in operator.inputs:
            if tensor in makers and is_inner(sim.tensors[tensor]):
                root[find(index)] = find(makers[tensor])
    members: dict[int, list[int]] = {}
    for index in range(len(spans)):
        members.setdefault(find(index), []).append(index)
    for group in sorted(members.values(), key=lambda indices: indices[-1]):
        nodes = tuple(node for index in group for node in spans[index][1])
        yield _Group(tuple(spans[index][0] for index in group), nodes)


def _operators(graph: Graph, group: _Group, stored: Container[str]) -> Iterator[Operator]:
    """Yield one operator for the computing nodes, and one for each stored moving node before and after them."""
    nodes = [graph.nodes[index] for index in group.nodes]
    apart = [node.op_type in MOVERS and all(name in stored for name in node.output) for node in nodes]
    computing = [index for index, alone in enumerate(apart) if not alone]
    first, last = (computing[0], computing[-1] + 1) if computing else (len(nodes), len(nodes))
    for node in nodes[:first]:
        yield one_operator(graph, [node])
    if computing:
        yield one_operator(graph, nodes[first:last])
        for node in nodes[last:]:
            yield one_operator(graph, [node])


def _check_finite(sim: SimFile) -> None:
    """Raise ModelError for a range or scale with NaN or Inf, because no integers follow from it."""
    for tensor in sim.tensors:
        quant = tensor.quant
        if quant is not None and not all(np.isfinite(each).all() for each in (quant.low, quant.high, quant.scale)):
            raise ModelError(
                f"{sim.path}: the .sim model has a range or scale of tensor {tensor.name!r} that is not finite. "
                "Calibrate the model again"
            )


def _quant(tensor: SimTensor) -> Quant:
    """Return a tensor's quant; with a scale in double precision from the range if it matches the file's float32."""
    quant = tensor.quant
    if quant is None or quant.scale.size != 1 or not quant.scale[0] > 0 or tensor.dtype not in (UINT8, INT16):
        raise FormatError(f"has no scale for the tensor {tensor.name!r}")
    stored = Quant(tensor.dtype, float(quant.scale[0]), quant.zero_point, exact=True)
    if not quant.low.size or not quant.high.size:
        return stored
    of_range = int16_quant if tensor.dtype == INT16 else uint8_quant
    found = of_range(float(quant.low[0]), float(quant.high[0]))
    same = np.float32(found.scale) == quant.scale[0] and found.zero_point == quant.zero_point
    return found if same else stored


def _tensors(sim: SimFile, spans: Sequence[tuple[SimOperator, range]], graph: Graph) -> dict[str, Quant]:
    """Return the quant of every stored tensor.

    The output of a Softmax has steps of 1/32768. The scale in the file is the one that its readers use.
    """
    quants = {tensor.name: _quant(tensor) for tensor in _inputs(sim)}
    for operator, _ in spans:
        quants |= {sim.tensors[index].name: _quant(sim.tensors[index]) for index in operator.outputs}
    softmaxes = {sim.tensors[operator.outputs[0]].name for operator, _ in spans if operator.kind == "SOFTMAX"}
    quants |= dict.fromkeys(softmaxes, SOFTMAX_QUANT)
    quants |= {name: quants[like] for name, like in _made_on_the_way(sim, spans, graph) if like in quants}
    inner = {tensor.name for tensor in sim.tensors if is_inner(tensor)}
    return {name: quant for name, quant in quants.items() if name not in inner}


def _ranges(sim: SimFile, spans: Sequence[tuple[SimOperator, range]], graph: Graph) -> dict[str, Range]:
    """Return the range of every tensor that has one.

    Intermediate tensors of a Softmax have none, because the range of its output is that of its readers.
    """
    ranges = {
        tensor.name: Range.of(float(tensor.quant.low.min()), float(tensor.quant.high.max()))
        for tensor in sim.tensors
        if tensor.quant is not None and tensor.quant.low.size and tensor.quant.high.size
    }
    others = [(operator, nodes) for operator, nodes in spans if operator.kind != "SOFTMAX"]
    return ranges | {name: ranges[like] for name, like in _made_on_the_way(sim, others, graph) if like in ranges}


def _made_on_the_way(
    sim: SimFile, spans: Sequence[tuple[SimOperator, range]], graph: Graph
) -> Iterator[tuple[str, str]]:
    """Yield the intermediate tensors of an operator, each with the tensor that it resembles.

    That is the operator's input as long as values only move, then its output.
    """
    for operator, nodes in spans:
        known = {sim.tensors[index].name for index in (*operator.inputs, *operator.outputs) if index >= 0}
        output = sim.tensors[operator.outputs[0]].name
        like = {name: name for name in known}
        for node in (graph.nodes[index] for index in nodes):
            moved = like.get(node.input[0], output) if node.op_type in MOVERS - {"Concat"} else output
            for name in filter(None, node.output):
                if name not in known:
                    like[name] = moved
                    yield name, moved


def _convolutions(
    sim: SimFile, spans: Sequence[tuple[SimOperator, range]], graph: Graph
) -> Iterator[tuple[SimOperator, NodeProto]]:
    for operator, nodes in spans:
        if operator.kind in CONVOLUTIONS:
            yield operator, graph.nodes[nodes[0]]


def _weight_quants(
    sim: SimFile, spans: Sequence[tuple[SimOperator, range]], graph: Graph
) -> Iterator[tuple[str, Quant]]:
    for operator, node in _convolutions(sim, spans, graph):
        weights = sim.tensors[operator.inputs[1]]
        scales = _scales(weights, _filters(operator, weights))
        quant = Quant(weights.dtype, float(scales[0]), 0, exact=True)
        yield node.output[0], quant if scales.size == 1 else replace(quant, scale=scales, axis=0)


def _scales(weights: SimTensor, filters: int) -> np.ndarray:
    scales = weights.quant.scale.astype(np.float64) if weights.quant is not None else np.zeros(0)
    if scales.size not in (1, filters) or not (scales > 0).all():
        raise FormatError(f"has {scales.size} scales for the {filters} filters of the weights {weights.name!r}")
    return scales


def _filters(operator: SimOperator, weights: SimTensor) -> int:
    if len(weights.shape) != 4 or weights.dtype not in (INT8, INT16):
        raise FormatError(
            f"has weights {weights.name!r} with unsupported dimensions ({len(weights.shape)}) or type ({weights.dtype})"
        )
    return weights.shape[3 if operator.kind == "DEPTHWISE_CONV_2D" else 0]


def _reals(sim: SimFile, operator: SimOperator, tensor: SimTensor) -> np.ndarray | None:
    """Return the real numbers from which the operator's rule makes a constant's stored integers.

    A factor is stored as a 15-bit multiplier, an addend in half steps of the output, a subtrahend as the negative of
    that, the slopes of a PRELU as multipliers. An operand of the tensor's own size has its own scale.
    """
    if operator.kind in CONVOLUTIONS:
        is_weights = tensor is sim.tensors[operator.inputs[1]]
        if is_weights:
            return _real_weights(sim, operator, tensor)
        return np.zeros(_filters(operator, sim.tensors[operator.inputs[1]]))
    integers = sim.values(tensor).astype(np.float64)
    if tensor.quant is None or not tensor.quant.low.size or tensor.dtype.kind != "i":
        return None
    output = sim.tensors[operator.outputs[0]]
    whole = tensor.size > 1 and tensor.size == output.size
    largest = max(abs(float(tensor.quant.low.min())), abs(float(tensor.quant.high.max())))
    if operator.kind in ("ADD", "SUB") and not whole:
        half_step = float(np.float32(_quant(output).scale)) / 2
        return integers * (half_step if operator.kind == "ADD" else -half_step)
    if operator.kind == "PRELU" or (operator.kind == "MUL" and not whole):
        source = next(sim.tensors[index] for index in operator.inputs if not sim.tensors[index].is_constant)
        single = np.float32(_quant(source).scale) / np.float32(_sixteen_bits(operator, output).scale)
        times = float(single * np.float32(largest)) if operator.kind == "MUL" else float(single) * largest
        return integers * 2.0 ** -shift(times or 1.0) / float(single)
    scale = tensor.quant.scale
    return integers * float(scale[0]) if scale.size == 1 else None


def _of_byte_zero(tensor: SimTensor) -> float:
    quant = _quant(tensor)
    return -quant.zero_point * float(quant.scale)


def _sixteen_bits(operator: SimOperator, output: SimTensor) -> Quant:
    """Return the quant that an operator's multipliers lead to: a UINT8 output of a PRELU is requantised from INT16."""
    quant = output.quant
    if operator.kind != "PRELU" or output.dtype == INT16 or quant is None or not quant.low.size:
        return _quant(output)
    return int16_quant(float(quant.low[0]), float(quant.high[0]))


def _real_weights(sim: SimFile, operator: SimOperator, weights: SimTensor) -> np.ndarray:
    """Return weights whose quotient by their scale is the stored integer."""
    depthwise = operator.kind == "DEPTHWISE_CONV_2D"
    blocks = Blocks.of_options(operator.options) if operator.options is not None and not depthwise else None
    integers = stored_weights(sim.stored(weights), weights.shape, weights.dtype, depthwise, blocks)
    scales = _scales(weights, _filters(operator, weights))
    shape = (1, 1, 1, -1) if depthwise else (-1, 1, 1, 1)
    return (integers * scales.reshape(shape)).astype(np.float32)


def _numbers(
    sim: SimFile, spans: Sequence[tuple[SimOperator, range]], graph: Graph
) -> Iterator[tuple[str, Requantisation]]:
    for operator, node in _convolutions(sim, spans, graph):
        if len(operator.inputs) < 3:
            raise FormatError(f"has a {operator.kind} without biases")
        filters = _filters(operator, sim.tensors[operator.inputs[1]])
        bias, mul = stored_bias(sim.stored(sim.tensors[operator.inputs[2]]), filters)
        later = 1 if operator.kind == "DEPTHWISE_CONV_2D" else 0
        k, n_less_k = (operator.whole(slot + later) for slot in (_K, _N_LESS_K))
        if abs(k) > 64 or abs(n_less_k) > 64:
            raise FormatError(f"has a {operator.kind} with impossible shifts of {k} and {n_less_k} bits")
        k_each, n_each = (np.full(filters, float(bits)) for bits in (k, n_less_k + k))
        yield node.output[0], Requantisation(bias, mul, k_each, n_each, np.zeros(filters))


def _inputs(sim: SimFile) -> list[SimTensor]:
    return [sim.tensors[index] for index in dict.fromkeys(sim.inputs)]


def _is_picture(tensor: SimTensor) -> bool:
    return tensor.dtype == UINT8 and tensor.format in _PICTURES


@dataclass(frozen=True)
class _PictureInput:
    """An image input, and how its bytes become steps: (byte - mean) / std is the real value."""

    entry: ModelInput
    picture: Picture


def _picture_inputs(sim: SimFile) -> Iterator[_PictureInput]:
    """Yield the image inputs.

    The matrix of an image has 1024 times the gains on its diagonal, followed by 256 plus the offsets, with the last
    channel in memory first. The matrix of a YUV image also converts to RGB.
    """
    tensors = _inputs(sim)
    matrices = iter(sim.matrices)
    for tensor, (given, training) in zip(tensors, sim.formats or ((tensor.format, "") for tensor in tensors)):
        if not _is_picture(tensor) or tensor.quant is None:
            continue
        quant = _quant(tensor)
        matrix = next(matrices, ())
        rows = np.array(matrix or _PLAIN_MATRIX, np.float64)
        ends = rows[9:][::-1] - 256
        rows = rows[:9].reshape(3, 3)[::-1]
        if given == "YUV420":
            gains, ends = _yuv_gains(rows), ends + (rows[:, 0] + rows[:, 1]) / 8
        else:
            numbers = np.diagonal(rows[:, ::-1])
            gains = np.stack([numbers - 0.5, numbers + 0.5]) / 1024
        if not (gains > 0).all():
            raise FormatError(
                f"normalises the input {tensor.name!r} with the gains {gains[0].tolist()}, but gains must be positive"
            )
        std = np.array([roundest(*ends_of) for ends_of in (1 / (gains[::-1] * float(quant.scale))).T])
        steps = std * float(quant.scale)
        middle = (quant.zero_point - ends) * steps
        mean = np.array([roundest(*ends_of) for ends_of in zip(middle - steps / 2, middle + steps / 2)])
        training = training if training in ("RGB", "BGR") else "BGR" if given == "BGR" else "RGB"
        by_colour = slice(None) if training == "RGB" else slice(None, None, -1)
        entry = ModelInput(
            tensor.name, training, _PICTURES[given or tensor.format], tuple(mean[by_colour]), tuple(std[by_colour])
        )
        channels = tensor.shape[3] if len(tensor.shape) == 4 else 3
        order = training if given == "YUV420" else ""
        yield _PictureInput(entry, Picture(tuple(mean[:channels]), tuple(std[:channels]), order))


def _yuv_gains(rows: np.ndarray) -> np.ndarray:
    """Return the lowest and the highest gain of each channel, [2, 3].

    A channel's row holds the plain numbers (``nv12.BACK``) times the gain, rounded.
    """
    gains = np.zeros((2, 3))
    for channel, row in enumerate(rows):
        plain = nv12.BACK[int(np.argmin([np.abs(row - each * row[2] / 1024).sum() for each in nv12.BACK]))]
        there = plain != 0
        sides = [(row[there] + side) / plain[there] for side in (-0.5, 0.5)]
        gains[:, channel] = np.minimum(*sides).max(), np.maximum(*sides).min()
    return gains


def roundest(low: float, high: float) -> float:
    """Return the number with the fewest decimals between two, nearest their middle.

    The middle if six are not enough.
    """
    middle = (low + high) / 2
    candidates = (round(middle, decimals) for decimals in range(7))
    return next((number for number in candidates if low < number < high), middle)


def _raw_input(tensor: SimTensor) -> ModelInput:
    return ModelInput(tensor.name, "RAWDATA_S16_NHWC", "RAWDATA_S16_NHWC", (), ())


def _dumped(sim: SimFile, group: _Group) -> DumpedOperator:
    """Return a fused operator with the inputs of its first part and the outputs of its last."""
    first, last = (dumped_operator(sim, operator) for operator in (group.operators[0], group.operators[-1]))
    return replace(first, out_type=last.out_type, outputs=last.outputs)


def _shown(sim: SimFile) -> Mapping[str, ShownConstant]:
    """Return the constants besides weights and biases; their integers are dumped as stored."""
    shown = {}
    for operator in sim.operators:
        for slot, index in enumerate(operator.inputs):
            tensor = sim.tensors[index]
            if index < 0 or not tensor.is_constant or (operator.kind in CONVOLUTIONS and slot in (1, 2)):
                continue
            if tensor.size <= _MOST_SHOWN:
                values = whole_numbers(sim, tensor)
                shown[tensor.name] = ShownConstant("", (), tensor.shape, values=values, dtype=str(tensor.dtype))
    return shown
