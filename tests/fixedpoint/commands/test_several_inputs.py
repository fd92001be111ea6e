"""Several inputs in one call: data loader scripts, folders of folders; the oracle is a call for each alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import residual_net, run_all

from sgsdump import open_dump
from sgsdump.cli import main

LOADER = """
import numpy as np

def load_data():
    for seed in range(3):
        yield {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}

def pair():
    return list(load_data())[:2]

def nothing():
    return []

def array():
    return [np.zeros((1, 3, 8, 8), np.float32)]

def other():
    yield {"data": np.zeros((1, 3, 8, 8), np.float32), "dat": 1}

def none():
    yield {}

def text():
    yield {"data": "cat.jpg"}

def wrong_shape():
    yield {"data": np.zeros((1, 3, 8, 9), np.float32)}

def fails():
    yield {"data": np.zeros((1, 3, 8, 8), np.float32)}
    raise OSError("no more pictures")

def one():
    return {"data": np.zeros((1, 3, 8, 8), np.float32)}
"""


def feed(seed: int) -> dict[str, np.ndarray]:
    return {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    Path("feeds.py").write_text(LOADER)
    for seed in range(3):
        np.save(f"{seed}.npy", feed(seed)["data"])
    return tmp_path


def sgsdump(*words: str, status: int = 0) -> None:
    assert main(list(words)) == status


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    sgsdump(*words, status=2)
    said = capsys.readouterr().err
    assert said.startswith("sgsdump: error: ") and said.count("\n") == 1, said
    return said


def test_dump_numbers_the_feeds_of_a_script(folder: Path) -> None:
    sgsdump("dump", "-m", "net.onnx", "--data-loader-script", "feeds.py", "-o", "out.bin")
    assert sorted(path.name for path in folder.glob("*.bin")) == ["out_0.bin", "out_1.bin", "out_2.bin"]
    for seed in range(3):
        sgsdump("dump", "-m", "net.onnx", "-i", f"{seed}.npy", "-o", "alone.bin")
        assert Path("alone.bin").read_bytes() == Path(f"out_{seed}.bin").read_bytes()
    sgsdump("dump", "-m", "net.onnx", "--data-loader-script", "feeds.py:pair", "-o", "two.bin")
    assert sorted(path.name for path in folder.glob("two*.bin")) == ["two_0.bin", "two_1.bin"]


def test_simulate_names_the_dumps(folder: Path) -> None:
    Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\npath=.\n")
    words = ("simulate", "-m", "net.onnx", "-t", "Float")
    sgsdump(*words, "--data-loader-script", "feeds.py")
    for seed in range(3):
        sgsdump(*words, "-i", f"{seed}.npy")
        alone = Path("sigma_outtensor_dump.bin").read_bytes()
        assert alone == Path(f"sigma_outtensor_dump_{seed}.bin").read_bytes()
        Path(f"sigma_outtensor_dump_{seed}.bin").unlink()
    Path("list.txt").write_text("0.npy\n2.npy\n")
    sgsdump(*words, "-i", "list.txt")
    assert Path("sigma_outtensor_dump_2.bin").read_bytes() == alone
    assert not Path("sigma_outtensor_dump_1.bin").exists()


@pytest.mark.parametrize("command", ["dump", "simulate"])
def test_the_provider_of_dump_and_simulate(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    words = {"dump": ["dump", "-o", "o.bin"], "simulate": ["simulate", "-t", "Float"]}[command]
    words += ["-m", "net.onnx", "-i", "0.npy"]
    sgsdump(*words)
    plain = capsys.readouterr().out
    sgsdump(*words, "--provider", "CPUExecutionProvider")
    assert capsys.readouterr().out == plain
    assert "has no execution provider 'Abacus'; installed are " in refused(capsys, *words, "--provider", "Abacus")


def test_the_provider_is_the_one_that_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    real, asked = onnxruntime.InferenceSession, []

    def session(data, options, providers):
        asked.append(providers)
        return real(data, options, providers=["CPUExecutionProvider"])

    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr("onnxruntime.InferenceSession", session)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: there)
    sgsdump("dump", "-m", "net.onnx", "-i", "0.npy", "-o", "o.bin", "--provider", "cuda")
    sgsdump("simulate", "-m", "net.onnx", "-t", "Float", "-i", "0.npy", "--provider", "CUDA")
    assert asked.count(there) >= 2


def test_the_pipeline_makes_a_dump_of_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sgsdump("pipeline", "full", "-m", "net.onnx", "--data-loader-script", "feeds.py", "-o", "golden")
    assert sorted(path.name for path in Path("golden").iterdir()) == ["0", "1", "2"]
    for seed in range(3):
        wanted = run_all(residual_net().proto, feed(seed))
        found = open_dump(f"golden/{seed}").outputs
        assert set(found) == set(wanted)
        for name, tensor in found.items():
            np.testing.assert_array_equal(tensor.stored(), wanted[name])
        np.testing.assert_array_equal(np.load(f"golden/{seed}/inputs/data.npy"), feed(seed)["data"])
    assert "golden/2: 12 tensors, 12 dumped" in capsys.readouterr().out

    words = ("-m", "net.onnx", "-f", "reference", "--input-dir", "golden")
    sgsdump("pipeline", "full", *words, "-cd", "golden", "-o", "other", "-t2", "1e-3")
    for seed in range(3):
        assert "__prob.npy" in Path(f"other/{seed}/compare_result.log").read_text()
    out = capsys.readouterr().out
    assert out.count("12 compared") == 3 and "was run with other values" not in out
    Path("golden/1/outputs/topoidx_00001__r1.npy").unlink()
    np.save("golden/1/outputs/topoidx_00001__r1.npy", np.zeros((1, 8, 8, 8), np.float32))
    sgsdump("pipeline", "full", *words, "-cd", "golden", "-o", "other", "-t2", "1e-3", status=1)


def test_earlier_dumps_are_set_aside_as_a_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("pipeline", "once", "-m", "net.onnx", "--name", "prob", "-o", "out", "--data-loader-script")
    sgsdump(*words, "feeds.py")
    sgsdump(*words, "feeds.py:pair")
    assert sorted(path.name for path in Path("out").iterdir()) == ["0", "1"]
    (aside,) = Path().glob("out_*")
    assert sorted(path.name for path in aside.iterdir()) == ["0", "1", "2"]
    assert "the earlier dumps in out were moved to out_" in capsys.readouterr().out
    before = sorted(path.name for path in Path("out").rglob("*"))
    assert "no more pictures" in refused(capsys, *words, "feeds.py:fails")
    assert sorted(path.name for path in Path("out").rglob("*")) == before
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


REFUSED = {
    "nothing": "feeds.py: nothing() gives no feeds",
    "array": "feeds.py: feed 0 is a ndarray, not a dictionary of arrays by input name",
    "other": "feeds.py: feed 0 has 'dat', which is not an input of the model; did you mean 'data'?",
    "none": "feeds.py: feed 0 lacks the model's input 'data'",
    "text": "feeds.py: feed 0 has no array of numbers for the input 'data'",
    "fails": "the data loader failed on feed 1: OSError: 'no more pictures'",
    "one": "feeds.py: one() returned a dict; yield a dictionary of arrays for each run",
    "missing": "feeds.py has no function missing() that returns the model inputs",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_script_that_gives_something_else(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    script = ("--data-loader-script", f"feeds.py:{name}")
    assert REFUSED[name] in refused(capsys, "dump", "-m", "net.onnx", *script, "-o", "o.bin")
    assert REFUSED[name] in refused(capsys, "pipeline", "full", "-m", "net.onnx", *script)
    assert not Path("ort_dump").exists()


def test_what_does_not_go_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = ("--data-loader-script", "feeds.py")
    assert "there is no data loader script none.py" in refused(
        capsys, "dump", "-m", "net.onnx", "--data-loader-script", "none.py"
    )
    full = ("pipeline", "full", "-m", "net.onnx", *script)
    assert "--save-test-case supports only one set of inputs;" in refused(
        capsys, "pipeline", "once", "--name", "prob", *full[2:], "--save-test-case", "case"
    )
    assert "give the inputs in one way only" in refused(capsys, *full, "--input-dir", ".")
    assert "--seed and --range are for random inputs" in refused(capsys, *full, "--seed", "1")
    assert "shape" in refused(capsys, "dump", "-m", "net.onnx", "--data-loader-script", "feeds.py:wrong_shape")
    for words in (["-i", "0.npy", *script], []):
        with pytest.raises(SystemExit):
            main(["dump", "-m", "net.onnx", *words])


def test_folders_of_one_run_are_one_run(folder: Path) -> None:
    """As before: an .npy file anywhere below, and a dump folder, are the inputs of one run."""
    sgsdump("pipeline", "once", "-m", "net.onnx", "--name", "prob", "-o", "first")
    for source in ("first", "."):
        if source == ".":
            Path("deep/er").mkdir(parents=True)
            np.save("deep/er/data.npy", feed(1)["data"])
            source = "deep"
        sgsdump("pipeline", "once", "-m", "net.onnx", "--name", "prob", "--input-dir", source, "-o", f"of_{source}")
        assert Path(f"of_{source}/outputs/prob.npy").is_file()
