"""Every layer type that OpenCV's Caffe importer has, against it: small random nets, all numbers to 1e-4."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from models.caffe.nets import by_opencv, inputs_text, opened, ours


class Case(NamedTuple):
    """``body``: the layer's type and parameters. ``blobs``: shapes of its weights; "+" makes them positive."""

    name: str
    kind: str
    body: str = ""
    blobs: tuple[object, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ((2, 6, 9, 11),)
    tops: int = 1
    positive: bool = False


CASES = [
    Case("conv", "Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", ((4, 6, 3, 3), (4,))),
    Case(
        "conv with everything",
        "Convolution",
        "convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 2 pad_w: 1 group: 2 "
        "dilation: 2 }",
        ((4, 3, 3, 2), (4,)),
    ),
    Case(
        "conv without bias, a size per axis",
        "Convolution",
        "convolution_param { num_output: 4 kernel_size: 3 kernel_size: 1 pad: 1 pad: 0 stride: 1 stride: 3 "
        "bias_term: false engine: CUDNN weight_filler { type: 'msra' } }",
        ((4, 6, 3, 1),),
    ),
    Case(
        "depthwise",
        "Convolution",
        "convolution_param { num_output: 6 group: 6 kernel_size: 3 pad: 1 }",
        ((6, 1, 3, 3), (6,)),
    ),
    Case(
        "deconv",
        "Deconvolution",
        "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 }",
        ((6, 4, 4, 4), (4,)),
    ),
    Case(
        "deconv in groups",
        "Deconvolution",
        "convolution_param { num_output: 6 kernel_h: 4 kernel_w: 3 stride_h: 2 stride_w: 3 group: 6 bias_term: false }",
        ((6, 1, 4, 3),),
    ),
    Case("fc", "InnerProduct", "inner_product_param { num_output: 5 }", ((5, 6 * 9 * 11), (5,))),
    Case("fc axis", "InnerProduct", "inner_product_param { num_output: 5 axis: 2 }", ((5, 99), (5,))),
    Case("relu", "ReLU"),
    Case("leaky", "ReLU", "relu_param { negative_slope: 0.1 }"),
    Case("prelu", "PReLU", "", ((6,),)),
    Case("prelu shared", "PReLU", "prelu_param { channel_shared: true }", ((1,),)),
    Case("elu", "ELU", "elu_param { alpha: 1 }"),
    Case("sigmoid", "Sigmoid"),
    Case("tanh", "TanH"),
    Case("absval", "AbsVal"),
    Case("bnll", "BNLL"),
    Case("relu6", "ReLU6"),
    Case("batchnorm", "BatchNorm", "batch_norm_param { eps: 0.001 }", ((6,), "+6", "+1")),
    Case("batchnorm global", "BatchNorm", "batch_norm_param { use_global_stats: true }", ((6,), "+6", "+1")),
    Case("scale", "Scale", "", ((6,),)),
    Case("scale bias", "Scale", "scale_param { bias_term: true }", ((6,), (6,))),
    Case("scale last", "Scale", "scale_param { axis: 3 bias_term: true }", ((11,), (11,))),
    Case("scale two axes", "Scale", "scale_param { num_axes: 2 bias_term: true }", ((6, 9), (6, 9))),
    Case("scale all axes", "Scale", "scale_param { axis: 0 num_axes: -1 }", ((2, 6, 9, 11),)),
    Case("scale two channels", "Scale", "", (), ((2, 6, 9, 11), (6,))),
    Case("scale two", "Scale", "scale_param { axis: 0 }", (), ((2, 6, 9, 11), (2, 6))),
    Case("sum", "Eltwise", "", (), ((2, 6, 9, 11),) * 2),
    Case("sum coeff", "Eltwise", "eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }", (), ((2, 6, 9, 11),) * 3),
    Case("prod", "Eltwise", "eltwise_param { operation: PROD }", (), ((2, 6, 9, 11),) * 3),
    Case("max", "Eltwise", "eltwise_param { operation: MAX }", (), ((2, 6, 9, 11),) * 3),
    Case("concat", "Concat", "", (), ((2, 6, 9, 11), (2, 1, 9, 11), (2, 3, 9, 11))),
    Case("concat axis", "Concat", "concat_param { axis: -1 }", (), ((2, 6, 9, 11), (2, 6, 9, 2))),
    Case("slice", "Slice", "", (), tops=3),
    Case("slice points", "Slice", "slice_param { axis: 2 slice_point: 1 slice_point: 5 }", (), tops=3),
    Case("softmax", "Softmax"),
    Case("softmax axis", "Softmax", "softmax_param { axis: 3 }"),
    Case("flatten", "Flatten"),
    Case("flatten some", "Flatten", "flatten_param { axis: 2 end_axis: -1 }"),
    Case("flatten the front", "Flatten", "flatten_param { axis: 0 end_axis: 1 }"),
    Case("reshape", "Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 22 } }"),
    Case("reshape axes", "Reshape", "reshape_param { shape { dim: 3 dim: 2 } axis: 1 num_axes: 1 }"),
    Case("permute", "Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    Case("crop last", "Crop", "crop_param { axis: -1 offset: 3 }", (), ((2, 6, 9, 11), (1, 1, 1, 4))),
    Case("crop", "Crop", "crop_param { offset: 1 }", (), ((2, 6, 9, 11), (2, 6, 4, 5))),
    Case(
        "crop each", "Crop", "crop_param { axis: 1 offset: 2 offset: 0 offset: 3 }", (), ((2, 6, 9, 11), (2, 3, 4, 5))
    ),
    Case("dropout", "Dropout", "dropout_param { dropout_ratio: 0.3 }"),
    Case("lrn", "LRN", "lrn_param { local_size: 3 alpha: 0.7 beta: 0.6 }"),
    Case("lrn five", "LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"),
    Case("lrn within", "LRN", "lrn_param { local_size: 3 alpha: 0.7 beta: 0.6 norm_region: WITHIN_CHANNEL }"),
    Case("power", "Power", "power_param { power: 2 scale: 0.5 shift: -1 }"),
    Case("power roots", "Power", "power_param { power: 0.5 shift: 1 }", (), positive=True),
    Case("power affine", "Power", "power_param { scale: 0.5 shift: 3 }"),
    Case("exp", "Exp", "exp_param { base: 2 scale: 0.5 shift: 0.3 }"),
    Case("exp plain", "Exp"),
    Case("log", "Log", positive=True),
    Case("normalize", "Normalize", "norm_param { across_spatial: false channel_shared: false }", ((6,),)),
    Case("normalize all", "Normalize", "norm_param { channel_shared: true }", ((1,),), ((1, 6, 9, 11),)),
    Case("interp size", "Interp", "interp_param { height: 17 width: 5 }"),
    Case("interp to one", "Interp", "interp_param { height: 1 width: 1 }"),
    Case("interp zoom", "Interp", "interp_param { zoom_factor: 3 }"),
    Case("shuffle", "ShuffleChannel", "shuffle_channel_param { group: 3 }"),
    Case(
        "priors",
        "PriorBox",
        "prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 aspect_ratio: 3 flip: true clip: false "
        "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 step: 8 offset: 0.5 }",
        (),
        ((1, 6, 9, 11), (1, 3, 72, 88)),
    ),
    Case(
        "priors clipped",
        "PriorBox",
        "prior_box_param { min_size: 30.5 aspect_ratio: 2 flip: false clip: true variance: 0.1 }",
        (),
        ((1, 6, 9, 11), (1, 3, 70, 90)),
    ),
    Case("max pool", "Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"),
    Case("max pool padded", "Pooling", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }", (), ((2, 6, 8, 11),)),
    Case(
        "max pool pairs",
        "Pooling",
        "pooling_param { kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 3 pad_w: 1 pad_h: 0 }",
    ),
    Case("ave pool", "Pooling", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }", (), ((2, 6, 9, 11),)),
    Case(
        "ave pool padded",
        "Pooling",
        "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }",
        (),
        ((2, 6, 9, 10),),
    ),
    Case("ave pool cut", "Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", (), ((2, 6, 8, 8),)),
    Case("max pool cut", "Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 3 pad: 1 }", (), ((2, 6, 8, 8),)),
    Case("ave pool same", "Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }"),
    Case("global ave", "Pooling", "pooling_param { pool: AVE global_pooling: true }"),
    Case("global max", "Pooling", "pooling_param { pool: MAX global_pooling: true }"),
]


def random(case: Case) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs and weights, the same on every run."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    feed = {f"in{i}": rng.normal(0, 1, shape).astype(np.float32) for i, shape in enumerate(case.shapes)}
    if case.positive:
        feed = {name: np.abs(array) for name, array in feed.items()}
    blobs = []
    for shape in case.blobs:
        if isinstance(shape, str):
            blobs.append(rng.uniform(0.5, 2, int(shape[1:])).astype(np.float32))
        else:
            blobs.append(rng.normal(0, 0.5, shape).astype(np.float32))
    return feed, blobs


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "_") for case in CASES])
def test_a_layer_computes_what_opencv_computes(case: Case, tmp_path: Path) -> None:
    feed, blobs = random(case)
    # OpenCV calls an output by its layer's name, and wants every top of a layer read.
    tops = ["it"] if case.tops == 1 else [f"top{i}" for i in range(case.tops)]
    outputs = ["it"] if case.tops == 1 else [f"out{i}" for i in range(case.tops)]
    bottoms = " ".join(f'bottom: "{name}"' for name in feed)
    text = inputs_text({name: array.shape for name, array in feed.items()})
    text += f'layer {{ name: "it" type: "{case.kind}" {bottoms} '
    text += " ".join(f'top: "{top}"' for top in tops) + f" {case.body} }}\n"
    for top, output in zip(tops, outputs):
        if top != output:
            text += f'layer {{ name: "{output}" type: "AbsVal" bottom: "{top}" top: "{output}" }}\n'
    weights = {"it": blobs} if blobs else None
    result = ours(opened(tmp_path, text, weights), feed)
    wanted = by_opencv(text, weights, feed, outputs)
    for output in outputs:
        assert result[output].shape == wanted[output].shape
        np.testing.assert_allclose(result[output], wanted[output], rtol=1e-4, atol=1e-4)
