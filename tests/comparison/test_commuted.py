"""Operands in either order, parts of buffers, axes in another order: pairs of operators' inputs that two programs write
in two ways."""

from dataclasses import replace

import numpy as np
import pytest
from module_runs import Run

from sgsdump import compare

RNG = np.random.default_rng(3)
X, Y = (RNG.normal(size=(2, 6, 4)).astype(np.float32) for _ in range(2))
KINDS = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "sub": np.subtract}


def run(kind, operands, made, param=None):
    run = Run()
    run.add("net", f"aten.{kind}", list(operands), made)
    run.network[0] = replace(run.network[0], arguments=param or {})
    return run.dump()


def inputs(comparison):
    return [row.error for row in comparison.rows if row.io == "in"]


@pytest.mark.parametrize("kind", ["add", "add_", "mul", "maximum"])
def test_operands_pair_in_either_order(kind):
    made = KINDS[kind.strip("_")](X, Y)
    comparison = compare(run(kind, (Y, X), made), run(kind.strip("_"), (X, Y), made))
    assert inputs(comparison) == [0.0, 0.0]
    assert comparison.verdict().state == "equal"
    assert all("swapped operands" in row.note for row in comparison.rows if row.io == "in")


def test_the_operands_of_a_subtraction_stand_in_one_order():
    comparison = compare(run("sub", (Y, X), Y - X), run("sub", (X, Y), X - Y))
    assert min(inputs(comparison)) > 0.5
    assert comparison.verdict().state == "differs"


def test_a_factor_of_the_second_operand_forbids_the_other_order():
    two = {"alpha": "2"}
    comparison = compare(run("add", (Y, X), Y + 2 * X, two), run("add", (X, Y), X + 2 * Y, two))
    assert min(inputs(comparison)) > 0.5


def test_operands_that_agree_in_no_order_are_left_as_they_are():
    other = RNG.normal(size=X.shape).astype(np.float32)
    comparison = compare(run("add", (other, X), other + X), run("add", (X, Y), X + Y))
    assert min(inputs(comparison)) > 0.5
    assert not any("swapped operands" in row.note for row in comparison.rows)


def read(values):
    run = Run()
    run.add("net", "aten.sum", [values], np.float32(1.0).reshape(1))
    return run.dump()


BUFFER = np.concatenate([X, np.zeros((2, 10, 4), np.float32)], 1)
FORMS = {
    "the first 6 of 16 on axis 1 of the sample": (BUFFER, X),
    "the last 2 of 6 on axis 1 of the benchmark": (X[:, 4:], X),
    "the last of every 3 of 12 on axis 1": (X.reshape(1, 12, 4)[:, 2::3], X.reshape(1, 12, 4)),
    "permuted to 0, 2, 1": (X.transpose(0, 2, 1), X),
}


@pytest.mark.parametrize("note", FORMS)
def test_what_both_sides_have_is_compared(note):
    sample, benchmark = FORMS[note]
    comparison = compare(read(sample), read(benchmark))
    row = next(row for row in comparison.rows if row.io == "in")
    assert row.error == 0
    assert note.split(",")[0] in row.note
    assert comparison.failed == ()


def test_runs_of_batches_of_other_sizes_are_not_compared_along_the_batch():
    comparison = compare(read(np.concatenate([X, Y])), read(X))
    assert len(comparison.failed) == 1
    assert comparison.verdict().state == "equal", "of what could be compared"


@pytest.mark.parametrize("sample", [BUFFER * 1.1, Y.transpose(0, 2, 1), X[:, :, :2]], ids=["buffer", "axes", "part"])
def test_shapes_that_differ_prove_nothing_where_the_values_do_too(sample):
    comparison = compare(read(sample[:, :, ::-1] if sample.shape[2] == 2 else sample), read(X))
    assert len(comparison.failed) == 1
    assert comparison.verdict().account.not_comparable
