"""A module that is several in the other dump, taken apart by a name map that states the axis."""

import json

import numpy as np
import pytest
from verdict_words import lines_of, sentences

from sgsdump.comparison.compare import compare
from sgsdump.comparison.naming.name_sources import read_name_sources
from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.errors import ConfigError, FormatError
from sgsdump.tensors.tensor import Tensor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4), np.float32)
WEIGHTS = {name: RNG.standard_normal((size, 4), np.float32) for name, size in (("q", 4), ("k", 2), ("v", 2))}
MAP = {"layers.*.qkv": {"parts": [f"layers.*.{name}_proj" for name in "qkv"], "axis": -1}}


def program(*modules):
    """Modules (path, weight), each a Linear: reads X and its weight, an ``mm`` in it, as a program's dump has them."""
    records, network = [], {}
    for path, weight in modules:
        y = X @ weight.T
        for kind, tensors in (
            ("Linear", (("in", X), ("out", y))),
            ("aten.mm", (("in", X), ("in", weight), ("out", y))),
        ):
            index, slots = len(network), {"in": 0, "out": 0}
            values, weights = {}, {}
            for io, array in tensors:
                slot, slots[io] = slots[io], slots[io] + 1
                name = f"{path}/{kind}/{io}put.{slot}"
                records.append(Record(io, slot, index, kind, Tensor.of(name, array)))
                values[io, slot] = hash((path, array.tobytes()))
                if array is weight:
                    weights[io, slot] = f"{path}.weight"
            network[index] = Operator(path, kind, kind == "Linear", values=values, weights=weights)
    return Dump(records, network=lambda: network)


def split(layers=2, **changed):
    return program(
        *(
            (f"layers.{n}.{name}_proj", changed.get(f"{name}{n}", WEIGHTS[name]))
            for n in range(layers)
            for name in "qkv"
        )
    )


def fused(layers=2):
    return program(*((f"layers.{n}.qkv", np.concatenate([*WEIGHTS.values()])) for n in range(layers)))


@pytest.fixture
def sources(tmp_path):
    def read(entry=MAP):
        (tmp_path / "names.json").write_text(json.dumps(entry))
        return read_name_sources([tmp_path / "names.json"])

    return read


@pytest.mark.parametrize("is_sample", [True, False])
def test_the_parts_are_compared_on_the_axis_and_a_weight_on_its_own(sources, is_sample):
    sides = (fused(), split()) if is_sample else (split(), fused())
    comparison = compare(*sides, inputs=True, name_map=sources())
    assert not comparison.worst.error and not comparison.only_in_sample and not comparison.only_in_benchmark
    assert len(comparison) == 2 * 3 * 5
    assert {row.paired for row in comparison} == {"part on axis 0", "part on axis 1", "whole, beside its parts"}
    of_k = [row for row in comparison if "part 2 of 3 of layers.1.qkv" in row.note]
    assert len(of_k) == 5 and {row.count for row in of_k} == {4, 8}
    assert any(line.startswith("Paired tensors: ") and "12 by part on axis 1" in line for line in lines_of(comparison))


def test_the_part_that_is_wrong_is_named(sources):
    wrong = split(k1=WEIGHTS["k"] * 2)
    comparison = compare(wrong, fused(), inputs=True, name_map=sources())
    assert [row.sample_name for row in comparison if row.error] == [
        "layers.1.k_proj/Linear/output.0",
        "layers.1.k_proj/aten.mm/input.1",
        "layers.1.k_proj/aten.mm/output.0",
    ]
    assert "the parameter layers.1.qkv.weight differs" in " ".join(sentences(comparison))


def test_other_names_pair_as_without_the_map(sources):
    rest = (("head", WEIGHTS["q"]),)
    one = program(("layers.0.qkv", np.concatenate([*WEIGHTS.values()])), *rest)
    other = program(*((f"layers.0.{name}_proj", WEIGHTS[name]) for name in "qkv"), *rest)
    comparison = compare(one, other, inputs=True, name_map=sources())
    assert len([row for row in comparison if row.module == "head"]) == 5 and not comparison.worst.error


def test_maps_that_do_not_fit(sources):
    with pytest.raises(ConfigError, match=r"splits module layers\.\*\.qkv into .* one dump must contain this module"):
        compare(split(), split(), name_map=sources())
    lacking = program(("layers.0.q_proj", WEIGHTS["q"]))
    with pytest.raises(
        ConfigError,
        match=r"layers\.0\.qkv of the sample into parts, but the benchmark does not contain the part layers\.0\.k_proj",
    ):
        compare(fused(1), lacking, name_map=sources())
    with pytest.raises(FormatError, match="or to its parts and their axis"):
        sources({"layers.0.qkv": {"parts": ["layers.0.q"], "axis": -1}})
    with pytest.raises(FormatError, match="or to its parts and their axis"):
        sources({"layers.0.qkv": {"parts": ["a", "b"], "axis": "last"}})
