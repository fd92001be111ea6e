"""How a layer's values lie in its range: figures computed by hand."""

import math

import numpy as np
import pytest

from sgsdump.comparison.distribution import (
    BINS,
    Distribution,
    Undrawn,
    describe,
    distributions,
    layers,
    pair_ranges,
    used_levels,
)
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.sigmastar.side_files import with_scales
from sgsdump.errors import ValuesError
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Quant, Tensor
from sgsdump.tensors.types import Range


def record(name, values, io="out", constant=False, op_index=0):
    array = np.asarray(values, np.float32)
    return Record(io, 0, op_index, "CONV_2D", Tensor.of(name, array), constant)


def only(values, low=None, high=None):
    ranges = {} if low is None else {"a": Range.of(low, high)}
    (found,) = distributions(Dump([record("a", values)]), ranges)
    assert isinstance(found, Distribution)
    return found


def test_layers_are_inputs_and_outputs_in_file_order_once():
    records = [
        record("picture", [1], "in"),
        record("filter", [1], "in", constant=True),
        record("conv", [1]),
        record("conv", [1], "in"),
        record("picture", [1], "in"),
        record("relu", [1]),
    ]
    assert [r.name for r in layers(Dump(records))] == ["picture", "conv", "relu"]


def test_ranges_pair_by_name_first_and_by_the_sdk_spelling_second():
    ranges = {"block/dw": 1, "block_dw": 2, "block_pw": 3, "x1": 4, "cat": 5, "p/q": 6, "p_q": 7}
    pairs = pair_ranges(["block/dw", "block/pw", "x:1", "cat two", "p/q:", "other"], ranges)
    assert pairs == {"block/dw": "block/dw", "block/pw": "block_pw", "x:1": "x1", "cat two": "cat"}


@pytest.mark.parametrize(
    ("central", "limits", "levels"),
    [
        ((0.0, 1.0), (0.0, 1.0), 256),
        ((0.25, 0.5), (0.0, 1.0), 64),
        ((-9.0, 9.0), (0.0, 1.0), 256),
        ((2.0, 3.0), (0.0, 1.0), 1),
        ((0.5, 0.5), (0.0, 1.0), 1),
        ((0.0, 1.0), (1.0, 1.0), None),
    ],
)
def test_used_levels(central, limits, levels):
    assert used_levels(central, limits) == levels


def test_narrow_inside_a_wide_range():
    values = np.concatenate([np.random.default_rng(0).uniform(-1, 1, 9998), [-25, 40]])
    wide = only(values, -25, 40)
    assert wide.wasteful and not wide.clipped and wide.troubled
    assert wide.levels == pytest.approx(2 / 65 * 256, abs=2)
    assert not only(values / 10, -2.5, 4).wasteful


def test_outside_is_counted_exactly_and_rounding_of_the_text_form_forgiven():
    found = only([-2, -1, 0, 1, 3, np.nan, np.inf], -1, 1)
    assert (found.outside, found.stats.finite, found.clipped, found.broken) == (2, 5, True, True)
    assert found.overshoot == pytest.approx(1.0)
    assert only([-1.0000004, 1.0000004], -1, 1).outside == 0


def test_a_few_values_slightly_outside_are_not_called_clipped():
    found = only([1.05] + [0.0] * 999, -1, 1)
    assert found.outside == 1 and not found.clipped
    assert only([1.3] + [0.0] * 999, -1, 1).clipped
    assert not only([-1.001] * 5 + [0.0] * 5, -1, 1).clipped, "within half a level"


def test_per_channel_ranges_count_as_one():
    (found,) = distributions(Dump([record("a", [0, 1])]), {"a": Range(np.array([-1.0, -5.0]), np.array([2.0, 1.0]))})
    assert found.limits == (-5.0, 2.0)


@pytest.mark.parametrize("values", [[], [math.nan] * 3, [math.inf, -math.inf]])
def test_no_finite_value(values):
    found = only(values, -1, 1)
    assert found.broken and found.levels is None and found.counts.sum() == 0


def integers(scale):
    quant = Quant(np.dtype("u1"), scale, 0)
    return Record("out", 0, 0, "CONV_2D", Tensor.of("a", np.array([0, 100, 255], np.uint8), quant=quant))


def test_integers_take_their_scale_from_the_range():
    ranges = {"a": Range.of(0, 25.5)}
    (found,) = distributions(with_scales(Dump([integers(0.1)]), ranges), ranges)
    assert found.stats.max == pytest.approx(25.5)


def test_integers_of_unknown_scale_are_named_not_drawn():
    damaged = Tensor(integers(0.1).tensor.info, _raise)
    wrong = Record("out", 0, 1, "ADD", damaged)
    ranges = {"a": Range.of(0, 99)}
    found = list(distributions(with_scales(Dump([integers(0.1)]), ranges), ranges))
    found += distributions(Dump([wrong]), {"a": Range.of(0, 25.5)})
    assert [type(f) for f in found] == [Undrawn, Undrawn]
    assert "scale for tensor 'a'" in found[0].reason and "0.388235" in found[0].reason
    assert "left out" in found[1].reason


def _raise():
    raise ValuesError("tensor 'a' was left out")


def spread(stats=(0.0, 1.0), limits=(-1.0, 0.0), finite=1000, outside=0, levels=256) -> Distribution:
    """A layer with these extremes, of which ``outside`` values lie beyond the limits."""
    facts = Statistics(stats[0], stats[1], 0.0, 1.0, finite, 0, 0, 0)
    return Distribution(0, "a", "CONV_2D", None, facts, np.zeros(BINS, np.int64), stats, limits, outside, levels)


def up(value):
    return math.nextafter(value, math.inf)


@pytest.mark.parametrize(
    ("limits", "levels", "wasteful"),
    [
        ((0.0, 30.0), 1, False),  # wider than 30, not as wide
        ((0.0, up(30.0)), 1, True),
        ((0.0, 40.0), 63, True),
        ((0.0, 40.0), 64, False),  # less than a quarter of 256
        ((0.0, 40.0), None, False),
    ],
)
def test_a_wasteful_range_is_wider_than_30_and_less_than_a_quarter_used(limits, levels, wasteful):
    found = spread((0.0, 1.0), limits, levels=levels)
    assert found.wasteful is found.troubled is wasteful


@pytest.mark.parametrize(
    ("highest", "outside", "clipped"),
    [
        (0.05, 10, False),  # more than 1 % of 1000, not as much
        (0.05, 11, True),
        (0.5 / 256, 500, False),  # more than half a level beyond, not as far
        (up(0.5 / 256), 500, True),
        (0.1, 1, False),  # by more than a tenth of the width, not by as much
        (up(0.1), 1, True),
        (-0.5, 0, False),
    ],
)
def test_clipped_is_more_than_a_hundredth_outside_or_one_by_more_than_a_tenth(highest, outside, clipped):
    found = spread((-1.0, highest), (-1.0, 0.0), outside=outside)
    assert found.clipped is found.troubled is clipped


@pytest.mark.parametrize(
    ("below", "above", "reach"),
    [(5, 5, (0, 0)), (0, 10, (0, 0)), (10, 0, (0, 0)), (0, 11, (0, 100)), (11, 0, (-100, 0)), (5, 6, (0, 100))],
)
def test_the_interval_leaves_out_a_hundredth_wherever_that_narrows_it_most(below, above, reach):
    found = only([-100.0] * below + [0.0] * (1000 - below - above) + [100.0] * above, -100, 100)
    assert len(found.counts) == 256 and found.counts.sum() == 1000
    assert found.central == pytest.approx(reach, abs=1)


def test_a_relu_of_which_the_upper_end_is_hardly_used_is_wasteful_of_its_range():
    """As the layer that the demo made sick: 99 % below 12.97 of 77.7, so half a per cent lies far above that."""
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(300), rng.uniform(0, 12.97, 690), rng.uniform(25, 68, 10)])
    found = only(values.tolist(), 0.0, 77.7)
    assert found.wasteful and found.troubled and found.levels == pytest.approx(12.97 / 77.7 * 256, abs=2)


@pytest.mark.parametrize(
    ("limit", "value", "outside"),
    [(1, 1.0000008, 0), (1, 1.0000012, 1), (100, 100.00008, 0), (100, 100.00012, 1), (0.25, 0.2500008, 0)],
)
def test_a_millionth_is_the_rounding_of_the_ranges_text(limit, value, outside):
    assert only([value, 0.0], -limit, limit).outside == only([-value, 0.0], -limit, limit).outside == outside


@pytest.mark.parametrize(
    ("names", "ranges", "pairs"),
    [
        # A reference's blob, whose stages the ranges have, and one that has a single value.
        (["conv1", "pool"], ["conv1", "conv1_xx", "conv1_xx_xx", "pool"], {"conv1": "conv1_xx_xx", "pool": "pool"}),
        (["a", "b"], ["a", "a_MUL", "a_xx", "a_xx_xx", "b", "b_xx"], {"a": "a_xx_xx", "b": "b_xx"}),
        (["prob", "c"], ["prob#0", "prob#0_xx", "prob", "c", "c_xx"], {"prob": "prob", "c": "c_xx"}),
        # A dump that has the stages itself, and one of a fused model, which has some of them.
        (["a", "a_xx"], ["a", "a_xx"], {"a": "a", "a_xx": "a_xx"}),
        (["a", "b_xx"], ["a", "a_xx", "b", "b_xx"], {"a": "a", "b_xx": "b_xx"}),
        # Ranges of a reference, or of a framework without stages.
        (["a", "b"], ["a", "b"], {"a": "a", "b": "b"}),
        (["a", "c"], ["a_xx", "c"], {"c": "c"}),
    ],
)
def test_a_blob_of_a_reference_takes_its_last_stages_range(names, ranges, pairs):
    assert pair_ranges(names, dict.fromkeys(ranges, Range.of(0.0, 1.0))) == pairs


@pytest.mark.parametrize(
    ("low", "high", "overshoot", "outside"),
    [(-1, 9, 0.0, 0), (0, 8, 0.0, 0), (0, 4, 1.0, 4), (1, 9, 0.125, 1), (2, 6, 0.5, 4), (8, 8, np.inf, 8)],
)
def test_how_far_values_reach_beyond_their_range(low, high, overshoot, outside):
    values = np.arange(9, dtype=np.float32)
    found = describe(record("x", values, op_index=3), values, Range.of(low, high))
    assert (found.overshoot, found.outside, found.limits, found.index) == (overshoot, outside, (low, high), 3)
    assert describe(record("x", values), values, None).overshoot == 0.0


def test_the_central_share_is_known_to_a_sixteenth_of_a_bin():
    values = np.append(np.random.default_rng(0).normal(128, 30, 5000).clip(0, BINS), [0.0, BINS])
    found = describe(record("x", values), values, None)
    steps = np.array(found.central) * 16
    assert steps == pytest.approx(steps.round(), abs=1e-9) and (steps.round() % 16).any()
    inside = ((values >= found.central[0]) & (values <= found.central[1])).mean()
    assert inside == pytest.approx(0.99, abs=0.001)
