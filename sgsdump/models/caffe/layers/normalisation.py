"""BatchNorm, LRN, Normalize (SSD) and Softmax: layers that relate a number to others around it."""

from __future__ import annotations

import numpy as np

from sgsdump.models.caffe.layers.product_and_sum import Affine, gain_and_offset, multiplied_and_added
from sgsdump.models.caffe.piece import Piece, Value
from sgsdump.models.caffe.schema import enum_label


def batch_norm(piece: Piece) -> list[Value]:
    """(x - mean) / sqrt(variance + eps), with the sums of training: blobs are mean, variance, and what divides both."""
    piece.expect(1)
    if piece.staged:
        return multiplied_and_added(piece, piece.layer.name, *normalisation(piece))
    names = ("scale", "bias", "mean", "variance")
    operands = [piece.constant(name, array) for name, array in zip(names, _statistics(piece))]
    epsilon = piece.message.batch_norm_param.eps
    piece.node("BatchNormalization", piece.inputs[0], *operands, to=piece.tops[0], epsilon=epsilon)
    return [Value(piece.tops[0], piece.shape)]


def normalisation(piece: Piece) -> Affine:
    """A BatchNorm layer as a factor and an offset for each channel."""
    return gain_and_offset(*_statistics(piece), epsilon=piece.message.batch_norm_param.eps)


def _statistics(piece: Piece) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scale, bias, mean and variance of each channel."""
    param = piece.message.batch_norm_param
    if param.HasField("use_global_stats") and not param.use_global_stats:
        piece.fail("has use_global_stats: false, which is for training; delete that line or say true")
    channels = piece.shape[1] if len(piece.shape) > 1 else 1
    if len(piece.shape) < 2:
        piece.fail(f"needs an input with channels, not {list(piece.shape)}")
    total = float(piece.weight(2, (), "scale factor"))
    factor = 1 / total if total else 0.0
    mean, variance = (
        piece.weight(i, (channels,), what) * np.float32(factor) for i, what in enumerate(("mean", "variance"))
    )
    scale, bias = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    if param.scale_bias:
        scale, bias = piece.weight(3, (channels,), "scale"), piece.weight(4, (channels,), "bias")
    return scale, bias, mean, variance


def bn(piece: Piece) -> list[Value]:
    """BN of forks: a scale and a shift that hold the statistics (SegNet), or with mean and variance behind (PSPNet)."""
    piece.expect(1)
    if len(piece.shape) < 2:
        piece.fail(f"needs an input with channels, not {list(piece.shape)}")
    channels, folded = piece.shape[1], piece.blob_count() == 2
    names = ("scale", "bias", "mean", "variance")
    blobs = [piece.weight(i, (channels,), name) for i, name in enumerate(names[: 2 if folded else 4])]
    blobs += [np.zeros(channels, np.float32), np.ones(channels, np.float32)] if folded else []
    epsilon = 0.0 if folded else piece.message.bn_param.eps
    if piece.staged:
        return multiplied_and_added(piece, piece.layer.name, *gain_and_offset(*blobs[:4], epsilon=epsilon))
    operands = [piece.constant(name, array) for name, array in zip(names, blobs)]
    piece.node("BatchNormalization", piece.inputs[0], *operands, to=piece.tops[0], epsilon=epsilon)
    return [Value(piece.tops[0], piece.shape)]


def lrn(piece: Piece) -> list[Value]:
    piece.expect(1)
    param = piece.message.lrn_param
    if len(piece.shape) != 4 or param.local_size % 2 == 0:
        piece.fail(f"needs an N, C, H, W input and an odd local_size, not {list(piece.shape)} and {param.local_size}")
    if enum_label(param, "norm_region") == "ACROSS_CHANNELS":
        sizes = {"size": param.local_size, "alpha": param.alpha, "beta": param.beta, "bias": param.k}
        return [Value(piece.node("LRN", piece.inputs[0], to=piece.tops[0], **sizes), piece.shape)]
    squares = piece.node("Mul", piece.inputs[0], piece.inputs[0])
    side = (param.local_size - 1) // 2
    mean = piece.node(
        "AveragePool",
        squares,
        kernel_shape=[param.local_size] * 2,
        pads=[side] * 4,
        strides=[1, 1],
        count_include_pad=1,
    )
    # Within a channel Caffe takes 1 for k, whatever the prototxt says.
    base = piece.node("Add", piece.node("Mul", mean, _scalar(param.alpha)), _scalar(1))
    piece.node("Mul", piece.inputs[0], piece.node("Pow", base, _scalar(-param.beta)), to=piece.tops[0])
    return [Value(piece.tops[0], piece.shape)]


def normalize(piece: Piece) -> list[Value]:
    """scale * x / sqrt(sum of squares + eps), over the channels or over the whole sample."""
    piece.expect(1)
    param = piece.message.norm_param
    if len(piece.shape) != 4:
        piece.fail(f"needs an N, C, H, W input, not {list(piece.shape)}")
    channels = piece.shape[1]
    scale = piece.weight(0, () if param.channel_shared else (channels,), "scale")
    axes = [1, 2, 3] if param.across_spatial else [1]
    squares = piece.node("ReduceSumSquare", piece.inputs[0], axes=axes, keepdims=1)
    length = piece.node("Sqrt", piece.node("Add", squares, _scalar(param.eps)))
    unit = piece.node("Div", piece.inputs[0], length)
    scale = scale.reshape((-1, 1, 1)) if not param.channel_shared else scale
    piece.node("Mul", unit, piece.constant("scale", scale), to=piece.tops[0])
    return [Value(piece.tops[0], piece.shape)]


def softmax(piece: Piece) -> list[Value]:
    piece.expect(1)
    axis = piece.axis(piece.message.softmax_param.axis)
    return [Value(piece.node("Softmax", piece.inputs[0], to=piece.tops[0], axis=axis), piece.shape)]


def _scalar(number: float) -> np.ndarray:
    return np.array(number, np.float32)
