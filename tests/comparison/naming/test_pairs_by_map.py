"""Pairs that a name map makes, and the map of a comparison's pairs."""

import numpy as np
import pytest

import sgsdump
from sgsdump.comparison.naming.pairs_by_map import name_map_of
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.tensors.tensor import Tensor


def dump(*names) -> Dump:
    array = np.arange(8, dtype=np.float32)
    return Dump([Record("out", 0, i, "OP", Tensor.of(name, array)) for i, name in enumerate(names)])


def compared(sample, benchmark, names):
    found = sgsdump.compare(sample, benchmark, name_map=names)
    left = [{u.record.name: u.reason for u in side} for side in (found.only_in_sample, found.only_in_benchmark)]
    return [(r.sample_name, r.name, r.paired) for r in found.rows], *left


def test_the_map_comes_before_names():
    pairs, _, left = compared(dump("a", "b", "c"), dump("a", "b", "c", "d"), {"d": "a"})
    assert pairs == [("b", "b", "name"), ("c", "c", "name"), ("a", "d", "map")]
    assert left == {"a": "not paired by name: the tensor 'a' of the sample is already paired with 'd' (by map)"}


def test_what_is_mapped_to_nothing_is_not_paired_by_name():
    pairs, ours, theirs = compared(dump("a", "b", "c"), dump("a", "b", "c"), {"a": "gone", "gone": "b", "c": "c"})
    assert pairs == [("c", "c", "map")]
    assert theirs["a"] == "the name map pairs it with 'gone', which the sample does not have"
    assert ours["b"] == "the name map pairs it with 'gone', which the benchmark does not have"


def test_names_that_are_not_unique_go_by_order():
    pairs, ours, _ = compared(dump("x", "x", "x"), dump("p", "p"), {"p": "x"})
    assert pairs == [("x", "p", "map")] * 2 and "of which the benchmark has fewer" in ours["x"]


def test_a_map_the_other_way_round_or_of_another_model():
    assert compared(dump("a"), dump("x"), {"a": "x"})[0] == [("a", "x", "map (sample to benchmark)")]
    with pytest.raises(
        ConfigError, match=r"no name in the name map is a tensor of the benchmark.*belongs to these models"
    ):
        compared(dump("a"), dump("x"), {"z": "a"})
    with pytest.raises(ConfigError, match="no name in the name map is a tensor of the sample"):
        compared(dump("a"), dump("x"), {"x": "z"})
    assert compared(dump("a"), dump("a"), {})[0] == [("a", "a", "name")]


def test_the_map_of_pairs():
    sample, benchmark = dump("a", "b", "dup", "dup"), dump("a", "c", "e", "f")
    pairs = [("a", "a"), ("b", "c"), ("dup", "e"), ("dup", "f")]
    assert name_map_of(pairs, sample, benchmark) == ({"c": "b"}, [("dup", "e"), ("dup", "f")])
