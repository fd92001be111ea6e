"""A function of one tensor as a table: the output for every integer that the input can hold.

Sigmoid and TanH are the hardware's own (see ``curve``). Any other function is its float32 value rounded half up: the
ideal, not a rule of the hardware.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.models.graph import Graph
from sgsdump.quantisation.integer.emitter import Emitter, Integers
from sgsdump.quantisation.integer.rounding import half_up, limits, step
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import NodeProto

# Element by element, of one tensor and constants of one element.
FUNCTIONS = frozenset(
    "Abs Ceil Celu Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish Log Mish Neg Pow Reciprocal Round Selu Sin "
    "Softplus Softsign Sqrt Swish ThresholdedRelu".split()
)


def look_up(
    emit: Emitter, value: Integers, output: Quant, function: Callable[[np.ndarray], np.ndarray], name: str
) -> Integers:
    """The stored output under ``name``; ``function``: stored inputs without their zero point -> stored outputs."""
    assert value.quant.dtype is not None and output.dtype is not None
    low, high = (int(end) for end in (np.iinfo(value.quant.dtype).min, np.iinfo(value.quant.dtype).max))
    stored = function((np.arange(low, high + 1) - value.quant.zero_point).astype(np.float64))
    values = np.clip(np.nan_to_num(stored), *limits(output)).astype(output.dtype)
    index = emit.cast(value.name, np.dtype(np.int32))
    if low:
        index = emit.add("Sub", [index, emit.constant(np.int32(low))])
    return Integers(emit.add("Gather", [emit.constant(values), index], name, axis=0), output.dtype, output)


def ideal(
    function: Callable[[np.ndarray], np.ndarray], input_: Quant, output: Quant
) -> Callable[[np.ndarray], np.ndarray]:
    """A function of real values (float32 -> float32) as one of stored ones, rounded half up."""

    def stored(q: np.ndarray) -> np.ndarray:
        real = function(q.astype(np.float32) * np.float32(step(input_)))
        return half_up(real.astype(np.float64) / step(output)) + output.zero_point

    return stored


def is_function(node: NodeProto, graph: Graph) -> bool:
    """Whether each of a node's outputs depends on one value of its first input, and on nothing else that varies."""
    if node.op_type not in FUNCTIONS:
        return False
    first, *others = node.input
    return first not in graph.constants and all(
        name in graph.constants and math.prod(graph.constants[name].dims) == 1 for name in others if name
    )


def function_of(node: NodeProto, graph: Graph) -> Callable[[np.ndarray], np.ndarray]:
    """What a node does to its first input, computed by onnxruntime."""
    from onnx import TensorProto, helper

    kind, opset = TensorProto.FLOAT, list(graph.proto.opset_import)
    ends = [helper.make_tensor_value_info(name, kind, None) for name in (node.input[0], node.output[0])]
    constants = [graph.constants[name] for name in node.input[1:] if name]
    single = helper.make_graph([node], "function", ends[:1], ends[1:], constants)
    session = WholeGraph(helper.make_model(single, opset_imports=opset, ir_version=8), 1)
    # A constant of one element may have any number of dimensions, and the result has as many.
    return lambda values: session.run({node.input[0]: values}, [node.output[0]])[node.output[0]].reshape(values.shape)
