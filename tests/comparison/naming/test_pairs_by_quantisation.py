"""Every quantised tensor of a network that onnxruntime quantised is compared as the floats that its integers mean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from quantised_nets import WAYS, quantise, true_values
from small_nets import conv, model, node, residual_net, run_all, weights

from sgsdump import Dump, Record, Tensor, compare, open_dump
from sgsdump.cli import main
from sgsdump.comparison.alignment import QUANTISED_VALUES as HOW
from sgsdump.comparison.naming.pairs_by_quantisation import twins_of
from sgsdump.dumps.quantised_graph import QuantisedGraph, quants_in, quants_text
from sgsdump.models.model import Model
from sgsdump.models.quantised_model import QuantisedModel, quants_of
from sgsdump.tensors.types import Quant


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """net.onnx, x.npy, and the dump of the net."""
    folder = tmp_path_factory.mktemp("quantised")
    onnx.save(residual_net().proto, folder / "net.onnx")
    np.save(folder / "x.npy", np.random.default_rng(3).normal(0, 1, (1, 3, 8, 8)).astype(np.float32))
    dumped(folder, "net")
    return folder


def feeds():
    return [{"data": np.random.default_rng(seed).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for seed in range(4)]


def dumped(folder: Path, name: str) -> Path:
    path = folder / f"{name}.bin"
    assert main(["dump", "-m", str(folder / f"{name}.onnx"), "-i", str(folder / "x.npy"), "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize("way", WAYS)
def test_every_quantised_tensor_is_paired_with_what_its_integers_mean(folder, way):
    name = way.replace(" ", "_")
    quantise(folder / "net.onnx", folder / f"{name}.onnx", feeds(), way)
    sample = open_dump(dumped(folder, name))
    expected = true_values(onnx.load(folder / f"{name}.onnx"), {"data": np.load(folder / "x.npy")})
    benchmark = run_all(onnx.load(folder / "net.onnx"), {"data": np.load(folder / "x.npy")})
    comparison = compare(sample, folder / "net.bin")
    quantised = {row.name: row for row in comparison if row.paired == HOW}
    if way == "QOperator":  # what an operator makes whose Relu was left out, by the operator's name
        expected |= {"r1": expected.pop("c1"), "r2": expected.pop("add")}
    wanted = {tensor for tensor in expected if tensor in benchmark}
    assert wanted and quantised.keys() == wanted
    for tensor, row in quantised.items():
        np.testing.assert_allclose(sample[row.sample_name].real().ravel(), _nhwc(expected[tensor]), rtol=1e-6)
        true, real = expected[tensor].astype(np.float64), benchmark[tensor].astype(np.float64)
        assert row.mse == pytest.approx(((true - real) ** 2).mean(), rel=1e-6)
    left = {unpaired.record.name for unpaired in comparison.only_in_benchmark}
    taken_away = set() if way == "dynamic" else {"c1", "add"}
    assert left <= taken_away and not comparison.completeness.missing and not comparison.failed
    assert comparison.completeness.outputs == ("prob",) and "prob" in comparison


def _nhwc(array: np.ndarray) -> np.ndarray:
    return (array.transpose(0, 2, 3, 1) if array.ndim == 4 else array).ravel()


def test_integers_of_a_folder_have_the_scales_of_the_model(folder):
    """What ``pipeline`` writes holds the integers themselves."""
    quantise(folder / "net.onnx", folder / "q.onnx", feeds(), "QOperator")
    (folder / "inputs").mkdir()
    np.save(folder / "inputs" / "data.npy", np.load(folder / "x.npy"))
    for net in ("q", "net"):
        told = [
            "-m",
            str(folder / f"{net}.onnx"),
            "-o",
            str(folder / f"{net}_run"),
            "--input-dir",
            str(folder / "inputs"),
        ]
        assert main(["pipeline", "full", *told]) == 0
    dump = open_dump(folder / "q_run")
    expected = true_values(onnx.load(folder / "q.onnx"), {"data": np.load(folder / "x.npy")})
    tensor = dump["add_quantized"]
    assert tensor.dtype == np.uint8 and tensor.info.quant.exact
    np.testing.assert_allclose(tensor.real(), expected["add"], rtol=1e-6)
    comparison = compare(dump, folder / "net_run")
    assert comparison["r2"].sample_name == "add_quantized" and comparison["r2"].rmse < 0.05


def graphs(*models):
    return [QuantisedModel(proto).groups for proto in models]


def test_names_that_say_nothing_pair_by_the_operators_around_them():
    """The same net with every tensor renamed, its Relus gone and a range of its own at each edge."""
    net = residual_net().proto
    renamed = onnx.ModelProto()
    renamed.CopyFrom(net)
    names = {name: f"t{i}" for i, name in enumerate(n for node in net.graph.node for n in node.output)}
    del renamed.graph.node[:]
    scale = numpy_helper.from_array(np.float32(0.02), "s"), numpy_helper.from_array(np.uint8(0), "z")
    renamed.graph.initializer.extend(scale)
    for old in net.graph.node:
        if old.op_type == "Relu":
            names[old.output[0]] = names[old.input[0]]
            continue
        new = renamed.graph.node.add()
        new.CopyFrom(old)
        new.input[:] = [f"{names[name]}dq" if name in names else name for name in old.input]
        new.output[:] = [names[name] for name in old.output]
        made = new.output[0]
        renamed.graph.node.append(helper.make_node("QuantizeLinear", [made, "s", "z"], [f"{made}q"]))
        renamed.graph.node.append(helper.make_node("DequantizeLinear", [f"{made}q", "s", "z"], [f"{made}dq"]))
    twins = twins_of(*graphs(renamed, net))
    made = {name for node in net.graph.node for name in node.output}
    assert {root for root in twins.roots if root in made} == made - {"c1", "add"}
    assert all(twins.roots[name] == names[name] for name in made - {"c1", "add"})
    assert {name: lost.output for name, lost in twins.taken_away.items()} == {"c1": "r1", "add": "r2"}


def test_a_range_that_goes_below_zero_has_kept_no_relu():
    net = model([conv("c1", "x"), node("Relu", ["c1"], "r1")], weights("c1", (2, 2, 1, 1)), {"x": (1, 2, 2, 2)}, ["r1"])
    edges = [
        node("QuantizeLinear", ["c1", "s", "z"], "c1_q"),
        node("DequantizeLinear", ["c1_q", "s", "z"], "c1_dq"),
        node("Sigmoid", ["c1_dq"], "out"),
    ]
    for zero_point, stands_for in ((0, "r1"), (7, "c1")):
        numbers = {"s": np.float32(0.1), "z": np.uint8(zero_point)}
        quantised = model(
            [conv("c1", "x"), *edges], weights("c1", (2, 2, 1, 1)) | numbers, {"x": (1, 2, 2, 2)}, ["out"]
        )
        assert twins_of(*graphs(quantised.proto, net.proto)).roots[stands_for] == "c1"


def test_scales_of_operators_on_integers_and_of_those_that_move_them():
    numbers = {"s": np.float32(0.5), "z": np.uint8(3), "s2": np.float32(0.25), "z2": np.uint8(9)}
    numbers["shape"] = np.int64([-1])
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("QLinearAdd", ["q", "s", "z", "q", "s", "z", "s2", "z2"], "sum", domain="com.microsoft"),
        node("Reshape", ["sum", "shape"], "flat"),
        node("DequantizeLinear", ["flat", "s2", "z2"], "y"),
        node("Reshape", ["y", "shape"], "real"),
    ]
    constants = [numpy_helper.from_array(np.asarray(number), name) for name, number in numbers.items()]
    proto = helper.make_model(helper.make_graph(nodes, "g", [], [], constants))
    quants = quants_of(Model(proto, Path("g.onnx")))
    assert {name: (q.scale, q.zero_point) for name, q in quants.items()} == {
        "q": (0.5, 3),
        "sum": (0.25, 9),
        "flat": (0.25, 9),
        "y": (0.25, 9),
    }


def test_names_alone_where_no_graph_is_known():
    codes, quant = np.uint8([[1, 2], [3, 4]]), Quant(np.dtype("u1"), 0.5, 1, exact=True)
    sample = Dump([
        Record("out", 0, 0, "Conv", Tensor.of("a", np.float32([9, 9]))),
        Record("out", 0, 1, "DequantizeLinear", Tensor.of("a_DequantizeLinear_Output", np.float32([1, 2]))),
        Record("out", 0, 2, "QLinearConv", Tensor.of("b_quantized", codes, quant=quant)),
    ])  # fmt: skip
    benchmark = Dump([
        Record("out", 0, 0, "Conv", Tensor.of("a", np.float32([1, 2]))),
        Record("out", 0, 1, "Conv", Tensor.of("b", np.float32([[0, 0.5], [1, 1.5]]))),
    ])  # fmt: skip
    comparison = compare(sample, benchmark)
    assert {row.name: (row.sample_name, row.rmse) for row in comparison} == {
        "a": ("a_DequantizeLinear_Output", 0.0),
        "b": ("b_quantized", 0.0),
    }


def test_scales_in_a_graph_file_are_untrusted():
    kept = quants_in({"x": ["uint8", 0.5, 3, None], "y": ["int8", [0.5, 0.25], 0, 1]})
    assert (kept["x"].scale, kept["x"].zero_point, kept["y"].axis) == (0.5, 3, 1)
    assert quants_in(json.loads(quants_text(kept))).keys() == kept.keys()
    odd = [
        ["uint8", "a", 0, None],
        ["nothing", 1.0, 0, None],
        ["uint8", [], 0, None],
        ["uint8", 1.0, 0.5, None],
        [1],
        7,
    ]
    odd += [["uint8", [[1.0]], 0, None], ["uint8", 1.0, 0, "last"], ["uint8", None, 0, None], ["uint8", {}, 0, None]]
    assert not quants_in({str(number): entry for number, entry in enumerate(odd)}) and not quants_in([1])


def test_a_cast_to_half_precision_is_seen_through():
    """As ModelOpt writes it: the input is float16, then quantised."""
    net = model([conv("c1", "x")], weights("c1", (2, 2, 1, 1)), {"x": (1, 2, 2, 2)}, ["c1"])
    numbers = {"s": np.float32(0.1), "z": np.int8(0)}
    nodes = [
        node("Cast", ["x"], "x16", to=10),
        node("QuantizeLinear", ["x16", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "dq"),
        conv("c1", "dq"),
    ]
    quantised = model(nodes, weights("c1", (2, 2, 1, 1)) | numbers, {"x": (1, 2, 2, 2)}, ["c1"])
    own, other = graphs(quantised.proto, net.proto)
    assert own.groups["x"].members == ("x", "q", "dq", "x16") and own.groups["x"].holder == "dq"
    assert twins_of(own, other).roots["x"] == "x"


def test_tensorflow_lites_quantize_is_an_edge():
    """It gives the codes of ``a`` the scale of a concatenation; the converter numbers names that it finds twice, so
    ``a1`` is a Reshape's output in the float network."""

    def of(*nodes: tuple[str, str, str]) -> QuantisedGraph:
        return QuantisedGraph((kind, kind, reads.split(), [makes], "", {}) for kind, reads, makes in nodes)

    own = of(
        ("QUANTIZE", "x", "x_int8"),
        ("CONV_2D", "x_int8", "a"),
        ("QUANTIZE", "a", "a1"),
        ("RESHAPE", "a1", "a11"),
        ("CONV_2D", "a11", "y_int8"),
        ("QUANTIZE", "y_int8", "y"),
    )
    other = of(("CONV_2D", "x", "a"), ("RESHAPE", "a", "a1"), ("CONV_2D", "a1", "y"))
    assert dict(twins_of(own, other).roots) == {"x": "x", "a": "a", "a1": "a11", "y": "y_int8"}
    assert {root: group.holder for root, group in own.groups.items()} == {
        "x": "x_int8",
        "a": "a1",
        "a11": "a11",
        "y_int8": "y",
    }
    codes = {"a": Quant(np.dtype("i1"), 0.5, 0), "y_int8": Quant(np.dtype("i1"), 0.5, 0)}
    known = QuantisedGraph(own.nodes, codes)
    assert known.groups["a"].codes == ("a1", "a") and known.groups["y_int8"].holder == "y"
    both = QuantisedGraph([*own.nodes, ("RELU", "RELU", ["a"], ["r"], "", {})], codes)
    assert both.groups["a"].holder == "a"  # read with either scale
