"""The record of one layer's details: histograms, error against value, error per channel and over height and width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Details:
    """Counts and sums over one layer's values, of one picture or of several (``merged`` of ``layer_details``).

    edges           the outer edges of the bins of equal width in which both sides' values are counted.
    sample          int64 counts per bin, of finite values; ``benchmark`` likewise, in the same bins.
    low, high       the calibrated range of the layer; None where it has none.
    error_edges     the outer edges of the bins of ``errors``: int64 counts of sample - benchmark.
    error_by_value  Σ|sample - benchmark| per bin of the benchmark's value (float64); over ``benchmark`` it is the mean.
    channels        (channels, 2) float64: Σ|sample - benchmark| and Σ|benchmark| of each; (0, 2) where there are none.
    heat            (rows, columns) float64, at most 32 by 32: the mean |sample - benchmark| of each part of height and
                    width, over all channels; (0, 0) where the tensor has no height and width.
    heat_of         the picture that ``heat`` is of: the worst one, where there are several.
    heat_error      the RMSE (Σ|a-b|/Σ|b|) of that picture.
    size            height and width of the tensor that ``heat`` is of.
    """

    edges: tuple[float, float]
    sample: np.ndarray
    benchmark: np.ndarray
    low: float | None
    high: float | None
    error_edges: tuple[float, float]
    errors: np.ndarray
    error_by_value: np.ndarray
    channels: np.ndarray
    heat: np.ndarray
    heat_of: str = ""
    heat_error: float = 0.0
    size: tuple[int, int] = (0, 0)
