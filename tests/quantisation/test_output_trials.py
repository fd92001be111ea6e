"""What is tried, what is taken and what is raised, at the documented limits."""

from types import SimpleNamespace

import pytest
from small_nets import residual_net

from sgsdump.quantisation.domains import analyse
from sgsdump.quantisation.ranges.range_fit import MIN_MAX, MSE, Proposal
from sgsdump.quantisation.trials import output_trials
from sgsdump.quantisation.trials.output_trials import THRESHOLD, Work, _error, fit_ranges, sensitivities
from sgsdump.quantisation.trials.plan_trial import Domain
from sgsdump.tensors.types import Range

ANALYSIS = analyse(residual_net().proto, ["data"])


class StubTrials:
    """The outputs' error is 1 with the plain range of r1, ``after`` with any other."""

    pictures = 1

    def __init__(self, after, ranges=None):
        self.after = after
        self.ranges = ranges or {"r1": Range.of(0, 8)}
        self.work = Work()
        self.trial = SimpleNamespace(analysis=ANALYSIS, domains=(Domain("r1", ("r1",), ("c2",), 64),))

    def with_ranges(self, ranges):
        return StubTrials(self.after, ranges)

    def error(self, raised):
        return 1.0 if self.ranges["r1"].high == 8 else self.after


@pytest.mark.parametrize(
    ("own", "after", "tried", "taken"),
    [
        (0.5, 0.5, True, True),
        (0.6, 0.95, True, True),  # at most 60 % of min_max's own error, and 5 % off the outputs'
        (0.61, 0.1, False, False),
        (0.6, 0.96, True, False),
        (0.6, 1.0, True, False),
        (0.6, 1.5, True, False),
    ],
)
def test_a_range_is_tried_and_taken_where_it_is_worth_it(monkeypatch, own, after, tried, taken):
    given = [Proposal(0, 8, MIN_MAX, 1.0), Proposal(0, 4, MSE, own)]
    monkeypatch.setattr(output_trials, "_proposals", lambda *_: given)
    ranges, fits = fit_ranges(StubTrials(after), None)
    assert [fit.tensors for fit in fits] == ([("r1",)] if tried else [])
    assert ranges["r1"].high == (4 if taken else 8)
    if taken:
        assert ranges["r1"].wide.high == 8, "INT16 keeps all of it"
        assert (fits[0].taken.kind, fits[0].before, fits[0].after) == (MSE, 1.0, after)


@pytest.mark.parametrize(("threshold", "raised"), [(0.002, ["b"]), (0.0019, ["b", "a"]), (0.005, []), (0, ["b", "a"])])
def test_what_changes_the_outputs_by_more_is_raised_most_sensitive_first(threshold, raised):
    effects = {"a": 0.002, "b": 0.005, "c": 0.0}
    domains = tuple(Domain(name, (name,), (name,), 1) for name in effects)

    def error(others, against):
        (alone,) = effects.keys() - set(others)
        return effects[alone]

    trials = SimpleNamespace(
        trial=SimpleNamespace(domains=domains), work=Work(), pictures=1, run=lambda raised: [], error=error
    )
    found = sensitivities(trials, threshold)
    assert [each.domain.name for each in found] == ["b", "a", "c"]
    assert [each.domain.name for each in found if each.raised] == raised
    assert THRESHOLD == 0.002


@pytest.mark.parametrize(
    ("values", "reference", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 1.0], [1.0, 2.0], 0.2),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.5, 0.0], [0.0, 0.0], 1.0),
        ([float("nan"), 0.0], [1.0, 1.0], float("inf")),
        ([float("inf"), 0.0], [1.0, 1.0], float("inf")),
    ],
)
def test_the_error_is_the_share_of_energy(values, reference, error):
    import numpy as np

    assert _error(np.array(values), np.array(reference)) == pytest.approx(error)
