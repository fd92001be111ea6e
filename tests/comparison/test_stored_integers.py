"""Two runs of a fixed model: identical integers or not, with hand-changed integers of known differences."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.comparison.merge import merge
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.comparison.worst_values import worst_values
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.tensor import Quant, Tensor, dequantise

U8, S16 = np.dtype(np.uint8), np.dtype(np.int16)
QUANT = Quant(U8, 0.017201, 3)


def layer(name, stored, quant=QUANT, op_index=0, io="out"):
    return Record(io, 0, op_index, "CONV_2D", Tensor.of(name, stored, quant=quant, layout="NHWC"))


def integers(shape=(1, 8, 8, 64), seed=0, dtype=U8):
    return np.random.default_rng(seed).integers(0, 250, shape).astype(dtype)


def changed(stored, count, by):
    """``count`` values moved by one step, one of them by ``by``."""
    copy = stored.copy()
    places = np.random.default_rng(1).choice(copy.size, count, replace=False)
    flat = copy.reshape(-1)
    flat[places] += 1
    flat[places[0]] += by - 1
    return copy


def dequantised(record):
    """As the SDK's dequantFixed writes it: float32, the header still naming type, printed scale and zero point."""
    quant = record.tensor.info.quant
    info = replace(record.tensor.info, quant=replace(quant, exact=True))
    return Record(
        record.io, record.slot, record.op_index, record.op_type,
        Tensor.of(record.name, dequantise(record.tensor.stored(), info), quant=quant, layout="NHWC"),
    )  # fmt: skip


def closing(comparison):
    return [line for line in REPORTS["verdict"](comparison, DOCUMENTED).splitlines() if line.startswith("integers")]


def test_identical_and_different_layers_in_execution_order():
    one, two, three = integers(seed=1), integers((1, 4, 4, 256), seed=2), integers(seed=3)
    benchmark = Dump([layer("a", one, op_index=0), layer("conv5", two, op_index=1), layer("c", three, op_index=2)])
    sample = Dump(
        [layer("c", changed(three, 5, 9)), layer("conv5", changed(two, 12, 1)), layer("a", one)]
    )  # in another order
    comparison = sgsdump.compare(sample, benchmark)
    assert [(row.name, row.integers.differing, row.integers.largest) for row in comparison] == [
        ("a", 0, 0), ("conv5", 12, 1), ("c", 5, 9),
    ]  # fmt: skip
    assert comparison["a"].integers.identical and comparison["a"].verdict() == "pass"
    assert closing(comparison) == [
        "integers: 1 of 3 layers identical; the first layer that differs is conv5 (CONV_2D): 12 of 4096 values, by "
        "at most "
        "1 step"
    ]
    table = REPORTS["sdk_table"](comparison, DOCUMENTED).splitlines()
    assert table[0].endswith("RMSE:0.000000  identical integers")
    assert "5 of 4096 values differ, by at most 9 steps; measured in steps" in table[2]


def test_cos_and_rmse_do_not_depend_on_the_scale_that_is_missing():
    stored = integers()
    other = changed(stored, 40, 7)
    coarse = sgsdump.compare(Dump([layer("a", other)]), Dump([layer("a", stored)]))["a"]
    exact = replace(QUANT, exact=True)
    known = sgsdump.compare(Dump([layer("a", other, exact)]), Dump([layer("a", stored, exact)]))["a"]
    assert (coarse.cos, coarse.rmse) == pytest.approx((known.cos, known.rmse), rel=1e-6)
    assert coarse.mse * 0.017201**2 == pytest.approx(known.mse, rel=1e-5)
    assert "in steps" in coarse.note and not known.note
    assert coarse.integers == known.integers and known.integers.differing == 40


def test_dequantised_values_of_one_scale():
    stored = integers()
    records = [layer("a", stored), layer("b", stored)], [layer("a", stored), layer("b", changed(stored, 3, 5))]
    sample, benchmark = (Dump([dequantised(record) for record in side]) for side in records)
    comparison = sgsdump.compare(sample, benchmark)
    assert comparison["a"].integers.identical
    assert str(comparison["b"].integers) == "3 of 4096 values differ, by at most 5 steps"
    assert not comparison["b"].note


def test_a_coarse_scale_tells_no_steps_that_it_does_not_know():
    """0.000031 is printed for 1/32768: after 60 steps it is a whole one off."""
    quant = Quant(S16, 1 / 32768)
    stored = integers(dtype=S16)
    printed = replace(quant, scale=0.000031)

    def floats(values):
        record = dequantised(layer("a", values, quant))
        info = replace(record.tensor.info, quant=printed)
        return Dump([replace(record, tensor=Tensor(info, record.tensor.raw))])

    largest = [
        sgsdump.compare(floats(changed(stored, 4, by)), floats(stored))["a"].integers.largest for by in (1, 10, 60)
    ]
    assert largest == [1, 10, None]


@pytest.mark.parametrize(
    "quant", [replace(QUANT, scale=0.017203), replace(QUANT, zero_point=4), Quant(S16, 0.017201, 3)]
)
def test_other_scales_and_types_are_told_and_not_counted(quant):
    stored = integers()
    sample = Dump([layer("a", stored), layer("b", stored.astype(quant.dtype), quant)])
    benchmark = Dump([layer("a", stored), layer("b", stored)])
    comparison = sgsdump.compare(sample, benchmark)
    assert [row.name for row in comparison] == ["a"]
    (failed,) = comparison.failed
    described = f"sample {quant.dtype} scale {quant.scale:f} zero point {quant.zero_point}"
    assert failed.reason.startswith(f"quantised differently: {described}, benchmark uint8 scale 0.017201 zero point 3")
    first = f"b (CONV_2D): {described}, benchmark uint8 scale 0.017201 zero point 3"
    assert closing(comparison) == [f"integers: 1 of 1 layers identical; the first layer that differs is {first}"]
    real = sgsdump.compare(*(Dump([dequantised(record) for record in side.records]) for side in (sample, benchmark)))
    assert real["b"].integers.unlike and "identical" not in REPORTS["sdk_table"](real, DOCUMENTED).splitlines()[1]
    said = REPORTS["verdict"](real, DOCUMENTED)
    assert (
        f"1 of 1 layers identical; the first layer that differs is {first}\n  0.b (CONV_2D): quantised differently"
        in said
    )


@pytest.mark.parametrize(("scale", "exact"), [(0.017202, False), (0.0172, False), (0.0172016, True)])
def test_scales_a_unit_of_the_last_printed_digit_apart_are_one_of_stored_integers(scale, exact):
    """The first that differs is where an integer does, behind them."""
    stored, later = integers(), integers(seed=2)
    near = Quant(U8, scale, 3, exact=exact)
    sample = Dump([layer("a", stored, near), layer("b", changed(later, 2, 3), op_index=1)])
    comparison = sgsdump.compare(sample, Dump([layer("a", stored), layer("b", later, op_index=1)]))
    assert comparison["a"].integers.identical
    assert closing(comparison) == [
        "integers: 1 of 2 layers identical; the first layer that differs is b (CONV_2D): 2 of 4096 values, by at "
        "most 3 steps"
    ]


def test_large_scales_a_step_of_float32_apart_are_one_of_stored_integers():
    stored = integers()
    sample, benchmark = (Dump([layer("a", stored, Quant(U8, scale))]) for scale in (290.972473, 290.972488))
    assert closing(sgsdump.compare(sample, benchmark)) == ["integers: 1 of 1 layers identical"]


def test_scales_that_differ_behind_the_sixth_decimal():
    stored = integers()
    one, other = (dequantised(layer("b", stored, Quant(U8, scale))) for scale in (0.0300001, 0.0300004))
    comparison = sgsdump.compare(Dump([one]), Dump([other]))
    assert "beyond the six decimals" in comparison["b"].integers.unlike and not closing(comparison)


def test_nan_and_infinity_among_dequantised_values_are_so_many_steps_as_none():
    stored = integers()
    record = dequantised(layer("a", stored))
    for odd in (np.nan, np.inf):
        values = record.tensor.stored().copy()
        values[0, 0, 0, :3] = odd
        broken = Dump([replace(record, tensor=Tensor(record.tensor.info, lambda values=values: values))])
        comparison = sgsdump.compare(broken, Dump([record]))
        found = comparison["a"].integers
        assert (found.differing, found.largest) == (3, None) and not comparison.passes()
        assert closing(comparison)[0].endswith("a (CONV_2D): 3 of 4096 values")


def test_the_elements_that_differ_in_steps():
    stored = integers()
    worst = worst_values(Dump([layer("a", changed(stored, 3, 5))]), Dump([layer("a", stored)]), "a", 10)
    assert [value.error for value in worst.values] == [5, 1, 1] and "measured in steps" in worst.note
    place = worst.values[0].index
    assert worst.values[0].benchmark == stored[place] - QUANT.zero_point


def test_floats_have_no_integers():
    values = integers().astype(np.float32)
    float_run = Dump([Record("out", 0, 0, "Conv", Tensor.of("a", values))])
    for sample in (float_run, Dump([layer("a", integers(), replace(QUANT, exact=True))])):
        comparison = sgsdump.compare(sample, float_run)
        assert comparison["a"].integers is None and not closing(comparison)
        assert "integers" not in json.loads(REPORTS["json"](comparison, DOCUMENTED))["rows"][0]


def test_csv_and_json():
    stored = integers()
    comparison = sgsdump.compare(
        Dump([layer("a", stored), layer("b", changed(stored, 12, 2))]), Dump([layer("a", stored), layer("b", stored)])
    )
    rows = list(csv.DictReader(io.StringIO(REPORTS["csv"](comparison, DOCUMENTED))))
    assert [(row["differing_integers"], row["largest_step"]) for row in rows] == [("0", "0"), ("12", "2")]
    document = json.loads(REPORTS["json"](comparison, DOCUMENTED))
    assert document["rows"][1]["integers"] == {"count": 4096, "differing": 12, "largest": 2, "unlike": ""}


def test_several_runs_are_counted_together():
    stored = integers()
    benchmark = Dump([layer("a", stored)])
    runs = {
        str(count): sgsdump.compare(Dump([layer("a", changed(stored, count, by))]), benchmark)
        for count, by in ((3, 2), (5, 11))
    }
    assert str(merge(runs)["a"].integers) == "8 of 8192 values differ, by at most 11 steps"
    runs["float"] = sgsdump.compare(*[Dump([Record("out", 0, 0, "Conv", Tensor.of("a", stored))])] * 2)
    assert merge(runs)["a"].integers is None


def test_at_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored = integers()
    with pytest.warns(UserWarning):
        sgsdump.save_dump(Dump([layer("a", stored)]), "one.bin")
        sgsdump.save_dump(Dump([layer("a", changed(stored, 12, 1))]), "other.bin")
    assert main(["compare", "one.bin", "one.bin"]) == 0
    assert "integers: 1 of 1 layers identical\n" in capsys.readouterr().out
    assert main(["compare", "other.bin", "one.bin", "--min-cos", "0.9"]) == 0
    assert (
        "the first layer that differs is a (CONV_2D): 12 of 4096 values, by at most 1 step" in capsys.readouterr().out
    )


def test_the_sdks_own_integer_dump_is_identical_to_itself(shared):
    path = shared / "sigmastar/dumps/tiny_fixed_b_elim/sigma_outtensor_dump.bin"
    assert closing(sgsdump.compare(path, path)) == ["integers: 13 of 13 layers identical"]


def in_a_chain(*layers):
    """A dump of operators each of which reads what the one before it made."""
    records = []
    for index, (name, stored, quant) in enumerate(layers):
        if index:
            before, values, of = layers[index - 1]
            records.append(layer(before, values, of, index, io="in"))
        records.append(layer(name, stored, quant, index))
    return records


@pytest.mark.parametrize("as_dumped", [lambda record: record, dequantised])
def test_the_error_arises_at_a_layer_stored_in_another_type_not_after_it(as_dumped):
    stored, far = integers(), integers(seed=9)
    other = replace(QUANT, scale=0.027202)
    sides = (
        [("a", stored, QUANT), ("c1", stored, other), ("d1", far, QUANT)],
        [(n, stored, QUANT) for n in ("a", "c1", "d1")],
    )
    comparison = sgsdump.compare(*(Dump(list(map(as_dumped, in_a_chain(*side)))) for side in sides))
    cause = next(finding for finding in comparison.findings() if finding.kind == "cause")
    assert cause.layer == "c1"
    if comparison.failed:
        said = REPORTS["verdict"](comparison, DOCUMENTED)
        assert "Cause: tensor c1 (CONV_2D) is quantised differently in the two dumps: sample uint8" in said


def test_integers_off_by_more_than_a_step_are_not_rounding():
    stored = integers(dtype=S16)
    quant = replace(QUANT, dtype=S16)
    k, d = changed(stored, 90, 3), changed(stored, 900, 60)
    sides = [[("a", stored, quant), ("k", one, quant), ("d", two, quant)] for one, two in ((k, d), (stored, stored))]
    comparison = sgsdump.compare(*(Dump(in_a_chain(*side)) for side in sides))
    cause = next(finding for finding in comparison.findings() if finding.kind == "cause")
    assert (cause.layer, cause.evidence) == ("k", "by value")


def test_the_beginning_of_an_rgba_picture_is_not_held_against_one_of_three_channels():
    picture = np.random.default_rng(0).integers(1, 250, (1, 8, 8, 4)).astype(U8)
    picture[..., 3] = 0
    stored = picture.reshape(-1)[:192].reshape(1, 8, 8, 3)
    sample = Dump([layer("data", stored, replace(QUANT, exact=True), io="in"), layer("a", integers())])
    real = Tensor.of("data", picture[..., :3].astype(np.float32) / 128, layout="NHWC")
    benchmark = Dump([Record("in", 0, 0, "CONV_2D", real), layer("a", integers())])
    (failed,) = sgsdump.compare(sample, benchmark, inputs=True).failed
    assert "first three quarters of an RGBA image" in failed.reason
