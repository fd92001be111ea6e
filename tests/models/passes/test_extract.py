"""Cutting: sub-models that run and give the whole model's values, with everything that onnx's own extractor loses."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from small_nets import model, node, residual_net, run_all

from sgsdump.errors import ConfigError, ModelError
from sgsdump.models.passes.extract import Extractor, extract

FLOAT = TensorProto.FLOAT


def run(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by onnxruntime with optimisation off, fed with what the sub-model asks for."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    names = [info.name for info in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feed[i.name] for i in proto.graph.input})))


def graph_model(nodes, inputs, outputs, constants=(), **fields) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10, **fields)


def data() -> dict[str, np.ndarray]:
    return {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}


def test_every_tensor_of_a_net_from_its_own_sub_model() -> None:
    proto = residual_net().proto
    before = proto.SerializeToString()
    cutter = Extractor(proto)
    for name, expected in run_all(proto, data()).items():
        sub = cutter.extract(None, [name])
        onnx.checker.check_model(sub, full_check=True)
        assert [info.name for info in sub.graph.output] == [name]
        np.testing.assert_array_equal(run(sub, data())[name], expected)
    assert proto.SerializeToString() == before


def test_only_what_is_needed_is_there() -> None:
    sub = extract(residual_net().proto, ["r1"], ["r2"])
    assert [n.output[0] for n in sub.graph.node] == ["c2", "add", "r2"]
    assert [t.name for t in sub.graph.initializer] == ["c2.w", "c2.b"]
    assert [i.name for i in sub.graph.input] == ["r1"]
    assert [d.dim_value for d in sub.graph.input[0].type.tensor_type.shape.dim] == [1, 8, 8, 8]
    assert {info.name for info in sub.graph.value_info} == {"c2", "add"}


@given(st.data())
def test_any_cut_of_a_random_graph_gives_the_same_values(draw: st.DataObject) -> None:
    """Nodes in any file order that onnxruntime takes, several inputs and outputs, branches."""
    count = draw.draw(st.integers(2, 25))
    names = ["x", "y"]
    nodes = []
    for index in range(count):
        pair = [draw.draw(st.sampled_from(names)) for _ in range(2)]
        nodes.append(helper.make_node(draw.draw(st.sampled_from(["Add", "Sub", "Max"])), pair, [f"t{index}"]))
        names.append(f"t{index}")
    proto = graph_model(nodes, {"x": (2, 3), "y": (2, 3)}, [names[-1]])
    rng = np.random.default_rng(1)
    feed = {n: rng.normal(size=(2, 3)).astype(np.float32) for n in ("x", "y")}
    values = {**feed, **run_all(proto, feed)}
    del proto.graph.node[:]
    proto.graph.node.extend(draw.draw(st.permutations(nodes)))
    cutter = Extractor(proto)
    outputs = draw.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    cut = draw.draw(st.one_of(st.none(), st.lists(st.sampled_from(names), max_size=3)))
    if cut is None and draw.draw(st.booleans()):
        depth = draw.draw(st.integers(1, 6))
        cut = cutter.last_inputs(outputs, depth)
        assert len(cutter.extract(cut, outputs).graph.node) <= depth
    sub = cutter.extract(cut, outputs)
    assert [i.name for i in sub.graph.output] == list(dict.fromkeys(outputs))
    found = ReferenceEvaluator(sub).run(None, {i.name: values[i.name] for i in sub.graph.input})
    for name, array in zip(dict.fromkeys(outputs), found):
        np.testing.assert_array_equal(array, values[name])


def with_bodies() -> onnx.ModelProto:
    """cond = x0 > 0; out = If(cond): then inner(a) with a nested If that captures b and the weight w."""
    deep = helper.make_graph(
        [helper.make_node("Mul", ["b", "w"], ["deep"])], "deep", [], [helper.make_tensor_value_info("deep", FLOAT, [2])]
    )
    flat = helper.make_graph(
        [helper.make_node("Neg", ["b"], ["flat"])], "flat", [], [helper.make_tensor_value_info("flat", FLOAT, [2])]
    )
    then = helper.make_graph(
        [helper.make_node("If", ["cond"], ["nested"], then_branch=deep, else_branch=flat)],
        "then",
        [],
        [helper.make_tensor_value_info("nested", FLOAT, [2])],
    )
    same = [helper.make_node("Identity", ["a"], ["same"])]
    other = helper.make_graph(same, "other", [], [helper.make_tensor_value_info("same", FLOAT, [2])])
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("Sin", ["x"], ["unused"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Less", ["zero", "sum"], ["cond"]),
        helper.make_node("If", ["cond"], ["out"], then_branch=then, else_branch=other),
        helper.make_node("Neg", ["out"], ["end"]),
    ]
    constants = {"w": np.array([2, 3], np.float32), "zero": np.array(0, np.float32)}
    return graph_model(nodes, {"x": (2,)}, ["end"], constants)


@pytest.mark.parametrize("x", [[1, 2], [-1, -2]])
def test_what_only_bodies_capture_is_kept(x: list[float]) -> None:
    proto = with_bodies()
    feed = {"x": np.array(x, np.float32)}
    sub = extract(proto, None, ["out"])
    assert "unused" not in {name for n in sub.graph.node for name in n.output}
    np.testing.assert_array_equal(run(sub, feed)["out"], run_all(proto, feed)["out"])
    values = {**feed, **run_all(proto, feed)}
    half = extract(proto, ["b", "cond"], ["out"])
    assert [i.name for i in half.graph.input] == ["b", "cond", "x"]
    assert half.graph.input[1].type.tensor_type.elem_type == TensorProto.BOOL
    np.testing.assert_array_equal(run(half, values)["out"], values["out"])


def test_a_tensor_inside_a_body_is_said_to_be_there() -> None:
    with pytest.raises(ConfigError, match="'deep' is inside a body of a If node"):
        extract(with_bodies(), None, ["deep"])


def test_sparse_weights_annotations_metadata_and_outer_fields() -> None:
    values = numpy_helper.from_array(np.array([5], np.float32), "sp")
    place = numpy_helper.from_array(np.array([1], np.int64), "sp_index")
    proto = graph_model(
        [helper.make_node("Add", ["x", "sp"], ["a"]), helper.make_node("Neg", ["a"], ["b"])],
        {"x": (3,)},
        ["b"],
        {"a_scale": np.float32([0.5]), "b_scale": np.float32([0.25])},
        producer_name="exporter",
        doc_string="about",
    )
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, place, [3]))
    for name in "ab":
        note = proto.graph.quantization_annotation.add(tensor_name=name)
        note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=f"{name}_scale")
    helper.set_model_props(proto, {"task": "sum"})
    proto.graph.metadata_props.add(key="k", value="v")
    sub = extract(proto, None, ["a"])
    np.testing.assert_array_equal(run(sub, {"x": np.zeros(3, np.float32)})["a"], [0, 5, 0])
    assert [note.tensor_name for note in sub.graph.quantization_annotation] == ["a"]
    assert [t.name for t in sub.graph.initializer] == ["a_scale"]
    assert (sub.producer_name, sub.doc_string, sub.ir_version) == ("exporter", "about", 10)
    assert [(p.key, p.value) for p in (*sub.metadata_props, *sub.graph.metadata_props)] == [("task", "sum"), ("k", "v")]


def test_functions_that_are_called_are_kept_and_others_are_not() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    inner = helper.make_function("my", "Twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])], opsets)
    outer_node = helper.make_node("Twice", ["p"], ["q"], domain="my")
    outer = helper.make_function("my", "Outer", ["p"], ["q"], [outer_node], opsets)
    alone = helper.make_function("my", "Alone", ["p"], ["q"], [helper.make_node("Neg", ["p"], ["q"])], opsets)
    proto = graph_model(
        [helper.make_node("Outer", ["x"], ["a"], domain="my"), helper.make_node("Alone", ["a"], ["b"], domain="my")],
        {"x": (3,)},
        ["b"],
    )
    proto.opset_import.append(opsets[1])
    proto.functions.extend([inner, outer, alone])
    sub = extract(proto, None, ["a"])
    assert [f.name for f in sub.functions] == ["Twice", "Outer"]
    np.testing.assert_array_equal(run(sub, {"x": np.ones(3, np.float32)})["a"], [2, 2, 2])


def test_inputs_and_weights_as_outputs_and_doubled_names() -> None:
    proto = model([node("Add", ["x", "w"], "a")], {"w": np.ones(2, np.float32)}, {"x": (2,)}, ["a"]).proto
    sub = extract(proto, ["x", "x"], ["w", "a", "x", "a"])
    assert [o.name for o in sub.graph.output] == ["w", "a", "x"]
    found = run(sub, {"x": np.zeros(2, np.float32)})
    assert {n: v.tolist() for n, v in found.items()} == {"w": [1, 1], "a": [1, 1], "x": [0, 0]}
    cut = extract(proto, ["w"], ["a"])
    assert [i.name for i in cut.graph.input] == ["w", "x"]
    assert not cut.graph.initializer


def test_a_cut_at_one_of_two_outputs_while_the_other_is_needed() -> None:
    proto = graph_model(
        [
            helper.make_node("Split", ["x"], ["l", "r"], axis=0),
            helper.make_node("Neg", ["l"], ["n"]),
            helper.make_node("Add", ["n", "r"], ["sum"]),
        ],
        {"x": (4,)},
        ["sum"],
    )
    sub = extract(proto, ["l"], ["sum"])
    feed = {"l": np.array([1, 1], np.float32), "x": np.array([9, 9, 5, 6], np.float32)}
    np.testing.assert_array_equal(run(sub, feed)["sum"], [4, 5])


def test_weights_that_an_older_model_lists_as_inputs() -> None:
    proto = model([node("Add", ["x", "w"], "a")], {"w": np.ones(2, np.float32)}, {"x": (2,), "w": (2,)}, ["a"]).proto
    proto.ir_version = 3
    cutter = Extractor(proto)
    sub = cutter.extract(cutter.last_inputs(["a"], 1), ["a"])
    onnx.checker.check_model(sub)
    assert [i.name for i in sub.graph.input] == ["x", "w"]
    assert [t.name for t in sub.graph.initializer] == ["w"]


def test_constants_stay_when_the_last_nodes_are_cut_off() -> None:
    value = numpy_helper.from_array(np.full((1,), 3, np.float32))
    proto = graph_model(
        [
            helper.make_node("Constant", [], ["three"], value=value),
            helper.make_node("Abs", ["x"], ["a"]),
            helper.make_node("Mul", ["a", "three"], ["m"]),
        ],
        {"x": (2,)},
        ["m"],
    )
    cutter = Extractor(proto)
    assert cutter.last_inputs(["m"], 1) == ["a"]
    assert [n.op_type for n in cutter.extract(["a"], ["m"]).graph.node] == ["Constant", "Mul"]
    with pytest.raises(ConfigError, match="depth of 0"):
        cutter.last_inputs(["m"], 0)


def test_external_data_stay_references() -> None:
    proto = model([node("Add", ["x", "w"], "a"), node("Neg", ["a"], "b")], {}, {"x": (2,)}, ["b"]).proto
    weight = proto.graph.initializer.add(name="w", data_type=FLOAT, dims=[2])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    sub = extract(proto, None, ["a"])
    assert sub.graph.initializer[0] == weight
    assert extract(proto, ["a"], ["b"]).graph.input[0].type.tensor_type.elem_type == FLOAT


def test_an_input_of_unknown_type_is_named_and_can_be_given() -> None:
    proto = graph_model([helper.make_node("Odd", ["x"], ["a"], domain="my"), node("Neg", ["a"], "b")], {"x": (2,)}, [])
    proto.opset_import.append(helper.make_opsetid("my", 1))
    with pytest.raises(ModelError, match="cannot cut the model at 'a'"):
        extract(proto, ["a"], ["b"])
    kind = helper.make_tensor_type_proto(FLOAT, [2])
    assert extract(proto, ["a"], ["b"], {"a": kind}).graph.input[0].type == kind


def test_unknown_names_offer_the_nearest() -> None:
    proto = residual_net().proto
    with pytest.raises(ConfigError, match=r"no tensor 'polo'; did you mean 'pool'"):
        extract(proto, None, ["polo"])
    with pytest.raises(ConfigError, match="no tensor 'dat'"):
        extract(proto, ["dat"], ["pool"])
    with pytest.raises(ConfigError, match="at least one"):
        extract(proto, None, [])


def test_graphs_that_cannot_be() -> None:
    twice = graph_model([node("Neg", ["x"], "a"), node("Abs", ["x"], "a")], {"x": (1,)}, ["a"])
    with pytest.raises(ModelError, match="two nodes"):
        extract(twice, None, ["a"])
    ring = graph_model([node("Neg", ["b"], "a"), node("Abs", ["a"], "b")], {"x": (1,)}, ["a"])
    with pytest.raises(ModelError, match="cycle"):
        extract(ring, None, ["a"])
