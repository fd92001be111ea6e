"""The verdict of diagnose as data: what decides, the cause, and the one remedy that is recommended."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from small_nets import residual_net

import sgsdump
from sgsdump.comparison.account import Account
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.comparison.verdict import Deciding, Verdict
from sgsdump.fixedpoint.curing.steps import ALL_16, AS_IT_IS, CURED_8, PLAN, Way
from sgsdump.fixedpoint.reports import diagnosis_verdict
from sgsdump.fixedpoint.reports.diagnosis_verdict import verdict_of_diagnosis, with_cured
from sgsdump.reports.three_lines import three_lines
from sgsdump.reports.verdict_data import verdict_data

RUNS = [{"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)} for seed in range(3)]
NOTHING = Verdict("differs", Account(1, 1))


def test_diagnose_concludes_as_its_page_and_its_json_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net().proto, "net.onnx")
    found = sgsdump.diagnose("net.onnx", RUNS, quant_level="L2")
    found.save("out")
    written = json.loads(Path("out/layers.json").read_text())["verdict"]
    conclusion = found.conclusion
    assert conclusion.passes == found.passes and conclusion.state == found.comparison.verdict().state
    assert conclusion.deciding.layer == "fc"  # the logits that the output prob is judged by
    assert {*conclusion.assumptions} <= {*found.report.assumptions}
    assert written["deciding"]["value"] == conclusion.deciding.value and written["passes"] == conclusion.passes
    assert written["recommendation"]["action"] == conclusion.recommendation.action
    expected = "nothing" if found.passes else "raise convolutions"
    assert conclusion.recommendation.action == expected
    assert (conclusion.recommendation.command in found.to_copy) == (expected != "nothing")


def figures(good, rmse):
    return SimpleNamespace(good=lambda limits: good, rmse=rmse)


def outputs(error, good=False, worse=()):
    return SimpleNamespace(
        sums={"out": error},
        good=lambda limits: good,
        worse_than=lambda before: worse,
        outputs={"out": figures(good, 1)},
    )


def promise(error, rate, good=False, worse=()):
    return SimpleNamespace(names=("c1",), outputs=outputs(error, good, worse), error=error, rate=rate)


@pytest.fixture
def diagnosis(monkeypatch):
    """One whose outputs are bad, and nothing was found to help."""
    monkeypatch.setattr(diagnosis_verdict, "output_error", lambda sums: sums["out"])
    monkeypatch.setattr(diagnosis_verdict, "config_names", lambda names, convs: [f"{name}_input" for name in names])
    advice = SimpleNamespace(
        outputs=outputs(0.9),
        limits=DOCUMENTED,
        per_channel=None,
        promise=None,
        all_16=None,
        measured=SimpleNamespace(convolutions=(), raised=(), rate=lambda names: 0.5),
    )
    return SimpleNamespace(
        outputs=SimpleNamespace(
            outputs={
                "fine": figures(True, 0.05),
                "far": figures(True, 0.5),
                "less": figures(False, 0.3),
                "out": figures(False, 0.4),
            },
            sums={"out": 0.9},
            pictures={},
        ),
        findings=(),
        limits=DOCUMENTED,
        share=SimpleNamespace(convolutions=3),
        root=None,
        good=False,
        holds=True,
        passes=False,
        advice=advice,
        worse_unseen=(),
        unseen=None,
        past=SimpleNamespace(names=()),
    )


def concluded(diagnosis):
    comparison = SimpleNamespace(verdict=lambda limits: NOTHING, failed=())
    return verdict_of_diagnosis(diagnosis, comparison, ["assumed"])


def test_the_worst_output_decides_one_past_the_limits_first(diagnosis):
    deciding = concluded(diagnosis).deciding
    assert (deciding.layer, deciding.value, deciding.limit) == ("out", 0.4, DOCUMENTED.max_rmse)
    assert concluded(diagnosis).assumptions == ("assumed",) and concluded(diagnosis).passes is False


def test_the_cheapest_remedy_within_the_limits_is_recommended(diagnosis):
    assert concluded(diagnosis).recommendation is None
    diagnosis.advice.promise = promise(0.05, 0.7, good=True)
    recommended = concluded(diagnosis).recommendation
    assert (recommended.action, recommended.layers) == ("raise convolutions", ("c1_input",))
    assert "tensor_arrays='c1_input'" in recommended.command
    assert recommended.measured == {"error": 0.9, "error_after": 0.05, "rate": 0.5, "rate_after": 0.7}
    diagnosis.advice.per_channel = outputs(0.08, good=True)
    assert concluded(diagnosis).recommendation.action == "use a scale per channel"
    diagnosis.advice.per_channel = outputs(0.08, good=True, worse=("out",))
    assert concluded(diagnosis).recommendation.action == "raise convolutions"
    diagnosis.advice.promise = promise(0.5, 0.7)
    diagnosis.advice.all_16 = promise(0.1, 1.0, good=True)
    assert concluded(diagnosis).recommendation.action == "raise all convolutions"


def test_a_layer_decides_if_all_outputs_are_within_the_limits(diagnosis):
    diagnosis.good, diagnosis.past.names = True, ("c1",)
    layer = Deciding("c1", "RMSE", 0.13, 0.1)
    comparison = SimpleNamespace(verdict=lambda limits: replace(NOTHING, deciding=layer, past=1), failed=())
    verdict = verdict_of_diagnosis(diagnosis, comparison, [])
    assert verdict.deciding is layer and verdict.recommendation.action == "nothing"
    assert three_lines(verdict)[0].startswith("FAIL: layer c1 RMSE 0.13, limit 0.1")
    assert "all outputs are within the limits" in three_lines(verdict)[2]


def test_a_passing_model_without_convolutions_needs_nothing(diagnosis):
    diagnosis.share.convolutions, diagnosis.passes = 0, True
    assert concluded(diagnosis).recommendation.action == "nothing"


def test_what_makes_an_output_worse_when_held_out_is_not_recommended(diagnosis):
    diagnosis.advice.promise = promise(0.05, 0.7, good=True)
    diagnosis.worse_unseen = ("out",)
    assert concluded(diagnosis).recommendation is None


def test_good_outputs_need_nothing_unless_they_fail_when_held_out(diagnosis):
    diagnosis.good = True
    assert concluded(diagnosis).recommendation.action == "nothing"
    diagnosis.holds = False
    assert concluded(diagnosis).recommendation.action == "calibrate on more images"


def test_a_cured_model_is_recommended_where_it_makes_no_output_worse():
    ways = [Way(AS_IT_IS, {"a": 0.5, "b": 0.1}), Way(CURED_8, {"a": 0.1, "b": 0.1}), Way(ALL_16, {"a": 0.01, "b": 0.0})]
    cured = with_cured(NOTHING, ways, "out").recommendation
    assert (cured.action, cured.command) == ("use the cured model", "out/cured.onnx")
    assert cured.measured == {"squared_error": 0.6, "squared_error_after": 0.2}
    planned = with_cured(NOTHING, [*ways, Way(PLAN, {"a": 0.05, "b": 0.1}, 1, 4)], "out").recommendation
    assert planned.command == "out/planned.onnx"
    worse = [ways[0], Way(CURED_8, {"a": 0.1, "b": 0.2})]
    assert with_cured(NOTHING, worse, "out").recommendation is None
    assert verdict_data(with_cured(NOTHING, ways, "out"))["recommendation"]["action"] == "use the cured model"
