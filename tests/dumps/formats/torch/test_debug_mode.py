"""Texts of torch's DebugMode: genuine ones with planted faults, what a line may hold, and damage."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly

from sgsdump import Dump, compare, open_dump
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.formats.torch.debug_mode_lines import parsed
from sgsdump.errors import FormatError
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.statistics import Statistics

OPTIONS = {
    "everything": {"record_nn_module": True, "record_ids": True, "record_stack_trace": True},
    "modules": {"record_nn_module": True},
    "nothing": {},
    "functions": {"record_nn_module": True, "record_ids": True, "record_torchfunction": True},
}
TEXT = """\
    # File: net.py:8 in forward, code: return self.fc(self.norm(x))
    [nn.Mod] Net
      [nn.Mod] Net.norm
        aten::native_layer_norm(t$0: f32[2, 3], [3], t$1: f32[3], None, 1e-05)\
  ->  ('t$2: f32[2, 3]', 't$3: f32[2, 1]')  # {'input_hash': ((3.5, [None], 3.0, None, None), {}), 'hash': (6.25, 0.5)}
      aten::add_.Tensor(t$2: f32[2, 3], 1)  ->  t$2: f32[2, 3]  # {'input_hash': ((6.25, None), {}), 'hash': nan}

    # File: /home/me/net.py:9 in forward, code: y
    aten::cat(['t$2: f32[2, 3]', 't$0: f32[2, 3]'], -1)  ->  t$4: bf16[2, 6]\
  # {'input_hash': (([nan, 3.5], None), {}), 'hash': inf}"""


class TestReadOnly(ReadOnly):
    format = "torch_debug_mode"
    file_name = "run.txt"
    data = f"    aten::full([2, 3], 0.5)  ->  t$0: f32[2, 3]  # {{'hash': 3.0}}\n{TEXT}".encode()


def opened(tmp_path: Path, text: str) -> Dump:
    (tmp_path / "run.txt").write_text(text)
    return open_dump(tmp_path / "run.txt")


def verdict(comparison: Comparison) -> str:
    return REPORTS["verdict"](comparison, Thresholds())  # type: ignore[no-any-return]


def test_names_places_and_hashes(tmp_path: Path) -> None:
    dump = opened(tmp_path, TEXT)
    assert [(r.name, r.io, r.slot, r.op_index, r.op_type) for r in dump.records] == [
        ("norm/native_layer_norm_0/input.0", "in", 0, 0, "aten.native_layer_norm"),
        ("norm/native_layer_norm_0/input.1", "in", 1, 0, "aten.native_layer_norm"),
        ("norm/native_layer_norm_0/output.0", "out", 0, 0, "aten.native_layer_norm"),
        ("norm/native_layer_norm_0/output.1", "out", 1, 0, "aten.native_layer_norm"),
        ("add__0/input.0", "in", 0, 1, "aten.add_"),
        ("add__0/output.0", "out", 0, 1, "aten.add_"),
        ("cat_0/input.0", "in", 0, 2, "aten.cat"),
        ("cat_0/input.1", "in", 1, 2, "aten.cat"),
        ("cat_0/output.0", "out", 0, 2, "aten.cat"),
    ]
    assert dump["norm/native_layer_norm_0/output.1"].statistics == Statistics(count=2, l1norm=0.5)
    last = dump["cat_0/output.0"]
    assert (last.shape, last.dtype.name) == ((2, 6), "bfloat16") and last.statistics == Statistics(
        count=12, l1norm=math.inf
    )
    assert not dump.notes


def test_the_network_knows_module_source_arguments_and_flow(tmp_path: Path) -> None:
    network = opened(tmp_path, TEXT).network()
    norm, add, cat = network[0], network[1], network[2]
    assert (norm.module, norm.kind, norm.source) == ("norm", "aten.native_layer_norm", "net.py:8")
    assert norm.arguments == {"normalized_shape": "[3]", "3": "null", "eps": "1e-05"}
    assert (add.module, cat.module, cat.source) == ("", "", "net.py:9")
    assert norm.values["out", 0] == add.values["in", 0] != add.values["out", 0] == cat.values["in", 0]
    assert cat.values["in", 1] == norm.values["in", 0]


def test_inputs_without_a_logged_hash_have_that_of_their_output(tmp_path: Path) -> None:
    dump = opened(
        tmp_path,
        "    aten::t(t$0: f32[2])  ->  t$1: f32[2]  # {'hash': 4.0}\n"
        "    aten::mm(t$1: f32[2], t$9: f32[2])  ->  t$2: f32[2]  # {'hash': 5.0}\n",
    )
    assert [r.name for r in dump.records] == ["t_0/output.0", "mm_0/input.0", "mm_0/output.0"]
    assert dump["mm_0/input.0"].statistics == Statistics(count=2, l1norm=4.0)


def test_kinds_of_hashes(tmp_path: Path) -> None:
    line = "    aten::t(t: f32[2])  ->  t: f32[2]  # {'hash': HASH}\n"
    both = "    aten::split(t: f32[2])  ->  ['t: f32[1]', 't: f32[1]']  # {'hash': [(1.5, 7), (2.5, 8)]}\n"
    hashes = ["9243462394921877504", "(1.5, 7)", "'ab12'", "tensor(2.5, dtype=torch.float64)", "-inf"]
    dump = opened(tmp_path, "".join(line.replace("HASH", text) for text in hashes) + both)
    assert [record.tensor.statistics for record in dump.records] == [
        Statistics(count=2, checksum="hash_tensor:9243462394921877504"),
        Statistics(count=2, checksum="hash_tensor:7", l1norm=1.5),
        Statistics(count=2, checksum="hash:ab12"),
        Statistics(count=2, l1norm=2.5),
        Statistics(count=2, l1norm=-math.inf),
        Statistics(count=1, checksum="hash_tensor:7", l1norm=1.5),
        Statistics(count=1, checksum="hash_tensor:8", l1norm=2.5),
    ]


def test_unwritten_memory_is_not_compared(tmp_path: Path) -> None:
    text = (
        "    aten::empty.memory_format([3], device=cpu)  ->  t$0: f32[3]\n"
        "    aten::view(t$0: f32[3], [1, 3])  ->  t$1: f32[1, 3]  # {'input_hash': ((7.5, [None]), {}), 'hash': 7.5}\n"
        "    aten::fill_.Scalar(t$0: f32[3], 2)  ->  t$0: f32[3]  # {'input_hash': ((7.5, None), {}), 'hash': 6.0}\n"
        "    aten::neg(t$0: f32[3])  ->  t$2: f32[3]  # {'input_hash': ((6.0,), {}), 'hash': 6.0}\n"
    )
    dump = opened(tmp_path, text)
    assert [record.name for record in dump.records if not record.unwritten] == [
        "fill__0/output.0",
        "neg_0/input.0",
        "neg_0/output.0",
    ]
    (tmp_path / "other").mkdir()
    found = compare(dump, opened(tmp_path / "other", text.replace("7.5", "9.5")))
    assert len(found.rows) == 3 and not any(row.error for row in found.rows)


def test_without_hashes_the_operators_are_listed_and_told(tmp_path: Path) -> None:
    dump = opened(tmp_path, "    [nn.Mod] Net\n      aten::t(t: f32[2, 3])  ->  t: f32[3, 2]\n")
    assert [record.name for record in dump.records] == ["t_0/output.0"]
    assert "log_tensor_hashes" in dump.notes[0]


@pytest.mark.parametrize(
    "line",
    [
        "    aten::t(t: f32[2",
        "    aten::t(t: f32[2])  ->  t: f32[2",
        "    aten::t(t: f32[2])  ->  t",
        "    aten::t(t: f32[2])  ->  t: f32[2]  #",
        "    aten::t(t: f32[2])  ->  t: f32[2]  # {'hash': 12.",
        "    aten::t(t: f32[2])  ->  ('t: f32[2]', ",
    ],
)
def test_a_cut_line_is_told(line: str) -> None:
    with pytest.raises(FormatError, match="cut off"):
        parsed(line)


def test_damage_is_one_line(tmp_path: Path) -> None:
    huge = "    aten::t(t: f32[999999999999999, 999999999999999])  ->  t: f32[2]\n"
    dump = opened(tmp_path, TEXT + "\n" + huge)
    assert "line 9 is left out" in dump.damage[0] and len(dump.records) == 9
    with pytest.raises(FormatError, match="no operator") as caught:
        opened(tmp_path, "    [nn.Mod] Net\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("eps", "the argument eps differs at layers.1.norm/native_layer_norm_0/output.0"),
        ("weight", "in layers.2.fc1"),
        ("gelu", "the argument approximate differs at layers.1.act/gelu_0/output.0"),
    ],
)
def test_the_cause_names_a_planted_fault(fault: str, cause: str, shared: Any) -> None:
    folder = shared / "peers/debug_mode"
    found = verdict(compare(folder / f"full_{fault}.txt", folder / "full_good.txt"))
    assert cause in found.splitlines()[1] and "peer_programs.py" in found
    plain = verdict(compare(folder / f"plain_{fault}.txt", folder / "plain_good.txt"))
    name = {"eps": "native_layer_norm_1", "weight": "t_4", "gelu": "gelu_1"}[fault]
    assert name in plain.splitlines()[1]


def test_genuine_texts_hold_the_forward_and_the_backward_run(shared: Any) -> None:
    dump = open_dump(shared / "peers/debug_mode/full_good.txt")
    names = list(dump)
    assert names[0] == "layers.0.norm/native_layer_norm_0/input.0" and "native_layer_norm_backward_2/output.1" in names
    assert {operator.module for operator in dump.network().values()} >= {"layers.0.fc1", "layers.2.act", "head", ""}
    assert not dump.notes


HASHES = [{"hash_fn": "norm"}, {"hash_inputs": True}, {"hash_fn": ["norm", "hash_tensor"]}]
RUNS = """
import json, sys
import torch
from dumps.formats import peer_programs
options, hashes = json.loads(sys.argv[1])
texts = {}
faults = [(fault, "float32") for fault in ("good", "eps", "weight", "gelu")]
for fault, dtype in [*faults, ("good", "bfloat16")]:
    net, x = (one.to(getattr(torch, dtype)) for one in (peer_programs.network(fault), peer_programs.data()))
    for name, option in options.items():
        for number, kind in enumerate(hashes):
            texts[f"{fault} {dtype} {name} {number}"] = peer_programs.debug_mode(net, x, kind, **option)
json.dump(texts, sys.stdout)
"""


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Texts of DebugMode from a process of their own: other tests leave torch's module tracking changed."""
    pytest.importorskip("torch.utils._debug_mode")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    words = [sys.executable, "-c", RUNS, json.dumps([OPTIONS, HASHES])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    made: dict[str, str] = json.loads(done.stdout)
    return made


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("number", range(len(HASHES)))
def test_runs_of_the_installed_torch(options: str, number: int, texts: dict[str, str], tmp_path: Path) -> None:
    hashes = HASHES[number]

    def run(fault: str, dtype: str = "float32") -> Dump:
        folder = tmp_path / f"{fault}_{dtype}"
        folder.mkdir(exist_ok=True)
        return opened(folder, texts[f"{fault} {dtype} {options} {number}"])

    good = run("good")
    assert good["t_0/output.0" if options == "nothing" else "head/t_0/output.0"].dtype == np.float32
    assert verdict(compare(run("good"), good)).startswith("EQUAL")
    named = {"eps": "native_layer_norm_1", "weight": "t_4", "gelu": "gelu_1"}
    modules = {"eps": "layers.1.norm", "weight": "layers.2.fc1", "gelu": "layers.1.act"}
    for fault in named:
        cause = verdict(compare(run(fault), good)).splitlines()[1]
        assert (named if options == "nothing" else modules)[fault] in cause, cause
    if isinstance(hashes.get("hash_fn", "norm"), str):
        assert verdict(compare(run("good", "bfloat16"), good)).splitlines()[1].startswith("No ")
