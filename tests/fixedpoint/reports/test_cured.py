"""The sentences and the JSON of a cure, of figures made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from json_documents import checked
from onnx import ModelProto

from sgsdump.fixedpoint.curing.cure import Cured
from sgsdump.fixedpoint.curing.steps import ALL_16, AS_IT_IS, CURED_8, PLAN, Step, Way
from sgsdump.fixedpoint.reports.cured import cure_json, cured_steps, lines, summary
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range

STEPS = (
    Step("fold", True, {"y": 1.0}, {"y": 0.75}, 2, 0.0001),
    Step("equalise", False, {"y": 0.75}, {"y": 0.5}, 3, 0.25, spoiled=True),
    Step("absorb", False, {"y": 0.75}, {"y": 0.9}, 4, 0.125),
    Step("ranges", False, {"y": 0.75}, {"y": 0.6}, 6, undone=True),
    Step("round", False, {"y": 0.6}, {"y": 0.5}, 2, undone=True),
    Step("bias", True, {"y": 0.75}, {"y": 0.25}, 5),
)
CURED = Cured(
    ModelProto(),
    (QuantParam("y", Range.of(0.0, 1.0), 8),),
    STEPS,
    {"y": 1.0},
    {"y": 0.25},
    judged=12,
    held_out=True,
    changed={"y": 0.004, "z": 1e-11},
    scaled=(ModelProto(), None),
    by_image=(0.5, 0.125, 0.25),
    expected={"y": 0.3},
    expected_gain=0.3,
)
FEW = replace(CURED, held_out=False, judged=5, expected={}, expected_gain=None)
NONE = replace(CURED, steps=tuple(replace(step, taken=False) for step in STEPS))


def test_each_step_has_its_error_and_why_it_was_skipped() -> None:
    assert list(lines(CURED)) == [
        "output error relative to the float model, on 12 images held out:",
        "  unchanged: y 1",
        "  fold (2 BatchNormalizations): y 0.75",
        (
            "  equalise (3 channels): y 0.5; skipped, because this step changes an output of the float model "
            "by 0.25 (relative change)"
        ),
        "  absorb (4 channels): y 0.9; skipped: no improvement",
        "  ranges (6 ranges): y 0.6; undone with the step before",
        (
            "  round (2 layers): y 0.5; undone, because without the quant file an output would be worse than in the "
            "original model"
        ),
        "  bias (5 layers' biases): y 0.25",
        "output y of the float model changed by 0.004 (relative squared error)",
    ]
    assert next(lines(FEW)).endswith(
        "on the 5 images of calibration (fewer than 12 different images: none held out, only ranges tried):"
    )


def test_the_verdict_is_what_to_expect_on_other_images() -> None:
    expected = (
        "expected error on other images: y 0.3, which is 0.3 times the original error "
        "(this factor for single images: median 0.25, largest 0.5)"
    )
    assert summary(CURED) == f"cured (fold, bias); {expected}"
    assert summary(NONE) == "no improvement found; the model is unchanged"
    assert summary(FEW) == (
        "cured (fold, bias). The effect on other images is unknown; to measure this effect, give at least 12 different "
        "images"
    )


@pytest.mark.parametrize("cured", [CURED, FEW, replace(CURED, params=None)])
def test_the_json_has_every_figure(tmp_path: Path, cured: Cured) -> None:
    (tmp_path / "cure.json").write_text(cure_json(cured, "L2"))
    told = checked(tmp_path / "cure.json")
    assert told == json.loads(json.dumps(told)) and told["gain"] == 0.25 and told["level"] == "L2"
    names = ("as_it_is", "errors", "expected", "expected_gain", "changed", "judged", "held_out")
    assert {name: told[name] for name in names} == {name: getattr(cured, name) for name in names}
    assert told["by_image"] == [0.5, 0.125, 0.25] and told["ranges"] == (["y"] if cured.params else None)
    names = ("cure", "taken", "count", "before", "errors", "kept", "spoiled", "undone")
    assert told["steps"] == [{name: getattr(step, name) for name in names} for step in STEPS]


def test_what_to_convert_is_the_plan_only_where_one_is_kept() -> None:
    ways = (Way(AS_IT_IS, {"y": 1.0}), Way(CURED_8, {"y": 0.25}), Way(ALL_16, {"y": 0.01}))
    first, second = cured_steps(CURED, ways, False, "L2", "d")
    assert "on 12 images held out: y 1 → y 0.25 (fold, bias)" in first.text
    assert "d/cured.quant.json" in str(first) and "planned" not in str(second)
    assert "unchanged: y 1; cured: y 0.25; unchanged with all convolutions at INT16: y 0.01." in second.text
    planned = (*ways[:2], Way(PLAN, {"y": 0.02}, 1, 3), ways[2])
    _, second = cured_steps(CURED, planned, True, "L2", "d")
    assert "cured with 1 of 3 convolutions at INT16: y 0.02; " in second.text and "d/planned.onnx" in second.text
    (only,) = cured_steps(NONE, (), False, "L2", "d")
    assert only.text == "sgsdump cure finds no improvement at level L2."
