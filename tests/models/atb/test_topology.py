"""ATB topologies as ONNX: held against the vendor's own files, its defects, and hostile JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.errors import ConfigError, FormatError, SgsdumpError
from sgsdump.models.atb.operation_csv import COLUMNS
from sgsdump.models.atb.operation_csv import read as read_csv
from sgsdump.models.atb.topology import atb_graph, convert_topology, recognises

LAYER: dict[str, Any] = {
    "opName": "Layer_1",
    "opType": "Layer",
    "inTensors": ["x", "w"],
    "outTensors": ["y"],
    "nodes": [
        {"opName": "Linear_1_0", "opType": "Linear", "param": "", "inTensors": ["x", "w"], "outTensors": ["t"]},
        {
            "opName": "Mlp_1_1",
            "opType": "Mlp",
            "inTensors": ["t"],
            "outTensors": ["y"],
            "nodes": [{"opName": "Act_1_1_0", "opType": "Act", "inTensors": ["t"], "outTensors": ["y"]}],
        },
    ],
}


def checked(document: Any, level: int = -1, csv: Any = None) -> onnx.ModelProto:
    model = atb_graph(document, level, csv)
    onnx.checker.check_model(model, full_check=True)
    return model


def shown(model: onnx.ModelProto) -> list[tuple[str, str, list[str], list[str]]]:
    return [(node.name, node.op_type, list(node.input), list(node.output)) for node in model.graph.node]


def names(infos: Any) -> list[str]:
    return [info.name for info in infos]


def values(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def node_with(param: Any) -> dict[str, Any]:
    found = checked({"opName": "a", "opType": "A", "inTensors": ["x"], "outTensors": ["y"], "param": param})
    return values(found.graph.node[0])


@pytest.mark.parametrize(
    ("source", "level"),
    [*(("layer_DecoderLayer_1", level) for level in (0, 1, -1)), *(("model_LlamaDecoder", level) for level in (1, -1))],
)
def test_graphs_are_the_vendors(shared: Path, source: str, level: int) -> None:
    folder = shared / "ascend" / "topology"
    stem = folder / f"msprobe_probe_{source}"
    vendors = onnx.load(f"{stem}_level_{'all' if level < 0 else level}.onnx")
    ours = checked(json.loads(Path(f"{stem}.json").read_text()), level)
    assert shown(ours) == shown(vendors)
    assert names(ours.graph.output) == names(vendors.graph.output)
    # The vendor leaves the weights out of the inputs, which no checker accepts.
    assert names(ours.graph.input)[: len(vendors.graph.input)] == names(vendors.graph.input)
    assert set(names(ours.graph.input)[len(vendors.graph.input) :]) <= {"w_embed", "w_norm", "w_lin"}
    for our_node, their_node in zip(ours.graph.node, vendors.graph.node):
        kept, theirs = values(our_node), values(their_node)
        assert list(kept) == list(theirs)
        for name, value in theirs.items():
            assert [kept[name]] == value or (value == [] and kept[name] == 0)


def test_the_bloom_model_has_the_tensors_nobody_told(shared: Path) -> None:
    document = json.loads((shared / "ascend" / "topology" / "Bloom7BFlashAttentionModel.json").read_text())
    assert "inTensors" not in document
    model = checked(document)
    assert len(model.graph.node) == 16 and len(model.graph.input) == 24
    assert names(model.graph.output) == [
        f"Bloom7BFlashAttentionModel_{name}" for name in ("internal_3", "output_2", "output_3")
    ]
    norm = values(model.graph.node[0])
    assert norm["normParam.opMode"] == 0 and norm["normParam.beginNormAxis"] == 2 and norm["postNormParam"] == b"null"
    assert [len(checked(document, level).graph.node) for level in range(5)] == [1, 1, 11, 14, 16]


def test_every_layer_and_model_of_the_dump_trees_becomes_a_graph(shared: Path) -> None:
    found = sorted((shared / "ascend" / "atb_dump_tree").rglob("info/*/*/*.json"))
    assert found
    for path in found:
        assert recognises(path, path.read_bytes()[:4096])
        assert len(checked(json.loads(path.read_text())).graph.node) >= 1


def test_only_the_jsons_of_layers_and_models_are_recognised(shared: Path) -> None:
    for path in (shared / "ascend" / "topology").iterdir():
        expected = path.suffix == ".json" and path.name != "model_tree.json"
        assert recognises(path, path.read_bytes()[:4096]) == expected, path
    assert not recognises(shared / "ascend/topology", b"")


def test_levels_unfold_and_a_model_has_a_level_0() -> None:
    assert [row[0] for row in shown(checked(LAYER, 0))] == ["Layer_1"]
    assert [row[0] for row in shown(checked(LAYER, 1))] == ["Linear_1_0", "Mlp_1_1"]
    assert shown(checked(LAYER, 99)) == shown(checked(LAYER)) == shown(checked(LAYER, 2))
    assert shown(checked(LAYER))[1] == ("Act_1_1_0", "Act", ["t"], ["y"])
    model = {"modelName": "net", "inTensors": ["i"], "weightTensors": ["w"], "outTensors": ["y"], "nodes": [LAYER]}
    assert shown(checked(model, 0)) == [("net", "net", ["i", "w"], ["y"])]
    with pytest.raises(ConfigError, match="invalid --level -2"):
        atb_graph(LAYER, -2)


def test_parameters_keep_zero_false_and_depth() -> None:
    param = {"a": 0, "b": False, "c": True, "d": {"e": {"f": {"g": 0.5, "h": [1, 2]}}}, "i": [], "j": "", "k": None}
    assert node_with(param) == {
        "a": 0, "b": 0, "c": 1, "d.e.f.g": 0.5, "d.e.f.h": [1, 2], "i": [], "j": b"", "k": b"null",
    }  # fmt: skip
    odd = {"big": 2**70, "huge": 1e300, "mixed": [1, "a"], "floats": [1, 0.5], "texts": ["a", "b"], "none": {}}
    assert node_with(odd) == {
        "big": str(2**70).encode(),
        "huge": b"1e+300",
        "mixed": b'[1, "a"]',
        "floats": [1.0, 0.5],
        "texts": [b"a", b"b"],
        "none": b"{}",
    }
    assert node_with({"a.b": 1, "a": {"b": 2}}) == {"a.b": 1, "a.b#2": 2}
    assert node_with("") == node_with(None) == {} and node_with([0]) == {"param": [0]}


def test_what_is_written_again_is_a_new_version() -> None:
    nodes = [
        {"opName": "a", "opType": "A", "inTensors": ["cache", "x"], "outTensors": ["cache"]},
        {"opName": "a", "opType": "A", "inTensors": ["cache"], "outTensors": ["y"]},
    ]
    model = checked({"opName": "r", "inTensors": ["x", "cache"], "outTensors": ["y", "cache", "lost"], "nodes": nodes})
    assert shown(model) == [("a", "A", ["cache", "x"], ["cache#2"]), ("a#2", "A", ["cache#2"], ["y"])]
    assert names(model.graph.output) == ["y", "cache#2"]
    assert model.doc_string.splitlines() == [
        "written several times; later versions are named NAME#2, #3 …: 'cache'",
        "omitted output 'lost': no operation computes it",
    ]


def test_a_cycle_is_cut_and_another_order_is_sorted() -> None:
    def operation(name: str, read: str, written: str) -> dict[str, Any]:
        return {"opName": name, "opType": "A", "inTensors": [read], "outTensors": [written]}

    cycle = checked({"opName": "r", "nodes": [operation("a", "p", "q"), operation("b", "q", "p")]})
    assert shown(cycle) == [("a", "A", ["p"], ["q"]), ("b", "A", ["q"], ["p#2"])]
    assert "treated as inputs: 'p'" in cycle.doc_string
    backwards = checked({"opName": "r", "nodes": [operation("b", "q", "y"), operation("a", "x", "q")]})
    assert [row[0] for row in shown(backwards)] == ["a", "b"] and not backwards.doc_string


def csv_of(tmp_path: Path, *rows: dict[str, str]) -> Path:
    lines = ["|".join(COLUMNS)] + ["|".join(f" {row.get(column, '')} " for column in COLUMNS) for row in rows]
    (tmp_path / "operation_tensors_0.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "operation_tensors_0.csv"


def typed(model: onnx.ModelProto) -> dict[str, tuple[int, list[int]]]:
    infos = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    return {
        info.name: (info.type.tensor_type.elem_type, [dim.dim_value for dim in info.type.tensor_type.shape.dim])
        for info in infos
        if info.type.HasField("tensor_type")
    }


LINEAR = {
    "OpName": "Linear_1_0",
    "OpParam": '{"a": "b|c"}',
    "InDType": "float16;bf16",
    "InShape": "8,64; 64,32",
    "OutDType": "float",
    "OutShape": "8,32",
}


def test_shapes_come_from_the_operation_csv(tmp_path: Path) -> None:
    act = {"OpName": "Act_1_1_0", "InDType": "float32", "InShape": "8,32", "OutDType": "int8", "OutShape": "8,32"}
    notes: list[str] = []
    csv = read_csv(csv_of(tmp_path, LINEAR, act), notes)
    kinds = onnx.TensorProto
    assert typed(checked(LAYER, csv=csv)) == {
        "x": (kinds.FLOAT16, [8, 64]),
        "w": (kinds.BFLOAT16, [64, 32]),
        "t": (kinds.FLOAT, [8, 32]),
        "y": (kinds.INT8, [8, 32]),
    }
    assert not notes
    model = checked(LAYER, csv=read_csv(csv_of(tmp_path, LINEAR, act | {"InShape": "8,33"}), notes))
    assert "t" not in typed(model) and "ignored contradictory types or shapes in the CSV: 't'" in model.doc_string


def test_what_the_csv_does_not_tell_stays_open(tmp_path: Path) -> None:
    notes: list[str] = []
    odd = LINEAR | {"InDType": "float16", "InShape": "8,64", "OutDType": "nothing", "OutShape": "8,x"}
    path = csv_of(tmp_path, odd, odd | {"OutShape": "9"})
    path.write_text(path.read_text() + "too|few\n\n")
    model = checked(LAYER, csv=read_csv(path, notes))
    assert not typed(model)
    assert "different number of tensors in the CSV: 'Linear_1_0'" in model.doc_string
    assert "not in the CSV: 'Layer_1', 'Act_1_1_0'" in model.doc_string
    assert len(notes) == 2 and "skipped 1 rows whose columns" in notes[0] and "whose shapes differ" in notes[1]
    path.write_text("a|b\n")
    with pytest.raises(FormatError, match="lacks OpName"):
        read_csv(path, notes)


def test_a_file_is_converted_whole_or_not_at_all(tmp_path: Path) -> None:
    source, target = tmp_path / "layer.json", tmp_path / "layer.onnx"
    source.write_text(json.dumps(LAYER))
    assert convert_topology(source, target, 1, csv_of(tmp_path, LINEAR)) == ("not in the CSV: 'Layer_1', 'Mlp_1_1'",)
    onnx.checker.check_model(target, full_check=True)
    assert len(onnx.load(target).graph.node) == 2
    before = target.read_bytes()
    source.write_text(json.dumps(LAYER)[:-5])
    with pytest.raises(FormatError, match="not valid JSON"):
        convert_topology(source, target)
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "not a list"),
        ({}, "neither opName nor modelName"),
        ({"opName": 3}, "opName '3' is not a string"),
        ({"opName": "a", "nodes": {}}, ""),
        ({"opName": "a", "nodes": {"b": 1}}, "not a list"),
        ({"opName": "a", "nodes": [[]]}, "not a list"),
        ({"opName": "a", "inTensors": "xy"}, "not a list of names"),
        ({"opName": "a", "outTensors": [1]}, "not a list of names"),
    ],
)
def test_other_documents_are_refused_in_one_line(document: Any, said: str) -> None:
    if not said:
        checked(document)
        return
    with pytest.raises(FormatError, match=said) as caught:
        atb_graph(document)
    assert "\n" not in str(caught.value)


def test_depth_is_bounded(tmp_path: Path) -> None:
    node: dict[str, Any] = {"opName": "leaf", "inTensors": ["x"], "outTensors": ["y"], "param": {}}
    inner = node["param"]
    for _ in range(60):
        inner["a"] = {}
        inner = inner["a"]
    for number in range(300):
        node = {"opName": f"n{number}", "nodes": [node]}
    assert len(values(checked(node).graph.node[0])) == 1
    (tmp_path / "deep.json").write_text('{"opName": "a", "nodes": [' * 50_000)
    with pytest.raises(FormatError, match="not valid JSON"):
        convert_topology(tmp_path / "deep.json", tmp_path / "deep.onnx")


tensors = st.lists(st.sampled_from(["", "x", "y", "z", "x#2", "\ud800"]), max_size=3)
param = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3),
    max_leaves=6,
)
operation = st.recursive(
    st.fixed_dictionaries(
        {"opName": st.sampled_from(["a", "b", ""]), "inTensors": tensors, "outTensors": tensors},
        optional={"param": param},
    ),
    lambda inner: st.fixed_dictionaries(
        {"opName": st.just("r"), "nodes": st.lists(inner, max_size=4)},
        optional={"inTensors": tensors, "outTensors": tensors},
    ),
    max_leaves=6,
)


@given(operation, st.integers(-1, 3))
def test_any_graph_is_valid_onnx(document: Any, level: int) -> None:
    try:
        checked(document, level)
    except SgsdumpError as error:
        assert "\n" not in str(error)
