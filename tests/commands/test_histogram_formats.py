"""``sgsdump histogram`` and ``compare`` on dumps of every format: every tensor is drawn, or listed with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import Record, Tensor, save_dump
from sgsdump.cli import main
from sgsdump.tensors.dtypes import KNOWN

SHARED_DUMPS = [
    "ascend/atb_dump_tree/all_f0/atb_dump_data/data/0_4711/0",
    "ascend/atb_dump_tree/stats/atb_dump_data/data/0_4711/1",
    "ascend/ge_dump/compare/my",
    "ascend/ge_dump/schema_written/dump",
    "ascend/ge_dump/overflow/dump",
    "ascend/nano_dump",
    "sigmastar/dumps/tiny_fixed_g_plain_string/sigma_outtensor_dump.bin",
]


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_element_type_scalars_and_empty_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = {name: np.ones(4).astype(dtype) for name, dtype in KNOWN.items()}
    arrays |= {"scalar": np.array(3, np.float32), "empty": np.empty((0, 3), np.float32), "one": np.ones(1, np.int64)}
    tensors = [Record("out", 0, i, "ADD", Tensor.of(name, array)) for i, (name, array) in enumerate(arrays.items())]
    save_dump(tensors, tmp_path / "dump", "npz")
    assert main(["histogram", "dump"]) == 0
    out = capsys.readouterr().out
    assert f"{len(arrays)} charts in Histograms" in out
    assert "NaN, Inf or empty (1)" in out and "empty" in out
    assert len(list((tmp_path / "Histograms").glob("*.png"))) >= len(arrays)


def test_a_dump_without_values_says_why(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["histogram", str(shared / "ascend/atb_dump_tree/stats"), "--step", "0"]) in (0, 2)
    said = capsys.readouterr()
    assert "only statistics were dumped" in said.out + said.err


@pytest.mark.parametrize("name", SHARED_DUMPS)
def test_genuine_dumps_are_drawn_or_told(name: str, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["histogram", str(shared / name)])
    said = capsys.readouterr()
    assert status in (0, 2) and "Traceback" not in said.err
    assert "charts in Histograms" in said.out if status == 0 else said.err.count("\n") == 1


def test_notes_are_printed_a_few_and_a_count(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = str(shared / "ascend/ge_dump/schema_written/dump")
    main(["compare", tree, tree, "--json", str(tmp_path / "found.json")])
    out = capsys.readouterr().out
    assert out.count("Note on both dumps: ") == 3 and out.count("more; to list them: sgsdump show") == 1
    assert (tmp_path / "found.json").read_text().count("left out: ") >= 6
    main(["histogram", tree])
    assert capsys.readouterr().out.count(f"Note on {tree}: ") == 3
