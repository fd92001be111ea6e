"""msprobe's dump.json: the vendor's own files, values beside it, and what cannot be read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly
from dumps.formats.torch import hand_made

from sgsdump import Dump, compare, open_dump
from sgsdump.comparison.dataflow import first_difference
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.models.operator_list import list_operators
from sgsdump.reports.remarks import remark
from sgsdump.tensors.statistics import Statistics

API, MODULE = "Functional.conv2d.0.forward", "Module.net.conv1.Conv2d.forward.0"


def facts(shape: tuple[int, ...] = (2, 3), dtype: str = "torch.float32", **more: Any) -> dict[str, Any]:
    statistics = {"Max": 3.0, "Min": 1.0, "Mean": 2.0, "Norm": 9.5}
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), **statistics, "requires_grad": False, **more}


def text_of(data: dict[str, Any], task: str = "tensor") -> str:
    head = {"task": task, "level": "mix", "framework": "pytorch", "dump_data_dir": "/there/dump_tensor_data"}
    return json.dumps({**head, "data": data})


def opened(folder: Path, data: dict[str, Any], **arrays: np.ndarray) -> Dump:
    """The dump of a folder with ``arrays`` beside the JSON; ``__`` in their names is a dot."""
    values = folder / "dump_tensor_data"
    values.mkdir(exist_ok=True, parents=True)
    for name, array in arrays.items():
        np.save(values / f"{name.replace('__', '.')}.npy", array)
    (folder / "dump.json").write_text(text_of(data))
    return open_dump(folder)


def in_out(**more: Any) -> dict[str, Any]:
    return {API: {"input_args": [facts(**more)], "input_kwargs": {}, "output": []}}


class TestReadOnly(ReadOnly):
    format = "msprobe_dir"
    file_name = "dump.json"
    data = text_of({API: {"input_args": [facts(), None], "output": [facts((1,), "torch.bool")]}}, "statistics").encode()


def test_statistics_are_the_vendors(shared: Path) -> None:
    folder = shared / "ascend" / "msprobe_dump" / "layer_mapping_pair" / "pytorch_data"
    dump = open_dump(folder)
    assert dump.format == "msprobe_dir"
    document = json.loads((folder / "dump.json").read_text())["data"]

    def leaves(value: Any) -> int:
        if isinstance(value, list):
            return sum(map(leaves, value))
        if isinstance(value, dict):
            return 1 if "shape" in value else sum(map(leaves, value.values()))
        return 0

    assert len(dump.records) == leaves(document) > 30
    assert dump["Distributed.all_reduce.0.forward.output.0"].info.dtype.name == "bfloat16"
    tensor = dump["NPU.npu_rms_norm.0.forward.output.1"]
    assert tensor.info.shape == (1024, 1, 1) and tensor.info.op_type == "npu_rms_norm"
    assert tensor.statistics == Statistics(
        1.9447283744812012, 2.0491626262664795, 1.9983034133911133, 63.948543548583984
    )
    inputs = [record.name for record in dump.records if record.io == "in"]
    assert "NPU.npu_fusion_attention.0.forward.input.atten_mask" in inputs
    assert "Torch.cos.0.forward.input.0" in inputs
    with pytest.raises(ValuesError, match="only statistics were dumped"):
        tensor.stored()
    mindspore = open_dump(folder.parent / "mindspore_data")
    assert mindspore["Tensor.__add__.0.forward.output.0"].info.dtype == np.int64
    assert mindspore.records[0].tensor.statistics == Statistics(0.0, 3430.0, 926.5, 4977.4384765625)


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_values_beside_a_json_of_another_name(shared: Path, task: str) -> None:
    folder = shared / "ascend" / "msprobe_dump"
    dump = open_dump(folder / f"api_info_{task}.json")
    name = "MintFunctional.relu.0.forward.output.0"
    assert [record.name for record in dump.records] == [name.replace("output", "input"), name]
    np.testing.assert_array_equal(dump[name].stored(), np.load(folder / "2_3_input.npy"))


def test_names_and_places(tmp_path: Path) -> None:
    nested = {"a": [facts(), 5], "b": {"c": facts()}}
    grad = {"weight": [facts()], "bias": [None]}
    dump = opened(
        tmp_path,
        {
            API: {"input_args": [1, facts(), [facts(), facts()]], "input_kwargs": nested, "output": [None, facts()]},
            MODULE: {"input_args": [], "parameters": {"weight": facts()}, "output": [facts()]},
            "Module.net.conv1.Conv2d.parameters_grad": grad,
            "x.0.debug": facts(),
        },
    )
    places = [(r.name, r.io, r.slot, r.op_index, r.op_type, r.constant) for r in dump.records]
    assert places == [
        (f"{API}.input.1", "in", 1, 0, "conv2d", False),
        (f"{API}.input.2.0", "in", 2, 0, "conv2d", False),
        (f"{API}.input.2.1", "in", 3, 0, "conv2d", False),
        (f"{API}.input.a.0", "in", 4, 0, "conv2d", False),
        (f"{API}.input.b.c", "in", 6, 0, "conv2d", False),
        (f"{API}.output.1", "out", 1, 0, "conv2d", False),
        (f"{MODULE}.parameters.weight", "in", 0, 1, "Conv2d", False),
        (f"{MODULE}.output.0", "out", 0, 1, "Conv2d", False),
        ("Module.net.conv1.Conv2d.parameters_grad.weight", "out", 0, 2, "Conv2d", False),
        ("x.0.debug", "out", 0, 3, "x", False),
    ]
    assert not dump.notes
    assert dump.network()[0].arguments == {"input.0": "1", "input.a.1": "5"}


def test_gradients_in_the_spelling_with_a_number(tmp_path: Path) -> None:
    dump = opened(tmp_path, {"Module.net.conv1.Conv2d.parameters_grad.0": {"weight": [facts()], "bias": [facts((3,))]}})
    assert [(r.name, r.io, r.slot, r.op_type) for r in dump.records] == [
        ("Module.net.conv1.Conv2d.parameters_grad.0.weight", "out", 0, "Conv2d"),
        ("Module.net.conv1.Conv2d.parameters_grad.0.bias", "out", 1, "Conv2d"),
    ]
    assert not dump.notes


def test_what_a_program_saved_may_be_nothing_or_nested(tmp_path: Path) -> None:
    saved = {"x_grad.0.debug": None, "l.0.debug": [facts(), {"k": facts((1,))}, {"type": "int", "value": 3}]}
    dump = opened(tmp_path, saved)
    assert [(r.name, r.io, r.slot, r.op_index) for r in dump.records] == [
        ("l.0.debug.0", "out", 0, 1),
        ("l.0.debug.1.k", "out", 1, 1),
    ]


def test_checksums_are_of_their_own_kinds(tmp_path: Path) -> None:
    plain = {"dtype": "torch.float32", "type": "torch.Tensor"}
    sums = [{"shape": [2], "md5": "5083d08e"}, {"shape": [2], "md5": "0x05bb6fc47f18e80d"}, {"shape": [], "md5": 0.5}]
    dump = opened(tmp_path, {API: {"output": [{**plain, **checksum} for checksum in sums]}})
    statistics = [record.tensor.statistics for record in dump.records]
    assert [figures and figures.checksum for figures in statistics] == [
        "md5:5083d08e",
        "xor:0x05bb6fc47f18e80d",
        "md5:0.5",
    ]
    assert statistics[2] == Statistics(0.5, 0.5, 0.5, checksum="md5:0.5")


def test_a_structure_has_operators_and_no_tensors(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text(text_of({}, "structure"))
    (tmp_path / "construct.json").write_text(json.dumps({API: MODULE, MODULE: None}))
    stack = ["File /me/net.py, line 28, in forward, \n x"]
    (tmp_path / "stack.json").write_text(json.dumps({"0": [[API], stack]}))
    with pytest.raises(FormatError, match=r"List it with: sgsdump show --operators "):
        open_dump(tmp_path)
    [graph] = list_operators(tmp_path)
    assert [(o.name, o.op_type, dict(o.attributes)) for o in graph.operators] == [
        (API, "conv2d", {"module": MODULE, "source": "net.py:28"}),
        (MODULE, "Conv2d", {}),
    ]
    with pytest.raises(FormatError, match="lists no tensor"):
        (tmp_path / "construct.json").unlink()
        open_dump(tmp_path)


def test_tensors_under_an_unknown_key_are_not_lost(tmp_path: Path) -> None:
    entry = {"input_args": [facts()], "is_recompute": True, "buffers": {"mean": facts((3,))}, "output": [facts()]}
    dump = opened(tmp_path, {MODULE: entry})
    assert [(r.name, r.io, r.slot) for r in dump.records] == [
        (f"{MODULE}.input.0", "in", 0),
        (f"{MODULE}.output.0", "out", 0),
        (f"{MODULE}.buffers.mean", "in", 1),
    ]


@pytest.mark.parametrize("grad", ["parameters_grad", "parameters_grad.0"])
def test_changed_weights_and_gradients_are_compared(tmp_path: Path, grad: str) -> None:
    for side, weight, gradient in (("a", 1.0, 2.0), ("b", 3.0, np.nan)):
        values = {"data_name": "w.npy"}, {"data_name": "g.npy"}
        opened(
            tmp_path / side,
            {
                MODULE: {"input_args": [], "parameters": {"weight": facts(**values[0])}, "output": []},
                f"Module.net.conv1.Conv2d.{grad}": {"weight": [facts(**values[1])]},
            },
            w=np.full((2, 3), weight, np.float32),
            g=np.full((2, 3), gradient, np.float32),
        )
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert [(row.name, row.passes()) for row in comparison] == [
        (f"{MODULE}.parameters.weight", False),
        (f"Module.net.conv1.Conv2d.{grad}.weight", False),
    ]


def test_values_come_from_the_files_wherever_the_json_says_they_are(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    name = f"{API}.input.0"
    for folder in (tmp_path / "step0" / "rank0", tmp_path):
        opened(
            tmp_path / "step0" / "rank0",
            in_out(data_name=f"{name}.npy"),
            Functional__conv2d__0__forward__input__0=array,
        )
        tensor = open_dump(folder).inputs[name]
        np.testing.assert_array_equal(tensor.stored(), array)
        assert tensor.statistics is None
    (tmp_path / "step0" / "rank1").mkdir()
    (tmp_path / "step0" / "rank1" / "dump.json").write_text(text_of(in_out()))
    with pytest.raises(ConfigError, match=r"holds 2 runs .*choose one run with --rank"):
        open_dump(tmp_path)


def test_the_steps_and_ranks_of_a_run_are_chosen(tmp_path: Path) -> None:
    for step in (0, 2, 10):
        for rank in (0, 1):
            folder = tmp_path / f"step{step}" / f"rank{rank}"
            folder.mkdir(parents=True)
            (folder / "dump.json").write_text(text_of({API: {"output": [facts(Max=step + rank / 2)]}}))
    assert [(run.step, run.rank, run.place) for run in list_runs(tmp_path)] == [
        (step, rank, f"step{step}/rank{rank}") for step in (0, 2, 10) for rank in (0, 1)
    ]
    for tree, step in ((tmp_path, 10), (tmp_path / "step10", None)):
        statistics = open_dump(tree, step, rank=1)[f"{API}.output.0"].statistics
        assert statistics is not None and statistics.max == 10.5
    assert list_runs(tmp_path / "step2", step=2)[0].rank == 0
    assert [run.place for run in list_runs(tmp_path / "step2/rank1")] == [""]


def test_types_that_numpy_has_not_are_the_files(tmp_path: Path) -> None:
    array = np.ones((2, 3), np.float32)
    dump = opened(tmp_path, in_out(dtype="torch.bfloat16", data_name="a.npy"), a=array)
    assert dump.records[0].tensor.info.dtype == np.float32
    assert dump.notes == (f"tensors are bfloat16 in the JSON, but their files hold float32 (1): '{API}.input.0'",)
    raw = opened(tmp_path, in_out(dtype="torch.bfloat16", data_name="b.npy"), b=array.astype(np.float16).view("V2"))
    assert raw.records[0].tensor.stored().dtype.name == "bfloat16" and not raw.notes
    odd = opened(tmp_path, in_out(dtype="torch.float5", shape=(9,), data_name="a.npy"))
    assert odd.records[0].tensor.stored().shape == (2, 3)
    assert ["unknown type" in odd.notes[0], "other shapes" in odd.notes[1]] == [True, True]


def test_torch_files_are_read_and_their_npy_goes_before_them(tmp_path: Path) -> None:
    opened(tmp_path, {API: {"output": [facts()]}})
    values = struct.pack("<6f", *range(6))
    of = hand_made.storage("0", elements=6)
    one = hand_made.archive(hand_made.tensor("0", (2, 3), (3, 1), of=of), {"0": values})
    (tmp_path / "dump_tensor_data/a.pt").write_bytes(one)
    dump = opened(tmp_path, in_out(data_name="a.pt"))
    assert dump.records[0].tensor.stored().tolist() == [[0, 1, 2], [3, 4, 5]] and not dump.notes
    two = hand_made.named({"x": hand_made.tensor(), "y": hand_made.tensor()})
    (tmp_path / "dump_tensor_data/a.pt").write_bytes(hand_made.archive(two, {"0": values}))
    dump = opened(tmp_path, in_out(data_name="a.pt"))
    assert dump.records[0].tensor.statistics == Statistics(1.0, 3.0, 2.0, 9.5) and "damaged" in dump.notes[0]
    with pytest.raises(ValuesError, match="holds 2 tensors, but one is expected"):
        dump.records[0].tensor.stored()
    again = opened(tmp_path, in_out(data_name="a.pt"), a=np.ones((2, 3), np.float32))
    assert again.records[0].tensor.stored().sum() == 6 and not again.notes


@pytest.mark.parametrize("file", ["gone.npy", "../dump.json", "/etc/hostname", "broken.npy", "pickled.npy", "a\nb"])
def test_files_that_cannot_be_read_leave_the_statistics(tmp_path: Path, file: str) -> None:
    opened(tmp_path, {API: {"output": [facts()]}}, pickled=np.array([{}], object))
    (tmp_path / "dump_tensor_data" / "broken.npy").write_bytes(b"\x93NUMPY")
    dump = opened(tmp_path, in_out(data_name=file))
    assert dump.records[0].tensor.statistics == Statistics(1.0, 3.0, 2.0, 9.5)
    assert "missing or damaged" in dump.notes[0] and "\n" not in dump.notes[0]
    with pytest.raises(ValuesError, match="has no values") as caught:
        dump.records[0].tensor.stored()
    assert "\n" not in str(caught.value)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    np.save(outside / "a.npy", np.ones(3))
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "dump_tensor_data").symlink_to(outside)
    (folder / "dump.json").write_text(text_of(in_out(data_name="a.npy")))
    with pytest.raises(ValuesError):
        open_dump(folder).records[0].tensor.stored()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"dump_data_dir": "", "data": []}', 'has no key "data"'),
        ('{"dump_data_dir": "", "data": {}}', "lists no tensor"),
        ('{"dump_data_dir": "", "data": {"a": 3}}', "'a' must be a JSON object"),
        (text_of(in_out(shape=[-1])), "an impossible shape"),
        (text_of(in_out(shape=[2**40, 2**40])), "is invalid: numpy cannot make"),
        (text_of(in_out(shape=["2"])), "an impossible shape"),
        ('{"dump_data_dir": "", "data": {"a": ' + "[" * 100_000, "not valid JSON"),
        ('{"dump_data_dir": "", "data": {"a": {}, "a": {}}}', "occurs twice"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(FormatError, match=said) as caught:
        open_dump(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_deep_arguments_end(tmp_path: Path) -> None:
    deep: Any = facts()
    for _ in range(300):
        deep = [deep]
    dump = opened(tmp_path, {API: {"input_args": [deep], "output": [facts()]}})
    assert len(dump.records) == 1


def test_two_runs_are_compared_inputs_too(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = {API: {"input_args": [facts(data_name="i.npy")], "output": [facts(data_name="o.npy")]}}
    ours, theirs = (opened(tmp_path / name, data, i=array, o=array + 1) for name in "ab")
    found = compare(ours, theirs)
    assert [row.name for row in found.rows] == [f"{API}.input.0", f"{API}.output.0"]


def test_the_line_of_the_program_and_the_module_come_from_the_files_beside(tmp_path: Path) -> None:
    frame = "File /x/site-packages/torch/nn/functional.py, line 9, in conv2d, \n ..."
    stack = [frame, "File /me/net.py, line 28, in forward, \n x"]
    (tmp_path / "stack.json").write_text(json.dumps({"0": [[API], stack]}))
    (tmp_path / "construct.json").write_text(json.dumps({API: MODULE}))
    data = {**in_out(), MODULE: {"input_args": [facts()], "output": [facts()]}}
    network = opened(tmp_path, data).network()
    assert (network[0].source, network[0].module, network[0].is_module) == ("net.py:28", "net.conv1", False)
    assert (network[1].source, network[1].module, network[1].is_module) == ("", "net.conv1", True)
    (tmp_path / "stack.json").write_text("{")
    assert open_dump(tmp_path).network()[0].source == ""


def test_an_argument_that_differs_is_told(tmp_path: Path) -> None:
    sides = []
    for name, eps, largest in (("sample", 1e-2, 4.0), ("benchmark", 1e-5, 3.0)):
        (tmp_path / name).mkdir()
        entry = {"input_args": [facts()], "input_kwargs": {"eps": {"type": "float", "value": eps}}}
        entry["output"] = [facts(Max=largest)]
        sides.append(opened(tmp_path / name, {API: entry}))
    [finding] = compare(*sides).causes
    assert finding.layer == f"{API}.output.0"
    assert [finding.facts[key] for key in ("argument", "sample", "benchmark")] == ["input.eps", "0.01", "1e-05"]


def test_a_gradient_that_is_zero_in_theory_is_called_cancellation(tmp_path: Path) -> None:
    name, sides = "Module.net.conv.Conv2d.parameters_grad.0", []
    for side, left in (("sample", 3e-7), ("benchmark", -2e-9)):
        described = {part: [facts((3,), data_name=f"{part}.npy")] for part in ("weight", "bias")}
        arrays = {"weight": np.float32([1, 2, 3]), "bias": np.float32([left, -left, left])}
        (tmp_path / side).mkdir()
        sides.append(opened(tmp_path / side, {name: described}, **arrays))
    comparison = compare(*sides)
    assert comparison[f"{name}.bias"].cancelled and comparison[f"{name}.bias"].rmse > 100
    assert "cancellation" in remark(comparison[f"{name}.bias"])
    assert not comparison[f"{name}.weight"].cancelled and first_difference(comparison, beyond_rounding=True) is None
