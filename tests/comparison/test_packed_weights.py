"""Linear layers in 8 bits: the formula of what 8 bits cost against torch's own dynamic quantisation."""

import json
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from module_runs import Run  # noqa: E402

from sgsdump import compare  # noqa: E402
from sgsdump.comparison.finding import PACKED  # noqa: E402
from sgsdump.dumps.dump import Call, Operator  # noqa: E402

LINEAR = "quantized.linear_dynamic"


def runs(change=lambda weight: None, rows=8, size=16, seed=0):
    """The dumps of a linear layer and what follows, quantised by torch with its weight changed, and in float32."""
    torch.manual_seed(seed)
    x, layer = torch.randn(rows, size), torch.nn.Linear(size, size)
    weight, bias = (value.detach().numpy().copy() for value in (layer.weight, layer.bias))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = layer(x).numpy()
        change(layer.weight)
        module = torch.nn.Sequential(layer)
        y = torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)(x).numpy()
    x, sample, benchmark = x.numpy(), Run(), Run()
    sample.add("fc", "Linear", [x], y, is_module=True, inner=lambda: sample.add("fc", LINEAR, [x], y))
    inputs = [bias, x, weight.T]
    weights = ((0, "bias"), (2, "weight"))
    benchmark.add(
        "fc",
        "Linear",
        [x],
        exact,
        is_module=True,
        inner=lambda: benchmark.add("fc", "aten.addmm", inputs, exact, weights),
    )
    for run, values in ((sample, y), (benchmark, exact)):
        run.add("act", "aten.relu", [values], np.maximum(values, 0))
        for index, operator in run.network.items():
            run.network[index] = _called(operator)
    return sample.dump(), benchmark.dump()


def _called(operator):
    names = {"aten.addmm": ("self", "mat1", "mat2"), "aten.relu": ("self",), LINEAR: ("X",)}.get(operator.kind)
    arguments = {"reduce_range": json.dumps(True)} if operator.kind == LINEAR else {}
    call = None if names is None else Call("", names)
    return Operator(
        operator.module, operator.kind, operator.is_module, operator.values, operator.weights, arguments, call=call
    )


@pytest.mark.parametrize(("rows", "size"), [(1, 4), (1, 64), (8, 16), (64, 8)])
def test_what_8_bits_cost_is_rounding(rows, size):
    for seed in range(4):
        findings = compare(*runs(rows=rows, size=size, seed=seed)).findings()
        assert [finding.kind for finding in findings if finding.kind in ("cause", "rounding")] == ["rounding"]


def _one_element(weight):
    weight[3, 5] += 0.3


@pytest.mark.parametrize("change", [lambda weight: weight.mul_(0.9), lambda weight: weight.neg_(), _one_element])
def test_another_weight_is_found_though_no_dump_has_it(change):
    comparison = compare(*runs(change))
    findings = comparison.findings()
    first = next(finding for finding in findings if finding.kind == "cause")
    assert (first.facts["how"], first.facts["module"]) == (PACKED, "fc")
    assert first.figures["times"] > 3
    assert "Cause: the quantised weights of " in repr(comparison) and "differ between sample and benchmark" in repr(
        comparison
    )
