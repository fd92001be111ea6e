"""Files that are no Caffe model, or whose two halves do not fit: one clear line each, and no memory to speak of."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from models.caffe.nets import caffemodel, inputs_text, opened, save

from sgsdump.errors import ModelError
from sgsdump.models.caffe.layers import LAYERS, POST_PROCESSING
from sgsdump.models.caffe.schema import messages
from sgsdump.models.model import Model, open_model

INPUT = inputs_text({"data": (1, 4, 5, 6)})
CONV = 'layer { name: "conv" type: "Convolution" bottom: "data" top: "c" convolution_param { %s } }\n'
GOOD = INPUT + CONV % "num_output: 4 kernel_size: 3"
FILTER, BIAS = np.ones((4, 4, 3, 3), np.float32), np.ones(4, np.float32)


def one(kind: str, more: str = "", bottom: str = "data") -> str:
    return INPUT + f'layer {{ name: "x" type: "{kind}" bottom: "{bottom}" top: "y" {more} }}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (one("Foo"), r"line 2: layer 'x' \(Foo\) has an unknown type"),
        (one("Convolutoin"), r"has an unknown type; did you mean 'Convolution' or"),
        (one(""), r"line 2: layer 'x' \(no type\) has no type"),
        (
            one("DetectionOutput"),
            r"line 2: .*is post-processing, which sgsdump cuts off, and no other layer remains\. Give the net",
        ),
        (one("DetectionOutput", bottom="nobody"), "line 2: .*reads the blob 'nobody', which no layer computes"),
        (one("ReLU", bottom="nobody"), "line 2: .*reads the blob 'nobody', which no layer computes"),
        (
            one("ReLU", bottom="z") + 'layer { name: "z" type: "ReLU" bottom: "y" top: "z" }',
            "reads the blob 'z', which only the later layer 'z' computes; the network has a cycle",
        ),
        (one("ReLU", bottom="y"), "reads the blob 'y', which only the later layer 'x' computes"),
        (
            one("ReLU") + 'layer { name: "z" type: "ReLU" bottom: "data" top: "y" }',
            "line 3: .*'y', which already exists",
        ),
        (one("ReLU", 'bottom: "data"'), "takes 1 bottoms, but has 2"),
        (one("ReLU", 'top: "z"'), "has 1 top, but names 2"),
        (one("Data"), "line 2: .*reads a training data set; use the deploy prototxt"),
        (one("Softmax", "softmax_param { axis: 4 }"), "has the axis 4, which is not in an input of shape"),
        (one("Pooling"), "needs a kernel and a stride"),
        (one("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"), "STOCHASTIC pooling"),
        (one("Pooling", "pooling_param { kernel_size: 2 stride: 0 }"), "needs a kernel and a stride"),
        (one("Pooling", "pooling_param { kernel_size: 2 kernel_h: 2 }"), "Caffe allows only one of them"),
        (
            one("Pooling", "pooling_param { pool: BEST }"),
            "line 2 is not a prototxt of a Caffe net: .*no value named BEST",
        ),
        (one("Reshape", "reshape_param { shape { dim: 7 } }"), "cannot reshape"),
        (one("Reshape", "reshape_param { shape { dim: -1 dim: 0 dim: -1 } }"), "at most one may be -1"),
        (one("Slice", "slice_param { slice_point: 9 }"), "cannot cut"),
        (one("Eltwise", "eltwise_param { coeff: 1 }"), "takes 2 or more bottoms"),
        (one("Tile", "tile_param { tiles: 2000000000 }"), "at most 2.31 numbers"),
        (one("Interp"), "needs height and width"),
        (one("PriorBox", 'bottom: "data" prior_box_param { aspect_ratio: 2 }'), "needs a min_size"),
        (
            one("PriorBox", 'bottom: "data" prior_box_param { min_size: 1 }').replace(
                "dim: 5 dim: 6", "dim: 3000 dim: 3000"
            ),
            "would be a constant of 288,000,000 bytes",
        ),
        (one("BatchNorm", "batch_norm_param { use_global_stats: false }"), "for training"),
        (one("ReLU") + "}", "line 3 is not a prototxt"),
        (INPUT + "layer {" * 5000, "is not a prototxt of a Caffe net"),
        ("", "is empty"),
        ("hello world", "is not a prototxt"),
        ("name: 'net'", "it holds no layers"),
        ("layer { type: 'Input' top: 'data' }", "but gives 0"),
        ("input: 'data' layer { type: 'ReLU' bottom: 'data' top: 'y' }", "1 inputs but 0 input shapes"),
        (
            inputs_text({"data": (1, 0, 2, 2)}) + "layer { type: 'ReLU' bottom: 'data' top: 'y' }",
            "size must be 1 or more",
        ),
        (
            inputs_text({"data": (1 << 20, 1 << 20)}) + "layer { type: 'ReLU' bottom: 'data' top: 'y' }",
            "at most 2.31",
        ),
        (INPUT, "has no outputs"),
        ("layer { type: 'ReLU' bottom: 'data' top: 'y' }", "has no input"),
        (one("ReLU", "include { phase: TEST } exclude { phase: TRAIN }"), "only one kind"),
        (one("ReLU") + "layers { type: RELU bottom: 'y' top: 'z' }", "mixes 'layer' and 'layers'"),
        ("layers { layer { name: 'c' type: 'conv' } }", "upgrade_net_proto_text"),
        ("layers { type: 99 }", "is not a prototxt|has no type"),
    ],
)
def test_a_prototxt_that_makes_no_net(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        opened(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "net.prototxt" in str(caught.value)


@pytest.mark.parametrize(
    ("param", "blobs", "message"),
    [
        ("num_output: 4 kernel_size: 3", [FILTER], r"needs a bias of shape \[4\]; .*net.caffemodel has only 1 blobs"),
        ("num_output: 4 kernel_size: 3", [], "needs a filter of shape .*has only 0 blobs"),
        (
            "num_output: 5 kernel_size: 3",
            [FILTER, BIAS],
            r"needs a filter of shape \[5, 4, 3, 3\]; .*one of shape \[4, 4, 3, 3\]",
        ),
        ("num_output: 4 kernel_size: 3 group: 2", [FILTER, BIAS], r"needs a filter of shape \[4, 2, 3, 3\]"),
        (
            "num_output: 4 kernel_h: 9 kernel_w: 1",
            [FILTER, BIAS],
            r"needs a filter of shape \[4, 4, 9, 1\]; .*\[4, 4, 3, 3\]",
        ),
        ("num_output: 4 kernel_size: 3 group: 3", [FILTER, BIAS], "into 3 groups"),
        ("num_output: 4", [FILTER, BIAS], "needs kernel_size"),
        ("num_output: 4 kernel_size: 0", [FILTER, BIAS], "of 0"),
        ("num_output: 4 kernel_size: 3 stride: 1 stride: 1 stride: 1", [FILTER, BIAS], "gives 3 numbers for stride"),
        ("num_output: 4 kernel_size: 9", [np.ones((4, 4, 9, 9)), BIAS], "every size must be 1 or more"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, param: str, blobs: list[np.ndarray], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        opened(tmp_path, INPUT + CONV % param, {"conv": blobs})
    assert "line 2: layer 'conv' (Convolution)" in str(caught.value)


def test_missing_weights(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"'conv'.*has no weights in .*; it has 'conv1'; check that the two files belong together"
    ):
        opened(tmp_path, GOOD, {"conv1": [FILTER, BIAS]})
    prototxt, caffe = save(tmp_path, GOOD, {"conv": [FILTER, BIAS]})
    with pytest.raises(ModelError, match=r"'conv'.*has weights; give the .caffemodel with --weight-file"):
        open_model(prototxt)
    with pytest.raises(ModelError, match="no such weight file"):
        open_model(prototxt, tmp_path / "absent.caffemodel")
    assert open_model(prototxt, caffe).blobs == {"data", "c"}


def test_names_with_line_breaks_stay_on_one_line(tmp_path: Path) -> None:
    for kind in ("a\\nb", "DetectionOutput", "ReLU", "Data", "Input"):
        text = INPUT + f'layer {{ name: "x\\ny" type: "{kind}" bottom: "da\\nta" top: "z\\n" }}'
        assert try_open(*save(tmp_path, text)) is None


def test_two_layers_of_one_name_with_weights(tmp_path: Path) -> None:
    twice = GOOD + (CONV % "num_output: 4 kernel_size: 3").replace('top: "c"', 'top: "d"')
    with pytest.raises(ModelError, match=r"line 2: .*shares its name with another layer"):
        opened(tmp_path, twice, {"conv": [FILTER, BIAS]})


def test_files_in_each_others_place(tmp_path: Path) -> None:
    prototxt, caffe = save(tmp_path, GOOD, {"conv": [FILTER, BIAS]})
    with pytest.raises(ModelError, match=r"is not a prototxt, because it is not text; give the .prototxt as the model"):
        open_model(caffe, prototxt)
    with pytest.raises(ModelError, match="is text, not a caffemodel"):
        open_model(prototxt, prototxt)
    for wrong, message in (
        (b"", "is empty"),
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5"),
        (bytes(99), "is not a caffemodel"),
    ):
        caffe.write_bytes(wrong)
        with pytest.raises(ModelError, match=message):
            open_model(prototxt, caffe)
    renamed = tmp_path / "net.txt"
    renamed.write_text(inputs_text({"data": (1, 2)}) + 'layer { name: "x" type: "ReLU" bottom: "data" top: "y" }')
    assert open_model(renamed).blobs == {"data", "y"}


def test_onnx_takes_no_weight_file(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(ModelError, match="holds its own weights"):
        open_model(tmp_path / "m.onnx", tmp_path / "w.caffemodel")


def test_blobs_that_contradict_themselves(tmp_path: Path) -> None:
    prototxt, caffe = save(tmp_path, GOOD)
    net = messages()["WeightsNet"]()
    blob = net.layer.add(name=b"conv").blobs.add(data=[bytes(40)])
    blob.shape.dim.extend([4, 4, 3, 3])
    caffe.write_bytes(net.SerializeToString())
    with pytest.raises(ModelError, match=r"'conv': a blob has shape \[4, 4, 3, 3\] but holds 10 numbers"):
        open_model(prototxt, caffe)
    blob.data[0] = bytes(41)
    caffe.write_bytes(net.SerializeToString())
    with pytest.raises(ModelError, match="41 bytes ends within a value"):
        open_model(prototxt, caffe)


def try_open(prototxt: Path, caffe: Path) -> Model | None:
    """A model, or None where a one-line ModelError says why not; anything else fails the test."""
    try:
        return open_model(prototxt, caffe)
    except ModelError as error:
        assert "\n" not in str(error)
        return None


def test_a_caffemodel_cut_at_any_byte(tmp_path: Path) -> None:
    prototxt, caffe = save(tmp_path, GOOD, {"conv": [FILTER, BIAS]})
    whole = caffe.read_bytes()
    for end in range(len(whole)):
        caffe.write_bytes(whole[:end])
        assert try_open(prototxt, caffe) is None


def test_a_damaged_caffemodel_and_a_hostile_length(tmp_path: Path) -> None:
    prototxt, caffe = save(tmp_path, GOOD, {"conv": [FILTER, BIAS]})
    whole, rng = caffe.read_bytes(), random.Random(1)
    tracemalloc.start()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(60)] = rng.randrange(256)
        caffe.write_bytes(damaged)
        try_open(prototxt, caffe)
    for start in (b"\xa2\x06", b"\xa2\x06\x10\x3a", b"\x0a"):  # layer, a blob in it, the net's name
        caffe.write_bytes(start + b"\xff\xff\xff\xff\x07" + bytes(20))
        assert try_open(prototxt, caffe) is None
    huge = messages()["WeightsNet"]()
    huge.layer.add(name=b"conv").blobs.add(data=[b""]).shape.dim.extend([1 << 40, 1 << 40])
    caffe.write_bytes(huge.SerializeToString())
    assert try_open(prototxt, caffe) is None
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_damaged_prototxt(tmp_path: Path) -> None:
    text = (
        GOOD + 'layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: AVE kernel_size: 2 } }\n'
    )
    prototxt, caffe = save(tmp_path, text, {"conv": [FILTER, BIAS]})
    assert try_open(prototxt, caffe) is not None
    rng = random.Random(2)
    for _ in range(400):
        damaged = list(text)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(damaged))
            damaged[place : place + rng.randrange(3)] = rng.choice(["", "{", "}", '"', "-", "9", " ", "0", "é", "\\"])
        prototxt.write_text("".join(damaged), encoding="utf-8")
        try_open(prototxt, caffe)


def test_a_caffemodel_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    prototxt, caffe = save(tmp_path, GOOD)
    with open(caffe, "wb") as file:
        file.truncate(3 << 30)  # sparse: takes no room on the disk
    with pytest.raises(ModelError, match="more than the 2 GiB"):
        open_model(prototxt, caffe)


@pytest.mark.parametrize("kind", sorted({*LAYERS, *POST_PROCESSING}))
def test_every_type_without_parameters_or_with_odd_inputs(tmp_path: Path, kind: str) -> None:
    """No layer function ends in anything but a net or one line."""
    for shapes in (
        [()],
        [(3,)],
        [(2, 3)],
        [(1, 4, 5, 6)],
        [(1, 4, 5, 6), ()],
        [(1, 4, 5, 6), (4,)],
        [(1, 4, 5, 6)] * 3,
    ):
        feed = {f"in{i}": shape for i, shape in enumerate(shapes)}
        bottoms = " ".join(f'bottom: "{name}"' for name in feed)
        for tops in ('top: "y"', 'top: "y" top: "z"', ""):
            text = inputs_text(feed) + f'layer {{ name: "x" type: "{kind}" {bottoms} {tops} }}\n'
            try_open(*save(tmp_path, text, {"x": [np.ones(4, np.float32)] * 3}))


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    prototxt, caffe = save(tmp_path, GOOD)
    net = messages()["WeightsNet"].FromString(caffemodel({"conv": [FILTER, BIAS]}))
    net.layer.add(name=b"\xff\xfe")
    caffe.write_bytes(net.SerializeToString())
    assert try_open(prototxt, caffe) is not None
    prototxt.write_bytes("# 卷积\n".encode("gbk") + GOOD.encode())
    assert try_open(prototxt, caffe) is not None
