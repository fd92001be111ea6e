"""Notes beside the nodes of a model: the model computes what it did, and is valid wherever it is written."""

import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_nets import residual_net

from sgsdump.errors import ModelError, OutputError
from sgsdump.files.names import normalised
from sgsdump.models import node_notes
from sgsdump.models.node_notes import Note, annotate


@pytest.fixture
def model(tmp_path):
    onnx.save(residual_net().proto, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def external(tmp_path):
    """The same with its weights in two files, one in a folder of its own."""
    folder = tmp_path / "external"
    (folder / "w").mkdir(parents=True)
    proto = residual_net().proto
    for index, tensor in enumerate(proto.graph.initializer):
        onnx.external_data_helper.set_external_data(tensor, ["weights.bin", "w/more.bin"][index % 2])
    onnx.save(proto, folder / "net.onnx")
    return folder / "net.onnx"


def notes_in(message):
    return {entry.key: entry.value for entry in message.metadata_props}


def node(proto, output):
    return next(node for node in proto.graph.node if output in node.output)


def answer(path):
    session = onnxruntime.InferenceSession(str(path))
    (taken,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in taken.shape]
    return session.run(None, {taken.name: np.full(shape, 0.5, np.float32)})[0]


def test_the_nodes_have_the_notes_and_nothing_else_changes(model, tmp_path):
    out = tmp_path / "out.onnx"
    notes = [Note(("c1",), {"rmse": "0.5"}), Note(("no", "prob"), {"rmse": "nan"}), Note(("no",), {})]
    left = annotate(model, out, notes)
    assert [note.names for note in left] == [("no",)]
    before, after = onnx.load(model), onnx.load(out)
    onnx.checker.check_model(after, full_check=True)
    assert notes_in(node(after, "c1")) == {"sgsdump.rmse": "0.5"} and not node(after, "r1").metadata_props
    assert notes_in(after.graph.output[0]) == notes_in(node(after, "prob")) == {"sgsdump.rmse": "nan"}
    for message in (*after.graph.node, *after.graph.value_info, *after.graph.output):
        del message.metadata_props[:]
    assert after == before
    assert np.array_equal(answer(model), answer(out))


def test_notes_of_an_earlier_time_go_and_others_stay(model, tmp_path):
    proto = onnx.load(model)
    node(proto, "c1").metadata_props.add(key="source", value="mine")
    onnx.save(proto, model)
    annotate(model, tmp_path / "a.onnx", [Note(("c1",), {"rmse": "1"}), Note(("c2",), {"rmse": "2"})])
    annotate(tmp_path / "a.onnx", tmp_path / "b.onnx", [Note(("c1",), {"cos": "3"})])
    after = onnx.load(tmp_path / "b.onnx")
    assert (
        notes_in(node(after, "c1")) == {"source": "mine", "sgsdump.cos": "3"} and not node(after, "c2").metadata_props
    )


def test_of_several_outputs_the_worst_is_told(tmp_path):
    split = helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4 if name == "x" else 2]) for name in "xab"]
    graph = helper.make_graph([split], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "s.onnx")
    annotate(tmp_path / "s.onnx", tmp_path / "o.onnx", [Note(("a",), {"rmse": "9"}, 9), Note(("b",), {"rmse": "1"}, 1)])
    after = onnx.load(tmp_path / "o.onnx")
    assert notes_in(after.graph.node[0]) == {"sgsdump.tensor": "a", "sgsdump.rmse": "9"} and after.ir_version == 9
    assert [notes_in(info)["sgsdump.rmse"] for info in after.graph.output] == ["9", "1"]


def test_names_as_the_sdk_normalises_them(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["a/b:0"]), helper.make_node("Relu", ["a/b:0"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph), tmp_path / "s.onnx")
    assert normalised("a/b:0") != "a/b:0"
    assert not annotate(tmp_path / "s.onnx", tmp_path / "o.onnx", [Note((normalised("a/b:0"),), {"rmse": "1"})])


@pytest.mark.parametrize("folder", [".", "elsewhere"])
def test_external_weights_stay_external_and_go_along(external, folder):
    target = external.parent / folder / "out.onnx"
    target.parent.mkdir(exist_ok=True)
    for _ in range(2):  # again over what is there
        annotate(external, target, [Note(("c1",), {"rmse": "1"})])
    onnx.checker.check_model(str(target))
    assert target.stat().st_size < 8000 and np.array_equal(answer(external), answer(target))
    after = onnx.load(target, load_external_data=False)
    places = {entry.value for t in after.graph.initializer for entry in t.external_data if entry.key == "location"}
    assert places == {"weights.bin", "w/more.bin"}


def test_another_models_weights_are_not_overwritten(external, tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"another's")
    with pytest.raises(
        OutputError, match=r"cannot write the model's weights to .*weights\.bin: a different file with this name exists"
    ):
        annotate(external, tmp_path / "out.onnx", [Note(("c1",), {})])
    assert not (tmp_path / "out.onnx").exists() and (tmp_path / "weights.bin").read_bytes() == b"another's"
    with pytest.raises(OutputError, match="reads or writes that file already"):
        annotate(external, external.parent / "weights.bin", [Note(("c1",), {})])


@pytest.mark.parametrize("place", ["../weights.bin", "/etc/hostname", "w/../../x"])
def test_no_weights_outside_the_models_folder(external, place):
    proto = onnx.load(external, load_external_data=False)
    next(e for e in proto.graph.initializer[0].external_data if e.key == "location").value = place
    external.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's folder"):
        annotate(external, external.parent / "out.onnx", [Note(("c1",), {})])


def test_weights_of_more_than_two_gigabytes_are_not_touched(external):
    proto = onnx.load(external, load_external_data=False)
    size = 2**31 + 4096
    with open(external.parent / "weights.bin", "r+b") as weights:
        os.truncate(weights.fileno(), size + 4096)  # a hole, which takes no room
    unused = proto.graph.initializer.add(name="unused", data_type=TensorProto.UINT8, dims=[size], raw_data=b"")
    onnx.external_data_helper.set_external_data(unused, "weights.bin", 4096, size)
    unused.data_location = TensorProto.EXTERNAL
    external.write_bytes(proto.SerializeToString())
    annotate(external, external.parent / "out.onnx", [Note(("c1",), {"rmse": "1"})])
    onnx.checker.check_model(str(external.parent / "out.onnx"))
    assert (external.parent / "out.onnx").stat().st_size < 8000


def test_a_model_that_would_grow_past_the_limit_of_protobuf(model, tmp_path, monkeypatch):
    monkeypatch.setattr(node_notes, "PROTOBUF_LIMIT", model.stat().st_size)
    with pytest.raises(
        ModelError, match="more than the 2 GiB limit of an ONNX file; save the model with external data"
    ):
        annotate(model, tmp_path / "out.onnx", [Note(("c1",), {"rmse": "1"})])
    assert not (tmp_path / "out.onnx").exists()


def test_a_model_of_other_dumps_and_no_model_at_all(model, tmp_path):
    with pytest.raises(
        ModelError, match=r"no node of .*net\.onnx computes a compared tensor \(the nodes of the model compute 'c1'"
    ):
        annotate(model, tmp_path / "out.onnx", [Note(("other",), {})])
    for content in (b"", b"text", model.read_bytes()[:-40]):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelError) as caught:
            annotate(tmp_path / "bad.onnx", tmp_path / "out.onnx", [Note(("c1",), {})])
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="cannot read"):
        annotate(tmp_path / "none.onnx", tmp_path / "out.onnx", [])
    assert not (tmp_path / "out.onnx").exists()
