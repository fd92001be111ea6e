"""Where rounding is magnified: rotary angles in bfloat16, against the same in float32."""

import ml_dtypes
import numpy as np
import pytest
from module_runs import Run
from verdict_words import sentences

from sgsdump import compare
from sgsdump.comparison.magnified import magnified


def angles(first, narrow):
    """The run of a module that gives the cosines of positions times frequencies."""
    dtype = ml_dtypes.bfloat16 if narrow else np.float32
    positions = np.arange(first, first + 8).astype(np.float32)[:, None]
    frequencies = np.array([[1.0, 0.5, 0.25, 0.125]], np.float32)
    run, cast = Run(), positions.astype(dtype)
    product = (cast.astype(np.float32) * frequencies).astype(dtype)
    cosines = np.cos(product.astype(np.float32)).astype(dtype)
    run.add("rotary", "aten._to_copy", [positions], cast)
    run.add("rotary", "aten.mul", [cast, frequencies.astype(dtype)], product)
    run.add("rotary", "aten.cos", [product], cosines)
    weight = np.eye(4, dtype=np.float32)
    for index in range(2):  # products in another type: the program was converted
        run.add(f"fc{index}", "aten.mm", [cosines, weight.astype(dtype)], cosines)
    return run.dump()


def test_the_operator_is_named_and_where_rounding_began():
    comparison = compare(angles(300, narrow=True), angles(300, narrow=False))
    findings = comparison.findings()
    (found,) = [finding for finding in findings if finding.kind == "magnified"]
    assert (found.op_type, found.facts["module"]) == ("aten.cos", "rotary")
    assert found.facts["rounded"] == "rotary/aten._to_copy_0/output.0"
    error = comparison["rotary/aten.cos_2/output.0"].rmse
    assert found.figures["times"] == pytest.approx(error / comparison["rotary/aten.mul_1/output.0"].rmse)
    assert not [finding for finding in findings if finding.kind in ("cause", "argument")]
    assert "magnifies rounding" in " ".join(sentences(comparison))


def test_angles_that_fit_are_not():
    findings = compare(angles(0, narrow=True), angles(0, narrow=False)).findings()
    assert [finding.kind for finding in findings if finding.kind in ("magnified", "rounding")] == ["rounding"]


def test_a_cast_that_one_side_alone_has_is_told_of_what_reads_it():
    """As autocast does: the angles are made in float32, and the product reads them in bfloat16."""
    runs = []
    for dtype in (ml_dtypes.bfloat16, np.float32):
        run, positions = Run(), np.arange(300, 308).astype(np.float32)[:, None]
        run.add("rotary", "aten.unsqueeze", [positions[:, 0]], positions)
        if dtype != np.float32:
            run.add("rotary", "aten._to_copy", [positions], positions.astype(dtype))
        product = (positions.astype(dtype).astype(np.float32) * np.float32(0.5)).astype(dtype)
        cosines = np.cos(product.astype(np.float32)).astype(dtype)
        run.add("rotary", "aten.mul", [positions.astype(dtype)], product)
        run.add("rotary", "aten.cos", [product], cosines)
        for index in range(2):
            run.add(f"fc{index}", "aten.mm", [cosines, np.eye(1).astype(dtype)], cosines)
        runs.append(run.dump())
    (found,) = [one for one in compare(*runs).findings() if one.kind == "magnified"]
    assert found.facts["rounded_type"] == "aten.mul"


@pytest.mark.parametrize(
    ("read", "given", "is_named"),
    [(0.02, 0.19, False), (0.02, 0.21, True), (0.001, 0.049, False), (0.001, 0.051, True)],
)
def test_ten_times_what_is_read_and_five_percent(read, given, is_named):
    x, dumps = np.linspace(1, 2, 8, dtype=np.float32), []
    for off, further in ((read, given), (0, 0)):
        run = Run()
        run.add("net", "aten.cos", [x * np.float32(1 + off)], x * np.float32(1 + further))
        dumps.append(run.dump())
    assert (magnified(compare(*dumps).rows, dumps[1].network()) is not None) is is_named
