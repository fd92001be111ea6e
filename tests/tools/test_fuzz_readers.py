"""A short run of tools/fuzz_readers.py; the long one, of a million files, is for people."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.append(str(TOOLS))
pytest.importorskip("resource")  # what fuzzing measures memory by

from fuzzing import damage, readers, trial  # noqa: E402
from fuzzing.seeds import Seed, all_seeds  # noqa: E402

from sgsdump import Dump, Tensor, open_dump  # noqa: E402
from sgsdump.comparison.naming import NAME_FILES  # noqa: E402
from sgsdump.dumps.formats import FORMATS  # noqa: E402
from sgsdump.dumps.io import as_records  # noqa: E402
from sgsdump.errors import FormatError  # noqa: E402
from sgsdump.sidecars import SIDECARS  # noqa: E402

SIDE_FILES = {**SIDECARS, **NAME_FILES}


SEEDS = all_seeds(None)
FILES = 120
# Folders with a file for each tensor: a damaged file is left out with a note, and the folder opens.
WITH_NOTES = {"tidl_traces", "onnx_test_data", "mindspore_dir"}


@pytest.mark.parametrize("name", [*FORMATS, *SIDE_FILES])
def test_damaged_files_open_or_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.setattr(damage, "TRACED_EVERY", 5)
    assert name in SEEDS, f"{name} is not fuzzed: give tools/fuzzing/seeds/made.py a whole file of it"
    damage.try_numbers(SEEDS[name], 0, [0], tmp_path / "warm")
    result = damage.try_numbers(SEEDS[name], 0, range(FILES), tmp_path / "files")
    assert result.findings == []
    assert result.tried == FILES and 0 < result.opened < FILES + (name in WITH_NOTES)


@pytest.mark.parametrize("name", list(SEEDS))
def test_seeds_are_whole(name, tmp_path):
    for number, seed in enumerate(SEEDS[name]):
        path = seed.put(tmp_path / str(number))
        assert trial.tried(readers.reader(name), path, 10**6, traced=False) == (True, None)
        assert name in {*SIDE_FILES, *readers.MODEL_FILES} or open_dump(path).format == name


def test_a_number_is_always_the_same_file():
    made = [[damage.damaged(SEEDS["npz"], 7, number) for number in range(20)] for _ in range(2)]
    assert made[0] == made[1] != [damage.damaged(SEEDS["npz"], 8, number) for number in range(20)]


def crash(path):
    raise KeyError("x")


def hang(path):
    while True:
        pass


def refuse(path):
    raise FormatError("no\nline end is printed")


def swell(path):
    return bytearray(trial.ALLOWED + 2000)


def lie(path):
    tensor = Tensor.of("x", np.zeros(3))
    return readers.read_values(Tensor(tensor.info, lambda: np.zeros(3, int)))


def note(path):
    return trial.check_lines(*Dump(list(as_records([])), notes=["x" * 10**5]).notes)


@pytest.mark.parametrize("read, what", [(crash, "KeyError in crash"), (hang, "Hang"), (swell, "takes"), (lie, "gives")])
def test_what_is_wrong_is_found(read, what, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 0.05)
    opened, finding = trial.tried(read, tmp_path, 1000, traced=True)
    assert not opened and what in finding.what + finding.details


@pytest.mark.parametrize("read, opened", [(refuse, False), (note, True)])
def test_what_is_right_is_no_finding(read, opened, tmp_path):
    assert trial.tried(read, tmp_path, 1000, traced=True) == (opened, None)


def test_the_command_tells_and_saves_what_it_finds(tmp_path, monkeypatch, capsys):
    import fuzz_readers

    monkeypatch.setattr(fuzz_readers, "all_seeds", lambda genuine: {"npy": SEEDS["npy"]})
    assert fuzz_readers.main(["--files", "300", "--processes", "2", "--findings", str(tmp_path)]) == 0
    assert "npy" in capsys.readouterr().out and not list(tmp_path.iterdir())
    monkeypatch.setattr(damage, "reader", lambda name: crash)
    assert fuzz_readers.main(["--files", "5", "--processes", "1", "--findings", str(tmp_path)]) == 1
    assert "KeyError in crash" in capsys.readouterr().out
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_put_back_is_the_whole_one(tmp_path):
    seed = Seed("npy_dir", "x", {"a/b.npy": b"1", "c.npy": b"2"})
    path = seed.put(tmp_path)
    damage.put(path, {"a/b.npy": None, "d.npy": b"3"})
    damage.put(path, {"a/b.npy": b"1", "d.npy": None})
    assert {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()} == seed.files


def test_it_says_how_it_is_used():
    run = subprocess.run([sys.executable, TOOLS / "fuzz_readers.py", "--help"], capture_output=True, text=True)
    assert run.returncode == 0 and "--seed" in run.stdout
