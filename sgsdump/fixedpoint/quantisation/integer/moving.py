"""Moving operators whose node alone is not enough: a Pad's fill value, and the SDK's Slice over several axes.

See ``sdk.semantics`` for the Slice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.fixedpoint.quantisation.integer.emitter import Emitter, Integers, half_away, limits, step
from sgsdump.models.graph import Graph
from sgsdump.tensors.tensor import Quant

if TYPE_CHECKING:
    from onnx import NodeProto


def padding(emit: Emitter, graph: Graph, node: NodeProto, quant: Quant) -> NodeProto:
    """Return a Pad that fills with the integer of its value."""
    fill = node.input[2] if len(node.input) > 2 else ""
    if fill and fill not in graph.constants:
        return node
    value = float(graph.value(fill).reshape(-1)[0]) if fill else 0.0
    copy = type(node)()
    copy.CopyFrom(node)
    copy.input.extend([""] * (3 - len(copy.input)))
    whole = np.clip(half_away(value / step(quant)) + quant.zero_point, *limits(quant))
    copy.input[2] = emit.constant(whole.astype(np.float32))
    return copy


def first_sliced(emit: Emitter, graph: Graph, node: NodeProto, value: Integers) -> Integers:
    """Return the SDK's result of a Slice over several axes: sliced along the first, then cut to size in NHWC."""
    _, channels, rows, columns = (size or 1 for size in graph.shapes[node.output[0]])
    bounds = [graph.value(name).reshape(-1)[:1].astype(np.int64) for name in node.input[1:] if name]
    sliced = emit.add("Slice", [value.name, *map(emit.constant, bounds)])
    flat = emit.add("Reshape", [emit.add("Transpose", [sliced], perm=[0, 2, 3, 1]), emit.constant(np.array([-1]))])
    ends = np.array([0]), np.array([math.prod((rows, columns, channels))])
    shape = emit.constant(np.array([1, rows, columns, channels]))
    taken = emit.add("Reshape", [emit.add("Slice", [flat, *map(emit.constant, ends)]), shape])
    return replace(value, name=emit.add("Transpose", [taken], emit.stored(node.output[0]), perm=[0, 3, 1, 2]))
