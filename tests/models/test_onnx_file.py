"""Opening ONNX files: good ones, weights outside the file, and everything that is not one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_nets import residual_net

from sgsdump.errors import ModelError
from sgsdump.models.model import graph_inputs, open_model

FLOAT = TensorProto.FLOAT


def small(ir_version: int = 8) -> onnx.ModelProto:
    """y = x + w, the weight listed among the inputs as older models do."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["N", 3]), helper.make_tensor_value_info("w", FLOAT, [3])],
        [helper.make_tensor_value_info("y", FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir_version)


def external(folder: Path, location: str, offset: int = 0, length: int = 12) -> Path:
    model = small()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        weight.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_reads_a_model_and_only_its_real_inputs(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(small().SerializeToString())
    model = open_model(path)
    assert model.path == path
    assert model.folder is None
    assert model.proto == small()
    (only,) = graph_inputs(model.proto)
    assert (only.name, only.shape, only.dtype) == ("x", (None, 3), np.float32)


def test_old_genuine_model_lists_its_weights_among_the_inputs(shared: Path) -> None:
    model = open_model(shared / "ultraface" / "version-RFB-320_without_postprocessing.onnx")
    assert len(model.proto.graph.input) > 100
    (only,) = graph_inputs(model.proto)
    assert (only.name, only.shape, only.dtype) == ("input", (1, 3, 240, 320), np.float32)


@pytest.mark.parametrize(
    ("elem_type", "dtype"),
    [
        *((TensorProto.UINT8, np.uint8), (TensorProto.BOOL, np.bool_), (TensorProto.BFLOAT16, np.float32)),
        *((TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2), (TensorProto.INT4, ml_dtypes.int4)),
    ],
)
def test_input_types(elem_type: int, dtype: type) -> None:
    model = small()
    model.graph.input[0].type.tensor_type.elem_type = elem_type
    assert graph_inputs(model)[0].dtype == dtype


def test_inputs_that_cannot_be_fed() -> None:
    model = small()
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1])))
    with pytest.raises(ModelError, match="'x' of the model is a sequence"):
        graph_inputs(model)
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(FLOAT, None))
    with pytest.raises(ModelError, match="'x' of the model has no shape"):
        graph_inputs(model)
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(99, [1]))
    with pytest.raises(ModelError, match="'x' of the model has an unknown element type 99"):
        graph_inputs(model)


def test_external_data_stay_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    model = open_model(external(tmp_path, "w.bin"))
    assert model.folder == tmp_path
    assert not model.proto.graph.initializer[0].raw_data


@pytest.mark.parametrize(
    ("location", "offset", "length", "message"),
    [
        ("../w.bin", 0, 12, "outside the model's folder"),
        ("/etc/hostname", 0, 12, "outside the model's folder"),
        ("a\\..\\..\\w.bin", 0, 12, "outside the model's folder"),
        ("C:\\w.bin", 0, 12, "outside the model's folder"),
        ("", 0, 12, "outside the model's folder"),
        ("absent.bin", 0, 12, "which is missing"),
        ("w.bin", 4, 12, "which has only 12"),
        ("w.bin", 0, 1 << 60, "which has only 12"),
        ("w.bin", -1, 12, "has only"),
    ],
)
def test_external_data_in_bad_places(tmp_path: Path, location: str, offset: int, length: int, message: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(12))
    with pytest.raises(ModelError, match=message) as caught:
        open_model(external(tmp_path, location, offset, length))
    assert "'w'" in str(caught.value)


def test_external_data_hidden_in_a_body(tmp_path: Path) -> None:
    inner = small()
    inner.graph.initializer[0].data_location = TensorProto.EXTERNAL
    inner.graph.initializer[0].external_data.add(key="location", value="../../secret")
    outer = small()
    outer.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=inner.graph, else_branch=small().graph))
    path = tmp_path / "m.onnx"
    path.write_bytes(outer.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's folder"):
        open_model(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"isFloat: 1\n//out 0 s: 0.0", "is not an ONNX file"),
        (b"import torch\nprint('hello')\n", "is not an ONNX file"),
        (bytes(100), "is not an ONNX file"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(50), "TensorFlow Lite"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "holds no graph"),
        (onnx.ModelProto(ir_version=8, graph=onnx.GraphProto(name="g")).SerializeToString(), "holds no operators"),
    ],
)
def test_what_is_no_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        open_model(path)
    assert "\n" not in str(caught.value)


def test_a_model_cut_at_any_byte(tmp_path: Path) -> None:
    whole = small().SerializeToString()
    path = tmp_path / "m.onnx"
    for end in range(1, len(whole)):
        path.write_bytes(whole[:end])
        try:
            model = open_model(path)
        except ModelError as error:
            assert "\n" not in str(error)
        else:
            assert model.proto.graph.node  # only what follows the graph is gone


def test_folder_missing_and_too_large(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        open_model(tmp_path)
    with pytest.raises(ModelError, match="no such model file"):
        open_model(tmp_path / "absent.onnx")
    huge = tmp_path / "huge.onnx"
    with open(huge, "wb") as file:
        file.write(b"\x08\x08")
        file.truncate(3 << 30)  # sparse: takes no room on the disk
    with pytest.raises(ModelError, match="more than the 2 GiB"):
        open_model(huge)


@pytest.mark.parametrize("inside", [False, True])
def test_names_that_are_no_text(tmp_path: Path, inside: bool) -> None:
    """protobuf gives them as bytes, which nothing downstream can handle."""
    nodes = [helper.make_node("Relu", ["x"], ["QQQQ"]), helper.make_node("Neg", ["QQQQ"], ["y"])]
    x, y, flag = (helper.make_tensor_value_info(n, t, [2]) for n, t in (("x", 1), ("y", 1), ("flag", 9)))
    if inside:
        body = helper.make_graph(nodes, "body", [], [y])
        nodes = [helper.make_node("If", ["flag"], ["z"], then_branch=body, else_branch=body)]
    proto = helper.make_model(helper.make_graph(nodes, "net", [x, flag], [y]))
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString().replace(b"QQQQ", b"Q\xff\xfeQ"))
    with pytest.raises(ModelError, match="is not UTF-8 text"):
        open_model(tmp_path / "net.onnx")


def test_a_convolution_without_weights_is_one_line(tmp_path):
    model = residual_net().proto
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    del node.input[1:]
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=r"\(Conv\) has 1 inputs but needs 2"):
        open_model(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])), "a sequence"),
        (helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2])), "an optional value"),
        (helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, [2])), "a map"),
        (helper.make_sparse_tensor_type_proto(1, [2]), "a sparse tensor"),
    ],
)
def test_an_input_that_is_no_tensor_is_refused_by_name(kind: onnx.TypeProto, said: str) -> None:
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])], "g", [onnx.ValueInfoProto(name="x", type=kind)], []
        )
    )
    with pytest.raises(ModelError, match=f"input 'x' of the model is {said}; sgsdump feeds only tensors: export"):
        graph_inputs(proto)


@pytest.mark.parametrize("field", ["producer_name", "producer_version", "domain", "doc_string", "graph.name"])
def test_a_text_about_the_model_that_is_not_utf8_is_one_line(field, tmp_path):
    model = small()
    message = model.graph if field.startswith("graph.") else model
    setattr(message, field.rpartition(".")[2], "QQQQ")
    (tmp_path / "x.onnx").write_bytes(model.SerializeToString().replace(b"QQQQ", b"Q\xff\xfeQ"))
    with pytest.raises(ModelError, match=rf"its {field.rpartition('.')[2]} is not UTF-8 text"):
        open_model(tmp_path / "x.onnx")


def test_a_size_of_minus_one_is_one_that_is_not_fixed(tmp_path):
    proto = residual_net().proto
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        info.type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(proto, tmp_path / "net.onnx")
    opened = open_model(tmp_path / "net.onnx").proto
    assert graph_inputs(opened)[0].shape == (None, 3, 8, 8)
    infos = (*opened.graph.output, *opened.graph.value_info)
    assert not any(info.type.tensor_type.shape.dim[0].HasField("dim_value") for info in infos)


def test_an_onnx_file_is_read_without_the_modules_for_caffe(tmp_path: Path) -> None:
    onnx.save(small(), tmp_path / "net.onnx")
    code = "import sys; from sgsdump.models.model import open_model; open_model(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "net.onnx")]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "sgsdump.models.onnx_file" in imported and "sgsdump.models.caffe.onnx_graph" not in imported
