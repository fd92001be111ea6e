"""Every command of docs/only_the_sim.md runs as it is written, with nothing but the two .sim files and images."""

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sim_files import unpacked

from sgsdump.cli import main

PAGE = Path(__file__).resolve().parents[3] / "docs/only_the_sim.md"
COMMANDS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("sgsdump ", "mv "))]


@pytest.fixture
def folder(shared, tmp_path, monkeypatch):
    source = shared / "sigmastar/sim/att"
    for name in ("float.sim", "fixed.sim"):
        unpacked(source / f"{name}.xz", tmp_path)
    shutil.copy(tmp_path / "fixed.sim", tmp_path / "other_fixed.sim")
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(0)
    picture = np.clip(np.load(source / "input.npy"), 0, 255)
    for number in range(4):
        noisy = np.clip(np.roll(picture, 3 * number, 0) + random.normal(0, 6, picture.shape), 0, 255)
        Image.fromarray(noisy.astype(np.uint8)).save(tmp_path / f"images/{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_runs(folder, capsys):
    assert len(COMMANDS) > 10
    for command in COMMANDS:
        program, *words = shlex.split(command)
        if program == "mv":
            shutil.move(*words)
            continue
        assert main(words) in (0, 1), (command, capsys.readouterr())
        if words[0] == "diagnose":
            assert "mean_red = 127;" in Path("diagnosis/input_config.ini").read_text()
        if words[0] == "cfg":
            Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\npath=.\n")
    assert Path("parse_net.txt").read_text().startswith("|   |   |--> Tensor[0 ]")
    assert Path("net.onnx").exists() and Path("fixed.onnx").exists()
