"""A model whose big weights stay in its file must be the same model; the oracle is onnx's own parser."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.files.protobuf_wire import WireError
from sgsdump.models import onnx_file
from sgsdump.models.external_data import in_one_piece
from sgsdump.models.model import open_model
from sgsdump.models.onnx_file import without_weights

FLOAT = TensorProto.FLOAT
FEED = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)}
BIG = ["w0", "w1", "w2"]


def proto() -> onnx.ModelProto:
    """Three products; weights that may stay behind (w0 to w2) and others that may not, one of a wrong size."""
    drawn = np.random.default_rng(0).standard_normal((3, 64, 64), np.float32)
    weights = [numpy_helper.from_array(array, f"w{number}") for number, array in enumerate(drawn)]
    weights[1].doc_string = "said of it"
    typed = TensorProto(name="typed", data_type=FLOAT, dims=[2000], float_data=np.ones(2000, np.float32))
    wrong = TensorProto(name="wrong", data_type=FLOAT, dims=[2000], raw_data=bytes(7999))
    both = TensorProto(name="both", data_type=FLOAT, dims=[2000], raw_data=bytes(8000), float_data=[1.0])
    bare = TensorProto(name="bfloat16", data_type=TensorProto.BFLOAT16, dims=[2000], raw_data=bytes(4000))
    limit = numpy_helper.from_array(np.ones(1024, np.float64), "limit")
    nodes = [
        helper.make_node("MatMul", [f"t{n}" if n else "x", f"w{n}"], [f"t{n + 1}"], doc_string="d" * n)
        for n in range(3)
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, [1, 64]) for name in ("x", "t3")]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [*weights, typed, wrong, both, bare, limit], doc_string="g"
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="p")
    model.metadata_props.add(key="k", value="v" * 300)
    return model


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "WORTH_A_WALK", 0)


def external(model: onnx.ModelProto) -> list[str]:
    return [t.name for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]


def test_big_weights_become_places_and_nothing_else_changes() -> None:
    whole = proto()
    data = whole.SerializeToString()
    left = onnx.ModelProto.FromString(without_weights(data, "net.onnx"))
    assert external(left) == BIG
    for tensor in left.graph.initializer:
        if tensor.name in BIG:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            assert entries.pop("location") == "net.onnx"
            start, length = map(int, (entries["offset"], entries["length"]))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data[start : start + length]
    assert left == whole


def test_a_model_without_weights_is_copied() -> None:
    bare = proto()
    del bare.graph.initializer[:]
    data = bare.SerializeToString()
    assert without_weights(data, "net.onnx") == data


@pytest.mark.parametrize("data", [b"\x3a\x03\x10\x01", b"\x3a", b"\x3a\x80", b"\x3b\x00", b"\x3d\x00\x00\x00"])
def test_a_field_cut_off_or_of_no_kind(data: bytes) -> None:
    with pytest.raises(WireError):
        without_weights(data, "net.onnx")


@given(st.data())
def test_damaged_bytes_end_in_an_error_or_in_what_onnx_reads(data: st.DataObject) -> None:
    whole = proto().SerializeToString()
    cut = data.draw(st.integers(0, len(whole)))
    damaged = bytearray(whole[:cut] if data.draw(st.booleans()) else whole)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, min(len(damaged), 600) - 1))] = data.draw(st.integers(0, 255))
    try:
        left = onnx.ModelProto.FromString(without_weights(bytes(damaged), "net.onnx"))
    except (WireError, DecodeError):
        return
    for tensor in left.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and len(tensor.external_data) == 3:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            assert int(entries["offset"]) + int(entries["length"]) <= len(damaged)


def runnable() -> onnx.ModelProto:
    model = proto()
    del model.graph.initializer[3:]
    return model


def dumped(path: Path, in_place: bool) -> dict[str, bytes]:
    runner = SegmentRunner(open_model(path, in_place=in_place))
    return {layer.name: layer.array.tobytes() for layer in runner.run(FEED)}


@pytest.mark.parametrize("name", ["net.onnx", "näme with space.onnx", "back\\slash.onnx", "c:net.onnx"])
def test_the_tensors_are_the_same(tmp_path: Path, walked: None, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(runnable().SerializeToString())
    assert dumped(path, in_place=True) == dumped(path, in_place=False) != {}


def test_they_stay_in_the_file_a_link_points_to(tmp_path: Path, walked: None) -> None:
    (tmp_path / "blobs").mkdir()
    path, link = tmp_path / "blobs" / "0f3a", tmp_path / "net.onnx"
    path.write_bytes(runnable().SerializeToString())
    link.symlink_to(path)
    model = open_model(link, in_place=True)
    assert (model.path, model.folder, external(model.proto)) == (link, path.parent, BIG)
    assert in_one_piece(model.proto, str(model.folder)).graph.node == runnable().graph.node
    assert dumped(link, in_place=True) == dumped(path, in_place=False)


def test_only_big_files_are_walked(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(runnable().SerializeToString())
    model = open_model(path, in_place=True)
    assert (model.folder, external(model.proto)) == (None, [])


def test_a_model_with_external_data_of_its_own_is_read_as_ever(tmp_path: Path, walked: None) -> None:
    model = runnable()
    path = tmp_path / "net.onnx"
    first = model.graph.initializer[0]
    (tmp_path / "w.data").write_bytes(first.raw_data)
    first.ClearField("raw_data")
    first.data_location = TensorProto.EXTERNAL
    first.external_data.add(key="location", value="w.data")
    path.write_bytes(model.SerializeToString())
    assert external(open_model(path, in_place=True).proto) == ["w0"]
    assert dumped(path, in_place=True) == dumped(path, in_place=False)


@pytest.mark.parametrize(("key", "value"), [("offset", "x"), ("offset", "-5"), ("length", "1" * 12)])
def test_a_place_in_the_file_that_is_none_is_told_as_ever(tmp_path: Path, walked: None, key: str, value: str) -> None:
    model = runnable()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="net.onnx")
    weight.external_data.add(key=key, value=value)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        open_model(path, in_place=True)
    with pytest.raises(ModelError) as wanted:
        open_model(path)
    assert str(caught.value) == str(wanted.value)


@pytest.mark.parametrize("size", [0, 10, 20_000])
def test_a_damaged_file_is_told_as_ever(tmp_path: Path, walked: None, size: int) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(runnable().SerializeToString()[:size])
    with pytest.raises(ModelError) as caught:
        open_model(path, in_place=True)
    with pytest.raises(ModelError) as wanted:
        open_model(path)
    assert str(caught.value) == str(wanted.value)


@pytest.mark.parametrize("change", ["cut off", "another"])
def test_a_file_that_changes_while_it_is_used(tmp_path: Path, walked: None, change: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(runnable().SerializeToString())
    runner = SegmentRunner(open_model(path, in_place=True))
    if change == "another":
        path.rename(tmp_path / "older.onnx")
        path.write_bytes((tmp_path / "older.onnx").read_bytes())
    else:
        os.truncate(path, 40_000)
    with pytest.raises(ModelError, match=r"cannot read .*net.onnx: the file changed while in use"):
        list(runner.run(FEED))
