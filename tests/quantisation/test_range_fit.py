"""The error against onnxruntime's QuantizeLinear, and the choice on distributions whose answer is known."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from sgsdump.quantisation.quant_plan import uint8_quant
from sgsdump.quantisation.range_fit import ENTROPY, MIN_MAX, MSE, PERCENTILE, proposals, squared_error
from sgsdump.quantisation.value_histogram import count_values


def by_onnxruntime(values, low, high):
    """What UINT8 makes of values, by the operators that the fixed model holds."""
    quant = uint8_quant(low, high)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = [
        helper.make_tensor("s", TensorProto.FLOAT, [], [quant.scale]),
        helper.make_tensor("z", TensorProto.UINT8, [], [quant.zero_point]),
    ]
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(nodes, "g", shape[:1], shape[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString()).run(None, {"x": values})[0]


@pytest.mark.parametrize("ends", [(-1.0, 3.0), (0.0, 1.0), (-0.2, 0.1), (-2.0, 0.0)])
def test_the_error_is_that_of_the_fixed_model(ends):
    values = np.random.default_rng(0).normal(0, 1, 2000).astype(np.float32)
    expected = ((by_onnxruntime(values, *ends) - values) ** 2).sum()
    assert squared_error(values.astype(np.float64), np.ones(2000), *ends) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("ends", [(-4.0, 4.0), (-2.0, 3.0)])
def test_the_error_over_the_histogram_is_close_to_that_of_the_values(ends):
    values = np.random.default_rng(1).normal(0, 1, 100_000).astype(np.float32)
    expected = ((by_onnxruntime(values, *ends) - values) ** 2).sum()
    assert squared_error(*count_values(values).filled(), *ends) == pytest.approx(expected, rel=0.03)


def propose(values):
    array = np.asarray(values, np.float32)
    return proposals(count_values(array), float(array.min()), float(array.max()))


def test_an_even_distribution_is_left_alone():
    first, *others = propose(np.random.default_rng(2).uniform(-1, 1, 50_000))
    assert first.kind == MIN_MAX
    assert all(other.error >= 0.95 * first.error for other in others)


def test_a_lone_outlier_is_clipped_by_each_kind():
    values = np.append(np.random.default_rng(3).normal(0, 1, 500_000), 20.0)
    first, *others = propose(values)
    assert (first.low, first.high) == (pytest.approx(values.min()), 20.0)
    assert {other.kind for other in others} == {PERCENTILE, ENTROPY, MSE}
    assert all(other.high < 17 and other.error < 0.8 * first.error for other in others)


def test_mse_is_never_worse_than_min_max_and_ends_stay_inside():
    rng = np.random.default_rng(4)
    for values in (rng.exponential(1, 20_000), rng.standard_t(2, 20_000), np.maximum(rng.normal(0, 1, 20_000), 0)):
        found = {proposal.kind: proposal for proposal in propose(values)}
        assert found[MSE].error <= found[MIN_MAX].error
        for proposal in found.values():
            assert found[MIN_MAX].low <= proposal.low <= 0 <= proposal.high <= found[MIN_MAX].high


def test_constant_and_zero_tensors_have_one_proposal():
    assert len(propose(np.zeros(10))) == 1
    assert all(np.isfinite(p.error) for p in propose(np.full(10, 3.0)))
