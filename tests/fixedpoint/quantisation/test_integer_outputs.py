"""The outputs of a fixed model against the float model's, on pictures of one size and of several."""

from dataclasses import replace
from threading import get_ident

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.comparison.metrics import rmse
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs, FloatOutputs, outputs_of
from sgsdump.sidecars.input_config import InputConfig, ModelInput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))


@pytest.mark.parametrize("sides", [(6, 6, 6, 6), (6, 8, 6, 5)], ids=["one size", "several sizes"])
def test_every_picture_counts_whatever_its_size(sides) -> None:
    nodes = [conv("c", "data", pads=[1] * 4), node("Relu", ["c"], "y")]
    net = simplify(model(nodes, weights("c", (4, 3, 3, 3), 1), {"data": (1, 3, None, None)}, ["y"]))
    rng = np.random.default_rng(0)
    raw = [rng.integers(0, 256, (1, 3, side, side)).astype(np.float32) for side in sides]
    pictures = [(str(n), {"data": (pixels - 127) / 128}, {"data": pixels}) for n, pixels in enumerate(raw)]
    fixed = make_fixed(net, measure_ranges(net, [(label, feed) for label, feed, _ in pictures]), CONFIG).proto
    (found,) = outputs_of(net, [fixed], pictures, ["y"])
    ours, theirs = FixedOutputs(net, fixed, ["y"]), FloatOutputs(net, ["y"])
    pairs = [(ours.run(feed, raw)["y"].ravel(), theirs.run(label, feed)["y"].ravel()) for label, feed, raw in pictures]
    values, real = (np.concatenate(side).astype(np.float64) for side in zip(*pairs))
    assert rmse(found.outputs["y"].sums) == pytest.approx(np.abs(values - real).sum() / np.abs(real).sum())
    assert rmse(found.outputs["y"].sums) < 0.02, "the fixed model reads bytes, the float model what they stand for"
    assert found.outputs["y"].sums.count == values.size and list(found.pictures) == ["0", "1", "2", "3"]
    assert (found.outputs["y"].centred is not None) == (len(set(sides)) == 1)
    counted: list[tuple[int, int]] = []
    (beside,) = outputs_of(
        net, [fixed], pictures, ["y"], threads=3, advance=lambda done: counted.append((done, get_ident()))
    )
    assert beside == found and list(beside.by_picture) == list(found.by_picture)
    assert counted == [(done, get_ident()) for done in range(1, 5)], "in the thread that called"


def test_each_picture_may_have_a_fixed_model_of_its_own() -> None:
    """The step of the output is the largest of theirs."""
    net = simplify(model([conv("y", "data")], weights("y", (4, 3, 1, 1), 1), {"data": (1, 3, 6, 6)}, ["y"]))
    rng = np.random.default_rng(0)
    raw = [rng.integers(0, 256, (1, 3, 6, 6)).astype(np.float32) for _ in range(3)]
    pictures = [(str(n), {"data": (pixels - 127) / 128}, {"data": pixels}) for n, pixels in enumerate(raw)]
    ranges = measure_ranges(net, [(label, feed) for label, feed, _ in pictures])
    wide = {name: replace(each, min=2 * each.min, max=2 * each.max) for name, each in ranges.items()}
    models = [make_fixed(net, each, CONFIG).proto for each in (ranges, wide, ranges)]
    (found,) = outputs_of(net, [lambda label: models[int(label)]], pictures, ["y"])
    assert found.outputs["y"].step == max(float(read_step(net, proto)) for proto in models)
    for number, proto in enumerate(models):
        (alone,) = outputs_of(net, [proto], [pictures[number]], ["y"])
        assert found.by_picture[str(number)] == alone.by_picture[str(number)]


def read_step(net, proto) -> float:
    return FixedOutputs(net, proto, ["y"]).facts.tensors["y"].quant.scale
