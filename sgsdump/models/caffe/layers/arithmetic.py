"""Conversion of element-wise layers, Eltwise, Reduction and ArgMax. Formulas: Caffe's layer catalogue."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sgsdump.models.caffe.layer_builder import FLOAT, INT_MAX, LayerBuilder, Shape, Value
from sgsdump.models.caffe.schema import enum_label


def _one_node(op_type: str, **attributes: Any) -> Callable[[LayerBuilder], list[Value]]:
    def convert(builder: LayerBuilder) -> list[Value]:
        builder.expect(1)
        return builder.top(op_type, builder.inputs[0], **attributes)

    return convert


sigmoid = _one_node("Sigmoid")
tanh = _one_node("Tanh")
absolute = _one_node("Abs")
bnll = _one_node("Softplus")


def relu(builder: LayerBuilder) -> list[Value]:
    slope = builder.message.relu_param.negative_slope
    return _one_node("LeakyRelu", alpha=slope)(builder) if slope else _one_node("Relu")(builder)


def elu(builder: LayerBuilder) -> list[Value]:
    return _one_node("Elu", alpha=builder.message.elu_param.alpha)(builder)


def prelu(builder: LayerBuilder) -> list[Value]:
    """Convert max(0, x) + slope * min(0, x), with one slope per channel or one for all."""
    builder.expect(1)
    channels = builder.shape[builder.axis(1)]
    shared = builder.message.prelu_param.channel_shared
    slope = builder.weight(0, () if shared else (channels,), "slope")
    slope = slope.reshape((1,) if shared else (channels, *[1] * (len(builder.shape) - 2)))
    return builder.top("PRelu", builder.inputs[0], builder.constant("alpha", slope))


def relu6(builder: LayerBuilder) -> list[Value]:
    if builder.message.relu6_param.negative_slope:
        builder.fail("is a ReLU6 with a negative_slope, which is not supported; write it as ReLU and Clip")
    return _clipped(builder, 0.0, 6.0)


def clip(builder: LayerBuilder) -> list[Value]:
    param = builder.message.clip_param
    if not (param.HasField("min") and param.HasField("max")):
        builder.fail("needs clip_param with min and max")
    return _clipped(builder, param.min, param.max)


def power(builder: LayerBuilder) -> list[Value]:
    """Convert (shift + scale * x) ^ power."""
    builder.expect(1)
    param = builder.message.power_param
    if builder.staged:
        return _staged_power(builder, param.power, param.scale, param.shift)
    value = _affine(builder, builder.inputs[0].name, param.scale, param.shift, last=param.power == 1)
    if param.power != 1:
        value = builder.node("Pow", value, param.power, to=builder.tops[0])
    return [Value(value, builder.shape)]


def _staged_power(builder: LayerBuilder, exponent: float, scale: float, shift: float) -> list[Value]:
    """Convert Power as the SDK does: always a MUL and an ADD, and a square as a MUL of two equal operands."""
    top, name = builder.tops[0], builder.layer.name
    product = builder.node("Mul", builder.inputs[0], builder.constant("scale", scale), to=builder.product)
    ends = exponent == 1
    total = builder.node(
        "Add",
        product,
        builder.constant("offset", shift),
        to=top if ends else builder.names[0].fresh(f"{name}_ADD_output"),
    )
    if exponent == 2:
        builder.node("Mul", total, total, to=top)
    elif not ends:
        builder.node("Pow", total, exponent, to=top)
    return [Value(top, builder.shape)]


def exp(builder: LayerBuilder) -> list[Value]:
    """Convert base ^ (shift + scale * x); base -1 means e."""
    builder.expect(1)
    param = builder.message.exp_param
    rate = _log_of_base(builder, param.base)
    value = _affine(builder, builder.inputs[0].name, rate * param.scale, rate * param.shift)
    return builder.top("Exp", value)


def log(builder: LayerBuilder) -> list[Value]:
    """Convert log_base(shift + scale * x); base -1 means e."""
    builder.expect(1)
    param = builder.message.log_param
    rate = _log_of_base(builder, param.base)
    value = _affine(builder, builder.inputs[0].name, param.scale, param.shift)
    if rate == 1:
        return builder.top("Log", value)
    return builder.top("Mul", builder.node("Log", value), 1 / rate)


def _clipped(builder: LayerBuilder, low: float, high: float) -> list[Value]:
    builder.expect(1)
    return builder.top("Clip", builder.inputs[0], low, high)


def _affine(builder: LayerBuilder, value: str, scale: float, shift: float, last: bool = False) -> str:
    """Add scale * x + shift without identity operations; ``last`` writes the result to the top."""
    steps = [(op, number) for op, number, nothing in (("Mul", scale, 1), ("Add", shift, 0)) if number != nothing]
    for index, (op, number) in enumerate(steps):
        final = last and index == len(steps) - 1
        value = builder.node(op, value, number, to=builder.tops[0] if final else None)
    return builder.node("Identity", value, to=builder.tops[0]) if last and not steps else value


def _log_of_base(builder: LayerBuilder, base: float) -> float:
    if base == -1:
        return 1.0
    if base <= 0 or base == 1:
        builder.fail(f"has the base {base:g}, which must be positive and not 1")
    return math.log(base)


REDUCTIONS = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}


def eltwise(builder: LayerBuilder) -> list[Value]:
    """Convert the sum (with one coefficient per bottom), product or maximum of bottoms of one shape."""
    builder.expect(2, INT_MAX)
    param = builder.message.eltwise_param
    operation = enum_label(param, "operation")
    if any(value.shape != builder.shape for value in builder.inputs):
        builder.fail(f"has bottoms of different shapes: {', '.join(str(list(v.shape)) for v in builder.inputs)}")
    if param.coeff and (operation != "SUM" or len(param.coeff) != len(builder.inputs)):
        builder.fail(f"gives {len(param.coeff)} coefficients; only SUM takes coefficients, one per bottom")
    names = [value.name for value in builder.inputs]
    if operation == "MAX":
        return builder.top("Max", *names)
    if list(param.coeff) == [1.0, -1.0]:
        return builder.top("Sub", *names)
    weighted = [
        name if factor == 1 else builder.node("Mul", name, factor)
        for name, factor in zip(names, param.coeff or [1.0] * len(names))
    ]
    op = "Mul" if operation == "PROD" else "Add"
    result = weighted[0]
    for index, name in enumerate(weighted[1:], 2):
        # The SDK's converter names an intermediate result after the second operand.
        between = f"{name}_addn_output_tensor" if op == "Add" else f"{name}_muln_output_tensor"
        to = builder.tops[0] if index == len(weighted) else builder.names[0].fresh(between)
        result = builder.node(op, result, name, to=to)
    return [Value(result, builder.shape)]


def axpy(builder: LayerBuilder) -> list[Value]:
    """Convert a * x + y with one factor a per channel of x; the SDK names the product after x."""
    builder.expect(3)
    factor, x, y = builder.inputs
    if len(x.shape) != 4 or x.shape != y.shape or factor.shape not in (x.shape[:2], (*x.shape[:2], 1, 1)):
        builder.fail(
            f"needs a of shape N, C or N, C, 1, 1, and x and y of shape N, C, H, W, not "
            f"{', '.join(str(list(value.shape)) for value in builder.inputs)}"
        )
    if len(factor.shape) == 2:
        factor = Value(builder.node("Reshape", factor, (*x.shape[:2], 1, 1)), (*x.shape[:2], 1, 1))
    product = builder.node("Mul", x, factor, to=builder.within(f"{x.name}_xx"))
    return builder.top("Add", product, y, shape=x.shape)


def crelu(builder: LayerBuilder) -> list[Value]:
    """Convert the concatenation of ReLU(x) and ReLU(-x) along the channels."""
    builder.expect(1)
    param, stem = builder.message.crelu_param, builder.layer.name
    axis = builder.axis(param.concat_axis)
    halves = []
    negated = builder.node("Mul", builder.inputs[0], -1.0, to=builder.within(f"{stem}_MUL_output"))
    for source, end in ((negated, "_lkyRelu_output"), (builder.inputs[0].name, "_lkyRelu#1_output")):
        halves.append(builder.node("LeakyRelu", source, to=builder.within(stem + end), alpha=param.negative_slope))
    shape = (*builder.shape[:axis], 2 * builder.shape[axis], *builder.shape[axis + 1 :])
    return builder.top("Concat", *halves[::-1], shape=shape, axis=axis)


def threshold(builder: LayerBuilder) -> list[Value]:
    """Convert to 1 for values above the threshold, otherwise 0."""
    builder.expect(1)
    above = builder.node("Greater", builder.inputs[0], float(builder.message.threshold_param.threshold))
    return builder.top("Cast", above, to_type=FLOAT)


def reduction(builder: LayerBuilder) -> list[Value]:
    """Convert the reduction of all axes from ``axis`` on, multiplied by ``coeff``."""
    builder.expect(1)
    param = builder.message.reduction_param
    axis = builder.axis(param.axis)
    shape, axes = builder.shape[:axis], list(range(axis, len(builder.shape)))
    op = REDUCTIONS[enum_label(param, "operation")]
    to = builder.tops[0] if param.coeff == 1 else None
    if op == "ReduceSum":
        result = builder.node(op, builder.inputs[0], axes, to=to, keepdims=0)
    else:
        result = builder.node(op, builder.inputs[0], to=to, axes=axes, keepdims=0)
    if param.coeff != 1:
        builder.node("Mul", result, param.coeff, to=builder.tops[0])
    return [Value(builder.tops[0], shape)]


def arg_max(builder: LayerBuilder) -> list[Value]:
    """Convert the float indices of the ``top_k`` largest values, along an axis or, without axis, per sample.

    Caffe sorts pairs of (value, index) in descending order: among equal values the last index comes first.
    """
    builder.expect(1)
    param = builder.message.argmax_param
    whole = not param.HasField("axis")
    axis = 1 if whole else builder.axis(param.axis)
    shape: Shape = (builder.shape[0], math.prod(builder.shape[1:])) if whole else builder.shape
    if not 1 <= param.top_k <= shape[axis]:
        builder.fail(f"asks for the {param.top_k} largest of {shape[axis]} numbers")
    source: Value | str = builder.inputs[0]
    if shape != builder.shape:
        source = builder.node("Flatten", source, axis=1)
    values, places = _largest(builder, source, axis, shape[axis], param.top_k)
    if not whole:
        chosen = values if param.out_max_val else places
        return builder.top("Identity", chosen, shape=(*shape[:axis], param.top_k, *shape[axis + 1 :]))
    # [N, top_k] -> [N, 1, top_k], or [N, 2, top_k] with the values after their positions.
    if param.out_max_val:
        rows = [builder.node("Unsqueeze", name, [1]) for name in (places, values)]
        builder.node("Concat", *rows, to=builder.tops[0], axis=1)
    else:
        builder.node("Unsqueeze", places, [1], to=builder.tops[0])
    return [Value(builder.tops[0], (shape[0], 1 + param.out_max_val, param.top_k))]


def _largest(builder: LayerBuilder, source: Value | str, axis: int, size: int, count: int) -> tuple[str, str]:
    """Return values and float indices of the largest values; reversed, because TopK prefers the first of equals."""
    backwards = builder.node("Slice", source, [-1], [-INT_MAX - 1], [axis], [-1])
    places = builder.inner("places")
    values = builder.node("TopK", backwards, [count], also=[places], axis=axis, largest=1, sorted=1)
    forwards = builder.node("Sub", size - 1, places)
    return values, builder.node("Cast", forwards, to_type=FLOAT)
