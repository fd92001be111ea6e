"""What differs between the environments of two programs stands before their tensors; what cannot matter does not."""

import numpy as np
from verdict_words import sentences

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.tensors.tensor import Tensor

ALIKE = {("versions", "torch"): "2.13.0", ("variables", "OMP_NUM_THREADS"): "1", ("random", "seed"): "0"}


def ran(kind="aten.mul", value=1.0, weight=None, **more):
    """A program of one operator in an environment: ``ran(seed="1")``."""
    groups = {"torch": "versions", "threads": "settings", "seed": "random", "state": "random"}
    environment = {**ALIKE, **{(groups.get(name, "variables"), name): text for name, text in more.items()}}
    records = [
        Record("in", 0, 0, "op", Tensor.of("op/input.0", np.float32([value if weight else 1.0]))),
        Record("out", 0, 0, "op", Tensor.of("op/output.0", np.float32([value]))),
    ]
    weights = {("in", 0): weight} if weight else {}
    network = {0: Operator("", kind, weights=weights)}
    return Dump(records, network=lambda: network).in_environment(lambda: environment)


def told(sample, benchmark):
    return [tuple(finding.facts.values()) for finding in compare(sample, benchmark, inputs=True).environment]


def test_versions_variables_and_settings():
    found = told(ran(torch="2.12.0", threads="4"), ran(threads="2", MKL_CBWR="AVX2"))
    assert found == [
        ("versions", "torch", "2.12.0", "2.13.0"),
        ("settings", "threads", "4", "2"),
        ("variables", "MKL_CBWR", "AVX2"),
    ]
    said = sentences(compare(ran(torch="2.12.0", threads="4", value=2.0), ran(threads="2", MKL_CBWR="AVX2")))
    assert (
        "Environments differ (sample, benchmark): torch 2.12.0, 2.13.0; threads 4, 2; variable MKL_CBWR not set, AVX2."
    ) in said


def test_random_numbers_count_where_they_are_drawn_or_weights_differ():
    assert told(ran(seed="1", state="a"), ran(state="b")) == []
    assert told(ran(seed="1", weight="w", value=2.0), ran(weight="w")) == [("random", "seed", "1", "0")]
    drawn = told(ran("aten.bernoulli_", seed="1", state="a"), ran(state="b"))
    assert drawn == [
        ("random", "seed", "1", "0"),
        ("random", "state", "a", "b"),
        ("drawn", "random operators", "bernoulli_ 1", "none"),
    ]


def test_nothing_is_told_where_a_side_has_no_record():
    assert told(Dump(ran().records), ran(threads="2")) == []


def fed(tokens, value, dtype=np.int64):
    """A program that is fed tokens, of one operator."""
    records = [
        Record("in", 0, 0, "embedding", Tensor.of("embedding/input.0", np.array(tokens, dtype))),
        Record("out", 0, 0, "embedding", Tensor.of("embedding/output.0", np.float32([value]))),
    ]
    network = {0: Operator("", "aten.embedding", values={("in", 0): 0, ("out", 0): 1})}
    return Dump(records, network=lambda: network)


def test_other_tokens_are_said_and_no_error_is_named():
    comparison = compare(fed([1, 2], 1.0), fed([1, 3], 2.0), inputs=True)
    assert told(fed([1, 2], 1.0), fed([1, 3], 2.0)) == [("inputs", "embedding/input.0")]
    lines = sentences(comparison)
    assert (
        "The programs had different integer inputs such as tokens or indices (embedding/input.0). Differences that "
        "these inputs cause are not errors."
    ) in lines
    assert told(fed([1, 2], 1.0), fed([1, 2], 2.0)) == []
    assert told(fed([1, 2], 1.0, np.float32), fed([1, 3], 2.0, np.float32)) == []


def test_a_table_of_weights_is_no_input():
    def table(value):
        dump = fed([value], 1.0)
        network = {0: Operator("", "aten.embedding", values={("in", 0): 0}, weights={("in", 0): "position"})}
        return Dump(dump.records, network=lambda: network)

    assert told(table(1), table(2)) == []
