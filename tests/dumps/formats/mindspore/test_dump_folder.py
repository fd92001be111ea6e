"""Dumps that MindSpore wrote of a network of this project on the CPU; tables of statistics in the documented form."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly
from dumps.formats.read_only_folder import ReadOnlyFolder

from sgsdump import Dump, compare, list_runs, open_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import ConfigError
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.statistics import Statistics

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "vendors" / "mindspore"
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value"
TABLE = f"""{HEAD},Avg Value,L2Norm Value,Count,NaN Count,MD5
Conv2D,Default_c1-Conv2d_Conv2D-op0,0,0,1733905446819790,input,0,48,float32,"(1,3,2,2)",3,-1,0.5,4.5,12,0,ab12
Conv2D,Default_c1-Conv2d_Conv2D-op0,0,0,1733905446820495,output,0,4,bfloat16,"()",2,2,2,2,1,null,
"""


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class TestReadOnlyFolder(ReadOnlyFolder):
    format = "mindspore_dir"
    files: ClassVar = {
        "rank_0/Net/0/0/ReLU.Default_r-ReLU_ReLU-op0.0.0.1796037708093291.input.0.DefaultFormat.Float32.npy": npy(
            np.arange(-2, 2, dtype=np.float32)
        ),
        "rank_0/Net/0/0/ReLU.Default_r-ReLU_ReLU-op0.0.0.1796037708093459.output.0.DefaultFormat.npy": npy(
            np.array([0, 0, 0, 1], np.float32)
        ),
        "rank_0/execution_order/ms_execution_order_graph_0.csv": b"NodeExecutionOrder-FullNameWithScope\nDefault/x\n",
    }
    optional = (".csv",)


class TestReadOnly(ReadOnly):
    format = "mindspore_stats"
    file_name = "statistic.csv"
    data = TABLE.encode()


def of_table(tmp_path: Path, text: str) -> Dump:
    (tmp_path / "statistic.csv").write_text(text)
    return open_dump(tmp_path / "statistic.csv")


def test_names_order_and_modules() -> None:
    dump = open_dump(GOLDEN / "good")
    names = [record.name for record in dump.records]
    assert names[:4] == ["d_bias", "c1_weight", "d_weight", "x"]
    conv = [record for record in dump.records if record.op_index == 4]
    name = "Default/c1-Conv2d/Conv2D-op0"
    assert [(r.name, r.io, r.slot) for r in conv] == [
        (f"{name}/input.0", "in", 0),
        (f"{name}/input.1", "in", 1),
        (name, "out", 0),
    ]
    assert (dump.network()[4].module, dump.network()[4].kind) == ("c1", "Conv2D")
    assert dump.records[-1].op_type == "Softmax" and not dump.notes


def test_every_folder_of_the_tree_can_be_opened() -> None:
    names = list(open_dump(GOLDEN / "good"))
    for inner in ("rank_0", "rank_0/Net", "rank_0/Net/0", "rank_0/Net/0/0"):
        assert list(open_dump(GOLDEN / "good" / inner)) == names


def test_a_planted_weight_is_named_first_with_the_figures_of_numpy() -> None:
    found = compare(GOLDEN / "weight", GOLDEN / "good")
    assert "c1_weight" in REPORTS["verdict"](found, Thresholds()).splitlines()[1]
    a, b = (np.load(next((GOLDEN / side).rglob("Conv2D.*output.0*.npy"))).astype(float) for side in ("weight", "good"))
    row = next(row for row in found.rows if row.name == "Default/c1-Conv2d/Conv2D-op0")
    assert row.mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert row.cos == pytest.approx((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), abs=1e-6)
    assert REPORTS["verdict"](compare(GOLDEN / "good", GOLDEN / "good"), Thresholds()).startswith("EQUAL")


def test_iterations_ranks_and_graphs_are_runs(tmp_path: Path) -> None:
    for rank in (0, 1):
        for step in (0, 2):
            source = GOLDEN / "good/rank_0/Net/0/0"
            shutil.copytree(source, tmp_path / f"rank_{rank}/Net/0/{step}")
    assert [(run.rank, run.step, run.graph) for run in list_runs(tmp_path)] == [
        (0, 0, "Net/0"),
        (1, 0, "Net/0"),
        (0, 2, "Net/0"),
        (1, 2, "Net/0"),
    ]
    assert len(open_dump(tmp_path, step=2, rank=1).records) == 23
    with pytest.raises(ConfigError, match="holds 4 runs"):
        open_dump(tmp_path)
    assert len(list_runs(tmp_path / "rank_1")) == 2


def test_dumps_of_two_runs_in_one_folder_are_noted(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "good/rank_0/Net/0/0", tmp_path / "step")
    for file in list((tmp_path / "step").iterdir()):
        shutil.copy(file, file.with_name(file.name.replace(".1796", ".1797")))
    dump = open_dump(tmp_path / "step")
    assert len(dump.records) == 46 and "several runs" in dump.notes[0]


def test_statistics(tmp_path: Path) -> None:
    dump = of_table(tmp_path, TABLE)
    first, second = dump.records
    assert (first.name, first.io, first.tensor.shape) == ("Default_c1-Conv2d_Conv2D-op0/input.0", "in", (1, 3, 2, 2))
    assert first.tensor.statistics == Statistics(-1.0, 3.0, 0.5, 4.5, 12, 0, checksum="md5:ab12")
    assert (second.tensor.shape, second.tensor.dtype.name) == ((), "bfloat16")
    assert not dump.notes


def test_values_are_preferred_to_statistics(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "good/rank_0", tmp_path / "rank_0")
    (tmp_path / "rank_0/Net/0/0/statistic.csv").write_text(TABLE)
    assert len(open_dump(tmp_path).records) == 23
    for file in (tmp_path / "rank_0/Net/0/0").glob("*.npy"):
        file.unlink()
    assert [r.name for r in open_dump(tmp_path).records][-1] == "Default/c1-Conv2d/Conv2D-op0"


def test_statistics_that_differ_are_found(tmp_path: Path) -> None:
    good = of_table(tmp_path, TABLE)
    (tmp_path / "bad").mkdir()
    bad = of_table(tmp_path / "bad", TABLE.replace("2,2,2,2,1,null", "5,2,2,2,1,null"))
    verdict = REPORTS["verdict"](compare(bad, good), Thresholds())
    assert verdict.startswith("DIFFERS") and "Conv2D-op0" in verdict.splitlines()[1]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ('Add,x,0,0,1,sideways,0,4,float32,"(1)",1,1', "1 rows that do not match"),
        ('Add,x,0,0,1,input,0,4,float32,"(-1)",1,1', "1 rows that do not match"),
        ('Add,x,0,0,1,input,0,4,float32,"(9999999999999,9999999999999)",1,1', "1 rows that do not match"),
        ("Add,x", "1 rows that do not match"),
    ],
)
def test_a_damaged_row_is_noted(row: str, match: str, tmp_path: Path) -> None:
    dump = of_table(tmp_path, f"{TABLE}{row}\n")
    assert len(dump.records) == 2 and any(match in note for note in dump.damage)
