"""The fixed model that judges an image is made of the ranges of the fold that left it out, and of the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
from sgsdump.fixedpoint.tuning.unseen import Calibrating, Fold, Folds
from sgsdump.models.fixed_facts import FixedFacts, read_facts
from sgsdump.sidecars.input_config import InputConfig, ModelInput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
NET = simplify(
    model(
        [conv("c1", "data"), node("Relu", ["c1"], "r"), conv("c2", "r")],
        {**weights("c1", (4, 3, 1, 1), 1), **weights("c2", (2, 4, 1, 1), 2)},
        {"data": (1, 3, 6, 6)},
        ["c2"],
    )
)
FEED = {"data": np.random.default_rng(0).uniform(-1, 1, (1, 3, 6, 6)).astype(np.float32)}
RANGES = [measure_ranges(NET, [("0", {name: factor * array for name, array in FEED.items()})]) for factor in (1.0, 0.5)]
SIDES = [SideRanges(), SideRanges()]


def folds(asked: list[tuple[int, bool]], level: str = "L1") -> Folds:
    """Two folds. Room makes ranges 3 times as wide; ``asked`` records whose, and whether channels have scales."""

    def room(ranges, side, channels):
        asked.append((SIDES.index(side), channels))
        return {name: replace(each, min=3 * each.min, max=3 * each.max) for name, each in ranges.items()}

    made = tuple(Fold(share, ranges, side) for share, ranges, side in zip((0.5, 0.75), RANGES, SIDES))
    return Folds(Calibrating(NET, CONFIG, level, room), made, None, (0, 1, 0))  # type: ignore[arg-type]


def facts(proto) -> FixedFacts:
    found = read_facts(replace(NET, proto=proto))
    assert found is not None
    return found


def test_each_image_has_the_ranges_and_the_share_of_its_fold() -> None:
    parts = folds([])
    assert parts.shares == (0.5, 0.75, 0.5)
    fixed = parts.fixed(CONFIG, room=False)
    scales = [facts(fixed(image)).tensors["r"].quant.scale for image in range(3)]
    assert scales == pytest.approx([RANGES[number]["r"].high / 255 for number in (0, 1, 0)], rel=1e-4)


def test_the_plan_raises_what_it_names() -> None:
    plain, raised = (facts(folds([]).fixed(c, False)(0)) for c in (CONFIG, replace(CONFIG, tensor_arrays=("r",))))
    assert plain.tensors["r"].quant.dtype == np.uint8 and raised.tensors["r"].quant.dtype == np.int16


@pytest.mark.parametrize(
    ("level", "per_channel", "channels"), [("L1", False, False), ("L1", True, True), ("L2", False, True)]
)
def test_room_knows_whether_each_channel_has_a_scale(level: str, per_channel: bool, channels: bool) -> None:
    asked: list[tuple[int, bool]] = []
    fixed = folds(asked, level).fixed(CONFIG, True, per_channel)(1)
    assert asked == [(1, channels)]
    assert facts(fixed).tensors["r"].quant.scale == pytest.approx(3 * RANGES[1]["r"].high / 255, rel=1e-4)
    whole = facts(fixed)
    assert (whole.weights[whole.convolutions["c2"]].axis is not None) is per_channel, "L2 gives the ranges by channel"
