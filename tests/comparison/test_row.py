"""A row's verdict, error and limits, one fact at a time."""

import dataclasses
import math

import numpy as np
import pytest

import sgsdump
from sgsdump.comparison.compare import compare
from sgsdump.comparison.metrics import Counts, Sums
from sgsdump.comparison.row import FACTS, Context, Errors, Extras, Misnamed, Place, Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor

OTHER = Misnamed("benchmark", "y", 3, "Relu", 1.0, 0.0)


def row(**facts):
    plain = {"name": "x", "io": "out", "slot": 0, "op_index": 0, "op_type": "Conv", "type_name": "float"}
    plain |= {"sample_name": "x", "paired": "name", "count": 4, "mse": 0.5, "cos": 1.0, "rmse": 0.05}
    plain |= dict.fromkeys(("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf"), 0)
    return Row.of(**plain | facts)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, "pass"),
        ({"cos": 0.99, "rmse": 0.1}, "pass"),
        ({"cos": math.nextafter(0.99, 0)}, "fail"),
        ({"rmse": math.nextafter(0.1, 1)}, "fail"),
        ({"sample_nan": 1}, "fail"),
        ({"sample_inf": 1}, "fail"),
        ({"benchmark_nan": 1}, "fail"),
        ({"benchmark_inf": 1}, "fail"),
        ({"mse": 0.0, "cos": math.nan, "rmse": math.nan}, "pass"),
        ({"mse": 0.0, "sample_nan": 1}, "fail"),
        ({"dtype_note": "dtypes differ"}, "warn"),
        ({"left_out": {"MaxRelativeError": 1}}, "warn"),
        ({"note": "benchmark transposed NHWC to NCHW"}, "warn"),
        ({"misnamed": OTHER}, "warn"),
        ({"note": "compared flat", "rmse": 0.2}, "fail"),
        ({"statistics": {"max": 0.1}, "note": "statistics only", "cos": math.nan}, "warn"),
        ({"statistics": {"min": 0.0, "max": math.nextafter(0.1, 1)}, "note": "statistics only"}, "fail"),
    ],
)
def test_verdict(facts, verdict):
    assert row(**facts).verdict() == verdict


@pytest.mark.parametrize(
    ("limits", "within"),
    [
        (DOCUMENTED, 0.1),
        (Thresholds(max_rmse=0.25), 0.25),
        (Thresholds(max_rmse=0.0), 0.0),
        (Thresholds(min_cos=0.5), 0.1),  # no limit on RMSE was given: the documented one holds
    ],
)
def test_statistics_have_the_limit_on_rmse(limits, within):
    assert row(statistics={"mean": within}).passes(limits)
    assert not row(statistics={"mean": math.nextafter(within, 1)}).passes(limits)


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({}, 0.05),
        ({"benchmark_inf": 1}, math.inf),
        ({"mse": 0.0, "rmse": math.nan}, 0.0),
        ({"statistics": {"min": 0.25, "max": 0.125}, "rmse": math.nan, "mse": math.nan}, 0.25),
    ],
)
def test_rows_are_ranked_by_error(facts, error):
    assert row(**facts).error == error


def test_statistics_with_a_checksum_are_not_statistics_alone():
    assert row(statistics={"mean": 0.0}).is_by_statistics
    assert not row(statistics={"mean": 0.0}, checksums="equal").is_by_statistics and not row().is_by_statistics


def only_row(sample, benchmark):
    sides = [Dump([Record("out", 0, 0, "Add", Tensor.of("x", np.asarray(side)))]) for side in (sample, benchmark)]
    (row,) = compare(*sides).rows
    return row


def test_a_mask_of_minus_infinity_is_equal_to_itself():
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    row = only_row(mask, mask.copy())
    assert row.equal and row.passes() and row.error == 0 and row.verdict() == "warn"
    assert row.note == "all values are equal; 6 of the values are -Inf"
    other = mask.copy()
    other[3, 0] = 1
    assert not only_row(other, mask).passes()


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_overflow_and_nan_are_faults_even_where_both_have_them(odd):
    values = np.array([1, odd, 2, -np.inf], np.float32)
    row = only_row(values, values.copy())
    assert not row.equal and row.verdict() == "fail"


def test_two_empty_tensors_are_equal():
    row = only_row(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    assert row.passes() and row.note == "both are empty"


def test_a_flat_side_is_noted_where_both_shapes_are_known():
    values = np.arange(24, dtype=np.float32)
    row = only_row(values.reshape(2, 3, 4), values)
    assert row.note == "compared flat: sample [2, 3, 4], benchmark [24]" and row.verdict() == "warn"
    assert only_row(values.reshape(1, 24), values).note == ""


def test_saturated_float16_is_noted_on_either_side():
    """A mask's -65504 too: what a device cut cannot be told from what was meant, so it warns and does not fail."""
    values = np.float16([1, 65504, -65504, 2])
    row = only_row(values, values)
    assert row.note == "float16 values at ±65504: 2 in sample, 2 in benchmark"
    assert row.passes() and row.verdict() == "warn"
    assert only_row(values, values.astype(np.float32)).note == "float16 values at ±65504: 2 in sample"
    assert only_row(values[:1], values[:1]).note == ""


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def record(name, values, io="out", op_index=0, slot=0, op_type="ADD", constant=False, **facts) -> Record:
    return Record(io, slot, op_index, op_type, Tensor.of(name, np.asarray(values), **facts), constant)


def test_rows_can_be_put_into_a_set():
    dump = Dump([record("x", noise(30)), record("y", noise(30, seed=1))])
    assert len(set(sgsdump.compare(dump, dump).rows)) == 2


def test_a_row_says_nothing_unless_told():
    """What a row is made without is none of it: no note, no rise, nothing counted."""
    (plain,) = sgsdump.compare(Dump([record("x", noise(20))]), Dump([record("x", noise(20))])).rows
    facts = "note dtype_note sources rise module origin misnamed sample_minus_inf odd_apart extra vendor runs integers"
    assert [getattr(plain, fact) for fact in facts.split()] == ["", "", (), 0, "", "", None, 0, 0, {}, {}, None, None]
    assert plain == Row(plain.place, plain.errors)


def test_a_row_is_made_and_changed_by_the_names_of_its_facts():
    made = row(note="odd", sample_nan=2, integers=None)
    assert (made.note, made.sample_nan, made.context.note, made.counts.sample_nan) == ("odd", 2, "odd", 2)
    changed = made.replaced(rmse=0.5, note="")
    assert (changed.rmse, changed.note, changed.sample_nan, made.rmse) == (0.5, "", 2, 0.05)
    assert Row.of(**{name: getattr(changed, name) for name in FACTS}) == changed
    with pytest.raises(KeyError, match="colour"):
        made.replaced(colour=1)


def test_every_fact_is_an_attribute_of_the_row_and_in_one_record_only():
    records = [Place, Errors, Counts, Context, Extras]
    named = [fact.name for record in records for fact in dataclasses.fields(record)]
    assert (
        sorted(named) == sorted([*FACTS, "sums", "details"]) and max(len(dataclasses.fields(r)) for r in records) <= 12
    )
    assert all(isinstance(getattr(Row, name), property) for name in named)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("sample", "benchmark", "apart", "found"),
    [
        ([1, 2], [1, 2], 0, (0, 0, 0, 0, 0, 0)),
        ([NAN, 2], [1, 2], 1, (1, 0, 0, 0, 0, 0)),
        ([1, 2], [NAN, 2], 1, (0, 0, 0, 1, 0, 0)),
        ([NAN, 2], [NAN, 2], 0, (1, 0, 0, 1, 0, 0)),
        ([INF, 2], [1, 2], 1, (0, 1, 0, 0, 0, 0)),
        ([1, 2], [-INF, 2], 1, (0, 0, 0, 0, 1, 1)),
        ([INF, 2], [-INF, 2], 1, (0, 1, 0, 0, 1, 1)),
        ([-INF, 2], [-INF, 2], 0, (0, 1, 1, 0, 1, 1)),
        ([NAN, INF], [INF, NAN], 2, (1, 1, 0, 1, 1, 0)),
        ([NAN, INF, -INF, 1], [NAN, INF, INF, NAN], 2, (1, 2, 1, 2, 2, 0)),
    ],
)
def test_where_nan_and_inf_stand_apart(sample, benchmark, apart, found):
    dumps = (Dump([record("x", np.array(values, np.float32))]) for values in (sample, benchmark))
    (row,) = sgsdump.compare(*dumps).rows
    assert row.odd_apart == apart
    assert found == (
        *(row.sample_nan, row.sample_inf, row.sample_minus_inf),
        *(row.benchmark_nan, row.benchmark_inf, row.benchmark_minus_inf),
    )


def test_sums_begin_with_nothing_that_is_not_finite():
    sums = Sums(1, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    assert (sums.count, sums.aa, sums.bb, sums.ab, sums.dd, sums.d1, sums.b1) == (1, 2, 3, 4, 5, 6, 7)
    assert sums.odd == Counts(0, 0, 0, 0, 0, 0, 0) and Sums.of_numbers(sums.numbers) == sums
