"""Every string that the vendors' own tools printed for the genuine inputs, and what the honest metrics say there."""

import json
import math

import numpy as np
import pytest

import sgsdump
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.vendor_metrics import VENDOR_METRICS
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.tensors.tensor import Tensor

TOOLS = {
    "msaccucmp": ("golden_msaccucmp/algorithms_inputs.npz", "golden_msaccucmp/algorithms_expected.json"),
    "msprobe": ("golden_msprobe/npy_compare_inputs.npz", "golden_msprobe/npy_compare_expected.json"),
}


def cases(shared, tool):
    """Name, sample, benchmark and the vendor's result of every case."""
    inputs, expected = (shared / "ascend" / name for name in TOOLS[tool])
    with np.load(inputs) as arrays:
        for name, case in json.loads(expected.read_text()).items():
            yield name, arrays[f"{name}__my"], arrays[f"{name}__golden"], case


@pytest.mark.parametrize(("tool", "strings"), [("msaccucmp", 280), ("msprobe", 162)])
def test_every_printed_string(shared, tool, strings):
    compared = 0
    for name, sample, benchmark, case in cases(shared, tool):
        printed = VENDOR_METRICS[tool](sample, benchmark)
        assert list(printed.values.values()) == [str(value) for value in case["result"].values()], name
        compared += len(printed.values)
    assert compared == strings


def test_the_columns_are_the_vendors(shared):
    *_, case = next(cases(shared, "msaccucmp"))
    ones = np.ones(3, np.float32)
    assert list(VENDOR_METRICS["msaccucmp"](ones, ones).values) == list(case["result"])
    assert set(case["result"]) < set(METRICS)


def test_what_the_vendor_says(shared):
    for name, sample, benchmark, case in cases(shared, "msprobe"):
        message = VENDOR_METRICS["msprobe"](sample, benchmark).message
        assert case["message"].startswith(message) and bool(message) == bool(case["message"]), name
    for name, sample, benchmark, case in cases(shared, "msaccucmp"):
        if sample.ndim and sample.dtype != bool and case["shape_type"] != "Scalar":
            assert VENDOR_METRICS["msaccucmp"](sample, benchmark).message == " ".join(case["messages"]), name


def test_inputs_are_not_changed(shared):
    for tool in TOOLS:
        for name, sample, benchmark, _ in cases(shared, tool):
            before = sample.tobytes(), benchmark.tobytes()
            VENDOR_METRICS[tool](sample, benchmark)
            assert (sample.tobytes(), benchmark.tobytes()) == before, name


HIDDEN = {  # what the vendor calls equal or nothing, and how the honest comparison ends
    ("msaccucmp", "golden_zero"): "fail",
    ("msaccucmp", "golden_nan"): "fail",
    ("msaccucmp", "both_inf"): "fail",
    ("msaccucmp", "golden_some_zero"): "fail",
    ("msaccucmp", "int8"): "fail",
    ("msprobe", "both_nan"): "fail",
    ("msprobe", "opposite_inf"): "fail",
    ("msprobe", "complex"): "fail",
    ("msprobe", "dtype_mismatch"): "warn",
    ("msprobe", "equal"): "pass",
}


def compared(sample, benchmark, **options):
    sides = [Dump([Record("out", 0, 0, "Add", Tensor.of("x", side))]) for side in (sample, benchmark)]
    return sgsdump.compare(*sides, **options)


@pytest.mark.parametrize(("tool", "case"), HIDDEN)
def test_the_honest_verdict(shared, tool, case):
    (found,) = [(sample, benchmark) for name, sample, benchmark, _ in cases(shared, tool) if name == case]
    (row,) = compared(*found, metrics=list(METRICS), compatible=tool).rows
    assert row.verdict() == HIDDEN[tool, case]
    assert row.vendor == VENDOR_METRICS[tool](*found).values or case == "complex"


def test_large_integers_differ(shared):
    (pair,) = [(sample, golden) for name, sample, golden, _ in cases(shared, "msprobe") if name == "int64_big"]
    (row,) = compared(*pair, metrics=["MaxAbsoluteError", "mae"]).rows
    assert row.extra == {"MaxAbsoluteError": 3.0, "mae": 2.0}


def test_golden_zeros_are_counted():
    (row,) = compared(np.array([1.0, 2, 3]), np.array([0.0, 2, 3]), metrics=["MaxRelativeError", "mae"]).rows
    assert (row.extra["MaxRelativeError"], dict(row.left_out)) == (0.0, {"MaxRelativeError": 1})
    assert math.isclose(row.extra["mae"], 1 / 3)


def test_unknown_names_offer_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown metric 'dif2'.*diff2"):
        compared(np.ones(2), np.ones(2), metrics=["dif2"])
    with pytest.raises(ConfigError, match=r"unknown vendor's metrics 'msprob'.*msprobe"):
        compared(np.ones(2), np.ones(2), compatible="msprob")


@pytest.mark.parametrize(
    ("benchmark", "thousandth", "five"),
    [(1000.0, "0.0", "1.0"), (1001.0, "1.0", "1.0"), (200.0, "0.0", "0.0"), (201.0, "0.0", "1.0")],
)
def test_msprobes_ratios_are_of_errors_below_their_limit(benchmark, thousandth, five):
    b = np.full(4, benchmark)
    values = VENDOR_METRICS["msprobe"](b + 1, b).values
    assert values["One Thousandth Err Ratio"] == thousandth and values["Five Thousandths Err Ratio"] == five


@pytest.mark.parametrize(("cosine", "digits"), [(0.9995, 12), (0.99989, 12), (0.99991, 6)])
def test_msprobes_cosine_has_six_decimals_only_above_09999(cosine, digits):
    n = np.array([cosine, math.sqrt(1 - cosine**2)]) * math.pi
    shown = VENDOR_METRICS["msprobe"](n, np.array([math.e, 1e-5])).values["Cosine"]
    exact = float(np.dot(n, [math.e, 1e-5]) / math.hypot(math.e, 1e-5) / math.pi)
    assert shown == str(round(exact, digits)) != str(round(exact, 18 - digits))


@pytest.mark.parametrize(
    ("mean", "shown"), [(0.0009, "0.000"), (-0.0009, "0.000"), (0.0016, "0.002"), (0.006, "0.006")]
)
def test_msaccucmp_prints_less_than_a_thousandth_as_zero(mean, shown):
    m = np.full(4, mean, np.float32)
    found = VENDOR_METRICS["msaccucmp"](m, m).values["StandardDeviation"]
    assert found.startswith(f"({shown};0.000)")


@pytest.mark.parametrize(("golden", "largest"), [(2.0**-51, "1.000000"), (2.0**-52, "0.000000")])
def test_msaccucmp_takes_no_relative_error_up_to_its_epsilon(golden, largest):
    g = np.full(3, golden, np.float32)
    values = VENDOR_METRICS["msaccucmp"](2 * g, g).values
    assert values["MaxRelativeError"] == values["MeanRelativeError"] == largest
    assert float(values["AccumulatedRelativeError"]) == 3 * float(largest)
