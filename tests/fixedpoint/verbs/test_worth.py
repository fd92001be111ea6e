"""What a plan is worth in ``diagnose`` and ``tune --first``: by a metric of one's own, and on pictures held out."""

import json
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from small_nets import loud_net

import sgsdump
from sgsdump.cli import main
from sgsdump.fixedpoint.reports import diagnosis
from sgsdump.fixedpoint.tuning.worth import ALL_16, AS_IT_IS, PLAN, Worth, Worths
from sgsdump.fixedpoint.verbs import diagnose, diagnose_quantised
from sgsdump.fixedpoint.verbs.diagnose import Judged

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
SCHEMA = Path(sgsdump.__file__).parent / "reports" / "schemas" / "repair.json"
DIAGNOSE = "diagnose -m net.onnx --data-loader-script loader.py --quant-level L1".split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(loud_net(300.0).proto.SerializeToString())
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


def test_a_plan_that_is_past_the_limits_anyway_is_judged_by_its_part() -> None:
    judged = {AS_IT_IS: Worth(1.0, False), PLAN: Worth(0.5, False)}
    held = {AS_IT_IS: Worth(2.0, False), PLAN: Worth(1.0, False)}
    assert not Worths(judged, held, (1, 1)).beyond
    assert Worths({**judged, PLAN: Worth(0.5, True)}, held, (1, 1)).beyond


def test_an_error_that_is_as_good_as_none_is_not_beyond():
    judged = {AS_IT_IS: 1.0, PLAN: 1e-6}
    assert not worths(judged, {AS_IT_IS: 1.0, PLAN: 0.99e-4}).beyond
    assert worths(judged, {AS_IT_IS: 1.0, PLAN: 1.01e-4}).beyond


def test_diagnose_tells_the_metric_and_what_is_held_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sgsdump.diagnose(
        "net.onnx", "loader.py", metric="metric.py:near", validate="loader.py:others", quant_level="L1"
    )
    worth = [line for line in found.report.details if line.startswith(("Metric", "Relative squared"))]
    assert worth[0].startswith("Metric on 3 images: float model 0; unchanged -")
    assert worth[1].startswith("Metric on 3 images that were held out: float model 0; unchanged -")
    assert worth[2].startswith(
        "Relative squared error of the outputs on 3 images that were held out (in brackets: the error on "
        "the 3 images used "
        "for judging): unchanged"
    )
    assert found.to_copy == ["[CONV_CONFIG]\ntensor_arrays='ra';"] and "Not recommended" not in str(found)
    assert main([*DIAGNOSE, "--metric", "metric.py:near", "--validate", "loader.py:others"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith(("Metric", "Relative squared"))] == worth
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
    assert "Not recommended: ra at INT16. On 3 held-out images" in said and "[CONV_CONFIG]" not in said
    assert "tensor_arrays" not in (folder / "diagnosis" / "input_config.ini").read_text()
    (plan,) = (each for each in _findings(folder) if each["facts"].get("way") == "plan")
    assert plan["facts"] == {"way": "plan", "within": "yes", "held_within": "no", "recommended": "no"}


@pytest.mark.parametrize(("held", "status"), [("others", 0), ("loud", 1)])
def test_an_output_past_the_limits_on_held_out_images_alone_does_not_pass(folder: Path, held: str, status: int) -> None:
    Path("net.onnx").write_bytes(loud_net(1.0).proto.SerializeToString())
    assert main([*DIAGNOSE, "--max-rmse", "0.1", "--validate", f"loader.py:{held}"]) == status


def test_pictures_to_judge_by_that_the_ranges_do_not_hold_are_the_cause(folder: Path, capsys) -> None:
    Path("net.onnx").write_bytes(loud_net(1.0).proto.SerializeToString())
    assert main([*DIAGNOSE, "--evaluate", "loader.py:loud"]) == 0
    said = capsys.readouterr().out
    assert (
        "\nCause: the calibration images differ from the given images" in said
        and "\nNext: calibrate on images that resemble the given images." in said
    )
    assert "judged on" in (folder / "diagnosis" / "report.html").read_text()


def test_pictures_that_judge_are_not_held_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        np.save(f"{number}.npy", np.full((1, 3, 8, 8), number, np.float32))
    np.save("copy_of_0.npy", np.zeros((1, 3, 8, 8), np.float32))
    line = "diagnose -m net.onnx -i 0.npy -o out --validate"
    for same in ("0.npy", "copy_of_0.npy"):
        assert main([*line.split(), same]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1 and f"--validate contains {same}, which is also in -i." in said[0]
    assert not (folder / "out").exists()
    assert main([*line.split(), "1.npy", "--evaluate", "1.npy"]) == 2
    assert "which is also in --evaluate." in capsys.readouterr().err


FIRST = "tune --first -m net.onnx --data-loader-script loader.py --quant-level L1 -o out".split()


def test_the_first_plan_tells_the_metric_and_what_is_held_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sgsdump.tune(
        "net.onnx",
        "loader.py",
        first=True,
        metric="metric.py:near",
        validate="loader.py:others",
        quant_level="L1",
        max_rmse=0.1,
    )
    assert found.passes and found.raised == ("ra",) and found.to_copy == "[CONV_CONFIG]\ntensor_arrays='ra';"
    assert main([*FIRST, "--max-rmse", "0.1", "--metric", "metric.py:near", "--validate", "loader.py:others"]) == 0
    said = capsys.readouterr().out
    assert "\nMetric on 3 images that were held out: float model 0; unchanged -" in said and "; with the plan -" in said
    document = json.loads((folder / "out" / "rounds.json").read_text())
    worth = document["worth"]
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert worth["recommended"] and worth["pictures"] == worth["held_out"] == 3
    assert worth["ways"]["plan"]["held_metric"] == found.worths.held[PLAN].metric
    assert worth["ways"]["as it is"]["squared_error"] == found.worths.judged[AS_IT_IS].error
    # what a round says of the outputs is what the plan is worth
    assert found.worths.judged[PLAN].good and not found.worths.judged[AS_IT_IS].good
    assert "Metric on 3 images" in (folder / "out" / "report.html").read_text()


@pytest.mark.parametrize("limit", [[], ["--max-rmse", "0.1"]])
def test_a_first_plan_that_fails_on_pictures_held_out_is_not_recommended(folder, capsys, limit) -> None:
    assert main([*FIRST, "--validate", "loader.py:loud", *limit]) == bool(limit)
    said = capsys.readouterr().out
    assert "\nwarning: Not recommended: ra at INT16. On 3 held-out images" in said
    document = json.loads((folder / "out" / "rounds.json").read_text())
    assert document["thresholds_hold"] and not document["worth"]["recommended"]
    assert "Not recommended" in (folder / "out" / "report.html").read_text()


def test_other_pictures_judge_the_rounds(folder: Path) -> None:
    found = sgsdump.tune("net.onnx", "loader.py", first=True, evaluate="loader.py:loud", quant_level="L1", rounds=1)
    assert not found.passes and found.worths is None
    assert found.result.best.error > 0.5  # the ranges do not hold them


def test_the_same_words_and_the_same_refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("0.npy", np.zeros((1, 3, 8, 8), np.float32))
    assert main("tune --first -m net.onnx -i 0.npy -o out --validate 0.npy".split()) == 2
    assert "--validate contains" in capsys.readouterr().err and not (folder / "out").exists()
    assert main([*FIRST, "--metric", "metric.py:far"]) == 2
    assert "far" in capsys.readouterr().err and not (folder / "out").exists()


def test_calibrate_tells_the_metric_in_its_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = sgsdump.calibrate("net.onnx", "loader.py", metric="metric.py:near", quant_level="L1")
    assert fixed.metric is not None and fixed.metric[0] == 0.0
    apart = [
        np.abs(sgsdump.simulate(fixed, {"x": feed})["c"].real() - sgsdump.simulate("net.onnx", {"x": feed})["c"].real())
        for feed in (np.random.default_rng(1).normal(size=(3, 1, 3, 8, 8)).astype(np.float32))
    ]
    assert fixed.metric[1] == pytest.approx(-np.mean([each.mean() for each in apart]), rel=1e-5)
    line = "calibrate -m net.onnx --data-loader-script loader.py --quant-level L1 --metric metric.py:near --json c.json"
    assert main(line.split()) == 0
    assert f"your metric over 3 feeds: float 0, fixed {fixed.metric[1]:.4g}" in capsys.readouterr().out
    assert json.loads(Path("c.json").read_text())["metric"] == {"float": 0.0, "fixed": fixed.metric[1]}


def test_diagnose_names_the_smaller_plan_that_it_did_not_choose() -> None:
    def plan(names: tuple[str, ...], rate: float, error: float) -> SimpleNamespace:
        return SimpleNamespace(names=names, rate=rate, error=error)

    larger, measured = plan(("a", "b", "c", "d"), 0.71, 0.05), SimpleNamespace(raised=("a",))
    alone = SimpleNamespace(measured=measured, smaller=None)
    assert diagnosis._costs(alone, larger) == "The weights take 71 % of their INT16 size."
    one = SimpleNamespace(measured=measured, smaller=plan(("a", "b"), 0.6, 0.2))
    text = (
        "With only the most certain input at INT16, the weights take 60 % of their INT16 size, "
        "and the output error is 0.2."
    )
    assert diagnosis._costs(one, larger).endswith(text)
    two = SimpleNamespace(measured=measured, smaller=plan(("a", "b", "c"), 0.65, 0.1))
    assert diagnosis._costs(two, larger).endswith(
        "With only the 2 most certain inputs at INT16, the weights take 65 % of their INT16 size, "
        "and the output error is 0.1."
    )


def test_what_is_advised_for_the_model_as_it_is_is_no_promise_where_a_cause_comes_first():
    advice = make_dataclass("Advice", ["measured", "promise"], frozen=True)("measured", "promise")

    def advised(root):
        return Judged(*[None] * 3, advice, None, root and SimpleNamespace(advice=root[0])).advised

    assert advised(None) is advice and advised(["another"]) == "another"
    assert (advised([None]).measured, advised([None]).promise) == ("measured", None)


def test_on_how_many_pictures_is_measured():
    assert (diagnose.MAX_IMAGES, diagnose.MEASURED, diagnose_quantised.MEASURED) == (10, 4, 2)
