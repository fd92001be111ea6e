"""Weights of linear layers that torch quantised dynamically, which no dump contains: check them against the benchmark.

The check uses the sample's inputs with the benchmark's weights. Let x be the operator's input, and W, b the benchmark's
weight and bias. The output is y = x W^T + b plus 8-bit rounding. The step s_x of x is (max - min) / 255 (127 with
``reduce_range``), the step s_w of W is max |W| / 127.5. Each rounding has variance s^2 / 12 (Widrow and Kollar 2008)::

    variance of y[i, j] = sum over k of (W[j, k] s_x)^2 / 12 + (x[i, k] s_w)^2 / 12

The weight differs if the root mean square error of an output channel, or of all, is several times this value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.finding import PACKED, Finding
from sgsdump.comparison.row import Row
from sgsdump.dumps.dump import Dump, Network, Operator, Record
from sgsdump.errors import FileChanged, SgsdumpError

KINDS = ("linear_dynamic", "linear_relu_dynamic")
# Namespaces of torch operators that compute in 8 bits and contain their weights.
QUANTISED = frozenset(("quantized", "_quantized", "onednn_quantized"))
# Factors on the rounding error; for channels plus the expected largest of n normal numbers, sqrt(2 ln n).
_OF_ALL, _OF_CHANNEL = 3.0, 2.0
_FLOAT32, _TINY = 2.0**-22, 1e-60  # float32 rounding of the output
_ARGUMENTS = {"addmm": ("mat2", "self"), "mm": ("mat2", ""), "linear": ("weight", "bias")}
Weights = tuple[np.ndarray, np.ndarray | None]  # weight (outputs, inputs) and bias


def packed_weights(
    rows: Sequence[Row], pairs: Sequence[Pair], dumps: tuple[Dump, Dump], networks: tuple[Network, Network]
) -> Iterator[tuple[int, Finding]]:
    """Yield modules whose weights differ, with their row numbers."""
    packed = {index: op for index, op in networks[0].items() if is_packed(op)}
    if not packed:
        return
    records = [_by_place(dump) for dump in dumps]
    outputs = {pair.sample.op_index: pair.benchmark for pair in pairs if pair.benchmark.io == "out"}
    places = {(row.op_index, row.name): place for place, row in enumerate(rows) if row.io == "out"}
    for index, operator in packed.items():
        module = max((i for i in networks[0] if i < index and _is_call(networks[0][i], operator)), default=-1)
        paired = outputs.get(module)
        if paired is None or (paired.op_index, paired.name) not in places:
            continue
        x, y = records[0].get(("in", 0, index)), records[0].get(("out", 0, index))
        found = _weights_of(operator.module, paired.op_index, networks[1], records[1])
        if x is None or y is None or found is None:
            continue
        times = _times(operator, (_values(x), _values(y)), found)
        if times is not None:
            place = places[paired.op_index, paired.name]
            row = rows[place]
            figures = {"error": row.error, "rmse": row.rmse, "cos": row.cos, "times": times}
            facts = {"module": operator.module, "how": PACKED}
            yield place, Finding("cause", row.name, row.op_type, figures, "measured", facts=facts)


def unseen(network: Network) -> tuple[str, ...]:
    """Return the modules with quantised weights that this check does not support."""
    return tuple(op.module for op in network.values() if op.kind.partition(".")[0] in QUANTISED and not is_packed(op))


def is_packed(operator: Operator) -> bool:
    namespace, _, name = operator.kind.partition(".")
    return namespace == "quantized" and name in KINDS


def _is_call(operator: Operator, inner: Operator) -> bool:
    return operator.is_module and operator.module == inner.module


def _by_place(dump: Dump) -> dict[tuple[str, int, int], Record]:
    return {(record.io, record.slot, record.op_index): record for record in dump.records}


def _values(record: Record) -> np.ndarray:
    return record.tensor.stored_view().astype(np.float64)


def _weights_of(
    module: str, call: int, network: Network, records: Mapping[tuple[str, int, int], Record]
) -> Weights | None:
    """Return weight (outputs, inputs) and bias of the product that a module's call computes, or None."""
    for index in sorted(i for i, op in network.items() if i > call and op.module == module and op.call is not None):
        operator = network[index]
        weight, bias = _ARGUMENTS.get(operator.kind.removeprefix("aten."), ("", ""))
        slots = {name: slot for slot, name in enumerate(operator.call.inputs)}  # type: ignore[union-attr]
        own = [records.get(("in", slots.get(name, -1), index)) for name in (weight, bias)]
        if own[0] is None:
            continue
        try:
            values = _values(own[0])
            more = None if own[1] is None else _values(own[1])
        except FileChanged:
            raise
        except SgsdumpError:
            return None
        return (values if weight == "weight" else values.T), more
    return None


def _times(operator: Operator, values: tuple[np.ndarray, np.ndarray], weights: Weights) -> float | None:
    """Return the ratio of the output's error to the expected 8-bit error; None if within limits or of another shape."""
    (x, y), (weight, bias) = values, weights
    if not x.size or x.shape[-1] != weight.shape[1] or y.shape[-1] != weight.shape[0]:
        return None
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    with np.errstate(all="ignore"):
        exact = x @ weight.T + (0.0 if bias is None else bias)
        if operator.kind.endswith("relu_dynamic"):
            exact = np.maximum(exact, 0)
        levels = 127 if operator.arguments.get("reduce_range") == "true" else 255
        step = (max(x.max(), 0.0) - min(x.min(), 0.0)) / levels
        step_of_weight = np.abs(weight).max() / 127.5
        variance = ((weight**2).sum(1) * step**2 + (x**2).sum(1)[:, None] * step_of_weight**2) / 12
        variance += (exact * _FLOAT32) ** 2 + _TINY
        error = (y - exact) ** 2
        of_all = np.sqrt(error.mean() / variance.mean())
        of_channel = np.sqrt((error.mean(0) / variance.mean(0)).max())
    most = _OF_CHANNEL + math.sqrt(2 * math.log(max(y.shape[1], 2)))
    times = max(of_all / _OF_ALL, of_channel / most)
    return float(max(of_all, of_channel)) if times > 1 else None
