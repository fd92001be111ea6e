"""calibrate and tune on a cluster, as a user types them: the files of one process."""

import json
import os
import signal

import numpy as np
import onnx
import pytest
from PIL import Image
from small_nets import residual_net

from sgsdump.cli import main

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean = 127:127:127;
std_value = 128;
"""
# What only the user's machine has: workers start elsewhere and find neither this file nor what it imports.
PREPROCESS = """import numpy as np
import sizes
from PIL import Image

def get_image(path, norm=True, nchw=False):
    pixels = np.asarray(Image.open(path), np.float32)[None, : sizes.SIZE]
    pixels = (pixels - 127) / 128 if norm else pixels
    return pixels.transpose(0, 3, 1, 2) if nchw else pixels
"""
METRIC = "import numpy as np\ndef same(a, b):\n    return -float(np.abs(a['prob'] - b['prob']).max())\n"
GIVEN = "-m net.onnx -i pictures -n pre.py --input-config input_config.ini".split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    (tmp_path / "input_config.ini").write_text(INI)
    (tmp_path / "pre.py").write_text(PREPROCESS)
    (tmp_path / "sizes.py").write_text("SIZE = 8\n")
    (tmp_path / "metric.py").write_text(METRIC)
    (tmp_path / "pictures").mkdir()
    for seed in range(5):
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{seed}.png")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "progress.json"}


def test_calibrate_writes_the_files_of_one_process(folder, dask_cluster):
    command = ["calibrate", *GIVEN, "-o", "fixed.onnx"]
    assert main(command) == 0
    alone = {**contents(folder / "log"), "fixed.onnx": (folder / "fixed.onnx").read_bytes()}
    assert main([*command, "--scheduler", dask_cluster.scheduler_address]) == 0
    assert alone == {**contents(folder / "log"), "fixed.onnx": (folder / "fixed.onnx").read_bytes()}


@pytest.mark.parametrize("words", [["--rates", "0.6,0.8"], ["--metric", "metric.py:same", "--target", "error<=0.01"]])
def test_tune_writes_the_files_of_one_process(folder, dask_cluster, words):
    command = ["tune", *GIVEN, *words]
    assert main([*command, "-o", "alone"]) == 0
    assert main([*command, "-o", "many", "--scheduler", dask_cluster.scheduler_address]) == 0
    assert contents(folder / "alone") == contents(folder / "many")
    alone, many = (json.loads((folder / name / "progress.json").read_text()) for name in ("alone", "many"))
    assert alone["plans"] == many["plans"] and alone["sensitivities"] == many["sensitivities"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_tune_goes_on_when_a_worker_is_killed(folder, dask_cluster, monkeypatch, capsys):
    from sgsdump.tuning.plan_scores import PlanScores

    command = ["tune", *GIVEN, "--rates", "0.6,0.8"]
    assert main([*command, "-o", "alone"]) == 0
    measure, victims = PlanScores.measure, []

    def killing(self, plans):
        measure(self, plans)
        if not victims:
            victims.extend(pid for pid in _pids(dask_cluster))
            os.kill(victims[0], signal.SIGKILL)

    monkeypatch.setattr(PlanScores, "measure", killing)
    assert main([*command, "-o", "many", "--scheduler", dask_cluster.scheduler_address]) == 0
    assert victims
    assert contents(folder / "alone") == contents(folder / "many")


def _pids(dask_cluster):
    from distributed import Client

    with Client(dask_cluster.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=120)
        return list(client.run(os.getpid).values())


@pytest.mark.parametrize("command", [["calibrate", "-o", "fixed.onnx"], ["tune", "-o", "tuned"]])
def test_nobody_there_is_one_line(folder, capsys, command):
    pytest.importorskip("distributed")
    assert main([command[0], *GIVEN, *command[1:], "--scheduler", "tcp://127.0.0.1:1"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "no Dask scheduler answers at tcp://127.0.0.1:1" in captured.err
    assert not (folder / "fixed.onnx").exists()


@pytest.mark.parametrize("command", ["calibrate", "tune"])
def test_processes_and_a_scheduler_exclude_each_other(folder, capsys, command):
    with pytest.raises(SystemExit):
        main([command, *GIVEN, "-o", "x", "--num-process", "2", "--scheduler", "tcp://127.0.0.1:1"])
    assert "not allowed with" in capsys.readouterr().err
