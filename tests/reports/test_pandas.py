"""``to_pandas()`` of every result: a line each, numbers in full precision, and what to install without pandas."""

import io
import sys

import numpy as np
import pytest

from sgsdump.comparison import distribution
from sgsdump.comparison.compare import compare
from sgsdump.comparison.distribution import distributions
from sgsdump.comparison.golden import compare_golden
from sgsdump.comparison.merge import merge
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import MissingExtra
from sgsdump.fixedpoint.reports.pareto_reports import pareto_csv
from sgsdump.fixedpoint.tuning import advice
from sgsdump.fixedpoint.tuning.advice import Advice, Measured
from sgsdump.fixedpoint.tuning.pareto import Effort, OutputFigures, Pareto, Row
from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution, Signs
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Range

CONVOLUTION = Convolution("conv1", "Conv", "data", "data", "conv1", False)


def dump(**arrays):
    tensors = [Tensor.of(name, np.float32(array)) for name, array in arrays.items()]
    return Dump([Record("out", 0, index, "Conv", tensor) for index, tensor in enumerate(tensors)])


def plan(label, rate, asked=None, tensors=()):
    each = {"prob": 1 / 3}
    return Row(label, asked, rate, 9, tensors, tensors, None, 0.1, 1 / 3, 0.5, OutputFigures(each, each, each))


def pareto():
    rows = (plan("INT8", 0.5), plan("0.7", 0.69, 0.7, ("a", "b")), plan("INT16", 1.0))
    return Pareto(rows, (), rows[1], ("prob",), ("prob",), "mean of prob", (), Effort(4, 4, 4, True, True))


def golden():
    return compare_golden(dump(a=[1.5], b=[np.nan]), dump(a=[1.25], b=[1]), dump(a=[1], b=[1]))


def advices():
    measured = Measured(0.1, 0.2, 1 / 3, 0.4, 0.5, 0.6)
    return [
        Advice(CONVOLUTION, "yes", "because", Signs(limits=(-1.0, 40.0), levels=12), measured),
        Advice(CONVOLUTION, "no", "not judged", Signs()),
    ]


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas", reason="pandas (the extra pandas) is not installed")


def test_a_golden_comparison(pandas):
    frame = golden().to_pandas()
    assert list(frame["name"]) == ["a", "b"] and list(frame["verdict"]) == ["pass", "fail"]
    assert frame["max_sw"][0] == golden().rows[0].max_sw and np.isnan(frame["max_sw"][1]) and frame["nan_inf"][1]


def test_distributions(pandas):
    """One with a NaN and values outside its range, one whose values cannot be had."""
    lost = Record("out", 0, 1, "Conv", Tensor.of_statistics(Tensor.of("lost", np.ones(2)).info, Statistics(0.0, 1.0)))
    records = [*dump(x=[0, 0.25, 4, np.nan]).records, lost]
    frame = distribution.to_pandas(distributions(Dump(records), {"x": Range.of(-1.0, 1.0)}))
    assert list(frame["name"]) == ["x", "lost"] and "only statistics" in frame["reason"][1]
    columns = ["count", "nan", "inf", "min", "max", "range_low", "range_high", "outside", "broken", "clipped"]
    facts = frame.iloc[0][columns]
    assert facts.tolist() == [4, 1, 0, 0.0, 4.0, -1.0, 1.0, 1, True, True]


def test_advice(pandas):
    frame = advice.to_pandas(advices())
    assert list(frame["verdict"]) == ["yes", "no"] and frame["name"][0] == "conv1"
    assert (frame["range_low"][0], frame["range_high"][0], frame["levels"][0]) == (-1.0, 40.0, 12)
    assert frame["brings"][0] == 1 / 3 and np.isnan(frame["brings"][1]) and np.isnan(frame["range_low"][1])


def test_plans_are_those_of_the_csv(pandas):
    frame = pareto().to_pandas()
    read = pandas.read_csv(io.StringIO(pareto_csv(pareto())), keep_default_na=False, na_values={"asked": ""})
    assert list(frame.columns) == list(read.columns) and list(frame["error:prob"]) == list(read["error:prob"])
    assert list(frame["taken"]) == ["", "yes", ""] == list(read["taken"]) and frame["tensor_arrays"][1] == "a, b"


def test_a_comparison_of_several_runs_and_of_statistics(pandas):
    runs = merge({name: compare(dump(a=[value]), dump(a=[1])) for name, value in (("p", 1.5), ("q", 2))}).to_pandas()
    assert (runs["runs"][0], runs["worst_run"][0], runs["worst_rmse"][0], runs["mean_rmse"][0]) == (2, "q", 1.0, 0.75)
    info = Tensor.of("s", np.ones(4)).info
    sides = [Dump([Record("out", 0, 0, "Add", Tensor.of_statistics(info, Statistics(0.0, top)))]) for top in (2.5, 2.0)]
    assert compare(*sides).to_pandas()["statistics_error"][0] == 0.25


@pytest.mark.parametrize(
    "frame",
    [
        lambda: golden().to_pandas(),
        lambda: pareto().to_pandas(),
        lambda: dump(a=[1]).to_pandas(),
        lambda: advice.to_pandas([]),
        lambda: distribution.to_pandas([]),
        lambda: compare(dump(a=[1]), dump(a=[1])).to_pandas(),
    ],
)
def test_without_pandas_it_says_what_to_install(frame, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"not installed; pip install 'sgsdump\[pandas\]'"):
        frame()
