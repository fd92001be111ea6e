"""The order in which the hardware keeps a tensor in memory, and what parse_net prints of it."""

from __future__ import annotations

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.quantisation.fixed_facts import FixedFacts
from sgsdump.sidecars.parse_net import NetTensor

# Between these the hardware keeps a tensor in blocks of channels (NHWX); at any other operator, and at the network's
# ends, pixel by pixel (NHWC). Seen in every parse_net text of the SDK at hand.
BLOCKED = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV MAX_POOL_2D AVERAGE_POOL_2D ADD SUB MUL RELU RELU6 LEAKY_RELU PRELU "
    "LOGISTIC TANH BATCH_NORM".split()
)


def buffer_orders(facts: FixedFacts) -> dict[str, str]:
    """The order in memory of every stored tensor that has four dimensions: RGB (a picture), NHWC or NHWX."""
    makers = {name: op.out_type for op in facts.operators for name in op.outputs}
    readers: dict[str, set[str]] = {}
    for op in facts.operators:
        for name in op.inputs:
            readers.setdefault(name, set()).add(op.in_type)
    orders = {}
    for name, tensor in facts.tensors.items():
        blocked = makers.get(name) in BLOCKED and name in readers and readers[name] <= BLOCKED
        orders[name] = "RGB" if tensor.picture else "NHWX" if blocked else "NHWC"
    return orders


def net_tensor(record: Record, order: str) -> NetTensor | None:
    """What parse_net prints of a stored tensor of a dump; None for a constant and for what is no integers."""
    info = record.tensor.info
    if record.constant or info.quant is None or info.quant.dtype is None or info.shape is None:
        return None
    dtype, scale, zero = info.quant.dtype, float(info.quant.scale), info.quant.zero_point
    limits = np.iinfo(dtype)
    low, high = (max(limits.min, -limits.max) - zero) * scale, (limits.max - zero) * scale
    word = f"{'U' if dtype.kind == 'u' else ''}INT{8 * dtype.itemsize}"
    order = order if len(info.shape) == 4 else "NHWC"
    ddr_type = order if order == "RGB" else f"IPU_{'U' if dtype.kind == 'u' else 'S'}{8 * dtype.itemsize}_{order}"
    return NetTensor(record.name, word, dtype, info.shape, ddr_type, low, high, scale, zero)
