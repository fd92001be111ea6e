"""The graph of a TFLite file, against LiteRT's own reading of it; damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT (the extra tflite) is not installed")

import tflite_models

from sgsdump.errors import ModelError
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.models.tflite import operator_of


def opened(path: Path):
    return open_model(path, native=True)


def test_nodes_names_types_and_scales_are_the_files(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    _, path = tflite_models.pair(tmp_path)
    model = opened(path)
    run = Interpreter(str(path))
    facts = {each["index"]: each for each in run.get_tensor_details()}
    for node, operator in zip(model.proto.graph.node, run._get_ops_details(), strict=True):
        assert node.op_type == operator["op_name"]
        assert list(node.input) == [facts[index]["name"] for index in operator["inputs"]]
        assert list(node.output) == [facts[index]["name"] for index in operator["outputs"]]
        assert operator_of(model, node.output[0]) == operator["index"]
    for each in facts.values():
        quant = model.native.quants[each["name"]]
        told = each["quantization_parameters"]
        np.testing.assert_array_equal(np.ravel(quant.scale).astype(np.float32), told["scales"])
        assert quant.zero_point == told["zero_points"][0]
        assert (quant.axis or 0) == told["quantized_dimension"]
    assert len(model.native.quants["first/w"].scale) == 4


def test_a_quantised_input_takes_real_values_and_codes(tmp_path: Path) -> None:
    (spec,) = graph_inputs(opened(tflite_models.pair(tmp_path)[1]).proto)
    assert (spec.name, spec.shape, spec.dtype, spec.also) == ("x_int8", (1, 8, 8, 3), np.float32, (np.int8,))


def test_dequantised_weights_are_weights(tmp_path: Path) -> None:
    path = tmp_path / "half.tflite"
    path.write_bytes(tflite_models.float_model(halves=True))
    graph = opened(path).proto.graph
    assert [node.op_type for node in graph.node] == ["CONV_2D", "CONV_2D", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX"]
    assert {"first/w", "first/w16"} <= {tensor.name for tensor in graph.initializer}


def test_names_that_are_empty_or_shared_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "names.tflite"
    ranges = dict.fromkeys(("x", *tflite_models.NAMES), (0.0, 1.0))
    path.write_bytes(tflite_models.quantised_model(ranges, names=("same", "same2", "", "dense", "out")))
    path.write_bytes(path.read_bytes().replace(b"same2", b"same\0"))
    made = [name for node in opened(path).proto.graph.node for name in node.output]
    assert len(set(made)) == 5
    assert all(made)


def test_other_commands_say_what_such_a_model_is_for(tmp_path: Path) -> None:
    path, _ = tflite_models.pair(tmp_path)
    with pytest.raises(
        ModelError,
        match=r"float\.tflite is a TFLite model, which sgsdump can run only as a whole.*convert the model to ONNX",
    ):
        open_model(path)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b"\0\0\0\0TFL3", "damaged table"),
        (b"\x10\0\0\0TFL3", "points to byte 16, but ends after 8 bytes"),
        (b"\xff\xff\xff\xffTFL3" + bytes(100), "points to byte"),
        (b"nothing of the kind", "identifier TFL3 is missing"),
    ],
)
def test_files_that_are_none(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "bad.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=what) as raised:
        opened(path)
    assert "\n" not in str(raised.value)


def test_any_damage_is_one_line_or_a_graph(tmp_path: Path) -> None:
    whole = tflite_models.pair(tmp_path)[1].read_bytes()
    path, drawn, refused = tmp_path / "damaged.tflite", random.Random(3), 0
    for trial in range(400):
        data = bytearray(whole)
        if trial % 4 == 0:
            del data[drawn.randrange(8, len(data)) :]
        for _ in range(drawn.choice([1, 4, 20])):
            data[drawn.randrange(len(data))] = drawn.choice([0, 1, 127, 128, 255, drawn.randrange(256)])
        path.write_bytes(data)
        try:
            opened(path)
        except ModelError:
            refused += 1
    assert 50 < refused < 400


def test_one_vector_that_many_tables_share_is_not_copied_again_and_again() -> None:
    import flatbuffers

    from sgsdump.errors import FormatError
    from sgsdump.files.flatbuffer import root

    builder = flatbuffers.Builder(1 << 20)
    shared = builder.CreateByteVector(bytes(1 << 18))
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, shared, 0)
    table = builder.EndObject()
    builder.StartVector(4, 100, 4)
    for _ in range(100):
        builder.PrependUOffsetTRelative(table)
    tables = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, tables, 0)
    builder.Finish(builder.EndObject())
    with pytest.raises(FormatError, match="refers to the same bytes too many times"):
        [each.numbers(0, "u1") for each in root(bytes(builder.Output())).tables(0)]
