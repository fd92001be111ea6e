"""A comparison of two folders of operator dumps against msaccucmp's own report of the same two."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sgsdump import Comparison, compare, open_dump

FOLDER = "ascend/ge_dump/compare"
METRICS = (
    "CosineSimilarity MaxAbsoluteError AccumulatedRelativeError RelativeEuclideanDistance KullbackLeiblerDivergence "
    "StandardDeviation MeanAbsoluteError RootMeanSquareError MaxRelativeError MeanRelativeError"
).split()


@pytest.fixture
def found(shared: Path) -> Comparison:
    mine, golden = (open_dump(shared / FOLDER / side) for side in ("my", "golden"))
    return compare(mine, golden, compatible="msaccucmp")


def report(shared: Path, name: str) -> list[dict[str, str]]:
    (path,) = (shared / FOLDER / name).glob("*.csv")
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_tensors_with_the_same_digits(shared: Path, found: Comparison) -> None:
    """Inputs too, and tensors in device layouts without their padding, as the vendor compares them."""
    theirs = {row["TensorIndex"]: row for row in report(shared, "result_npu_vs_npu") if row["TensorIndex"] != "NaN"}
    older = [row for row in found.rows if "#" in row.name]
    assert [row.name for row in older] == ["twice#1:output:0"]
    assert sorted(row.name for row in found.rows if row not in older) == sorted(theirs)
    for row in found.rows:
        if row in older:
            continue
        assert dict(row.vendor) == {name: theirs[row.name][name] for name in METRICS}, row.name


def test_what_the_vendor_only_says_in_its_last_column(shared: Path, found: Comparison) -> None:
    (path,) = (shared / FOLDER / "result_npu_vs_npu").glob("*.csv")
    assert "shape does not match ((2, 3) vs (4)) for shape_mismatch:output:0" in path.read_text()
    (failed,) = found.failed
    assert failed.pair.benchmark.name == "shape_mismatch:output:0"
    assert "sample 6 values [2, 3], benchmark 4 values [4]" in failed.reason
    assert [u.record.name for u in found.only_in_sample] == ["only_my:output:0"]
    assert [u.record.name for u in found.only_in_benchmark] == ["only_golden:output:0"]
    rows = {row.name.partition(":")[0]: row for row in found.rows if row.io == "out"}
    assert rows["zero"].vendor_message.startswith("Cannot compare by Cosine Similarity. All the data is zero in")


def test_what_is_ours_alone(found: Comparison) -> None:
    """The vendor compares int8 with float32, counts no NaN and passes all: exit status 0."""
    rows = {row.name: row for row in found.rows}
    cast = rows["dtype_mismatch:output:0"]
    assert cast.dtype_note == "dtypes differ: sample int8, benchmark float32" and cast.verdict() == "warn"
    assert rows["nan:output:0"].sample_nan == 1 and rows["nan:output:0"].verdict() == "fail"
    assert rows["exp:output:0"].sample_inf == 1 and rows["exp:output:0"].verdict() == "fail"
    assert rows["scalar:output:0"].vendor_message == "This tensor is scalar."
    assert not found.passes()


def test_against_the_float_models_arrays(shared: Path) -> None:
    """Device layouts against plain arrays of another tool, paired by hand; the vendor pairs them by a fusion file."""
    golden = open_dump(shared / FOLDER / "golden_npy")
    operators = {"data_0": "data_0", "conv1_relu": "conv1conv1_relu", "fc": "fc"}
    names = {f"{golden_name}.0.1700000000000000": f"{name}:output:0" for golden_name, name in operators.items()}
    found = compare(open_dump(shared / FOLDER / "my"), golden, name_map=names, compatible="msaccucmp")
    theirs = {row["TensorIndex"]: row for row in report(shared, "result_npu_vs_golden_npy_with_fusion")}
    assert len(found.rows) == 3
    for row in found.rows:
        assert dict(row.vendor) == {name: theirs[row.sample_name][name] for name in METRICS}, row.name
