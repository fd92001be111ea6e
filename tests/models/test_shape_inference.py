"""Types of a graph's tensors, in bounded memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper
from small_nets import model as net
from small_nets import node

from sgsdump.models.graph import infer_types

LOOK_UP = """
import resource
import onnx
from onnx import helper
from sgsdump.models.graph import infer_types
weight = onnx.TensorProto(name="w", dims=[8_000_000], data_type=1, data_location=1)
info = helper.make_tensor_value_info
graph = helper.make_graph([helper.make_node("Gather", ["w", "i"], ["y"])], "g", [info("i", 7, [2])], [], [weight])
proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kind = infer_types(proto, {"i": (2,)})["y"].tensor_type
assert (kind.elem_type, [d.dim_value for d in kind.shape.dim]) == (1, [2])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_long_vector_among_the_weights_costs_nothing() -> None:
    """onnx's inference took it for a shape of 8 million sizes, and each got a name."""
    done = subprocess.run([sys.executable, "-c", LOOK_UP], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


def test_a_long_bias_leaves_the_shapes_known() -> None:
    proto = net([node("Add", ["x", "b"], "y")], {"b": np.zeros(70_000, np.float32)}, {"x": (2, 70_000)}, ["y"]).proto
    kind = infer_types(proto, {"x": (2, 70_000)})["y"]
    assert kind == helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 70_000))
