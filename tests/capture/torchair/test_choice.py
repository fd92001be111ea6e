"""The lists of the JSON file that choose within a graph: ranges of operators, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture.torchair.programs import Alias, ConvNet, compiled, opened, operators_in, torch, values

PICTURE = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(2, 3, 8, 8)


def with_lists(model: Any, folder: Path, entries: list[dict[str, Any]], **section: Any) -> Any:
    dump = {"dump_path": str(folder), "dump_level": "op", "dump_mode": "all", "dump_list": entries, **section}
    (folder / "dump.json").write_text(json.dumps({"dump": dump}))
    return compiled(model, folder, dump_path=None, dump_config_path=str(folder / "dump.json"))


def sides(folder: Path, operator: str) -> list[str]:
    names = [record.name for record in opened(folder).records]
    return [name.removeprefix(f"{operator}:") for name in names if name.startswith(f"{operator}:")]


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([("relu_", "mean")], {"relu_", "max_pool2d", "mean"}),
        ([("Relu", "MaxPool2d"), ("linear", "linear")], {"relu_", "max_pool2d", "linear", "head.weight", "head.bias"}),
        ([("mean", "relu_")], set()),
        ([("relu_", "softmax")], set()),
    ],
)
def test_a_range_is_dumped_from_its_begin_to_its_end(
    tmp_path: Path, ranges: list[tuple[str, str]], found: set[str]
) -> None:
    """Both ends counted, in the order in which they run; the Data that its operators read come along."""
    entries = [{"model_name": "ConvNet", "opname_range": [{"begin": a, "end": b} for a, b in ranges]}]
    with_lists(ConvNet().eval(), tmp_path, entries)(PICTURE)
    assert (operators_in(opened(tmp_path)) if found else set(tmp_path.rglob("index.jsonl"))) == found


def test_a_range_that_cannot_be_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ranges = [{"begin": "mean", "end": "relu_"}, {"begin": "relu_", "end": "meaN"}]
    run = with_lists(ConvNet().eval(), tmp_path, [{"model_name": "ConvNet", "opname_range": ranges}])
    for _ in range(2):
        run(PICTURE)
    assert [record.getMessage() for record in caplog.records if "opname_range" in record.getMessage()] == [
        "opname_range: 'relu_' runs before 'mean'; the range is empty",
        "opname_range: no graph has an operator 'meaN'; did you mean 'mean'?",
    ]


def test_a_range_joins_the_layers_of_its_model_and_is_of_no_other(tmp_path: Path) -> None:
    relu = [{"begin": "relu_", "end": "relu_"}]
    entries = [
        {"model_name": "ConvNet", "layer": ["mean"], "opname_range": relu},
        {"model_name": "Other", "opname_range": [{"begin": "linear", "end": "linear"}]},
    ]
    with_lists(ConvNet().eval(), tmp_path, entries)(PICTURE)
    assert operators_in(opened(tmp_path)) == {"relu_", "mean"}


def test_what_a_blacklist_names_is_left_out_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    model = ConvNet().eval()
    entry = {
        "optype_blacklist": [{"name": "Conv2d", "pos": ["input0"]}, {"name": "Data", "pos": ["output0"]}],
        "opname_blacklist": [{"name": "conv2d", "pos": ["input2"]}, {"name": "Linear", "pos": ["output0", "input7"]}],
    }
    with_lists(model, tmp_path, [entry])(PICTURE)
    assert sides(tmp_path, "conv2d") == ["input:1", "output:0"]
    assert sides(tmp_path, "linear") == ["input:0", "input:1", "input:2"]
    assert torch.equal(values(opened(tmp_path), "conv2d:input:1"), model.body[0].weight.detach())
    assert sides(tmp_path, "relu_") == ["input:0", "output:0"] and not list(tmp_path.rglob("Data.*"))
    assert not opened(tmp_path).notes


def test_statistics_leave_out_the_same(tmp_path: Path) -> None:
    entry = {"opname_blacklist": [{"name": "add", "pos": ["input0"]}]}
    with_lists(Alias(), tmp_path, [entry], dump_data="stats")(torch.ones(2))
    (file,) = tmp_path.rglob("Add.add.*.csv")
    assert [line.split(",")[:2] for line in file.read_text().splitlines()[1:]] == [["Output", "0"]]
    assert sides(tmp_path, "add") == ["output:0"]


def test_a_blacklist_of_another_model_leaves_out_nothing(tmp_path: Path) -> None:
    entries = [
        {"model_name": "Alias"},
        {"model_name": "Other", "opname_blacklist": [{"name": "add", "pos": ["input0"]}]},
    ]
    with_lists(Alias(), tmp_path, entries)(torch.ones(2))
    assert sides(tmp_path, "add") == ["input:0", "output:0"]


def test_items_that_leave_out_nothing_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lists = {
        "optype_blacklist": [{"name": "Add"}, {"name": "Ad", "pos": ["output0"]}, {"pos": ["input0"]}],
        "opname_blacklist": [{"name": "exp", "pos": ["in0", "output"]}],
    }
    run = with_lists(Alias(), tmp_path, [lists])
    for _ in range(2):
        run(torch.ones(2))
    assert [record.getMessage() for record in caplog.records if "list" in record.getMessage()] == [
        "optype_blacklist: an item without pos has no effect",
        "optype_blacklist: an item without name has no effect",
        "opname_blacklist: 'in0' is not a position of 'exp'; write input0 or output0",
        "opname_blacklist: 'output' is not a position of 'exp'; write input0 or output0",
        "optype_blacklist: no graph has an operator of type 'Ad'; did you mean 'Add'?",
    ]
    assert sides(tmp_path, "add") == ["input:0", "output:0"] == sides(tmp_path, "exp")


def test_dump_layer_takes_the_place_of_a_range_and_the_blacklist_stays(tmp_path: Path) -> None:
    entry = {"model_name": "Alias", "opname_range": [{"begin": "exp", "end": "cos"}]}
    entry["opname_blacklist"] = [{"name": "add", "pos": ["input0"]}]
    folder = tmp_path / "out"
    folder.mkdir()
    run = with_lists(Alias(), tmp_path, [entry])
    run = compiled(Alias(), folder, dump_config_path=str(tmp_path / "dump.json"), dump_layer="add")
    run(torch.ones(2))
    assert operators_in(opened(folder)) == {"x", "add"} and sides(folder, "add") == ["output:0"]
