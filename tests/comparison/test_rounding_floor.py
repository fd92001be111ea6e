"""The first layer that leaves the rounding floor of two runs is named, whatever is larger further down."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_words import lines_of

import sgsdump
from sgsdump import Dump, Record, Tensor
from sgsdump.comparison.rounding_floor import departures
from sgsdump.comparison.row import Row


def pair(errors, flow=False, dtype=np.float32):
    """Two runs whose layer ``l0``, ``l1`` … is off by these relative errors, in a chain where ``flow`` is."""
    rng = np.random.default_rng(len(errors))
    sides = [], []
    before = None
    for index, error in enumerate(errors):
        values = rng.choice([-1.0, 1.0], (1, 4, 4, 8))
        signs = rng.choice([-1.0, 1.0], values.shape)
        pair = values * (1 + error * signs), values
        for records, side, last in zip(sides, pair, before or (None, None)):
            if flow and last is not None:
                records.append(Record("in", 0, index, "Conv", Tensor.of(f"l{index - 1}", last)))
            records.append(Record("out", 0, index, "Conv", Tensor.of(f"l{index}", side.astype(dtype))))
        before = tuple(side.astype(dtype) for side in pair)
    return Dump(sides[0]), Dump(sides[1])


def causes(errors, **facts):
    findings = sgsdump.compare(*pair(errors, **facts)).findings()
    return [(finding.layer, finding.evidence) for finding in findings if finding.kind == "cause"]


@pytest.mark.parametrize("flow", [False, True])
@pytest.mark.parametrize("largest", [0.09, 0.5])
def test_the_first_that_leaves_the_floor_is_named_before_the_largest_rise(flow, largest):
    errors = [1e-7] * 6 + [0.02, 0.021, 0.022, largest, 0.03]
    assert causes(errors, flow=flow) == [("l6", "by value")]
    comparison = sgsdump.compare(*pair(errors, flow=flow))
    lines = lines_of(comparison)
    [first] = [line for line in lines if line.startswith("Cause: ")]
    assert "l6" in first and lines[lines.index(first) + 1 :]
    rises = next(i for i, line in enumerate(lines) if line.startswith("RMSE rises most"))
    assert "l9" in lines[rises + 1]


@pytest.mark.parametrize("flow", [False, True])
def test_the_floor_is_what_the_layers_before_have(flow):
    level = 2e-3
    assert causes([level] * 6 + [9 * level] * 4, flow=flow) == []
    # half of them are on the floor of any runtime, the level before the fault is not
    errors = [1e-7] * 4 + [0.9e-3] * 4 + [11e-3] * 4
    assert causes(errors, flow=flow) == [("l8", "by value")]


@pytest.mark.parametrize("flow", [False, True])
def test_what_grows_slowly_has_no_place_where_it_leaves(flow):
    assert causes([1e-6 * 2**i for i in range(14)], flow=flow) == []


def test_rounding_of_a_narrow_type_is_its_floor():
    assert causes([0.0] * 6 + [3e-2] * 4, dtype=np.float16) == []
    assert causes([0.0] * 6 + [6e-2] * 4, dtype=np.float16) == [("l6", "by value")]


def test_in_file_order_a_floor_has_to_be_seen_first():
    assert causes([0.02] * 6) == []
    assert causes([1e-7] * 2 + [0.02] * 6) == []
    assert causes([1e-7] * 3 + [0.02] * 6) == [("l3", "by value")]


def test_a_departure_that_no_bad_layer_inherits_is_not_its_cause():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((5, 1, 4, 4, 8)).astype(np.float32)
    off = {1: 0.012, 4: 0.5}

    def run(is_sample):
        tensors = [value * (1 + off.get(i, 0) * is_sample) for i, value in enumerate(values)]
        reads = {1: 0, 2: 0, 3: 2, 4: 3}  # two branches: 0-1 and 0-2-3-4
        records = []
        for i, tensor in enumerate(tensors):
            if i in reads:
                records.append(Record("in", 0, i, "Conv", Tensor.of(f"l{reads[i]}", tensors[reads[i]])))
            records.append(Record("out", 0, i, "Conv", Tensor.of(f"l{i}", tensor.astype(np.float32))))
        return Dump(records)

    findings = sgsdump.compare(run(True), run(False)).findings()
    assert [finding.layer for finding in findings if finding.kind == "cause"] == ["l4"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1e-7, 1e-5, 5e-4, 3e-3, 0.05, 0.4]), min_size=4, max_size=12), st.booleans())
def test_no_layer_that_is_equal_or_within_rounding_is_named_and_the_earlier_one_that_left_is_first(errors, flow):
    named = causes(errors, flow=flow)
    for layer, _ in named:
        assert errors[int(layer[1:])] > 1e-3
    by_value = [int(layer[1:]) for layer, evidence in named if evidence == "by value"]
    if flow and by_value:
        for i in range(1, by_value[0]):
            assert errors[i] <= max(10 * errors[i - 1], 1e-3), (errors, named)


def test_what_inherits_is_not_named_where_a_file_lists_it_first():
    facts = {"io": "out", "slot": 0, "op_type": "Conv", "type_name": "FLOAT32", "paired": "name", "by_flow": True}
    facts |= {"count": 8, "mse": 1.0, "cos": 0.5, "sample_dtype": "float32", "benchmark_dtype": "float32"}
    chain = {"late": (0.5, ("early",)), "early": (0.02, ("first",)), "first": (1e-7, ())}
    rows = [
        Row.of(**facts, name=name, sample_name=name, op_index=i, rmse=error, sources=sources)
        for i, (name, (error, sources)) in enumerate(chain.items())
    ]
    assert [departure.row.name for departure in departures(rows, by_flow=True)] == ["early"]
