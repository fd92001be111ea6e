"""Nets as they are met: a detector (SSD) and a ShuffleNet unit, whole, against OpenCV's Caffe importer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.caffe.nets import by_opencv, opened, ours, save

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig

RNG = np.random.default_rng(11)


def block(name: str, bottom: str, outputs: int, more: str) -> str:
    """Convolution, BatchNorm, Scale and ReLU, the last three in place, as Caffe nets are written."""
    return f"""
    layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
      convolution_param {{ num_output: {outputs} bias_term: false {more} }} }}
    layer {{ name: "{name}/bn" type: "BatchNorm" bottom: "{name}" top: "{name}" param {{ lr_mult: 0 }} }}
    layer {{ name: "{name}/scale" type: "Scale" bottom: "{name}" top: "{name}"
      scale_param {{ bias_term: true filler {{ value: 1 }} }} }}
    layer {{ name: "{name}/relu" type: "ReLU" bottom: "{name}" top: "{name}" }}
    """


def block_weights(name: str, shape: tuple[int, ...]) -> dict[str, list[np.ndarray]]:
    n = shape[0]
    return {
        name: [RNG.normal(0, 0.3, shape)],
        f"{name}/bn": [RNG.normal(0, 0.1, n) * 4, RNG.uniform(0.5, 1, n) * 4, np.array([4.0])],
        f"{name}/scale": [RNG.uniform(0.5, 1.5, n), RNG.normal(0, 0.1, n)],
    }


def head(name: str, bottom: str, outputs: int) -> str:
    return f"""
    layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
      convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 }} }}
    layer {{ name: "{name}_perm" type: "Permute" bottom: "{name}" top: "{name}_perm"
      permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
    layer {{ name: "{name}_flat" type: "Flatten" bottom: "{name}_perm" top: "{name}_flat" flatten_param {{ axis: 1 }} }}
    """


def prior(name: str, bottom: str, sizes: str) -> str:
    return f"""
    layer {{ name: "{name}_prior" type: "PriorBox" bottom: "{bottom}" bottom: "data" top: "{name}_prior"
      prior_box_param {{ {sizes} aspect_ratio: 2 flip: true clip: false variance: 0.1 variance: 0.1 variance: 0.2
      variance: 0.2 offset: 0.5 }} }}
    """


DETECTOR = (
    'name: "ssd"\ninput: "data"\ninput_shape { dim: 1 dim: 3 dim: 30 dim: 34 }\n'
    + block("c1", "data", 8, "kernel_size: 3 stride: 2 pad: 1")
    + block("dw", "c1", 8, "kernel_size: 3 pad: 1 group: 8 engine: CAFFE")
    + block("c2", "dw", 8, "kernel_size: 1")
    + 'layer { name: "pool" type: "Pooling" bottom: "c2" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }\n'
    + 'layer { name: "norm" type: "Normalize" bottom: "c2" top: "norm" norm_param { across_spatial: false '
    "channel_shared: false scale_filler { value: 20 } } }\n"
    + head("loc1", "norm", 12)
    + head("conf1", "norm", 9)
    + head("loc2", "pool", 12)
    + head("conf2", "pool", 9)
    + prior("p1", "norm", "min_size: 6")
    + prior("p2", "pool", "min_size: 12")
    + "".join(
        f'layer {{ name: "{name}" type: "Concat" {bottoms} top: "{name}" concat_param {{ axis: {axis} }} }}\n'
        for name, bottoms, axis in (
            ("loc", 'bottom: "loc1_flat" bottom: "loc2_flat"', 1),
            ("conf", 'bottom: "conf1_flat" bottom: "conf2_flat"', 1),
            ("prior", 'bottom: "p1_prior" bottom: "p2_prior"', 2),
        )
    )
    + 'layer { name: "conf_rows" type: "Reshape" bottom: "conf" top: "conf_rows" '
    "reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }\n"
    'layer { name: "conf_soft" type: "Softmax" bottom: "conf_rows" top: "conf_soft" softmax_param { axis: 2 } }\n'
)
DETECTOR_WEIGHTS = {
    **block_weights("c1", (8, 3, 3, 3)),
    **block_weights("dw", (8, 1, 3, 3)),
    **block_weights("c2", (8, 8, 1, 1)),
    "norm": [RNG.uniform(10, 20, 8)],
    **{name: [RNG.normal(0, 0.1, (12, 8, 3, 3)), RNG.normal(0, 0.1, 12)] for name in ("loc1", "loc2")},
    **{name: [RNG.normal(0, 0.1, (9, 8, 3, 3)), RNG.normal(0, 0.1, 9)] for name in ("conf1", "conf2")},
}
# As SSDs are published: the Softmax flattened, and boxes made of it all.
SSD = (
    DETECTOR
    + 'layer { name: "conf_flat" type: "Flatten" bottom: "conf_soft" top: "conf_flat" flatten_param { axis: 1 } }\n'
    'layer { name: "detection_out" type: "DetectionOutput" bottom: "loc" bottom: "conf_flat" bottom: "prior" '
    'top: "detection_out" include { phase: TEST } detection_output_param { num_classes: 3 share_location: true '
    "background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 100 } code_type: CENTER_SIZE keep_top_k: 50 "
    "confidence_threshold: 0.25 } }\n"
)
SHUFFLE = (
    'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 8 dim: 9 dim: 9 } } }\n'
    'layer { name: "slice" type: "Slice" bottom: "data" top: "left" top: "right" '
    "slice_param { slice_point: 4 axis: 1 } }\n"
    + block("b1", "right", 4, "kernel_size: 1")
    + block("b2", "b1", 4, "kernel_size: 3 pad: 1 group: 4")
    + 'layer { name: "join" type: "Concat" bottom: "left" bottom: "b2" top: "join" }\n'
    'layer { name: "shuffle" type: "ShuffleChannel" bottom: "join" top: "shuffle" '
    "shuffle_channel_param { group: 2 } }\n"
    'layer { name: "pool" type: "Pooling" bottom: "shuffle" top: "pool" '
    "pooling_param { pool: AVE kernel_size: 3 stride: 2 } }\n"
    'layer { name: "gap" type: "Pooling" bottom: "pool" top: "gap" pooling_param { pool: AVE global_pooling: true } }\n'
    'layer { name: "drop" type: "Dropout" bottom: "gap" top: "gap" }\n'
    'layer { name: "fc" type: "InnerProduct" bottom: "gap" top: "fc" inner_product_param { num_output: 5 } }\n'
    'layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }\n'
)
SHUFFLE_WEIGHTS = {
    **block_weights("b1", (4, 4, 1, 1)),
    **block_weights("b2", (4, 1, 3, 3)),
    "fc": [RNG.normal(0, 0.5, (5, 8)), RNG.normal(0, 0.1, 5)],
}
NETS = {
    "detector": (DETECTOR, DETECTOR_WEIGHTS, (1, 3, 30, 34), ["loc", "conf_soft", "prior"]),
    "ssd": (SSD, DETECTOR_WEIGHTS, (1, 3, 30, 34), ["loc", "conf_flat"]),
    "shuffle": (SHUFFLE, SHUFFLE_WEIGHTS, (2, 8, 9, 9), ["shuffle", "prob"]),
}


@pytest.mark.parametrize("name", NETS)
def test_a_net_computes_what_opencv_computes(name: str, tmp_path: Path) -> None:
    text, weights, shape, outputs = NETS[name]
    feed = {"data": RNG.normal(0, 1, shape).astype(np.float32)}
    model = opened(tmp_path, text, weights)
    result = ours(model, feed)
    for output, wanted in by_opencv(text, weights, feed, outputs).items():
        assert result[output].shape == wanted.shape
        np.testing.assert_allclose(result[output], wanted, rtol=1e-4, atol=1e-4)
    dumped = {layer.name: layer.array for layer in SegmentRunner(model).run(feed, model.blobs)}
    assert dumped.keys() == (model.blobs or set()) - {"data"}
    for output in outputs:
        np.testing.assert_array_equal(dumped[output], result[output])


@pytest.mark.parametrize("name", NETS)
def test_a_net_is_calibrated_and_simulated(name: str, tmp_path: Path) -> None:
    text, weights, shape, outputs = NETS[name]
    feed = {"data": RNG.normal(0, 1, shape).astype(np.float32)}
    simple = open_float_model(*save(tmp_path, text, weights), InputConfig(()))
    ranges = measure_ranges(simple, [("one", feed)])
    fixed = Model(make_fixed(simple, ranges).proto, simple.path)
    assert "BatchNormalization" not in {node.op_type for node in simple.proto.graph.node}
    values = [{r.name: r.tensor.real() for r in simulate(m, feed).records if r.io == "out"} for m in (simple, fixed)]
    common = set(outputs) & values[0].keys() & values[1].keys()
    assert common >= set(outputs) - {"prior"}  # what does not depend on the picture is folded away
    for output in common:
        a, b = (np.asarray(side[output], np.float64).ravel() for side in values)
        assert a @ b / np.sqrt((a @ a) * (b @ b)) > 0.99
