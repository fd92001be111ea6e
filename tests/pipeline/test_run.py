"""The core that runs: both ways, by several executors, against one onnxruntime session with every output marked."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from pipeline import nets
from small_nets import residual_net, run_all

from sgsdump.errors import ConfigError, InputError
from sgsdump.executors.base import Executor
from sgsdump.executors.runner import Layer
from sgsdump.executors.table import open_executor
from sgsdump.models.model import Model, open_model
from sgsdump.pipeline import steps
from sgsdump.pipeline.not_dumped import NotDumped
from sgsdump.pipeline.run import WHOLE, run
from sgsdump.pipeline.selection import node_outputs
from sgsdump.pipeline.steps import Engine, ExecutorConfigs

FEED = {"x": np.linspace(-2, 3, 8, dtype=np.float32).reshape(1, 8)}


class Spy(Executor):
    """onnxruntime that remembers every model it loaded, and refuses those with an operator it does not like."""

    name = "spy"

    def __init__(self, refuses: str = ""):
        self.loaded: list[tuple[list[str], list[str], list[str]]] = []
        self.inner = open_executor("ort")
        self.inits = self.releases = 0
        self.refuses = refuses

    def on_init(self, configs):
        self.inits += 1

    def on_release(self):
        self.releases += 1

    def on_load(self, model, configs, folder):
        graph = model.graph
        names = [node.output[0] for node in graph.node]
        self.loaded.append((names, [i.name for i in graph.input], [o.name for o in graph.output]))
        if self.refuses in [node.op_type for node in graph.node]:
            raise RuntimeError(f"no kernel for {self.refuses}\nin this back-end")
        self.inner.load_model(model, None, folder)

    def on_execute(self, output_names, feed, configs):
        return self.inner.execute(output_names, feed)


def given(model, executor, feed=FEED, names=None, mode="fast", configs=None, **more):
    """Arrays by name, and what was not dumped by name."""
    engine = Engine(executor() if callable(executor) else executor, mode, configs or ExecutorConfigs())
    outcomes = list(run(model, engine, feed, names, **more))
    assert len({outcome.name for outcome in outcomes}) == len(outcomes)
    arrays = {each.name: each.array for each in outcomes if isinstance(each, Layer)}
    return arrays, {each.name: each for each in outcomes if isinstance(each, NotDumped)}


WAYS = [("ort", "fast"), (Spy, "fast"), ("ort", "isolated"), ("reference", "fast"), ("reference", "isolated")]
ways = pytest.mark.parametrize("executor, mode", WAYS, ids=["ort", "spy", "ort-isolated", "ref", "ref-isolated"])


@ways
def test_every_tensor_is_given_by_its_name(executor, mode):
    model = residual_net()
    feed = {"data": np.random.default_rng(0).random((1, 3, 8, 8), np.float32)}
    arrays, lost = given(model, executor, feed, mode=mode)
    expected = run_all(model.proto, feed)
    assert list(arrays) == list(expected) and not lost
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype and arrays[name].shape == array.shape
        np.testing.assert_allclose(arrays[name], array, rtol=1e-5, atol=1e-6)
        if executor != "reference":
            np.testing.assert_array_equal(arrays[name], array)


@ways
def test_only_the_named_tensors_are_given(executor, mode):
    model = residual_net()
    feed = {"data": np.ones((1, 3, 8, 8), np.float32)}
    arrays, lost = given(model, executor, feed, ["fc", "r1"], mode)
    assert list(arrays) == ["r1", "fc"] and not lost
    np.testing.assert_allclose(arrays["fc"], run_all(model.proto, feed)["fc"], rtol=1e-5, atol=1e-6)


@ways
def test_one_failure_costs_only_what_depends_on_it(executor, mode):
    model = nets.failing_net()
    arrays, lost = given(model, executor, mode=mode)
    assert set(lost) == {"bad", "after", "after2"}
    assert all(each.failed for each in lost.values())
    assert lost["bad"].node == "bad_node" and lost["bad"].op_type == "Gather"
    assert "\n" not in lost["bad"].reason and "bad_node" in lost["bad"].reason
    assert lost["after"].reason.startswith("needs 'bad', which failed")
    assert {"a", "good", "half1", "half2", "end", "s19"} <= set(arrays)
    half = np.abs(np.maximum(FEED["x"], 0))
    np.testing.assert_array_equal(arrays["end"], half[:, :4] * half[:, 4:])


@pytest.mark.parametrize("mode", ["fast", "isolated"])
def test_an_executor_that_lacks_an_operator_loses_what_depends_on_it(mode):
    model = residual_net()
    feed = {"data": np.ones((1, 3, 8, 8), np.float32)}
    spy = Spy("Sigmoid")
    arrays, lost = given(model, spy, feed, mode=mode)
    assert set(lost) == {"sig", "gap", "flat", "fc", "prob"}
    assert "no kernel for Sigmoid" in lost["sig"].reason and "\n" not in lost["sig"].reason
    assert set(arrays) | set(lost) == set(run_all(model.proto, feed))
    assert (spy.inits, spy.releases) == (1, 1)


@ways
def test_tensors_inside_bodies_are_named(executor, mode):
    model = nets.branching_net()
    arrays, lost = given(model, executor, mode=mode)
    assert set(lost) == {"inner_then", "inner_else"}
    assert not any(each.failed for each in lost.values())
    assert "inside a body of node 'choice' (If)" in lost["inner_then"].reason
    np.testing.assert_array_equal(arrays["chosen"], -np.maximum(FEED["x"], 0))
    assert arrays["positive"].dtype == bool and arrays["positive"].shape == ()
    arrays, lost = given(model, executor, names=["inner_else", "a"], mode=mode)
    assert list(arrays) == ["a"] and list(lost) == ["inner_else"]


@ways
def test_a_sequence_is_named_and_what_reads_it_is_given(executor, mode):
    arrays, lost = given(nets.sequence_net(), executor, mode=mode)
    assert list(lost) == ["halves"] and not lost["halves"].failed
    assert lost["halves"].reason == "a sequence, not a tensor"
    np.testing.assert_array_equal(arrays["joined"], FEED["x"])
    assert arrays["out"].shape == (1, 8)


@ways
def test_unnamed_nodes_and_outputs_left_out(executor, mode):
    nodes = [
        helper.make_node("Dropout", ["x"], ["d1", ""]),
        helper.make_node("Dropout", ["d1"], ["d2", "mask"]),
        helper.make_node("Neg", ["d2"], ["out"]),
    ]
    arrays, lost = given(nets.net(nodes, nets.X), executor, mode=mode)
    assert list(arrays) == ["d1", "d2", "mask", "out"] and not lost
    assert arrays["mask"].dtype == bool


@ways
def test_shape_arithmetic_is_followed(executor, mode):
    model = nets.reshaping_net()
    arrays, lost = given(model, executor, mode=mode)
    assert not lost
    np.testing.assert_array_equal(arrays["target"], [1, 2, 4])
    np.testing.assert_array_equal(arrays["out"], -np.abs(FEED["x"]).reshape(1, 2, 4))


@ways
def test_nodes_in_any_order_and_constant_nodes(executor, mode):
    nodes = [
        helper.make_node("Neg", ["sum"], ["out"]),
        helper.make_node("Add", ["x", "c"], ["sum"]),
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0])),
    ]
    model = nets.net(nodes, nets.X, outputs=["out"])
    arrays, lost = given(model, executor, mode=mode)
    assert set(arrays) == {"out", "sum"} and not lost
    np.testing.assert_array_equal(arrays["out"], -(FEED["x"] + 2))


@ways
def test_text_is_named(executor, mode):
    if executor == "reference":
        pytest.skip("the reference has no Cast to text of the same form")
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["back"], to=TensorProto.FLOAT),
    ]
    arrays, lost = given(nets.net(nodes, nets.X), executor, mode=mode)
    assert list(lost) == ["text"] and not lost["text"].failed
    assert lost["text"].reason == "holds text, not numbers"
    np.testing.assert_allclose(arrays["back"], np.maximum(FEED["x"], 0), rtol=1e-6)


@ways
def test_bfloat16_between_segments(executor, mode):
    import ml_dtypes

    nodes = [helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16)]
    nodes += nets.chain("Identity", "b", "b", 14)
    nodes.append(helper.make_node("Cast", ["b13"], ["out"], to=TensorProto.FLOAT))
    arrays, lost = given(nets.net(nodes, nets.X), executor, mode=mode)
    assert not lost
    expected = FEED["x"].astype(ml_dtypes.bfloat16)
    assert arrays["b7"].dtype == expected.dtype
    np.testing.assert_array_equal(arrays["out"], expected.astype(np.float32))


@ways
def test_eight_bit_floats_are_computed_through(executor, mode):
    nodes = [helper.make_node("Cast", ["x"], ["f8"], to=TensorProto.FLOAT8E4M3FN)]
    nodes += nets.chain("Abs", "x", "a", 30)
    nodes += [
        helper.make_node("Cast", ["f8"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["back"], ["o"]),
    ]
    arrays, lost = given(nets.net(nodes, nets.X, opset=19), executor, mode=mode)
    assert not lost and arrays["back"].dtype == np.float32 and arrays["o"].shape == (1, 8)


def test_external_data_stay_in_their_folder(tmp_path):
    import onnx

    model = residual_net()
    expected = run_all(model.proto, {"data": np.ones((1, 3, 8, 8), np.float32)})
    path = tmp_path / "net.onnx"
    onnx.save(model.proto, path, save_as_external_data=True, size_threshold=0, location="net.data")
    opened = open_model(path)
    assert opened.folder is not None
    for executor, mode in (("ort", "fast"), (Spy, "fast"), (Spy, "isolated")):
        arrays, lost = given(opened, executor, {"data": np.ones((1, 3, 8, 8), np.float32)}, mode=mode)
        assert not lost
        np.testing.assert_array_equal(arrays["prob"], expected["prob"])


def test_the_segment_way_runs_every_node_once():
    spy = Spy()
    given(nets.chain_net(50), spy)
    ran = [name for nodes, _, _ in spy.loaded for name in nodes]
    assert sorted(ran) == sorted(f"n{i}" for i in range(50))


def test_the_segment_way_runs_only_what_is_needed():
    spy = Spy()
    arrays, _ = given(nets.failing_net(), spy, names=["half2"])
    assert list(arrays) == ["half2"]
    assert {name for nodes, _, _ in spy.loaded for name in nodes} == {"a", "good", "half1"}


def test_an_isolated_tensor_is_alone_with_the_nodes_before_it():
    spy = Spy()
    given(nets.chain_net(60), spy, mode="isolated")
    assert [outputs for _, _, outputs in spy.loaded] == [[f"n{i}"] for i in range(60)]
    for index, (nodes, inputs, _) in enumerate(spy.loaded):
        assert nodes == [f"n{i}" for i in range(max(0, index - WHOLE + 1), index + 1)]
        assert inputs == ["x" if index < WHOLE else f"n{index - WHOLE}"]


def test_isolated_reaches_back_to_what_was_dumped():
    spy = Spy()
    given(nets.chain_net(100), spy, names=["n49", "n99"], mode="isolated")
    assert [(len(nodes), inputs) for nodes, inputs, _ in spy.loaded] == [(50, ["x"]), (50, ["n49"])]


def test_isolated_reaches_through_a_tensor_that_only_fails_as_an_output():
    class Fussy(Spy):
        def on_load(self, model, configs, folder):
            if model.graph.output[0].name == "n5":
                raise RuntimeError("n5 cannot be put out of this model")
            super().on_load(model, configs, folder)

    arrays, lost = given(nets.chain_net(60), Fussy(), mode="isolated")
    assert list(lost) == ["n5"] and len(arrays) == 59


@pytest.mark.parametrize("mode", ["fast", "isolated"])
def test_shapes_of_the_run_go_before_those_inferred(monkeypatch, mode):
    """What the model declares and what inference finds may both be wrong."""
    nodes = [helper.make_node("Reshape", ["x", "to"], ["a"]), *nets.chain("Neg", "a", "n", 30)]
    model = nets.net(nodes, nets.X, {"to": np.array([2, 4])})
    wrong = helper.make_tensor_type_proto(TensorProto.FLOAT, [7])
    model.proto.graph.value_info.extend(helper.make_value_info(f"n{index}", wrong) for index in range(29))
    types = {name: wrong for node in model.proto.graph.node for name in node.output}
    monkeypatch.setattr(steps, "infer_types", lambda proto, shapes: types)
    layers, lost = given(model, "ort", configs=ExecutorConfigs(init={"provider": "CPU"}), mode=mode)
    assert not lost and len(layers) == 31
    assert np.array_equal(layers["n28"], -FEED["x"].reshape(2, 4))


def test_a_constant_that_is_an_output_of_the_model_is_dumped_last():
    nodes = [
        helper.make_node("Constant", [], ["three"], value_float=3.0),
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Mul", ["x", "two"], ["y"]),
    ]
    model = nets.net(nodes, nets.X, outputs=["y", "three"])
    assert [output.name for output in node_outputs(model.proto.graph)] == ["y", "three"]
    for executor in ("ort", "reference"):
        layers, lost = given(model, executor)
        assert not lost and layers.keys() == {"y", "three"} and layers["three"] == 3


def test_progress_ends_at_all():
    for executor, mode in (("ort", "fast"), (Spy, "fast"), (Spy, "isolated")):
        seen = []
        given(nets.chain_net(30), executor, mode=mode, advance=lambda *step, seen=seen: seen.append(step))
        assert seen == sorted(seen) and seen[-1][0] == seen[-1][1] > 0


def test_options_reach_the_executor():
    arrays, lost = given(nets.chain_net(3), "ort", configs=ExecutorConfigs(init={"optimisation": "all"}))
    assert len(arrays) == 3 and not lost
    with pytest.raises(ConfigError, match="speed"):
        given(nets.chain_net(3), "ort", configs=ExecutorConfigs(init={"speed": 9}))


def test_the_model_is_not_changed():
    model = residual_net()
    before = model.proto.SerializeToString()
    for mode in ("fast", "isolated"):
        given(model, Spy, {"data": np.ones((1, 3, 8, 8), np.float32)}, mode=mode)
    assert model.proto.SerializeToString() == before


@pytest.mark.parametrize(
    "change, kind, text",
    [
        ({"names": ["nn10"]}, ConfigError, "no tensor 'nn10'; did you mean 'n10'"),
        ({"mode": "quick"}, ConfigError, "unknown mode 'quick'; choose one of: fast, isolated"),
        ({"executor": "orrt"}, ConfigError, "unknown executor 'orrt'; did you mean 'ort'"),
        ({"feed": {"x": FEED["x"][:, :4]}}, InputError, r"expects float32 \[1, 8\], got float32 \[1, 4\]"),
        ({"feed": {"x": FEED["x"].astype(np.float64)}}, InputError, "got float64"),
        ({"feed": {}}, InputError, "no value is given for the model's input 'x'"),
    ],
)
def test_what_cannot_be_is_one_line(change, kind, text):
    with pytest.raises(kind, match=text) as caught:
        given(nets.chain_net(20), **{"executor": "ort", **change})
    assert "\n" not in str(caught.value)


def test_nothing_wanted_runs_nothing():
    assert given(Model(nets.chain_net(2).proto, nets.chain_net(2).path), "ort", names=[]) == ({}, {})
