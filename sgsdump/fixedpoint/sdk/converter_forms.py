"""Conditions of the rows of ``converter_rows.py`` on a node: forms that SDK 1.1.5 refuses or changes.

A condition that cannot be evaluated, for instance because a shape is unknown, is False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.fixedpoint.sdk.semantics import slices_first_axis
from sgsdump.models.graph import BROUGHT_BACK, Graph, attribute, in_model_order

if TYPE_CHECKING:
    from onnx import NodeProto

IN_PLACE = ("Softmax", "Sigmoid", "Relu", "LeakyRelu", "PRelu", "Clip", "Abs", "Exp", "Add", "Sub", "Mul", "Max")


@dataclass(frozen=True)
class Operator:
    """A node with the queries that rows need."""

    graph: Graph
    node: NodeProto
    opset: int

    def attribute(self, name: str, default: object = None) -> object:
        return attribute(self.node, name, default)

    def ints(self, name: str) -> list[int] | None:
        value = attribute(self.node, name)
        return None if value is None else list(value)

    def text(self, name: str, default: str = "") -> str:
        value = attribute(self.node, name)
        return default if value is None else value.decode("utf-8", "replace")

    def has(self, index: int) -> bool:
        return index < len(self.node.input) and bool(self.node.input[index])

    def is_constant(self, index: int) -> bool:
        return self.has(index) and self.node.input[index] in self.graph.constants

    def constant(self, index: int) -> np.ndarray | None:
        return self.graph.value(self.node.input[index]) if self.is_constant(index) else None

    def shape(self, index: int) -> tuple[int | None, ...] | None:
        if not self.has(index):
            return None
        if self.is_constant(index):
            return tuple(self.graph.constants[self.node.input[index]].dims)
        return self.graph.shapes.get(self.node.input[index])

    def rank(self, index: int = 0) -> int:
        """Return the rank of an input; -1 if unknown."""
        shape = self.shape(index)
        return -1 if shape is None else len(shape)

    @property
    def is_output(self) -> bool:
        return any(name in self.graph.outputs for name in self.node.output)

    @property
    def reads_of(self) -> set[str]:
        """The types of the operators that read this operator's outputs."""
        return {reader.op_type for name in self.node.output for reader in self.graph.consumers.get(name, ())}


def not_0_to_6(operator: Operator) -> bool:
    low, high = _clip(operator)
    return low != 0 or high not in (6, None)


def not_from_0(operator: Operator) -> bool:
    return not_0_to_6(operator) and _clip(operator)[0] != 0


def _clip(operator: Operator) -> tuple[float | None, float | None]:
    if operator.opset < 11:
        low, high = (operator.attribute(name) for name in ("min", "max"))
        return (None if low is None else float(low), None if high is None else float(high))  # type: ignore[arg-type]
    ends = []
    for index in (1, 2):
        value = operator.constant(index)
        ends.append(None if value is None or not value.size else float(value.reshape(-1)[0]))
    return ends[0], ends[1]


def _constant_operand(operator: Operator) -> tuple[int, tuple[int | None, ...]] | None:
    """Return index and shape of the constant beside a variable of rank 4."""
    for index in (0, 1):
        other = 1 - index
        if operator.is_constant(index) and operator.has(other) and not operator.is_constant(other):
            return (index, operator.shape(index) or ()) if operator.rank(other) == 4 else None
    return None


def _size(shape: Sequence[int | None]) -> int:
    return int(np.prod([size or 1 for size in shape]))


def _is_per_channel(operator: Operator, shape: Sequence[int | None]) -> bool:
    sizes = [1] * (4 - len(shape)) + [size or 1 for size in shape]
    return sizes[0] == sizes[2] == sizes[3] == 1 < sizes[1]


def odd_broadcast(operator: Operator) -> bool:
    """Return whether a constant is neither a scalar, nor one number per channel, nor of the tensor's own four axes."""
    operand = _constant_operand(operator)
    if operand is None:
        return False
    index, shape = operand
    if _size(shape) == 1 or _is_per_channel(operator, shape):
        return False
    return tuple(shape) != operator.shape(1 - index)


def by_vector(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 1 and _size(operand[1]) > 1


def into_vector(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 0 and _size(operand[1]) > 1


def two_variables(operator: Operator) -> bool:
    return operator.has(1) and not (operator.is_constant(0) or operator.is_constant(1))


def _reduced_axes(operator: Operator) -> list[int] | None:
    """Return the axes from the attribute, or []."""
    return operator.ints("axes") or []


def axes_as_input(operator: Operator) -> bool:
    return operator.has(1)


def no_axes(operator: Operator) -> bool:
    return not operator.has(1) and not _reduced_axes(operator)


def odd_axes(operator: Operator) -> bool:
    axes = _reduced_axes(operator)
    return not operator.has(1) and len(axes or ()) > 1 and axes not in ([2, 3], [1, 2, 3])


def from_the_end(operator: Operator) -> bool:
    axes = _reduced_axes(operator)
    return not operator.has(1) and axes in ([-1], [-2]) and operator.rank() == 4


def of_five_axes(operator: Operator) -> bool:
    return max(operator.rank(index) for index in range(len(operator.node.input))) == 5


def of_fully_connected(operator: Operator) -> bool:
    makers = [operator.graph.producer.get(name) for name in operator.node.input]
    return any(maker is not None and maker.op_type in ("Gemm", "MatMul") for maker in makers)


def three_axes(operator: Operator) -> bool:
    return _reduced_axes(operator) == [1, 2, 3]


def over_two(operator: Operator) -> bool:
    return _reduced_axes(operator) == [2, 3]


def sliced_along_several(operator: Operator) -> bool:
    """Return whether a Slice cuts an axis after the first one that it lists.

    The simulator then writes the values that it does not cut behind the output. For a Slice of an input this was seen
    to succeed.
    """
    axes, before, after = operator.constant(3), operator.shape(0), operator.graph.shapes.get(operator.node.output[0])
    starts = operator.constant(1)
    if operator.opset < 10 or starts is None or starts.size < 2 or sliced_input(operator):
        return False
    if axes is None or before is None or after is None or len(before) != len(after):
        return True
    return any(before[int(axis)] is None or before[int(axis)] != after[int(axis)] for axis in axes.reshape(-1)[1:])


def sliced_input(operator: Operator) -> bool:
    return operator.node.input[0] in operator.graph.inputs and slices_first_axis(operator.graph, operator.node)


def sliced_in_model_order(operator: Operator) -> bool:
    """Return whether the SDK treats a Slice as one of N, H, W, C, as its reading convolution does."""
    readers = operator.graph.consumers.get(operator.node.output[0], ())
    brought_back = any(reader.output[0].endswith(BROUGHT_BACK) for reader in readers)
    return brought_back and operator.node.input[0] in in_model_order(operator.graph)


def counted_from_the_end(operator: Operator) -> bool:
    """Return whether a Slice without a step counts from the end, except from 0 to such an end.

    The SDK then takes as many values as precede that end.
    """
    return any(begin < 0 or (begin and end < 0) for begin, end in _without_step(operator))


def ends_from_the_end(operator: Operator) -> bool:
    """Return whether such a Slice of rows or columns has its values beyond the output."""
    axes = operator.constant(3)
    spatial = operator.rank() == 4 and axes is not None and axes.size == 1 and int(axes.reshape(-1)[0]) % 4 in (2, 3)
    return spatial and any(begin > 0 > end for begin, end in _without_step(operator))


def _without_step(operator: Operator) -> list[tuple[int, int]]:
    """Return begin and end along each axis of a Slice of opset 10 or newer; [] if it has a step."""
    begins, ends, steps = (operator.constant(index) for index in (1, 2, 4))
    if operator.opset < 10 or begins is None or ends is None or (steps is not None and bool((steps != 1).any())):
        return []
    return [(int(begin), int(end)) for begin, end in zip(begins.reshape(-1), ends.reshape(-1), strict=True)]


def backwards(operator: Operator) -> bool:
    steps = operator.constant(4)
    return steps is not None and bool((steps < 0).any())


def _scales(operator: Operator) -> tuple[float, float] | None:
    """Return the scales of H and W."""
    before, after = operator.shape(0), operator.graph.shapes.get(operator.node.output[0])
    if before is None or after is None or len(before) != 4 or len(after) != 4:
        return None
    if None in before[2:] or None in after[2:] or 0 in before[2:]:
        return None
    return after[2] / before[2], after[3] / before[3]  # type: ignore[operator]


def unequal(operator: Operator) -> bool:
    scales = _scales(operator)
    return scales is not None and scales[0] != scales[1]


def smaller(operator: Operator) -> bool:
    scales = _scales(operator)
    return scales is not None and scales[0] == scales[1] < 1


def fraction(operator: Operator) -> bool:
    scales = _scales(operator)
    nearest = operator.text("mode", "nearest") == "nearest"
    return nearest and scales is not None and scales[0] == scales[1] > 1 and scales[0] % 1 != 0


def half_pixel(operator: Operator) -> bool:
    if _scales(operator) == (1, 1):
        return False
    kept = ("align_corners", "asymmetric")
    mode = operator.text("coordinate_transformation_mode", "half_pixel")
    return operator.opset >= 11 and operator.text("mode", "nearest") == "linear" and mode not in kept


def _is_turned(graph: Graph, name: str) -> bool:
    """Return whether a tensor comes from a Transpose to N, H, W, C with unequal axes.

    The SDK has no operator for that Transpose, and transposes the shape of the next operator once more.
    """
    node, shape = graph.producer.get(name), graph.shapes.get(name, ())
    return (
        node is not None
        and node.op_type == "Transpose"
        and list(attribute(node, "perm", ())) == [0, 2, 3, 1]
        and len(set(shape[1:])) > 1
    )


def of_turned(operator: Operator) -> bool:
    return any(_is_turned(operator.graph, name) for name in operator.node.input)


def turned_back(operator: Operator) -> bool:
    """Return whether a Transpose leads from N, H, W, C back to N, C, H, W after operators in between."""
    node = operator.graph.producer.get(operator.node.input[0])
    if operator.ints("perm") != [0, 3, 1, 2] or node is None or node.op_type == "Transpose":
        return False
    while node is not None and node.op_type in IN_PLACE:
        if any(_is_turned(operator.graph, name) for name in node.input):
            return True
        node = operator.graph.producer.get(node.input[0])
    return False


def not_repeated(operator: Operator) -> bool:
    """Return whether a nearest Resize does something other than repeat each pixel.

    At whole scales, the half-pixel modes repeat pixels, after rounding. At other scales and in the modes below they do
    not.
    """
    if operator.opset < 11 or operator.text("mode", "nearest") != "nearest":
        return False
    where = operator.text("coordinate_transformation_mode", "half_pixel")
    rounding = operator.text("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return rounding != "floor"
    if where == "tf_half_pixel_for_nn":
        return False
    return where == "align_corners" or not rounding.startswith("round")


def auto_padded(operator: Operator) -> bool:
    return operator.text("auto_pad").startswith("SAME")


def padded_unevenly(operator: Operator) -> bool:
    """Return whether a Conv with SAME_UPPER has a stride or an even kernel, so that its padding is not symmetric."""
    kernel = operator.ints("kernel_shape") or (operator.shape(1) or ())[2:]
    steps = operator.ints("strides") or ()
    return auto_padded(operator) and (any(step != 1 for step in steps) or any(size and not size % 2 for size in kernel))


def of_transpose(operator: Operator) -> bool:
    """Return whether an operator of four dimensions reads a Transpose, possibly through copies or a Concat."""
    names = [operator.node.input[0]]
    for name in names:
        made = operator.graph.producer.get(name)
        if made is not None and made.op_type == "Transpose":
            return operator.rank() == 4
        if made is not None and made.op_type in ("Identity", "Dropout", "Concat"):
            names.extend(made.input[:1] if made.op_type == "Dropout" else made.input)
    return False


def padded_on_one_side(operator: Operator) -> bool:
    pads = operator.ints("pads") or []
    return pads[: len(pads) // 2] != pads[len(pads) // 2 :]


def padded_by_neither(operator: Operator) -> bool:
    return operator.text("auto_pad") == "NOTSET" and operator.ints("pads") is None


def grouped(operator: Operator) -> bool:
    group, weights = attribute(operator.node, "group", 1), operator.shape(1)
    return group > 1 and weights is not None and not (weights[0] == group and weights[1] == 1)


def dilated(operator: Operator) -> bool:
    return any(size != 1 for size in operator.ints("dilations") or ())


def factors(operator: Operator) -> bool:
    return any(attribute(operator.node, name, 1.0) != 1.0 for name in ("alpha", "beta"))


def one_bias(operator: Operator) -> bool:
    bias, weights = operator.shape(2), operator.shape(1)
    return bias is not None and weights is not None and _size(bias) == 1 < min(size or 1 for size in weights)


def padding(operator: Operator) -> bool:
    return operator.opset >= 11 and operator.text("mode", "constant") == "constant"


def padding_read(operator: Operator) -> bool:
    return operator.opset < 11 and read_by_convolution(operator)


def padded_otherwise(operator: Operator) -> bool:
    return operator.text("mode", "constant") != "constant"


def padded_with(operator: Operator) -> bool:
    return operator.opset < 11 and attribute(operator.node, "value", 0.0) != 0 and not padded_otherwise(operator)


def to_nhwc_output(operator: Operator) -> bool:
    return operator.ints("perm") == [0, 2, 3, 1] and operator.is_output


def read_by_convolution(operator: Operator) -> bool:
    return bool(operator.reads_of & {"Conv", "ConvTranspose", "Gemm", "MatMul"})


def is_wide_slope(operator: Operator) -> bool:
    shape = operator.shape(1)
    return operator.is_constant(1) and shape is not None and sum((size or 1) > 1 for size in shape) > 1


def other_softmax(operator: Operator) -> bool:
    """Return whether a Softmax is not along the SDK's innermost axis: channels of four dimensions, else the last."""
    rank = operator.rank()
    if rank < 2:
        return False
    axis = attribute(operator.node, "axis", -1 if operator.opset >= 13 else 1)
    axis += rank if axis < 0 else 0
    shape = operator.shape(0) or ()
    maker = operator.graph.producer.get(operator.node.input[0])
    moved = maker is not None and maker.op_type == "Transpose"
    innermost = 1 if rank == 4 and not moved else rank - 1
    if operator.opset >= 13:
        return axis != innermost
    over = {index for index in range(axis, rank) if shape[index] != 1}
    return not over <= {innermost}


def dilated_pool(operator: Operator) -> bool:
    return any(size != 1 for size in operator.ints("dilations") or ())


def per_channel_off(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 1 and _is_per_channel(operator, operand[1])


def scalar_first(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 0 and _size(operand[1]) == 1


# By the probe of its row, the condition on a node or on the message of a Caffe layer.
ASKED: dict[str, Callable[[Any], bool]] = {
    "ox_clip": lambda operator: not_0_to_6(operator) and not not_from_0(operator),
    "ox_sum3": lambda operator: len(operator.node.input) != 2,
    "q3_max": lambda operator: len(operator.node.input) != 2,
    "q2_prelu": lambda operator: operator.has(1) and not operator.is_constant(1),
    "qm_matmul_left": lambda operator: operator.is_constant(0) and not operator.is_constant(1),
    "qm_matmul3": lambda operator: operator.is_constant(1) and operator.rank() > 2,
    "qm_gemm_nobias": lambda operator: not operator.has(2),
    "ox_conv1d": lambda operator: operator.rank() == 3,
    "x_conv3d": lambda operator: operator.rank() == 5,
    "re_maxpool3d": lambda operator: operator.rank() in (3, 5),
    "au_lower": lambda operator: operator.text("auto_pad") == "SAME_LOWER",
    "aw_nostride": lambda operator: auto_padded(operator) and operator.ints("strides") is None,
    "aw_dil2": lambda operator: auto_padded(operator) and dilated(operator),
    "pt_mean": lambda operator: of_transpose(operator) and over_two(operator),
    "qv_dyn": lambda operator: operator.has(1) and not operator.is_constant(1),
    "ox_convt_op": lambda operator: operator.ints("output_padding") is not None,
    "qs9_c": lambda operator: operator.opset < 10,
    "ng_w1": lambda operator: ends_from_the_end(operator) and operator.node.input[0] not in operator.graph.inputs,
    "rz_cubic_asymmetric_2": lambda operator: operator.text("mode") == "cubic",
    "rz_linear_asym_noroi13": lambda operator: operator.opset >= 11 and not operator.has(1),
    "rz_upsample8": lambda operator: operator.opset < 9,
    "q_identity": lambda operator: operator.is_output,
    "d5_addc": lambda operator: of_five_axes(operator) and not two_variables(operator),
    "ql_averagepool_3": lambda operator: (
        bool(attribute(operator.node, "count_include_pad", 0)) and any(operator.ints("pads") or ())
    ),
    "v_clip_0_1": lambda layer: layer.clip_param.min == 0 and layer.clip_param.max != 6,
    "v_clip_m1_1": lambda layer: layer.clip_param.min != 0,
    "v_power_0p5_1_1": lambda layer: layer.power_param.power not in (1, 2, 3),
    "v_elt_max_three": lambda layer: len(layer.bottom) > 2 and layer.eltwise_param.operation != 1,
    "v_argmax_top2": lambda layer: layer.argmax_param.top_k > 1,
    "v_argmax_val": lambda layer: layer.argmax_param.out_max_val,
    "v_deconv_g2": lambda layer: 1 < layer.convolution_param.group < layer.convolution_param.num_output,
    "v_ip_axis2": lambda layer: layer.inner_product_param.axis not in (1, -3),
    "reorg5": lambda layer: layer.reorg_param.stride != 2,
    "nhwc3": lambda layer: list(layer.permute_param.order) == [0, 2, 3, 1],
    "v_softmax_2": lambda layer: layer.softmax_param.axis not in (1, -3),
    "v_elt_sum_coeff2": lambda layer: any(abs(factor) != 1 for factor in layer.eltwise_param.coeff),
}
