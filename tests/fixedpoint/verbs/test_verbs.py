"""The functions of the package do what the commands of their names do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import residual_net

import sgsdump
from sgsdump.cli import main
from sgsdump.models.network import named_network

RUNS = [{"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)} for seed in range(3)]
LOADER = """
import numpy as np

def load_data():
    for seed in range(3):
        yield {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}
"""


@pytest.fixture(autouse=True)
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    Path("feeds.py").write_text(LOADER)
    return tmp_path


def test_calibrate_writes_what_its_command_writes():
    fixed = sgsdump.calibrate("net.onnx", RUNS, quant_level="L2")
    fixed.save("by_python.onnx", log="log_by_python")
    assert main("calibrate -m net.onnx --data-loader-script feeds.py --quant-level L2 -o by_command.onnx".split()) == 0
    assert Path("by_python.onnx").read_bytes() == Path("by_command.onnx").read_bytes()
    for name in ("tensor_min_max.txt", "tensor_chn.txt"):
        assert Path("log_by_python", name).read_bytes() == Path("log", name).read_bytes()
    assert set(fixed.convolutions.values()) <= {8, 16} and "net" in repr(fixed)
    assert list(fixed.to_pandas().columns) == ["name", "low", "high"]


def test_simulate_gives_the_dump_of_its_command():
    fixed = sgsdump.calibrate("net.onnx", RUNS, quant_level="L1")
    fixed.save("fixed.onnx")
    Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    np.savez("run.npz", **RUNS[0])
    for kind, model, made in (("Float", "net.onnx", "net.onnx"), ("Fixed", "fixed.onnx", fixed)):
        assert main(f"simulate -m {model} -t {kind} -i run.npz".split()) == 0
        with sgsdump.open_dump("sigma_outtensor_dump.bin") as expected:
            for given in ("run.npz", RUNS[0], RUNS[:1]):
                dump = sgsdump.simulate(made, given)
                assert list(dump) == list(expected)
                assert all((dump[name].real() == expected[name].real()).all() for name in dump.outputs)


def test_dump_gives_the_dump_of_its_command():
    np.savez("run.npz", **RUNS[0])
    assert main("dump -m net.onnx -i run.npz -o by_command.bin".split()) == 0
    expected, dump = sgsdump.open_dump("by_command.bin"), sgsdump.dump("net.onnx", RUNS[0]["data"])
    assert list(dump) == list(expected.outputs)
    sgsdump.save_dump(dump, "by_python.bin")
    again = sgsdump.open_dump("by_python.bin")
    assert all((again[name].real() == expected[name].real()).all() for name in dump)


def test_diagnose_finds_and_writes_what_its_command_does():
    found = sgsdump.diagnose("net.onnx", iter(RUNS), quant_level="L2")
    found.save("by_python")
    line = "diagnose -m net.onnx --data-loader-script feeds.py --quant-level L2 -o by_command"
    assert main(line.split()) == 0
    names = sorted(path.name for path in Path("by_command").iterdir())
    assert sorted(path.name for path in Path("by_python").iterdir()) == names
    for name in ("layers.csv", "input_config.ini", "fixed.onnx"):
        assert Path("by_python", name).read_bytes() == Path("by_command", name).read_bytes(), name
    assert json.loads(Path("by_python/layers.json").read_text()) == json.loads(
        Path("by_command/layers.json").read_text()
    )
    assert found.verdict[0] in str(found) and found.verdict[0][:20] in (found._repr_html_() or "")
    rows, frame = json.loads(Path("by_python/layers.json").read_text())["rows"], found.to_pandas()
    assert frame["bits"].tolist() == pytest.approx([row.get("bits", np.nan) for row in rows], nan_ok=True)
    assert frame["raised_by"].fillna("").tolist() == [row.get("raised_by", "") for row in rows]
    assert set(frame["bits"].dropna()) <= {8, 16} and 16 in set(frame["bits"])


def test_what_can_be_gone_through_once_is_kept():
    """A network with Ifs is run on its data before it is calibrated on them."""
    network = named_network("net.onnx", iter(RUNS), {})
    assert [len(list(network.feeds or ())) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: sgsdump.calibrate("absent.onnx", RUNS), sgsdump.SgsdumpError, "absent.onnx"),
        (lambda: sgsdump.calibrate("net.onnx", []), sgsdump.SgsdumpError, ": no feeds"),
        (lambda: sgsdump.calibrate("net.onnx", [{"other": RUNS[0]["data"]}]), sgsdump.SgsdumpError, "other"),
        (lambda: sgsdump.simulate("net.onnx", RUNS), sgsdump.SgsdumpError, "dump takes one"),
        (lambda: sgsdump.diagnose("net.onnx", RUNS, preproces="a.py"), TypeError, "did you mean 'preprocess'"),
        (lambda: sgsdump.dump("net.onnx", RUNS[0], preprocess="a.py"), sgsdump.SgsdumpError, "use only one of them"),
    ],
)
def test_what_a_caller_can_cause_is_one_line(call, error, text):
    with pytest.raises(error, match=text) as raised:
        call()
    assert "\n" not in str(raised.value)
