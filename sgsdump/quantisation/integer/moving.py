"""Operators that only move values: Reshape, Concat, Split, nearest upsampling, Pad ... copy integers as they are.

Source: docs/formats/fixed_arithmetic.md#moving-data. Exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import REARRANGING
from sgsdump.quantisation.integer.emitter import FLOAT, Emitter, Integers

if TYPE_CHECKING:
    from onnx import NodeProto

# onnxruntime moves integers of any type with these; with the others it moves float32, which holds them as well.
ANY_TYPE = REARRANGING | {"Concat", "Slice", "Gather"}


def move(emit: Emitter, node: NodeProto, values: list[Integers], outputs: list[str]) -> None:
    """The node on stored integers: its inputs that are ``values``, in order, replaced by them.

    ``outputs``: the names of the stored outputs, "" for one that nothing reads.
    """
    own = type(node)()
    own.CopyFrom(node)
    direct = node.op_type in ANY_TYPE
    sources = [value.name if direct else emit.floats(value) for value in values]
    own.input[: len(sources)] = sources
    names = [name if direct or not name else emit.fresh("moved") for name in outputs]
    del own.output[:]
    own.output.extend(names)
    emit.nodes.append(own)
    if not direct:
        for name, output in zip(names, outputs, strict=True):
            if output:
                emit.stored_as(name, values[0].quant, output)


def padded(emit: Emitter, value: Integers, pads: list[int]) -> str:
    """float32 with the zero point around the spatial axes; ``pads`` as a convolution's: begins, then ends."""
    half = len(pads) // 2
    amounts = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
    return emit.add(
        "Pad", [emit.floats(value), emit.constant(amounts), emit.constant(FLOAT.type(value.quant.zero_point))]
    )
