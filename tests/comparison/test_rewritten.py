"""One module written in two ways, and what reads it: what is inside is not compared, a fault inside is still found."""

import ml_dtypes
import numpy as np
import pytest
from module_runs import Run

from sgsdump import compare
from sgsdump.comparison.rewritten import REASON, _is_apart, _level

BLAMED = ("argument", "another tensor", "not finite", "cause", "channel")
RNG = np.random.default_rng(5)
X, W, B = (RNG.normal(size=size).astype(np.float32) for size in ((4, 16), (16, 16), (16,)))


def whole(weight=W):
    run, y = Run(), X @ weight + B
    run.add("proj", "Linear", [X], y, is_module=True, inner=lambda: run.add("proj", "aten.addmm", [B, X, weight], y))
    run.add("act", "aten.relu", [y], np.maximum(y, 0))
    return run.dump()


def in_halves(off=0.0, times=1.0):
    """The product as a sum of two, each of which is of the size of the whole."""
    run = Run()
    parts = [X[:, :8] @ W[:8], X[:, 8:] @ W[8:] * times]
    y = parts[0] + (parts[1] + B) + off

    def inner():
        for part, (x, w) in zip(parts, ((X[:, :8], W[:8]), (X[:, 8:], W[8:]))):
            run.add("proj", "aten.mm", [x, w], part)
        run.add("proj", "aten.add", [parts[1], B], parts[1] + B)
        run.add("proj", "aten.add", [parts[0], parts[1] + B], y)

    run.add("proj", "Linear", [X], y, is_module=True, inner=inner)
    run.add("act", "aten.relu", [y], np.maximum(y, 0))
    return run.dump()


def named(comparison):
    return [finding for finding in comparison.findings() if finding.kind in BLAMED]


def test_nothing_inside_is_blamed_where_the_module_gives_the_same():
    comparison = compare(in_halves(), whole())
    assert named(comparison) == []
    assert comparison.failed == ()
    assert comparison.passes()
    inner = {one.record.name: one for one in comparison.only_in_benchmark}
    assert inner["proj/aten.addmm_1/output.0"].reason == REASON
    assert inner["proj/aten.addmm_1/output.0"].expected
    assert "proj/Linear_0/output.0" in [row.name for row in comparison.rows]
    assert comparison.completeness.missing_outputs == ()


@pytest.mark.parametrize("fault", [{"off": 0.5}, {"times": 1.1}], ids=str)
def test_a_fault_inside_is_that_of_the_module(fault):
    comparison = compare(in_halves(**fault), whole())
    first, *_ = named(comparison)
    modules = {row.name: row.module for row in comparison.rows}
    assert (first.facts.get("module") or modules[first.layer]) == "proj"


def test_operators_that_are_the_same_on_both_sides_stay_compared():
    other = W.copy()
    other[3] *= 1.5
    comparison = compare(whole(other), whole())
    first, *_ = named(comparison)
    assert comparison["proj/aten.addmm_1/output.0"].rmse > 0.01
    assert first.layer.startswith("proj/")


def block(curve):
    """A module whose curve feeds a module inside."""
    run, made = Run(), {"silu": X / (1 + np.exp(-X)), "gelu": X * 0.5 * (1 + np.tanh(0.8 * X))}[curve]
    y = made @ W

    def inner():
        run.add("block", f"aten.{curve}", [X], made)
        product = {"is_module": True, "inner": lambda: run.add("block.fc", "aten.mm", [made, W], y)}
        run.add("block.fc", "Linear", [made], y, **product)

    run.add("block", "Block", [X], y, is_module=True, inner=inner)
    return run.dump()


def test_what_a_module_takes_is_the_fault_of_what_made_it():
    first, *_ = named(compare(block("gelu"), block("silu")))
    assert (first.kind, first.facts["module"], first.facts["only_in"]) == ("cause", "block", "benchmark")
    assert first.op_type == "aten.silu"


def around(in_parts, angle):
    """A module around another one, which is written in parts, with an operator of its own that hardly counts."""
    run, rotated = Run(), np.sin(X * angle)
    parts = [X[:, :8] @ W[:8], X[:, 8:] @ W[8:]]
    q = parts[0] + parts[1] if in_parts else X @ W
    y = q + np.float32(1e-7) * rotated

    def product():
        if not in_parts:
            run.add("attn.q", "aten.mm", [X, W], q)
            return
        for part, (x, w) in zip(parts, ((X[:, :8], W[:8]), (X[:, 8:], W[8:]))):
            run.add("attn.q", "aten.mm", [x, w], part)
        run.add("attn.q", "aten.add", parts, q)

    def inner():
        run.add("attn.q", "Linear", [X], q, is_module=True, inner=product)
        run.add("attn", "aten.sin", [X], rotated)
        run.add("attn", "aten.add", [q, rotated], y)

    run.add("attn", "Attention", [X], y, is_module=True, inner=inner)
    return run.dump()


def test_only_the_module_that_is_written_otherwise_is_left_out():
    comparison = compare(around(in_parts=True, angle=3.0), around(in_parts=False, angle=1.0))
    assert comparison["attn/aten.sin_1/output.0"].rmse > 0.5
    assert "attn.q/aten.mm_1/output.0" not in [row.name for row in comparison.rows]
    assert "attn" in [finding.facts.get("module") for finding in named(comparison)]


def row(error, io="out", dtype=np.float32):
    """Of a tensor that is off by this part of itself."""
    sides = []
    for times in (1 + error, 1):
        run = Run()
        run.add("act", "aten.relu", [X * np.float32(times)], (X * np.float32(times)).astype(dtype))
        sides.append(run.dump())
    return next(one for one in compare(*sides).rows if one.io == io)


@pytest.mark.parametrize(("error", "level", "apart"), [(0.38, 0.1, False), (0.42, 0.1, True), (0.001, 0, True)])
def test_a_tensor_inside_is_another_one_beyond_four_times_the_error_of_its_module(error, level, apart):
    assert _is_apart(row(error), level) is apart


@pytest.mark.parametrize(("error", "apart"), [(0.04, False), (0.07, True)])
def test_rounding_to_16_bits_may_add_a_twentieth(error, apart):
    assert _is_apart(row(error, dtype=ml_dtypes.bfloat16), 0.0) is apart


@pytest.mark.parametrize(("given", "known"), [(0.19, True), (0.21, False)])
def test_a_module_that_gives_twice_the_error_it_takes_has_a_fault(given, known):
    level = _level([row(0.1, io="in"), row(given)], 0.0)
    assert level == pytest.approx(given, rel=1e-3) if known else level is None
