"""A small draw of networks that change rank, through every rewrite of a graph; and the plate reader that stopped."""

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sgsdump
from sgsdump.errors import SgsdumpError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import rank_networks


def test_thirty_networks_of_any_opset():
    for number in range(30):
        proto = rank_networks.drawn(3, number)
        assert list(rank_networks.findings(proto)) == [], (3, number)


@pytest.mark.parametrize("opset", [9, 12, 13, 17, 18])
@pytest.mark.parametrize("shape", [[-1, 16], [8, 16]])
def test_a_mean_along_the_height_and_a_reshape_as_text_recognisers_have_them(tmp_path, opset, shape):
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32) * 0.2, "w"),
        numpy_helper.from_array(np.array(shape, np.int64), "s"),
    ]
    mean = {"axes": [2]}
    reads = ["c"]
    if opset >= 18:
        mean, reads = {}, ["c", "axes"]
        weights.append(numpy_helper.from_array(np.array([2], np.int64), "axes"))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("ReduceMean", reads, ["m"], keepdims=0, **mean),
        helper.make_node("Reshape", ["m", "s"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16])]
    graph = helper.make_graph(nodes, "plates", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 8
    assert list(rank_networks.findings(proto)) == []
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    feeds = [{"x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(2)]
    try:
        found = sgsdump.diagnose(path, feeds)
    except SgsdumpError as error:
        pytest.fail(str(error))
    assert found.comparison.completeness.outputs == ("y",) or len(found.comparison)
