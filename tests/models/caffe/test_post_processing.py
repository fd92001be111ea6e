"""Where a net that ends in post-processing is cut, and what goes with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.caffe.nets import inputs_text, opened, ours, save
from models.caffe.test_whole_nets import DETECTOR_WEIGHTS, SSD

from sgsdump.errors import ConfigError
from sgsdump.models.model import Model, PostProcessingCut, graph_inputs, open_model

INPUTS = inputs_text({"data": (1, 3, 8, 8), "im_info": (1, 3)})
PRIOR = "prior_box_param { min_size: 4 variance: 0.1 }"


def layer(kind: str, bottoms: str, tops: str, more: str = "") -> str:
    """A layer called as its first top is."""
    names = " ".join([f'bottom: "{name}"' for name in bottoms.split()] + [f'top: "{name}"' for name in tops.split()])
    return f'layer {{ name: "{tops.split()[0]}" type: "{kind}" {names} {more} }}\n'


def cut_of(model: Model) -> PostProcessingCut:
    assert model.cut is not None
    return model.cut


def outputs_of(model: Model) -> list[str]:
    return [output.name for output in model.proto.graph.output]


def test_an_ssd_ends_in_what_depends_on_the_picture(tmp_path: Path) -> None:
    model = opened(tmp_path, SSD, DETECTOR_WEIGHTS)
    assert model.cut == PostProcessingCut(
        first=("detection_out", "DetectionOutput"),
        layers=("p1_prior", "p2_prior", "prior", "detection_out"),
        blobs=frozenset({"p1_prior", "p2_prior", "prior", "detection_out"}),
        outputs=("loc", "conf_flat"),
    )
    assert outputs_of(model) == ["loc", "conf_flat"]
    staged = open_model(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", staged_outputs=[])
    assert staged.cut == model.cut
    assert outputs_of(staged) == ["loc", "conf_flat"]


def test_a_net_without_post_processing_is_whole(tmp_path: Path) -> None:
    prior = opened(tmp_path, INPUTS + layer("ReLU", "data", "a") + layer("PriorBox", "a data", "prior", PRIOR))
    assert prior.cut is None
    assert outputs_of(prior) == ["a", "prior"]


def test_post_processing_amid_a_net_takes_what_follows_it(tmp_path: Path) -> None:
    """Faster R-CNN: the features are read by the first half, and by the second."""
    text = (
        INPUTS
        + layer("ReLU", "data", "features")
        + layer("Softmax", "features", "score")
        + layer("AbsVal", "features", "box")
        + layer("Proposal", "score box im_info", "rois")
        + layer("ROIPooling", "features rois", "pooled")
        + layer("InnerProduct", "pooled", "fc", "inner_product_param { num_output: 4 }")
        + layer("ReLU", "fc", "fc").replace('name: "fc"', 'name: "relu"')
        + layer("Sigmoid", "features", "mask")
    )
    model = opened(tmp_path, text)
    cut = cut_of(model)
    assert cut.first == ("rois", "Proposal")
    assert cut.layers == ("rois", "pooled", "fc", "relu")
    assert cut.blobs == {"im_info", "rois", "pooled", "fc"}
    assert cut.outputs == ("features", "score", "box", "mask")
    assert [spec.name for spec in graph_inputs(model.proto)] == ["data"]
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(ours(model, {"data": x})["features"], x.clip(0))
    staged = open_model(tmp_path / "net.prototxt", staged_outputs=[])
    assert set(outputs_of(staged)) == set(outputs_of(model)) == {*cut.outputs}


def test_an_output_written_in_place_keeps_its_name(tmp_path: Path) -> None:
    """In both namings: what the post-processing reads is the last value of the blob."""
    text = (
        inputs_text({"data": (1, 3, 8, 8)})
        + layer("Power", "data", "a", "power_param { shift: 1 }")
        + layer("ReLU", "a", "a").replace('name: "a"', 'name: "relu"')
        + layer("AbsVal", "a", "b")
        + layer("RegionOutput", "a b", "boxes")
    )
    save(tmp_path, text)
    x = np.random.default_rng(0).normal(0, 2, (1, 3, 8, 8)).astype(np.float32)
    for staged in (None, [], ["a"], ["a", "b"]):
        model = open_model(tmp_path / "net.prototxt", staged_outputs=staged)
        assert cut_of(model).outputs == ("a", "b")
        assert set(outputs_of(model)) == {"a", "b"}
        np.testing.assert_allclose(ours(model, {"data": x})["a"], (x + 1).clip(0), rtol=1e-6)
    assert outputs_of(open_model(tmp_path / "net.prototxt", staged_outputs=["b"])) == ["b"]


@pytest.mark.parametrize(
    ("layers", "kept", "outputs"),
    [
        # what feeds a PriorBox alone goes with it
        (
            layer("ReLU", "data", "a")
            + layer("AbsVal", "a", "size")
            + layer("PriorBox", "size data", "prior", PRIOR)
            + layer("DetectionOutput", "a prior", "boxes"),
            ["a"],
            ("a",),
        ),
        # a PriorBox that a layer computes with stays
        (
            layer("Flatten", "data", "a")
            + layer("PriorBox", "data data", "prior", PRIOR)
            + layer("Slice", "prior", "p q", "slice_param { axis: 1 }")
            + layer("Eltwise", "p q", "sum")
            + layer("Concat", "sum sum", "both", "concat_param { axis: 2 }")
            + layer("Flatten", "both", "flat")
            + layer("Concat", "a flat", "c")
            + layer("DetectionOutput", "c prior", "boxes"),
            ["a", "both", "c", "flat", "p", "prior", "q", "sum"],
            ("c",),
        ),
        # one of a layer's two tops
        (
            layer("Slice", "data", "a b", "slice_param { slice_point: 1 }")
            + layer("ReLU", "b", "c")
            + layer("YoloV3DetectionOutput", "a", "boxes"),
            ["a", "b", "c"],
            ("a", "c"),
        ),
        # two heads
        (
            layer("ReLU", "data", "a")
            + layer("RegionOutput", "a", "x")
            + layer("AbsVal", "a", "b")
            + layer("Yolov3DetectionOutput", "b", "y"),
            ["a", "b"],
            ("a", "b"),
        ),
    ],
)
def test_what_stays(tmp_path: Path, layers: str, kept: list[str], outputs: tuple[str, ...]) -> None:
    model = opened(tmp_path, INPUTS + layers)
    assert sorted((model.blobs or set()) - {"data", "im_info"}) == kept
    assert cut_of(model).outputs == outputs
    assert set(outputs_of(model)) == set(outputs)


def test_an_output_that_went_is_refused_with_those_to_write(tmp_path: Path) -> None:
    save(tmp_path, SSD, DETECTOR_WEIGHTS)
    files = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    with pytest.raises(ConfigError, match=r"names 'detection_out', but .*write outputs = loc,conf_flat;") as caught:
        open_model(*files, staged_outputs=["loc", "detection_out"])
    assert "\n" not in str(caught.value)
    # a blob further up is an output as of any net
    assert set(outputs_of(open_model(*files, staged_outputs=["conf"]))) == {"conf", "loc", "conf_flat"}
