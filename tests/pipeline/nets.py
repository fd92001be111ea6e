"""Small nets with what makes dumping hard: bodies, sequences, optionals, failing nodes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sgsdump.models.model import Model


def net(nodes, inputs, constants=None, outputs=None, opset=17) -> Model:
    """A Model; ``inputs`` are (element type, shape) by name."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs or [nodes[-1].output[0]]],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Model(proto, Path("net.onnx"))


X = {"x": (TensorProto.FLOAT, [1, 8])}


def chain(op_type: str, source: str, name: str, length: int) -> list[onnx.NodeProto]:
    """source -> name0 -> name1 …, each by ``op_type``."""
    names = [source, *(f"{name}{index}" for index in range(length))]
    return [helper.make_node(op_type, [before], [after]) for before, after in pairwise(names)]


def failing_net() -> Model:
    """x -> a -> bad (fails when it runs: index 99 of 8) -> after; a -> good -> split in two -> end. 20 more behind."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a_node"),
        helper.make_node("Gather", ["a", "far"], ["bad"], name="bad_node", axis=1),
        helper.make_node("Neg", ["bad"], ["after"], name="after_node"),
        helper.make_node("Abs", ["a"], ["good"]),
        helper.make_node("Split", ["good"], ["half1", "half2"], axis=1),
        helper.make_node("Mul", ["half1", "half2"], ["end"]),
    ]
    nodes += chain("Sigmoid", "end", "s", 20)
    nodes.append(helper.make_node("Add", ["after", "after"], ["after2"], name="after2_node"))
    return net(nodes, X, {"far": np.array([99], np.int64)}, ["s19", "after2"])


def branching_net() -> Model:
    """An If whose branches capture ``a``; the inner tensors are ``inner_then`` and ``inner_else``."""

    def branch(name: str, op_type: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op_type, ["a"], [name])], name, [], [onnx.ValueInfoProto(name=name)])

    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node(
            "If",
            ["positive"],
            ["chosen"],
            name="choice",
            then_branch=branch("inner_then", "Neg"),
            else_branch=branch("inner_else", "Exp"),
        ),
        helper.make_node("Abs", ["chosen"], ["out"]),
    ]
    return net(nodes, X, {"zero": np.array(0, np.float32)})


def sequence_net(between: int = 15) -> Model:
    """x -> halves (a sequence) … many nodes … -> joined, which reads the sequence from another segment."""
    nodes = [helper.make_node("SplitToSequence", ["x", "sizes"], ["halves"], axis=1)]
    nodes += chain("Tanh", "x", "t", between)
    nodes.append(helper.make_node("ConcatFromSequence", ["halves"], ["joined"], axis=1))
    nodes.append(helper.make_node("Add", ["joined", f"t{between - 1}"], ["out"]))
    return net(nodes, X, {"sizes": np.array([4, 4], np.int64)})


def chain_net(length: int) -> Model:
    """x -> n0 -> n1 … -> n(length-1)."""
    return net(chain("Sigmoid", "x", "n", length), X)


def reshaping_net() -> Model:
    """Shape arithmetic that only constants can follow: Reshape to what Shape, Gather and Concat give."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        *chain("Abs", "x", "a", 14),
        helper.make_node("Reshape", ["a13", "target"], ["reshaped"]),
        helper.make_node("Neg", ["reshaped"], ["out"]),
    ]
    return net(nodes, X, {"first": np.array([0], np.int64), "rest": np.array([2, 4], np.int64)})
