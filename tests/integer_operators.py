"""The operators of the vendor's probes by the reference arithmetic (``integer_reference``), from the vendor's texts."""

from __future__ import annotations

import integer_reference as rule
import numpy as np
from integer_reference import Scale
from vendor_probes import Probe

from sgsdump.fixedpoint.quantisation.type_rules import Operator
from sgsdump.models.graph import attribute

CONVOLUTIONS = ("Conv", "ConvTranspose", "Gemm")


def operator_output(probe: Probe, op: Operator, stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Stored outputs of an operator of which the vendor's stored inputs are given; NCHW."""
    name = op.outputs[0]
    out = scale(probe, name)
    nodes = list(op.nodes)
    clip_only = len(nodes) == 2 and nodes[1].op_type == "Relu" and nodes[0].op_type in CONVOLUTIONS
    value, own = None, None
    for node in nodes[:1] if clip_only else nodes:
        last = clip_only or node is nodes[-1]
        to = out if last else _inner(probe, op, node)
        outputs = _node(probe, node, value, own, to, stored, clip_only)
        if outputs is not None and node.op_type == "Split":
            return dict(zip(node.output, outputs, strict=True))
        value, own = outputs, to
    return {name: value}


def scale(probe: Probe, name: str) -> Scale:
    """A stored tensor's scale: the vendor's, a Flatten's and groups' from what they come from."""
    if name in probe.scales:
        return probe.scales[name]
    node = probe.graph.producer[name]
    return scale(probe, node.input[0])


def _inner(probe: Probe, op: Operator, node) -> Scale:
    """Between two operators of a chain: INT16 over the first one's range, which reaches 6 for a Sigmoid or TanH. A pool
    keeps its input's."""
    following = op.nodes[[each is node for each in op.nodes].index(True) + 1]
    if node.op_type in ("MaxPool", "AveragePool"):
        return scale(probe, node.input[0])
    low, high = probe.ranges[node.output[0]]
    return rule.scale_of(low, max(high, 6.0) if following.op_type in ("Sigmoid", "Tanh") else high, "int16")


def rows_of(probe: Probe, op: Operator) -> dict[str, np.ndarray]:
    """The vendor's name of the bias -> rows of bias and multiplier, (2, C); of each group of a convolution."""
    node = op.head
    if node.op_type not in CONVOLUTIONS:
        return {}
    plain = len(op.nodes) == 1 or (len(op.nodes) == 2 and op.last.op_type == "Relu")
    out = scale(probe, op.outputs[0]) if plain else _inner(probe, op, node)
    parts = _parts(probe, node, scale(probe, node.input[0]), out)
    return {name: np.stack([own.bias, own.mul]) for name, (_, own) in parts.items()}


def _parts(probe: Probe, node, source: Scale, out: Scale) -> dict[str, tuple[np.ndarray, rule.Numbers]]:
    """A convolution, or each of its groups, by the name of its bias: stored weights (O, I, ...) and numbers."""
    values = probe.graph.value(node.input[1])
    depthwise = node.op_type == "Conv" and values.shape[1] == 1 and attribute(node, "group", 1) > 1
    if node.op_type == "Gemm" and not attribute(node, "transB", 0):
        values = values.T
    if node.op_type == "ConvTranspose":
        values = np.swapaxes(values, 0, 1)
    bias = probe.graph.value(node.input[2]) if len(node.input) > 2 else np.zeros(len(values))
    groups = 1 if depthwise else attribute(node, "group", 1)
    parts = {}
    for g in range(groups):
        own = slice(g * len(values) // groups, (g + 1) * len(values) // groups)
        stem = node.output[0]
        numbered = [f"{stem}_conv#{g}_{word}#{g}" for word in ("filter", "bias", "output")]
        weight_name, bias_name, output = numbered if groups > 1 else (node.input[1], f"{stem}_bias", stem)
        dtype = "int8" if source.dtype == "uint8" else "int16"
        steps = _steps(probe, weight_name, len(values[own]), dtype)
        stored = rule.weights(values[own], steps.reshape(-1, *[1] * (values.ndim - 1)), dtype)
        low, high = probe.channels[output]
        sums = stored.reshape(len(stored), -1).sum(axis=1)
        parts[bias_name] = stored, rule.numbers(sums, bias[own], low, high, source, steps, out)
    return parts


def _steps(probe: Probe, name: str, count: int, dtype: str) -> np.ndarray:
    """A weight's scales, one for each output channel: of its range at L1, of each channel's above it."""
    ends = probe.weight_ends.get(name)
    if ends is None:
        ends = np.array([max(map(abs, probe.ranges[name]))])
    steps = ends.astype(np.float32).astype(np.float64) / rule.TOP[dtype]
    assert steps.max() <= 1024 * steps.min()
    return np.broadcast_to(steps, (count,))


def _node(probe, node, value, own, out: Scale, stored, relu: bool):
    kind = node.op_type
    if kind in CONVOLUTIONS:
        return _convolution(probe, node, out, stored, relu)
    names = [name for name in node.input if name in stored]
    operands = [(stored[name], scale(probe, name)) for name in names]
    if value is not None:
        place = next(i for i, name in enumerate(node.input) if name not in stored)
        operands.insert(place, (value, own))
    x, s = operands[0]
    ends = probe.ranges.get(node.output[0])
    constants = [name for name in node.input if name in probe.graph.constants]
    if kind == "Sigmoid":
        return rule.sigmoid(x, s, out)
    if kind == "Tanh":
        return rule.tanh(x, s, out, *ends)
    if kind == "Softmax":
        return rule.softmax(x, s, attribute(node, "axis", -1))
    if kind == "Add":
        if constants:
            return rule.add_to(x, s, probe.graph.value(constants[0]), out)
        return rule.add(x, s, *operands[1], out)
    if kind == "Mul" and constants:
        return rule.multiply_by(x, s, probe.graph.value(constants[0]), out)
    if kind == "Mul":
        return rule.multiply(x, s, *operands[1], out, max(map(abs, map(rule.single, ends))))
    if kind == "Max":
        return np.maximum(x, operands[1][0])
    if kind in ("Relu", "LeakyRelu", "PRelu"):
        slope = 0.0
        if kind == "LeakyRelu":
            slope = attribute(node, "alpha", 0.01)
        if kind == "PRelu":
            slope = probe.graph.value(node.input[1]).astype(np.float64)
        return rule.relu(x.astype(np.int64), s, out, *ends, slope)
    operands = [(each if own == out else rule.requantise(each, own, out)) for each, own in operands]
    return _moved(probe, node, operands, out)


def _moved(probe, node, operands, out: Scale):
    x = operands[0].astype(np.int64)
    kind = node.op_type
    if kind in ("MaxPool", "AveragePool"):
        kernel, strides = tuple(attribute(node, "kernel_shape")), tuple(attribute(node, "strides"))
        pads = list(attribute(node, "pads", (0, 0, 0, 0)))
        return rule.pooled(x, kernel, strides, pads, out.zero, kind == "MaxPool")
    if kind == "GlobalAveragePool":
        return rule.average(x.sum(axis=(2, 3), keepdims=True), x.shape[2] * x.shape[3])
    if kind == "GlobalMaxPool":
        return x.max(axis=(2, 3), keepdims=True)
    if kind == "Concat":
        return np.concatenate(operands, axis=attribute(node, "axis"))
    if kind == "Split":
        sizes = probe.graph.value(node.input[1])
        return np.split(x, np.cumsum(sizes)[:-1], axis=attribute(node, "axis"))
    if kind == "Flatten":
        return x.reshape(x.shape[0], -1)
    if kind == "Resize":
        given = probe.graph.value(next(name for name in node.input[2:] if name))
        height, width = (each / of if len(node.input) > 3 else each for each, of in zip(given[2:], x.shape[2:]))
        return x.repeat(round(height), axis=2).repeat(round(width), axis=3)
    raise AssertionError(f"no reference for {kind}")


def _convolution(probe, node, out: Scale, stored, relu: bool):
    x, source = stored[node.input[0]], scale(probe, node.input[0])
    parts = list(_parts(probe, node, source, out).values())
    if node.op_type == "Gemm":
        ((w, own),) = parts
        return rule.convolution(x.astype(np.int64) @ w.T, own, out, relu)
    spatial = len(x.shape) - 2
    strides = tuple(attribute(node, "strides", [1] * spatial))
    pads = tuple(attribute(node, "pads", [0] * 2 * spatial))
    dilations = tuple(attribute(node, "dilations", [1] * spatial))
    outputs = []
    step = x.shape[1] // len(parts)
    for g, (w, own) in enumerate(parts):
        seen = x[:, g * step : (g + 1) * step]
        if node.op_type == "ConvTranspose":
            acc = rule.sums_transposed(seen, np.swapaxes(w, 0, 1), strides, pads, source.zero)
        else:
            inner = 1 if len(parts) > 1 else attribute(node, "group", 1)
            acc = rule.sums_of_products(seen, w, source.zero, strides, pads, dilations, inner)
        outputs.append(rule.convolution(acc, own, out, relu))
    return np.concatenate(outputs, axis=1)
