"""Choose the range of every output channel of a convolution's INT8 weights by the error it makes in the output.

Rounding weights changes an output by sum(dw * x). With the mean m and the energy e = E[x^2] of each input channel,
measured in calibration and taken as alike over the kernel's positions and uncorrelated between them, the expected
square of that change is  sum(dw^2 * (e - m^2)) + (sum(dw * m))^2.  A symmetric range below max|w| makes the steps
finer and clips the largest weights; it is taken where the error falls to ``WORTH`` of that of max|w| or less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.observers import Moments
from sgsdump.quantisation.quant_plan import INT8, output_axis
from sgsdump.tensors.value_range import Range

if TYPE_CHECKING:
    from onnx import NodeProto

WORTH = 0.8
GRID = np.linspace(1.0, 0.5, 51)


def fit_weight(graph: Graph, node: NodeProto, moments: Moments | None) -> Range:
    """The range of each output channel (C values). ``moments`` of the convolution's input: None counts every input
    alike. INT16 weights keep the plain minimum and maximum (``Range.wide``)."""
    rows = output_rows(graph, node)
    low, high = rows.min(axis=1), rows.max(axis=1)
    top = np.maximum(np.abs(low), np.abs(high))
    mean, energy = _inputs(graph, node, rows.shape, moments)
    spread = np.maximum(energy - mean**2, 0.0)
    best, errors = top, _errors(rows, top, mean, spread)
    enough = WORTH * errors
    for part in GRID[1:]:
        trial = _errors(rows, top * part, mean, spread)
        better = (trial <= enough) & (trial < errors)
        best, errors = np.where(better, top * part, best), np.where(better, trial, errors)
    plain = Range(low, high)
    if (best == top).all():
        return plain
    return Range(np.maximum(low, -best), np.minimum(high, best), wide=plain)


def output_rows(graph: Graph, node: NodeProto) -> np.ndarray:
    """A convolution's weights as float64 [output channels, weights of each]."""
    weight = graph.value(node.input[1]).astype(np.float64)
    axis = output_axis(graph, node)
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)


def _errors(rows: np.ndarray, top: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The expected squared error of each output channel with INT8 weights within [-top, top]."""
    limit = np.iinfo(INT8).max  # type: ignore[type-var]
    scale = np.where(top > 0, top, 1.0)[:, None] / limit
    change = np.clip(np.round(rows / scale), -limit, limit) * scale - rows
    return np.einsum("ij,ij->i", change**2, spread) + np.einsum("ij,ij->i", change, mean) ** 2


def _inputs(
    graph: Graph, node: NodeProto, shape: tuple[int, ...], moments: Moments | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and energy of the input that each weight of ``output_rows`` meets: [output channels, weights of each]."""
    dims = graph.constants[node.input[1]].dims
    if moments is None or not moments.count:
        return np.zeros(shape), np.ones(shape)
    mean, energy = moments.sums / moments.count, moments.squares / moments.count
    outputs, weights = shape
    if node.op_type != "Conv":
        # Gemm, MatMul and ConvTranspose: every output channel reads every input channel, in order
        group = attribute(node, "group", 1) if node.op_type == "ConvTranspose" else 1
        channels = np.arange(mean.size)
        if group != 1 or weights % mean.size:
            return np.zeros(shape), np.ones(shape)
        meets = np.broadcast_to(np.repeat(channels, weights // mean.size), shape)
    else:
        group = attribute(node, "group", 1)
        own = dims[1]
        first = np.arange(outputs) // (outputs // group) * own
        meets = first[:, None] + np.repeat(np.arange(own), weights // own)[None]
    return mean[meets], energy[meets]
