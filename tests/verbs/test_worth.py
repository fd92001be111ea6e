"""What a plan is worth in ``diagnose`` and ``repair``: by a metric of one's own, and on pictures held out."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_nets import conv, model, node, weights

import sgsdump
from sgsdump.cli import main
from sgsdump.tuning.worth import ALL_16, AS_IT_IS, PLAN, Worth, Worths

LOADER = """
import numpy as np

def runs(seed, scale=1.0):
    generator = np.random.default_rng(seed)
    for number in range(3):
        yield {"x": scale * generator.normal(size=(1, 3, 8, 8)).astype(np.float32)}, number

def load_data():
    yield from runs(1)

def others():
    yield from runs(2)

def loud():
    yield from runs(2, 30.0)
"""
METRIC = """
import numpy as np

def near(outputs, float_outputs, label, picture):
    assert picture == f"feed {label}", (picture, label)
    return -float(np.abs(outputs["c"] - float_outputs["c"]).mean())
"""
DIAGNOSE = "diagnose -m net.onnx --data-loader-script loader.py --quant-level L1".split()


def write_net(loud: float) -> None:
    """One channel of the second convolution's input is so many times as loud."""
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    constants["a.w"][0] *= loud
    constants["b.w"][:, 0] /= loud
    nodes = [conv("a", "x"), node("Relu", ["a"], "ra"), conv("b", "ra"), node("Relu", ["b"], "rb"), conv("c", "rb")]
    net = model(nodes, constants, {"x": (1, 3, 8, 8)}, ["c"]).proto
    Path("net.onnx").write_bytes(net.SerializeToString())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_net(300.0)
    (tmp_path / "loader.py").write_text(LOADER)
    (tmp_path / "metric.py").write_text(METRIC)
    return tmp_path


def worths(judged: dict[str, float], held: dict[str, float], bad: tuple[str, ...] = ()) -> Worths:
    first = {kind: Worth(error, True) for kind, error in judged.items()}
    there = {kind: Worth(error, kind not in bad) for kind, error in held.items()}
    return Worths(first, there, (len(first), len(there)), names=("a",))


JUDGED = {AS_IT_IS: 1.0, PLAN: 0.02, ALL_16: 0.004}


@pytest.mark.parametrize(
    ("held", "bad", "expected"),
    [
        ({AS_IT_IS: 2.0, PLAN: 0.059, ALL_16: 0.01}, (), False),  # 0.0295 of what it was, 0.02 on those that judge
        ({AS_IT_IS: 2.0, PLAN: 0.061, ALL_16: 0.01}, (), True),
        ({AS_IT_IS: 2.0, PLAN: 0.061, ALL_16: 0.041}, (), False),  # nor do 16 bits give more
        ({AS_IT_IS: 2.0, PLAN: 0.061}, (), True),  # the plan has them all, or they were not run
        ({AS_IT_IS: 2.0, PLAN: 0.01, ALL_16: 0.01}, (PLAN,), True),
        ({AS_IT_IS: 2.0, PLAN: 0.01, ALL_16: 0.01}, (AS_IT_IS, ALL_16), False),
        ({}, (), False),
    ],
)
def test_a_plan_whose_error_there_lies_beyond_is_not_recommended(held, bad, expected):
    assert worths(JUDGED, held, bad).beyond is expected


def test_an_error_that_is_as_good_as_none_is_not_beyond():
    judged = {AS_IT_IS: 1.0, PLAN: 1e-6}
    assert not worths(judged, {AS_IT_IS: 1.0, PLAN: 0.99e-4}).beyond
    assert worths(judged, {AS_IT_IS: 1.0, PLAN: 1.01e-4}).beyond


def test_diagnose_tells_the_metric_and_what_is_held_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sgsdump.diagnose(
        "net.onnx", "loader.py", metric="metric.py:near", validate="loader.py:others", quant_level="L1"
    )
    assert found.verdict[1].startswith("By your metric, on 3 pictures: float 0; as it is -")
    assert found.verdict[2].startswith("By your metric, on 3 pictures held out: float 0; as it is -")
    assert found.verdict[3].startswith("Squared error on 3 pictures held out (on the 3 pictures that judge): as it is")
    assert found.to_copy == ["[CONV_CONFIG]\ntensor_arrays='ra';"] and "Not recommended" not in str(found)
    assert main([*DIAGNOSE, "--metric", "metric.py:near", "--validate", "loader.py:others"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "metric" in line or "Squared" in line] == found.verdict[1:4]
    told = {each["facts"]["way"]: each for each in _findings(folder) if each["kind"] == "worth"}
    assert told["plan"]["names"] == ["ra"] and told["plan"]["facts"]["recommended"] == "yes"
    figures = told["plan"]["figures"]
    assert figures["metric"] > told["as it is"]["figures"]["metric"]
    assert figures["held_squared_error"] < told["as it is"]["figures"]["held_squared_error"]


def _findings(folder: Path) -> list[dict]:
    return json.loads((folder / "diagnosis" / "layers.json").read_text())["findings"]


def test_a_plan_that_fails_on_pictures_held_out_is_not_advised(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([*DIAGNOSE, "--validate", "loader.py:loud"]) == 0
    said = capsys.readouterr().out
    assert "Not recommended: ra at INT16. On 3 pictures held out" in said and "[CONV_CONFIG]" not in said
    assert "tensor_arrays" not in (folder / "diagnosis" / "input_config.ini").read_text()
    (plan,) = (each for each in _findings(folder) if each["facts"].get("way") == "plan")
    assert plan["facts"] == {"way": "plan", "within": "yes", "held_within": "no", "recommended": "no"}


def test_pictures_to_judge_by_that_the_ranges_do_not_hold_are_the_cause(folder: Path, capsys) -> None:
    write_net(1.0)
    assert main([*DIAGNOSE, "--evaluate", "loader.py:loud"]) == 0
    said = capsys.readouterr().out
    assert (
        "\nThe cause: the calibration pictures are unlike these" in said
        and "\nCalibrate on pictures like these" in said
    )
    assert "judged on" in (folder / "diagnosis" / "report.html").read_text()


def test_pictures_that_judge_are_not_held_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        np.save(f"{number}.npy", np.zeros((1, 3, 8, 8), np.float32))
    line = "diagnose -m net.onnx -i 0.npy -o out --validate"
    assert main([*line.split(), "0.npy"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "--validate has" in said[0] and "which -i has too" in said[0]
    assert not (folder / "out").exists()
    assert main([*line.split(), "1.npy", "--evaluate", "1.npy"]) == 2
    assert "which --evaluate has too" in capsys.readouterr().err
