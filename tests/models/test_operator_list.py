"""Operators to choose from: of ONNX models, exported torch programs, and graphs as text."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from json_documents import checked
from small_nets import residual_net

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.errors import FormatError, ModelError
from sgsdump.models.operator_list import list_operators


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in members.items():
            made.writestr(name, data)
    return path


def node(target: str, name: str, reads: list[str], outputs: dict[str, object], **arguments: int) -> dict[str, object]:
    inputs = [{"name": "self", "arg": {"as_tensor": {"name": read}}} for read in reads]
    inputs += [{"name": key, "arg": {"as_int": value}} for key, value in arguments.items()]
    stack = 'File "/home/me/net.py", line 7, in forward\n  File "/lib/torch/nn/modules/linear.py", line 134, in forward'
    metadata = {"nn_module_stack": "L__self__,,m.M;L__self__l,l,torch.nn.Linear", "stack_trace": stack}
    return {"target": target, "name": name, "inputs": inputs, "outputs": [outputs], "metadata": metadata}


PROGRAM = {
    "graph_module": {
        "graph": {
            "nodes": [
                node("torch.ops.aten.linear.default", "linear", ["x", "p_w"], {"as_tensor": {"name": "linear"}}),
                node(
                    "torch.ops.aten.split_with_sizes.default", "split", ["linear"],
                    {"as_tensors": [{"name": "getitem"}, {"name": "getitem_1"}]}, dim=1,
                ),
                node("torch.ops.aten.relu.default", "relu", ["getitem_1"], {"as_tensor": {"name": "relu"}}),
            ]
        },
        "signature": {
            "input_specs": [
                {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "l.weight"}},
                {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
            ]
        },
    }
}  # fmt: skip


def test_of_onnx_with_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx

    model = residual_net().proto
    onnx.save(model, tmp_path / "net.onnx")
    (graph,) = list_operators(tmp_path / "net.onnx")
    assert [(one.name or one.op_type, one.op_type) for one in graph.operators] == [
        (node.name or node.output[0], node.op_type) for node in model.graph.node
    ]
    conv = next(one for one in graph.operators if one.op_type == "Conv")
    assert dict(conv.attributes)["pads"] == [1, 1, 1, 1]
    assert main(["show", "--operators", str(tmp_path / "net.onnx"), "--json", str(tmp_path / "o.json")]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"graph {graph.name}, {len(graph.operators)} operators\n") and "pads=[1, 1, 1, 1]" in out
    (document,) = checked(tmp_path / "o.json")["graphs"]
    assert [one["name"] for one in document["operators"]] == [one.name for one in graph.operators]


def test_of_an_exported_program(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.pt2", {"m/models/model.json": json.dumps(PROGRAM).encode(), "m/version": b"1"})
    (graph,) = list_operators(path)
    assert [(one.name, one.op_type, one.inputs) for one in graph.operators] == [
        ("p_w", "Data", ()),
        ("x", "Data", ()),
        ("linear", "Linear", ("x:0", "p_w:0")),
        ("split", "SplitWithSizes", ("linear:0",)),
        ("relu", "Relu", ("split:1",)),
    ]
    assert graph.operators[0].attributes == (("_is", "parameter l.weight"),)
    assert graph.operators[3].attributes == (("dim", 1), ("_module", "l"), ("_source", "net.py:7"))


def test_what_torch_exports_is_what_is_listed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch (the extra torch) is not installed")
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten())
    program = torch.export.export(model, (torch.ones(1, 1, 4, 4),))
    torch.export.save(program, tmp_path / "m.pt2")
    (graph,) = list_operators(tmp_path / "m.pt2")
    calls = [node.name for node in program.graph.nodes if node.op == "call_function"]
    assert [one.name for one in graph.operators if one.op_type != "Data"] == calls
    assert [one.name for one in graph.operators if one.op_type == "Data"] == [
        node.name for node in program.graph.nodes if node.op == "placeholder"
    ]


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"weights": b""}, "not an exported program"),
        ({"models/model.json": b"{"}, "not JSON"),
        ({"models/model.json": b"[]"}, "is damaged"),
        (
            {"models/model.json": b'{"graph_module": {"graph": {"nodes": 3}, "signature": {"input_specs": []}}}'},
            "damaged",
        ),
        ({"models/model.json": b"[" * 100_000}, "not JSON"),
    ],
)
def test_a_damaged_archive_is_one_line(tmp_path: Path, members: dict[str, bytes], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        list_operators(archive(tmp_path / "m.pt2", members))


def test_a_cut_off_archive_is_one_line(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.pt2", {"models/model.json": json.dumps(PROGRAM).encode()})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ModelError, match="cannot read"):
        list_operators(path)


def test_options_of_dumps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g.txt").write_text('op { name: "add" type: "Add" }')
    for given, why in (["add"], "NAME is for a dump"), (["--step", "1"], "--step is for a dump"):
        assert main(["show", "--operators", str(tmp_path / "g.txt"), *given]) == 2
        assert why in capsys.readouterr().err
    assert main(["show", "--operators", str(tmp_path / "g.txt"), "--select", "addd"]) == 2
    assert "did you mean 'add'" in capsys.readouterr().err
    assert main(["show", "--operators", str(tmp_path / "none.txt")]) == 2


def layer(name, kind, *inside):
    return {"opName": name, "opType": kind, "inTensors": ["x"], "outTensors": ["y"], "nodes": list(inside)}


def test_a_topology_lists_its_operations_with_their_ids(tmp_path):
    """Ids stand behind the names; where they do not, the order counts. conv_1 is a name, its id is 3_0."""
    inside = [layer("conv_1_3_0", "Conv", layer("Kernel", "K")), layer("Relu", "Relu")]
    model = {"modelName": "Net", "inTensors": ["x"], "nodes": [layer("embed_0", "E"), layer("block_3", "B", *inside)]}
    (tmp_path / "model/4711").mkdir(parents=True)
    (tmp_path / "model/4711/Net.json").write_text(json.dumps(model))
    (by_tree,), (by_file,) = list_operators(tmp_path), list_operators(tmp_path / "model/4711/Net.json")
    assert by_tree == by_file and by_tree.name == "Net"
    assert [(one.name, dict(one.attributes)["id"]) for one in by_tree.operators] == [
        *(("embed_0", "0"), ("block_3", "3"), ("conv_1_3_0", "3_0"), ("Kernel", "3_0_0"), ("Relu", "3_1")),
    ]


def test_a_tree_without_a_topology_says_how_to_get_one(tmp_path):
    with pytest.raises(FormatError, match="dump the program with --type model,"):
        list_operators(tmp_path)


def test_a_tree_without_tensors_says_what_it_has(tmp_path):
    (tmp_path / "model/4711").mkdir(parents=True)
    (tmp_path / "model/4711/Net.json").write_text("{}")
    with pytest.raises(FormatError, match=r"has no tensors.*show --operators \S+$"):
        open_dump(tmp_path)
