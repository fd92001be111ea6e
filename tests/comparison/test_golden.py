"""The three-way comparison against plain numpy formulas, its edges, and the log's lines against the seed's own."""

import csv
import io
import json
import math
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sgsdump.comparison.golden import GoldenRow, GoldenSettings, compare_files, compare_golden, diff3
from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.reports.golden import golden_closing, golden_csv, golden_json, golden_lines
from sgsdump.reports.golden import golden_log as render
from sgsdump.tensors.tensor import Tensor


def files(**given):
    return {f"{name}.npy": lambda array=array: np.asarray(array) for name, array in given.items()}


def dump(**given):
    return Dump([Record("out", 0, i, "Relu", Tensor.of(n, np.asarray(a))) for i, (n, a) in enumerate(given.items())])


def one(e, c, g=None, **settings):
    sides = [files(x=side) for side in (e, c, g) if side is not None]
    return compare_files(*sides, settings=GoldenSettings(**settings)).rows[0]


def literal(e, b, th):
    """diff3 value by value, as the formula reads."""
    return [abs(x - y) / (abs(y) + 1e-9) if abs(y) > th else abs(x - y) for x, y in zip(e.tolist(), b.tolist())]


FLOATS = st.floats(-100, 100, width=32)


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(*[arrays(np.float32, n, elements=FLOATS)] * 3)))
def test_formulas(sides):
    e, c, g = sides
    row = one(e, c, g, th1=1e-3)
    sw, accepted = literal(e, g, 1e-3), literal(c, g, 1e-3)
    assert row.max_sw == pytest.approx(max(sw), rel=1e-5, abs=1e-9)
    assert row.mean_sw == pytest.approx(sum(sw) / len(sw), rel=1e-5, abs=1e-9)
    assert (row.max_g, row.mean_g) == pytest.approx((max(accepted), sum(accepted) / len(sw)), rel=1e-5, abs=1e-9)
    if (c.astype(float) ** 2).sum() > 1e-30:
        expected = math.sqrt(math.fsum((e.astype(float) - c) ** 2) / math.fsum(c.astype(float) ** 2))
        assert row.diff2 == pytest.approx(expected, rel=1e-4, abs=1e-20)
    assert row.max_passes == (row.max_sw <= row.max_g * 10) and row.mean_passes == (row.mean_sw <= row.mean_g * 10)


@given(
    st.tuples(*[arrays(np.float32, 5, elements=st.floats(-2, 2, width=32) | st.just(math.nan))] * 2),
    st.sampled_from([1e-6, 1e-3, 0.5]),
)
def test_all_close_is_numpys(sides, th1):
    e, c = sides
    try:
        np.testing.assert_allclose(e, c, rtol=th1, atol=th1)
        expected = True
    except AssertionError:
        expected = False
    assert one(e, c, th1=th1).all_close is expected


def test_a_zero_golden_error_lets_only_zero_pass():
    g = np.array([1.0, 2.0], np.float32)
    assert one(g, g, g).verdict == "pass"
    row = one(g + np.float32(1e-6), g, g)
    assert (row.max_g, row.mean_g, row.verdict) == (0.0, 0.0, "fail")


def test_as_good_within_the_tag():
    g = np.array([1.0, 1.0], np.float32)
    assert one(g * 1.01, g * 1.002, g).verdict == "pass"
    assert one(g * 1.01, g * 1.002, g, tag=4.0).verdict == "fail"


def test_the_threshold_takes_small_golden_values_absolutely():
    e, g = np.array([3e-7], np.float32), np.array([1e-7], np.float32)
    assert diff3(e, g, 1e-6)[0] == pytest.approx(2e-7, rel=1e-3)
    assert diff3(e, g, 1e-8)[0] == pytest.approx(2e-7 / (1e-7 + 1e-9), rel=1e-3)
    # exactly at the threshold counts as small
    assert diff3(np.array([3.0]), np.array([2.0]), 2.0)[0] == 1.0


def test_zero_benchmarks():
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert one(ones, zeros).diff2 == math.inf and math.isnan(one(zeros, zeros).diff2)
    assert one(zeros, zeros).verdict == "pass"


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_not_finite_is_never_hidden(odd, side):
    sides = [np.ones(4, np.float32) for _ in range(3)]
    sides[side][1] = odd
    row = one(*sides)
    assert row.nan_inf and row.verdict == "fail"


def test_the_sign_of_inf_counts():
    assert one(np.array([np.inf, 1]), np.array([np.inf, 1])).verdict == "warn"
    assert one(np.array([np.inf, 1]), np.array([-np.inf, 1])).verdict == "fail"


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, bool])
def test_integers_do_not_wrap(dtype):
    small, large = np.array([0, 1], dtype), np.array([1, 0], dtype)
    row = one(small, large, large)
    assert (row.max_sw, row.max_g, row.diff2) == (pytest.approx(1.0), 0.0, pytest.approx(math.sqrt(2)))


def test_large_integers_are_not_taken_in_float32():
    assert one(np.array([2**40 + 1]), np.array([2**40])).diff2 > 0


def test_imaginary_parts_count():
    assert one(np.array([1 + 2j, 3 - 1j]), np.array([1 + 2j, 3 + 1j])).verdict == "fail"


def test_half_against_single_is_promoted_and_said():
    g = np.array([0.1, 1000.1], np.float32)
    half = g.astype(np.float16)
    row = one(half, half, g)
    assert row.verdict == "pass" and row.note == ""
    assert row.max_sw == float(np.max(np.abs(half - g) / (np.abs(g) + np.float32(1e-9))))
    assert "dtypes differ: sample float16, benchmark float32" in one(half, half.astype(np.float32), g).note


def test_empty_arrays_agree():
    empty = np.zeros((0, 3), np.float32)
    assert one(empty, empty, empty).verdict == "pass" and one(empty, empty).verdict == "pass"


SEED_3 = (
    "index: 0 | relu_3.tmp_0.npy | nan_inf: False | diff2: 0.0 | diff3_max=pass | diff3_mean=pass | diff3_max_sw: 0.0 "
    "| diff3_max_g: 0.0*10.0=0.0 | diff3_mean_sw: 0.0 | diff3_mean_g: 0.0*10.0=0.0\n"
)
SEED_2 = "index: 0 | relu_3.tmp_0.npy | nan_inf: False | diff2: 0.0 | all_close: True | th: 1e-06\n"


def test_the_seeds_lines_to_the_letter():
    same = {"relu_3.tmp_0.npy": lambda: np.ones(4, np.float16)}
    assert golden_lines(compare_files(same, same, same)) == SEED_3
    assert golden_lines(compare_files(same, same)) == SEED_2


def test_the_whole_log():
    g = np.array([1.0, 2.0], np.float32)
    sample = files(b=g, a=g * 2, s=g, n=np.array([np.nan, 1]), d=g)
    benchmark = files(b=g, a=g, c=g, n=np.array([np.nan, 1]), d=g, z=g[:1])
    golden = files(b=g, a=g, g=g, n=g)
    found = compare_files(sample, benchmark, golden, GoldenSettings(5.0, titles=("sw", "ort", "fp32")))
    assert not found.passes and render(found) == (
        "index: 0 | a.npy | nan_inf: False | diff2: 1.0 | diff3_max=fail | diff3_mean=fail | diff3_max_sw: 1.0 | "
        "diff3_max_g: 0.0*5.0=0.0 | diff3_mean_sw: 1.0 | diff3_mean_g: 0.0*5.0=0.0\n"
        "index: 1 | b.npy | nan_inf: False | diff2: 0.0 | diff3_max=pass | diff3_mean=pass | diff3_max_sw: 0.0 | "
        "diff3_max_g: 0.0*5.0=0.0 | diff3_mean_sw: 0.0 | diff3_mean_g: 0.0*5.0=0.0\n"
        "index: 2 | n.npy | nan_inf: True | diff2: nan | diff3_max=fail | diff3_mean=fail | diff3_max_sw: nan | "
        "diff3_max_g: nan*5.0=nan | diff3_mean_sw: nan | diff3_mean_g: nan*5.0=nan\n"
        "Files only in fp32: {'g.npy'}\n"
        "Files not in fp32: {'d.npy'}\n"
        "Common files with differences: {'a.npy', 'b.npy', 'n.npy'}\n"
        "Files only in sw: {'s.npy'}\n"
        "Files only in ort: {'c.npy', 'z.npy'}\n"
        "------------------------- summary message -------------------------\n"
        "nan_inf list: ['n.npy']\n"
        "------------------------- diff2 list message -------------------------\n"
        "diff2 list: ['a.npy']\n"
        "------------------------- diff3 list message -------------------------\n"
        "other list: ['a.npy', 'n.npy']\n"
    )


def test_a_bad_file_stops_nothing():
    def damaged():
        raise FormatError("b.npy is cut off")

    g = np.ones(3, np.float32)
    found = compare_files(files(a=g[:2], c=g) | {"b.npy": damaged}, files(a=g, b=g, c=g))
    assert [row.verdict for row in found.rows] == ["not comparable", "not comparable", "pass"]
    lines = render(found).splitlines()
    assert lines[0] == "index: 0 | a.npy | not comparable: shape mismatch: sample (2,), benchmark (3,)"
    assert lines[1] == "index: 1 | b.npy | not comparable: b.npy is cut off"
    assert lines[2].startswith("index: 2 | c.npy | nan_inf: False") and lines[3] == (
        "Common files with differences: {'a.npy', 'b.npy', 'c.npy'}"
    )
    assert lines[4] == "Files only in sample: set()" and lines[-1] == "other list: ['a.npy', 'b.npy']"


def test_nothing_in_common_is_an_error():
    with pytest.raises(ValuesError, match="no file in common: sample has 1, benchmark has 1"):
        compare_files(files(a=1), files(b=1))
    with pytest.raises(ValuesError, match="no tensor in common"):
        compare_golden(dump(a=[1.0]), dump(a=[1.0]), dump(b=[1.0]))
    with pytest.raises(ConfigError, match="input tag"):
        compare_files(files(a=1), files(a=1), settings=GoldenSettings(tag=-1))


def test_dumps_are_paired_as_compare_pairs_them():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    sample = dump(**{"a/b": x.transpose(0, 2, 3, 1), "mine": x})
    benchmark = dump(**{"yours": x, "a/b": x * np.float32(1.001)})
    golden = dump(**{"a_b": x, "theirs": x})
    found = compare_golden(sample, benchmark, golden)
    (row,) = found.rows
    assert (row.file, row.max_sw, row.verdict) == ("a/b.npy", 0.0, "warn") and "reshaped from [1, 3, 4, 2]" in row.note
    assert row.max_g == pytest.approx(1e-3, rel=1e-3)
    assert found.only_in_sample == ("mine.npy",) and found.only_in_benchmark == ("yours.npy",)
    assert found.only_in_golden == ("theirs.npy",) and found.not_in_golden == ()


def test_names_that_are_not_unique_are_said():
    twice = Dump([Record("out", 0, i, "Relu", Tensor.of("a", np.full(2, i, np.float32))) for i in (1, 2)])
    found = compare_golden(twice, twice, twice)
    assert [row.verdict for row in found.rows] == ["warn", "warn"]
    assert found.rows[1].note == "name not unique (2 in sample, 2 in benchmark): paired by position, number 2 of each"


def test_csv_and_json_hold_every_file():
    g = np.array([1.0, 2.0], np.float32)
    two = compare_files(files(a=g[:1], b=g, only=g), files(a=g, b=np.array([np.nan, 1])))
    lines = list(csv.DictReader(io.StringIO(golden_csv(two))))
    assert [line["verdict"] for line in lines] == ["not comparable", "fail", "not comparable"]
    assert [line["index"] for line in lines] == ["0", "1", ""] and lines[2][
        "remark"
    ] == "only in sample, not in benchmark"
    assert (lines[1]["all_close"], lines[1]["diff2"], lines[1]["max_sw"]) == ("False", "nan", "")
    document = json.loads(golden_json(two), parse_constant=lambda word: pytest.fail(word))
    assert document["golden"] is None and not document["passes"]
    assert (document["rows"][1]["diff2"], document["rows"][1]["max_sw"]) == ("nan", None)
    assert document["not_compared"] == [{"file": "only.npy", "reason": "only in sample, not in benchmark"}]
    three = compare_files(files(a=g * 2), files(a=g * 3), files(a=g), GoldenSettings(th1=0.5))
    (row,) = json.loads(golden_json(three))["rows"]
    (line,) = csv.DictReader(io.StringIO(golden_csv(three)))
    assert float(line["max_g"]) == row["max_g"] == 2.0 and line["max_passes"] == "True" and row["verdict"] == "pass"


def test_loaders_are_asked_one_tensor_at_a_time():
    alive = []

    def loader(name):
        def load():
            alive.append(name)
            return np.ones(1, np.float32)

        return load

    seen = []

    class Progress:
        @contextmanager
        def bar(self, what, unit, total=None):
            yield lambda done: seen.append((what, unit, done, len(alive), total))

    sides = [{f"{n}.npy": loader(n) for n in "ab"} for _ in range(3)]
    compare_files(*sides, progress=Progress())
    assert seen == [("compare", "tensor", 1, 3, 2), ("compare", "tensor", 2, 6, 2)]


@pytest.mark.parametrize(
    ("sw", "accepted", "tag", "passes"),
    [
        (1.0, 0.1, 10.0, True),
        (math.nextafter(1.0, 2), 0.1, 10.0, False),
        (0.0, 0.0, 10.0, True),
        (5e-324, 0.0, 10.0, False),
        (1.0, math.inf, 10.0, False),
        (1.0, math.nan, 10.0, False),
        (0.0, 1.0, 0.0, True),
    ],
)
def test_the_largest_and_the_mean_may_be_tag_times_the_benchmarks(sw, accepted, tag, passes):
    fine = {"max_sw": 0.0, "max_g": 1.0, "mean_sw": 0.0, "mean_g": 1.0}
    for what in ("max", "mean"):
        row = GoldenRow("x.npy", "x", tag, **fine | {f"{what}_sw": sw, f"{what}_g": accepted})
        assert getattr(row, f"{what}_passes") is row.passes is passes


@pytest.mark.parametrize(("value", "close"), [(1.5, True), (1.5000001, False), (0.5, True), (0.4999999, False)])
def test_close_is_th1_absolute_and_th1_of_the_benchmark(value, close):
    assert one(np.float32([value]), np.float32([1.0]), th1=0.25).all_close is close


@pytest.mark.parametrize(("e", "listed"), [(1.0009, False), (1.0011, True), (1.009, True)])
def test_the_log_lists_a_diff2_past_a_thousandth(e, listed):
    found = compare_files(files(x=np.float32([e])), files(x=np.float32([1.0])))
    assert ("diff2 list: ['x.npy']" in render(found)) is listed
    exact = compare_files(files(x=np.float32([1.5])), files(x=np.float32([1.0])), settings=GoldenSettings(th2=0.5))
    assert exact.rows[0].diff2 == 0.5 and "diff2 list: []" in render(exact)


@pytest.mark.parametrize("name", ["tag", "th1", "th2"])
def test_zero_is_a_setting_and_less_is_none(name):
    assert one([1.0], [1.0], [1.0], **{name: 0.0}).passes
    for wrong in (-5e-324, math.nan):
        with pytest.raises(ConfigError, match="must be 0 or more"):
            one([1.0], [1.0], [1.0], **{name: wrong})


def test_integers_of_64_bits_that_float64_cannot_tell_apart():
    a, b = (np.array([2**62 + step, 5], np.int64) for step in (1, 0))
    two = compare_files({"x": lambda: a}, {"x": lambda: b}, settings=GoldenSettings(th1=0.0)).rows[0]
    assert two.diff2 > 0 and two.all_close is False
    three = compare_files({"x": lambda: a}, {"x": lambda: b}, {"x": lambda: b}).rows[0]
    assert three.max_sw > 0 and three.max_g == 0 and not three.passes


@pytest.mark.parametrize(("given", "files"), [({}, ["y.npy"]), ({"inputs": True}, ["c.npy", "y.npy"])])
def test_inputs_are_left_out_unless_asked_for(given, files):
    records = [
        Record(io, 0, 0, "Add", Tensor.of(name, np.ones(3, np.float32))) for io, name in (("in", "c"), ("out", "y"))
    ]
    found = compare_golden(Dump(records), Dump(list(records)), Dump(list(records)), **given)
    assert [row.file for row in found.rows] == files


def test_an_error_is_told_of_where_it_is_made():
    """It passes at b, where the benchmark's own error is as large, and no more at c, which b feeds."""

    def run(b, c, error=0.0):
        values = np.linspace(1, 2, 50)
        return dump(a=values * (1 + error), b=values * (1 + b), c=values * (1 + c))

    class Graph(OnnxNetwork):
        def __init__(self):
            super().__init__({0: Operator("", "Relu")}, [("", "", [x], [y], "", {}) for x, y in ("xa", "ab", "bc")])

    def with_graph(each):
        return Dump(each.records, network=Graph)

    sides = [run(0.01, 0.01, 1e-7), run(0.02, 1e-4, 1e-4), run(0, 0)]
    comparison = compare_golden(*map(with_graph, sides))
    (finding,) = comparison.findings
    assert (finding.layer, finding.facts, finding.evidence) == ("b", {"reaches": "c"}, "by value")
    assert golden_closing(comparison) == ["the first failing tensor is c; its error arises at b (Relu)"]
    leading_back = Graph()
    leading_back.reads["a"] = ("c",)
    again = compare_golden(*(Dump(each.records, network=lambda: leading_back) for each in sides))
    assert {f.layer for f in again.findings} <= {"a", "b", "c"}
    sides[0] = run(math.nan, math.nan, 1e-7)
    assert [f.layer for f in compare_golden(*map(with_graph, sides)).findings] == ["b"]
    assert [f.layer for f in compare_golden(*sides).findings] == ["b"]


@pytest.mark.parametrize(("rise", "layer"), [(29, "b"), (31, "c")])
def test_an_error_is_made_where_it_is_thirty_times_that_of_what_feeds_it(rise, layer):
    """c does not pass, and b, which feeds it, does: the benchmark's own error is as large there."""

    class Graph(OnnxNetwork):
        def __init__(self):
            super().__init__({0: Operator("", "Relu")}, [("", "", [x], [y], "", {}) for x, y in ("ab", "bc")])

    values = np.linspace(1, 2, 50)
    errors = [(0.01, 0.01 * rise), (0.02, 1e-3), (0.0, 0.0)]
    sides = [Dump(dump(a=values, b=values * (1 + b), c=values * (1 + c)).records, network=Graph) for b, c in errors]
    assert [finding.layer for finding in compare_golden(*sides).findings] == [layer]
