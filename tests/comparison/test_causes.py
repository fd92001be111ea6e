"""Why two programs differ: arguments, types and weights that are not the same, else the first operator by value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from verdict_words import lines_of

from sgsdump import Dump, Record, Tensor, compare
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.dataflow import first_difference
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Operator, as_arguments
from sgsdump.reports.comparison.data import render_json

X, W = np.linspace(1, 2, 12, dtype=np.float32), np.full(3, 2, np.float32)


def program(*operators: tuple[str, list[np.ndarray], np.ndarray, Mapping[str, Any]]) -> Dump:
    """A dump of operators: name, inputs, output, arguments; an input W is a weight."""
    records, network = [], {}
    for index, (name, inputs, output, arguments) in enumerate(operators):
        for slot, array in enumerate(inputs):
            records.append(Record("in", slot, index, name, Tensor.of(f"{name}/input.{slot}", array)))
        records.append(Record("out", 0, index, name, Tensor.of(f"{name}/output", array=output)))
        weights = {("in", slot): f"{name}.weight" for slot, array in enumerate(inputs) if array.size == W.size}
        source = f"net.py:{index}"
        network[index] = Operator(name, name, weights=weights, arguments=as_arguments(arguments), source=source)
    return Dump(records, "torch_tree", network=lambda: network)


def found(comparison: Comparison) -> list[Finding]:
    return list(comparison.causes)


def first_line(comparison: Comparison) -> str:
    """The line of the cause."""
    return lines_of(comparison)[1]


def test_an_argument_that_differs_is_said_first_with_the_line_of_the_program() -> None:
    good = program(("a", [X], X + 1, {"n": 1}), ("norm", [X + 1], X * 2, {"eps": 1e-5, "affine": True}))
    bad = program(("a", [X], X + 1, {"n": 1}), ("norm", [X + 1], X * 3, {"eps": 1e-2, "affine": True}))
    comparison = compare(bad, good)
    [finding] = found(comparison)
    assert (finding.kind, finding.layer) == ("argument", "norm/output")
    assert [finding.facts[name] for name in ("argument", "sample", "benchmark", "source")] == [
        *("eps", "0.01", "1e-05", "net.py:1")
    ]
    where = "the argument eps differs at norm/output (norm) in norm, called at net.py:1"
    assert first_line(comparison) == f"Cause: {where}: 0.01 in sample, 1e-05 in benchmark."
    assert json.loads(render_json(comparison, DOCUMENTED))["findings"][0]["facts"]["argument"] == "eps"


def test_an_argument_given_on_one_side_alone_differs_and_one_without_effect_does_not() -> None:
    good = program(("a", [X], X + 1, {"n": 1}), ("gelu", [X + 1], X * 2, {}))
    bad = program(("a", [X], X + 1, {"n": 2}), ("gelu", [X + 1], X * 3, {"approximate": "tanh", "device": "npu"}))
    [finding] = found(compare(bad, good))
    assert (finding.facts["argument"], finding.facts["benchmark"]) == ("approximate", "not given")


def test_equal_numbers_in_another_spelling_are_no_difference() -> None:
    good, bad = (program(("a", [X], X * factor, {"n": n})) for factor, n in ((1, 2), (2, 2.0)))
    assert [finding.kind for finding in found(compare(bad, good))] == ["cause"]


def test_a_weight_that_differs_is_said_with_its_name_and_once() -> None:
    good = program(("fc", [X, W], X * 2, {}), ("again", [X * 2, W], X, {}))
    bad = program(("fc", [X, W + 1], X * 3, {}), ("again", [X * 3, W + 1], X, {}))
    comparison = compare(bad, good)
    first = found(comparison)[0]
    assert (first.layer, first.facts["argument"], first.evidence) == ("fc/output", "fc.weight", "by value")
    assert first_line(comparison) == (
        "Cause: the parameter fc.weight differs at fc/output (fc) in fc, called at net.py:0: relative error 0.5."
    )


def test_where_the_sample_reads_another_weight_both_are_said() -> None:
    good = program(("norm_k", [X, W], X * 2, {}))
    bad = program(("norm_q", [X, W + 1], X * 3, {}))
    comparison = compare(bad, good, name_map={name: name.replace("_k", "_q") for name in good})
    line = first_line(comparison)
    assert line.startswith("Cause: the parameter norm_k.weight differs at norm_k/output (norm_k)")
    assert "(the sample reads norm_q.weight)" in line


def test_an_input_that_nothing_made_is_told_where_no_weight_is_known() -> None:
    good, bad = (program(("conv", [X, np.full(4, value, np.float32)], X * value, {})) for value in (2, 3))
    comparison = compare(bad, good)
    [finding] = found(comparison)
    assert finding.facts["argument"] == "conv/input.1"
    assert first_line(comparison).startswith(
        "Cause: the input conv/input.1, which no compared operator computes, differs at conv"
    )


def test_another_element_type_in_one_operator_is_said_once() -> None:
    good = program(("a", [X], X, {}), ("b", [X], X, {}), ("c", [X], X, {}))
    half = X.astype(np.float16)
    [finding] = found(compare(program(("a", [X], X, {}), ("b", [half], half, {}), ("c", [X], X, {})), good))
    facts = [finding.facts[name] for name in ("argument", "sample", "benchmark")]
    assert (finding.layer, facts) == ("b/output", ["type", "float16", "float32"])
    line = first_line(compare(program(("b", [half], half, {})), program(("b", [X], X, {}))))
    assert "the element type differs at b/output" in line and "float16 in sample, float32 in benchmark" in line


def test_a_dump_of_the_same_values_in_float16_has_no_cause() -> None:
    def dump(*arrays: np.ndarray) -> Dump:
        return Dump([Record("out", 0, i, "Tanh", Tensor.of(f"layer{i}", array)) for i, array in enumerate(arrays)])

    values = [np.tanh(X * factor).astype(np.float32) for factor in (1, 2, 3)]
    comparison = compare(dump(*(each.astype(np.float16) for each in values)), dump(*values))
    assert not found(comparison) and first_line(comparison).startswith("No cause: ")


def test_what_comes_before_the_first_argument_that_differs_is_the_cause() -> None:
    good = program(("a", [X], X + 1, {}), ("pool", [X + 1], X + 2, {"size": 3}))
    bad = program(("a", [X], X + 5, {}), ("pool", [X + 5], X + 7, {"size": 4}))
    assert [(finding.kind, finding.layer) for finding in found(compare(bad, good))] == [
        *(("cause", "a/output"), ("argument", "pool/output"))
    ]


def test_healthy_runs_have_no_cause() -> None:
    good, rounded = X * 2, np.nextafter(X * 2, np.float32(9))
    comparison = compare(program(("a", [X, W], rounded, {"n": 1})), program(("a", [X, W], good, {"n": 1})))
    assert not found(comparison) and first_line(comparison).startswith("No cause: ")


def test_the_first_that_differs_is_the_first_in_the_dataflow_not_in_the_list() -> None:
    def run(scale: int) -> Dump:
        embedded = X * scale
        return program(("head", [embedded + 1], embedded * 7, {}), ("embedding", [X], embedded + 1, {}))

    first = first_difference(compare(run(2), run(1)))
    assert first is not None and first.output.name == "embedding/output"


def test_runs_of_one_library_are_not_turned_to_fit() -> None:
    x = np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype(np.float32)
    good, bad = (program(("t", [x], y, {})) for y in (x, np.ascontiguousarray(x.transpose(0, 3, 1, 2))))
    assert compare(bad, good)["t/output"].rmse > 0.1


def test_an_operator_that_only_one_side_has_is_the_cause_of_what_reads_it() -> None:
    turned = np.ascontiguousarray((X + 1)[::-1])
    good = program(("a", [X], X + 1, {}), ("turn", [X + 1], turned, {}), ("b", [turned], turned * 2, {}))
    comparison = compare(program(("a", [X], X + 1, {}), ("b", [X + 1], (X + 1) * 2, {})), good)
    [finding] = found(comparison)
    assert (finding.kind, finding.layer, finding.facts["only_in"]) == ("cause", "turn/output", "benchmark")
    assert "operator turn/output (turn), called at net.py:1, exists only in the benchmark" in first_line(comparison)


def test_of_operators_that_only_one_side_has_the_last_that_computes_is_the_cause() -> None:
    summed = np.cumsum(X, dtype=np.float32)
    parts = [
        ("cumsum", [X], summed, {}),
        ("sub", [summed], summed - 1, {}),
        ("slice", [summed - 1], summed[:9] - 1, {}),
    ]
    good = program(*parts, ("b", [summed[:9] - 1], summed[:9], {}))
    comparison = compare(program(("b", [X[:9]], X[:9] + 1, {})), good)
    [finding] = found(comparison)
    assert (finding.layer, finding.facts["chain"]) == ("sub/output", "cumsum, sub, slice")
    line = "that exist only in the benchmark (cumsum, sub, slice); as a result, b/input.0 differs,"
    assert line in first_line(comparison)


def test_an_operator_that_only_one_side_has_is_the_cause_of_what_its_module_gives() -> None:
    def run(clamps: bool) -> Dump:
        network, records = {}, []
        values = [("mm", "aten.mm", "block", X, X * 2)]
        values += [("clamp", "aten.clamp", "block", X * 2, np.clip(X * 2, 0, 3))] if clamps else []
        given = values[-1][-1]
        values += [("block", "Block", "block", X, given), ("add", "aten.add", "", given, given + 1)]
        for index, (name, kind, module, read, made) in enumerate(values):
            records.append(Record("in", 0, index, name, Tensor.of(f"{name}/input.0", read)))
            records.append(Record("out", 0, index, name, Tensor.of(f"{name}/output.0", made)))
            network[index] = Operator(module, kind, is_module="." not in kind)
        return Dump(records, "atb_tree", network=lambda: network)

    for sides, only_in in (((False, True), "benchmark"), ((True, False), "sample")):
        [finding] = found(compare(*map(run, sides)))
        facts = [finding.facts[name] for name in ("module", "only_in")]
        assert (finding.kind, finding.layer, facts) == ("cause", "clamp/output.0", ["block", only_in])


def test_the_first_that_differs_has_its_line_of_the_program_and_inputs_are_equal_only_where_there_are_some() -> None:
    good, bad = (program(("a", [X], X, {"n": 1}), ("b", [], X * factor, {})) for factor in (1, 2))
    [finding] = found(compare(bad, good))
    assert (finding.layer, finding.facts["inputs"], finding.facts["source"]) == ("b/output", "unknown", "net.py:1")
    assert "called at net.py:1, is the first operator whose error exceeds rounding" in first_line(compare(bad, good))
