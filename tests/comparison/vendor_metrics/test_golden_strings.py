"""Every string that the vendors' own tools printed for the genuine inputs, and what the honest metrics say there."""

import csv
import json
import math

import numpy as np
import pytest

import sgsdump
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.vendor_metrics import VENDOR_METRICS, VENDOR_STATISTICS
from sgsdump.comparison.vendor_metrics.msaccucmp import printed
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.tensors.statistics import Statistics
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
        # the case one_element_vector was made by a call that named the shape's type; the tool takes it from the shape
        if sample.size > 1 and sample.dtype != bool:
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
    assert row.vendor == VENDOR_METRICS[tool](*found).values


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


def of_msaccucmp(sample, golden):
    return VENDOR_METRICS["msaccucmp"](np.array(sample, np.float32), np.array(golden, np.float32))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_msaccucmp_calls_one_element_a_scalar(shape):
    printed = of_msaccucmp(np.full(shape, -2.0), np.full(shape, 3.0))
    assert printed.values["CosineSimilarity"] == "1.000000" and printed.message == "This tensor is scalar."


def test_msaccucmp_takes_inf_in_golden_as_an_error_of_one():
    values = of_msaccucmp([1.0, 2.0], [math.inf, 2.0]).values
    assert (values["MaxRelativeError"], values["AccumulatedRelativeError"]) == ("1.000000", "1.000000")


def test_msaccucmp_tests_zero_on_the_root_of_the_norm():
    tiny, ones = np.full(4, 1e-20), np.ones(4)
    assert of_msaccucmp(tiny, ones).values["CosineSimilarity"] == "1.000000"
    assert of_msaccucmp(tiny, tiny).values["CosineSimilarity"] == "1.0"
    assert of_msaccucmp(np.zeros(4), ones).values["CosineSimilarity"] == "NaN"


def test_msaccucmp_sums_the_zeros_in_their_places():
    """numpy adds float32 pairwise, so what stands between the terms decides the last digits."""
    rng = np.random.default_rng(5)
    differ = 0
    for _ in range(20):
        g = np.maximum(rng.standard_normal(3000), 0).astype(np.float32)
        m = (g + rng.standard_normal(3000) * 0.05).astype(np.float32)
        with np.errstate(all="ignore"):
            terms = np.where(g == 0, np.float32(0), np.abs(m / g - 1))
            apart = np.abs(m - g)[g > 0] / g[g > 0]
        values = of_msaccucmp(m, g).values
        assert values["AccumulatedRelativeError"] == f"{terms.sum():f}"
        assert values["MaxRelativeError"] == f"{terms.max():f}"
        norms = [np.sqrt(np.add.reduce(side * side)) for side in (m, g)]
        assert values["CosineSimilarity"] == f"{np.sum(m / norms[0] * (g / norms[1])):f}"
        differ += f"{apart.sum():f}" != f"{terms.sum():f}"
    assert differ


def test_imaginary_parts_are_dropped_and_one_bool_is_a_number():
    m, g = np.array([1 + 5j, 2 - 1j]), np.array([1 + 0j, 2 + 7j])
    assert VENDOR_METRICS["msaccucmp"](m, g).values["MaxAbsoluteError"] == "0.000000"
    mixed = VENDOR_METRICS["msaccucmp"](np.array([True, False]), np.array([1.0, 0.5])).values
    assert mixed["MaxAbsoluteError"] == "0.500000"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_msprobes_epsilon_is_that_of_float32_for_half_precision(dtype):
    n = np.array([0.01, 1.0], np.float16).astype(dtype)
    values = VENDOR_METRICS["msprobe"](n, np.array([0, 1], dtype)).values
    assert values["MaxRelativeErr"] == "83904.0"


def test_msprobe_raises_both_sides_where_the_benchmark_is_zero():
    n, epsilon = np.float32(2.0000002), np.float32(2**-23)
    values = VENDOR_METRICS["msprobe"](np.array([n, 1], np.float32), np.array([0, 1], np.float32)).values
    assert values["MaxRelativeErr"] == str(float((np.float32(n + epsilon) - epsilon) / epsilon)) != str(n / epsilon)


def test_msprobes_eight_columns_of_statistics():
    sides = [
        Dump([Record("out", 0, 0, "Add", Tensor.of_statistics(Tensor.of("x", np.ones(4)).info, statistics))])
        for statistics in (Statistics(-1.0, 3.0, 0.5, None), Statistics(-2.0, 2.0, 0.0, 4.0))
    ]
    (row,) = sgsdump.compare(*sides, compatible="msprobe").rows
    assert dict(row.vendor) == {
        "Max diff": "1.0",
        "Min diff": "1.0",
        "Mean diff": "0.5",
        "L2norm diff": "Diff",
        "MaxRelativeErr": "50.0%",
        "MinRelativeErr": "50.0%",
        "MeanRelativeErr": "inf",
        "NormRelativeErr": "Diff",
    }
    assert not sgsdump.compare(*sides, compatible="msaccucmp").rows[0].vendor


@pytest.mark.parametrize(
    ("sample", "benchmark", "printed"),
    [
        (1.5, 1.5, ("0", "0")),
        (0.0, 0.0, ("0", "0")),
        (None, None, ("0", "0")),
        (math.nan, math.nan, ("0", "0")),
        (0.0, -0.0, ("0.0", "inf")),
        (2.0, 0.0, ("2.0", "inf")),
        (math.nan, 1.0, ("Nan", "Nan")),
        (math.inf, math.nan, ("Nan", "Nan")),
        (math.inf, 1.0, ("inf", "inf")),
        (-math.inf, math.inf, ("-inf", "-inf")),
        (1.0, math.inf, ("-inf", "-inf")),
        (1.0, -math.inf, ("inf", "inf")),
        (1.0, None, ("Diff", "Diff")),
    ],
)
def test_msprobes_strings_of_a_statistic(sample, benchmark, printed):
    values = VENDOR_STATISTICS["msprobe"](Statistics(max=sample), Statistics(max=benchmark), False).values
    assert (values["Max diff"], values["MaxRelativeErr"]) == printed
    assert values["Min diff"] == values["MinRelativeErr"] == "0"


def test_every_cell_of_statistics_is_msprobes(shared):
    """Of its own dumps, by its own compare (26.2.0)."""
    folder = shared / "msprobe"
    compared = sgsdump.compare(folder / "sample", folder / "benchmark", compatible="msprobe")
    with (folder / "compared.csv").open(newline="") as file:
        theirs = {row["NPU Name"]: row for row in csv.DictReader(file) if row["NPU Dtype"].startswith("torch.")}
    assert {row.name for row in compared} == set(theirs) and len(theirs) == 16
    assert sum(len(row.vendor) for row in compared) == 128
    for row in compared:
        assert row.vendor == {column: theirs[row.name][column] for column in row.vendor}, row.name


def test_msprobe_calls_booleans_that_differ_only_that():
    values = VENDOR_STATISTICS["msprobe"](Statistics(0.0, 1.0), Statistics(1.0, 1.0), True).values
    assert (values["Min diff"], values["MinRelativeErr"], values["Max diff"]) == ("Diff", "Diff", "0")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(0, np.float32), "does not support empty data."),
        (np.array([True, False]), "does not support Boolean types."),
        (np.zeros(0, bool), "does not support empty data."),
    ],
)
def test_what_msaccucmp_does_not_support(values, message):
    found = printed(values, values)
    assert found.values["MaxAbsoluteError"] == "NaN" and message in found.message
    assert found.message.count("does not support") == len(found.values) - 1
