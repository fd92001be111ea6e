"""Verdicts: rules alone, and measured sensitivity over the rules."""

from dataclasses import replace

import numpy as np
import pytest

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.metrics import Sums
from sgsdump.comparison.row import row_of
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Record
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain
from sgsdump.fixedpoint.tuning.advice import MAYBE, NO, YES, advise, tensor_arrays
from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution, Signs
from sgsdump.fixedpoint.tuning.sensitivity_analysis import LayerSensitivity, Measurement
from sgsdump.tensors.tensor import Tensor

A, B, C = (Convolution(name, "CONV_2D", f"{name}.in", f"{name}.in", f"{name}.out", False) for name in "abc")
CALM = Signs((0.0, 5.0))
WIDE = Signs((0.0, 31.0))


def row(name, rmse, rise=None):
    record = Record("out", 0, 0, "CONV_2D", Tensor.of(name, np.ones(1, np.float32)))
    made = row_of(Pair(record, record, "name"), Sums(1, 1, 1, 1, rmse, rmse, 1), "")
    return made.replaced(rise=rmse if rise is None else rise)


def verdicts(signs, measurement=None, max_rmse=0.1):
    found = advise([A, B, C][: len(signs)], dict(zip("abc", signs)), measurement, Thresholds(max_rmse=max_rmse))
    return {entry.convolution.name: (entry.verdict, entry.reason) for entry in found}


@pytest.mark.parametrize(
    ("signs", "verdict", "told"),
    [
        (CALM, NO, "range 5 is within 30"),
        (Signs((0.0, 30.0)), NO, "range 30 is within 30"),
        (WIDE, YES, "range 31 is over 30"),
        (replace(WIDE, levels=9, narrow=True), YES, "99 % of its values in 9 of 256 levels"),
        (replace(WIDE, levels=200, narrow=False), YES, "not wasted"),
        (replace(WIDE, row=row("a.out", 0.05)), MAYBE, "its output is good: RMSE 0.050"),
        (replace(CALM, after=row("a.out", 0.51)), YES, "RMSE 0.510 at a.out is over 0.5"),
        (replace(CALM, after=row("a.out", 0.5)), NO, "within 30"),
        (replace(CALM, after=row("x", 0.9, rise=0.1)), MAYBE, "mostly from earlier layers"),
        (replace(CALM, after=row("x", 0.0).replaced(sample_nan=1, rise=float("inf"))), YES, "RMSE inf"),
        (replace(WIDE, after=row("x", 0.9, rise=0.1)), YES, "RMSE 0.900 at x is over 0.5, range 31 is over 30"),
        (replace(WIDE, row=row("a.out", 0.05), raised=True), YES, "already INT16"),
        (replace(CALM, after=row("a.out", 0.9), raised=True), MAYBE, "already INT16"),
        (Signs(), NO, "not judged"),
    ],
)
def test_the_rules_alone(signs, verdict, told):
    ((given, reason),) = verdicts([signs]).values()
    assert given == verdict and told in reason


def sums(rmse):
    return Sums(1, 1, 1, 1, rmse**2, rmse, 1)


def measurement(all_8, **brings):
    """Outputs of error ``all_8``; name -> what the convolution brings alone. Raised alone, half of that goes away."""
    sensitivities = [
        LayerSensitivity(Domain(f"{n}.in", (f"{n}.in",), (n,), 1), {n: 0.01}, {n: 0.02}, b, all_8 - b / 2)
        for n, b in brings.items()
    ]
    return Measurement(1, 8, frozenset(), {"out": sums(all_8)}, {"out": sums(0.001)}, tuple(sensitivities))


def test_what_is_measured_outranks_the_rules():
    found = verdicts([CALM, WIDE, CALM], measurement(0.5, a=0.1, b=0.024, c=0.026))
    told = "quantising only this input causes 20 % of the output error; raising only this input removes 10 %"
    assert found["a"] == (YES, f"{told}; no rule of thumb applies")
    assert found["b"] == (
        NO,
        "range 31 is over 30, but measured: quantising only this input causes 5 % of the output error",
    )
    assert found["c"][0] == MAYBE


def test_nothing_is_sure_to_be_raised_while_the_output_is_good():
    verdict, reason = verdicts([CALM, CALM], measurement(0.09, a=0.08, b=0.01))["a"]
    assert verdict == MAYBE and "within the limits" in reason
    assert verdicts([CALM], measurement(0.09, a=0.08), max_rmse=0.05)["a"][0] == YES


def test_inherited_error_is_told():
    found = measurement(0.5, a=0.001)
    sensitivities = (replace(found.sensitivities[0], inherited={"a": 0.4}),)
    verdict, reason = verdicts([CALM], replace(found, sensitivities=sensitivities))["a"]
    assert verdict == NO and "comes from earlier layers" in reason


def test_the_picture_is_never_raised():
    picture = replace(A, reads_picture=True)
    (entry,) = advise([picture], {"a": replace(WIDE, after=row("a.out", 2.0))})
    assert entry.verdict == NO and "always has 8 bits" in entry.reason
    assert tensor_arrays([entry], [picture]) == ()


def test_one_domain_gets_one_verdict_and_one_name():
    shared = replace(B, domain="a.in")
    found = advise([A, shared, C], {"a": CALM, "b": WIDE, "c": WIDE})
    assert {entry.convolution.name: entry.verdict for entry in found} == {"a": YES, "b": YES, "c": YES}
    assert "raised together with b" in next(e.reason for e in found if e.convolution.name == "a")
    assert tensor_arrays(found, [A, shared, C]) == ("a.in", "c.in")


def test_worst_first():
    found = advise([A, B, C], dict.fromkeys("abc", CALM), measurement(0.5, a=0.05, b=0.4, c=0.2))
    assert [entry.convolution.name for entry in found] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("share", "all_8", "verdict"),
    [
        *((0.2, 0.5, YES), (0.199, 0.5, MAYBE), (0.05, 0.5, MAYBE), (0.049, 0.5, NO)),
        *((0.21, 0.09, MAYBE), (0.199, 0.09, NO), (0.9, 0.1, MAYBE), (0.9, 0.101, YES)),
    ],
)
def test_a_fifth_of_the_error_is_sure_a_twentieth_likely(share, all_8, verdict):
    """Nothing is sure while the outputs hold RMSE 0.1 with every convolution at 8 bits."""
    assert verdicts([CALM], measurement(all_8, a=share * all_8))["a"][0] == verdict


@pytest.mark.parametrize(
    ("own", "inherited", "said"), [(0.01, 0.11, True), (0.01, 0.1, False), (0.055, 0.11, False), (0.054, 0.11, True)]
)
def test_an_error_is_inherited_over_the_threshold_and_over_twice_its_own(own, inherited, said):
    given = measurement(0.5, a=0.001)
    layer = replace(given.sensitivities[0], own={"a": own}, inherited={"a": inherited})
    verdict, reason = verdicts([CALM], replace(given, sensitivities=(layer,)))["a"]
    assert verdict == NO and ("comes from earlier layers" in reason) == said


@pytest.mark.parametrize(("rmse", "verdict"), [(0.1, MAYBE), (0.101, YES)])
def test_a_wide_range_is_only_likely_where_the_layer_is_good(rmse, verdict):
    assert verdicts([replace(WIDE, row=row("a.out", rmse))])["a"][0] == verdict


def test_more_rules_come_first():
    narrow = replace(WIDE, levels=9, narrow=True)
    found = advise([A, B, C], {"a": WIDE, "b": replace(WIDE, limits=(0.0, 90.0)), "c": narrow})
    assert [entry.convolution.name for entry in found] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.2, "20 %"), (0.01, "1 %"), (0.0099, "less than 1 %"), (0.0, "less than 1 %"), (-0.1, "0 %")],
)
def test_shares_are_whole_percents(share, text):
    assert f"causes {text} of the output error" in verdicts([CALM], measurement(0.5, a=share * 0.5))["a"][1]
