"""What SDK 1.1.5 does with a model that it should take as it is: what it refuses, and what it computes otherwise.

Two tables of facts, ``REFUSED`` and ``CHANGED``. Each row was seen: a small network with this form went through the
SDK's own converter, calibrator and simulators, which ended with these words (``said``) or put out another function;
``probe`` names the network. A row whose ``applies`` cannot tell (a shape that is not known) does not apply. The tables
in docs/sdk_converter.md are those of this file.

Stages: ``convert`` (its converter ends), ``calibrate`` (its calibrator ends), ``simulate`` (its simulator crashes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import listed
from sgsdump.models.graph import MAIN_DOMAINS, Graph, attribute, opset_of
from sgsdump.models.passes.converted import SUMMED

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SDK = "SDK 1.1.5"
STAGES = {
    "convert": "its converter ends with",
    "calibrate": "its calibrator ends with",
    "simulate": "its simulator ends with",
}
# The longest name that passes; one character more ends the calibrator.
LONGEST_NAME = 246
_NO_TYPE = "Mace does not support onnx op type {} yet"
_NO_CAFFE_TYPE = "Mace does not support caffe op type {} yet"
_NO_STATISTICS = "Run Statistics MinMax failed!"
_CRASH = "a crash (signal 11)"


@dataclass(frozen=True)
class Operator:
    """A node with what a row asks of it."""

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
        """-1 where it is not known."""
        shape = self.shape(index)
        return -1 if shape is None else len(shape)

    @property
    def is_output(self) -> bool:
        return any(name in self.graph.outputs for name in self.node.output)

    @property
    def reads_of(self) -> set[str]:
        """The types of the operators that read what this one makes."""
        return {reader.op_type for name in self.node.output for reader in self.graph.consumers.get(name, ())}


@dataclass(frozen=True)
class Refusal:
    """A form that the SDK refuses. ``form`` follows the operator's name; "" where every form of it is refused."""

    types: tuple[str, ...]
    form: str
    stage: str
    said: str
    probe: str
    applies: Callable[[Operator], bool] = field(default=lambda operator: True, compare=False)

    def words(self, op_type: str) -> str:
        return self.said.format(op_type)


@dataclass(frozen=True)
class Change:
    """A form of which the SDK computes another function; ours computes ONNX's."""

    types: tuple[str, ...]
    form: str
    becomes: str
    probe: str
    applies: Callable[[Operator], bool] = field(default=lambda operator: True, compare=False)


@dataclass(frozen=True)
class Refused:
    """The layers of a model that one row refuses; ``above_l1``: at level L1 it does not."""

    what: str
    layers: tuple[str, ...]
    stage: str
    said: str
    probe: str
    above_l1: bool = False

    def __str__(self) -> str:
        seen = f" (seen on {self.probe})" if self.probe else ""
        return f"{SDK} refuses {self.what} ({_named(self.layers)}): {STAGES[self.stage]} {self.said!r}{seen}"


@dataclass(frozen=True)
class Changed:
    """The layers of a model that one row of ``CHANGED`` is of."""

    what: str
    layers: tuple[str, ...]
    becomes: str
    probe: str

    def __str__(self) -> str:
        return (
            f"{SDK} makes of {self.what} ({_named(self.layers)}) {self.becomes}; this fixed model keeps to ONNX, so a "
            f"float dump of the SDK differs from the model there (docs/debug_a_layer.md)"
        )


@dataclass(frozen=True)
class ConverterFacts:
    """What the SDK refuses of a model, and what it changes; ``lone_channels``: inputs that ``ONE_CHANNEL`` is of."""

    refused: tuple[Refused, ...] = ()
    changed: tuple[Changed, ...] = ()
    lone_channels: tuple[str, ...] = ()


# --- forms -----------------------------------------------------------------------------------------------------------


def _not_0_to_6(operator: Operator) -> bool:
    low, high = _clip(operator)
    return low != 0 or high not in (6, None)


def _not_from_0(operator: Operator) -> bool:
    return _not_0_to_6(operator) and _clip(operator)[0] != 0


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
    """Index and shape of the constant beside a variable of rank 4."""
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


def _odd_broadcast(operator: Operator) -> bool:
    """A constant that is no scalar, not one number a channel, and not of the tensor's own four axes."""
    operand = _constant_operand(operator)
    if operand is None:
        return False
    index, shape = operand
    if _size(shape) == 1 or _is_per_channel(operator, shape):
        return False
    return tuple(shape) != operator.shape(1 - index)


def _by_vector(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 1 and _size(operand[1]) > 1


def _into_vector(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 0 and _size(operand[1]) > 1


def _two_variables(operator: Operator) -> bool:
    return operator.has(1) and not (operator.is_constant(0) or operator.is_constant(1))


def _reduced_axes(operator: Operator) -> list[int] | None:
    """Those of an attribute; [] where there is none."""
    return operator.ints("axes") or []


def _axes_as_input(operator: Operator) -> bool:
    return operator.has(1)


def _no_axes(operator: Operator) -> bool:
    return not operator.has(1) and not _reduced_axes(operator)


def _odd_axes(operator: Operator) -> bool:
    axes = _reduced_axes(operator)
    return not operator.has(1) and len(axes or ()) > 1 and axes not in ([2, 3], [1, 2, 3])


def _from_the_end(operator: Operator) -> bool:
    axes = _reduced_axes(operator)
    return not operator.has(1) and axes in ([-1], [-2]) and operator.rank() == 4


def _of_five_axes(operator: Operator) -> bool:
    return max(operator.rank(index) for index in range(len(operator.node.input))) == 5


def _of_fully_connected(operator: Operator) -> bool:
    makers = [operator.graph.producer.get(name) for name in operator.node.input]
    return any(maker is not None and maker.op_type in ("Gemm", "MatMul") for maker in makers)


def _three_axes(operator: Operator) -> bool:
    return _reduced_axes(operator) == [1, 2, 3]


def _over_two(operator: Operator) -> bool:
    return _reduced_axes(operator) == [2, 3]


def _several_axes(operator: Operator) -> bool:
    starts = operator.constant(1)
    return operator.opset >= 10 and starts is not None and starts.size > 1


def _backwards(operator: Operator) -> bool:
    steps = operator.constant(4)
    return steps is not None and bool((steps < 0).any())


def _scales(operator: Operator) -> tuple[float, float] | None:
    """Of H and W."""
    before, after = operator.shape(0), operator.graph.shapes.get(operator.node.output[0])
    if before is None or after is None or len(before) != 4 or len(after) != 4:
        return None
    if None in before[2:] or None in after[2:] or 0 in before[2:]:
        return None
    return after[2] / before[2], after[3] / before[3]  # type: ignore[operator]


def _unequal(operator: Operator) -> bool:
    scales = _scales(operator)
    return scales is not None and scales[0] != scales[1]


def _smaller(operator: Operator) -> bool:
    scales = _scales(operator)
    return scales is not None and scales[0] == scales[1] < 1


def _fraction(operator: Operator) -> bool:
    scales = _scales(operator)
    nearest = operator.text("mode", "nearest") == "nearest"
    return nearest and scales is not None and scales[0] == scales[1] > 1 and scales[0] % 1 != 0


def _half_pixel(operator: Operator) -> bool:
    if _scales(operator) == (1, 1):
        return False
    kept = ("align_corners", "asymmetric")
    mode = operator.text("coordinate_transformation_mode", "half_pixel")
    return operator.opset >= 11 and operator.text("mode", "nearest") == "linear" and mode not in kept


def _is_turned(graph: Graph, name: str) -> bool:
    """Whether a Transpose to N, H, W, C puts a tensor out, of which not all axes are equal: the SDK has no operator for
    it, and turns the shape of what comes next once more."""
    node, shape = graph.producer.get(name), graph.shapes.get(name, ())
    return (
        node is not None
        and node.op_type == "Transpose"
        and list(attribute(node, "perm", ())) == [0, 2, 3, 1]
        and len(set(shape[1:])) > 1
    )


def _of_turned(operator: Operator) -> bool:
    return any(_is_turned(operator.graph, name) for name in operator.node.input)


def _turned_back(operator: Operator) -> bool:
    """A Transpose back from N, H, W, C to N, C, H, W after what was computed there."""
    node = operator.graph.producer.get(operator.node.input[0])
    if operator.ints("perm") != [0, 3, 1, 2] or node is None or node.op_type == "Transpose":
        return False
    while node is not None and node.op_type in _IN_PLACE:
        if any(_is_turned(operator.graph, name) for name in node.input):
            return True
        node = operator.graph.producer.get(node.input[0])
    return False


def _not_repeated(operator: Operator) -> bool:
    """A nearest Resize other than one that repeats each pixel. At whole scales the half-pixel modes do that, rounded;
    at other scales and the modes below they do not."""
    if operator.opset < 11 or operator.text("mode", "nearest") != "nearest":
        return False
    where = operator.text("coordinate_transformation_mode", "half_pixel")
    rounding = operator.text("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return rounding != "floor"
    if where == "tf_half_pixel_for_nn":
        return False
    return where == "align_corners" or not rounding.startswith("round")


def _auto_padded(operator: Operator) -> bool:
    return operator.text("auto_pad").startswith("SAME")


def _padded_on_one_side(operator: Operator) -> bool:
    pads = operator.ints("pads") or []
    return pads[: len(pads) // 2] != pads[len(pads) // 2 :]


def _padded_by_neither(operator: Operator) -> bool:
    return operator.text("auto_pad") == "NOTSET" and operator.ints("pads") is None


def _grouped(operator: Operator) -> bool:
    group, weights = attribute(operator.node, "group", 1), operator.shape(1)
    return group > 1 and weights is not None and not (weights[0] == group and weights[1] == 1)


def _dilated(operator: Operator) -> bool:
    return any(size != 1 for size in operator.ints("dilations") or ())


def _factors(operator: Operator) -> bool:
    return any(attribute(operator.node, name, 1.0) != 1.0 for name in ("alpha", "beta"))


def _one_bias(operator: Operator) -> bool:
    bias, weights = operator.shape(2), operator.shape(1)
    return bias is not None and weights is not None and _size(bias) == 1 < min(size or 1 for size in weights)


def _padding(operator: Operator) -> bool:
    return operator.opset >= 11 and operator.text("mode", "constant") == "constant"


def _padding_read(operator: Operator) -> bool:
    return operator.opset < 11 and _read_by_convolution(operator)


def _padded_otherwise(operator: Operator) -> bool:
    return operator.text("mode", "constant") != "constant"


def _padded_with(operator: Operator) -> bool:
    return operator.opset < 11 and attribute(operator.node, "value", 0.0) != 0 and not _padded_otherwise(operator)


def _to_nhwc_output(operator: Operator) -> bool:
    return operator.ints("perm") == [0, 2, 3, 1] and operator.is_output


def _read_by_convolution(operator: Operator) -> bool:
    return bool(operator.reads_of & {"Conv", "ConvTranspose", "Gemm", "MatMul"})


def _is_wide_slope(operator: Operator) -> bool:
    shape = operator.shape(1)
    return operator.is_constant(1) and shape is not None and sum((size or 1) > 1 for size in shape) > 1


def _other_softmax(operator: Operator) -> bool:
    """One that is not over what the SDK has as its innermost axis: the channels, of four dimensions; else the last."""
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


def _dilated_pool(operator: Operator) -> bool:
    return any(size != 1 for size in operator.ints("dilations") or ())


def _per_channel_off(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 1 and _is_per_channel(operator, operand[1])


def _scalar_first(operator: Operator) -> bool:
    operand = _constant_operand(operator)
    return operand is not None and operand[0] == 0 and _size(operand[1]) == 1


# --- the tables ------------------------------------------------------------------------------------------------------

_UNKNOWN_TYPES = (
    "Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh CumSum Det Einsum Elu Erf Floor GatherElements GatherND "
    "GlobalLpPool Greater GridSample GRU HardSigmoid HardSwish Hardmax InstanceNormalization LayerNormalization Less "
    "Log LpPool LRN MaxRoiPool Mean MeanVarianceNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare RNN RoiAlign ScatterElements ScatterND Selu Shrink Sign Sin Sinh Softplus Softsign Tan "
    "ThresholdedRelu TopK"
).split()
_KEY_ERRORS = {
    "Cast": "Cast",
    "Gather": "Gather",
    "LpNormalization": "LpNorm",
    "Min": "Eltwise",
    "Neg": "Eltwise",
    "Pow": "Eltwise",
    "Reciprocal": "Eltwise",
    "Round": "ReplaceIndex",
    "Sqrt": "Eltwise",
}
# The types that a probe shows as taken, in one form at least.
TAKEN = frozenset(
    "Abs Add ArgMax ArgMin AveragePool BatchNormalization Clip Concat Constant Conv ConvTranspose DepthToSpace Div "
    "Dropout Exp Flatten Gemm GlobalAveragePool GlobalMaxPool Identity LeakyRelu LogSoftmax MatMul Max MaxPool Mul "
    "PRelu Pad ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize Sigmoid Slice Softmax "
    "SpaceToDepth Split Squeeze Sub Sum Tile Transpose Unsqueeze Upsample".split()
)
NEWEST_OPSET = 18
_REDUCING = ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin", "ReduceProd")
_IN_PLACE = ("Softmax", "Sigmoid", "Relu", "LeakyRelu", "PRelu", "Clip", "Abs", "Exp", "Add", "Sub", "Mul", "Max")
_BROADCASTING = ("Add", "Sub", "Mul", "Max")

REFUSED: tuple[Refusal, ...] = (
    *(Refusal((name,), "", "convert", _NO_TYPE, f"q_{name.lower()}") for name in _UNKNOWN_TYPES),
    *(
        Refusal((name,), "", "convert", f"KeyError: '{word}'", f"q_{name.lower()}")
        for name, word in _KEY_ERRORS.items()
    ),
    Refusal(("LSTM",), "", "convert", "TypeError: array([0.], dtype=float32) has type numpy.ndarray", "ox_lstm"),
    Refusal(("Tanh",), "", "convert", _CRASH, "ox_tanh_out"),
    Refusal(("Expand",), "", "calibrate", _NO_STATISTICS, "qg_expand"),
    Refusal(("QuantizeLinear", "DequantizeLinear"), "", "convert", "Not supported tensor type: uint8", "ro_qdq"),
    Refusal(
        ("Clip",),
        "from 0 to other than 6",
        "convert",
        "Clip OP only support max value is 6.",
        "ox_clip",
        lambda operator: _not_0_to_6(operator) and not _not_from_0(operator),
    ),
    Refusal(("Clip",), "from other than 0", "convert", "KeyError: 'Eltwise'", "ox_clip_m11", _not_from_0),
    Refusal(
        ("Sum",),
        "of other than two tensors",
        "convert",
        _CRASH,
        "ox_sum3",
        lambda operator: len(operator.node.input) != 2,
    ),
    Refusal(
        ("Max",),
        "of other than two tensors",
        "convert",
        _CRASH,
        "q3_max",
        lambda operator: len(operator.node.input) != 2,
    ),
    Refusal(_BROADCASTING[:2], "a constant of this shape", "calibrate", _NO_STATISTICS, "rb_add_11h1", _odd_broadcast),
    Refusal(
        _BROADCASTING[2:],
        "a constant of this shape",
        "simulate",
        "Assertion `0' failed.",
        "rb_mul_11hw",
        _odd_broadcast,
    ),
    Refusal(("Div",), "by a constant of several numbers", "convert", "Aborted", "qc_div_c", _by_vector),
    Refusal(("Div",), "of a constant of several numbers", "calibrate", _NO_STATISTICS, "qr_div_c", _into_vector),
    Refusal(("Div",), "of two tensors", "calibrate", "Assertion `0' failed.", "ox_div_var", _two_variables),
    Refusal(
        ("PRelu",),
        "with a slope that is not constant",
        "calibrate",
        _NO_STATISTICS,
        "q2_prelu",
        lambda operator: operator.has(1) and not operator.is_constant(1),
    ),
    Refusal(
        ("PRelu",), "with a slope for each value", "simulate", "Assertion `0' failed.", "ra_prelu_full", _is_wide_slope
    ),
    Refusal(("Exp",), "that a convolution reads", "calibrate", "Aborted", "ox_exp", _read_by_convolution),
    Refusal(
        ("MatMul",), "of two tensors", "convert", "ValueError: cannot reshape array", "ox_matmul_dyn", _two_variables
    ),
    Refusal(
        ("MatMul",),
        "with the constant first",
        "convert",
        "ValueError: cannot reshape array",
        "qm_matmul_left",
        lambda operator: operator.is_constant(0) and not operator.is_constant(1),
    ),
    Refusal(
        ("MatMul",),
        "of other than two dimensions",
        "convert",
        "only support 2 dims MatMul",
        "qm_matmul3",
        lambda operator: operator.is_constant(1) and operator.rank() > 2,
    ),
    Refusal(
        ("Gemm",),
        "without a bias",
        "convert",
        "IndexError: list index (2) out of range",
        "qm_gemm_nobias",
        lambda operator: not operator.has(2),
    ),
    Refusal(
        ("Gemm",),
        "with alpha or beta",
        "convert",
        "AttributeError: 'OnnxConverter' object has no attribute 'get_tensor_len'",
        "qm_gemm_alpha",
        _factors,
    ),
    Refusal(("Gemm",), "with one bias for all outputs", "calibrate", _CRASH, "re_gemm_scalarbias", _one_bias),
    Refusal(
        ("Conv",), "over one dimension", "calibrate", _NO_STATISTICS, "ox_conv1d", lambda operator: operator.rank() == 3
    ),
    Refusal(("Conv",), "over three dimensions", "convert", _CRASH, "x_conv3d", lambda operator: operator.rank() == 5),
    Refusal(
        ("MaxPool", "AveragePool"),
        "over other than two dimensions",
        "convert",
        "AssertionError",
        "re_maxpool3d",
        lambda operator: operator.rank() in (3, 5),
    ),
    Refusal(("Conv",), "with auto_pad", "convert", "Does not support AutoPad type yet.", "qv_same_upper", _auto_padded),
    Refusal(
        ("Conv", "ConvTranspose", "MaxPool", "AveragePool"),
        "with auto_pad NOTSET and no pads",
        "convert",
        "Does not support AutoPad type yet.",
        "qv_notset",
        _padded_by_neither,
    ),
    Refusal(
        ("Conv",),
        "whose weights are not constant",
        "convert",
        "Mace does not support non-const filter convolution.",
        "qv_dyn",
        lambda operator: operator.has(1) and not operator.is_constant(1),
    ),
    Refusal(
        ("ConvTranspose",),
        "with output_padding",
        "convert",
        "not support convtranspose with output_padding yet.",
        "ox_convt_op",
        lambda operator: operator.ints("output_padding") is not None,
    ),
    Refusal(
        ("ConvTranspose",),
        "with dilations",
        "convert",
        "not support convtranspose with dilation != 1 yet.",
        "qt_dil",
        _dilated,
    ),
    Refusal(("ConvTranspose",), "in groups", "convert", "KeyError: ''", "ox_convt_g2", _grouped),
    Refusal(("ConvTranspose",), "with auto_pad", "calibrate", _NO_STATISTICS, "qt_same", _auto_padded),
    Refusal(
        ("ConvTranspose",),
        "with other pads before than after",
        "calibrate",
        _NO_STATISTICS,
        "qt_asym",
        _padded_on_one_side,
    ),
    Refusal(
        ("Slice",),
        "with its limits as attributes (opset 9)",
        "convert",
        "TypeError: [0] has type list",
        "qs9_c",
        lambda operator: operator.opset < 10,
    ),
    Refusal(("Slice",), "of several axes at once", "simulate", _CRASH, "ox_slice", _several_axes),
    Refusal(
        ("Pad",), "of this mode", "convert", "Pad only support `constant` mode!", "ox_pad_reflect", _padded_otherwise
    ),
    Refusal(("Pad",), "with a value", "convert", "Pad value only support padding 0!", "ox_pad_val", _padded_with),
    Refusal(("Pad",), "that a convolution reads", "calibrate", _NO_STATISTICS, "x_pad10_relu_conv", _padding_read),
    Refusal(("Pad",), "of opset 11 or newer", "calibrate", _NO_STATISTICS, "ox_pad", _padding),
    Refusal(
        ("Resize",),
        "of this mode",
        "convert",
        "Do not support cubic mode",
        "rz_cubic_asymmetric_2",
        lambda operator: operator.text("mode") == "cubic",
    ),
    Refusal(
        ("Resize",),
        "half_pixel",
        "convert",
        "Resize OP only support 'coordinate_transformation_mode' : align_corners and asymmetric",
        "ox_resize_b_half",
        _half_pixel,
    ),
    Refusal(
        ("Resize",),
        "without roi",
        "convert",
        "KeyError: ''",
        "rz_linear_asym_noroi13",
        lambda operator: operator.opset >= 11 and not operator.has(1),
    ),
    Refusal(
        ("Resize", "Upsample"),
        "of different scales for H and W",
        "convert",
        "Upsample OP only support same scale on H W",
        "ox_resize_n_sizes",
        _unequal,
    ),
    Refusal(
        ("Resize",),
        "to a smaller picture",
        "convert",
        "Resize OP only support UpSample case",
        "rz_linear_asymmetric_half",
        _smaller,
    ),
    Refusal(
        ("Resize",),
        "nearest, by a scale that is not whole",
        "simulate",
        "Drv_Bdma_MoveData: Assertion failed",
        "rz_nearest_asymmetric_1p5",
        _fraction,
    ),
    Refusal(
        ("Upsample",),
        "with scales as an attribute (opset 8)",
        "convert",
        "IndexError: list index (1) out of range",
        "rz_upsample8",
        lambda operator: operator.opset < 9,
    ),
    Refusal(
        _REDUCING,
        "with axes as an input",
        "convert",
        "IndexError: list index out of range",
        "q_reducesum13",
        _axes_as_input,
    ),
    Refusal(_REDUCING, "of all axes", "convert", "IndexError: list index (0) out of range", "re_reduce_all", _no_axes),
    Refusal(_REDUCING, "over these axes", "convert", "only support multi axes [2,3]", "re_reduce_neg", _odd_axes),
    Refusal(_REDUCING, "over an axis counted from the end", "simulate", _CRASH, "x_reducemean_m1", _from_the_end),
    Refusal(("ReduceMax", "ReduceSum"), "over C, H and W", "simulate", _CRASH, "q_reducemax_123_1", _three_axes),
    Refusal(
        ("Squeeze", "Unsqueeze"),
        "with axes as an input (opset 13)",
        "convert",
        "AssertionError",
        "q_squeeze13",
        _axes_as_input,
    ),
    Refusal(("Split",), "with its sizes as an input (opset 13)", "calibrate", "Aborted", "q_split13", _axes_as_input),
    Refusal(
        ("Identity",),
        "that is an output of the network",
        "convert",
        "KeyError",
        "q_identity",
        lambda operator: operator.is_output,
    ),
    Refusal(
        ("Transpose",),
        "to N, H, W, C that is an output of the network",
        "calibrate",
        "Fail to get 1 output tensors.",
        "q_transpose_0231",
        _to_nhwc_output,
    ),
    Refusal(
        ("Add", "Mul", "Div"),
        "of five dimensions, with a constant",
        "convert",
        "AssertionError",
        "d5_addc",
        lambda operator: _of_five_axes(operator) and not _two_variables(operator),
    ),
    Refusal(
        ("Relu", "LeakyRelu", "Clip", "Add", "Sub", "Mul"),
        "of five dimensions",
        "calibrate",
        _NO_STATISTICS,
        "d5_relu",
        _of_five_axes,
    ),
    Refusal(("Sigmoid",), "of five dimensions", "simulate", "Assertion failed", "d5_sig", _of_five_axes),
    Refusal(
        ("Concat",),
        "that reads a fully connected operator",
        "calibrate",
        _NO_STATISTICS,
        "fcr_24_16_rn",
        _of_fully_connected,
    ),
)

_CAFFE_TYPES = (
    "AbsVal BN BNLL BatchReindex Bias ELU Exp Filter HardSigmoid HardSwish Identity LRN Log MVN Mish Normalize ReLU6 "
    "Reduction SELU SPP Silence Softplus Sqrt Square Swish"
).split()
CAFFE_REFUSED: tuple[Refusal, ...] = (
    *(Refusal((name,), "", "convert", _NO_CAFFE_TYPE, f"v_{name.lower()}") for name in _CAFFE_TYPES),
    Refusal(("ShuffleChannel",), "", "convert", "KeyError: 'ChannelShuffle'", "cf_shuffle"),
    Refusal(("Interp",), "", "convert", "text_format.ParseError: no field interp_param", "v_interp"),
)


@dataclass(frozen=True)
class LayerRefusal:
    """A form of a Caffe layer that the SDK refuses; ``applies`` is told the layer's message. ``last``: only where no
    layer reads its top."""

    type: str
    form: str
    said: str
    probe: str
    applies: Callable[[Any], bool] = field(compare=False)
    stage: str = "convert"
    last: bool = False


CAFFE_FORMS: tuple[LayerRefusal, ...] = (
    LayerRefusal(
        "Clip",
        "from 0 to other than 6",
        "only support max is 6",
        "v_clip_0_1",
        lambda layer: layer.clip_param.min == 0 and layer.clip_param.max != 6,
    ),
    LayerRefusal(
        "Clip", "from other than 0", "only support min is 0", "v_clip_m1_1", lambda layer: layer.clip_param.min != 0
    ),
    LayerRefusal(
        "Power",
        "to this power",
        "power value not support yet.",
        "v_power_0p5_1_1",
        lambda layer: layer.power_param.power not in (1, 2, 3),
    ),
    LayerRefusal(
        "Eltwise",
        "PROD or MAX of more than two",
        _CRASH,
        "v_elt_max_three",
        lambda layer: len(layer.bottom) > 2 and layer.eltwise_param.operation != 1,
    ),
    LayerRefusal(
        "ArgMax", "with top_k", "only support top 1", "v_argmax_top2", lambda layer: layer.argmax_param.top_k > 1
    ),
    LayerRefusal(
        "ArgMax", "with out_max_val", "only output index", "v_argmax_val", lambda layer: layer.argmax_param.out_max_val
    ),
    LayerRefusal(
        "Deconvolution",
        "in groups",
        "Mace do not support group convolution yet",
        "v_deconv_g2",
        lambda layer: 1 < layer.convolution_param.group < layer.convolution_param.num_output,
    ),
    LayerRefusal(
        "InnerProduct",
        "along another axis",
        "ValueError: cannot reshape array",
        "v_ip_axis2",
        lambda layer: layer.inner_product_param.axis not in (1, -3),
    ),
    LayerRefusal(
        "Reorg",
        "of another stride than 2",
        "only support stride is 2",
        "reorg5",
        lambda layer: layer.reorg_param.stride != 2,
    ),
    LayerRefusal(
        "Permute",
        "to N, H, W, C that is an output of the network",
        _NO_STATISTICS,
        "nhwc3",
        lambda layer: list(layer.permute_param.order) == [0, 2, 3, 1],
        "calibrate",
        last=True,
    ),
)

CHANGED: tuple[Change, ...] = (
    Change(("ReduceMax", "ReduceSum", "ReduceMin", "ReduceProd"), "over H and W", "a mean", "ox_rmax_hw", _over_two),
    Change(("Softmax",), "over another axis", "a Softmax over the channels", "ox_softmax_w", _other_softmax),
    Change(("LogSoftmax",), "", "a Softmax over the channels, without the logarithm", "ox_lsoftmax"),
    Change(
        ("AveragePool",),
        "with count_include_pad",
        "one that counts no padding",
        "ql_averagepool_3",
        lambda operator: bool(attribute(operator.node, "count_include_pad", 0)) and any(operator.ints("pads") or ()),
    ),
    Change(("DepthToSpace",), "that a convolution reads", "another order of pixels", "ox_d2s", _read_by_convolution),
    Change(("MaxPool",), "with dilations", "one without", "ql_maxpool_6", _dilated_pool),
    Change(("Slice",), "backwards", "another selection", "qs_rev", _backwards),
    Change(("Sub",), "of a constant per channel", "the tensor itself", "ox_sub_const", _per_channel_off),
    Change(("Sub",), "from a constant number", "the tensor less the number", "qr_sub_s", _scalar_first),
    Change(("Div",), "of a constant number", "the tensor divided by the number", "qr_div_s", _scalar_first),
    Change(("ArgMin",), "", "an ArgMax", "ro_argmin"),
    Change(
        _IN_PLACE,
        "of what was turned to N, H, W, C",
        "one of rows of another length, in fixed models",
        "tt5",
        _of_turned,
    ),
    Change(("Transpose",), "back from N, H, W, C", "another order of axes", "sc13", _turned_back),
    Change(("Resize",), "of this mode", "one that repeats every pixel", "rz_nearest_align_corners_2", _not_repeated),
)


CAFFE_CHANGED: tuple[tuple[str, str, str, str, Callable[[Any], bool]], ...] = (
    (
        "Softmax",
        "over another axis",
        "a Softmax over the channels",
        "v_softmax_2",
        lambda layer: layer.softmax_param.axis not in (1, -3),
    ),
    (
        "Eltwise",
        "with coefficients",
        "a plain sum",
        "v_elt_sum_coeff2",
        lambda layer: any(abs(factor) != 1 for factor in layer.eltwise_param.coeff),
    ),
    (
        "Threshold",
        "",
        "one whose 1 is a single step of its input's scale, nearly 0",
        "cf_threshold",
        lambda layer: True,
    ),
)
# Training formats that its parser of input_config.ini ends with, and the probe of each.
REFUSED_FORMATS = {"GRAY": "ox_gray", "RAWDATA_F32_NHWC": "w_raw_f32"}
# Stage, words and probe of a picture of shape N, H, W, C.
CHANNELS_LAST = ("calibrate", "Segmentation fault", "nhwc_rgb")
# The same of a mean or std that several pictures share; of two pictures each needs its own.
ONE_FOR_ALL = ("convert", "sgs_ParserInOutConfigFile: Assertion `0' failed.", "tp_once")
# The same of a file with `mean = R:G:B`, as newer SDKs have it, and of one without any mean.
NO_COLOURS = ("convert", "sgs_ParserInOutConfigFile: Assertion `0' failed.", "cfg_mean1")
# Of ONNX, not of Caffe: what becomes of an input that is not a picture and has one channel, where a convolution reads
# it; and the probe. With (x, 0, 0) its ranges are those of ONNX, and the other two change nothing.
RAWDATA = "RAWDATA_S16_NHWC"
ONE_CHANNEL = (
    "an input of one channel that a convolution of ONNX reads",
    "one of three channels, of which the network is the first: it reads H x W x 3 values, so there the preprocess file "
    "has to give x, 0 and 0 for each x",
    "raw1_7x9",
)
# The same of a picture of one channel, of ONNX and Caffe.
GREY_PICTURE = (
    "a picture of one channel as RGB with GRAY",
    "one of three channels in its calibrator and float simulator, of which the network takes the first: the preprocess "
    "file has to give H x W x 3 values for norm=True, and H x W for norm=False",
    "gx_both",
)


def facts_of(proto: ModelProto) -> ConverterFacts:
    """What the SDK refuses and changes of an ONNX model whose constants are folded, at the opset it came with."""
    graph, opset = Graph(proto), opset_of(proto)
    operators = [Operator(graph, node, opset) for node in graph.nodes]
    refused: dict[tuple[str, Refusal], list[str]] = {}
    changed: dict[tuple[str, Change], list[str]] = {}
    for operator in operators:
        kind = operator.node.op_type
        of_mean = kind == "ReduceSum" and operator.node.output[0].endswith(SUMMED)
        if kind in ("Shape", "Size") or of_mean or graph.from_shapes.issuperset(filter(None, operator.node.output)):
            continue
        layer = operator.node.name or operator.node.output[0]
        row = _row_of(operator)
        if row is not None:
            refused.setdefault((kind, row), []).append(layer)
            continue
        for change in CHANGED:
            if kind in change.types and change.applies(operator):
                changed.setdefault((kind, change), []).append(layer)
    found = [_refused(kind, row, layers) for (kind, row), layers in refused.items()]
    return ConverterFacts(
        (*found, *_names(graph), *_newer_opset(opset)),
        tuple(
            Changed(_what(kind, row.form), tuple(layers), row.becomes, row.probe)
            for (kind, row), layers in changed.items()
        ),
        tuple(_lone_channels(graph)),
    )


def caffe_facts(layers: Iterable[tuple[str, str, Any]]) -> ConverterFacts:
    """What the SDK refuses and changes of a Caffe net: the name, the type and the message of each of its layers."""
    refused: dict[tuple[str, str, str, str, str], list[str]] = {}
    changed: dict[tuple[str, str, str], list[str]] = {}
    layers = list(layers)
    read = {bottom for _, _, message in layers for bottom in message.bottom}

    def fits(form: LayerRefusal, kind: str, message: Any) -> bool:
        return kind == form.type and form.applies(message) and not (form.last and read.intersection(message.top))

    for name, kind, message in layers:
        row = next((row for row in CAFFE_REFUSED if kind in row.types), None)
        form = next((form for form in CAFFE_FORMS if fits(form, kind, message)), None)
        if row is not None:
            refused.setdefault((kind, row.stage, row.words(kind), row.probe, ""), []).append(name)
        elif form is not None:
            refused.setdefault((kind, form.stage, form.said, form.probe, form.form), []).append(name)
        for type_, what, becomes, probe, applies in CAFFE_CHANGED:
            if kind == type_ and applies(message):
                changed.setdefault((_what(kind, what), becomes, probe), []).append(name)
    return ConverterFacts(
        tuple(
            Refused(_what(kind, form), tuple(names), stage, said, probe)
            for (kind, stage, said, probe, form), names in refused.items()
        ),
        tuple(Changed(what, tuple(names), becomes, probe) for (what, becomes, probe), names in changed.items()),
    )


def config_facts(
    formats: Iterable[tuple[str, str]],
    channels_last: Sequence[str] = (),
    one_for_all: Sequence[str] = (),
    means_by_colour: bool = True,
) -> tuple[Refused, ...]:
    """What the SDK refuses of the inputs of an input_config.ini: the name and the training format of each.

    channels_last    the pictures among them whose shape is N, H, W, C.
    one_for_all      the keys of means and std that have one value for several pictures.
    means_by_colour  whether pictures have mean_red, mean_green and mean_blue.
    """
    named: dict[str, list[str]] = {}
    for name, form in formats:
        named.setdefault(form, []).append(name)
    pictures = tuple(name for form, names in named.items() if not form.startswith("RAWDATA") for name in names)
    refused = [
        Refused(
            f"training_input_formats {form}",
            tuple(names),
            "convert",
            "sgs_ParserInOutConfigFile: Assertion `0' failed.",
            REFUSED_FORMATS[form],
        )
        for form, names in named.items()
        if form in REFUSED_FORMATS
    ]
    if channels_last:
        what = "a picture of shape N, H, W, C: export it as N, C, H, W (tf2onnx --inputs-as-nchw)"
        refused.append(Refused(what, tuple(channels_last), *CHANNELS_LAST))
    if one_for_all:
        what = "one value for several pictures: write one for each, with a comma between"
        refused.append(Refused(what, tuple(one_for_all), *ONE_FOR_ALL))
    if not means_by_colour:
        what = "an input_config.ini without mean_red, mean_green and mean_blue, for which newer ones have mean"
        refused.append(Refused(what, pictures, *NO_COLOURS))
    return tuple(refused)


def input_changes(
    facts: ConverterFacts, formats: Iterable[tuple[str, str]], grey: Sequence[str] = ()
) -> tuple[Changed, ...]:
    """What the SDK changes of a model's inputs: the name and the training format of each.

    grey  the pictures of one channel that are RGB with GRAY.
    """
    named = tuple(name for name, form in formats if form == RAWDATA and name in facts.lone_channels)
    what, becomes, probe = ONE_CHANNEL
    changed = [Changed(f"{what} as {RAWDATA}", named, becomes, probe)] if named else []
    if grey:
        changed.append(Changed(GREY_PICTURE[0], tuple(grey), *GREY_PICTURE[1:]))
    return tuple(changed)


def _lone_channels(graph: Graph) -> Iterator[str]:
    for name in graph.inputs:
        shape = graph.shapes.get(name) or ()
        convolved = any(node.op_type == "Conv" for node in graph.consumers.get(name, ()))
        if len(shape) == 4 and shape[1] == 1 and convolved:
            yield name


def _row_of(operator: Operator) -> Refusal | None:
    kind = operator.node.op_type
    if operator.node.domain in MAIN_DOMAINS:
        row = next((row for row in REFUSED if kind in row.types and row.applies(operator)), None)
        if row is not None or kind in TAKEN:
            return row
    return Refusal((kind,), "", "convert", _NO_TYPE, "")


def _newer_opset(opset: int) -> Iterator[Refused]:
    if opset > NEWEST_OPSET:
        yield Refused(
            "a model of this opset", (f"opset {opset}",), "convert", "onnxruntime: not supported", "y_relu_o19"
        )


def _refused(kind: str, row: Refusal, layers: Sequence[str]) -> Refused:
    return Refused(_what(kind, row.form), tuple(layers), row.stage, row.words(kind), row.probe)


def _what(kind: str, form: str) -> str:
    return f"{kind} {form}" if form else kind


def _names(graph: Graph) -> Iterator[Refused]:
    """What is wrong with the names of tensors, which the SDK keeps in its files of ranges and statistics."""
    names = [name for node in graph.nodes for name in node.output]
    long = tuple(name[:20] + "…" for name in names if len(name) > LONGEST_NAME)
    if long:
        yield Refused(f"names of more than {LONGEST_NAME} characters", long, "calibrate", "Aborted", "rn_247")
    parted = tuple(name for name in names if ";" in name)
    if parted:
        what = "names with a semicolon, above level L1"
        yield Refused(what, parted, "calibrate", "get_tensor_statistics_dict AssertionError", "resnet_semi", True)


def _named(layers: Sequence[str]) -> str:
    return listed(layers, 3)
