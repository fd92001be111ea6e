"""Logs of torchtitan's activations, written by this project in the documented form: contents of a block, and damage."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from dumps.formats.read_only import ReadOnly

from sgsdump import Dump, compare, list_runs, open_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ConfigError, FormatError
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.statistics import Statistics

DATA = Path(__file__).parent / "data"
NAME = "rank_0_activations.log"
BLOCK = """\
[layers.0.wq/op_0_mm]
  Shape: torch.Size([8, 4]), Dtype: torch.bfloat16
  L2 norm: 4.512300e+00
  Min: -3.250000e+00
  Max: 3.109375e+00
  Mean: 1.234500e-03
  Output hash: 1.834560e+01
  Input hashes: 9.876500e+02, 4.567800e+02
  Input producers: <none>/op_0_embedding;
  Location: common/attention.py:534

"""
LAST = """\
[<none>/op_1_add_]
  Input hashes: 1.834560e+01
  Input producers: layers.0.wq/op_0_mm
  Phase: backward

"""


def text(*blocks: str) -> str:
    return f"Total captured activations: {len(blocks)}\nExcluded ops dispatched: t\n{'=' * 80}\n\n{''.join(blocks)}"


def opened(tmp_path: Path, content: str) -> Dump:
    (tmp_path / NAME).write_text(content)
    return open_dump(tmp_path / NAME)


class TestReadOnly(ReadOnly):
    format = "torchtitan_log"
    file_name = NAME
    data = text(BLOCK, LAST).encode()[:-1]

    def test_truncation_at_every_byte_is_told(self, tmp_path: Path) -> None:
        """A block whose last lines are missing has fewer tensors; the announced number of blocks and a note tell it."""
        for length in reversed(range(len(self.data) - 1)):
            path = self.write(tmp_path, self.data[:length])
            try:
                dump = open_dump(path)
            except FormatError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                continue
            assert dump.damage or self.data[length - 1 : length] == b"\n", length


def test_names_places_and_statistics(tmp_path: Path) -> None:
    dump = opened(tmp_path, text(BLOCK, LAST))
    assert [(r.name, r.io, r.op_index, r.op_type) for r in dump.records] == [
        ("layers.0.wq/op_0_mm/input.0", "in", 0, "aten.mm"),
        ("layers.0.wq/op_0_mm/input.1", "in", 0, "aten.mm"),
        ("layers.0.wq/op_0_mm", "out", 0, "aten.mm"),
        ("op_1_add_/input.0", "in", 1, "aten.add__backward"),
    ]
    tensor = dump["layers.0.wq/op_0_mm"]
    assert (tensor.shape, tensor.dtype.name) == ((8, 4), "bfloat16")
    assert tensor.statistics == Statistics(-3.25, 3.109375, 1.2345e-3, 4.5123, count=32, l1norm=18.3456, digits=7)
    assert dump["op_1_add_/input.0"].statistics == Statistics(l1norm=18.3456, digits=7)
    network = dump.network()
    assert (network[0].module, network[0].source, network[1].module) == ("layers.0.wq", "attention.py:534", "")
    assert network[0].values["out", 0] == network[1].values["in", 0] and not dump.notes


def test_statistics_belong_to_the_result_that_they_fit(tmp_path: Path) -> None:
    dump = opened(tmp_path, text(BLOCK.replace("hash: 1.834560e+01", "hash: 9.900000e+03, 1.834560e+01, 5, ab, nan")))
    found = [record.tensor.statistics for record in dump.records if record.io == "out"]
    assert found[0] == Statistics(l1norm=9900.0, digits=7)
    assert found[1] is not None and (found[1].l2norm, found[1].l1norm) == (4.5123, 18.3456)
    assert [figures and figures.checksum for figures in found[2:4]] == ["hash_tensor:5", "hash:ab"]
    assert found[4] is not None and found[4].l1norm is not None and math.isnan(found[4].l1norm)
    assert [r.name.rpartition("/")[2] for r in dump.records if r.io == "out"][:2] == ["op_0_mm", "output.1"]


def test_an_older_log_has_the_norm_on_its_own_line(tmp_path: Path) -> None:
    older = BLOCK.replace("  Output hash: 1.834560e+01\n", "").replace("  L2", "  L1 norm: 1.834560e+01\n  L2")
    statistics = opened(tmp_path, text(older))["layers.0.wq/op_0_mm"].statistics
    assert statistics is not None and (statistics.l1norm, statistics.l2norm) == (18.3456, 4.5123)


def test_logs_of_several_ranks_are_runs(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        (tmp_path / f"rank_{rank}_activations.log").write_text(text(BLOCK))
    assert [run.rank for run in list_runs(tmp_path)] == [0, 1, 10]
    assert len(open_dump(tmp_path, rank=10).records) == 3
    with pytest.raises(ConfigError, match="rank"):
        open_dump(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (text(BLOCK, LAST).replace("activations: 2", "activations: 3"), "announces 3 operators and has 2"),
        (text(BLOCK, "[x/op_1_mm]\n  Shape: torch.Size([2, -1]), Dtype: torch.int8\n\n"), "not a shape"),
        (text(BLOCK, "[x/op_1_mm]\nrubbish\n"), "'rubbish' is not a line"),
        (text(BLOCK.replace("8, 4", ", ".join(["9" * 15] * 4))), "not a shape"),
    ],
)
def test_damage_is_noted(content: str, match: str, tmp_path: Path) -> None:
    damage = opened(tmp_path, content).damage
    assert any(match in note for note in damage), damage


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no activation"):
        opened(tmp_path, text())


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("eps", "layers.1.norm/op_0_native_layer_norm"),
        ("weight", "layers.2.fc1/op_0_addmm/input.2"),
        ("gelu", "layers.1.act/op_0_gelu"),
    ],
)
def test_the_cause_names_a_planted_fault(fault: str, cause: str, tmp_path: Path) -> None:
    found = REPORTS["verdict"](compare(DATA / fault, DATA / "good"), Thresholds())
    assert cause in found.splitlines()[1]
    shutil.copytree(DATA / "good", tmp_path / "again")
    again = REPORTS["verdict"](compare(tmp_path / "again", DATA / "good"), Thresholds())
    assert again.startswith("EQUAL")
