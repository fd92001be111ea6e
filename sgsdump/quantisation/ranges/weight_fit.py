"""Fit the range of each output channel of INT8 weights by the output's error. Apart: a formula with its own tests.

Rounding weights changes an output by sum(dw * x). With the mean m and the energy e = E[x^2] of each input channel,
measured in calibration and taken as alike over the kernel's positions and uncorrelated between them, the expected
square of that change is  sum(dw^2 * (e - m^2)) + (sum(dw * m))^2.  A symmetric range below max|w| makes the steps
finer and clips the largest weights; it is taken where the error falls to ``WORTH`` of that of max|w| or less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.models.graph import Graph, attribute
from sgsdump.quantisation.analysis import output_axis
from sgsdump.quantisation.ranges.statistics import Moments
from sgsdump.quantisation.scales import INT8
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import NodeProto

WORTH = 0.8
GRID = np.linspace(1.0, 0.5, 51)
# Weights at a time: what is computed of them stays in the processor's cache.
BLOCK = 1 << 16
# At every so many steps of the grid channels that are done are left out, with a little room for rounding.
LOOK_EVERY = 4
ALMOST = 1 - 1e-6


def fit_weight(graph: Graph, node: NodeProto, moments: Moments | None) -> Range:
    """The range of each output channel (C values). ``moments`` of the convolution's input: None counts every input
    alike. INT16 weights keep the plain minimum and maximum (``Range.wide``)."""
    weight, axis = graph.value(node.input[1]), output_axis(graph, node)
    rows = np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    top = np.maximum(np.abs(low), np.abs(high))
    meets, channels = _inputs(graph, node, rows.shape, moments)
    best = np.empty_like(top)
    count = max(1, BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), count):
        block = slice(start, start + count)
        mean, energy = (figures[meets(block)] for figures in channels)
        spread = np.maximum(energy - mean**2, 0.0)
        best[block] = _best(rows[block].astype(np.float64), top[block], mean, spread)
    plain = Range(low, high)
    if (best == top).all():
        return plain
    return Range(np.maximum(low, -best), np.minimum(high, best), wide=plain)


def _best(rows: np.ndarray, top: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The largest weight that each channel's range keeps: ``top``, or what lowers the error enough.

    What is clipped makes an error of its own, which only grows as the range narrows: once that alone is more than
    ``enough``, no narrower range can be taken, and the channel is done.
    """
    best, errors = top.copy(), _errors(rows, top, mean, spread)
    enough, open_rows = WORTH * errors, np.arange(len(rows))
    for step, part in enumerate(GRID[1:]):
        if step % LOOK_EVERY == 0:
            open_still = _clipping(rows, top * part, spread) * ALMOST <= enough
            if not open_still.any():
                break
            if not open_still.all():
                open_rows = open_rows[open_still]
                rows, top, enough, errors = (x[open_still] for x in (rows, top, enough, errors))
                mean, spread = (x if len(x) == 1 else x[open_still] for x in (mean, spread))
        trial = _errors(rows, top * part, mean, spread)
        better = (trial <= enough) & (trial < errors)
        best[open_rows[better]] = (top * part)[better]
        errors = np.where(better, trial, errors)
    return best


def _errors(rows: np.ndarray, top: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The expected squared error of each output channel with INT8 weights within [-top, top]."""
    limit = np.iinfo(INT8).max  # type: ignore[type-var]
    scale = np.where(top > 0, top, 1.0)[:, None] / limit
    change = rows / scale
    np.clip(np.round(change, out=change), -limit, limit, out=change)
    change *= scale
    change -= rows
    return np.einsum("ij,ij->i", change**2, _full(spread, rows)) + np.einsum("ij,ij->i", change, _full(mean, rows)) ** 2


def _clipping(rows: np.ndarray, top: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The part of ``_errors`` that values beyond [-top, top] make, rounding left out."""
    beyond = np.maximum(np.abs(rows) - top[:, None], 0.0)
    return np.einsum("ij,ij->i", beyond**2, _full(spread, rows))


def _full(row: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.broadcast_to(row, rows.shape)


def _inputs(
    graph: Graph, node: NodeProto, shape: tuple[int, ...], moments: Moments | None
) -> tuple[Callable[[slice], np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Which input channel each weight of some rows of ``output_rows`` meets ([rows, weights], or [1, weights] where
    all rows meet the same), and the channels' mean and energy."""
    outputs, weights = shape
    alike = np.zeros((1, weights), np.intp), (np.zeros(1), np.ones(1))
    if moments is None or not moments.count:
        return lambda block: alike[0], alike[1]
    channels = moments.sums / moments.count, moments.squares / moments.count
    size, group = moments.sums.size, attribute(node, "group", 1)
    if node.op_type != "Conv":
        # Gemm, MatMul and ConvTranspose: every output channel reads every input channel, in order
        if (group != 1 and node.op_type == "ConvTranspose") or weights % size:
            return lambda block: alike[0], alike[1]
        every = np.repeat(np.arange(size), weights // size)[None]
        return lambda block: every, channels
    inputs_per_group = graph.constants[node.input[1]].dims[1]
    first = np.arange(outputs) // (outputs // group) * inputs_per_group
    within = np.repeat(np.arange(inputs_per_group), weights // inputs_per_group)[None]
    if group == 1:
        return lambda block: within, channels
    return lambda block: first[block, None] + within, channels
