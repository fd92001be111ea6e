"""Old models are lifted to what can be quantised: the same function under the same names, or one line that says why."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_nets import conv, model, node, residual_net, run_all, weights

from sgsdump.errors import ModelError
from sgsdump.models.passes.lift import IR_VERSION, OPSET, lift, opset_of
from sgsdump.models.passes.rewrites import fold_constants


def as_ir_3(proto):
    """Weights listed among the inputs, as IR version 3 wants them."""
    proto.ir_version = 3
    for tensor in proto.graph.initializer:
        proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return proto


def feed(shape=(1, 3, 8, 8)):
    return {"data": np.random.default_rng(0).normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize("opset", range(7, OPSET))
def test_a_lifted_model_computes_the_same_under_the_same_names(opset):
    proto = as_ir_3(residual_net(opset).proto)
    lifted = lift(proto)
    assert (opset_of(lifted), lifted.ir_version) == (OPSET, IR_VERSION)
    assert [entry.name for entry in lifted.graph.input] == ["data"]
    before, after = run_all(proto, feed()), run_all(lifted, feed())
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize("opset", range(7, OPSET))
def test_a_batch_normalisation_stays_one_that_is_not_trained(opset):
    norm = {f"b.{name}": np.linspace(0.5, 2, 4, dtype=np.float32) for name in "sbmv"}
    nodes = [conv("c", "data"), node("BatchNormalization", ["c", *norm], "y")]
    proto = model(nodes, {**weights("c", (4, 3, 1, 1)), **norm}, {"data": (1, 3, 8, 8)}, ["y"], opset).proto
    lifted = lift(proto)
    assert [(n.op_type, len(n.output)) for n in lifted.graph.node] == [("Conv", 1), ("BatchNormalization", 1)]
    np.testing.assert_array_equal(run_all(lifted, feed())["y"], run_all(proto, feed())["y"])


def test_what_needs_no_lifting_is_handed_on():
    proto = residual_net(OPSET).proto
    assert lift(proto) is proto


def test_only_the_ir_version_of_a_new_opset_is_lifted():
    lifted = lift(as_ir_3(residual_net(17).proto))
    assert (opset_of(lifted), lifted.ir_version, len(lifted.graph.input)) == (17, IR_VERSION, 1)


@pytest.mark.parametrize(("window", "softmaxes"), [([8, 8], ["Softmax"]), ([4, 4], ["Flatten", "Softmax", "Reshape"])])
def test_a_softmax_stays_one_operator_where_one_axis_decides(window, softmaxes):
    nodes = [
        conv("c", "data"),
        node("AveragePool", ["c"], "p", kernel_shape=window),
        node("Softmax", ["p"], "y", axis=1),
    ]
    proto = model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["y"], 9).proto
    lifted = lift(proto)
    assert [n.op_type for n in lifted.graph.node[2:]] == softmaxes
    assert {entry.domain for entry in lifted.opset_import} <= {"", "ai.onnx"}
    expected, actual = run_all(proto, feed())["y"], run_all(lifted, feed())["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def sizes(*spatial):
    return np.array([1, 1, *spatial], np.float32)


ENLARGED, REDUCED = sizes(2, 1.5), sizes(0.4, 0.5)
NOT_BY_THE_CONVERTER = [
    *[(7, "Upsample", {}, {"mode": mode, "scales": ENLARGED.tolist()}) for mode in ("nearest", "linear")],
    *[(9, "Upsample", {"s": ENLARGED}, {"mode": mode}) for mode in ("nearest", "linear")],
    *[
        (10, "Resize", {"s": scales}, {"mode": mode})
        for mode in ("nearest", "linear")
        for scales in (ENLARGED, REDUCED)
    ],
    *[(10, "Pad", {}, {"mode": mode, "pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 0.0}) for mode in ("reflect", "edge")],
    *[(12, "Hardmax", {}, {"axis": axis}) for axis in (1, 2)],
]


@pytest.mark.parametrize(("opset", "op_type", "inputs", "attributes"), NOT_BY_THE_CONVERTER)
def test_what_the_converter_stops_at_or_gets_wrong_is_lifted_all_the_same(opset, op_type, inputs, attributes):
    nodes = [
        conv("c", "data"),
        node(op_type, ["c", *inputs], "r", **attributes),
        node("Softmax", ["r"], "y", axis=2),
    ]
    given = {**weights("c", (4, 3, 1, 1)), **inputs}
    proto = as_ir_3(model(nodes, given, {"data": (1, 3, 8, 8)}, ["r", "y"], opset).proto)
    lifted = lift(proto)
    onnx.checker.check_model(lifted)
    before, after = run_all(proto, feed()), run_all(lifted, feed())
    assert {"c", "r", "y"} <= after.keys()
    for name in ("c", "r", "y"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("opset", "op_type"), [(9, "Upsample"), (10, "Resize")])
def test_what_stands_in_a_body_is_lifted_too(opset, op_type):
    inner = node(op_type, ["c", "s"], "inner", mode="linear")
    branches = {}
    for name in ("then_branch", "else_branch"):
        nodes = [onnx.NodeProto.FromString(inner.SerializeToString()), node("Relu", ["inner"], "out")]
        unknown = onnx.helper.make_tensor_value_info("out", 1, None)
        branches[name] = onnx.helper.make_graph(nodes, name, [], [unknown])
    given = {**weights("c", (4, 3, 1, 1)), "s": ENLARGED, "yes": np.array(True)}
    proto = model(
        [conv("c", "data"), node("If", ["yes"], "y", **branches)], given, {"data": (1, 3, 8, 8)}, ["y"], opset
    )
    before, after = run_all(proto.proto, feed()), run_all(lift(proto.proto), feed())
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-5, atol=1e-6)


EXPERIMENTS = [
    ("Affine", {"alpha": 1.5, "beta": -0.5}),
    ("Crop", {"border": [1, 2, 3, 0]}),
    ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 4]}),
    ("ImageScaler", {"scale": 0.5, "bias": [1.0, 2.0, 3.0, 4.0]}),
    ("ParametricSoftplus", {"alpha": 0.5, "beta": 2.0}),
    ("ScaledTanh", {"alpha": 0.5, "beta": 2.0}),
]


@pytest.mark.parametrize(("op_type", "attributes"), EXPERIMENTS)
def test_operators_that_onnx_tried_and_gave_up_are_lifted(op_type, attributes):
    nodes = [conv("c", "data"), node(op_type, ["c"], "x", **attributes), node("Relu", ["x"], "y")]
    proto = as_ir_3(model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["y"], 8).proto)
    lifted = lift(proto)
    before, after = run_all(proto, feed()), run_all(lifted, feed())
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-6)


def test_a_model_without_an_opset_is_refused():
    proto = residual_net(9).proto
    del proto.opset_import[:]
    with pytest.raises(ModelError, match=r"names no opset: it is older than ONNX 1\.0; export it again"):
        lift(proto)


def test_a_nearest_resize_of_opset_10_that_no_single_one_means_is_refused():
    nodes = [node("Resize", ["data", "s"], "y", mode="nearest")]
    proto = model(nodes, {"s": sizes(2, 0.5)}, {"data": (1, 3, 8, 8)}, ["y"], 10).proto
    with pytest.raises(ModelError, match=r"^'y' is a nearest Resize of opset 10 .* export the model at opset 15"):
        lift(proto)


def test_a_model_that_cannot_be_converted_is_refused_in_one_line():
    proto = model([node("NoSuchOperator", ["data"], "y")], {}, {"data": (1, 3)}, ["y"], 9).proto
    with pytest.raises(ModelError, match=r"^the model has opset 9, but quantisation needs opset 15.*[^\n]*$"):
        lift(proto)


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet", "light_resnet50"])
def test_architectures_that_onnx_ships_can_be_lifted(name):
    proto = onnx.load(Path(onnx.__file__).parent / f"backend/test/data/light/{name}.onnx")
    assert (opset_of(proto), proto.ir_version) == (9, 3)
    simple = fold_constants(proto)
    lifted = lift(simple)
    assert [n.output[0] for n in lifted.graph.node] == [n.output[0] for n in simple.graph.node]
    ort.InferenceSession(lifted.SerializeToString())
