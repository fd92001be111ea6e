"""ONNX nodes for the operators of a .sim file: one function per operator type, in ``BUILDERS``.

Shapes are computed from the inputs, because the declared shapes of some operators are wrong (a Softmax after a
Transpose, a PAD, fully connected outputs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from sgsdump.errors import FormatError
from sgsdump.fixedpoint.sim.builder import (
    AXIS,
    MADE,
    TO_NCHW,
    Builder,
    along,
    cut,
    padded,
    reshaped,
    transposed,
)
from sgsdump.fixedpoint.sim.file import SimOperator


def convolution(b: Builder, operator: SimOperator) -> None:
    """Write CONV_2D or DEPTHWISE_CONV_2D: weights O, H, W, I or 1, H, W, C; only row 0 of a bias [2, C] counts."""
    source, weights, *rest = b.inputs(operator, 2)
    depthwise = operator.kind == "DEPTHWISE_CONV_2D"
    shift = 1 if depthwise else 0
    n, height, width, channels = b.picture(source, operator)
    values = b.real(operator, weights)
    if values.ndim != 4:
        raise FormatError(f"has weights {weights.name!r} of {values.ndim} dimensions")
    kernel = values.shape[1:3]
    if depthwise:
        values, filters, group = values.transpose(3, 0, 1, 2), values.shape[3], values.shape[3]
    else:
        filters, group = values.shape[0], channels // max(values.shape[3], 1)
        values = values.transpose(0, 3, 1, 2)
    if not group or values.shape[1] * group != channels or filters % group:
        raise FormatError(f"has weights {weights.name!r} of shape {list(weights.shape)} for {channels} channels")
    stride = [max(operator.whole(slot), 1) for slot in (2, 1)]
    dilation = [max(operator.whole(slot + shift), 1) for slot in (5, 4)]
    left, right, top, bottom = (operator.whole(slot + shift) for slot in (6, 7, 8, 9))
    sizes = _windows((height, width), kernel, stride, ((top, bottom), (left, right)), dilation)
    names = [source.name, b.constant(weights.name, values.astype(np.float32))]
    if rest and rest[0].is_constant:
        names.append(b.constant(rest[0].name, b.real(operator, rest[0]).reshape(-1)[:filters]))
    name, number = b.made(operator), operator.whole(3 + shift)
    made = b.activated(operator, number, name)
    pads = [top, left, bottom, right]
    b.node(
        "Conv",
        names,
        made,
        kernel_shape=list(kernel),
        strides=stride,
        pads=pads if any(pads) else None,
        dilations=dilation if max(dilation) > 1 else None,
        group=group,
    )
    b.finish(number, made, name)
    b.keep_shape(operator, (n, *sizes, filters))


def _windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int] = (1, 1),
) -> list[int]:
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    return [
        (size + sum(ends) - span) // step + 1 for size, ends, span, step in zip(sizes, pads, reach, stride, strict=True)
    ]


def pool(b: Builder, operator: SimOperator) -> None:
    """Write MAX_POOL_2D or AVERAGE_POOL_2D.

    If the declared size is larger than the pads make it, the last windows extend beyond the values.
    """
    (source, *_), name = b.inputs(operator), b.made(operator)
    n, height, width, channels = b.picture(source, operator)
    stride = [max(operator.whole(slot), 1) for slot in (2, 1)]
    kernel = [max(operator.whole(slot), 1) for slot in (4, 3)]
    left, right, top, bottom = (operator.whole(slot) for slot in (6, 7, 8, 9))
    declared = b.tensor(operator.outputs[0]).shape
    if len(declared) == 4:
        reaching = [(size - 1) * step + span for size, step, span in zip(declared[1:3], stride, kernel)]
        bottom = max(bottom, reaching[0] - height - top)
        right = max(right, reaching[1] - width - left)
    pads = [top, left, bottom, right]
    kind = "MaxPool" if operator.kind == "MAX_POOL_2D" else "AveragePool"
    if kind == "AveragePool" and kernel == [height, width] and not any(pads):
        b.node("GlobalAveragePool", [source.name], name)
    else:
        b.node(kind, [source.name], name, kernel_shape=kernel, strides=stride, pads=pads if any(pads) else None)
    sizes = _windows((height, width), kernel, stride, ((top, bottom), (left, right)))
    b.keep_shape(operator, (n, *sizes, channels))


def concatenation(b: Builder, operator: SimOperator) -> None:
    """Write CONCATENATION along an axis of the declared shape.

    Inputs of other shapes have their values in that order.
    """
    tensors = b.inputs(operator)
    declared, axis = b.tensor(operator.outputs[0]).shape, operator.whole(0)
    rank = len(declared)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise FormatError(
            f"has a CONCATENATION along axis {axis}, but its output shape {list(declared)} has no such axis"
        )
    others = math.prod(size for i, size in enumerate(declared) if i != axis)
    names, length = [], 0
    for tensor in tensors:
        shape, name = b.shape(tensor), b.operand(operator, tensor, rank)
        part, rest = divmod(math.prod(shape), max(others, 1))
        wanted = (*declared[:axis], part, *declared[axis + 1 :])
        if rest or not part:
            raise FormatError(
                f"has a CONCATENATION whose input {tensor.name!r} has the shape {list(shape)}, which "
                f"does not fit the declared output shape {list(declared)}"
            )
        if tuple(shape) != wanted:
            source, name = name, b.fresh(b.made(operator))
            reshaped(b, source, shape, wanted, name)
        names.append(name)
        length += part
    b.node("Concat", names, b.made(operator), axis=AXIS[axis] if rank == 4 else axis)
    b.keep_shape(operator, (*declared[:axis], length, *declared[axis + 1 :]))


def arithmetic(kind: str) -> Callable[[Builder, SimOperator], None]:
    """Return the builder of an operator with two operands."""

    def build(b: Builder, operator: SimOperator) -> None:
        tensors = b.inputs(operator, 2)[:2]
        shapes = [b.shape(tensor) for tensor in tensors]
        rank = max(len(shape) for shape in shapes)
        names = [b.operand(operator, tensor, rank) for tensor in tensors]
        number, name = operator.whole(0), b.made(operator)
        made = b.activated(operator, number, name)
        b.node(kind, names, made)
        b.finish(number, made, name)
        try:
            b.keep_shape(operator, np.broadcast_shapes(*shapes))
        except ValueError:
            raise FormatError(
                f"has a {operator.kind} with inputs of incompatible shapes {[list(shape) for shape in shapes]}"
            ) from None

    return build


def function(kind: str) -> Callable[[Builder, SimOperator], None]:
    """Return the builder of an elementwise operator of one tensor."""

    def build(b: Builder, operator: SimOperator) -> None:
        source, *_ = b.inputs(operator)
        shape = b.shape(source)
        b.as_declared(operator, b.node(kind, [source.name], b.before(operator, shape)), shape)

    return build


def relu6(b: Builder, operator: SimOperator) -> None:
    source, *_ = b.inputs(operator)
    b.relu6(source.name, b.made(operator))
    b.keep_shape(operator, b.shape(source))


def leaky_relu(b: Builder, operator: SimOperator) -> None:
    source, *_ = b.inputs(operator)
    b.node("LeakyRelu", [source.name], b.made(operator), alpha=float(operator.option(0, "f")))
    b.keep_shape(operator, b.shape(source))


def prelu(b: Builder, operator: SimOperator) -> None:
    source, slope, *_ = b.inputs(operator, 2)
    b.node("PRelu", [source.name, b.operand(operator, slope, len(b.shape(source)))], b.made(operator))
    b.keep_shape(operator, b.shape(source))


def softmax(b: Builder, operator: SimOperator) -> None:
    """Write SOFTMAX along the last axis; in the declared shape if that has the same last axis."""
    source, *_ = b.inputs(operator)
    shape, name = b.shape(source), source.name
    declared = b.declared(operator, shape)
    if declared != tuple(shape) and declared[-1:] == tuple(shape[-1:]) and math.prod(declared) == math.prod(shape):
        name = b.fresh(b.made(operator))
        reshaped(b, source.name, shape, declared, name)
        shape = declared
    axis = 1 if len(shape) == 4 else len(shape) - 1
    b.as_declared(operator, b.node("Softmax", [name], b.before(operator, shape), axis=axis), shape)


def reshape(b: Builder, operator: SimOperator) -> None:
    """Write RESHAPE to the declared shape, or to the parameter if the declared one has another number of values."""
    source, *parameters = b.inputs(operator)
    before, declared = b.shape(source), list(b.tensor(operator.outputs[0]).shape)
    size = math.prod(before)
    if math.prod(declared) != size:
        wanted = b.whole_numbers(parameters[-1]) if parameters else []
        known = math.prod(number for number in wanted if number > 0)
        declared = [size // known if number < 0 and known else number for number in wanted]
    if math.prod(declared) != size:
        raise FormatError(
            f"has a RESHAPE from shape {list(before)} to shape {declared}, but the two shapes have "
            "different numbers of elements"
        )
    reshaped(b, source.name, before, declared, b.made(operator))
    b.keep_shape(operator, declared)


def transpose(b: Builder, operator: SimOperator) -> None:
    source, order, *_ = b.inputs(operator, 2)
    shape, perm = b.shape(source), b.whole_numbers(order)
    if sorted(perm) != list(range(len(shape))):
        raise FormatError(f"has a TRANSPOSE of {len(shape)} dimensions with the order {perm}")
    transposed(b, source.name, perm, b.made(operator))
    b.keep_shape(operator, [shape[axis] for axis in perm])


def tile(b: Builder, operator: SimOperator) -> None:
    source, times, *_ = b.inputs(operator, 2)
    shape, counts = b.shape(source), b.whole_numbers(times)
    b.node("Tile", [source.name, b.parameter(times.name, along(counts, len(shape), operator))], b.made(operator))
    b.keep_shape(operator, [size * count for size, count in zip(shape, counts, strict=True)])


def pad(b: Builder, operator: SimOperator) -> None:
    source, amounts, *_ = b.inputs(operator, 2)
    shape, numbers = b.shape(source), b.whole_numbers(amounts)
    padded(b, source.name, shape, numbers, b.made(operator), operator)
    b.keep_shape(operator, [size + numbers[2 * i] + numbers[2 * i + 1] for i, size in enumerate(shape)])


def split(b: Builder, operator: SimOperator) -> None:
    """Write SPLIT (axis first) or SPLIT_V (sizes, then axis)."""
    tensors = b.inputs(operator, 2)
    source = tensors[0] if operator.kind == "SPLIT_V" else tensors[1]
    axis_of = tensors[2] if operator.kind == "SPLIT_V" and len(tensors) > 2 else tensors[0]
    shape, (axis, *_) = b.shape(source), b.whole_numbers(axis_of) or [0]
    axis += len(shape) if axis < 0 else 0
    count = len(operator.outputs)
    if not 0 <= axis < len(shape):
        raise FormatError(f"has a {operator.kind} along axis {axis}, but its input has {len(shape)} axes")
    sizes = b.whole_numbers(tensors[1]) if operator.kind == "SPLIT_V" else [shape[axis] // count] * count
    if sum(sizes) != shape[axis] or len(sizes) != count:
        raise FormatError(
            f"has a {operator.kind} that splits an axis of length {shape[axis]} into the lengths "
            f"{sizes[:8]}. The lengths must add up to the axis length, with one length per output"
        )
    names = [b.made(operator, slot) for slot in range(count)]
    b.node("Split", [source.name, b.parameter(names[0], sizes)], names, axis=AXIS[axis] if len(shape) == 4 else axis)
    for name, size in zip(names, sizes):
        b.shapes[name] = (*shape[:axis], size, *shape[axis + 1 :])


def slices(b: Builder, operator: SimOperator) -> None:
    """Write SLICE, Slice_Alias (begin, size) or STRIDED_SLICE (begin, end, step).

    The SDK's converter writes only the first axis of a slice along several. The result then has more values than the
    file declares, and only the first count.
    """
    source, *numbers = b.inputs(operator, 3)
    shape = b.shape(source)
    begins, ends = (b.whole_numbers(tensor) for tensor in numbers[:2])
    steps = b.whole_numbers(numbers[2]) if operator.kind == "STRIDED_SLICE" and len(numbers) > 2 else [1] * len(shape)
    if not len(begins) == len(ends) == len(steps) == len(shape) or min(steps) < 1:
        raise FormatError(f"has a {operator.kind} with {len(begins)} parameters for {len(shape)} dimensions")
    if operator.kind != "STRIDED_SLICE":
        ends = [begin + length if length >= 0 else size for begin, length, size in zip(begins, ends, shape)]
    begins, ends = ([min(v + n if v < 0 else v, n) for v, n in zip(values, shape)] for values in (begins, ends))
    sliced = [-(-(e - s) // step) for s, e, step in zip(begins, ends, steps)]
    b.check(operator, sliced)
    name = b.before(operator, sliced)
    cut(b, source.name, shape, begins, ends, steps, name)
    b.as_declared(operator, name, sliced)


def reduction(kind: str) -> Callable[[Builder, SimOperator], None]:
    """Return the builder of a reduction; the declared rank decides whether axes are kept."""

    def build(b: Builder, operator: SimOperator) -> None:
        source, axis_of, *_ = b.inputs(operator, 2)
        shape = b.shape(source)
        axes = sorted({axis % max(len(shape), 1) for axis in b.whole_numbers(axis_of)})
        keep = len(b.tensor(operator.outputs[0]).shape) == len(shape)
        kept = [1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes]
        left = [i for i in (TO_NCHW if len(shape) == 4 else range(len(shape))) if i not in axes]
        in_order = keep or len(shape) != 4 or len(kept) == 4 or left == sorted(left)
        here = [AXIS[axis] for axis in axes] if len(shape) == 4 else axes
        name = b.made(operator)
        made = name if in_order else b.fresh(name)
        # From opset 13 on, ReduceSum takes its axes as an input, not as an attribute.
        if kind == "ReduceSum":
            b.node(kind, [source.name, b.parameter(name, here)], made, keepdims=int(keep))
        else:
            b.node(kind, [source.name], made, axes=here, keepdims=int(keep))
        if not in_order:
            b.node("Transpose", [made], name, perm=[left.index(axis) for axis in sorted(left)])
        b.keep_shape(operator, kept or [1])

    return build


def arg_max(b: Builder, operator: SimOperator) -> None:
    source, axis_of, *_ = b.inputs(operator, 2)
    shape, (axis, *_) = b.shape(source), b.whole_numbers(axis_of) or [0]
    axis %= max(len(shape), 1)
    name = b.made(operator)
    made = b.node("ArgMax", [source.name], b.fresh(name), axis=AXIS[axis] if len(shape) == 4 else axis, keepdims=1)
    b.node("Cast", [made], name, to=onnx.TensorProto.FLOAT)
    b.keep_shape(operator, [1 if i == axis else size for i, size in enumerate(shape)])


def comparison(kind: str) -> Callable[[Builder, SimOperator], None]:
    """Return the builder of a comparison, whose outputs are 0 and 1."""

    def build(b: Builder, operator: SimOperator) -> None:
        tensors = b.inputs(operator, 2)[:2]
        shapes = [b.shape(tensor) for tensor in tensors]
        rank, name = max(len(shape) for shape in shapes), b.made(operator)
        made = b.node(kind, [b.operand(operator, tensor, rank) for tensor in tensors], b.fresh(name))
        b.node("Cast", [made], name, to=onnx.TensorProto.FLOAT)
        b.keep_shape(operator, max(shapes, key=math.prod))

    return build


def resize(mode: str) -> Callable[[Builder, SimOperator], None]:
    """Return the builder of RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR.

    Options 2 and 3, or 0 and 1: corners are aligned, and pixels have their centres at a half.
    """

    def build(b: Builder, operator: SimOperator) -> None:
        source, size_of, *_ = b.inputs(operator, 2)
        n, _, _, channels = b.picture(source, operator)
        sizes = b.whole_numbers(size_of)
        if len(sizes) != 2:
            raise FormatError(f"has a {operator.kind} with {len(sizes)} sizes instead of 2")
        slot = 2 if mode == "linear" else 0
        align, half = (bool(operator.option(slot + place, "b")) for place in (0, 1))
        how = "align_corners" if align else "half_pixel" if half else "asymmetric"
        name = b.made(operator)
        empty = b.constant(f"empty{MADE}", np.zeros(0, np.float32))
        target = b.parameter(name, [n, channels, *sizes])
        nearest = "floor" if mode == "nearest" else None
        b.node(
            "Resize",
            [source.name, empty, empty, target],
            name,
            mode=mode,
            coordinate_transformation_mode=how,
            nearest_mode=nearest,
        )
        b.keep_shape(operator, (n, *sizes, channels))

    return build


def dilation(b: Builder, operator: SimOperator) -> None:
    """Write Dilation: zeros between rows and columns (last parameter, counts per axis), then around (first one)."""
    source, outside, inside, *_ = b.inputs(operator, 3)
    n, height, width, channels = b.picture(source, operator)
    between, around, name = b.whole_numbers(inside), b.whole_numbers(outside), b.made(operator)
    if len(between) != 4 or len(around) != 8 or min(between) < 0 or max(between) > 64:
        raise FormatError(
            f"has a Dilation with invalid numbers of zeros: {between[:8]} between rows and columns, "
            f"{around[:8]} around them"
        )
    rows, columns = between[1] + 1, between[2] + 1
    made = source.name
    if rows * columns > 1:
        spread = b.parameter(name, [n, channels, height, 1, width, 1])
        made = b.node("Reshape", [made, spread], b.fresh(name))
        made = b.node(
            "Pad",
            [made, b.parameter(name, [0] * 9 + [rows - 1, 0, columns - 1])],
            b.fresh(name),
            mode="constant",
        )
        joined = [n, channels, height * rows, width * columns]
        made = b.node("Reshape", [made, b.parameter(name, joined)], b.fresh(name))
        size = (n, (height - 1) * rows + 1, (width - 1) * columns + 1, channels)
        cut(b, made, (n, height * rows, width * columns, channels), (0,) * 4, size, (1,) * 4, cut_name := b.fresh(name))
        made, height, width = cut_name, size[1], size[2]
    padded(b, made, (n, height, width, channels), around, name, operator)
    b.keep_shape(operator, [s + around[2 * i] + around[2 * i + 1] for i, s in enumerate((n, height, width, channels))])


def widened(b: Builder, operator: SimOperator) -> None:
    """Write DmaCoefMatrix, Align or Align2: the values, with added channels if the declared shape has more."""
    source, *_ = b.inputs(operator)
    shape, declared, name = b.shape(source), b.tensor(operator.outputs[0]).shape, b.made(operator)
    more = declared[3] - shape[3] if len(declared) == len(shape) == 4 else 0
    if more > 0:
        value = b.constant(b.fresh(name), np.array(b.filler(operator), np.float32))
        b.node("Pad", [source.name, b.parameter(name, [0] * 5 + [more, 0, 0]), value], name, mode="constant")
        shape = (*shape[:3], declared[3])
    else:
        b.node("Identity", [source.name], name)
    b.keep_shape(operator, shape)


def depth_to_space(b: Builder, operator: SimOperator) -> None:
    source, *_ = b.inputs(operator)
    (n, height, width, channels), block = b.picture(source, operator), max(operator.whole(0), 1)
    b.node("DepthToSpace", [source.name], b.made(operator), blocksize=block, mode="DCR")
    b.keep_shape(operator, (n, height * block, width * block, channels // block**2))


def space_to_depth(b: Builder, operator: SimOperator) -> None:
    source, *_ = b.inputs(operator)
    (n, height, width, channels), block = b.picture(source, operator), max(operator.whole(0), 1)
    b.node("SpaceToDepth", [source.name], b.made(operator), blocksize=block)
    b.keep_shape(operator, (n, height // block, width // block, channels * block**2))


BUILDERS: dict[str, Callable[[Builder, SimOperator], None]] = {
    "ABS": function("Abs"),
    "ADD": arithmetic("Add"),
    "ARG_MAX": arg_max,
    "AVERAGE_POOL_2D": pool,
    "Align": widened,
    "Align2": widened,
    "Align2_Alias": widened,
    "CEIL": function("Ceil"),
    "CONCATENATION": concatenation,
    "CONV_2D": convolution,
    "COS": function("Cos"),
    "DEPTHWISE_CONV_2D": convolution,
    "DEPTH_TO_SPACE": depth_to_space,
    "DIV": arithmetic("Div"),
    "Dilation": dilation,
    "DmaCoefMatrix": widened,
    "ELU": function("Elu"),
    "EXP": function("Exp"),
    "GREATER": comparison("Greater"),
    "GREATER_EQUAL": comparison("GreaterOrEqual"),
    "LEAKY_RELU": leaky_relu,
    "LOG": function("Log"),
    "LOGISTIC": function("Sigmoid"),
    "MAXIMUM": arithmetic("Max"),
    "MAX_POOL_2D": pool,
    "MEAN": reduction("ReduceMean"),
    "MINIMUM": arithmetic("Min"),
    "MUL": arithmetic("Mul"),
    "NEG": function("Neg"),
    "PAD": pad,
    "PRELU": prelu,
    "REDUCE_MAX": reduction("ReduceMax"),
    "REDUCE_MIN": reduction("ReduceMin"),
    "RELU": function("Relu"),
    "RELU6": relu6,
    "RESHAPE": reshape,
    "RESIZE_BILINEAR": resize("linear"),
    "RESIZE_NEAREST_NEIGHBOR": resize("nearest"),
    "ROUND": function("Round"),
    "Reshape_Alias": reshape,
    "SIN": function("Sin"),
    "SLICE": slices,
    "SOFTMAX": softmax,
    "SPACE_TO_DEPTH": space_to_depth,
    "SPLIT": split,
    "SPLIT_V": split,
    "SQRT": function("Sqrt"),
    "SQUEEZE": reshape,
    "STRIDED_SLICE": slices,
    "SUB": arithmetic("Sub"),
    "SUM": reduction("ReduceSum"),
    "Slice_Alias": slices,
    "TANH": function("Tanh"),
    "TILE": tile,
    "TRANSPOSE": transpose,
}
