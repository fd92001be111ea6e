"""Small nets with If and Loop nodes, whose branches share names with each other and with what is around them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from small_nets import conv, node, weights

from sgsdump.models.model import Model

RATE = np.array(16000)
OTHER_RATE = np.array(8000)


def body(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], constants: dict | None = None) -> onnx.GraphProto:
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    given = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), "body", [], made, given)


def branch(condition: str, outputs: Sequence[str], then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.NodeProto:
    names = {"name": f"{outputs[0]}.if", "then_branch": then, "else_branch": other}
    return helper.make_node("If", [condition], list(outputs), **names)


def net(
    nodes: Sequence[onnx.NodeProto], inputs: dict, outputs: Sequence[str], constants: dict, opset: int = 17
) -> Model:
    """``inputs``: (element type, shape) by name."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Model(proto, Path("net.onnx"))


DATA = {"data": (TensorProto.FLOAT, [1, 3, 8, 8])}
RATED = {**DATA, "sr": (TensorProto.INT64, [])}


def by_rate() -> Model:
    """data -> c1 -> If sr == 16000: c2, and in it an If of the data's sizes: r; else c2 of other weights -> c3 -> y.

    Every name of the else branch is one of the then branch, too.
    """
    inner = branch("small", ["s"], body([node("Relu", ["c2"], "r")], ["r"]), body([node("Neg", ["c2"], "r")], ["r"]))
    sizes = [
        node("Shape", ["c2"], "shape"),
        node("Gather", ["shape", "last"], "width"),
        node("Less", ["width", "limit"], "small"),
    ]
    constants = {"last": np.array(3), "limit": np.array(100)}
    then = body([conv("c2", "c1"), *sizes, inner], ["s"], {**weights("c2", (4, 4, 3, 3), 2), **constants})
    other = body([conv("c2", "c1"), node("Sigmoid", ["c2"], "s")], ["s"], weights("c2", (4, 4, 3, 3), 3))
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("Equal", ["sr", "rate"], "is 16k"),
        branch("is 16k", ["b"], then, other),
        conv("c3", "b"),
        node("GlobalAveragePool", ["r1"], "gap"),
        node("Add", ["c3", "gap"], "y"),
    ]
    outer = {"rate": RATE, **weights("c1", (4, 3, 3, 3), 1), **weights("c3", (4, 4, 1, 1), 4)}
    return net(nodes, RATED, ["y"], outer)


def feed(rate: np.ndarray = RATE, seed: int = 0) -> dict[str, np.ndarray]:
    return {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32), "sr": rate}
