"""Our digits against those the SDK's own script printed, for every pair of genuine dumps.

Every permitted difference is named here; anything else fails.
"""

import pytest

import sgsdump
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.reports.comparison import REPORTS

FLOAT = "dumps/tiny_float_a_full"
ONNX = "reference_dumps/onnx/dump_bin_True/onnx_NHWC_outtensor_dump.bin"
PAIRS = {
    "fixed_vs_float": ("dumps/tiny_fixed_a_elim_dequant", FLOAT),
    "rev": (FLOAT, "dumps/tiny_fixed_a_elim_dequant"),
    "nofuse": ("dumps/tiny_nofuse_elim_dequant", FLOAT),
    "all16": ("dumps/tiny_all16_elim_dequant", FLOAT),
    "dequant_noelim": ("dumps/tiny_fixed_c_dequant", FLOAT),
    "float_vs_onnx": (FLOAT, ONNX),
    "onnx_vs_onnx": (ONNX, ONNX),
    "caffe_vs_onnx": ("reference_dumps/caffe/dump_bin_True/caffe_NHWC_outtensor_dump.bin", ONNX),
    "tfsim_vs_tflite": (
        "dumps/tflite_float_elim",
        "reference_dumps/tflite/dump_bin_True/tflite_outtensor_dump.bin",
    ),
    "edge_cases": ("compare_reports/edge_cases/sample.bin", "compare_reports/edge_cases/benchmark.bin"),
    "newstyle": ("newstyle/fixed_new.bin", "newstyle/float_new.bin"),
    "newstyle_fixed_vs_onnx": ("newstyle/fixed_new.bin", ONNX),
}

# rows the script leaves out, though they can be compared
DROPPED = {
    "edge_cases": {
        "2.nchw2.xx.output0",  # a sample in NHWC against a benchmark in NCHW
        "7.rs2.xx.output0",  # a 2-D sample against a 4-D benchmark
        "19.dup.xx.output0",  # two sample directories match
        "20.x.y.xx.output0",  # so they do here: *.x.y matches z.x.y too
    },
    # a sample without shapes counts as [0,0,0,0] against a 4-D benchmark
    "float_vs_onnx": {
        f"{name}.xx.output0"
        for name in ("0.cat 1.conv1 2.relu1 3.block_dw 4.block_pw 5.add 6.pool1 7.conv2 8.conv3 9.sig 10.gap".split())
    },
    "tfsim_vs_tflite": {
        f"{name}.xx.output0" for name in "0.conv1_Relu 1.dw_BiasAdd 2.add_add 3.pool_MaxPool 4.conv2_BiasAdd".split()
    },
}

# numbers that differ on purpose: (report, layer, metric) -> (the script's, ours)
DIFFERENT = {
    # the script subtracts in single precision
    ("dequant_noelim", "7.conv2.xx.output0", "MSE"): ("76.003201", "76.003200"),
    # the script prints the COS of the values as they lie, but MSE and RMSE of the transposed ones
    ("edge_cases", "5.cube3.xx.output0", "MSE"): ("2.022433", "1.636738"),
    ("edge_cases", "5.cube3.xx.output0", "RMSE"): ("1.453600", "1.329689"),
    # the script multiplies in single precision, which overflows
    ("edge_cases", "22.big.xx.output0", "COS"): ("inf", "0.999840"),
}


def open_genuine(shared, name):
    path = shared / "sigmastar" / name
    return sgsdump.open_dump(path / "sigma_outtensor_dump.bin" if path.is_dir() else path)


def parse(line: str) -> tuple[str, str, str, dict[str, str]]:
    """Layer, op type, type and the printed metrics of a line of the script."""
    layer, _, rest = line.partition("\tOP: ")
    op_type, _, rest = rest.partition("  Type: ")
    words = rest.replace("**** OVER threshold!!!! ****", "").split()
    at = words.index("MSE:")
    return layer, op_type, words[0], dict(zip(["MSE", "COS", "RMSE"], words[at + 1 :: 2]))


def printed(shared, name: str) -> dict[str, tuple]:
    log = (shared / "sigmastar/compare_reports" / name / "doAnalyzeRmse_run.log").read_text()
    return {line[0]: line[1:] for line in map(parse, log.splitlines()[1:])}


@pytest.mark.parametrize("name", PAIRS)
def test_digits(shared, name):
    comparison = sgsdump.compare(*(open_genuine(shared, path) for path in PAIRS[name]))
    ours = {line[0]: line[1:] for line in map(parse, REPORTS["sdk_lines"](comparison, DOCUMENTED).splitlines())}
    theirs = printed(shared, name)
    assert theirs.keys() | DROPPED.get(name, set()) == ours.keys()
    for layer, (op_type, type_name, numbers) in theirs.items():
        assert ours[layer][:2] == (op_type, type_name)
        for metric, number in numbers.items():
            their, our = DIFFERENT.get((name, layer, metric), (number, number))
            assert number == their
            # the sign of a nan is no information
            assert ours[layer][2][metric].replace("-nan", "nan") == our.replace("-nan", "nan")


def test_rows_the_script_drops_are_equal_tensors(shared):
    for name, layers in DROPPED.items():
        comparison = sgsdump.compare(*(open_genuine(shared, path) for path in PAIRS[name]))
        lines = map(parse, REPORTS["sdk_lines"](comparison, DOCUMENTED).splitlines())
        numbers = {layer: metrics for layer, _, _, metrics in lines}
        assert all(numbers[layer]["COS"] == "1.000000" for layer in layers)
        assert all(float(numbers[layer]["RMSE"]) <= 3e-6 for layer in layers)


def test_over_threshold_mark_is_the_scripts(shared):
    for name in ("fixed_vs_float", "dequant_noelim", "rev"):
        comparison = sgsdump.compare(*(open_genuine(shared, path) for path in PAIRS[name]))
        ours = REPORTS["sdk_lines"](comparison, DOCUMENTED).splitlines()
        log = (shared / "sigmastar/compare_reports" / name / "doAnalyzeRmse_run.log").read_text().splitlines()[1:]
        marked = [[line.split("\t")[0] for line in lines if "OVER" in line] for lines in (ours, log)]
        assert marked[0] == marked[1]


def test_equal_integers_are_equal_where_the_script_reads_them_as_floats(shared):
    """The script prints 1e73 and nan for two equal integer dumps."""
    assert float(printed(shared, "int_vs_int")["0.relu1.xx.output0"][2]["MSE"]) > 1e73
    dump = open_genuine(shared, "dumps/tiny_fixed_b_elim")
    comparison = sgsdump.compare(dump, dump)
    assert [(row.error, row.integers.identical) for row in comparison] == [(0.0, True)] * 13
    assert comparison.passes()


def test_integers_are_refused_against_floats(shared):
    """Of which the script prints nothing."""
    comparison = sgsdump.compare(open_genuine(shared, "dumps/tiny_fixed_b_elim"), open_genuine(shared, FLOAT))
    assert not comparison.rows and len(comparison.failed) == 13
    assert all("true scale" in failed.reason for failed in comparison.failed)
    assert not comparison.passes()


def test_full_precision(shared):
    """Against the newer SDK's own functions: exact name, inputs too, network input cropped to its shape."""
    lines = (shared / "sigmastar/newstyle/precise_metrics.tsv").read_text().splitlines()[1:]
    comparison = sgsdump.compare(*(open_genuine(shared, path) for path in PAIRS["newstyle"]), inputs=True)
    rows = {row.name: row for row in comparison.rows}
    assert len(lines) == len(rows) == 14
    for line in lines:
        name, count, mse, cos, rmse = line.split("\t")
        row = rows[name]
        assert row.count == int(count)
        assert (row.mse, row.cos, row.rmse) == pytest.approx((float(mse), float(cos), float(rmse)), rel=1e-6)


def test_old_picture_input_is_cropped_and_said(shared):
    comparison = sgsdump.compare(*(open_genuine(shared, path) for path in PAIRS["fixed_vs_float"]), inputs=True)
    row = comparison.rows[0]
    assert (row.name, row.count) == ("data", 1440) and row.cos > 0.9999
    assert "first 1440 of 1920" in row.note


def test_what_cannot_be_compared_says_why(shared):
    comparison = sgsdump.compare(*(open_genuine(shared, path) for path in PAIRS["edge_cases"]))
    assert [f.pair.benchmark.name for f in comparison.failed] == ["size"]
    assert "15 values [1, 15]" in comparison.failed[0].reason and "16 values [1, 16]" in comparison.failed[0].reason
    assert [u.record.name for u in comparison.only_in_benchmark] == ["only_bench", "oidx"]
    assert [u.record.name for u in comparison.only_in_sample] == ["only_sample", "oidx", "dup", "z.x.y"]
    notes = {row.name: row.note for row in comparison.rows}
    assert "transposed" in notes["cube"] and "0.057178" in notes["cube"]
    assert "transposed" in notes["nchw1"] and "transposed" in notes["nchw2"] and not notes["cube2"]
    not_finite = {row.name for row in comparison.rows if not row.finite}
    assert not_finite == {"hasnan", "hasinf"} and not any(r.passes() for r in comparison.rows if r.name in not_finite)
