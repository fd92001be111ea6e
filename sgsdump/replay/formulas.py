"""Formulas of torch operators with their own error bounds: exact results, and the magnitude of errors.

Each function takes an operator's arguments by name (tensors in float64) and returns, for each output, the result and
the magnitude m of ``bounds.py``. Sources: docs/check.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sgsdump.replay.bounds import terms

if TYPE_CHECKING:
    from torch import Tensor

Arguments = Mapping[str, Any]
# None: an output that is not judged; a magnitude of None: the size of the result.
Outputs = list["tuple[Tensor, Tensor | None] | None"]
OF_A_FUNCTION = 4.0  # units in the last place that exp, log and similar functions may be off in float32
_RECIPROCAL_ROOT = 4.0


def _softmax(of: Arguments) -> Outputs:
    """Return exp(x - max) / sum.

    The error of the difference becomes an error of the factor; the sum has n terms. Along an axis other than the last,
    a kernel keeps exp(x - max) in the type of the values.
    """
    x, dim = of["self"], of["dim"]
    below, count = _below_largest(x, dim)
    result = below.exp() if not x.numel() else below.softmax(dim)
    return [(result, result * (terms(count) + 2 * OF_A_FUNCTION + of["narrow"] + below.abs().nan_to_num(posinf=0.0)))]


def _log_softmax(of: Arguments) -> Outputs:
    x, dim = of["self"], of["dim"]
    below, count = _below_largest(x, dim)
    sums = below.exp().sum(dim, keepdim=True)
    of_log = (
        terms(count)
        + 2 * OF_A_FUNCTION
        + (below.softmax(dim) * below.abs().nan_to_num(posinf=0.0)).sum(dim, keepdim=True)
    )
    # a kernel may keep the sum of the largest value and the logarithm in the type of the values
    shift = sums.log().abs() + (x.abs().amax(dim, keepdim=True) if x.numel() and x.ndim else x.abs())
    return [(below - sums.log(), of_log + (1 + of["narrow"]) * shift + 2 * below.abs() + x.abs())]


def _below_largest(x: Tensor, dim: int) -> tuple[Tensor, int]:
    if not x.numel() or not x.ndim:
        return x - x, 1
    return x - x.amax(dim, keepdim=True), x.shape[dim]


def _logsumexp(of: Arguments) -> Outputs:
    x, dim = of["self"], of["dim"]
    result = x.logsumexp(dim, of.get("keepdim", False))
    largest = x.abs().amax(dim, result.ndim == x.ndim)
    units = terms(_reduced(x, dim)) + 2 * OF_A_FUNCTION + largest
    return [(result, result.abs() + units + of["narrow"] * (2 + largest))]  # some kernels use the values' own type


def _layer_norm(of: Arguments) -> Outputs:
    x, dims = of["input"], len(of["normalized_shape"])
    axes = tuple(range(x.ndim - dims, x.ndim))
    weight, bias = of.get("weight"), of.get("bias")
    result, magnitude, mean, root = _normalised(x, axes, of["eps"])
    if weight is not None:
        result, magnitude = result * weight, magnitude * weight.abs()
    if bias is not None:
        result, magnitude = result + bias, magnitude + 4 * bias.abs()
    sums = terms(_reduced(x, axes))
    of_mean = sums * x.abs().mean(axes, keepdim=True)
    return [(result, magnitude), (mean, of_mean), (root, root * _of_root(x, mean, axes))]


def _group_norm(of: Arguments) -> Outputs:
    x, groups = of["input"], of["group"]
    grouped = x.reshape(of["N"], groups, -1)
    result, magnitude, mean, root = _normalised(grouped, (2,), of["eps"])
    result, magnitude = result.reshape(x.shape), magnitude.reshape(x.shape)
    by_channel = (1, -1, *[1] * (x.ndim - 2))
    weight, bias = of.get("weight"), of.get("bias")
    if weight is not None:
        magnitude = magnitude * weight.abs().reshape(by_channel)
        # computed as x * (root * weight) + (bias - mean * root * weight), which adds terms that cancel
        result = result * weight.reshape(by_channel)
    if bias is not None:
        result, magnitude = result + bias.reshape(by_channel), magnitude + 4 * bias.abs().reshape(by_channel)
    sums = terms(grouped.shape[2])
    shape = (of["N"], groups)
    return [
        (result, magnitude),
        (mean.reshape(shape), (sums * grouped.abs().mean(2)).reshape(shape)),
        (root.reshape(shape), (root * _of_root(grouped, mean, (2,))).reshape(shape)),
    ]


def _normalised(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean = x.mean(axes, keepdim=True)
    root = (x.var(axes, unbiased=False, keepdim=True) + eps).rsqrt()
    result = (x - mean) * root
    sums = terms(_reduced(x, axes))
    of_mean = sums * x.abs().mean(axes, keepdim=True)
    magnitude = result.abs() * (_of_root(x, mean, axes) + 4) + (x.abs() + mean.abs() + of_mean) * root * 2
    return result, magnitude, mean, root


def _of_root(x: Tensor, mean: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the relative error of 1 / sqrt(var + eps) in units: a sum of squares, with a slightly inexact mean."""
    variance = x.var(axes, unbiased=False, keepdim=True)
    away = (1 + mean.square() / variance.clamp_min(1e-300)).clamp_max(1e12)
    return terms(_reduced(x, axes)) * away.sqrt() + _RECIPROCAL_ROOT


def _rms_norm(of: Arguments) -> Outputs:
    x, dims = of["input"], len(of["normalized_shape"])
    axes = tuple(range(x.ndim - dims, x.ndim))
    eps = of.get("eps")
    root = (x.square().mean(axes, keepdim=True) + (2.0**-23 if eps is None else eps)).rsqrt()
    result = x * root
    if of.get("weight") is not None:
        result = result * of["weight"]
    units = terms(_reduced(x, axes)) / 2 + _RECIPROCAL_ROOT + 4
    return [(result, result.abs() * units), (root, root * units)]


def _batch_norm(of: Arguments) -> Outputs:
    import torch

    x = of["input"]
    axes = (0, *range(2, x.ndim))
    by_channel = (1, -1, *[1] * (x.ndim - 2))
    training = of.get("training", of.get("train", False)) or of.get("running_mean") is None
    if training:
        mean, variance = x.mean(axes), x.var(axes, unbiased=False)
        count = terms(_reduced(x, axes))
    else:
        mean, variance, count = of["running_mean"], of["running_var"], 0.0
    root = (variance + of["eps"]).rsqrt()
    scale = root if of.get("weight") is None else root * of["weight"]
    shift = -mean * scale if of.get("bias") is None else of["bias"] - mean * scale
    result = x * scale.reshape(by_channel) + shift.reshape(by_channel)
    bias = torch.zeros_like(mean) if of.get("bias") is None else of["bias"].abs()
    parts = (x.abs() + mean.abs().reshape(by_channel)) * scale.abs().reshape(by_channel) + bias.reshape(by_channel)
    if training:
        count *= 1 + float((mean.square() / variance.clamp_min(1e-300)).clamp_max(1e12).sqrt().amax())
    return [(result, parts * (8 + 2 * count)), None, None]


def _variance(of: Arguments) -> Outputs:
    return [_spread(of, is_root=False)]


def _deviation(of: Arguments) -> Outputs:
    return [_spread(of, is_root=True)]


def _variance_and_mean(of: Arguments) -> Outputs:
    return [_spread(of, is_root=False), _mean_of(of)]


def _deviation_and_mean(of: Arguments) -> Outputs:
    return [_spread(of, is_root=True), _mean_of(of)]


def _axes(of: Arguments) -> tuple[int, ...]:
    x, dim = of["self"], of.get("dim")
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(x.ndim))
    return tuple(dim) if isinstance(dim, Sequence) else (dim,)


def _spread(of: Arguments, is_root: bool) -> tuple[Tensor, Tensor]:
    x, axes, keep = of["self"], _axes(of), of.get("keepdim", False)
    correction = of.get("correction")
    if correction is None:
        correction = 1 if of.get("unbiased", True) else 0
    variance, mean = x.var(axes, correction=correction, keepdim=keep), x.mean(axes, keepdim=True)
    units = _of_root(x, mean, axes)
    units = 2 * (units if keep else units.reshape(variance.shape)) + 4
    result = variance.sqrt() if is_root else variance
    return result, result * units + 1e-300


def _mean_of(of: Arguments) -> tuple[Tensor, Tensor]:
    x, axes, keep = of["self"], _axes(of), of.get("keepdim", False)
    return x.mean(axes, keepdim=keep), x.abs().mean(axes, keepdim=keep) * terms(_reduced(x, axes))


def _norm(of: Arguments) -> Outputs:
    import torch

    x, axes, keep = of["self"], _axes(of), of.get("keepdim", False)
    order = of.get("ord", of.get("p", 2))
    result = torch.linalg.vector_norm(x, 2 if order is None else order, axes, keep)
    return [(result, result.abs() * (terms(_reduced(x, axes)) + 2 * OF_A_FUNCTION))]


def _product(of: Arguments) -> Outputs:
    x, dim, keep = of["self"], of.get("dim"), of.get("keepdim", False)
    result = x.prod() if dim is None else x.prod(dim, keep)
    count = terms(x.numel() if dim is None else x.shape[dim])
    return [(result, result.abs() * count * (1 + of["narrow"]))]  # some kernels multiply in the values' own type


def _running_product(of: Arguments) -> Outputs:
    result = of["self"].cumprod(of["dim"])
    return [(result, result.abs() * terms(of["self"].shape[of["dim"]]) * (1 + of["narrow"]))]


def _gelu(of: Arguments) -> Outputs:
    import torch

    x, how = of["self"], of.get("approximate", "none")
    result = torch.nn.functional.gelu(x, approximate=how)
    # x / 2 * (1 + erf(...)): for negative x the terms cancel
    return [(result, 4 * (x.abs().nan_to_num(posinf=0.0) if how == "none" else x.abs().nan_to_num(posinf=0.0) * 2))]


def _sine(of: Arguments) -> Outputs:
    return [(of["self"].sin(), 1 + 0 * of["self"])]


def _cosine(of: Arguments) -> Outputs:
    return [(of["self"].cos(), 1 + 0 * of["self"])]


def _hard_swish(of: Arguments) -> Outputs:
    import torch

    x = of["self"]
    return [(torch.nn.functional.hardswish(x), x.abs() * ((x.abs() + 3) / 6).clamp_max(2))]


def _hard_sigmoid(of: Arguments) -> Outputs:
    import torch

    return [(torch.nn.functional.hardsigmoid(of["self"]), ((of["self"].abs() + 3) / 6).clamp_max(2))]


def _elu(of: Arguments) -> Outputs:

    x = of["self"]
    alpha, scale, inner = of.get("alpha", 1.0), of.get("scale", 1.0), of.get("input_scale", 1.0)
    return _exponential_unit(x, alpha, scale, inner)


def _celu(of: Arguments) -> Outputs:
    return _exponential_unit(of["self"], of["alpha"], 1.0, 1 / of["alpha"])


def _exponential_unit(x: Tensor, alpha: float, scale: float, inner: float) -> Outputs:
    import torch

    result = torch.where(x > 0, x * scale, torch.expm1(x * inner) * (alpha * scale))
    return [(result, result.abs() + abs(alpha * scale))]


def _bilinear(of: Arguments) -> Outputs:
    return _interpolated(of, {3: "linear", 4: "bilinear", 5: "trilinear"}[of["self"].ndim])


def _bicubic(of: Arguments) -> Outputs:
    return _interpolated(of, "bicubic")


def _interpolated(of: Arguments, mode: str) -> Outputs:
    """Interpolate. The position between pixels is a rounded float32 too, so the error is a share of the neighbours."""
    import torch

    x, size = of["self"], of.get("output_size")
    scales = [scale for name in ("scales", "scales_d", "scales_h", "scales_w") if (scale := of.get(name))]
    factors = of.get("scale_factors")
    given = {"size": size} if factors is None else {"scale_factor": list(factors)}
    if scales and factors is None:
        given = {"scale_factor": scales} if _gives(x, scales, size) else {"size": size}
    result = torch.nn.functional.interpolate(
        x, mode=mode, align_corners=bool(of.get("align_corners")), recompute_scale_factor=False, **given
    )
    longest = max(*x.shape[2:], *result.shape[2:])
    largest = x.abs().amax(tuple(range(2, x.ndim)), keepdim=True)
    return [(result, 0 * result + (16 + 8 * longest) * largest)]


def _gives(x: Tensor, scales: Sequence[float], size: Sequence[int] | None) -> bool:
    made = [math.floor(length * scale) for length, scale in zip(x.shape[2:], scales)]
    return size is None or made == list(size)


def _attention(of: Arguments) -> Outputs:
    """Return softmax(q k^T * scale + mask) v; a kernel may keep the shares in the type of the values (``narrow``)."""
    import torch

    q, k, v = of["query"], of["key"], of["value"]
    if k.shape[-3] != q.shape[-3]:
        k, v = (side.repeat_interleave(q.shape[-3] // side.shape[-3], -3) for side in (k, v))
    scale = of.get("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    mask = of.get("attn_mask", of.get("attn_bias"))
    scores = q @ k.transpose(-2, -1) * scale
    sizes = q.abs() @ k.abs().transpose(-2, -1) * abs(scale)
    if of.get("is_causal"):
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        mask = causal if mask is None else mask
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    shares = scores.softmax(-1)
    off = terms(q.shape[-1]) * sizes + 4 * (scores - scores.amax(-1, keepdim=True)).abs().nan_to_num(posinf=0.0)
    # the error of a score counts in its own share and in the sum
    off = (shares * off).nan_to_num() + shares * (shares * off).nan_to_num().sum(-1, keepdim=True)
    narrow = of["narrow"]
    off = off + shares * (terms(k.shape[-2]) + 32 + 3 * narrow)
    result, magnitude = shares @ v, off @ v.abs()
    sums = scores.logsumexp(-1)
    return [(result, magnitude), (sums, sums.abs() * 4 + (shares * sizes).sum(-1) * terms(q.shape[-1]) + 40 + narrow)]


FORMULAS: Mapping[str, Callable[[Arguments], Outputs]] = {
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), _softmax),
    **dict.fromkeys(("_log_softmax", "log_softmax"), _log_softmax),
    "logsumexp": _logsumexp,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_fused_rms_norm": _rms_norm,
    **dict.fromkeys(
        (
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "batch_norm",
        ),
        _batch_norm,
    ),
    "var": _variance,
    "std": _deviation,
    "var_mean": _variance_and_mean,
    "std_mean": _deviation_and_mean,
    **dict.fromkeys(("linalg_vector_norm", "norm"), _norm),
    "prod": _product,
    "cumprod": _running_product,
    "gelu": _gelu,
    "sin": _sine,
    "cos": _cosine,
    "hardswish": _hard_swish,
    "hardsigmoid": _hard_sigmoid,
    **dict.fromkeys(("elu", "selu"), _elu),
    "celu": _celu,
    "upsample_bicubic2d": _bicubic,
    **dict.fromkeys(("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d"), _bilinear),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_attention_math",
        ),
        _attention,
    ),
}


def _reduced(x: Tensor, axes: int | Sequence[int]) -> int:
    if not x.ndim:
        return 1
    return math.prod(x.shape[axis] for axis in ((axes,) if isinstance(axes, int) else axes))
