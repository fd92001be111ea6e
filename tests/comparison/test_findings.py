"""What is found in a comparison, and how it is told first."""

import numpy as np
import pytest
from verdict_words import sentences

import sgsdump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Quant, Tensor


def dump(**arrays):
    return Dump([Record("out", 0, i, "Conv", Tensor.of(name, a)) for i, (name, a) in enumerate(arrays.items())])


def of_statistics(checksum=None):
    info = Tensor.of("x", np.ones(4)).info
    return Dump([Record("out", 0, 0, "Conv", Tensor.of_statistics(info, Statistics(0.0, 2.0, checksum=checksum)))])


def test_seven_dead_channels_beside_a_loud_one_are_not_clean():
    benchmark = np.random.default_rng(0).standard_normal((1, 8, 8, 8)).astype(np.float32)
    benchmark[:, 0] *= 1e5
    sample = benchmark.copy()
    sample[:, 1:] = 0
    comparison = sgsdump.compare(dump(x=sample), dump(x=benchmark))
    assert comparison["x"].channels.lost == 7 and comparison["x"].verdict() == "warn"
    assert not comparison.passes(Thresholds(max_channel_rmse=0.5)) and comparison.passes(Thresholds(max_rmse=0.5))
    assert any("7 of its 8 channels are lost" in sentence for sentence in sentences(comparison))


def test_what_stands_after_the_last_pair_is_missing_and_less_than_half_is_incomplete():
    x = np.ones(4, np.float32)
    comparison = sgsdump.compare(dump(a=x), dump(a=x, b=x, c=x))
    assert comparison.completeness.missing_outputs == ("b", "c") and not comparison.is_complete
    said = sentences(comparison)
    assert said[0] == "EQUAL: the only layer is equal; the sample lacks 2 layers (b, c)."
    assert said[3] == "Compared: 1 of 3 layers; 2 missing from the sample."
    assert comparison.verdict(Thresholds(max_rmse=0.1)).outcome == "INCOMPLETE"
    assert sgsdump.compare(dump(a=x), dump(a=x, b=x), exclude=["b"]).is_complete


def test_differences_whose_squares_are_nothing_are_differences():
    comparison = sgsdump.compare(dump(x=np.full(4, 2e-200)), dump(x=np.full(4, 1e-200)))
    assert comparison["x"].error == pytest.approx(1.0) and not comparison.passes()


def test_equal_statistics_are_not_equal_values_and_checksums_decide():
    first, second, *_ = sentences(sgsdump.compare(of_statistics(), of_statistics()))
    assert first == "EQUAL: the statistics of all 1 layer are equal."
    assert "do not prove equal values" in second
    assert sgsdump.compare(of_statistics("md5:a"), of_statistics("md5:a")).passes(Thresholds(max_rmse=0))
    differing = sgsdump.compare(of_statistics("md5:a"), of_statistics("md5:b"))
    assert not differing.passes(Thresholds(max_rmse=0)) and "checksums differ" in differing["x"].note


def test_indices_are_equal_or_not():
    comparison = sgsdump.compare(dump(x=np.array([1, 2, 3, 900])), dump(x=np.array([1, 2, 3, 4])))
    assert (comparison["x"].indices.differing, comparison["x"].error) == (1, 0.25)


def test_without_dataflow_nothing_is_said_of_the_input():
    x = np.ones(4, np.float32)
    comparison = sgsdump.compare(dump(a=x * 2, b=x), dump(a=x, b=x))
    assert not any("rises from" in sentence for sentence in sentences(comparison))
    assert comparison.findings()[-1].facts == {"why": "no dataflow"}


def test_what_is_near_nothing_beside_its_own_step_has_no_lost_channels():
    values = (np.random.default_rng(0).random((1, 8, 8, 4)) * 6e-4).astype(np.float32)
    stored = np.zeros(values.shape, np.uint8)
    stored[0, 0, 0, 0] = 1
    quant = Quant(stored.dtype, 1 / 256, 0, exact=True)
    sample = Dump([Record("out", 0, 0, "LOGISTIC", Tensor.of("prob", stored, quant=quant, layout="NHWC"))])
    comparison = sgsdump.compare(
        sample, Dump([Record("out", 0, 0, "LOGISTIC", Tensor.of("prob", values, layout="NHWC"))])
    )
    assert comparison["prob"].rmse > 0.9 and comparison.passes(Thresholds(max_rmse=0.1))
    assert {finding.kind for finding in comparison.findings()} <= {"not judged"}


def test_checksums_that_differ_are_said_first_not_a_number():
    lines = sentences(sgsdump.compare(of_statistics("md5:a"), of_statistics("md5:b")), Thresholds(max_rmse=0))
    assert any("checksums differ" in line for line in lines) and not any("e-308" in line for line in lines)
