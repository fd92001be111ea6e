"""What of a prototxt becomes part of the model: forms, phases, inputs, losses, in-place layers, names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models.caffe.nets import caffemodel, inputs_text, opened, ours

from sgsdump.errors import ModelError
from sgsdump.models.caffe.net import read_net
from sgsdump.models.caffe.schema import messages
from sgsdump.models.caffe.weights import read_weights
from sgsdump.models.model import Model, graph_inputs, open_model

X = np.random.default_rng(3).normal(0, 1, (1, 4, 5, 6)).astype(np.float32)
INPUT = inputs_text({"data": X.shape})
FILTER = np.random.default_rng(4).normal(0, 1, (4, 4, 1, 1)).astype(np.float32)
BIAS = np.arange(4, dtype=np.float32)
CONV = (
    'layer { name: "conv" type: "Convolution" bottom: "data" top: "c" '
    "convolution_param { num_output: 4 kernel_size: 1 } }\n"
)
CONVOLVED = np.einsum("oi,nihw->nohw", FILTER[:, :, 0, 0], X) + BIAS[:, None, None]


def layer(kind: str, bottom: str, top: str, name: str = "", more: str = "") -> str:
    bottoms = " ".join(f'bottom: "{b}"' for b in bottom.split())
    tops = " ".join(f'top: "{t}"' for t in top.split())
    return f'layer {{ name: "{name or top}" type: "{kind}" {bottoms} {tops} {more} }}\n'


def checked(model: Model) -> Model:
    onnx.checker.check_model(model.proto, full_check=True)
    return model


def test_in_place_layers_leave_the_last_value_under_the_blobs_name(tmp_path: Path) -> None:
    text = INPUT + CONV + layer("ReLU", "c", "c", "relu") + layer("Dropout", "c", "c", "drop")
    text += layer("AbsVal", "c", "before") + layer("Power", "c", "c", "twice", "power_param { scale: 2 }")
    model = checked(opened(tmp_path, text, {"conv": [FILTER, BIAS]}))
    assert model.blobs == {"data", "c", "before"}
    assert model.overwritten == {"conv", "relu"}
    result = ours(model, {"data": X})
    np.testing.assert_allclose(result["conv"], CONVOLVED, atol=1e-5)
    np.testing.assert_allclose(result["relu"], CONVOLVED.clip(0), atol=1e-5)
    np.testing.assert_allclose(result["before"], CONVOLVED.clip(0), atol=1e-5)
    np.testing.assert_allclose(result["c"], 2 * CONVOLVED.clip(0), atol=1e-5)
    assert [o.name for o in model.proto.graph.output] == ["before", "c"]


def test_a_layer_called_as_its_blob_says_both_names(tmp_path: Path) -> None:
    text = INPUT + layer("AbsVal", "data", "c", "c") + layer("ReLU", "c", "c", "relu") + layer("TanH", "c", "c", "tanh")
    model = checked(opened(tmp_path, text))
    assert model.blobs == {"data", "c"}
    assert model.overwritten == {"c@c", "relu"}
    result = ours(model, {"data": X})
    np.testing.assert_allclose(result["c@c"], abs(X))
    np.testing.assert_allclose(result["c"], np.tanh(abs(X)), atol=1e-6)


def test_an_input_written_over_keeps_its_name_for_the_feed(tmp_path: Path) -> None:
    text = INPUT + layer("Power", "data", "data", "norm", "power_param { scale: 2 }") + layer("AbsVal", "data", "out")
    model = checked(opened(tmp_path, text))
    assert [spec.name for spec in graph_inputs(model.proto)] == ["data"]
    assert model.blobs == {"data", "norm", "out"}
    np.testing.assert_allclose(ours(model, {"data": X})["out"], abs(2 * X))


def test_split_needs_no_node_and_dropout_only_its_name(tmp_path: Path) -> None:
    text = INPUT + layer("Split", "data", "a b", "split") + layer("Dropout", "a", "d")
    model = checked(opened(tmp_path, text + layer("Eltwise", "d b", "sum")))
    assert [(n.op_type, list(n.input), n.output[0]) for n in model.proto.graph.node] == [
        ("Identity", ["data"], "d"),
        ("Add", ["d", "data"], "sum"),
    ]


def test_v1_form_reads_as_the_new_one(tmp_path: Path) -> None:
    old = """
    name: "old"
    input: "data" input_dim: 1 input_dim: 4 input_dim: 5 input_dim: 6
    layers { name: "conv" type: CONVOLUTION bottom: "data" top: "c" blobs_lr: 1 weight_decay: 0
             convolution_param { num_output: 4 kernel_size: 1 } }
    layers { name: "relu" type: RELU bottom: "c" top: "c" }
    layers { name: "prob" type: SOFTMAX bottom: "c" top: "prob" }
    layers { name: "loss" type: SOFTMAX_LOSS bottom: "c" bottom: "label" include { phase: TRAIN } }
    """
    net = messages()["WeightsNet"]()
    stored = net.layers.add(name=b"conv")
    for array, shape in ((FILTER, (4, 4, 1, 1)), (BIAS, (1, 1, 1, 4))):
        blob = stored.blobs.add(data=[array.tobytes()])
        blob.num, blob.channels, blob.height, blob.width = shape
    (tmp_path / "old.prototxt").write_text(old)
    (tmp_path / "old.caffemodel").write_bytes(net.SerializeToString())
    result = ours(checked(open_model(tmp_path / "old.prototxt", tmp_path / "old.caffemodel")), {"data": X})
    np.testing.assert_allclose(result["c"], CONVOLVED.clip(0), atol=1e-5)
    np.testing.assert_allclose(result["prob"].sum(1), 1, rtol=1e-5)


def test_the_first_of_two_layers_of_a_name_in_a_caffemodel_counts(tmp_path: Path) -> None:
    path = tmp_path / "twice.caffemodel"
    path.write_bytes(b"".join(caffemodel({"scale": [np.array([value])]}) for value in (2.0, 3.0)))
    blobs = read_weights(path).blobs("scale")
    assert blobs is not None and [blob.values.tolist() for blob in blobs] == [[2.0]]


@pytest.mark.parametrize("encoding", ["unpacked", "double", "half", "in two packs"])
def test_every_encoding_of_the_numbers(tmp_path: Path, encoding: str) -> None:
    net = messages()["WeightsNet"]()
    stored = net.layer.add(name=b"conv")
    for array in (FILTER, BIAS):
        blob = stored.blobs.add()
        blob.shape.dim.extend(array.shape)
        raw = array.astype("<f4").tobytes()
        if encoding == "unpacked":  # field 5, wire type 5: one key before each number
            packed = b"".join(b"\x2d" + raw[i : i + 4] for i in range(0, len(raw), 4))
            blob.MergeFromString(packed)
        elif encoding == "double":
            blob.double_data.append(array.astype("<f8").tobytes())
        elif encoding == "half":
            blob.raw_data, blob.raw_data_type = array.astype("<f2").tobytes(), 2
        else:
            blob.data.extend([raw[:8], raw[8:]])
    (tmp_path / "net.prototxt").write_text(INPUT + CONV)
    (tmp_path / "net.caffemodel").write_bytes(net.SerializeToString())
    result = ours(open_model(tmp_path / "net.prototxt", tmp_path / "net.caffemodel"), {"data": X})
    np.testing.assert_allclose(result["c"], CONVOLVED, atol=2e-2 if encoding == "half" else 1e-5)
    caffe = open_model(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", staged_outputs=["c"]).caffe
    assert caffe is not None
    assert caffe.other_weights == (("conv",) if encoding in ("double", "half") else ())


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ("", True),
        ("include { phase: TEST }", True),
        ("include { phase: TRAIN }", False),
        ("exclude { phase: TEST }", False),
        ("exclude { phase: TRAIN }", True),
        ("include { phase: TRAIN } include { phase: TEST }", True),
        ("include { phase: TEST stage: 'deploy' }", False),
        ("include { phase: TEST not_stage: 'deploy' }", True),
        ("exclude { stage: 'deploy' }", True),
        ("include { min_level: 1 }", False),
        ("include { max_level: 0 }", True),
        ("exclude { min_level: 0 max_level: 3 }", False),
        ("phase: TRAIN", True),
    ],
)
def test_phase_rules(tmp_path: Path, rules: str, kept: bool) -> None:
    model = opened(tmp_path, INPUT + layer("ReLU", "data", "a") + layer("AbsVal", "a", "b", more=rules))
    assert ("b" in (model.blobs or ())) == kept


def test_the_nets_own_state_counts(tmp_path: Path) -> None:
    text = (
        "state { level: 2 stage: 'deploy' }\n" + INPUT + layer("ReLU", "data", "a", more="include { stage: 'deploy' }")
    )
    text += layer("AbsVal", "a", "b", more="include { min_level: 2 not_stage: 'val' }")
    assert opened(tmp_path, text).blobs == {"data", "a", "b"}


def test_losses_and_their_labels_are_left_out(tmp_path: Path) -> None:
    text = inputs_text({"data": X.shape, "label": (1,)}) + layer("Softmax", "data", "prob")
    text += layer("SoftmaxWithLoss", "data label", "loss") + layer("Accuracy", "prob label", "accuracy")
    text += 'layer { name: "quiet" type: "Silence" bottom: "label" }\n'
    model = checked(opened(tmp_path, text))
    assert [spec.name for spec in graph_inputs(model.proto)] == ["data"]
    assert model.blobs == {"data", "prob"}


def test_a_loss_that_is_read_is_refused(tmp_path: Path) -> None:
    text = inputs_text({"data": X.shape, "label": (1,)}) + layer("EuclideanLoss", "data label", "loss")
    with pytest.raises(ModelError, match=r"line 3: layer 'loss' \(EuclideanLoss\) has an unknown type"):
        opened(tmp_path, text + layer("Power", "loss", "more"))


def test_ways_to_write_inputs(tmp_path: Path) -> None:
    body = layer("Eltwise", "a b", "c")
    shape = "shape { dim: 1 dim: 2 dim: 3 dim: 4 }"
    for text in (
        "input: 'a' input: 'b' " + "input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 " * 2,
        "input: 'a' input: 'b' " + "input_shape { dim: 1 dim: 2 dim: 3 dim: 4 } " * 2,
        f"layer {{ name: 'in' type: 'Input' top: 'a' top: 'b' input_param {{ {shape} }} }}",
        f"layer {{ name: 'in' type: 'DummyData' top: 'a' top: 'b' dummy_data_param {{ {shape} {shape} }} }}",
        "layer { name: 'in' type: 'DummyData' top: 'a' top: 'b' "
        "dummy_data_param { num: 1 channels: 2 height: 3 width: 4 data_filler { type: 'gaussian' } } }",
    ):
        model = opened(tmp_path, text + "\n" + body)
        assert [(s.name, s.shape) for s in graph_inputs(model.proto)] == [("a", (1, 2, 3, 4)), ("b", (1, 2, 3, 4))]


def test_dummy_data_beside_an_input_is_a_constant(tmp_path: Path) -> None:
    text = INPUT + layer(
        "DummyData", "", "k", more="dummy_data_param { shape { dim: 4 } data_filler { type: 'constant' value: 3 } }"
    )
    model = checked(opened(tmp_path, text.replace('bottom: ""', "") + layer("Scale", "data k", "out")))
    assert [spec.name for spec in graph_inputs(model.proto)] == ["data"]
    np.testing.assert_allclose(ours(model, {"data": X})["out"], 3 * X, rtol=1e-6)


def test_line_numbers_count_comments_strings_and_nesting(tmp_path: Path) -> None:
    text = "# layer { not one }\nname: 'layer { }'\n" + INPUT + 'layer {\n  name: "a"\n  type: "ReLU" # }\n'
    text += '  bottom: "data" top: "a"\n}\n\nlayer: <\n name: "b" type: "AbsVal" bottom: "a" top: "b" >\n'
    (tmp_path / "net.prototxt").write_text(text)
    net = read_net(tmp_path / "net.prototxt")
    assert [item.where.partition(" line ")[2].split(":")[0] for item in net.layers] == ["4", "10"]


def test_layers_in_a_list(tmp_path: Path) -> None:
    text = INPUT + 'layer: [ { name: "a" type: "ReLU" bottom: "data" top: "a" },\n'
    text += ' { name: "b" type: "AbsVal" bottom: "a" top: "b" } ]'
    assert opened(tmp_path, text).blobs == {"data", "a", "b"}


def test_names_that_would_meet(tmp_path: Path) -> None:
    """Blobs called as the constants of another layer are, and two layers of one name without weights."""
    text = INPUT + CONV.replace('top: "c"', 'top: "conv_bias"') + layer("ReLU", "conv_bias", "conv_filter", "x")
    text += layer("Reshape", "conv_filter", "r", "x", "reshape_param { shape { dim: 0 dim: -1 } }")
    text += layer("Reshape", "r", "s", "x", "reshape_param { shape { dim: 0 dim: 4 dim: -1 } }")
    result = ours(checked(opened(tmp_path, text, {"conv": [FILTER, BIAS]})), {"data": X})
    np.testing.assert_allclose(result["s"].reshape(X.shape), CONVOLVED.clip(0), atol=1e-5)
