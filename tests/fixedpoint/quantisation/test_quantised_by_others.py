"""A network that onnxruntime quantised beside its float network: what is linked, what is switched, and the figures of
onnxruntime's own qdq_loss_debug."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import qdq_loss_debug
from quantised_nets import Feeds, quantise
from small_nets import residual_net

from sgsdump.errors import ModelError
from sgsdump.fixedpoint.quantisation.others.compared import ComparedNetworks, compared_networks
from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair, QuantisedWeight, float_proto
from sgsdump.fixedpoint.quantisation.others.quantisers import SEVEN_BITS, LeftFloat, quantiser_of, words
from sgsdump.fixedpoint.quantisation.others.trial import SwitchedNetwork
from sgsdump.models.model import open_model
from sgsdump.models.quantised_model import QuantisedModel


def feeds(count: int = 4):
    return [
        {"data": np.random.default_rng(seed).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for seed in range(count)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by_others")
    onnx.save(residual_net().proto, folder / "net.onnx")
    for way in ("QDQ", "QDQ per channel", "QOperator", "dynamic"):
        quantise(folder / "net.onnx", folder / f"{way}.onnx", feeds(), way)
    return folder


def pair_of(folder: Path, way: str) -> QuantisedPair:
    return QuantisedPair(float_proto(open_model(folder / "net.onnx")), open_model(folder / f"{way}.onnx").proto)


def outputs_of(path: Path, feed: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options).run(None, feed)[0]


@pytest.mark.parametrize("way", ["QDQ", "QDQ per channel"])
def test_all_switches_on_is_the_quantised_network_and_all_off_the_float_one(folder, way):
    network = SwitchedNetwork(pair_of(folder, way))
    assert not network.left_out and len(network.tensors) == 11 and len(network.weights) == 8
    for feed in feeds(2):
        on, off = network.run(feed, network.names)["prob"], network.run(feed, ())["prob"]
        np.testing.assert_array_equal(on, outputs_of(folder / f"{way}.onnx", feed))
        np.testing.assert_allclose(off, outputs_of(folder / "net.onnx", feed), rtol=1e-6)


@pytest.mark.parametrize("way", ["QOperator", "dynamic"])
def test_other_forms_are_near_what_the_switches_make_of_them(folder, way):
    network = SwitchedNetwork(pair_of(folder, way))
    (feed,) = feeds(1)
    true, real = outputs_of(folder / f"{way}.onnx", feed), outputs_of(folder / "net.onnx", feed)
    assert np.abs(network.run(feed, network.names)["prob"] - true).max() < 0.5 * np.abs(true - real).max() + 2 / 255


def test_a_switch_alone_quantises_its_tensor_alone(folder):
    """By numpy: only what the softmax makes is rounded."""
    network = SwitchedNetwork(pair_of(folder, "QDQ"))
    (feed,) = feeds(1)
    real = outputs_of(folder / "net.onnx", feed)
    quant = next(tensor.quant for tensor in network.tensors if tensor.name == "prob")
    steps = np.clip(np.rint(real / np.float32(quant.scale)) + quant.zero_point, -128, 127) - quant.zero_point
    np.testing.assert_allclose(network.run(feed, ["prob"])["prob"], steps * np.float32(quant.scale), atol=1e-7)


def compared(folder: Path, way: str) -> tuple[QuantisedPair, ComparedNetworks]:
    models = open_model(folder / "net.onnx"), open_model(folder / f"{way}.onnx")
    pair = pair_of(folder, way)
    return pair, compared_networks(pair, models, [(str(i), feed) for i, feed in enumerate(feeds())], folder)


@pytest.mark.parametrize("way", ["QDQ", "QDQ per channel"])
def test_figures_are_those_of_onnxruntimes_qdq_loss_debug(folder, way, tmp_path):
    path, net = str(folder / f"{way}.onnx"), str(folder / "net.onnx")
    weights = qdq_loss_debug.compute_weight_error(qdq_loss_debug.create_weight_matching(net, path))
    ran = []
    for number, model in enumerate((path, net)):
        augmented = str(tmp_path / f"{number}.onnx")
        qdq_loss_debug.modify_model_output_intermediate_tensors(model, augmented)
        ran.append(qdq_loss_debug.collect_activations(augmented, Feeds(feeds())))
    matched = qdq_loss_debug.create_activation_matching(*ran)
    errors = qdq_loss_debug.compute_activation_error({n: m for n, m in matched.items() if "float" in m})
    pair, networks = compared(folder, way)
    ours = {weight.name: weight.sqnr for weight in pair.weights}
    assert ours.keys() == weights.keys()
    for name, error in weights.items():
        assert ours[name] == pytest.approx(error, rel=1e-4), name
    rows = {row.name: row for row in networks.compared.comparison}
    assert errors.keys() <= networks.before_after.keys() and len(errors) >= 9
    for name, error in errors.items():
        assert networks.before_after[name] == pytest.approx(error["qdq_err"], rel=1e-4), name
        if name == "data":  # given to both networks
            continue
        sums = rows[name].sums
        assert 10 * np.log10(sums.bb / sums.dd) == pytest.approx(error["xmodel_err"], rel=1e-4), name


def test_weights_of_every_kind_of_storage_mean_what_onnx_says():
    """Per tensor, per channel, in blocks, of 4 bits, and those that a QuantizeLinear makes in the model: by onnx's own
    evaluator."""
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(0)
    real = rng.normal(0, 1, (4, 6)).astype(np.float32)
    in_blocks = rng.uniform(0.01, 0.05, (4, 2)).astype(np.float32)
    ways = {
        "tensor": (np.float32(0.03), np.uint8(120), {}),
        "channel": (rng.uniform(0.01, 0.05, 4).astype(np.float32), np.zeros(4, np.int8), {"axis": 0}),
        "columns": (rng.uniform(0.01, 0.05, 6).astype(np.float32), np.full(6, 7, np.int16), {"axis": 1}),
        "float8": (np.float32(0.005), np.zeros((), ml_dtypes.float8_e4m3fn), {}),
        "blocks": (in_blocks, np.zeros((4, 2), np.int8), {"axis": 1, "block_size": 3}),
    }  # fmt: skip
    for name, (scale, zero_point, told) in ways.items():
        nodes = [
            helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], **told),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **told),
        ]
        constants = [
            numpy_helper.from_array(np.asarray(a), n) for n, a in (("w", real), ("s", scale), ("z", zero_point))
        ]
        outputs = [helper.make_tensor_value_info("y", 1, [4, 6])]
        proto = helper.make_model(
            helper.make_graph(nodes, "g", [], outputs, constants), opset_imports=[helper.make_opsetid("", 21)]
        )
        (expected,) = ReferenceEvaluator(proto).run(None, {})
        (weight,) = QuantisedModel(proto).weights
        assert weight.name == "w"
        np.testing.assert_allclose(weight.values, expected, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_the_weight_of_a_matmulnbits_is_what_onnxruntime_multiplies(bits, has_zeros, tmp_path):
    draw, (inner, rows, block) = np.random.default_rng(bits), (40, 6, 16)
    blocks = -(-inner // block)
    constants = {
        "b": draw.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8),
        "s": draw.uniform(0.01, 0.1, rows * blocks).astype(np.float32),
        "z": draw.integers(0, 256, rows * -(-blocks * bits // 8)).astype(np.uint8),
    }
    told = {"K": inner, "N": rows, "bits": bits, "block_size": block}
    reads = ["x", *(constants if has_zeros else ("b", "s"))]
    nodes = [helper.make_node("MatMulNBits", reads, ["y"], "m", domain="com.microsoft", **told)]
    ends = [helper.make_tensor_value_info(name, 1, [inner, size]) for name, size in (("x", inner), ("y", rows))]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], stored), opset_imports=domains, ir_version=9
    )
    onnx.save(proto, tmp_path / "n.onnx")
    expected = outputs_of(tmp_path / "n.onnx", {"x": np.eye(inner, dtype=np.float32)})
    (weight,) = QuantisedModel(proto).weights
    np.testing.assert_allclose(weight.values, expected, atol=1e-5)
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(constants["s"][1:], "s"))
    with pytest.raises(ModelError, match="the weight b of m does not have 40 x 6"):
        _ = QuantisedModel(proto).weights


def test_the_factor_of_a_weight_is_that_of_its_scale_alone():
    draw = np.random.default_rng(0)
    real = draw.normal(0, 1, (4, 3, 3, 3)).astype(np.float32)

    def factor(values: np.ndarray) -> float:
        return QuantisedWeight("w", real, values.astype(np.float32), frozenset()).factor

    assert factor(np.rint(real / 0.02) * 0.08) == pytest.approx(4, rel=0.01)
    assert factor(np.rint(real / 0.4) * 0.4) == 1  # coarse: a few steps
    assert factor(draw.normal(0, 1, real.shape)) == 1  # another weight
    assert factor(np.clip(real, -0.5, 0.5)) == 1  # cut off
    assert factor(np.zeros_like(real)) == 1


def test_another_nets_model_is_refused(folder, tmp_path):
    other = helper.make_graph(
        [helper.make_node("Relu", ["u"], ["v"])],
        "other",
        [helper.make_tensor_value_info("u", 1, [1])],
        [helper.make_tensor_value_info("v", 1, [1])],
    )
    with pytest.raises(ModelError, match="no quantised tensor"):
        QuantisedPair(helper.make_model(other), onnx.load(folder / "QDQ.onnx"))


def test_who_quantised_is_told_by_facts(folder):
    assert quantiser_of(onnx.load(folder / "QDQ.onnx")) == "onnxruntime"
    of_nncf = onnx.ModelProto(producer_name="pytorch")
    of_nncf.graph.node.append(helper.make_node("DequantizeLinear", ["q_output_x_1", "s"], ["dq_output_x_1"]))
    assert quantiser_of(of_nncf) == "NNCF"
    of_nncf.graph.node.append(helper.make_node("DequantizeLinear", ["y_QuantizeLinear", "s"], ["y_dequantized"]))
    assert quantiser_of(of_nncf) == ""  # NNCF names every tensor so
    assert quantiser_of(onnx.ModelProto(producer_name="onnx.quantize")) == "ModelOpt"
    of_quark = onnx.ModelProto(opset_import=[helper.make_opsetid("com.amd.quark", 1)])
    assert quantiser_of(of_quark) == "Quark"
    of_aimet = onnx.ModelProto()
    of_aimet.graph.node.append(helper.make_node("QcQuantizeOp", ["x"], ["y"]))
    assert quantiser_of(of_aimet) == "AIMET" and quantiser_of(onnx.ModelProto(producer_name="pytorch")) == ""
    left = LeftFloat(("/a/Conv", "b.1"), ("Conv",), ("a", "w"))
    for quantiser in ("", "onnxruntime"):
        assert "nodes_to_exclude=['/a/Conv', 'b.1']" in words(quantiser, left)
    assert "IgnoredScope(names=['/a/Conv', 'b.1'])" in words("NNCF", left)
    assert "OverflowFix.ENABLE" in SEVEN_BITS["NNCF"] and "reduce_range=True" in SEVEN_BITS["onnxruntime"]
    assert r"'^b\\.1$'" in words("ModelOpt", left) and "['a', 'w']" in words("AIMET", left)
    assert "exclude=['/a/Conv', 'b.1']" in words("Quark", left)
