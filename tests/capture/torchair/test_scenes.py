"""Overflow detection and the watcher, by the JSON file that asks for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from capture.torchair.programs import Alias, compiled, opened, operators_in, runs_of, torch, values

from sgsdump.capture.torchair.dumped import Watched
from sgsdump.capture.torchair.operators import Operator
from sgsdump.cli import main
from sgsdump.dumps.watched_changes import watched_changes
from sgsdump.errors import ValuesError


def with_json(model: Any, folder: Path, **section: Any) -> Any:
    (folder / "dump.json").write_text(json.dumps({"dump": {"dump_path": str(folder), **section}}))
    return compiled(model, folder, dump_path=None, dump_config_path=str(folder / "dump.json"))


def watcher(model: Any, folder: Path, layer: Sequence[str], watched: Sequence[str]) -> Any:
    return with_json(model, folder, dump_scene="watcher", dump_list=[{"layer": [*layer], "watcher_nodes": [*watched]}])


class Overflowing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        half = x.to(torch.float16)
        big = half * 300
        fine = x * 300
        return torch.log(x - x).nan_to_num() + fine, big.clamp(max=65504.0), big.floor().int()


def test_only_operators_that_overflow_are_dumped_with_their_inputs(tmp_path: Path) -> None:
    """Inf, -Inf and the largest float16; integers and Data have no overflow."""
    with_json(Overflowing(), tmp_path, dump_debug="on")(torch.tensor([1.0, 400.0]))
    dump = opened(tmp_path)
    assert operators_in(dump) == {"mul", "log", "nan_to_num", "add", "clamp", "floor"}
    assert values(dump, "mul:output:0").tolist() == [300, float("inf")]
    assert values(dump, "mul:input:0").tolist() == [1, 400] and values(dump, "log:input:0").tolist() == [0, 0]


def test_one_of_several_outputs_overflows_and_what_is_fed_does_not(tmp_path: Path) -> None:
    class Largest(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.max(dim=0)

    with_json(Largest(), tmp_path, dump_debug="on")(torch.tensor([1.0, float("inf")]))
    assert operators_in(opened(tmp_path)) == {"max_1"}


def test_a_step_without_overflow_has_no_operator(tmp_path: Path) -> None:
    run = with_json(torch.nn.ReLU(), tmp_path, dump_debug="on")
    for value in (1.0, float("nan")):
        run(torch.tensor([value]))
    assert [path.parent.name for path in tmp_path.rglob("Relu.relu.*")] == ["1"]


def test_the_watcher_finds_the_write_through_an_alias(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No layer: after every operator. ``mul_`` writes into what ``add`` put out, through a view of it."""
    watcher(Alias(), tmp_path, [], ["Add", "mul"])(torch.tensor([1.0, 2.0]))
    dump = opened(tmp_path)
    found = watched_changes(dump)
    (change,) = found.changes
    assert (change.name, change.operator, change.unchanged) == ("add:output:0", "mul_", "exp")
    assert (change.values, change.total, change.largest) == (2, 2, 3.0) and found.outputs == 2
    assert values(dump, "add:output:0").tolist() == [2, 3]
    assert values(dump, "exp_To_add:output:0").tolist() == [2, 3]
    assert values(dump, "mul__To_add:output:0").tolist() == [4, 6] == values(dump, "cos_To_add:output:0").tolist()
    assert main(["compare", str(tmp_path)]) == 1
    assert capsys.readouterr().out == (
        "add:output:0 changed between exp and the end of mul_ (Mul): 2 of 2 values differ, largest difference 3\n"
        f"Watched outputs were changed 1 time (2 outputs watched, checked {found.looks} times).\n"
        "First change: mul_ changed add:output:0.\n"
    )


def test_a_graph_whose_sizes_change_is_watched_too(tmp_path: Path) -> None:
    run = watcher(Alias(), tmp_path, [], ["add"])
    torch._dynamo.mark_dynamic(first := torch.ones(3), 0)
    for step, x in enumerate((first, torch.ones(5))):
        run(x)
        (change,) = watched_changes(opened(tmp_path, step)).changes
        assert (change.operator, change.total) == ("mul_", len(x))
    assert len({run.graph for run in runs_of(tmp_path)}) == 1


def test_listed_operators_alone_are_looked_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watcher(Alias(), tmp_path, ["exp", "Cos"], ["add"])(torch.tensor([1.0, 2.0]))
    dump = opened(tmp_path)
    assert set(dump) == {"add:output:0", "exp_To_add:output:0", "cos_To_add:output:0"}
    (change,) = watched_changes(dump).changes
    assert (change.operator, change.unchanged) == ("cos", "exp")


def test_an_output_that_nobody_changes_is_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watcher(Alias(), tmp_path, ["exp"], ["mul"])(torch.tensor([1.0, 2.0]))
    assert main(["compare", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "No listed operator changed a watched output (1 output watched, checked 1 time).\n"
    )


def test_a_name_in_both_lists_dumps_its_own_alone(tmp_path: Path) -> None:
    watcher(Alias(), tmp_path, ["mul", "exp"], ["add", "mul"])(torch.tensor([1.0, 2.0]))
    assert set(opened(tmp_path)) == {
        "add:output:0", "mul:output:0", "exp_To_add:output:0", "exp_To_mul:output:0"
    }  # fmt: skip


@pytest.mark.parametrize("listed", [None, frozenset({"all_reduce", "relu"})])
def test_collective_communication_is_not_looked_behind(
    monkeypatch: pytest.MonkeyPatch, listed: frozenset[str] | None
) -> None:
    from sgsdump.capture.torchair import dumped

    written: list[tuple[str, str]] = []
    monkeypatch.setattr(
        dumped.Writer,
        "write",
        lambda self, op, i, o, watched=None: written.append((op.name, getattr(watched, "name", ""))),
    )
    looker = Watched(None, None, frozenset({"c"}), listed)  # type: ignore[arg-type]
    kinds = {"x": "Data", "c": "Add", "all_reduce": "HcomAllReduce", "relu": "Relu"}
    for number, (name, op_type) in enumerate(kinds.items()):
        looker.after(Operator(name, name, op_type, number), (), torch.ones(1))
    assert written == [("c", ""), ("relu", "c")]


def test_collective_operators_have_the_vendor_s_type() -> None:
    from sgsdump.capture.torchair.operators import operators_of

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    reduced = graph.call_function(torch.ops._c10d_functional.all_reduce.default, (x, "sum", "0"))
    graph.output(reduced)
    module = torch.fx.GraphModule({}, graph)
    assert [one.op_type for one in operators_of(module, module)] == ["Data", "HcomAllReduce"]


def test_statistics_of_a_watcher_tell_a_change_too(tmp_path: Path) -> None:
    section = {"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["add"]}], "dump_data": "stats"}
    with_json(Alias(), tmp_path, **section)(torch.tensor([1.0, 2.0]))
    (change,) = watched_changes(opened(tmp_path)).changes
    assert (change.operator, change.total) == ("mul_", 0)


def test_any_other_dump_is_no_watcher_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled(Alias(), tmp_path)(torch.tensor([1.0, 2.0]))
    with pytest.raises(ValuesError, match="not a watcher dump:"):
        watched_changes(opened(tmp_path))
    assert main(["compare", str(tmp_path)]) == 2
    assert main(["compare", str(tmp_path), "--csv", "x.csv"]) == 2
    assert "--csv is for two dumps" in capsys.readouterr().err
