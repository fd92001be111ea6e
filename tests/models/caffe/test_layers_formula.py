"""What OpenCV's Caffe importer lacks or computes otherwise, against plain formulas in numpy.

Lacks: ArgMax, Reduction, Tile, Bias, BN, Clip, Upsample, Axpy, CReLU, Threshold, Reorg, DummyData, Interp by
shrink_factor, pads or a second bottom, 3-D convolution, the mask of MAX pooling, slice_dim, concat_dim, a Permute order
that leaves axes out.
Otherwise: LRN's k, the base of Log, InnerProduct's transpose, the dilation of Deconvolution, Scale's bias beside a
second bottom and PriorBox's img_size are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.caffe.nets import inputs_text, opened, ours

from sgsdump.errors import ModelError

RNG = np.random.default_rng(7)
X = RNG.normal(0, 1, (2, 6, 9, 11)).astype(np.float32)
ONE = RNG.normal(0, 1, (2, 6)).astype(np.float32)
SIX = RNG.normal(0, 1, 6).astype(np.float32)
EVEN = RNG.normal(0, 1, (2, 8, 4, 6)).astype(np.float32)
NINE = RNG.normal(0, 1, (1, 18, 6, 3)).astype(np.float32)
Array = np.ndarray


def run(
    folder: Path, kind: str, body: str, bottoms: Sequence[Array], blobs: Sequence[Array] = (), tops: int = 1
) -> list[Array]:
    feed = {f"in{i}": array for i, array in enumerate(bottoms)}
    text = inputs_text({name: array.shape for name, array in feed.items()})
    text += f'layer {{ name: "it" type: "{kind}" ' + " ".join(f'bottom: "{name}"' for name in feed)
    text += " " + " ".join(f'top: "out{i}"' for i in range(tops)) + f" {body} }}\n"
    result = ours(opened(folder, text, {"it": blobs} if blobs else None), feed)
    return [result[f"out{i}"] for i in range(tops)]


def interpolated(x: Array, height: int, width: int) -> Array:
    """Bilinear with the corners on the corners."""
    for axis, size in ((2, height), (3, width)):
        old = x.shape[axis]
        at = np.arange(size) * ((old - 1) / (size - 1) if size > 1 else 0)
        low = np.minimum(at.astype(int), old - 1)
        part = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = x.take(low, axis) * (1 - part) + x.take(np.minimum(low + 1, old - 1), axis) * part
    return x


def reorganised(x: Array, stride: int) -> Array:
    """Darknet's reorg_cpu, forwards, one number after the other."""
    n, c, h, w = x.shape
    out, flat, few = np.zeros(x.size, np.float32), x.ravel(), c // stride**2
    for b, k, j, i in np.ndindex(n, c, h, w):
        column, row = i * stride + k // few % stride, j * stride + k // few // stride
        out[i + w * (j + h * (k + c * b))] = flat[column + w * stride * (row + h * stride * (k % few + few * b))]
    return out.reshape(n, c * stride**2, h // stride, w // stride)


def reduced(operation: Callable[[Array], Array]) -> Array:
    return 0.5 * operation(X.reshape(2, 6, -1).astype(np.float64))


def lrn(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    padded = np.pad(x.astype(np.float64) ** 2, ((0, 0), (size // 2,) * 2, (0, 0), (0, 0)))
    total = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    return x / (k + alpha / size * total) ** beta


def normalized(x: Array) -> Array:
    return x / np.sqrt((x.astype(np.float64) ** 2).sum(axis=(1, 2, 3), keepdims=True) + 0.5)


CASES = {
    "bias": ("Bias", "", [X], [SIX], lambda: X + SIX[:, None, None]),
    "bias_tail": ("Bias", "bias_param { axis: 2 num_axes: -1 }", [X], [X[0, 0]], lambda: X + X[0, 0]),
    "bias_two": ("Bias", "bias_param { axis: 0 }", [X, ONE], [], lambda: X + ONE[:, :, None, None]),
    "bias_one_number": ("Bias", "bias_param { num_axes: 0 }", [X], [SIX[:1]], lambda: X + SIX[0]),
    "scale_one_number": ("Scale", "scale_param { num_axes: 0 }", [X], [SIX[:1]], lambda: X * SIX[0]),
    "scale_two_bias": (
        *("Scale", "scale_param { bias_term: true }", [X, SIX], [SIX]),
        lambda: X * SIX[:, None, None] + SIX[:, None, None],
    ),
    "clip": ("Clip", "clip_param { min: -0.3 max: 0.5 }", [X], [], lambda: X.clip(-0.3, 0.5)),
    "tile": ("Tile", "tile_param { axis: 2 tiles: 3 }", [X], [], lambda: np.tile(X, (1, 1, 3, 1))),
    "log_base": (
        *("Log", "log_param { base: 2 scale: 0.5 shift: 9 }", [X], []),
        lambda: np.log2(9 + 0.5 * X),
    ),
    "sum": ("Reduction", "reduction_param { axis: 2 coeff: 0.5 }", [X], [], lambda: reduced(lambda v: v.sum(2))),
    "asum": (
        *("Reduction", "reduction_param { operation: ASUM axis: 2 coeff: 0.5 }", [X], []),
        lambda: reduced(lambda v: abs(v).sum(2)),
    ),
    "sumsq": (
        *("Reduction", "reduction_param { operation: SUMSQ axis: -2 coeff: 0.5 }", [X], []),
        lambda: reduced(lambda v: (v * v).sum(2)),
    ),
    "mean": (
        *("Reduction", "reduction_param { operation: MEAN axis: 2 coeff: 0.5 }", [X], []),
        lambda: reduced(lambda v: v.mean(2)),
    ),
    "sum_of_all": ("Reduction", "", [X], [], lambda: np.asarray(X.astype(np.float64).sum())),
    "lrn_k": (
        *("LRN", "lrn_param { local_size: 3 alpha: 0.7 beta: 0.6 k: 2 }", [X], []),
        lambda: lrn(X, 3, 0.7, 0.6, 2),
    ),
    "lrn_defaults": ("LRN", "", [X], [], lambda: lrn(X, 5, 1, 0.75, 1)),
    "fc_transposed": (
        *(
            "InnerProduct",
            "inner_product_param { num_output: 2 axis: -1 transpose: true }",
            [X],
            [X[0, 0, :2].T, SIX[:2]],
        ),
        lambda: X @ X[0, 0, :2].T + SIX[:2],
    ),
    "normalize": (
        *("Normalize", "norm_param { channel_shared: false eps: 0.5 }", [X], [SIX]),
        lambda: normalized(X) * SIX[:, None, None],
    ),
    "interp_shrink": ("Interp", "interp_param { shrink_factor: 2 }", [X], [], lambda: interpolated(X, 5, 6)),
    "interp_both": (
        *("Interp", "interp_param { zoom_factor: 3 shrink_factor: 2 pad_beg: -1 pad_end: -2 }", [X], []),
        lambda: interpolated(X[:, :, 1:-2, 1:-2], 7, 10),
    ),
    "interp_cut": (
        *("Interp", "interp_param { height: 7 width: 9 pad_beg: -1 pad_end: -1 }", [X], []),
        lambda: X[:, :, 1:-1, 1:-1],
    ),
    "interp_like": ("Interp", "", [X, X[:, :, :5, :4]], [], lambda: interpolated(X, 5, 4)),
    "upsample": ("Upsample", "upsample_param { scale: 3 }", [X], [], lambda: X.repeat(3, 2).repeat(3, 3)),
    "upsample_pairs": (
        *("Upsample", "upsample_param { scale_h: 1 scale_w: 4 }", [X], []),
        lambda: X.repeat(4, 3),
    ),
    "concat_dim": (
        *("Concat", "concat_param { concat_dim: 2 }", [X, X[:, :, :1]], []),
        lambda: np.concatenate([X, X[:, :, :1]], 2),
    ),
    "permute_some": (
        *("Permute", "permute_param { order: 0 order: 3 }", [X], []),
        lambda: X.transpose(0, 3, 1, 2),
    ),
    "reshape_inserts": (
        *("Reshape", "reshape_param { axis: -2 num_axes: 0 shape { dim: 1 dim: 1 } }", [X], []),
        lambda: X[:, :, :, None, None],
    ),
    "reshape_appends": (
        *("Reshape", "reshape_param { axis: -1 num_axes: 0 shape { dim: 1 } }", [X], []),
        lambda: X[..., None],
    ),
    "reshape_tail": ("Reshape", "reshape_param { axis: 2 shape { dim: -1 } }", [X], [], lambda: X.reshape(2, 6, 99)),
    "flatten_middle": (
        *("Flatten", "flatten_param { axis: 1 end_axis: 2 }", [X], []),
        lambda: X.reshape(2, 54, 11),
    ),
    "batch_norm_no_count": (
        *("BatchNorm", "batch_norm_param { eps: 0.5 }", [X], [SIX, abs(SIX), SIX[:1] * 0]),
        lambda: X / math.sqrt(0.5),
    ),
    "bn_folded": (
        *("BN", "bn_param { bn_mode: INFERENCE }", [X], [SIX.reshape(1, 6, 1, 1), SIX[::-1]]),
        lambda: X * SIX[:, None, None] + SIX[::-1, None, None],
    ),
    "bn": (
        *("BN", "bn_param { frozen: true eps: 0.5 }", [X], [SIX, SIX[::-1], ONE[0], abs(ONE[1])]),
        lambda: (
            (X - ONE[0][:, None, None]) / np.sqrt(abs(ONE[1])[:, None, None] + 0.5) * SIX[:, None, None]
            + SIX[::-1, None, None]
        ),
    ),
    "argmax": ("ArgMax", "argmax_param { axis: 1 }", [X], [], lambda: X.argmax(1)[:, None]),
    "power_zero": ("Power", "power_param { power: 0 scale: 3 }", [X], [], lambda: np.ones_like(X)),
    "power_nothing": ("Power", "", [X], [], lambda: X),
    "axpy": ("Axpy", "", [ONE, X, X[::-1]], [], lambda: ONE[:, :, None, None] * X + X[::-1]),
    "axpy_pooled": ("Axpy", "", [ONE[:, :, None, None], X, X], [], lambda: ONE[:, :, None, None] * X + X),
    "crelu": ("CReLU", "", [X], [], lambda: np.concatenate([X.clip(0), (-X).clip(0)], 1)),
    "crelu_leaky": (
        *("CReLU", "crelu_param { negative_slope: 0.5 concat_axis: 2 }", [X], []),
        lambda: np.concatenate([np.maximum(X, X / 2), np.maximum(-X, -X / 2)], 2),
    ),
    "threshold": ("Threshold", "threshold_param { threshold: 0.5 }", [X], [], lambda: X > 0.5),
    "threshold_zero": ("Threshold", "", [X.clip(0)], [], lambda: X > 0),
    "reorg": ("Reorg", "reorg_param { stride: 2 }", [EVEN], [], lambda: reorganised(EVEN, 2)),
    "reorg_3": ("Reorg", "reorg_param { stride: 3 }", [NINE], [], lambda: reorganised(NINE, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_computes_its_formula(name: str, tmp_path: Path) -> None:
    kind, body, bottoms, blobs, formula = CASES[name]
    (result,) = run(tmp_path, kind, body, bottoms, blobs)
    wanted = formula()
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def caffe_argmax(row: Array, top_k: int) -> list[tuple[float, int]]:
    """Caffe: partial_sort of (value, place) with greater: of equals the last place first."""
    return sorted(((float(v), i) for i, v in enumerate(row)), reverse=True)[:top_k]


@pytest.mark.parametrize("out_max_val", [False, True])
@pytest.mark.parametrize("top_k", [1, 3])
def test_argmax_of_whole_samples_and_of_equal_values(tmp_path: Path, top_k: int, out_max_val: bool) -> None:
    x = np.round(X)
    flag = str(out_max_val).lower()
    (result,) = run(tmp_path, "ArgMax", f"argmax_param {{ top_k: {top_k} out_max_val: {flag} }}", [x])
    pairs = [caffe_argmax(sample.ravel(), top_k) for sample in x]
    wanted = [[[place for _, place in row], [value for value, _ in row]] for row in pairs]
    np.testing.assert_array_equal(result, np.array(wanted)[:, : 1 + out_max_val])
    (result,) = run(tmp_path, "ArgMax", f"argmax_param {{ axis: 2 top_k: {top_k} out_max_val: {flag} }}", [x])
    wanted = [[[caffe_argmax(x[n, c, :, w], top_k) for w in range(11)] for c in range(6)] for n in range(2)]
    np.testing.assert_array_equal(result, np.array(wanted)[..., 0 if out_max_val else 1].transpose(0, 1, 3, 2))


def test_convolution_in_three_dimensions(tmp_path: Path) -> None:
    x = RNG.normal(0, 1, (1, 2, 4, 5, 6)).astype(np.float32)
    filters = RNG.normal(0, 1, (3, 2, 2, 3, 2)).astype(np.float32)
    body = "convolution_param { num_output: 3 kernel_size: 2 kernel_size: 3 kernel_size: 2 bias_term: false }"
    (result,) = run(tmp_path, "Convolution", body, [x], [filters])
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (2, 3, 2), axis=(1, 2, 3))
    np.testing.assert_allclose(result[0], np.einsum("cdhwijk,ocijk->odhw", windows, filters), rtol=1e-4, atol=1e-4)


def test_deconvolution_with_dilation(tmp_path: Path) -> None:
    x, filters = X[:1, :, :3, :4], RNG.normal(0, 1, (6, 2, 3, 3)).astype(np.float32)
    body = "convolution_param { num_output: 4 kernel_size: 3 stride: 2 dilation: 2 pad: 1 group: 2 bias_term: false }"
    (result,) = run(tmp_path, "Deconvolution", body, [x], [filters])
    wanted = np.zeros((4, 2 * 2 + 5, 2 * 3 + 5))
    for c in range(6):
        for i, j in np.ndindex(3, 4):
            for p, q in np.ndindex(3, 3):
                for o in range(2):
                    wanted[c // 3 * 2 + o, 2 * i + 2 * p, 2 * j + 2 * q] += x[0, c, i, j] * filters[c, o, p, q]
    np.testing.assert_allclose(result[0], wanted[:, 1:-1, 1:-1], rtol=1e-4, atol=1e-4)


def test_pooling_mask_and_upsample_put_the_largest_back(tmp_path: Path) -> None:
    text = inputs_text({"in": X.shape}) + (
        'layer { name: "pool" type: "Pooling" bottom: "in" top: "pool" top: "mask" '
        "pooling_param { kernel_size: 2 stride: 2 } }\n"
        'layer { name: "up" type: "Upsample" bottom: "pool" bottom: "mask" top: "up" '
        "upsample_param { scale: 2 pad_out_h: true pad_out_w: true } }\n"
    )
    result = ours(opened(tmp_path, text), {"in": X})
    wanted = np.zeros_like(X)
    for n, c, i, j in np.ndindex(result["pool"].shape):
        window = X[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        p, q = np.unravel_index(window.argmax(), window.shape)
        wanted[n, c, 2 * i + p, 2 * j + q] = window.max()
        assert result["mask"][n, c, i, j] == (2 * i + p) * 11 + 2 * j + q
    np.testing.assert_array_equal(result["up"], wanted)


def test_slices_by_the_old_name(tmp_path: Path) -> None:
    results = run(tmp_path, "Slice", "slice_param { slice_dim: 1 slice_point: 1 slice_point: 5 }", [X], tops=3)
    for result, wanted in zip(results, (X[:, :1], X[:, 1:5], X[:, 5:])):
        np.testing.assert_array_equal(result, wanted)


def test_prior_boxes_one_by_one(tmp_path: Path) -> None:
    body = (
        "prior_box_param { min_size: 30 min_size: 20 max_size: 60 max_size: 50 aspect_ratio: 2 aspect_ratio: 2 "
        "aspect_ratio: 0.5 img_h: 50 img_w: 40 step_h: 3 step_w: 4 offset: 0.3 }"
    )
    (result,) = run(tmp_path, "PriorBox", body, [X[:1], X[:1, :3]])
    wanted = []
    for row in range(9):
        for column in range(11):
            x, y = (column + 0.3) * 4, (row + 0.3) * 3
            for least, most in ((30, 60), (20, 50)):
                sides = [(least, least), (math.sqrt(least * most),) * 2]
                sides += [(least * math.sqrt(r), least / math.sqrt(r)) for r in (2, 0.5)]
                for w, h in sides:
                    wanted += [(x - w / 2) / 40, (y - h / 2) / 50, (x + w / 2) / 40, (y + h / 2) / 50]
    assert result.shape == (1, 2, len(wanted))
    np.testing.assert_allclose(result[0, 0], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result[0, 1], np.full(len(wanted), 0.1, np.float32))


def caffe_pooling(x: Array, kind: str, kernel: int, stride: int, pad: int, up: bool) -> Array | None:
    """pooling_layer.cpp, number by number, along both axes alike. None where a window would hold nothing."""
    sizes = []
    for size in x.shape:
        steps = (size + 2 * pad - kernel) / stride
        out = int(math.ceil(steps) if up else math.floor(steps)) + 1
        if pad and (out - 1) * stride >= size + pad:
            out -= 1
        sizes.append(out)
    if min(sizes) < 1:
        return None
    result = np.empty(sizes)
    for place in np.ndindex(*sizes):
        begins = [i * stride - pad for i in place]
        ends = [min(begin + kernel, size + pad) for begin, size in zip(begins, x.shape)]
        area = math.prod(end - begin for begin, end in zip(begins, ends))
        window = x[tuple(slice(max(b, 0), min(e, size)) for b, e, size in zip(begins, ends, x.shape))]
        if not window.size:
            return None
        result[place] = window.max() if kind == "MAX" else window.sum() / area
    return result


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["MAX", "AVE"]),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 5),
    st.data(),
    st.booleans(),
)
def test_pooling_geometry(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    height: int,
    width: int,
    kernel: int,
    stride: int,
    data: st.DataObject,
    up: bool,
) -> None:
    pad = data.draw(st.integers(0, kernel - 1))
    x = np.random.default_rng(height * 10 + width).normal(0, 1, (height, width)).astype(np.float32)
    wanted = caffe_pooling(x.astype(np.float64), kind, kernel, stride, pad, up)
    body = f"pool: {kind} kernel_size: {kernel} stride: {stride} pad: {pad} "
    # The first is in forks, the second in Caffe's own last version.
    body += f"ceil_mode: {str(up).lower()}" if stride % 2 else f"round_mode: {'CEIL' if up else 'FLOOR'}"
    body = f"pooling_param {{ {body} }}"
    folder = tmp_path_factory.mktemp("pool")
    if wanted is None:
        with pytest.raises(ModelError, match="window outside its input"):
            run(folder, "Pooling", body, [x[None, None]])
        return
    (result,) = run(folder, "Pooling", body, [x[None, None]])
    assert result.shape[2:] == wanted.shape
    np.testing.assert_allclose(result[0, 0], wanted, rtol=1e-4, atol=1e-4)
