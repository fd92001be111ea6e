"""Comparisons of several runs merged: the plain formulas over all values, onnxruntime's own, and what is listed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

import sgsdump
from sgsdump.comparison.merge import merge, merge_each, merged_sums
from sgsdump.comparison.metrics import METRICS
from sgsdump.comparison.row import FACTS
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.tensors.tensor import Tensor

RUNS = 5


def dumped(**arrays: np.ndarray) -> Dump:
    return Dump([Record("out", 0, i, "Conv", Tensor.of(name, a)) for i, (name, a) in enumerate(arrays.items())])


def runs(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sample and benchmark of each run, the error larger from run to run."""
    rng = np.random.default_rng(seed)
    pairs = []
    for number in range(RUNS):
        values = rng.standard_normal((1, 4, 6, 6)).astype(np.float32) * np.float32(1 + number)
        error = rng.standard_normal(values.shape).astype(np.float32)
        pairs.append((values + np.float32(0.01 * (number + 1)) * error, values))
    return pairs


def test_merged_runs_equal_the_plain_formulas_over_all_their_values() -> None:
    pairs = runs()
    metrics = ["sqnr", "diff2", "mae", "nan_inf", "RootMeanSquareError", "MaxAbsoluteError", "diff3_max", "mape"]
    metrics += ["AccumulatedRelativeError", "MaxRelativeError", "MeanRelativeError", "all_close", "psnr"]
    single = {str(i): sgsdump.compare(dumped(x=a), dumped(x=b), metrics=metrics) for i, (a, b) in enumerate(pairs)}
    merged = merge(single)["x"]
    a, b = (np.concatenate([pair[side].ravel() for pair in pairs]).astype(np.float64) for side in (0, 1))
    d, relative = a - b, np.abs(a - b) / np.abs(b)
    assert merged.count == a.size
    assert merged.mse == pytest.approx(np.mean(d**2), rel=1e-12)
    assert merged.cos == pytest.approx(a @ b / math.sqrt(a @ a * (b @ b)), rel=1e-12)
    assert merged.rmse == pytest.approx(np.abs(d).sum() / np.abs(b).sum(), rel=1e-12)
    expected = {
        "sqnr": 10 * math.log10(b @ b / (d @ d)),
        "diff2": math.sqrt(d @ d / (b @ b)),
        "mae": np.abs(d).mean(),
        "nan_inf": 0,
        "RootMeanSquareError": math.sqrt(np.mean(d**2)),
        "MaxAbsoluteError": np.abs(d).max(),
        "MaxRelativeError": relative.max(),
        "MeanRelativeError": relative.mean(),
        "AccumulatedRelativeError": relative.sum(),
        "mape": np.mean(np.abs(d) / (np.abs(b) + 1e-9)),
        "diff3_max": np.max(np.abs(d) / (np.abs(b) + 1e-9)),
        "all_close": 0,
        "psnr": np.mean([row["x"].extra["psnr"] for row in single.values()]),
    }
    assert merged.extra == pytest.approx(expected, rel=1e-12)
    # the one comparison of all values laid end to end says the same
    whole = sgsdump.compare(dumped(x=a), dumped(x=b), metrics=["sqnr"])["x"]
    assert (merged.mse, merged.cos, merged.rmse) == pytest.approx((whole.mse, whole.cos, whole.rmse), rel=1e-12)


def test_the_sqnr_is_onnxruntimes() -> None:
    pairs = runs(seed=1)
    merged = merge(
        {str(i): sgsdump.compare(dumped(x=a), dumped(x=b), metrics=["sqnr"]) for i, (a, b) in enumerate(pairs)}
    )
    # onnxruntime wants the list of one activation's values in all runs, the float ones first
    theirs = compute_signal_to_quantization_noice_ratio([b.ravel() for _, b in pairs], [a.ravel() for a, _ in pairs])
    assert merged["x"].extra["sqnr"] == pytest.approx(theirs, rel=1e-6)


def test_means_and_the_worst_run() -> None:
    single = {f"p{i}": sgsdump.compare(dumped(x=a), dumped(x=b)) for i, (a, b) in enumerate(runs())}
    over = merge(single)["x"].runs
    assert over is not None and over.count == RUNS
    rows = {name: comparison["x"] for name, comparison in single.items()}
    worst = max(rows, key=lambda name: rows[name].rmse)
    assert (over.worst, over.worst_rmse, over.worst_cos) == (worst, rows[worst].rmse, rows[worst].cos)
    assert over.mean_rmse == pytest.approx(np.mean([row.rmse for row in rows.values()]), rel=1e-12)
    assert over.mean_cos == pytest.approx(np.mean([row.cos for row in rows.values()]), rel=1e-12)


def test_one_run_is_itself() -> None:
    (a, b), *_ = runs()
    single = sgsdump.compare(dumped(x=a, y=b), dumped(x=b, y=b), metrics=list(METRICS))
    for row, merged in zip(single, merge({"0": single})):
        ours, merged = ({name: getattr(side, name) for name in FACTS if name != "runs"} for side in (row, merged))
        extra, merged_extra = ours.pop("extra"), merged.pop("extra")
        assert merged_extra == pytest.approx(extra, nan_ok=True)
        assert all(str(merged[name]) == str(ours[name]) for name in ours)


def test_what_is_not_finite_in_one_run_is_not_finite_in_all() -> None:
    a = np.ones(4, np.float32)
    bad = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    merged = merge(
        {"good": sgsdump.compare(dumped(x=a), dumped(x=a)), "bad": sgsdump.compare(dumped(x=bad), dumped(x=a))}
    )
    row = merged["x"]
    assert (row.sample_nan, row.sample_inf, row.sample_minus_inf, row.odd_apart) == (1, 2, 1, 3)
    assert math.isnan(row.mse) and not merged.passes() and row.runs is not None and row.runs.worst == "bad"


def test_what_one_run_lacks_is_listed_and_does_not_pass() -> None:
    a, b = np.ones(4, np.float32), np.ones(3, np.float32)
    comparisons = {
        "p0": sgsdump.compare(dumped(x=a, y=a), dumped(x=a, y=a, z=a)),
        "p1": sgsdump.compare(dumped(x=a, y=b), dumped(x=a, y=a, z=a)),
        "p2": sgsdump.compare(dumped(x=a), dumped(x=a, y=a, z=a)),
    }
    merged = merge(comparisons)
    assert [row.name for row in merged] == ["x", "y"]
    assert merged["x"].note == "" and merged["y"].note == "compared in 1 of 3 runs"
    assert [failed.reason.partition(":")[0] for failed in merged.failed] == ["in p1"]
    reasons = {(one.record.name, one.reason) for one in merged.only_in_benchmark}
    assert reasons == {
        ("z", "no output of this name in the sample"),
        ("y", "in p2: no output of this name in the sample"),
    }
    assert not merged.passes()


def test_rises_are_those_of_the_merged_errors() -> None:
    one, two, three = (np.linspace(1, 2, 8, dtype=np.float32) * np.float32(n) for n in (1, 2, 3))

    def run(errors: tuple[float, float]) -> sgsdump.Comparison:
        arrays = {"x": one * np.float32(1 + errors[0]), "y": two * np.float32(1 + errors[1]), "z": three}
        return sgsdump.compare(dumped(**arrays), dumped(x=one, y=two, z=three))

    merged = merge({"p0": run((0.1, 0.2)), "p1": run((0.3, 0.3))})
    assert [row.rise for row in merged] == pytest.approx([0.2, 0.05, -0.25], abs=1e-6)


def test_nothing_to_merge() -> None:
    with pytest.raises(ConfigError, match="no comparisons to merge"):
        merge({})
    assert merged_sums([]).count == 0


def test_runs_merged_as_they_come_are_the_runs_merged_at_once() -> None:
    pairs = runs(seed=2)
    names = ("x", "x", "only in one")
    single = {}
    for number, (a, b) in enumerate(pairs):
        sides = [
            Dump(
                [Record("out", 0, at, "Conv", Tensor.of(name, side * (at + 1))) for at, name in enumerate(names)][
                    : 3 - number % 2
                ]
            )
            for side in (a, b)
        ]
        single[str(number)] = sgsdump.compare(*sides, details=True)
    one_by_one, at_once = merge_each(iter(single.items())), merge(single)
    assert len(one_by_one) == len(at_once) == 3
    for row, other in zip(one_by_one, at_once):
        assert row.replaced(details=None) == other.replaced(details=None)
        facts, other_facts = dataclasses.asdict(row.details), dataclasses.asdict(other.details)
        facts |= facts.pop("heat")
        for name, fact in facts.items():
            np.testing.assert_array_equal(fact, (other_facts | other_facts["heat"])[name], err_msg=name)


def test_details_of_merged_runs_count_every_value() -> None:
    pairs = runs(seed=3)
    merged = merge_each(
        (str(i), sgsdump.compare(dumped(x=a), dumped(x=b), details=True)) for i, (a, b) in enumerate(pairs)
    )
    details = merged["x"].details
    a, b = (np.stack([pair[side] for pair in pairs]) for side in (0, 1))
    for counts, values in ((details.sample, a), (details.benchmark, b)):
        edges = np.linspace(*details.edges, len(counts) + 1)
        np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])
    assert details.errors.sum() == a.size


def test_nothing_merged_as_it_comes_raises() -> None:
    with pytest.raises(ConfigError, match="no comparison"):
        merge_each(iter(()))
