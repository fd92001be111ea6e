"""The ways of ``diagnose --cure``: each image judges models that were calibrated without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_nets import conv, model, node, weights

import sgsdump
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.curing.steps import ALL_16, AS_IT_IS, CURED_8, KEEPING, PLAN
from sgsdump.models.feeds.folds import content_key, folds_of
from sgsdump.progress import SILENT
from sgsdump.quantisation.scales import INT16, UINT8
from sgsdump.tensors.types import Range
from sgsdump.verbs import cured_ways
from sgsdump.verbs.cured_ways import Task, Ways, _widened_as, cure_opened, ways_of
from sgsdump.verbs.network import named_network, open_network

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RAWDATA_F32_NHWC;
input_formats = RAWDATA_F32_NHWC;
[OUTPUT_CONFIG]
outputs = c3;
dequantizations = TRUE;
[CONV_CONFIG]
input_format = ALL_INT16;
"""


@pytest.fixture(scope="module")
def arrays() -> list[np.ndarray]:
    """Images of several loudnesses, so that those of one fold go past the ranges of the others."""
    rng = np.random.default_rng(4)
    return [(rng.normal(0, 1, (1, 3, 8, 8)) * 1.05**number).astype(np.float32) for number in range(12)]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory, arrays: list[np.ndarray]) -> tuple[Task, cured_ways.Cured]:
    """A network that 8 bits ruin, and that needs 16 for one convolution once it is cured."""
    folder = tmp_path_factory.mktemp("ways")
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
    return Task(opened.model, opened.feeds(), opened.config, "L2", DOCUMENTED), cured


def test_all_at_16_bits_is_judged_with_room_on_images_that_were_held_out(task, arrays, tmp_path: Path) -> None:
    """By hand: calibrated anew without each fold, with ``--range-room``, and run by onnxruntime."""
    found = {way.kind: way for way in ways_of(*task, SILENT).ways}
    assert list(found) == [AS_IT_IS, CURED_8, PLAN, ALL_16] and found[PLAN].errors["c3"] < found[CURED_8].errors["c3"]
    (tmp_path / "all16.ini").write_text(INI)
    net = task[0].model.path
    floats, off, whole = onnxruntime.InferenceSession(net), 0.0, 0.0
    for fold in folds_of([content_key({"data": array}) for array in arrays]):
        others = [array for index, array in enumerate(arrays) if index not in fold]
        made = sgsdump.calibrate(net, others, quant_level="L2", input_config=tmp_path / "all16.ini", range_room=True)
        made.save(tmp_path / "fold.onnx")
        fixed = onnxruntime.InferenceSession(tmp_path / "fold.onnx")
        for index in fold:
            real = floats.run(None, {"data": arrays[index]})[0].astype(np.float64)
            (given,) = fixed.get_inputs()
            ours = fixed.run(None, {given.name: arrays[index].reshape([*map(int, given.shape)])})[0]
            off, whole = off + ((ours.reshape(real.shape) - real) ** 2).sum(), whole + (real**2).sum()
    assert found[ALL_16].errors["c3"] == pytest.approx(off / whole, rel=1e-3)


@pytest.mark.parametrize("factor, kept", [(1.04, True), (1.06, False)])
def test_a_plan_that_is_worse_than_the_cured_model_is_left_out(task, monkeypatch, factor: float, kept: bool) -> None:
    error = {"c3": factor * task[1].errors["c3"]}
    monkeypatch.setattr(cured_ways, "_errors", lambda *_: error)
    found: Ways = ways_of(*task, SILENT)
    assert (found.planned is not None) is kept is (PLAN in [way.kind for way in found.ways])


def test_ranges_of_some_images_are_widened_as_much_as_those_of_all() -> None:
    every = {"a": replace(Range.of(-1.0, 3.0), wide=Range.of(-1.0, 3.0)), "b": Range.of(0.0, 1.0), "c": Range.of(0, 0)}
    wide = {"a": replace(Range.of(-1.5, 4.5), wide=Range.of(-2.0, 6.0)), "b": Range.of(0.0, 9.0), "c": Range.of(0, 0)}
    found = _widened_as({"a": Range.of(-0.5, 2.0), "b": Range.of(0.0, 1.0), "c": Range.of(0, 2)}, every, wide)
    ends = {(dtype, name): found[name].at(dtype) for dtype in (UINT8, INT16) for name in found}
    assert [(ends[UINT8, name].low, ends[UINT8, name].high) for name in "abc"] == [(-0.75, 3.0), (0.0, 9.0), (0.0, 2.0)]
    assert (ends[INT16, "a"].low, ends[INT16, "a"].high) == (-1.0, 4.0)
    assert found["b"] is wide["b"] and _widened_as({"a": every["a"]}, every, wide) == {"a": wide["a"]}
