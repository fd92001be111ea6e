"""How an advice reads."""

import json

import numpy as np

from sgsdump.comparison.compare import compare
from sgsdump.comparison.metrics import Sums
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.io import open_dump, save_dump
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import OutputFigures, PlanOutputs
from sgsdump.fixedpoint.reports.advice_reports import advice_json, advice_table, advice_verdict
from sgsdump.fixedpoint.tuning.advice import MAYBE, NO, YES, Advice, Measured
from sgsdump.fixedpoint.tuning.causes import Exact
from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution, Signs
from sgsdump.fixedpoint.tuning.sensitivity_analysis import Measurement

LIMITS = Thresholds(max_rmse=0.1)


def entry(name, verdict, measured=None):
    conv = Convolution(name, "CONV_2D", f"{name}.in", f"{name}.in", name, False)
    return Advice(conv, verdict, f"because of {name}", Signs((0.0, 40.0)), measured)


def sums(rmse):
    return Sums(1, 1, 1, 1, rmse**2, rmse, 1)


def measurement(narrow, wide=0.01):
    return Measurement(
        3,
        12,
        frozenset({"logits"}),
        {"logits": sums(narrow), "box": sums(0)},
        {"logits": sums(wide), "box": sums(0)},
        (),
    )


def exact(narrow, raised=None, wide=0.01):
    def plan(rmse):
        return PlanOutputs({"logits": OutputFigures(sums(rmse)), "box": OutputFigures(sums(0))}, {})

    return Exact(plan(narrow), plan(wide), plan(raised) if raised is not None else None)


def test_the_table_is_aligned_and_complete():
    lines = advice_table([entry("a", YES), entry("a long name", MAYBE), entry("b", NO)]).splitlines()
    assert len(lines) == 4
    assert [line[lines[0].index("why") :] for line in lines] == ["why"] + [
        f"because of {n}" for n in ("a", "a long name", "b")
    ]


def test_measured_columns_only_where_something_was_measured():
    number = Measured(0.1, 0.2, 0.3, 0.4, 0.5, -0.001)
    text = advice_table([entry("a", YES, number), entry("b", NO)])
    assert text.splitlines()[1].split()[5:10] == ["0.1000", "0.2000", "0.3000", "0", "%"]
    assert text.splitlines()[2].split()[5:9] == ["-"] * 4
    assert "own" not in advice_table([entry("a", YES)])


def test_the_verdict_shows_what_raising_gives():
    text = advice_verdict([entry("a", YES)], ["a.in"], LIMITS, measurement(0.5), exact(0.5, 0.06))
    rows = {line.split("  ")[1]: line.split()[-3:] for line in text.splitlines()[2:5]}
    assert rows["logits (logits)"] == ["0.5000", "0.0600", "0.0100"]
    assert rows["mean"] == ["0.2500", "0.0300", "0.0050"] and "box" in rows
    assert "With a.in at INT16, the outputs are within the limits." in text
    assert text.endswith("[CONV_CONFIG]\ntensor_arrays='a.in';\n")


def test_what_is_left_to_do_is_said():
    still = advice_verdict([entry("a", YES)], ["a.in"], LIMITS, measurement(0.5), exact(0.5, 0.3))
    assert "an output still has RMSE > 0.1." in still and "maybe" not in still
    more = [entry("a", YES), entry("b", MAYBE)]
    assert "also raise the inputs marked maybe" in advice_verdict(
        more, ["a.in"], LIMITS, measurement(0.5), exact(0.5, 0.3)
    )
    assert "INT16 is not enough to correct the model: even with every convolution at INT16" in advice_verdict(
        [], [], LIMITS, measurement(0.5, 0.4), exact(0.5, wide=0.4)
    )
    assert "No single convolution causes" in advice_verdict(
        [entry("a", MAYBE)], [], LIMITS, measurement(0.5), exact(0.5)
    )
    few = advice_verdict([entry("a", MAYBE)], [], LIMITS, measurement(0.05), exact(0.05))
    assert "Best candidates for a smaller error: a.in" in few
    assert "Measure on images (-i)" in advice_verdict([entry("a", MAYBE)], [], LIMITS)
    assert (advice_verdict([entry("a", NO)], [], LIMITS, measurement(0.05), exact(0.05))).endswith(
        "No INT16 needed for any convolution.\n"
    )


def test_rules_that_see_nothing_are_no_clean_bill(tmp_path):
    assert advice_verdict([entry("a", NO)], [], LIMITS) == (
        "No rule of thumb asks for INT16. This does not show that INT8 is enough.\nMeasure on images (-i) to know.\n"
    )
    for name, last in (("float", 1), ("fixed", 2)):
        arrays = {"good": np.ones(3, np.float32), "bad": np.array([1, 1, last], np.float32)}
        save_dump(arrays, tmp_path / f"{name}.npz")
    rows = compare(open_dump(tmp_path / "fixed.npz"), open_dump(tmp_path / "float.npz")).rows
    assert advice_verdict([entry("a", NO)], [], LIMITS, rows=rows).splitlines()[0] == (
        "1 of 2 layers have COS < 0.99 or RMSE > 0.1, but no rule of thumb selects a convolution to raise to INT16. "
        "Layers: bad."
    )


def test_a_name_that_the_file_cannot_hold_is_told():
    text = advice_verdict([entry("a", YES)], ["fine name", "x,y"], LIMITS)
    assert "tensor_arrays cannot hold 'x,y'" in text and "cannot hold 'fine name'" not in text


def test_json_holds_what_is_not_a_number_as_text():
    odd = Measured(float("inf"), 0.2, 0.3, 0.4, 0.5, float("nan"))
    found = json.loads(advice_json([entry("a", YES, odd)], ["a.in"], measurement(0.5), exact(0.5)))
    assert found["tensor_arrays"] == ["a.in"] and found["pictures"] == 3
    assert found["convolutions"][0]["measured"]["own"] == "inf"
    assert found["outputs"]["all_8"]["logits"]["rmse"] == 0.5
