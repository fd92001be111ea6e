"""The verdict as data: the state, what decides, what fails, the exit status; and which ways of pairing are entered."""

from dataclasses import replace

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, compare
from sgsdump.comparison import align
from sgsdump.comparison.account import Account, NotCompared
from sgsdump.comparison.evidence import Evidence, JudgedLayer
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.golden import compare_golden
from sgsdump.comparison.rules import of_changed_models
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.comparison.verdict import judged_verdict, state_of
from sgsdump.dumps.dump import Damage, Operator, as_arguments

LIMITS = Thresholds(max_rmse=0.1)
X = np.linspace(1, 2, 12, dtype=np.float32)


def dump(**arrays):
    return Dump([Record("out", 0, i, "Conv", Tensor.of(name, a)) for i, (name, a) in enumerate(arrays.items())])


def program(*operators):
    """A program of operators: name, input, output, arguments."""
    records, network = [], {}
    for index, (name, read, made, arguments) in enumerate(operators):
        records.append(Record("in", 0, index, name, Tensor.of(f"{name}/input.0", read)))
        records.append(Record("out", 0, index, name, Tensor.of(f"{name}/output", made)))
        network[index] = Operator(name, name, arguments=as_arguments(arguments))
    return Dump(records, "torch_tree", network=lambda: network)


def test_an_argument_whose_effect_is_rounding_makes_two_runs_differ():
    good = program(("a", X, X + 1, {"n": 1}), ("norm", X + 1, X * 2, {"eps": 1e-5}))
    bad = program(("a", X, X + 1, {"n": 1}), ("norm", X + 1, X * np.float32(2 + 2e-6), {"eps": 2e-5}))
    verdict = compare(bad, good).verdict()
    assert (verdict.state, verdict.past, verdict.cause.kind) == ("differs", 1, "argument")
    assert verdict.recommendation.action == "make calls alike" and verdict.exit_status(fails_on_cause=True) == 1
    alike = program(("a", X, X + 1, {"n": 1}), ("norm", X + 1, X * np.float32(2 + 2e-6), {"eps": 1e-5}))
    assert compare(alike, good).verdict().state == "within rounding"


def test_operators_that_hold_when_run_again_outweigh_figures():
    evidence = compare(dump(x=X * 1.5), dump(x=X)).evidence()
    assert state_of(evidence) == "differs"
    assert state_of(replace(evidence, recorded=(Finding("rounding"),))) == "within rounding"
    assert state_of(replace(evidence, recorded=(Finding("magnified"),))) == "differs"


def test_what_is_missing_or_cannot_be_measured_fails_with_limits():
    whole, part = dump(a=X, b=X, c=X), dump(a=X, b=X)
    missing = compare(part, whole)
    assert missing.verdict(LIMITS).exit_status() == 1 and missing.verdict(LIMITS, True).exit_status() == 0
    assert missing.verdict().exit_status() == 0
    unlike = compare(dump(a=X, b=np.zeros(5, np.float32)), dump(a=X, b=X))
    assert unlike.verdict().state == "equal"
    assert unlike.verdict(LIMITS, True).exit_status() == 1  # it is there, so nothing is missing
    few = Account(1, 3, (NotCompared("the comparison", "missing", "", "share"),))
    assert not few.is_complete and few.lacks(False) and not few.lacks(True)


def test_an_output_past_its_limits_decides_before_an_inner_layer():
    def run(*arrays):
        records = []
        for index, array in enumerate(arrays):
            if index:
                records.append(Record("in", 0, index, "Conv", Tensor.of(f"l{index - 1}", arrays[index - 1])))
            records.append(Record("out", 0, index, "Conv", Tensor.of(f"l{index}", array)))
        return Dump(records)

    comparison = compare(run(X, X * 2, X * np.float32(1.2)), run(X, X, X))
    assert comparison.worst.name == "l1" and comparison.verdict().deciding.layer == "l2"
    deciding = comparison.verdict(LIMITS).deciding
    assert (deciding.layer, deciding.metric, deciding.limit) == ("l2", "RMSE", 0.1)
    assert deciding.value == pytest.approx(0.2, rel=1e-5)


def test_a_damaged_dump_exits_with_2_whatever_passes():
    comparison = replace(compare(dump(a=X), dump(a=X)), sample_notes=(Damage("b.npy cannot be read"),))
    assert comparison.verdict(LIMITS, True).exit_status() == 2 and comparison.damaged == ("b.npy cannot be read",)
    assert comparison.account.named("failed", "file") == ("a file of the sample",)


def test_nan_in_the_same_places_is_equal_and_still_reported():
    odd = X.copy()
    odd[0] = np.nan
    verdict = compare(dump(a=odd), dump(a=odd)).verdict()
    assert (verdict.state, verdict.past, verdict.not_finite) == ("equal", 0, 1)
    assert verdict.cause is None and verdict.recommendation.action == "nothing" and verdict.exit_status(True) == 0
    with_limits = compare(dump(a=odd), dump(a=odd)).verdict(LIMITS)
    assert (with_limits.outcome, with_limits.cause.layer) == ("FAIL", "a")
    assert with_limits.recommendation.layers == ("a",)
    assert compare(dump(a=odd), dump(a=X)).verdict().state == "differs"


def test_an_accepted_run_of_zeros_is_never_rounding():
    layer = JudgedLayer("a", False, 0.5, {}, ("max diff3", 0.5, 0.0))
    evidence = Evidence(Account(1, 1), judged=(layer,), recomputed=())
    assert judged_verdict(evidence, ()).state == "within rounding"
    unwritten = replace(evidence, judged=(replace(layer, is_written=False),))
    assert judged_verdict(unwritten, ()).state == "differs"
    assert judged_verdict(replace(evidence, recomputed=None), ()).passes is False


def test_what_changed_models_show_is_told_in_the_order_of_the_rules():
    kinds = ("advice", "not judged", "spread", "output", "unseen", "cause", "layers", "worth")
    told = [finding.kind for finding in of_changed_models(Finding(kind) for kind in kinds)]
    assert told == ["output", "spread", "cause", "layers", "unseen", "worth", "advice", "not judged"]


def test_a_way_of_pairing_is_entered_only_where_it_applies(monkeypatch):
    entered = []
    imported = align.imported
    monkeypatch.setattr(align, "imported", lambda target: entered.append(target.partition(":")[2]) or imported(target))
    compare(dump(a=X, b=X), dump(a=X, b=X))
    assert entered == ["same_name"]
    entered.clear()
    compare(dump(a=X), dump(b=X), name_map={"b": "a"})
    assert entered[0] == "propose" and "same_name" not in entered
    assert list(align.WAYS)[-len(align.BY_NAME) :] == list(align.BY_NAME) and len(align.WAYS) == 12


def test_what_judge_misses_is_missing_and_fails_unless_that_is_allowed():
    comparison = compare_golden(dump(a=X), dump(a=X, b=X), dump(a=X, b=X))
    assert comparison.account.named("missing") == ("b.npy",) and comparison.account.of == 2
    assert comparison.verdict().exit_status() == 1 and comparison.verdict(allow_missing=True).exit_status() == 0
