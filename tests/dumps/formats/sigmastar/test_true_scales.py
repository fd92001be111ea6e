"""True scales derived from calibrated ranges, against the SDK's own dequantised dump of the same run, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from dumps.formats.sigmastar.made import F32, I8, I16, U8, integer_record, plain_record

import sgsdump
from sgsdump import Dump, Quant, Record, Tensor
from sgsdump.dumps.formats.sigmastar.side_files import true_scales, with_scales
from sgsdump.errors import ValuesError
from sgsdump.sidecars.tensor_min_max import read_ranges
from sgsdump.tensors.tensor import values_of
from sgsdump.tensors.types import Range

REFUSED: dict[str, set[str]] = {"tiny_L5": set(), "tiny_all16": set()}


def span(lo: float, hi: float) -> Range:
    return Range(np.array([lo]), np.array([hi]))


def integers(name: str, scale: float, dtype=np.int16, zero_point: int = 0) -> Tensor:
    array = np.arange(4).astype(dtype)
    return Tensor.of(name, array, quant=Quant(np.dtype(dtype), scale, zero_point))


@pytest.mark.parametrize(
    ("raw", "real", "level"),
    [
        ("tiny_fixed_b_elim", "tiny_fixed_a_elim_dequant", "tiny_L5"),
        ("tiny_all16_elim", "tiny_all16_elim_dequant", "tiny_all16"),
    ],
)
def test_genuine_dump_dequantises_bit_for_bit(shared, raw, real, level):
    folder = shared / "sigmastar"
    whole = sgsdump.open_dump(folder / "dumps" / raw / "sigma_outtensor_dump.bin")
    expected = sgsdump.open_dump(folder / "dumps" / real / "sigma_outtensor_dump.bin")
    found, refused = true_scales(whole, read_ranges(folder / "calibration" / level / "tensor_min_max.txt"))
    assert refused.keys() == REFUSED[level]
    assert found.keys() == {r.name for r in whole.records if not r.constant} - refused.keys()
    for name in whole.outputs:
        values = values_of(whole[name], found[name])
        assert np.array_equal(values.to_real(values.array), expected[name].stored())
    inputs = values_of(whole.inputs["data"], found["data"])
    ours = inputs.to_real(inputs.array)
    assert np.array_equal(ours, expected.inputs["data"].stored()[: ours.size])


def test_integer_dump_compares_like_the_dequantised_one(shared):
    folder = shared / "sigmastar"
    names = ("tiny_fixed_b_elim", "tiny_fixed_a_elim_dequant", "tiny_float_a_full")
    raw, real, benchmark = (sgsdump.open_dump(folder / "dumps" / n / "sigma_outtensor_dump.bin") for n in names)
    ranges = read_ranges(folder / "calibration/tiny_L5/tensor_min_max.txt")
    ours = sgsdump.compare(with_scales(raw, ranges), benchmark)
    theirs = sgsdump.compare(real, benchmark)
    assert not ours.failed and ours.rows
    # the record has its scale in six decimals, of which 0.000031 has too few to go by
    assert {row.name for row in theirs.rows if not row.step} == {"sig", "prob"}
    for mine, other in zip(ours.rows, theirs.rows, strict=True):
        assert mine.replaced(sample_dtype="float32", step=0.0) == other.replaced(step=0.0)
        assert mine.step and (not other.step or abs(mine.step - other.step) <= 5e-7)


def test_ranges_of_another_model_are_refused(shared):
    folder = shared / "sigmastar"
    raw = sgsdump.open_dump(folder / "dumps/tiny_fixed_b_elim/sigma_outtensor_dump.bin")
    ranges = {
        name: span(2 * r.low, 2 * r.high)
        for name, r in read_ranges(folder / "calibration/tiny_L5/tensor_min_max.txt").items()
    }
    found, refused = true_scales(raw, ranges)
    # two scales that depend on no range, and a softmax input whose range ends at -10 either way
    assert found.keys() == {"sig", "prob", "fc", "fc#32"}
    assert "scale 0.034400" in refused["relu1"] and "0.017200" in refused["relu1"]
    refused_dump = with_scales(raw, ranges)
    comparison = sgsdump.compare(refused_dump, refused_dump)
    assert {row.name for row in comparison.rows} == found.keys()
    assert all("no true scale" in failed.reason for failed in comparison.failed)


@pytest.mark.parametrize("ranges", [{}, {"best": span(0, 9)}])
def test_a_scale_of_one_needs_no_range(ranges):
    """Indices: S16 with 1.000000 in the header, whatever their range."""
    records = [
        Record("in", 0, 0, "ARG_MAX", integers("scores", 0.000305)),
        Record("out", 0, 0, "ARG_MAX", integers("best", 1.0)),
    ]
    dump = with_scales(Dump(records), ranges)
    found, refused = true_scales(Dump(records), ranges)
    assert found["best"].exact and found["best"].scale == 1 and refused.keys() == {"scores"}
    np.testing.assert_array_equal(dump["best"].real(), [0, 1, 2, 3])


def test_scale_must_print_as_the_header():
    record = Record("out", 0, 0, "CONV_2D", integers("x", 0.000305))
    assert true_scales(Dump([record]), {"x": span(-10, 3)})[0]["x"].scale == pytest.approx(10 / 32767, rel=1e-7)
    assert "x" in true_scales(Dump([record]), {"x": span(-9.9, 3)})[1]
    assert "no range" in true_scales(Dump([record]), {})[1]["x"]


def test_zero_point_must_agree():
    scale = 2 / 255
    good, bad = (Record("out", 0, 0, "CONV_2D", integers("x", round(scale, 6), np.uint8, z)) for z in (128, 126))
    assert true_scales(Dump([good]), {"x": span(-1, 1)})[0]["x"].zero_point == 128
    assert "x" in true_scales(Dump([bad]), {"x": span(-1, 1)})[1]


def test_softmax_and_sigmoid_differ_though_they_print_alike():
    records = [
        Record("out", 0, i, op, integers(name, 0.000031))
        for i, (op, name) in enumerate([("SOFTMAX", "p"), ("LOGISTIC", "s")])
    ]
    found, _ = true_scales(Dump(records), {})
    assert found["p"].scale == 1 / 32768 and found["s"].scale == 1 / 32767


def test_max_pool_shares_the_union():
    scale = round(4 / 32767, 6)
    records = [
        Record("in", 0, 0, "MAX_POOL_2D", integers("a", scale)),
        Record("out", 0, 0, "MAX_POOL_2D", integers("b", scale)),
        Record("out", 0, 1, "CONV_2D", integers("c", scale)),
    ]
    found, refused = true_scales(Dump(records), {"a": span(-1, 2), "b": span(-4, 1), "c": span(0, 1)})
    assert found["a"].scale == found["b"].scale == pytest.approx(4 / 32767, rel=1e-7)
    assert refused.keys() == {"c"}


def test_unknown_scale_is_never_read_as_numbers():
    with pytest.raises(ValuesError, match="true scale"):
        values_of(integers("x", 0.5))
    exact = Tensor.of("x", np.array([1, 2], np.uint8), quant=Quant(np.dtype(np.uint8), 0.5, 1, exact=True))
    values = values_of(exact)
    assert values.to_real(values.array).tolist() == [0.0, 0.5]
    plain = Tensor.of("shape", np.array([1, 2], np.int64))
    assert values_of(plain).to_real is None


@pytest.mark.parametrize(
    ("dtype", "low", "high", "scale", "zero"),
    [
        (U8, -1.0, 1.0, 2 / 255, 128),
        (U8, 1.0, 3.0, 3 / 255, 0),  # the range is extended to include 0
        (U8, -3.0, -1.0, 3 / 255, 255),
        (U8, 0.0, 0.0, 0.0, 0),
        (I16, -4.0, 2.0, 4 / 32767, 0),
        (I16, -2.0, 4.0, 4 / 32767, 0),
        (I16, 3.0, 4.0, 4 / 32767, 0),
        (I8, -2.0, 1.0, 2 / 127, 0),
    ],
)
def test_the_scale_of_a_range(dtype, low, high, scale, zero):
    found, refused = true_scales(Dump([integer_record("x", scale, dtype, zero)]), {"x": Range.of(low, high)})
    assert not refused and found["x"].exact
    assert found["x"].scale == pytest.approx(scale, rel=1e-6) and found["x"].zero_point == zero


@pytest.mark.parametrize(("zero", "fits"), [(127, True), (128, True), (126, False), (129, False)])
def test_a_half_is_rounded_as_the_header_says(zero, fits):
    found, refused = true_scales(Dump([integer_record("x", 2 / 255, U8, zero)]), {"x": Range.of(-1, 1)})  # 127.5
    assert ("x" in found) is fits and ("x" in refused) is not fits
    if fits:
        assert found["x"].zero_point == zero


@pytest.mark.parametrize(
    ("op", "dtype", "fixed"),
    [("SOFTMAX", I16, 1 / 32768), ("LOGISTIC", I16, 1 / 32767), ("SOFTMAX", U8, None), ("CONV_2D", I16, None)],
)
def test_fixed_scales_are_those_of_16_bits(op, dtype, fixed):
    found, refused = true_scales(Dump([integer_record("x", 0.000031, dtype, op=op)]), {})
    if fixed is None:
        assert not found and "has no range for the tensor" in refused["x"]
    else:
        assert found["x"].scale == fixed and found["x"].zero_point == 0 and not refused


def test_a_softmax_reads_from_minus_ten():
    reads = integer_record("x", 10 / 32767, op="SOFTMAX", io="in")
    found, _ = true_scales(Dump([reads]), {"x": Range.of(-3, 2)})
    assert found["x"].scale == pytest.approx(10 / 32767, rel=1e-6)
    found, _ = true_scales(Dump([integer_record("x", 12 / 32767, op="SOFTMAX", io="in")]), {"x": Range.of(-12, 2)})
    assert found["x"].scale == pytest.approx(12 / 32767, rel=1e-6)
    _, refused = true_scales(Dump([integer_record("x", 10 / 32767, op="ADD", io="in")]), {"x": Range.of(-3, 2)})
    assert "the ranges give scale 0.000092 and zero point 0, but the dump's header has 0.000305 and 0" in refused["x"]


SHARING = (
    "MAX_POOL_2D AVERAGE_POOL_2D RESHAPE Reshape_Alias TRANSPOSE SQUEEZE EXPAND_DIMS PAD SLICE STRIDED_SLICE GATHER "
)
SHARING += "CONCATENATION SPLIT SPLIT_V PACK UNPACK"


@pytest.mark.parametrize("op", [*SHARING.split(), "CONV_2D", "ADD"])
def test_which_operators_share_one_domain(op):
    scale = round(4 / 32767, 6)
    around = [
        integer_record("a", scale, op=op, io="in"),
        integer_record("b", scale, op=op),
        integer_record("c", scale, op="X", op_index=1),
    ]
    found, refused = true_scales(Dump(around), {"a": Range.of(-4, 1), "c": Range.of(-1, 1)})
    assert set(found) == ({"a", "b"} if op in SHARING.split() else {"a"}) and "c" in refused


@pytest.mark.parametrize("change", [{"scale": 0.000123}, {"zero": 1}, {"dtype": I8}])
def test_only_equal_headers_share(change):
    facts = {"scale": round(4 / 32767, 6), "dtype": I16, "zero": 0}
    around = [integer_record("a", **facts, op="PACK", io="in"), integer_record("b", **{**facts, **change}, op="PACK")]
    found, refused = true_scales(Dump(around), {"a": Range.of(-4, 1)})
    assert set(found) == {"a"} and "has no range for the tensor or for tensors of the same domain" in refused["b"]


def test_a_domain_takes_its_union_first_then_what_fits():
    scale = round(2 / 32767, 6)
    around = [
        integer_record(name, scale, op="PACK", io=io, slot=i)
        for i, (name, io) in enumerate([("a", "in"), ("b", "out")])
    ]
    found, _ = true_scales(Dump(around), {"a": Range.of(-2, 1), "b": Range.of(-1, 8)})
    assert found["a"].scale == found["b"].scale == pytest.approx(2 / 32767, rel=1e-6)


def test_constants_floats_and_exact_scales_are_left_out():
    exact = integer_record("e")
    exact = replace(
        exact, tensor=Tensor(replace(exact.tensor.info, quant=Quant(I16, 0.5, exact=True)), exact.tensor.raw)
    )
    unknown = integer_record("u")
    unknown = replace(unknown, tensor=Tensor(replace(unknown.tensor.info, quant=Quant(None, 0.5)), unknown.tensor.raw))
    dump = Dump(
        [
            integer_record("c", constant=True),
            exact,
            unknown,
            plain_record(np.ones(1, F32), "f"),
            plain_record(np.ones(1, I16), "n"),
        ]
    )
    assert true_scales(dump, {name: Range.of(-1, 1) for name in "ceufn"}) == ({}, {})
