"""The manual's rules on hand-made ranges and dumps."""

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.compare import compare
from sgsdump.comparison.metrics import Sums
from sgsdump.comparison.row import row_of
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.tuning.rules_of_thumb import RMSE_OVER, Signs, convolutions, ranges_of_model, read_signs
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Range

SHAPE = (1, 4, 4, 4)


@pytest.fixture(scope="module")
def analysis():
    """data -> c1 -> r1 -> c2 -> r2 -> c3 -> prob (Softmax), and r1 -> pool -> c4."""
    nodes = [
        conv("c1", "data"),
        node("Relu", ["c1"], "r1"),
        conv("c2", "r1"),
        node("Relu", ["c2"], "r2"),
        conv("c3", "r2"),
        node("Softmax", ["c3"], "prob", axis=1),
        node("MaxPool", ["r1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("c4", "pool"),
    ]
    constants = {
        **weights("c1", (4, 3, 1, 1)),
        **{k: v for c in "234" for k, v in weights(f"c{c}", (4, 4, 1, 1)).items()},
    }
    return analyse(model(nodes, constants, {"data": (1, 3, 4, 4)}, ["prob", "c4"]).proto, ["data"])


def dump(**values):
    """One output record after another."""
    return Dump(
        [
            Record(
                "out", 0, index, "SOFTMAX" if name == "prob" else "CONV_2D", Tensor.of(name, values.astype(np.float32))
            )
            for index, (name, values) in enumerate(values.items())
        ]
    )


RANGES = {"data": Range.of(-1, 1), "r1": Range.of(-10, 20.5), "r2": Range.of(0, 30), "c3": Range.of(0, 1)}


def test_the_convolutions_of_a_model(analysis):
    found = convolutions(analysis)
    assert [(c.name, c.op_type, c.input, c.layer, c.reads_picture) for c in found] == [
        ("c1", "CONV_2D", "data", "r1", True),
        ("c2", "CONV_2D", "r1", "r2", False),
        ("c3", "CONV_2D", "r2", "c3", False),
        ("c4", "CONV_2D", "pool", "c4", False),
    ]
    assert [conv.domain for conv in found[1:]] == ["r1", "r2", "pool"]  # the SDK raises each by itself


def test_rule_1_is_a_range_over_30(analysis):
    signs = read_signs(analysis, convolutions(analysis), RANGES)
    assert [signs[name].wide for name in ("c2", "c3", "c4")] == [True, False, True], "pool has the range of its domain"
    assert signs["c2"].narrow is None and signs["c2"].after is None


def test_rule_2_is_a_narrow_distribution_inside_a_wide_range(analysis):
    rng = np.random.default_rng(0)
    spread = dump(r1=rng.uniform(-10, 20.5, SHAPE), r2=rng.uniform(0, 0.1, SHAPE))
    peak = dump(r1=np.append(rng.uniform(-1, 1, 1000), [-10, 20.5]), r2=rng.uniform(0, 0.1, SHAPE))
    broad = read_signs(analysis, convolutions(analysis), RANGES, spread)
    narrow = read_signs(analysis, convolutions(analysis), RANGES, peak)
    assert broad["c2"].narrow is False and (broad["c2"].levels or 0) > 200
    assert narrow["c2"].narrow is True and narrow["c2"].levels == pytest.approx(2 / 30.5 * 256, abs=2)
    assert narrow["c3"].narrow is False, "its range is not wide"


def spoilt(factors):
    """(fixed, float) dumps whose layers are ``factors`` times too large."""
    rng = np.random.default_rng(1)
    values = {name: rng.uniform(-1, 2, SHAPE) for name in factors}
    return dump(**{n: v * factors[n] for n, v in values.items()}), dump(**values)


def test_rule_3_points_at_the_convolution_before_the_layer(analysis):
    fixed, real = spoilt({"r1": 1.01, "r2": 1.8, "c3": 1.9, "prob": 4, "pool": 1.01, "c4": 1.4})
    found = read_signs(analysis, convolutions(analysis), RANGES, real, compare(fixed, real))
    accused = {name: signs.after.name for name, signs in found.items() if signs.after and signs.spoilt}
    assert accused == {"c2": "r2", "c3": "c3"}, "a Softmax is judged by its input"
    assert found["c2"].arises_here and not found["c3"].arises_here


@pytest.mark.parametrize(("r1", "pool", "worst"), [(1.8, 1.01, "r1"), (1.01, 1.8, "pool")])
def test_rule_3_takes_the_worst_layer_up_to_the_next_convolution(analysis, r1, pool, worst):
    fixed, real = spoilt({"r1": r1, "r2": 3.0, "pool": pool, "c4": 3.0})
    found = read_signs(analysis, convolutions(analysis), RANGES, real, compare(fixed, real))
    assert found["c1"].after.name == worst


def test_files_of_another_model_are_refused(analysis):
    with pytest.raises(
        ConfigError,
        match=r"min_max.txt: no name in this file matches a layer of this model \(names in the file: 'zebra'",
    ):
        ranges_of_model(analysis.graph, {"zebra": Range.of(0, 1)}, "min_max.txt")
    with pytest.raises(ConfigError, match="no tensor is the input of a convolution of this model"):
        read_signs(analysis, convolutions(analysis), RANGES, dump(zebra=np.ones(SHAPE)))


def test_ranges_under_the_names_of_the_sdks_tools_are_found():
    graph = analyse(
        model(
            [conv("a/b", "data"), conv("out", "a/b")],
            {**weights("a/b", (4, 3, 1, 1)), **weights("out", (4, 4, 1, 1))},
            {"data": (1, 3, 4, 4)},
            ["out"],
        ).proto
    ).graph
    assert set(ranges_of_model(graph, {"a_b": Range.of(0, 1), "x": Range.of(0, 1)}, "file")) == {"a/b"}


def row(rmse, rise):
    record = Record("out", 0, 0, "CONV_2D", Tensor.of("x", np.ones(1, np.float32)))
    return row_of(Pair(record, record, "name"), Sums(1, 1, 1, 1, rmse, rmse, 1), "").replaced(rise=rise)


@pytest.mark.parametrize(
    ("limits", "narrow", "error", "fired"),
    [
        (None, None, None, 0),
        ((0.0, 30.0), None, 0.5, 0),
        ((0.0, 30.1), None, 0.5, 1),
        ((-15.0, 15.1), None, None, 1),
        ((0.0, 5.0), None, 0.51, 1),
        ((0.0, 40.0), True, 0.1, 2),
        ((0.0, 40.0), False, 0.1, 1),
        ((0.0, 40.0), True, 0.6, 3),
    ],
)
def test_each_rule_that_fires_counts_once(limits, narrow, error, fired):
    """Rule 1: a range over 30; rule 2: a narrow distribution; rule 3: an RMSE over 0.5."""
    after = None if error is None else row(error, error)
    assert Signs(limits, narrow=narrow, after=after).fired == fired
    assert RMSE_OVER == 0.5


@pytest.mark.parametrize(("rise", "here"), [(0.8, True), (0.4, True), (0.39, False), (0.0, False)])
def test_an_error_arises_where_half_of_it_is_new(rise, here):
    assert Signs(after=row(0.8, rise)).arises_here == here
