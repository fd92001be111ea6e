"""Two ONNX models, dumped with outputs only: an operator that only one model has is named, no healthy one."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from sgsdump import compare, open_dump
from sgsdump.cli import main
from sgsdump.reports.report import report_of

WEIGHT = np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32)


def model(path, factor=None, weight=WEIGHT):
    """conv1 -> relu1 -> conv2 -> relu2; with a factor, channel 2 of relu1 is multiplied by it in an operator more."""
    middle = "raw" if factor else "relu1"
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["conv1"], "conv1"),
        helper.make_node("Relu", ["conv1"], [middle], "relu1"),
        helper.make_node("Conv", ["relu1", "w2"], ["conv2"], "conv2"),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
    ]
    inits = [numpy_helper.from_array(WEIGHT, "w1"), numpy_helper.from_array(weight, "w2")]
    if factor:
        nodes.insert(2, helper.make_node("Mul", ["raw", "f"], ["relu1"], "loud"))
        values = np.ones((1, 4, 1, 1), np.float32)
        values[0, 2] = factor
        inits.append(numpy_helper.from_array(values, "f"))
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (("x", (1, 4, 9, 9)), ("relu2", (1, 4, 5, 5)))]  # fmt: skip
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture
def dumped(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(1, 4, 9, 9)).astype(np.float32))

    def dump_of(name, **changed):
        path = str(tmp_path / f"{name}.npz")
        net = str(model(tmp_path / f"{name}.onnx", **changed))
        assert main(["dump", "-m", net, "-i", str(tmp_path / "x.npy"), "-o", path]) == 0
        return open_dump(path)

    return dump_of


def test_the_operator_that_one_model_has_is_the_cause(dumped):
    comparison = compare(dumped("sample", factor=4.0), dumped("benchmark"))
    cause = comparison.causes[0]
    assert (cause.layer, cause.op_type, cause.facts["only_in"]) == ("relu1", "Mul", "sample")
    assert cause.names == ("conv2",)
    assert report_of(comparison).view.first == "conv2", "the page selects the layer that differs, not an equal one"


def test_another_weight_behind_it_is_named_first(dumped):
    """The operator multiplies by 1, so the weight is the fault."""
    [cause, *_] = compare(dumped("sample", factor=1.0, weight=WEIGHT * 2), dumped("benchmark")).causes
    assert cause.layer == "conv2" and "only_in" not in cause.facts
