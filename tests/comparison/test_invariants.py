"""What holds of every conclusion: the invariants of the rules, on dumps and remedies drawn at random."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgsdump
from sgsdump import Dump, Record, Tensor
from sgsdump.comparison.evidence import JudgedLayer
from sgsdump.comparison.finding import CAUSES
from sgsdump.comparison.remedy import Remedy, recommended
from sgsdump.comparison.row import SURE, differs, is_rounding
from sgsdump.comparison.rules import OF_ANY_INPUTS, RULES, findings_of
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds

FEW = settings(deadline=None, max_examples=40)
EQUAL, ROUNDING, FAULT = 0.0, 2e-7, 0.5
# What becomes of a layer of the sample.
FATES = ("kept", "kept", "kept", "missing", "other size", "added")
chains = st.lists(st.sampled_from([EQUAL, ROUNDING, ROUNDING, 0.02, FAULT]), min_size=4, max_size=12)


def run(values, errors, reads, skipped=(), resized=()):
    """A run whose layer ``l0``, ``l1`` … is off by these relative errors; ``reads``: which layers each one reads."""
    records, made = [], {}
    for index, (array, error) in enumerate(zip(values, errors)):
        signs = np.random.default_rng(index).choice([-1.0, 1.0], array.shape)
        made[index] = Tensor.of(f"l{index}", (array * (1 + error * signs)).astype(np.float32))
        inputs = [Record("in", slot, index, "Conv", made[source]) for slot, source in enumerate(reads[index])]
        if index in skipped:
            continue
        output = Tensor.of(f"l{index}", np.zeros(7, np.float32)) if index in resized else made[index]
        records += [*inputs, Record("out", 0, index, "Conv", output)]
    return Dump(records)


def values_of(count):
    return np.random.default_rng(count).choice([-1.0, 1.0], (count, 1, 4, 4, 8))


def chained(errors, **facts):
    reads = [[index - 1] if index else [] for index in range(len(errors))]
    values = values_of(len(errors))
    return run(values, errors, reads, **facts), run(values, [0.0] * len(errors), reads)


def named(comparison, limits=DOCUMENTED):
    return [finding.layer for finding in comparison.findings(limits) if finding.kind in CAUSES]


@FEW
@given(chains)
def test_a_layer_that_is_equal_or_within_rounding_is_never_named(errors):
    comparison = sgsdump.compare(*chained(errors))
    rows = {row.name: row for row in comparison}
    for name in named(comparison):
        assert differs(rows[name]) and not is_rounding(rows[name])
    assert len(named(comparison)) == len(set(named(comparison)))  # what explains the same error is one finding


@FEW
@given(st.lists(st.sampled_from([EQUAL, ROUNDING]), min_size=1, max_size=12))
def test_healthy_runs_are_never_accused(errors):
    comparison = sgsdump.compare(*chained(errors))
    verdict = comparison.verdict()
    assert verdict.state in ("equal", "within rounding") and verdict.cause is None and not named(comparison)
    assert (verdict.state == "equal") == (not any(map(differs, comparison)))
    assert verdict.exit_status(fails_on_cause=True) == 0


@FEW
@given(st.integers(3, 8), st.integers(0, 4), st.floats(0.02, 0.09), st.floats(1.5, 8))
def test_an_earlier_layer_that_left_the_floor_is_named_before_a_later_one_with_a_larger_error(
    place, after, error, more
):
    errors = [ROUNDING] * place + [error, *[error * more] * after]
    comparison = sgsdump.compare(*chained(errors))
    assert named(comparison)[:1] == [f"l{place}"]
    assert comparison.verdict().state == "differs" and comparison.verdict().cause.layer == f"l{place}"
    assert all(row.error <= SURE for row in comparison[:place])


@FEW
@given(st.lists(st.tuples(st.sampled_from([EQUAL, FAULT]), st.sampled_from(FATES)), min_size=1, max_size=12))
def test_the_counts_add_up_and_not_comparable_is_neither_equal_nor_different(layers):
    fates = [fate for _, fate in layers]
    skipped, resized = (
        {index for index, fate in enumerate(fates) if fate == wanted} for wanted in ("missing", "other size")
    )
    errors = [error for error, _ in layers]
    values, reads = values_of(len(errors)), [[] for _ in errors]
    benchmark = run(values, [0.0] * len(errors), reads, skipped={i for i, fate in enumerate(fates) if fate == "added"})
    comparison = sgsdump.compare(run(values, errors, reads, skipped, resized), benchmark)
    account, verdict = comparison.account, comparison.verdict()
    assert account.of == account.compared + len(account.not_comparable) + len(account.missing)
    assert {one.name for one in account.not_comparable} == {f"l{index}" for index in resized}
    assert account.named("only in sample") == tuple(f"l{i}" for i, fate in enumerate(fates) if fate == "added")
    kept = [error for error, fate in layers if fate == "kept"]
    expected = "differs" if FAULT in kept else "equal" if kept else "not comparable"
    assert (verdict.state, verdict.past) == (expected, kept.count(FAULT))
    assert account.compared == len(kept)


@FEW
@given(chains)
def test_two_networks_with_the_same_faults_conclude_the_same_whatever_limits_pass(errors):
    comparison = sgsdump.compare(*chained(errors))
    loose = comparison.verdict(Thresholds(max_rmse=2.0))
    assert loose.passes and loose.past == 0 and loose.state == comparison.verdict().state
    tight = comparison.verdict(Thresholds(max_rmse=0.0))
    assert tight.passes == (tight.past == 0) == (not any(row.error for row in comparison))
    assert tight.exit_status() == int(not tight.passes)


@FEW
@given(chains)
def test_rules_are_pure(errors):
    evidence = sgsdump.compare(*chained(errors)).evidence()
    assert findings_of(evidence) == findings_of(evidence) == tuple(f for rule in RULES for f in rule(evidence))
    assert len(RULES) == len(set(RULES)) and set(RULES) >= OF_ANY_INPUTS


remedies = st.builds(
    Remedy,
    st.just("raise convolutions"),
    st.floats(0, 2),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([(), ("out",)]),
)


@given(st.lists(remedies, max_size=6), st.floats(0, 1))
def test_the_cheapest_remedy_within_the_limits_is_recommended_and_none_that_is_worse(offered, before):
    best = recommended(offered, before)
    allowed = [remedy for remedy in offered if remedy.error < before and not remedy.worse]
    if best is None:
        assert not allowed
        return
    assert best in allowed
    assert best.within == any(remedy.within for remedy in allowed)
    if best.within:
        assert best.cost == min(remedy.cost for remedy in allowed if remedy.within)
    else:
        assert best.error == min(remedy.error for remedy in allowed)


def test_of_two_within_the_limits_the_cheaper_is_recommended_and_of_none_the_better():
    dear, cheap, poor = (
        Remedy("raise convolutions", error, cost, within)
        for error, cost, within in ((0.01, 0.9, True), (0.05, 0.1, True), (0.5, 0.0, False))
    )
    assert recommended([dear, cheap, poor], 1.0) is cheap and recommended([dear, poor], 1.0) is dear
    assert recommended([poor, Remedy("raise convolutions", 0.4, 0.5)], 1.0).error == 0.4
    assert recommended([poor], 0.5) is None


def judged(name, passes, error, order, sources=()):
    return JudgedLayer(name, passes, error, {"diff2": error}, ("diff2", error, None), order=order, sources=sources)


def test_judged_layers_conclude_through_the_same_rules():
    evidence = sgsdump.compare(Dump([]), Dump([])).evidence()
    layers = [judged("a", True, 1e-7, 0), judged("b", False, 0.5, 1, ("a",)), judged("c", False, 0.6, 2, ("b",))]
    found = findings_of(replace(evidence, judged=layers, by_flow=True))
    assert [(finding.kind, finding.layer, finding.evidence) for finding in found] == [("cause", "b", "by value")]
    assert not findings_of(replace(evidence, judged=layers, by_flow=True, recomputed=()))


@pytest.mark.parametrize("limit", [0.05, 0.2])
def test_statistics_are_held_to_the_limit_that_is_shown(limit):
    from sgsdump.tensors.statistics import Statistics

    info = Tensor.of("x", np.ones(4)).info
    sample, benchmark = (
        Dump([Record("out", 0, 0, "Conv", Tensor.of_statistics(info, Statistics(0.0, top)))]) for top in (1.1, 1.0)
    )
    verdict = sgsdump.compare(sample, benchmark).verdict(Thresholds(max_rmse=limit))
    assert verdict.deciding.metric == "relative error" and verdict.deciding.limit == limit
    assert verdict.passes == (verdict.deciding.value <= limit)
    of_cos = sgsdump.compare(sample, benchmark).verdict(Thresholds(min_cos=0.9))
    assert of_cos.deciding.limit == DOCUMENTED.max_rmse and of_cos.passes == (of_cos.deciding.value <= 0.1)
