"""What stands beside the tensors: topology, tables and the index, as the readers of the vendors' own files read it."""

import json
import shutil

import onnx
import pytest
from hooked_programs import MAIN, program, sgsdump, trees

from sgsdump.capture.msit import atb_json_to_onnx
from sgsdump.capture.programs.msit_tree import layer_document, model_document, new_tree, operations_of, readers_of
from sgsdump.capture.programs.process_index import Step, processes_of
from sgsdump.errors import OutputError
from sgsdump.models.atb.operation_csv import read as read_operations
from sgsdump.models.atb.topology import atb_graph


def line(folders, side, slot, value, weight="", **more):
    more = {"moment": "before" if side == "in" else "after", "dtype": "float32", "shape": [2, 2], **more}
    return {"folders": folders, "side": side, "slot": slot, "value": value, "weight": weight, **more}


LINEAR, RELU, SOFTMAX = ["0_Linear", "0_addmm"], ["0_Linear", "1_relu"], ["1_Softmax", "0_softmax"]
LINES = (
    line(LINEAR, "in", 0, 1),
    line(LINEAR, "in", 1, 2, "fc.weight"),
    line(LINEAR, "out", 0, 3),
    line(RELU, "in", 0, 3),
    line(RELU, "out", 0, 4),
    line(SOFTMAX, "in", 0, 4),
    line(SOFTMAX, "out", 0, 5),
)
OPERATIONS = operations_of(Step("Net", 0, LINES, ({"folders": LINEAR, "param": {"alpha": 1}},)))


def test_a_model_names_each_tensor_once():
    model = model_document("Net", OPERATIONS)
    assert (model["modelName"], model["inTensors"], model["weightTensors"]) == ("Net", ["Net_input_0"], ["fc.weight"])
    assert (model["outTensors"], model["internalTensors"]) == (["softmax_1_0_output_0"], ["relu_0_1_output_0"])
    linear, softmax = model["nodes"]
    assert (linear["opName"], linear["opType"]) == ("Linear_0", "Linear")
    assert linear["inTensors"] == ["Net_input_0", "fc.weight"]
    assert (linear["outTensors"], linear["internalTensors"]) == (["relu_0_1_output_0"], ["addmm_0_0_output_0"])
    addmm, relu = linear["nodes"]
    assert (addmm["opName"], addmm["param"], relu["param"]) == ("addmm_0_0", {"alpha": 1}, "")
    assert relu["inTensors"] == addmm["outTensors"] == ["addmm_0_0_output_0"]
    assert softmax["nodes"][0]["inTensors"] == relu["outTensors"]


def test_a_models_outputs_are_those_it_gave_back_where_that_is_known():
    model = model_document("Net", OPERATIONS, [4, 5, 77])
    assert model["outTensors"] == ["relu_0_1_output_0", "softmax_1_0_output_0"]
    assert model["internalTensors"] == []
    onnx.checker.check_model(atb_graph(model))


def test_a_layer_has_its_own_names_and_its_children_use_them():
    layer = layer_document(OPERATIONS[0], readers_of(OPERATIONS))
    assert layer["inTensors"] == ["Linear_0_input_0", "Linear_0_input_1"]
    assert (layer["outTensors"], layer["internalTensors"]) == (["Linear_0_output_0"], ["Linear_0_internal_0"])
    addmm, relu = layer["nodes"]
    assert (addmm["outTensors"], relu["inTensors"]) == (["Linear_0_internal_0"], ["Linear_0_internal_0"])
    assert relu["outTensors"] == ["Linear_0_output_0"]


def test_the_topology_is_one_that_the_readers_of_the_vendors_take(tmp_path):
    for document in (model_document("Net", OPERATIONS), layer_document(OPERATIONS[0], readers_of(OPERATIONS))):
        model = atb_graph(document)
        onnx.checker.check_model(model)
        assert not model.doc_string
    graph = atb_graph(model_document("Net", OPERATIONS)).graph
    assert [node.op_type for node in graph.node] == ["addmm", "relu", "softmax"]
    assert [info.name for info in graph.input] == ["Net_input_0", "fc.weight"]
    assert [info.name for info in graph.output] == ["softmax_1_0_output_0"]


def test_values_without_a_number_are_of_their_operation_alone():
    lines = [{**one, "value": None} for one in LINES]
    model = model_document("Net", operations_of(Step("Net", 0, tuple(lines), ())))
    assert model["inTensors"] == ["Net_input_0", "Net_input_1", "Net_input_2"]
    assert model["weightTensors"] == ["fc.weight"] and len(model["outTensors"]) == 3


def test_of_a_tensor_dumped_twice_the_meant_moment_counts():
    twice = (
        line(LINEAR, "in", 0, 1),
        line(LINEAR, "in", 0, 9, moment="after"),
        line(LINEAR, "out", 0, 9, moment="before"),
    )
    (operation,) = operations_of(Step("Net", 0, (*twice, line(LINEAR, "out", 0, 3)), ()))
    (inner,) = operation.inside.values()
    assert (inner.reads[0].key, inner.writes[0].key) == (1, 3)


@pytest.mark.parametrize("folders", [None, [], "0_a", [1], ["0_a"] * 1000])
def test_lines_without_a_place_are_passed_over(folders):
    assert operations_of(Step("Net", 0, ({"folders": folders, "side": "in", "slot": 0},), ())) == []


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all_types")
    types = ("model", "tensor", "op", "cpu_profiling", "onnx")
    path = program(folder / "code", MAIN)
    done = sgsdump("exec", "--tree", "--type", *types, "-er", "0,1", "-o", "dumps", "--", "python", path, cwd=folder)
    assert done.returncode == 0, done.stderr
    (found,) = trees(folder / "dumps")
    return found


def test_the_whole_tree(tree):
    (process,) = processes_of(tree)
    pid = process.pid
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    step = {
        *("0_Linear/0_addmm/before/intensor0.bin", "0_Linear/0_addmm/before/intensor1.bin"),
        *("0_Linear/0_addmm/after/outtensor0.bin", "0_Linear/1_relu/before/intensor0.bin"),
        *("0_Linear/1_relu/after/outtensor0.bin", "1_Softmax/0_softmax/before/intensor0.bin"),
        "1_Softmax/0_softmax/after/outtensor0.bin",
    }
    assert files == {
        *(f"tensors/0_{pid}/{number}/{name}" for number in (0, 1) for name in step),
        *(f"model/{pid}/Net.{ending}" for ending in ("json", "onnx")),
        *(f"layer/{pid}/{name}.{ending}" for name in ("Linear_0", "Softmax_1") for ending in ("json", "onnx")),
        *(f"operation_io_tensors/{pid}/operation_tensors_{number}.csv" for number in (0, 1)),
        *(f"cpu_profiling/{pid}/operation_statistic_{number}.csv" for number in (0, 1)),
        *(f"processes/{pid}/index.jsonl", "control.json", "index.json"),
    }


def test_the_index_tells_what_is_there(tree):
    index = json.loads((tree / "index.json").read_text())
    (process,) = index["processes"]
    assert index["complete"] is True and index["types"] == sorted(
        ["model", "layer", "tensor", "op", "cpu_profiling", "onnx"]
    )
    assert (process["steps"], process["tensors"], process["files"], process["complete"]) == ([0, 1], 14, 14, True)


def test_the_tables_are_read_by_the_reader_of_the_vendors(tree):
    (path,) = tree.glob("operation_io_tensors/*/operation_tensors_0.csv")
    notes = []
    operations = read_operations(path, notes)
    assert notes == []
    assert list(operations) == ["Linear_0", "addmm_0_0", "relu_0_1", "Softmax_1", "softmax_1_0"]
    assert [(str(kind), shape) for kind, shape in operations["addmm_0_0"].inputs] == [("float32", (2, 2))] * 2
    row = path.read_text().splitlines()[2].split("|")
    assert row[3] == '{"alpha":1}' and row[14].endswith("0_addmm/before/intensor1.bin") and row[18] == "Net"
    (path,) = tree.glob("cpu_profiling/*/operation_statistic_0.csv")
    rows = path.read_text().splitlines()
    assert rows[0] == "OpName,OpType,Module,HostTimeUs" and rows[1] == "addmm_0_0,aten.addmm,root.fc,12.345"


def test_the_onnx_opens_with_types_and_atb_json_to_onnx_makes_the_same(tree, tmp_path):
    (path,) = tree.glob("model/*/Net.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    (source,) = tree.glob("model/*/Net.json")
    copy = tmp_path / "Net.json"
    shutil.copy(source, copy)
    atb_json_to_onnx(copy, -1, {})
    again = onnx.load(copy.with_suffix(".onnx"))
    assert [node.name for node in again.graph.node] == [node.name for node in model.graph.node]


def test_prefill_and_decoding_each_get_their_topology_and_equal_rounds_share_one(tmp_path):
    main = """
forward(0)
for step in (1, 2):
    operator(step, ("0_Linear", "0_addmm"), "aten.addmm", [(1, "")], [(3, "")], "root.fc")
"""
    path = program(tmp_path / "code", main)
    done = sgsdump("exec", "--type", "model", "-er", "all", "--", "python", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tree,) = trees(tmp_path)
    assert sorted(path.name for path in tree.glob("model/*/*")) == ["Net.json", "Net~2.json"]
    assert sorted(path.name for path in tree.glob("layer/*/*")) == [
        "Linear_0.json",
        "Linear_0~2.json",
        "Softmax_1.json",
    ]
    assert not (tree / "tensors").exists()


def test_the_topology_of_a_compiled_lambda_is_named_as_a_file_may_be_on_any_system(tmp_path):
    main = """
one = records.Operator(("0_arange",), op_type="aten.arange", model="<lambda>")
session.say([session.operator(0, one)], 0)
operator(0, ("1_Linear", "0_addmm"), "aten.addmm", [(1, "")], [(3, "")], "root.fc")
"""
    path = program(tmp_path / "code", main)
    done = sgsdump("exec", "--type", "model", "--", "python", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    saved = {path.name: json.loads(path.read_text())["modelName"] for path in trees(tmp_path)[0].glob("model/*/*")}
    assert saved == {"_lambda_.json": "<lambda>", "Net.json": "Net"}


def test_rounds_that_differ_in_their_params_alone_share_a_topology(tmp_path):
    main = """
for step in range(3):
    one = records.Operator(("0_arange",), op_type="aten.arange", model="Net")
    session.say([session.operator(step, one, param={"end": step})], step)
    operator(step, ("1_Linear", "0_addmm"), "aten.addmm", [(1, "")], [(3, "")], "root.fc")
"""
    path = program(tmp_path / "code", main)
    done = sgsdump("exec", "--type", "model", "-er", "all", "--", "python", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tree,) = trees(tmp_path)
    (saved,) = tree.glob("model/*/*")
    assert saved.name == "Net.json" and json.loads(saved.read_text())["nodes"][0]["param"] == {"end": 0}


def test_a_tree_never_goes_into_an_older_one(tmp_path, monkeypatch):
    first, second = new_tree(tmp_path / "new" / "folder"), new_tree(tmp_path / "new" / "folder")
    assert first != second and first.is_dir() and second.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        new_tree(tmp_path / "file")
