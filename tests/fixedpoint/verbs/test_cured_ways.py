"""The ways of ``diagnose --cure``: each image judges models that were calibrated without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_nets import conv, ini_of_arrays, model, node, weights

import sgsdump
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.fixedpoint.curing.cure import Cured
from sgsdump.fixedpoint.curing.steps import ALL_16, AS_IT_IS, CURED_8, KEEPING, PLAN
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, UINT8
from sgsdump.fixedpoint.verbs import cured_ways
from sgsdump.fixedpoint.verbs.cured_ways import (
    Task,
    Ways,
    _cured_subject,
    _widened_as,
    cure_opened,
    start_cured,
    ways_of,
    with_cure,
)
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.feeds.by_content import content_key, folds_of
from sgsdump.models.network import Network, named_network
from sgsdump.progress import SILENT
from sgsdump.tensors.types import Range

INI = ini_of_arrays("c3", input_format="ALL_INT16")


ARRAYS = [
    (np.random.default_rng(number).normal(0, 1, (1, 3, 8, 8)) * 1.05**number).astype(np.float32) for number in range(12)
]


def cured_task(folder: Path, arrays: list[np.ndarray]) -> tuple[Network, OpenNetwork, Task, Cured]:
    """A network that 8 bits ruin, and that needs 16 for one convolution once it is cured."""
    constants = {**weights("c1", (8, 3, 3, 3), 1), **weights("c2", (8, 8, 1, 1), 2), **weights("c3", (4, 8, 1, 1), 3)}
    for before, after in (("c1", "c2"), ("c2", "c3")):
        constants[f"{before}.w"][0] *= 20_000
        constants[f"{before}.b"][0] *= 20_000
        constants[f"{after}.w"][:, 0] /= 20_000
    nodes = [conv("c1", "data", pads=[1] * 4), node("Relu", ["c1"], "r1"), conv("c2", "r1"), node("Relu", ["c2"], "r2")]
    onnx.save(model([*nodes, conv("c3", "r2")], constants, {"data": (1, 3, 8, 8)}, ["c3"]).proto, folder / "net.onnx")
    network = named_network(str(folder / "net.onnx"), [{"data": array} for array in arrays], {})
    opened = open_network(network, "L2")
    cured = cure_opened(network, opened, "L2", KEEPING)
    return network, opened, Task(opened.model, opened.feeds(), opened.config, "L2", DOCUMENTED), cured


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, OpenNetwork, Task, Cured]:
    return cured_task(tmp_path_factory.mktemp("ways"), ARRAYS)


@pytest.fixture(scope="module")
def task(whole) -> tuple[Task, Cured]:
    return whole[2:]


def by_hand(net: Path, arrays: list[np.ndarray], folder: Path) -> float:
    """All at 16 bits with ``--range-room``: calibrated anew without each fold, if there are any, run by onnxruntime."""
    (folder / "all16.ini").write_text(INI)
    options = {"quant_level": "L2", "input_config": folder / "all16.ini", "range_room": True}
    floats, off, energy = onnxruntime.InferenceSession(net), 0.0, 0.0
    for fold in folds_of([content_key({"data": array}) for array in arrays]) or [range(len(arrays))]:
        others = [array for index, array in enumerate(arrays) if index not in fold] or arrays
        sgsdump.calibrate(net, others, **options).save(folder / "fold.onnx")
        fixed = onnxruntime.InferenceSession(folder / "fold.onnx")
        (given,) = fixed.get_inputs()
        for index in fold:
            real = floats.run(None, {"data": arrays[index]})[0].astype(np.float64)
            ours = fixed.run(None, {given.name: arrays[index]})[0].reshape(real.shape)
            off, energy = off + ((ours - real) ** 2).sum(), energy + (real**2).sum()
    return off / energy


def test_all_at_16_bits_is_judged_with_room_on_images_that_were_held_out(task, tmp_path: Path) -> None:
    found = {way.kind: way for way in ways_of(*task, SILENT).ways}
    assert list(found) == [AS_IT_IS, CURED_8, PLAN, ALL_16] and found[PLAN].errors["c3"] < found[CURED_8].errors["c3"]
    assert found[ALL_16].errors["c3"] == pytest.approx(by_hand(task[0].model.path, ARRAYS, tmp_path), rel=1e-3)


def test_of_a_few_images_all_are_judged_by_the_same_model(tmp_path: Path) -> None:
    _, _, task, cured = cured_task(tmp_path, ARRAYS[:5])
    (found,) = [way for way in ways_of(task, cured, SILENT).ways if way.kind == ALL_16]
    assert found.errors["c3"] == pytest.approx(by_hand(task.model.path, ARRAYS[:5], tmp_path), rel=1e-3)


def test_ranges_of_a_fold_get_the_room_of_the_cure(whole) -> None:
    """Of a fold whose ranges go half as far, that room goes half as far; in a plan, and where ``tune`` starts from."""
    network, opened, task, cured = whole
    start = start_cured(network, opened, "L2", SILENT)
    room, subject = _cured_subject(task, *cured.scaled, SILENT)
    for ours in (subject.float_model, start.opened.model):
        calibration = calibrate(ours, task.feeds, task.config, "L2")
        every, side = calibration.ranges, side_ranges(calibration.statistics)
        half = {name: replace(each, min=each.min / 2, max=each.max / 2) for name, each in every.items()}
        if ours is subject.float_model:
            wide, found = subject.ranges, room(half, side, True)
        else:
            wide, found = start.with_room(every, side, True), start.with_room(every, side, True, half)
        assert all(wide[name].at(INT16).high > 1.4 * every[name].high for name in ("r1", "c3")), "r1 may be raised"
        for name in ("r1", "r2", "c3"):
            for dtype in (UINT8, INT16):
                assert found[name].at(dtype).high == pytest.approx(wide[name].at(dtype).high / 2)


@pytest.mark.parametrize("factor, kept", [(1.04, True), (1.06, False)])
def test_a_plan_that_is_worse_than_the_cured_model_is_left_out(task, monkeypatch, factor: float, kept: bool) -> None:
    error = {"c3": factor * task[1].errors["c3"]}
    monkeypatch.setattr(cured_ways, "_errors", lambda *_: error)
    found: Ways = ways_of(*task, SILENT)
    assert (found.planned is not None) is kept is (PLAN in [way.kind for way in found.ways])


@pytest.mark.parametrize(("level", "cured_at"), [("L1", "L1"), ("L2", "L2"), ("L3", "L2"), ("L4", "L2"), ("L5", "L2")])
def test_the_ways_are_those_of_a_level_without_searches(
    whole, monkeypatch, tmp_path, level: str, cured_at: str
) -> None:
    asked: list[str] = []

    class Seen(Exception):
        pass

    def seen(network, opened, level, **_):
        asked.append(level)
        raise Seen

    monkeypatch.setattr(cured_ways, "cure_opened", seen)
    with pytest.raises(Seen):
        with_cure(None, whole[0], (level, DOCUMENTED), None, (tmp_path, tmp_path), SILENT)  # type: ignore[arg-type]
    assert asked == [cured_at]


def test_ranges_of_some_images_are_widened_as_much_as_those_of_all() -> None:
    every = {"a": replace(Range.of(-1.0, 3.0), wide=Range.of(-1.0, 3.0)), "b": Range.of(0.0, 1.0), "c": Range.of(-2, 0)}
    wide = {"a": replace(Range.of(-1.5, 4.5), wide=Range.of(-2.0, 6.0)), "b": Range.of(0.0, 9.0), "c": Range.of(-3, 0)}
    found = _widened_as({"a": Range.of(-0.5, 2.0), "b": Range.of(0.0, 1.0), "c": Range.of(-1, 0)}, every, wide)
    ends = {(dtype, name): found[name].at(dtype) for dtype in (UINT8, INT16) for name in found}
    assert [(ends[UINT8, name].low, ends[UINT8, name].high) for name in "abc"] == [
        (-0.75, 3.0),
        (0.0, 9.0),
        (-1.5, 0.0),
    ]
    assert (ends[INT16, "a"].low, ends[INT16, "a"].high) == (-1.0, 4.0)
    assert found["b"] is wide["b"] and _widened_as({"a": every["a"]}, every, wide) == {"a": wide["a"]}
    zero, some = {"z": Range.of(0.0, 0.0)}, {"z": Range.of(0.0, 2.0)}
    assert _widened_as(some, zero, zero)["z"].high == 2.0, "what is zero on all images has no room to share"
