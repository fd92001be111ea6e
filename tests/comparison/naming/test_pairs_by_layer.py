"""Places in the network: the framework's functions, split pipelines, gradients, and missing side files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgsdump
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.comparison.naming.pairs_by_layer import framework_function, pairs_by_layer
from sgsdump.comparison.naming.pairs_by_map import pairs_by_map
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.msprobe.stacks import stacks_of
from sgsdump.errors import ConfigError
from sgsdump.tensors.tensor import Tensor

WRAPPER = "File /x/msprobe/wrap.py, line 98, in api_function, \n return ApiTemplate(name)"
CELL = "File /x/site-packages/mindspore/nn/cell.py, line 5, in {}, \n self.construct(x)"
USER = "File /home/me/net.py, line 7, in get_batch, \n x[i]"


def framework(function: str, name: str = "mindspore") -> str:
    return f"File /x/site-packages/{name}/tensor.py, line 3, in {function}, \n pass"


@pytest.mark.parametrize(
    ("lines", "is_mindspore", "function"),
    [
        ([WRAPPER, framework("select"), framework("__getitem__"), USER, framework("main")], True, "__getitem__"),
        ([WRAPPER, USER, framework("__getitem__")], True, ""),
        ([CELL.format("run"), WRAPPER, framework("select"), CELL.format("__call__")], True, "select"),
        ([WRAPPER, framework("__call__"), USER], True, ""),
        ([WRAPPER, framework("apply", "torch"), framework("forward", "torch"), USER], False, "apply"),
        ([framework("norm", "torch"), USER], False, "norm"),
        ([WRAPPER, framework("norm", "torch").replace("/x/", "/x/MindSpeed/"), USER], False, ""),
        ([WRAPPER, "File /x/site-packages/torch/a.py"], False, ""),
        ([], True, ""),
    ],
)  # fmt: skip
def test_the_function_by_which_the_users_code_entered(lines: list[str], is_mindspore: bool, function: str) -> None:
    assert framework_function(lines, is_mindspore) == function


def test_both_forms_of_the_stack_file() -> None:
    shared = {"0": [["a", "b"], ["line"]], "1": [["c"], ["other"]]}
    assert stacks_of(shared) == {"a": ["line"], "b": ["line"], "c": ["other"]}
    assert stacks_of({"a": ["line"], "bad": 3, "worse": [1]}) == {"a": ["line"]}
    assert stacks_of([]) == {}


def tensor() -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "Max": 1, "Min": 1, "Mean": 1, "Norm": 1}


def dumped(folder: Path, operators: dict[str, str], missing: str = "") -> Dump:
    """A dump of operators with one output each (gradients: one weight), and the modules they ran in."""
    folder.mkdir()
    data = {name: {"weight": [tensor()]} if "parameters_grad" in name else {"output": [tensor()]} for name in operators}
    head = {"task": "statistics", "framework": "pytorch", "dump_data_dir": None}
    files = {"dump.json": {**head, "data": data}, "construct.json": operators, "stack.json": {}}
    for name, document in files.items():
        if name != missing:
            (folder / name).write_text(json.dumps(document))
    return sgsdump.open_dump(folder)


def pairs(sample: Dump, benchmark: Dump) -> dict[str, str]:
    given = pairs_by_map(sample, benchmark, NameSources(layers={"TopLayer": {"net": "module"}}), inputs=True)
    return {pair.sample.name: pair.benchmark.name for pair in given.pairs}


def test_a_split_pipeline_counts_its_layers_from_the_first_that_is_there(tmp_path: Path) -> None:
    def run(root: str, first: int) -> dict[str, str]:
        encoder = f"{root}.encoder.ParallelTransformer.forward.0"
        layers = {f"{root}.encoder.layers.{n}.Layer.forward.0": encoder for n in (first, first + 1)}
        return {**layers, "Torch.cos.0.forward": list(layers)[1], encoder: ""}

    sample = dumped(tmp_path / "a", run("Cell.net", 4))
    benchmark = dumped(tmp_path / "b", run("Module.module", 0))
    assert pairs(sample, benchmark) == {
        "Cell.net.encoder.layers.4.Layer.forward.0.output.0": "Module.module.encoder.layers.0.Layer.forward.0.output.0",
        "Cell.net.encoder.layers.5.Layer.forward.0.output.0": "Module.module.encoder.layers.1.Layer.forward.0.output.0",
        "Torch.cos.0.forward.output.0": "Torch.cos.0.forward.output.0",
        "Cell.net.encoder.ParallelTransformer.forward.0.output.0": (
            "Module.module.encoder.ParallelTransformer.forward.0.output.0"
        ),
    }


def test_what_is_no_number_of_a_layer_stays(tmp_path: Path) -> None:
    def run(root: str, part: str) -> dict[str, str]:
        encoder = f"{root}.encoder.ParallelTransformer.forward.0"
        return {f"{root}.encoder.layers.{part}.Layer.forward.0": encoder, encoder: ""}

    for number, part in enumerate(["norm", "9" * 5000, "٣", "²"]):
        sample = dumped(tmp_path / f"a{number}", run("Cell.net", part))
        assert len(pairs(sample, dumped(tmp_path / f"b{number}", run("Module.module", part)))) == 2


def test_gradients_of_parameters_are_paired_whichever_way_they_are_spelt(tmp_path: Path) -> None:
    sample = dumped(tmp_path / "a", {"Cell.net.fc.Dense.parameters_grad": ""})
    benchmark = dumped(tmp_path / "b", {"Module.module.fc.Linear.parameters_grad.0": ""})
    assert pairs(sample, benchmark) == {
        "Cell.net.fc.Dense.parameters_grad.weight": "Module.module.fc.Linear.parameters_grad.0.weight"
    }


def test_a_further_call_has_no_partner_and_says_so(tmp_path: Path) -> None:
    sample = dumped(tmp_path / "a", {"Torch.cos.0.forward": "", "Torch.cos.1.forward": ""})
    benchmark = dumped(tmp_path / "b", {"Torch.cos.1.forward": ""})
    names = NameSources(layers={"TopLayer": {"net": "module"}})
    comparison = sgsdump.compare(sample, benchmark, name_map=names)
    assert [(row.sample_name, row.name) for row in comparison] == [
        ("Torch.cos.0.forward.output.0", "Torch.cos.1.forward.output.0")
    ]
    (further,) = comparison.only_in_sample
    assert further.reason == "the layer mapping leads to cos, of which the benchmark has only 1 call"


@pytest.mark.parametrize("name", ["construct.json", "stack.json"])
def test_the_side_files_are_asked_for(tmp_path: Path, name: str) -> None:
    sample = dumped(tmp_path / "a", {"Torch.cos.0.forward": ""}, missing=name)
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        pairs(sample, dumped(tmp_path / "b", {"Torch.cos.0.forward": ""}))


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def record(name, values, io="out", op_index=0, slot=0, op_type="ADD", constant=False, **facts) -> Record:
    return Record(io, slot, op_index, op_type, Tensor.of(name, np.asarray(values), **facts), constant)


@pytest.mark.parametrize("form", [lambda name: name, lambda name: [name, 7], lambda name: [name]])
def test_an_api_stands_in_the_module_that_construct_json_names(tmp_path, form):
    def dump(folder, names):
        (tmp_path / folder).mkdir()
        parents = {name: form(f"Module.{name.rpartition('!')[0] or 'net'}.Net.forward.0") for name in names}
        parents = {name.rpartition("!")[2]: parent for name, parent in parents.items()}
        (tmp_path / folder / "construct.json").write_text(json.dumps(parents))
        path = tmp_path / folder / "dump.json"
        for empty in (path, path.with_name("stack.json")):
            empty.write_text("{}")
        return Dump([record(f"{name}.output.0", noise(4)) for name in parents], "msprobe", path, path)

    sample = dump("a", ["one!Torch.relu.0.forward", "two!Torch.relu.1.forward"])
    benchmark = dump("b", ["two!Torch.relu.0.forward", "one!Torch.relu.1.forward"])
    pairs, _ = pairs_by_layer(sample, sample.records, benchmark, benchmark.records, {})
    assert {(pair.sample.name, pair.benchmark.name) for pair in pairs} == {
        ("Torch.relu.0.forward.output.0", "Torch.relu.1.forward.output.0"),
        ("Torch.relu.1.forward.output.0", "Torch.relu.0.forward.output.0"),
    }


def test_forward_and_backward_of_a_module_are_two_places(tmp_path):
    def dump(folder, words):
        (tmp_path / folder).mkdir()
        names = [f"Module.net.{word}.output.0" for word in words]
        parents = {f"Module.net.{word}": None for word in words}
        (tmp_path / folder / "construct.json").write_text(json.dumps(parents))
        path = tmp_path / folder / "dump.json"
        for empty in (path, path.with_name("stack.json")):
            empty.write_text("{}")
        return Dump([record(name, noise(4, seed=i)) for i, name in enumerate(names)], "msprobe", path, path)

    sample = dump("a", ["Net.forward.0", "Net.backward.0", "Net.forward.1"])
    benchmark = dump("b", ["Net.backward.0", "Net.forward.0", "Net.forward.1"])
    pairs, _ = pairs_by_layer(sample, sample.records, benchmark, benchmark.records, {})
    assert sorted((pair.sample.name, pair.benchmark.name) for pair in pairs) == [
        (name, name) for name in sorted(record.name for record in sample.records)
    ]
    assert all(not pair.note for pair in pairs)
