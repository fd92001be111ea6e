"""Two runs of a small torch net, one of them in a narrow type: faults apart from rounding, without a hooked program."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from recorded_operators import recorded  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from verdict_words import sentences  # noqa: E402

from sgsdump import Dump, Record, Tensor, compare  # noqa: E402
from sgsdump.comparison.low_precision import OUTSIDE  # noqa: E402
from sgsdump.comparison.thresholds import DOCUMENTED  # noqa: E402
from sgsdump.dumps.dump import Call, Operator  # noqa: E402
from sgsdump.reports.report import report_of  # noqa: E402
from sgsdump.reports.verdict import next_steps, verdict_text  # noqa: E402

BLAMED = ("argument", "another tensor", "not finite", "cause", "channel")


def net(dtype, *, eps=1e-5, factor=0.5, change=1.0, more=False):
    """A program's run: its operators in order, each with the module it runs in."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    weights = {name: normal(16, 16) / 4 for name in ("a", "b")}
    weights["b"][3] *= change
    weights = {name: weight.to(dtype) for name, weight in weights.items()}
    x = normal(4, 16).to(dtype)
    steps = [
        ("a", lambda x: torch.mm(x, weights["a"])),
        ("norm", lambda x: F.layer_norm(x, (16,), eps=eps)),
        ("scale", lambda x: x * factor),
        ("turn", lambda x: x.flip(1) if more else None),
        ("b", lambda x: torch.mm(x, weights["b"])),
        ("end", lambda x: torch.relu(x)),
    ]
    calls = []
    for module, step in steps:
        with torch.no_grad():
            made = step(x)
        if made is not None:
            calls.append((module, recorded(step, x)[-1]))
            x = made
    return calls


def dump(calls, wrong=None):
    """The dump of the calls; the output of the module ``wrong`` is what a kernel would give that loses a sign."""
    records, network, numbers = [], {}, {}

    def number(values):
        return numbers.setdefault((values.shape, values.tobytes()), len(numbers))

    for index, (module, call) in enumerate(calls):
        name, outputs = f"{index}_{module}", call.outputs[:1]
        if module == wrong:
            outputs = [np.abs(outputs[0])]
        values, weights = {}, {}
        for slot, (argument, array) in enumerate(call.tensors.items()):
            records.append(Record("in", slot, index, call.kind, Tensor.of(f"{name}/input.{slot}", array)))
            values["in", slot] = number(array)
            if argument == "mat2":
                weights["in", slot] = f"{module}.weight"
        records.append(Record("out", 0, index, call.kind, Tensor.of(f"{name}/output.0", outputs[0])))
        values["out", 0] = number(outputs[0])
        arguments = {key: json.dumps(value) for key, value in call.arguments.items()}
        told = Call(call.overload, tuple(call.tensors))
        network[index] = Operator(module, call.kind, False, values, weights, arguments, call=told)
    return Dump(records, "rounds", network=lambda: network)


def blamed(sample, benchmark):
    comparison = compare(sample, benchmark)
    findings = comparison.findings()
    named = [finding for finding in findings if finding.kind in BLAMED]
    return named, findings, " ".join(sentences(comparison))


PAIRS = [(torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)]


@pytest.mark.parametrize(("sample", "benchmark"), PAIRS, ids=str)
def test_a_weight_and_an_argument_come_first(sample, benchmark):
    golden = dump(net(benchmark))
    (first, *_), _, _ = blamed(dump(net(sample, change=0.5)), golden)
    assert (first.kind, first.facts["what"], first.facts["argument"]) == ("argument", "weight", "b.weight")
    (first, *_), _, _ = blamed(dump(net(sample, eps=1e-2)), golden)
    assert (first.kind, first.facts["argument"], first.facts["sample"]) == ("argument", "eps", "0.01")
    (first, *_), _, _ = blamed(dump(net(sample, factor=0.4)), golden)
    assert (first.kind, first.facts["argument"], first.facts["module"]) == ("argument", "other", "scale")


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
def test_rounding_alone_is_said_and_nothing_is_blamed(narrow):
    named, findings, said = blamed(dump(net(narrow)), dump(net(torch.float32)))
    assert named == []
    assert [finding.facts["types"] for finding in findings if finding.kind == "rounding"] == [str(narrow)[6:]]
    assert "No cause: all differences are caused by rounding to" in said


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
def test_a_weight_one_unit_off_is_not_rounding(narrow):
    calls = net(narrow)
    weight = calls[0][1].tensors["mat2"]
    weight.view(np.uint16).reshape(-1)[5] += 1
    (first, *_), _, _ = blamed(dump(calls), dump(net(torch.float32)))
    assert (first.facts["what"], first.facts["argument"]) == ("weight", "a.weight")


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
def test_a_kernel_outside_its_bound_is_measured(narrow):
    (first, *_), _, said = blamed(dump(net(narrow), wrong="scale"), dump(net(torch.float32)))
    assert (first.kind, first.evidence, first.facts["how"]) == ("cause", "measured", OUTSIDE)
    assert first.facts["module"] == "scale"
    assert "its result in the sample is outside the rounding bound" in said


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
def test_a_kernel_that_is_off_by_no_more_than_rounding_is_measured_too(narrow):
    calls = net(narrow)
    outputs = calls[2][1].outputs
    outputs[0] = (outputs[0].astype(np.float32) * (1 + 2 * torch.finfo(narrow).eps)).astype(outputs[0].dtype)
    (first, *_), _, _ = blamed(dump(calls), dump(net(narrow)))
    assert (first.evidence, first.facts["how"], first.facts["module"]) == ("measured", OUTSIDE, "scale")
    (step,) = next_steps(compare(dump(calls), dump(net(narrow))))
    assert step.copy == "sgsdump check TREE"
    assert report_of(compare(dump(calls), dump(net(narrow)))).good is False


@pytest.mark.parametrize(("sample", "benchmark"), PAIRS, ids=str)
def test_two_operators_of_one_family_are_told_apart(sample, benchmark):
    def resized(dtype, mode):
        x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
        step = recorded(lambda x: F.interpolate(x, scale_factor=2.0, mode=mode), x)[-1]
        weight = torch.eye(16).to(dtype)
        after = torch.from_numpy(step.outputs[0].astype(np.float32)).to(dtype).reshape(-1, 16)
        return dump([("up", step), *(("fc", recorded(lambda x: torch.mm(x, weight), after)[-1]) for _ in "12")])

    (first, *_), _, _ = blamed(resized(sample, "bilinear"), resized(benchmark, "nearest"))
    assert (first.kind, first.facts["module"], first.layer) == ("cause", "up", "0_up/output.0")
    assert blamed(resized(sample, "nearest"), resized(benchmark, "nearest"))[0] == []


def test_an_operator_that_one_side_alone_has():
    (first, *_), _, _ = blamed(dump(net(torch.bfloat16, more=True)), dump(net(torch.float32)))
    assert (first.kind, first.facts["module"], first.facts["only_in"]) == ("cause", "turn", "sample")


def test_without_torch_it_is_said_what_was_not_done(monkeypatch):
    monkeypatch.setattr("sgsdump.comparison.low_precision.find_spec", lambda name: None)
    named, _, said = blamed(dump(net(torch.bfloat16)), dump(net(torch.float32)))
    assert named == []
    assert "pip install 'sgsdump[torch]'" in said


def test_a_weight_that_was_rounded_and_cast_back_does_not_differ():
    """``1 + weight.float()``: float32 on both sides, but one of them holds the weight in bfloat16."""
    weight = np.linspace(0.1, 1, 12, dtype=np.float32).reshape(3, 4)

    def run(narrow, change=1.0):
        dtype = torch.bfloat16 if narrow else torch.float32
        own = (torch.from_numpy(weight) * change).to(dtype)
        read = own.float().numpy()
        product = read.astype(ml_dtypes.bfloat16 if narrow else np.float32)
        records, network = [], {}
        for index, name in enumerate("ab"):
            records.append(Record("out", 0, index, "aten.mm", Tensor.of(f"{name}/output.0", product)))
            network[index] = Operator(name, "aten.mm")
        records.append(Record("in", 0, 2, "aten.add", Tensor.of("norm/input.0", read)))
        records.append(Record("out", 0, 2, "aten.add", Tensor.of("norm/output.0", read + 1)))
        network[2] = Operator("norm", "aten.add", weights={("in", 0): "norm.weight"})
        return Dump(records, "rounds", network=lambda: network)

    assert not blamed(run(True), run(False))[0]
    named, _, _ = blamed(run(True, change=1.1), run(False))
    assert named[0].facts["argument"] == "norm.weight"


def turned_and_multiplied(change):
    """A weight that is turned before it is multiplied with, as a linear layer does."""
    x, weight = (torch.linspace(-1, 1, 16).reshape(4, 4) + number for number in (0, 0.3))
    weight[1, 2] *= change
    narrow = x.bfloat16(), weight.bfloat16()
    calls = [("a", recorded(lambda w: w.t(), narrow[1])[-1]), ("a", recorded(torch.mm, narrow[0], narrow[1].t())[-1])]
    return dump(calls)


def test_the_first_that_differs_is_none_that_only_moves_values_and_not_told_beside_a_weight():
    both = turned_and_multiplied(1.01), turned_and_multiplied(1.0)
    text = verdict_text(compare(*both), DOCUMENTED)
    assert "the parameter a.weight differs" in text
    assert "First operator that differs" not in text
    named = list(map(without_weights, both))
    lines = verdict_text(compare(*named), DOCUMENTED).splitlines()
    line = next(line for line in lines if line.startswith("First operator that differs"))
    assert "mm" in line and "aten.t" not in line


def without_weights(dump):
    network = {index: replace(operator, weights={}) for index, operator in dump.network().items()}
    return Dump(dump.records, "rounds", network=lambda: network)
