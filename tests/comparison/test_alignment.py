"""Pairing by name and slot; what has no partner says why."""

import numpy as np
import pytest

from sgsdump.comparison.align import align_names as align
from sgsdump.dumps.dump import Dump, Record
from sgsdump.files.names import normalised
from sgsdump.tensors.tensor import Tensor


def dump(*items, **facts) -> Dump:
    """Records of (name, slot) or name, all outputs unless said otherwise."""
    records = []
    for index, item in enumerate(items):
        name, slot = item if isinstance(item, tuple) else (item, 0)
        records.append(Record(facts.get("io", "out"), slot, index, "OP", Tensor.of(name, np.zeros(1, np.float32))))
    return Dump(records)


def cut(name: str) -> Record:
    return Record("out", 0, 9, "", Tensor.of(name, np.zeros(1, np.float32)), cut=True)


def pairs(found):
    return [(p.sample.name, p.benchmark.name, p.how) for p in found.pairs]


def reasons(unpaired):
    return {u.record.name: u.reason for u in unpaired}


def test_normalised_is_the_scripts_folder_name():
    assert normalised("a/b:0") == "a_b0"
    assert normalised("cat two") == "cat"
    assert normalised("x\ty") == "x" and normalised("") == ""


def test_exact_names_go_first():
    found = align(dump("a_b", "a/b"), dump("a/b", "a_b"))
    assert pairs(found) == [("a/b", "a/b", "name"), ("a_b", "a_b", "name")]


def test_normalised_names_pair_in_the_benchmarks_order():
    found = align(dump("cat", "c_d"), dump("c/d:", "cat two"))
    assert pairs(found) == [("c_d", "c/d:", "normalised name"), ("cat", "cat two", "normalised name")]


def test_names_that_read_alike_are_refused_not_guessed():
    found = align(dump("cat"), dump("cat one", "cat two"))
    assert not found.pairs
    assert "ambiguous" in reasons(found.only_in_benchmark)["cat one"]
    assert "ambiguous" in reasons(found.only_in_sample)["cat"]


def test_duplicates_pair_in_order_and_the_surplus_is_reported():
    found = align(dump("dup", "dup"), dump("dup"))
    assert pairs(found) == [("dup", "dup", "name")] and "number 1" in found.pairs[0].note
    assert found.pairs[0].sample.op_index == 0
    assert "the other dump has fewer" in reasons(found.only_in_sample)["dup"]


def test_slots_must_agree_and_a_wrong_one_is_said():
    found = align(dump(("split", 1)), dump(("split", 0)))
    assert not found.pairs
    assert (
        reasons(found.only_in_benchmark)["split"]
        == "in the sample, the tensor of this name is output 1 of its operator, not output 0"
    )


def test_a_cut_name_pairs_with_the_only_one_that_begins_so():
    long = "block/" * 40 + "conv"
    found = align(Dump([cut(long[:212])]), dump(long, "other"))
    assert pairs(found) == [(long[:212], long, "cut name")] and "truncated" in found.pairs[0].note
    found = align(Dump([cut(long[:212])]), dump(long, long + "2"))
    assert not found.pairs and "truncated" in reasons(found.only_in_benchmark)[long]


def test_constants_are_never_paired_and_inputs_only_when_asked():
    value = Tensor.of("w", np.zeros(1, np.float32))
    picture = Tensor.of("data", np.zeros(1, np.float32))
    d = Dump([Record("in", 0, 0, "CONV", picture), Record("in", 1, 0, "CONV", value, constant=True)])
    assert not align(d, d).pairs
    assert pairs(align(d, d, inputs=True)) == [("data", "data", "name")]


def test_every_record_ends_up_somewhere():
    a = dump("x", "y", "y", ("s", 1), "cat one", "q")
    b = dump("y", "x", "s", "cat two", "cat three", "r")
    found = align(a, b)
    assert len(found.pairs) + len(found.only_in_sample) == len(a.records)
    assert len(found.pairs) + len(found.only_in_benchmark) == len(b.records)


LONG = "block/" * 40


@pytest.mark.parametrize(
    ("sample", "benchmark", "paired"),
    [
        ([cut(LONG)], [LONG + "conv"], [(LONG, LONG + "conv")]),
        ([LONG + "conv"], [cut(LONG)], [(LONG + "conv", LONG)]),  # the benchmark's header may be the cut one
        ([cut(LONG)], [LONG + "conv", LONG + "conv2"], []),
        ([LONG + "conv", LONG + "conv2"], [cut(LONG)], []),
        # one candidate each, and yet two that want it
        ([cut(LONG), cut(LONG + "c")], [LONG + "conv"], []),
        ([cut(LONG), cut(LONG + "c")], [LONG + "conv", LONG + "add"], []),
        ([cut(LONG)], [LONG[:-1] + "x"], []),
        ([LONG], [LONG + "conv"], []),  # neither is cut
    ],
)
def test_cut_names_pair_only_where_nothing_else_could_be_meant(sample, benchmark, paired):
    sides = [
        [dump(item).records[0] if isinstance(item, str) else item for item in side] for side in (sample, benchmark)
    ]
    found = align(*map(Dump, sides))
    assert [(p.sample.name, p.benchmark.name) for p in found.pairs] == paired
    for unpaired in found.only_in_sample + found.only_in_benchmark:
        assert "several names start with it" in unpaired.reason or "no output of this name" in unpaired.reason


def test_a_name_that_reads_like_one_paired_already_has_no_partner():
    found = align(dump("a_b"), dump("a_b", "a/b"))
    assert reasons(found.only_in_benchmark) == {"a/b": "no output of this name in the sample"}


def record(name, values, io="out", op_index=0, slot=0, op_type="ADD", constant=False, **facts) -> Record:
    return Record(io, slot, op_index, op_type, Tensor.of(name, np.asarray(values), **facts), constant)


@pytest.mark.parametrize("swapped", [False, True])
def test_an_output_named_apart_pairs_whatever_its_slot(swapped):
    """The converter of SigmaStar puts a MUL behind each piece of a Split: the second piece is a first output there."""
    split = Dump([record("p0", [1.0]), record("p1", [2.0], slot=1)])
    multiplied = Dump([record("p0", [1.0], op_index=1), record("p1", [2.0], op_index=2)])
    found = align(multiplied, split) if swapped else align(split, multiplied)
    assert pairs(found) == [("p0", "p0", "name"), ("p1", "p1", "name")]


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([], "no output of this name in the benchmark"),
        ([("in", 0, False)], "the benchmark has it only as an input"),
        ([("in", 0, True)], "the benchmark has it only as a constant"),
        ([("in", 0, False), ("in", 1, True)], "the benchmark has it only as an input"),
        ([("in", 0, True), ("in", 1, False)], "the benchmark has it only as a constant"),
        (
            [("out", 1, False)],
            "in the benchmark, the tensor of this name is output 1 of its operator, not output 0",
        ),
        (
            [("out", 2, False), ("out", 1, False)],
            "in the benchmark, the tensor of this name is output 1 and 2 of its operator, not output 0",
        ),
        (
            [("out", n, False) for n in (1, 2, 3)],
            "in the benchmark, the tensor of this name is output 1 and 2 and 3 of its operator, not output 0",
        ),
        (
            [("out", n, False) for n in (1, 2, 3, 4)],
            r"in the benchmark, the tensor of this name is output 4 names (1 …) of its operator, not output 0",
        ),
        ([("out", 1, True)], "the benchmark has it only as a constant"),
    ],
)
def test_why_a_tensor_has_no_partner(others, reason):
    benchmark = [record("x", [1.0], io, slot=slot, constant=constant) for io, slot, constant in others]
    found = align(Dump([record("x", [1.0])]), Dump([record("y", [1.0], op_index=1), *benchmark]))
    assert [(one.record.name, one.reason) for one in found.only_in_sample] == [("x", reason)]
