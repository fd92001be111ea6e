"""The pipeline's methods, the folder it writes, and what the SDAA tool it stands in for gets wrong."""

import json
import os

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from pipeline import nets
from small_nets import residual_net, run_all
from watched import Watched

from sgsdump import open_dump
from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import facts_of
from sgsdump.errors import ConfigError, InputError, ModelError, OutputError
from sgsdump.executors.base import Executor
from sgsdump.executors.table import open_executor
from sgsdump.models.feeds.drawn import InputDefaults
from sgsdump.models.model import open_model
from sgsdump.pipeline.pipeline import Pipeline

SIX_LINES = """\
topology index 12, output relu_1.tmp_0, shape (1, 8, 12, 96), dtype float16
topology index 22, output batch_norm_4.tmp_3, shape (1, 24, 12, 96), dtype float16
topology index 32, output depthwise_conv2d_2.tmp_0, shape (1, 32, 6, 96), dtype float16
topology index 42, output p2o.Mul.5, shape (1, 32, 6, 96), dtype float16
topology index 52, output relu_7.tmp_0, shape (1, 8, 1, 1), dtype float16
topology index 54, output hardsigmoid_1.tmp_0, shape (1, 32, 1, 1), dtype float16
"""
MODES = pytest.mark.parametrize("mode", ["fast", "isolated"])


def pipeline(model, folder, executor="ort", **more) -> tuple[Pipeline, list[str]]:
    progress = Watched()
    return Pipeline(model, executor, folder, progress=progress, **more), progress.lines


def files(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")}


@MODES
@pytest.mark.parametrize("executor", ["ort", "reference"])
def test_a_dump_is_counted(tmp_path, mode, executor):
    progress = Watched()
    Pipeline(residual_net(), executor, tmp_path / "d", mode=mode, progress=progress).dump_full()
    (bar,) = progress.bars
    assert (bar.what, bar.unit) == (f"dump by {executor}", "step") and bar.is_full


@MODES
@pytest.mark.parametrize("executor", ["ort", "reference"])
def test_the_seeds_six_lines(shared, tmp_path, mode, executor):
    made, lines = pipeline(shared / "sdaa" / "model_sample.onnx", tmp_path / "d", executor, mode=mode)
    made.dump_range(start_tensor="relu_1.tmp_0", step=10)
    assert lines[0] == 'input "eager_tmp_0", shape [1, 3, 48, 192], dtype float32'
    assert "\n".join(lines[1:]) + "\n" == SIX_LINES
    written = {path.name for path in (tmp_path / "d" / "outputs").iterdir()}
    assert "topoidx_00012__relu_1.tmp_0.npy" in written and len(written) == 6
    assert not made.not_dumped


def test_once_on_the_seeds_sample(shared, tmp_path):
    made, lines = pipeline(shared / "sdaa" / "model_sample.onnx", tmp_path / "d")
    made.mark_outputs(["relu_3.tmp_0"])
    (array,) = made.dump_once().values()
    assert lines[1:] == ["output relu_3.tmp_0, shape (1, 24, 12, 96), dtype float16"]
    np.testing.assert_array_equal(np.load(tmp_path / "d" / "outputs" / "relu_3.tmp_0.npy"), array)
    assert made.get_node_output_names().index("relu_1.tmp_0") == 12 and len(made.get_node_output_names()) == 55


def test_every_way_gives_the_bits_of_one_run_of_the_seeds_float16_sample(shared, tmp_path):
    path = shared / "sdaa" / "model_sample.onnx"
    made, _ = pipeline(path, tmp_path / "full")
    made.dump_full()
    names = made.get_node_output_names()
    expected = run_all(onnx.load(path), made.inputs)

    def check(folder, count):
        entries = dump_info.read(folder).outputs
        assert len(entries) == count
        for entry in entries:
            np.testing.assert_array_equal(np.load(folder / entry.file), expected[entry.name], err_msg=entry.name)

    check(tmp_path / "full", 55)
    made, _ = pipeline(path, tmp_path / "range")
    made.dump_range("relu_1.tmp_0", step=10)
    check(tmp_path / "range", 6)
    made, _ = pipeline(path, tmp_path / "list")
    made.dump_list(names[4::5])
    check(tmp_path / "list", 11)
    for name in names:
        made, _ = pipeline(path, tmp_path / "once")
        made.mark_outputs([name])
        made.dump_once()
        check(tmp_path / "once", 1)


@MODES
def test_a_full_dump_is_every_tensor_of_the_model(tmp_path, mode):
    """The model has initializers, which made the SDAA tool lose every node."""
    model = residual_net()
    made, lines = pipeline(model, tmp_path / "d", mode=mode)
    made.dump_full()
    feed = {"data": np.random.default_rng(42).uniform(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    expected = run_all(model.proto, feed)
    np.testing.assert_array_equal(np.load(tmp_path / "d" / "inputs" / "data.npy"), feed["data"])
    info = dump_info.read(tmp_path / "d")
    assert [entry.name for entry in info.outputs] == list(expected) == made.get_node_output_names()
    for index, (entry, array) in enumerate(zip(info.outputs, expected.values())):
        assert entry.file == f"outputs/topoidx_{index:05d}__{entry.name}.npy" and entry.topo_index == index
        np.testing.assert_array_equal(np.load(tmp_path / "d" / entry.file), array)
        assert entry.facts == facts_of(array)
        assert entry.layout == ("NCHW" if array.ndim == 4 else None)
    assert len(lines) == 1 + len(expected)
    assert info.inputs[0].seed == 42 and not info.inputs[0].use_external
    meta = info.meta
    assert (meta["model_name"], meta["executor"], meta["extract_subgraph"]) == ("net.onnx", "OrtExecutor", False)
    assert meta["input_names"] == ["data"] and meta["output_names"] == ["prob"]
    assert meta["default_seed"] == 42 and meta["default_float_max"] == 1.0 and meta["default_int_max"] == 100
    assert next(iter(meta)) == "date_time" and meta["node_output_names"] == list(expected)


@MODES
def test_a_part_of_the_model(tmp_path, mode):
    """After extract_subgraph every dump works on the part, with a mid-graph input too."""
    model = residual_net()
    before = model.proto.SerializeToString()
    made, _ = pipeline(model, tmp_path / "d", mode=mode)
    made.extract_subgraph(["r1"], ["r2"])
    assert made.get_node_output_names() == ["c2", "add", "r2"]
    made.set_input_data({"r1": {"seed": 3, "low": -1, "high": 1}})
    made.dump_full()
    fed = made.inputs["r1"]
    assert fed.shape == (1, 8, 8, 8)
    added = np.load(tmp_path / "d" / "outputs" / "topoidx_00001__add.npy")
    second = np.load(tmp_path / "d" / "outputs" / "topoidx_00000__c2.npy")
    np.testing.assert_array_equal(added, fed + second)
    assert not made.not_dumped and files(tmp_path / "d" / "inputs") == {"r1.npy"}
    assert list(made.dump_once()) == ["r2"]
    assert dump_info.read(tmp_path / "d").meta["extract_subgraph"] is True
    assert model.proto.SerializeToString() == before


def test_what_was_said_of_inputs_is_kept_for_a_part(tmp_path):
    made, _ = pipeline(two_inputs(), tmp_path / "d", shapes={"b": (1, 8)})
    made.set_input_data({"a": {"seed": 9}, "b": {"seed": 8}})
    made.extract_subgraph(None, ["na"])
    np.testing.assert_array_equal(made.inputs["a"], np.random.default_rng(9).uniform(0, 1, (1, 8)).astype(np.float32))
    assert list(made.inputs) == ["a"]


def two_inputs():
    kind = (TensorProto.FLOAT, [1, 8])
    nodes = [
        helper.make_node("Neg", ["a"], ["na"]),
        helper.make_node("Abs", ["b"], ["ab"]),
        helper.make_node("Add", ["na", "ab"], ["out"]),
    ]
    return nets.net(nodes, {"a": kind, "b": kind})


def test_five_ways_of_inputs(tmp_path):
    made, _ = pipeline(two_inputs(), tmp_path / "d")
    plain = made.inputs
    np.testing.assert_array_equal(plain["a"], plain["b"])

    made.set_input_data(input_data_range={"a": {"seed": 1, "low": 5, "high": 6}})
    ranged = made.inputs
    assert ranged["a"].min() >= 5
    np.testing.assert_array_equal(ranged["b"], plain["b"])
    made.dump_full()

    array = np.full((1, 8), 7, np.float32)
    made.set_input_data(external_input_data={"b": array})
    np.testing.assert_array_equal(made.inputs["b"], array)
    np.testing.assert_array_equal(made.inputs["a"], plain["a"])

    other, _ = pipeline(two_inputs(), tmp_path / "e")
    other.set_input_data_from_json(tmp_path / "d" / "dump_info.json")
    np.testing.assert_array_equal(other.inputs["a"], ranged["a"])
    other.set_input_data_from_file(tmp_path / "d")
    np.testing.assert_array_equal(other.inputs["a"], ranged["a"])
    np.testing.assert_array_equal(other.inputs["b"], ranged["b"])

    (tmp_path / "d" / "inputs" / "b.npy").unlink()
    with pytest.raises(InputError, match="has no file b"):
        other.set_input_data_from_file(tmp_path / "d")


def test_defaults_are_heeded_and_said(tmp_path):
    made, _ = pipeline(two_inputs(), tmp_path / "d", defaults=InputDefaults(float_min=10, float_max=11, seed=5))
    made.dump_list(["out"])
    meta = json.loads((tmp_path / "d" / "dump_info.json").read_text())["meta_info"]
    assert (meta["default_float_min"], meta["default_seed"]) == (10, 5)
    assert made.inputs["a"].min() >= 10


def test_open_sizes_booleans_and_integers(tmp_path):
    inputs = {"x": (TensorProto.FLOAT, ["N", "C"]), "mask": (TensorProto.BOOL, ["N", 1]), "i": (TensorProto.INT64, [1])}
    nodes = [
        helper.make_node("Where", ["mask", "x", "zero"], ["w"]),
        helper.make_node("Gather", ["w", "i"], ["g"], axis=1),
    ]
    model = nets.net(nodes, inputs, {"zero": np.zeros(1, np.float32)})
    made, lines = pipeline(model, tmp_path / "d", shapes={"x": (4, 3), "mask": (4, 1)})
    made.set_input_data({"i": {"low": 2, "high": 2}})
    made.dump_full()
    assert not made.not_dumped
    assert lines[:3] == [
        'input "x", shape [4, 3], dtype float32',
        'input "mask", shape [4, 1], dtype bool',
        'input "i", shape [1], dtype int64',
    ]
    assert lines[3] == "topology index 0, output w, shape (4, 3), dtype float32"
    made, _ = pipeline(model, tmp_path / "d")
    with pytest.raises(InputError, match="--shape x=1x1"):
        made.dump_full()


def test_names_with_slashes_stay_in_the_folder(tmp_path):
    nodes = [
        helper.make_node("Neg", ["x"], ["/m/Neg_output_0"]),
        helper.make_node("Abs", ["/m/Neg_output_0"], ["../o"]),
    ]
    made, lines = pipeline(nets.net(nodes, nets.X), tmp_path / "d")
    made.dump_full()
    made.mark_outputs()
    assert list(made.dump_once()) == ["/m/Neg_output_0", "../o"]
    assert files(tmp_path) == {
        "d/inputs/x.npy",
        "d/outputs/topoidx_00000__%2Fm%2FNeg_output_0.npy",
        "d/outputs/topoidx_00001__%2E.%2Fo.npy",
        "d/outputs/%2Fm%2FNeg_output_0.npy",
        "d/outputs/%2E.%2Fo.npy",
    }
    info = dump_info.read(tmp_path / "d")
    assert [entry.name for entry in info.outputs] == ["/m/Neg_output_0", "../o"] * 2
    assert lines[1].startswith("topology index 0, output /m/Neg_output_0,")


@MODES
@pytest.mark.parametrize("executor", ["ort", "reference"])
def test_a_failure_is_in_the_json_and_in_failures(tmp_path, mode, executor):
    made, lines = pipeline(nets.failing_net(), tmp_path / "d", executor, mode=mode)
    made.dump_full()
    assert {lost.name for lost in made.failures} == {"bad", "after", "after2"}
    entries = {entry.name: entry for entry in dump_info.read(tmp_path / "d").outputs}
    assert entries["bad"].error and entries["bad"].failed and entries["bad"].topo_index == 1
    assert len(entries) == len(made.get_node_output_names())
    assert {line.split()[4].rstrip(",") for line in lines[1:]} == set(entries) - {"bad", "after", "after2"}


def test_what_cannot_be_given_is_no_failure(tmp_path):
    made, _ = pipeline(nets.branching_net(), tmp_path / "d")
    made.dump_full()
    assert not made.failures and {lost.name for lost in made.not_dumped} == {"inner_then", "inner_else"}
    entries = {entry.name: entry for entry in dump_info.read(tmp_path / "d").outputs}
    assert entries["inner_then"].failed is False and "inside a body" in entries["inner_then"].error


def test_an_optional_value_is_not_asked_for_alone(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Optional", ["a"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["out"]),
    ]
    made, _ = pipeline(nets.net(nodes, nets.X), tmp_path / "d", mode="isolated")
    made.dump_full()
    (lost,) = made.not_dumped
    assert (lost.name, lost.reason, lost.failed) == ("maybe", "an optional value, not a tensor", False)
    outputs = {"d/outputs/topoidx_00000__a.npy", "d/outputs/topoidx_00002__out.npy"}
    assert not made.failures and files(tmp_path) == {"d/inputs/x.npy", *outputs}


def test_once_gives_what_it_can(tmp_path):
    made, _ = pipeline(nets.failing_net(), tmp_path / "d")
    outputs = made.dump_once()
    assert list(outputs) == ["s19"] and [lost.name for lost in made.failures] == ["after2"]
    made.mark_outputs(["half2", "good"])
    assert list(made.dump_once()) == ["half2", "good"]
    assert list(made.dump_once([5, 3])) == ["half2", "good"]
    assert {"d/outputs/topoidx_00005__half2.npy", "d/outputs/good.npy"} <= files(tmp_path)
    with pytest.raises(ConfigError, match="1 topological indices are given for 2 outputs"):
        made.dump_once([5])


def test_once_runs_the_model_once(tmp_path):
    class Counting(Executor):
        name = "counting"
        loads: list[int] = []  # noqa: RUF012 - one list is the point

        def on_load(self, model, configs, folder):
            self.loads.append(len(model.graph.node))
            self.inner = open_executor("ort")
            self.inner.load_model(model)

        def on_execute(self, output_names, feed, configs):
            return self.inner.execute(output_names, feed)

    executor = Counting()
    made, _ = pipeline(residual_net(), tmp_path / "d", executor)
    made.mark_outputs(["r2", "c2"])
    made.dump_once()
    assert executor.loads == [5]
    assert dump_info.read(tmp_path / "d").meta["executor"] == "Counting"


def test_nothing_stale_stays_and_nothing_is_lost(tmp_path):
    made, _ = pipeline(residual_net(), tmp_path / "d")
    made.dump_full()
    made.dump_list(["fc"])
    assert len(files(tmp_path / "d" / "outputs")) == 12
    other, lines = pipeline(residual_net(), tmp_path / "d")
    other.dump_list(["fc"], dump_with_index=False)
    assert files(tmp_path / "d") == {"inputs/data.npy", "outputs/fc.npy"}
    (aside,) = (path for path in tmp_path.iterdir() if path.name != "d")
    assert len(files(aside)) == 13 and str(aside) in lines[-1]
    other.set_input_data({"data": {"seed": 1}})
    other.dump_list(["c1"])
    assert files(tmp_path / "d") == {"inputs/data.npy", "outputs/topoidx_00000__c1.npy"}


def test_a_call_that_cannot_be_leaves_the_old_dump(tmp_path):
    made, _ = pipeline(residual_net(), tmp_path / "d")
    made.dump_full()
    before = files(tmp_path)
    other, lines = pipeline(residual_net(), tmp_path / "d")
    for call in (
        lambda: other.dump_list(["fcc"]),
        lambda: other.dump_range("prob", "c1"),
        lambda: other.dump_range(step=0),
        lambda: other.mark_outputs(["nothing"]),
        lambda: other.set_input_data({"dat": {}}),
        lambda: other.extract_subgraph(["nothing"], ["fc"]),
    ):
        with pytest.raises(ConfigError):
            call()
    other.set_input_data(external_input_data={"data": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="got float32 \\[3\\]"):
        other.dump_full()
    assert files(tmp_path) == before and not lines


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    made, _ = pipeline(residual_net(), tmp_path)
    made.dump_list(["fc"])
    assert (tmp_path / "notes.txt").read_text() == "mine" and (tmp_path / "dump_info.json").is_file()
    (tmp_path / "file").write_text("")
    made, _ = pipeline(residual_net(), tmp_path / "file")
    with pytest.raises(OutputError):
        made.dump_full()


class Stop(BaseException):
    pass


class StopsAtTheThirdLine(Watched):
    def say(self, line):
        super().say(line)
        if len(self.lines) == 3:
            raise Stop


def test_a_run_that_is_stopped_leaves_the_folder_as_it_was(tmp_path):
    made, _ = pipeline(residual_net(), tmp_path / "d")
    made.dump_list(["c1"])
    before = files(tmp_path)
    stopped = Pipeline(residual_net(), "ort", tmp_path / "d", progress=StopsAtTheThirdLine())
    with pytest.raises(Stop):
        stopped.dump_full()
    assert files(tmp_path) == before and not list(tmp_path.rglob("*.partial"))
    stopped.dump_full()
    assert len(dump_info.read(tmp_path / "d").outputs) == len(stopped.get_node_output_names())


def test_until_the_newer_dump_is_whole_the_older_stands_in_its_place(tmp_path):
    made, _ = pipeline(residual_net(), tmp_path / "d")
    made.dump_list(["c1"])
    before = files(tmp_path / "d")

    class Looks(Watched):
        def say(self, line):
            if not line.startswith("the earlier dump"):
                assert files(tmp_path / "d") == before

    Pipeline(residual_net(), "ort", tmp_path / "d", progress=Looks()).dump_full()
    assert files(tmp_path / "d") != before


def test_a_later_call_that_is_stopped_leaves_the_dump_of_the_earlier_one(tmp_path):
    made = Pipeline(residual_net(), "ort", tmp_path / "d", progress=StopsAtTheThirdLine())
    made.dump_list(["c1"])
    before = files(tmp_path)
    with pytest.raises(Stop):
        made.dump_full()
    assert files(tmp_path) == before
    made.dump_once()
    names = [entry.name for entry in dump_info.read(tmp_path / "d").outputs]
    assert names[0] == "c1" and len(names) == 2 and not list(tmp_path.rglob("*.partial"))


def test_a_tensor_dumped_again_leaves_the_earlier_folder_whole_until_the_end(tmp_path):
    """The files of the folder to come begin as links to those of the one in its place."""
    made, _ = pipeline(residual_net(), tmp_path / "d")
    made.dump_full()
    kept = tmp_path / "kept"
    os.link(next((tmp_path / "d" / "outputs").glob("*.npy")), kept)
    before = kept.read_bytes()
    made.dump_full()
    assert kept.read_bytes() == before and kept.stat().st_nlink == 1


def test_nan_is_told_not_hidden(tmp_path):
    nodes = [helper.make_node("Log", ["x"], ["log"]), helper.make_node("Abs", ["log"], ["out"])]
    made, _ = pipeline(nets.net(nodes, nets.X), tmp_path / "d")
    made.set_input_data(external_input_data={"x": np.array([[-1, 0, 1, 2, 3, 4, 5, 6]], np.float32)})
    made.dump_full()
    entry = dump_info.read(tmp_path / "d").outputs[0]
    assert entry.facts.has_nan and entry.facts.has_inf and np.isnan(entry.facts.mean)


def test_models_by_path_and_proto(tmp_path):
    model = residual_net()
    onnx.save(model.proto, tmp_path / "net.onnx")
    for each in (tmp_path / "net.onnx", str(tmp_path / "net.onnx"), model.proto, open_model(tmp_path / "net.onnx")):
        assert Pipeline(each).get_node_output_names()[0] == "c1"
    with pytest.raises(ModelError, match="no such model file"):
        Pipeline(tmp_path / "other.onnx")


def test_an_executor_or_mode_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="unknown executor 'otr'; did you mean 'ort'"):
        Pipeline(residual_net(), "otr")
    with pytest.raises(ConfigError, match="unknown mode"):
        Pipeline(residual_net(), mode="slow")
    with pytest.raises(ConfigError, match="init has no option 'speed'"):
        Pipeline(residual_net(), "ort", tmp_path / "d", {"speed": 1}).dump_full()
    assert not (tmp_path / "d").exists()


def test_the_folder_is_named_after_the_executor():
    assert str(Pipeline(residual_net()).folder) == "ort_dump"
    assert str(Pipeline(residual_net(), open_executor("ort")).folder) == "ort_dump"


@MODES
def test_filters(tmp_path, mode):
    made, lines = pipeline(residual_net(), tmp_path / "d", mode=mode)
    made.dump_range(op_types=["Relu", "Gemm"], name_pattern="[rf]*")
    assert [line.split(", ")[1] for line in lines[1:]] == ["output r1", "output r2", "output fc"]


def old_net():
    """As before IR version 4: the weights are listed among the inputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(residual_net().proto)
    proto.ir_version = 3
    weights = proto.graph.initializer
    proto.graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in weights)
    return proto


def constant() -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0]))


def function_net() -> onnx.ModelProto:
    """x -> Twice (a function of the model: Add, then Neg inside) -> out."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = [helper.make_node("Add", ["v", "v"], ["sum"]), helper.make_node("Neg", ["sum"], ["w"])]
    twice = helper.make_function("own", "Twice", ["v"], ["w"], inner, opsets[:1])
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], name="twice", domain="own"),
        helper.make_node("Abs", ["t"], ["out"]),
    ]
    proto = nets.net(nodes, nets.X).proto
    proto.opset_import.append(opsets[1])
    proto.functions.append(twice)
    return proto


ODD_MODELS = {
    "an output that is an input": (nets.net([helper.make_node("Neg", ["x"], ["n"])], nets.X, None, ["x", "n"]), ["n"]),
    "an output that is a constant": (
        nets.net([constant(), helper.make_node("Add", ["x", "c"], ["n"])], nets.X, None, ["c", "n"]),
        ["n", "c"],
    ),
    "no inputs": (nets.net([constant(), helper.make_node("Neg", ["c"], ["n"])], {}), ["n"]),
    "weights among the inputs": (old_net(), [name for node in residual_net().proto.graph.node for name in node.output]),
    "functions": (function_net(), ["sum__1", "t", "out"]),
}


@MODES
@pytest.mark.parametrize("executor", ["ort", "reference"])
@pytest.mark.parametrize("what", ODD_MODELS)
def test_odd_models(tmp_path, what, executor, mode):
    model, names = ODD_MODELS[what]
    made, _ = pipeline(model, tmp_path / "d", executor, mode=mode)
    made.dump_full()
    dumped = [entry.name for entry in dump_info.read(tmp_path / "d").outputs if entry.error is None]
    assert sorted(dumped) == sorted(names) and names == made.get_node_output_names()
    assert not made.not_dumped
    assert list(made.dump_once()) == [info.name for info in made.model.proto.graph.output] and not made.failures


def test_types_beyond_numpy_are_in_the_json(tmp_path):
    from sgsdump.dumps.io import open_dump

    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["half"], ["out"], to=TensorProto.FLOAT),
    ]
    made, lines = pipeline(nets.net(nodes, nets.X), tmp_path / "d")
    made.dump_full()
    assert lines[1] == "topology index 0, output half, shape (1, 8), dtype bfloat16"
    found = open_dump(tmp_path / "d")
    assert str(found["half"].info.dtype) == "bfloat16"
    np.testing.assert_array_equal(found["half"].real(), found["out"].real())


def test_an_executor_that_is_missing_leaves_the_old_dump(tmp_path):
    class Missing(Executor):
        name = "missing"

        def on_init(self, configs):
            raise ConfigError("nothing to run with")

        def on_load(self, model, configs, folder): ...

        def on_execute(self, output_names, feed, configs): ...

    pipeline(nets.branching_net(), tmp_path / "d")[0].dump_full()
    before = files(tmp_path)
    with pytest.raises(ConfigError, match="nothing to run with"):
        pipeline(nets.branching_net(), tmp_path / "d", Missing())[0].dump_full()
    assert files(tmp_path) == before


@pytest.mark.parametrize("names", ["r1", [1], ["r1", None]])
def test_names_are_a_list_of_texts(tmp_path, names):
    given, _ = pipeline(residual_net(), tmp_path / "dump")
    for call in (given.dump_list, given.mark_outputs, lambda n: given.extract_subgraph(None, n)):
        with pytest.raises(ConfigError, match="list of strings"):
            call(names)


def test_layouts_of_inputs_and_outputs_are_known_to_who_reads_the_dump(tmp_path):
    given, _ = pipeline(residual_net(), tmp_path / "dump")
    given.dump_full()
    dump = open_dump(tmp_path / "dump")
    four = [r.tensor.info for r in dump.records if len(r.tensor.info.shape) == 4]
    assert {info.layout for info in four} == {"NCHW"} and set(dump.inputs) & {info.name for info in four}


@pytest.mark.parametrize("executor", ["ort", "reference"])
def test_bfloat16_arrays_are_inputs(tmp_path, executor):
    """As ml_dtypes has them, as numpy reads them back from a file (bytes without a type), and as float32."""
    info = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2, 2])
    out = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [info], [out])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    values = np.array([[1, -2.5], [3.0078125, 1e30]], np.float32)
    brain = values.astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", brain)
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype == np.dtype("V2")
    for given in (brain, loaded, values):
        made, _ = pipeline(proto, tmp_path / "d", executor)
        made.set_input_data(external_input_data={"x": given})
        made.dump_full()
        assert not made.failures
        with open_dump(tmp_path / "d") as dump:
            assert dump["y"].info.dtype == ml_dtypes.bfloat16
            np.testing.assert_array_equal(dump["y"].stored(), brain)
    with pytest.raises(InputError, match="expects float32"):
        made.set_input_data(external_input_data={"x": values.astype(np.float64)})
        made.dump_full()
