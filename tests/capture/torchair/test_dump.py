"""Compiled programs are dumped: which operators, which sides, which steps, and that values and results are right."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture.torchair.programs import (
    AddSub,
    Alias,
    ConvNet,
    compiled,
    opened,
    operators_in,
    runs_of,
    steps_of,
    torch,
    values,
)

from sgsdump import compare, open_dump
from sgsdump.cli import main

PICTURES = [torch.full((2, 3, 8, 8), float(number)) + torch.arange(8) for number in range(3)]


def hooked(model: Any, x: Any) -> dict[str, Any]:
    """Inputs and outputs of every module of one eager forward, by an independent hook."""
    seen: dict[str, Any] = {}

    def hook(name: str) -> Any:
        def keep(module: Any, inputs: Any, output: Any) -> None:
            seen[f"{name}:in"], seen[f"{name}:out"] = before.pop(name), output.detach().clone()

        return keep

    before: dict[str, Any] = {}
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_pre_hook(lambda m, i, name=name: before.__setitem__(name, i[0].detach().clone()))
            module.register_forward_hook(hook(name))
    model(x)
    return seen


@pytest.mark.parametrize("grad", [False, True])
def test_dumped_values_are_those_of_an_independent_hook(tmp_path: Path, grad: bool) -> None:
    model = ConvNet().eval()
    eager = copy.deepcopy(model)
    run = compiled(model, tmp_path)
    with torch.set_grad_enabled(grad):
        for x in PICTURES:
            assert torch.equal(run(x), eager(x))
        seen = hooked(eager, PICTURES[2])
    dump = opened(tmp_path, 2)
    pairs = {"body.0": "conv2d", "body.1": "batch_norm", "body.2": "relu_", "body.3": "max_pool2d", "head": "linear"}
    for module, operator in pairs.items():
        assert torch.equal(values(dump, f"{operator}:output:0"), seen[f"{module}:out"])
        assert torch.equal(values(dump, f"{operator}:input:0"), seen[f"{module}:in"])
    assert torch.equal(values(dump, "body.0.weight:output:0"), model.body[0].weight.detach())
    assert torch.equal(values(dump, "conv2d:input:1"), model.body[0].weight.detach())
    assert torch.equal(values(dump, "x:output:0"), PICTURES[2])
    assert not dump.notes


def test_the_tree_is_the_vendor_s(tmp_path: Path) -> None:
    compiled(Alias(), tmp_path)(torch.ones(2))
    (file,) = tmp_path.rglob("Add.add.*")
    parts = file.relative_to(tmp_path).parts
    assert parts[0] == "worldsize1_global_rank0" and len(parts[1]) == 14 and parts[1].isdecimal()
    assert parts[2] == "0" and parts[3].startswith("Alias") and parts[4].isdecimal() and parts[5] == "0"
    assert [(run.rank, run.step) for run in runs_of(tmp_path)] == [(0, 0)]
    lines = [json.loads(line) for line in (file.parent / "index.jsonl").read_text().splitlines()]
    assert lines[0]["event"] == "begin" and lines[-1] == {"complete": True}
    (line,) = [line for line in lines if line.get("name") == "add" and line["side"] == "out"]
    assert (line["op_type"], line["shape"], line["dtype"], line["file"]) == ("Add", [2], "float32", file.name)
    assert line["source"].startswith("programs.py:")


@pytest.mark.parametrize(("steps", "found"), [(None, [0, 1, 2, 3]), ("1|3", [1, 3]), ("2-9", [2, 3]), ("7", [])])
def test_steps_are_numbered_as_they_are_asked_for(tmp_path: Path, steps: str | None, found: list[int]) -> None:
    run = compiled(AddSub(), tmp_path, dump_step=steps)
    for number in range(4):
        run(torch.ones(2) * number, torch.ones(2))
    if not found:
        assert not list(tmp_path.iterdir())
        return
    assert steps_of(tmp_path) == found
    for step in found:
        assert values(opened(tmp_path, step), "data0:output:0").tolist() == [step, step]


@pytest.mark.parametrize(("mode", "sides"), [("input", {"in"}), ("output", {"out"}), ("all", {"in", "out"})])
def test_a_side(tmp_path: Path, mode: str, sides: set[str]) -> None:
    compiled(AddSub(), tmp_path, dump_mode=mode, dump_layer="Add")(torch.ones(2), torch.ones(2))
    dump = opened(tmp_path)
    assert {record.io for record in dump.records if record.op_type == "Add"} == sides
    assert ("data0:output:0" in dump) == (mode != "input")


@pytest.mark.parametrize("layer", ["Add", "add", " Add  add"])
def test_a_named_operator_brings_the_data_it_reads_and_the_block_joins_in(tmp_path: Path, layer: str) -> None:
    """Seed: dump_layer and the with-block in union; Data nodes that are read come along. The product is in neither."""
    compiled(AddSub(), tmp_path, dump_layer=layer)(torch.ones(2), torch.full((2,), 3.0))
    assert operators_in(opened(tmp_path)) == {"data0", "data1", "add", "sub"}


def test_the_block_alone_leaves_the_rest_out(tmp_path: Path) -> None:
    compiled(AddSub(), tmp_path)(torch.ones(2), torch.full((2,), 3.0))
    assert operators_in(opened(tmp_path)) == {"data0", "data1", "sub"}


def test_the_block_goes_with_every_other_option(tmp_path: Path) -> None:
    def dumped(name: str, section: dict[str, Any] | None = None, **options: Any) -> set[str]:
        folder = tmp_path / name
        folder.mkdir()
        if section is not None:
            (folder / "dump.json").write_text(json.dumps({"dump": {"dump_path": str(folder), **section}}))
            options |= {"dump_path": None, "dump_config_path": str(folder / "dump.json")}
        run = compiled(AddSub(), folder, **options)
        for number in range(2):
            run(torch.ones(2) * number, torch.full((2,), 3.0))
        return {"/".join([path.parent.name, *path.name.split(".")[:2]]) for path in folder.rglob("*.*.*.0.*")}

    block = {"1/Data/data0", "1/Data/data1", "1/Sub/sub"}
    assert dumped("stats", dump_step="1", dump_data="stats", dump_mode="output") == block
    assert dumped("all", {"dump_op_switch": "on", "dump_step": "1"}) == block
    of_model = {"dump_step": "1", "dump_list": [{"model_name": "AddSub", "layer": ["mul"]}]}
    assert dumped("model", of_model) == block | {"1/Mul/mul"}


def test_of_two_inputs_only_the_one_that_is_read_comes_along(tmp_path: Path) -> None:
    compiled(ConvNet().eval(), tmp_path, dump_layer="linear")(PICTURES[0])
    assert operators_in(opened(tmp_path)) == {"linear", "head.weight", "head.bias"}


def test_an_unknown_name_is_told_with_the_nearest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = compiled(AddSub(), tmp_path, dump_layer="Add Addd")
    for _ in range(2):
        run(torch.ones(2), torch.ones(2))
    assert [record.getMessage() for record in caplog.records if "no graph has" in record.getMessage()] == [
        "dump_layer: no graph has an operator 'Addd'; did you mean 'Add'?"
    ]


def test_inputs_of_an_operator_that_writes_in_place_are_those_before_it(tmp_path: Path) -> None:
    compiled(Alias(), tmp_path)(torch.tensor([1.0, 2.0]))
    dump = opened(tmp_path)
    assert values(dump, "mul_:input:0").tolist() == [2, 3] and values(dump, "mul_:output:0").tolist() == [4, 6]
    assert values(dump, "add:output:0").tolist() == [2, 3] and values(dump, "cos:input:0").tolist() == [4, 6]


def test_statistics_have_the_device_s_columns(tmp_path: Path) -> None:
    compiled(Alias(), tmp_path, dump_data="stats")(torch.tensor([1.0, float("inf"), -2.0]))
    (file,) = tmp_path.rglob("Add.add.*.csv")
    assert file.read_text() == (
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
        "Negative Inf Count,Positive Inf Count\n"
        "Input,0,12,DT_FLOAT,ND,3,1,-2,-0.5,3,0,0,1\n"
        "Output,0,12,DT_FLOAT,ND,3,2,-1,0.5,3,0,0,1\n"
    )
    known = opened(tmp_path)["add:output:0"].statistics
    assert known and (known.max, known.min, known.positive_inf) == (2, -1, 1)
    assert not [path for path in tmp_path.rglob("Add.*") if path.suffix != ".csv"]


class InPlace(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x + 1
        before = y.sum()
        y.view(-1)[0].mul_(100)
        return y.mean() + before, y


def test_statistics_of_a_tensor_that_changed_are_new_and_of_one_that_did_not_the_same(tmp_path: Path) -> None:
    run = compiled(InPlace(), tmp_path, dump_data="stats")
    x = torch.tensor([1.0, 2.0])
    run(x)
    x.mul_(2)
    run(x)
    for step, (start, low, high) in enumerate([(1, 3, 200), (2, 5, 300)]):
        dump = opened(tmp_path, step)
        found = {name: (known.min, known.max) for name in dump if (known := dump[name].statistics)}
        assert found["x:output:0"] == (start, 2 * start)
        assert found["sum_1:input:0"] == found["add:output:0"] == (start + 1, 2 * start + 1)
        assert found["mul_:input:0"] == (start + 1, start + 1) and found["mul_:output:0"] == (high, high)
        assert found["mean:input:0"] == (low, high)


class Types(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        kinds = (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool, torch.complex64)
        converted = [x.to(kind) for kind in kinds]
        return *converted, x.to(torch.float8_e4m3fn), x.t(), x.sum(), x.new_zeros((0, 3)) + 1, torch.conj(converted[-1])


def test_every_type_shape_and_stride_comes_back(tmp_path: Path) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0], [3.0, -4.0, 5.0]])
    results = compiled(Types(), tmp_path, dump_mode="output")(x)
    dump = opened(tmp_path)
    assert not dump.notes
    outputs = {record.name: record.tensor for record in dump.records}
    found = [outputs[name].stored() for name in outputs if name.startswith("to")]
    assert [one.dtype.name for one in found] == [
        *("bfloat16 float16 float64 int8 int64 bool complex64 float8_e4m3fn".split())
    ]
    for tensor, array in zip(results, found):
        assert array.tobytes() == tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    assert outputs["t:output:0"].stored().tolist() == x.t().tolist()
    assert outputs["sum_1:output:0"].stored().tolist() == [7.0]


def test_training_goes_on_as_without_a_dump(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(ConvNet(), torch.nn.Dropout(0.5))
    eager = copy.deepcopy(model)
    run = compiled(model, tmp_path, dump_step="0")
    for one, other in ((run, model), (eager, eager)):
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        torch.manual_seed(5)
        for x in PICTURES:
            optimizer.zero_grad()
            one(x).square().sum().backward()
            optimizer.step()
    for mine, theirs in zip([*model.parameters(), *model.buffers()], [*eager.parameters(), *eager.buffers()]):
        assert torch.equal(mine, theirs)
    assert steps_of(tmp_path) == [0]


class Recurrent(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.inner, self.head = kind(4, 3, batch_first=True), torch.nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.inner(x)[0])[:, -1])


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks_are_dumped_and_trained_too(tmp_path: Path, kind: str) -> None:
    model = Recurrent(getattr(torch.nn, kind))
    eager, run = copy.deepcopy(model), compiled(model, tmp_path)
    x = torch.linspace(-1, 1, 40).reshape(2, 5, 4)
    assert torch.equal(run(x), eager(x))
    run(x).sum().backward()
    eager(x).sum().backward()
    assert torch.equal(model.inner.weight_ih_l0.grad, eager.inner.weight_ih_l0.grad)
    dump = opened(tmp_path)
    assert torch.equal(values(dump, f"{kind.lower()}:output:0"), eager.inner(x)[0])
    assert torch.equal(values(dump, "inner.weight_ih_l0:output:0"), model.inner.weight_ih_l0)


class Branches(torch.nn.Module):
    """A graph that breaks, an autocast block, a user's own gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.one(x).relu()
        torch._dynamo.graph_break()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.two(y)
        return z.float().exp()


def test_each_graph_has_its_folder_and_its_number(tmp_path: Path) -> None:
    model = Branches()
    eager, run = copy.deepcopy(model), compiled(model, tmp_path)
    x = torch.linspace(0, 1, 8).reshape(2, 4)
    for _ in range(2):
        mine, theirs = run(x), eager(x)
        assert torch.equal(mine, theirs)
    mine.sum().backward()
    theirs.sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), eager.parameters()))
    runs = runs_of(tmp_path)
    assert [run.step for run in runs] == [0, 0, 1, 1]
    graphs = {run.graph for run in runs}
    assert len(graphs) == 2 and all(graph.startswith("Branches") for graph in graphs)


def test_sizes_that_change(tmp_path: Path) -> None:
    torch._dynamo.reset()
    run = compiled(AddSub(), tmp_path, dump_layer="add")
    torch._dynamo.mark_dynamic(first := torch.ones(3, 2), 0)
    for rows in (first, torch.ones(5, 2)):
        assert torch.equal(run(rows, torch.ones(2))[0], rows + 1)
    assert opened(tmp_path, 1)["add:output:0"].info.shape == (5, 2)


@pytest.mark.parametrize("data", ["tensor", "stats"])
def test_weights_that_stay_are_stored_once(tmp_path: Path, data: str) -> None:
    model = ConvNet().eval()
    run = compiled(model, tmp_path, dump_layer="linear", dump_data=data)
    with torch.no_grad():
        for number, x in enumerate(PICTURES):
            if number == 2:
                model.head.weight.mul_(2)
            run(x)
    files = sorted(tmp_path.rglob("Data.head_weight.*"), key=lambda path: int(path.parent.name))
    assert [path.stat().st_nlink for path in files] == [2, 2, 1]
    assert files[0].stat().st_ino == files[1].stat().st_ino
    name = "head.weight:output:0" if data == "tensor" else "head_weight:output:0"  # a CSV has its file's name alone
    first, again, last = (opened(tmp_path, step)[name] for step in range(3))
    if data == "tensor":
        assert np.array_equal(first.stored() * 2, last.stored())
    else:
        assert first.statistics == again.statistics and last.statistics.max == pytest.approx(first.statistics.max * 2)


def test_two_runs_are_compared_step_by_step(tmp_path: Path) -> None:
    """Another version of the program: its second step differs in the bias of the head only."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        model = ConvNet().eval()
        run = compiled(model, tmp_path / name)
        with torch.no_grad():
            for number, x in enumerate(PICTURES):
                if name == "b" and number == 1:
                    model.head.bias.add_(1)
                run(x)
    assert compare(opened(tmp_path / "a", 0), opened(tmp_path / "b", 0)).worst.mse == 0
    apart = [row.name for row in compare(opened(tmp_path / "a", 1), opened(tmp_path / "b", 1)) if row.error]
    assert apart == ["head.bias:output:0", "linear:input:2", "linear:output:0"]


def test_what_no_folder_should_be_called_is_an_underscore_in_a_graph_s_name(tmp_path: Path) -> None:
    odd = type("My net/v1.5\\b", (torch.nn.ReLU,), {})
    compiled(odd(), tmp_path)(torch.ones(2))
    (run,) = runs_of(tmp_path)
    assert run.place.split("/")[3] == "My_net_v1_5_b"


def test_a_step_becomes_npy_files_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seed: dump, then npy, then text. numpy itself reads the arrays."""
    (tmp_path / "dumped").mkdir()
    run = compiled(AddSub(), tmp_path / "dumped")
    for number in range(2):
        run(torch.ones(2) * number, torch.full((2,), 3.0))
    assert main(["convert", str(tmp_path / "dumped"), "--step", "1", str(tmp_path / "arrays") + "/"]) == 0
    assert np.load(tmp_path / "arrays" / "sub_output_0.npy").tolist() == [-2, -2]
    capsys.readouterr()
    assert main(["show", str(tmp_path / "arrays"), "sub:output:0"]) == 0
    assert "-2" in capsys.readouterr().out.splitlines()[-1]


def test_nothing_is_dumped_and_nothing_slowed_when_it_is_off(tmp_path: Path) -> None:
    run = compiled(AddSub(), tmp_path, enable_dump=False)
    assert run(torch.ones(2), torch.ones(2))[0].tolist() == [2, 2] and not list(tmp_path.iterdir())


@pytest.mark.usefixtures("two_gib_are_left")
def test_a_full_disk_stops_the_dump_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import shutil

    from sgsdump.capture.torchair import tree

    monkeypatch.setattr(tree.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, 1500 << 20))
    run = compiled(AddSub(), tmp_path)
    for _ in range(3):
        assert run(torch.ones(2), torch.ones(2))[0].tolist() == [2, 2]
    said = [record.getMessage() for record in caplog.records if "Disk space" in record.getMessage()]
    assert said == ["Disk space is not enough, it's must more than 2G, free size(MB) is: 1500; nothing more is dumped"]
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_costs_the_dump_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from sgsdump.capture.torchair import dumped

    def full(*_: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dumped, "write_operator", full)
    assert compiled(AddSub(), tmp_path)(torch.ones(2), torch.ones(2))[0].tolist() == [2, 2]
    assert "No space left on device; nothing more is dumped" in caplog.text


def test_one_operator_that_cannot_be_dumped_is_told_and_the_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgsdump.capture.torchair import dumped

    real = dumped.payload

    def payload(tensor: Any) -> Any:
        if tensor.sum() == 4:
            raise RuntimeError("no storage")
        return real(tensor)

    monkeypatch.setattr(dumped, "payload", payload)
    compiled(AddSub(), tmp_path, dump_layer="add")(torch.ones(2), torch.ones(2))
    dump = opened(tmp_path)
    assert "add" not in operators_in(dump) and dump.notes == ("add (Add) is not dumped: no storage",)


def test_a_model_of_the_json_is_meant_by_its_class(tmp_path: Path) -> None:
    entries = [{"model_name": "ConvNet", "layer": ["conv2d", "Linear"]}, {"model_name": "Other"}]
    (tmp_path / "dump.json").write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_list": entries}}))
    options = {"dump_path": None, "dump_config_path": str(tmp_path / "dump.json")}
    compiled(ConvNet().eval(), tmp_path, **options)(PICTURES[0])
    compiled(AddSub(), tmp_path, **options)(torch.ones(2), torch.ones(2))
    dumps = {run.graph.split("/")[0].split("_")[0]: open_dump(tmp_path / run.place) for run in runs_of(tmp_path)}
    assert operators_in(dumps["ConvNet"]) - {"x"} == {
        "conv2d", "linear", "body.0.weight", "body.0.bias", "head.weight", "head.bias"
    }  # fmt: skip
    assert operators_in(dumps["AddSub"]) == {"data0", "data1", "sub"}
    assert all(record.io == "out" for record in dumps["ConvNet"].records)


def test_the_json_may_be_edited_while_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sgsdump.capture.torchair import plan

    monkeypatch.setattr(plan, "RELOAD_SECONDS", 0.0)
    file = tmp_path / "dump.json"
    section = {"dump_path": str(tmp_path), "dump_op_switch": "on", "dump_list": []}
    file.write_text(json.dumps({"dump": {**section, "dump_step": "0"}}))
    run = compiled(AddSub(), tmp_path, dump_path=None, dump_config_path=str(file))
    edits = {1: "{ no json", 2: json.dumps({"dump": {**section, "dump_step": "2-3"}})}
    for number in range(5):
        if number in edits:
            file.write_text(edits[number])
        run(torch.ones(2), torch.ones(2))
    assert steps_of(tmp_path) == [0, 2, 3]


def test_threads_have_steps_of_their_own(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    run = compiled(Alias(), tmp_path)
    run(torch.zeros(2))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: run(torch.full((2,), float(number))), range(1, 9)))
    assert steps_of(tmp_path) == list(range(9))
    seen = set()
    for step in range(9):
        dump = opened(tmp_path, step)
        x = values(dump, "x:output:0")[0].item()
        assert not dump.notes and values(dump, "add:output:0").tolist() == [x + 1] * 2
        seen.add(x)
    assert seen == set(map(float, range(9)))


def test_the_tree_names_the_rank_of_a_distributed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("is_initialized", True), ("get_world_size", 4), ("get_rank", 2)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    compiled(torch.nn.ReLU(), tmp_path)(torch.ones(2))
    (run,) = runs_of(tmp_path)
    assert run.rank == 2 and run.place.startswith("worldsize4_global_rank2/")


class Unwritten(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(64, 8)

    def forward(self, x: Any) -> Any:
        rows = torch.empty_like(x)
        rows[0] = x[0]
        rows[1:] = 3
        return self.head(torch.empty_like(x).copy_(x) + rows)


@pytest.mark.parametrize("data", ["tensor", "stats"])
def test_memory_that_nothing_was_written_to_is_not_compared(tmp_path: Path, data: str) -> None:
    dumps = []
    for number in range(2):
        model = Unwritten()
        noise = [torch.full((64, 64), float(number)) for _ in range(20)]  # what is in the memory that it is given
        del noise
        (tmp_path / str(number)).mkdir()
        run = compiled(model, tmp_path / str(number), dump_mode="all", dump_data=data)
        with torch.no_grad():
            run(torch.ones(64, 64))
        dumps.append(opened(tmp_path / str(number)))
    comparison = compare(*dumps, inputs=True)
    assert all(not row.error for row in comparison.rows) and not comparison.failed
    assert not (comparison.only_in_sample or comparison.only_in_benchmark)
    assert {"empty_like:output:0", "copy_:input:0", "empty_like_1:output:0"} <= set(comparison.unwritten)
    written = {row.name for row in comparison.rows}
    assert {"copy_:output:0", "copy__1:output:0", "add:input:0", "add:input:1"} <= written
    lines = [json.loads(line) for path in tmp_path.rglob("index.jsonl") for line in path.read_text().splitlines()]
    assert all(line["file"] is None for line in lines if line.get("unwritten"))
