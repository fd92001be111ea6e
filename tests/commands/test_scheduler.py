"""--scheduler, as a user types it: the files and lines of one process."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import residual_net

from sgsdump import open_dump, save_dump
from sgsdump.cli import main
from sgsdump.commands.compare.cluster import _Files, _measuring, _PairIndex
from sgsdump.commands.options import Reading
from sgsdump.commands.terminal import Terminal
from sgsdump.comparison.pair_result import Measures
from sgsdump.dumps.conversion import save
from sgsdump.dumps.targets import Target
from sgsdump.errors import ValuesError, WorkerError
from sgsdump.fixedpoint.commands import demo

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
def folder(tmp_path, monkeypatch, no_picture):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    (tmp_path / "pre.py").write_text(PREPROCESS)
    (tmp_path / "sizes.py").write_text("SIZE = 8\n")
    (tmp_path / "metric.py").write_text(METRIC)
    write_pictures(tmp_path, 5)
    return tmp_path


def contents(folder):
    """The files, but for what the page says was typed."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "progress.json"}
    return {name: re.sub(rb"sgsdump (tune|diagnose) [^<\"]*", b"", data) for name, data in files.items()}


def differing(one, other):
    """Names alone: what pytest shows of two pages takes minutes to find."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def test_calibrate_writes_the_files_of_one_process(folder, dask_cluster):
    command = ["calibrate", *GIVEN, "-o", "fixed.onnx"]
    assert main(command) == 0
    alone = {**contents(folder / "log"), "fixed.onnx": (folder / "fixed.onnx").read_bytes()}
    assert main([*command, "--scheduler", dask_cluster.scheduler_address]) == 0
    assert alone == {**contents(folder / "log"), "fixed.onnx": (folder / "fixed.onnx").read_bytes()}


@pytest.mark.parametrize("words", [["--rates", "0.6,0.8"], ["--metric", "metric.py:same", "--target", "error<=0.01"]])
def test_tune_writes_the_files_of_one_process(folder, dask_cluster, words):
    command = ["tune", *GIVEN, *words]
    assert main([*command, "-o", "one_process"]) == 0
    assert main([*command, "-o", "many", "--scheduler", dask_cluster.scheduler_address]) == 0
    assert not differing(contents(folder / "one_process"), contents(folder / "many"))
    alone, many = (json.loads((folder / name / "progress.json").read_text()) for name in ("one_process", "many"))
    assert alone["plans"] == many["plans"] and alone["sensitivities"] == many["sensitivities"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_tune_goes_on_when_a_worker_is_killed(folder, mortal_cluster, monkeypatch, capsys):
    from sgsdump.fixedpoint.tuning.plan_scores import PlanScores

    command = ["tune", *GIVEN, "--rates", "0.6,0.8"]
    assert main([*command, "-o", "one_process"]) == 0
    measure, victims = PlanScores.measure, []

    def killing(self, plans):
        measure(self, plans)
        if not victims:
            victims.extend(pid for pid in _pids(mortal_cluster))
            os.kill(victims[0], signal.SIGKILL)

    monkeypatch.setattr(PlanScores, "measure", killing)
    assert main([*command, "-o", "many", "--scheduler", mortal_cluster.scheduler_address]) == 0
    assert victims
    assert not differing(contents(folder / "one_process"), contents(folder / "many"))


def _pids(dask_cluster):
    from distributed import Client

    with Client(dask_cluster.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=120)
        return list(client.run(os.getpid).values())


@pytest.mark.parametrize("command", [["calibrate", "-o", "fixed.onnx"], ["tune", "-o", "tuned"]])
def test_nobody_there_is_one_line(folder, capsys, command):
    pytest.importorskip("distributed")
    assert main([command[0], *GIVEN, *command[1:], "--scheduler", "tcp://127.0.0.1:1"]) == 2
    *warnings, error = capsys.readouterr().err.splitlines()
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in error
    assert all(line.startswith("warning: ") for line in warnings)
    assert not (folder / "fixed.onnx").exists()


@pytest.mark.parametrize("command", ["calibrate", "tune"])
def test_processes_and_a_scheduler_exclude_each_other(folder, capsys, command):
    with pytest.raises(SystemExit):
        main([command, *GIVEN, "-o", "x", "--num-process", "2", "--scheduler", "tcp://127.0.0.1:1"])
    assert "not allowed with" in capsys.readouterr().err


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    """A float and a fixed dump with a NaN, a tensor whose sizes differ, and one only in the float dump."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    floats = {f"conv{i}": rng.standard_normal((1, 4, 8, 8)).astype(np.float32) for i in range(6)}
    fixed = {name: values + np.float32(0.01) for name, values in floats.items()}
    fixed["conv2"][0, 0, 0, 0] = np.nan
    fixed["conv4"] = np.ones((1, 3), np.float32)
    floats["tail"] = np.ones(3, np.float32)
    save_dump(floats, "float.npz")
    save_dump(fixed, "fixed.npz")
    (tmp_path / "angle.py").write_text("def largest(a, b):\n    return float(abs(a - b).max())\n")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--metric", "angle.py:largest", "--metrics", "sqnr,top5", "--html", "page.html"],
        ["--metrics", "msaccucmp", "--sort", "worst"],
    ],
)
def test_compare_gives_the_result_of_one_process(dumps, dask_cluster, capsys, words):
    command = ["compare", "fixed.npz", "float.npz", "--json", "out.json", *words]
    results = []
    for where in ([], ["--scheduler", dask_cluster.scheduler_address]):
        status = main([*command, *where])
        results.append((status, capsys.readouterr().out, Path("out.json").read_text()))
    assert results[0] == results[1]
    assert "conv4" in results[0][1] and '"nan"' in results[0][2].lower()


def test_compare_of_runs_on_a_cluster(dumps, dask_cluster, capsys):
    for side in ("fixed", "float"):
        (dumps / side).mkdir()
        for run in "ab":
            shutil.copy(f"{side}.npz", dumps / side / f"{run}.npz")
    outputs = []
    for where in ([], ["--scheduler", dask_cluster.scheduler_address]):
        assert main(["compare", "fixed", "float", "--runs", *where]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] and "Runs compared: 2." in outputs[0]


def test_a_worker_that_finds_another_dump_says_so(dumps):
    files = _Files(Path("fixed.npz"), Path("float.npz"), Reading(), ())
    measure = _measuring(files, Measures.of((), None, None, crop=True))
    assert [row.name for row in measure([_PairIndex(0, 0, ("conv0", "conv0"), "name", "")])] == ["conv0"]
    with pytest.raises(
        WorkerError, match=r"float\.npz on .* is a different dump: it contains the tensor 'conv1' instead"
    ):
        measure([_PairIndex(0, 1, ("conv0", "conv7"), "name", "")])
    with pytest.raises(WorkerError, match="it lacks the tensor 'conv9'"):
        measure([_PairIndex(0, 99, ("conv0", "conv9"), "name", "")])


def test_a_worker_that_does_not_find_the_dump_says_what_is_needed(dumps):
    files = _Files(Path("fixed.npz"), Path("gone.npz"), Reading(), ())
    with pytest.raises(
        WorkerError, match=r"cannot open a file that this machine opened: .*gone\.npz.*a shared file system"
    ):
        _measuring(files, Measures.of((), None, None, crop=True))


@pytest.mark.parametrize("words", [["out.bin"], ["out.npz", "--layout", "NC1HWC0"], ["out.txt", "--select", "conv*"]])
def test_convert_writes_the_bytes_of_one_process(dumps, dask_cluster, capsys, words):
    files = []
    for where in ([], ["--scheduler", dask_cluster.scheduler_address]):
        assert main(["convert", "fixed.npz", *words, *where]) == 0
        files.append((capsys.readouterr().out, Path(words[0]).read_bytes()))
    assert files[0] == files[1]


def test_what_a_worker_cannot_load_is_left_out_with_its_reason(dumps, capsys):
    records = open_dump("fixed.npz").records
    lost = ValuesError("it is gone")

    def loading(wanted):
        return (lost if record.name == "conv1" else record.tensor.raw() for record in wanted)

    saved = save(records, dumps / "out.npz", Target("npz"), Terminal(bars=False), loading=loading)
    assert saved.left_out == 1 and "tensors omitted from the output: 1 ('conv1'): it is gone" in capsys.readouterr().out
    assert list(open_dump("out.npz")) == [record.name for record in records if record.name != "conv1"]


def test_diagnose_writes_the_files_of_one_process(tmp_path, monkeypatch, dask_cluster, capsys):
    monkeypatch.chdir(tmp_path)
    demo._lay_out(demo._digits())
    command = (
        "diagnose -m digits.onnx -i pictures --input-config input_config.ini --max-images 3 --quant-level L3".split()
    )
    assert main([*command, "-o", "one_process"]) == 0
    alone = capsys.readouterr().out
    assert main([*command, "-o", "many", "--scheduler", dask_cluster.scheduler_address]) == 0
    assert capsys.readouterr().out == alone.replace("one_process", "many")
    assert contents(tmp_path / "one_process" / "log") == contents(tmp_path / "many" / "log")
    pages = [(tmp_path / folder / "report.html").read_text() for folder in ("one_process", "many")]
    reproduced = f"-o many --scheduler {dask_cluster.scheduler_address}"
    assert reproduced in pages[1] and pages[0] == pages[1].replace(reproduced, "-o one_process")
    for name in ("layers.csv", "layers.json", "fixed.onnx", "input_config.ini"):
        assert (tmp_path / "one_process" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name


def test_histogram_draws_the_pictures_of_one_process(dumps, dask_cluster, capsys):
    outputs = []
    for where in ([], ["--scheduler", dask_cluster.scheduler_address]):
        assert main(["histogram", "fixed.npz", "-o", f"pictures{len(where)}", *where]) == 0
        outputs.append(capsys.readouterr().out.replace(f"pictures{len(where)}", "pictures"))
    assert outputs[0] == outputs[1] and "6 charts" in outputs[0]
    assert contents(Path("pictures0")) == contents(Path("pictures2"))
