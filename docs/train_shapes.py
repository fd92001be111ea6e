"""Train a small network on drawn shapes, by numpy alone, and save it as ONNX: the network of tutorial.md.

Writes net.onnx, and shapes.npz with 300 pictures to calibrate on and 300 others to judge by, within ten seconds or so.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

SHAPES = ("bar", "rung", "slash", "cross", "ring", "dot")
SIZE, CHANNELS = 16, (8, 16)


def drawn(shape, random):
    """A picture of float32 (1, 16, 16): the shape somewhere, of some size, in noise."""
    y, x = np.mgrid[:SIZE, :SIZE] - random.uniform(6, 10, (2, 1, 1))
    radius, width = random.uniform(3, 6), random.uniform(0.7, 1.5)
    inside = np.maximum(abs(x), abs(y)) < radius
    ink = {
        "bar": inside & (abs(x) < width),
        "rung": inside & (abs(y) < width),
        "slash": inside & (abs(x - y) < 1.4 * width),
        "cross": inside & ((abs(x) < width) | (abs(y) < width)),
        "ring": abs(np.hypot(x, y) - radius) < width,
        "dot": np.hypot(x, y) < radius,
    }[shape]
    return (ink + random.normal(0, 0.25, ink.shape)).astype(np.float32)[None]


def pictures(count, seed):
    """``count`` pictures, float32 (count, 1, 16, 16), and the number of the shape in each."""
    random = np.random.default_rng(seed)
    labels = random.integers(len(SHAPES), size=count)
    return np.stack([drawn(SHAPES[label], random) for label in labels]), labels


def patches(x, stride):
    """(N, C, H, W) padded by 1 -> (N, H/stride, W/stride, C * 9), the 3x3 surroundings of each place."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    return views.transpose(0, 2, 3, 1, 4, 5).reshape(len(x), *views.shape[2:4], -1)


def from_patches(gradient, shape, stride):
    """What ``patches`` took apart, added up."""
    count, channels, height, width = shape
    padded = np.zeros((count, channels, height + 2, width + 2), np.float32)
    parts = gradient.reshape(count, height // stride, width // stride, channels, 3, 3)
    for row in range(3):
        for column in range(3):
            place = padded[:, :, row : row + height : stride, column : column + width : stride]
            place += parts[..., row, column].transpose(0, 3, 1, 2)
    return padded[:, :, 1:-1, 1:-1]


def step(weights, x, labels):
    """Loss and gradients of: 3x3 convolution, Relu, 3x3 convolution of stride 2, Relu, mean over places, linear."""
    first = patches(x, 1)
    h1 = np.maximum(first @ weights["w1"] + weights["b1"], 0).transpose(0, 3, 1, 2)
    second = patches(h1, 2)
    h2 = np.maximum(second @ weights["w2"] + weights["b2"], 0)
    pooled = h2.mean((1, 2))
    logits = pooled @ weights["w3"] + weights["b3"]
    share = np.exp(logits - logits.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(share[rows, labels]).mean()
    share[rows, labels] -= 1
    share /= len(x)
    gradients = {"w3": pooled.T @ share, "b3": share.sum(0)}
    back = (share @ weights["w3"].T)[:, None, None] / (h2.shape[1] * h2.shape[2]) * (h2 > 0)
    gradients |= {"w2": np.tensordot(second, back, ((0, 1, 2), (0, 1, 2))), "b2": back.sum((0, 1, 2))}
    back = from_patches(back @ weights["w2"].T, h1.shape, 2).transpose(0, 2, 3, 1) * (h1.transpose(0, 2, 3, 1) > 0)
    gradients |= {"w1": np.tensordot(first, back, ((0, 1, 2), (0, 1, 2))), "b1": back.sum((0, 1, 2))}
    return loss, gradients


def trained(x, labels, steps=300, batch=64, rate=0.01):
    """The weights after ``steps`` of Adam."""
    random = np.random.default_rng(1)
    sizes = {"1": (9, CHANNELS[0]), "2": (9 * CHANNELS[0], CHANNELS[1]), "3": (CHANNELS[1], len(SHAPES))}
    weights = {f"w{n}": random.normal(0, (2 / size[0]) ** 0.5, size).astype(np.float32) for n, size in sizes.items()}
    weights |= {f"b{n}": np.zeros(size[1], np.float32) for n, size in sizes.items()}
    means = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in weights.items()}
    for turn in range(1, steps + 1):
        some = random.integers(len(x), size=batch)
        loss, gradients = step(weights, x[some], labels[some])
        for name, gradient in gradients.items():
            mean, square = means[name]
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            change = mean / (1 - 0.9**turn) / (np.sqrt(square / (1 - 0.999**turn)) + 1e-8)
            weights[name] -= rate * change.astype(np.float32)
        if turn % 100 == 0:
            print(f"step {turn}: loss {loss:.3f}")
    return weights


def saved(weights, path):
    """The network as ONNX, input ``image`` and output ``logits``."""
    arrays = {
        "conv1.w": weights["w1"].T.reshape(CHANNELS[0], 1, 3, 3),
        "conv1.b": weights["b1"],
        "conv2.w": weights["w2"].T.reshape(CHANNELS[1], CHANNELS[0], 3, 3),
        "conv2.b": weights["b2"],
        "head.w": weights["w3"].T.reshape(len(SHAPES), CHANNELS[1], 1, 1),
        "head.b": weights["b3"],
    }
    # Channels of very unequal size, as BatchNormalization folded into a convolution leaves them. In float it changes
    # nothing, for what one convolution gains the next one loses; in 8 bits it is the fault to find.
    factors = np.geomspace(1, 300, CHANNELS[0]).astype(np.float32)
    arrays["conv1.w"] = arrays["conv1.w"] * factors[:, None, None, None]
    arrays["conv1.b"] = arrays["conv1.b"] * factors
    arrays["conv2.w"] = arrays["conv2.w"] / factors[:, None, None]
    nodes = [
        helper.make_node("Conv", ["image", "conv1.w", "conv1.b"], ["conv1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("Conv", ["relu1", "conv2.w", "conv2.b"], ["conv2"], "conv2", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pooled"], "pool"),
        helper.make_node("Conv", ["pooled", "head.w", "head.b"], ["head"], "head"),
        helper.make_node("Flatten", ["head"], ["logits"], "flatten"),
    ]
    image = helper.make_tensor_value_info("image", 1, [1, 1, SIZE, SIZE])
    logits = helper.make_tensor_value_info("logits", 1, [1, len(SHAPES)])
    constants = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in arrays.items()]
    graph = helper.make_graph(nodes, "shapes", [image], [logits], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    saved(trained(*pictures(2000, seed=0)), "net.onnx")
    calibration, (judged, labels) = pictures(300, seed=2)[0], pictures(300, seed=3)
    np.savez("shapes.npz", calibration=calibration, judged=judged, labels=labels)
