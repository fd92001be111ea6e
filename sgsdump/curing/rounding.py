"""Rounding: a convolution's weights put on their INT8 grid so that what it puts out is kept.

With X the float model's patches of the input (rows: places of pictures), X̃ those of the fixed model, W the weights
[columns, outputs] and Q the new ones, what is minimised is

    ‖X W - X̃ Q‖² + λ ‖W - Q‖²          first for real Q:  Q = (G + λ)⁻¹ (C W + λ W),   G = X̃ᵀX̃, C = X̃ᵀX

then on the grid column by column, the largest diagonal of G first: a column is rounded, and its error is spread over
those to come by the Cholesky factor U of (G + λ)⁻¹, w_j+1.. -= (w_j - q_j) / U_jj U_j,j+1..

The weight that fixes a channel's scale stays where it is, so that calibrating finds the same grid. Source: Frantar et
al., GPTQ (ICLR 2023), algorithm 1; the least squares before it, on quantised inputs, as in Hubara et al., AdaQuant
(ICML 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RIDGE = 0.01
# A weight this near the end of its grid, in steps, is the one that the scale comes from.
NEAR_END = 0.5
# So many rows for each column, or the columns cannot be told from each other.
ROWS_PER_COLUMN = 2


@dataclass(eq=False)
class Products:
    """Sums over rows of one group of a convolution: ``g`` X̃ᵀX̃, ``c`` X̃ᵀX, ``d`` XᵀX, each [n, n]; ``fixed`` and
    ``real`` [n] the sums of X̃ and of X."""

    g: np.ndarray
    c: np.ndarray
    d: np.ndarray
    fixed: np.ndarray
    real: np.ndarray
    rows: int = 0

    @classmethod
    def zeros(cls, columns: int) -> Products:
        square = (columns, columns)
        return cls(np.zeros(square), np.zeros(square), np.zeros(square), np.zeros(columns), np.zeros(columns))

    def add(self, fixed: np.ndarray, real: np.ndarray) -> None:
        """Rows [rows, n] of the fixed and of the float model."""
        fixed, real = fixed.astype(np.float64), real.astype(np.float64)
        self.g += fixed.T @ fixed
        self.c += fixed.T @ real
        self.d += real.T @ real
        self.fixed += fixed.sum(axis=0)
        self.real += real.sum(axis=0)
        self.rows += len(fixed)

    def merged(self, other: Products) -> Products:
        pairs = ((self.g, other.g), (self.c, other.c), (self.d, other.d))
        sums = ((self.fixed, other.fixed), (self.real, other.real))
        g, c, d = (a + b for a, b in pairs)
        fixed, real = (a + b for a, b in sums)
        return Products(g, c, d, fixed, real, self.rows + other.rows)

    def local(self) -> Products:
        """As if the float model had the fixed model's inputs."""
        return Products(self.g, self.g, self.g, self.fixed, self.fixed, self.rows)

    def error(self, weight: np.ndarray, rounded: np.ndarray) -> np.ndarray:
        """[O] ‖X w - X̃ q‖² of each output, the mean taken off, which the bias takes."""
        whole = ((self.d @ weight) * weight).sum(axis=0) - 2 * ((self.c @ weight) * rounded).sum(axis=0)
        whole += ((self.g @ rounded) * rounded).sum(axis=0)
        return whole - (self.real @ weight - self.fixed @ rounded) ** 2 / max(self.rows, 1)


def enough_rows(products: Products) -> bool:
    return products.rows >= ROWS_PER_COLUMN * len(products.g)


def nearest(weight: np.ndarray, steps: np.ndarray, limit: int = 127) -> np.ndarray:
    """float64 [n, O] weights on the grid of each output's step [O]."""
    return np.clip(np.rint(weight / steps), -limit, limit) * steps


def rounded(products: Products, weight: np.ndarray, steps: np.ndarray, limit: int = 127) -> np.ndarray:
    """The weights [n, O] on the grid of the steps [O], by the rule above; the nearest where all inputs are zero."""
    ridge = RIDGE * float(np.mean(np.diag(products.g)))
    if not ridge > 0:
        return nearest(weight, steps, limit)
    h = products.g + ridge * np.eye(len(products.g))
    real = np.linalg.solve(h, products.c @ weight + ridge * weight)
    ends = np.abs(weight) >= (limit - NEAR_END) * steps
    real = np.where(ends, weight, real)
    order = np.argsort(-np.diag(products.g), kind="stable")
    back = np.argsort(order)
    upper = np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
    rest, ends = real[order].copy(), ends[order]
    own, result = weight[order], np.empty_like(rest)
    for j in range(len(rest)):
        result[j] = nearest(np.where(ends[j], own[j], rest[j]), steps, limit)
        rest[j + 1 :] -= np.outer(upper[j, j + 1 :], (rest[j] - result[j]) / upper[j, j])
    return result[back]
