"""Rounding: put a convolution's weights on their INT8 grid so that its outputs are kept.

X are the float model's input patches (rows: positions in images), X̃ those of the fixed model, W the weights [columns,
outputs] and Q the new weights. The rule minimises

    ‖X W - X̃ Q‖² + λ ‖W - Q‖²          first for real Q:  Q = (G + λ)⁻¹ (C W + λ W),   G = X̃ᵀX̃, C = X̃ᵀX

then rounds column by column, the largest diagonal of G first. The error of a rounded column is spread over the
remaining columns with the Cholesky factor U of (G + λ)⁻¹: w_j+1.. -= (w_j - q_j) / U_jj U_j,j+1..

The weight that sets a channel's scale stays unchanged, so that calibration finds the same grid. Sources: Frantar et
al., GPTQ (ICLR 2023), algorithm 1; the least squares step on quantised inputs as in Hubara et al., AdaQuant (ICML
2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RIDGE = 0.01
# A weight this close to the end of its grid, in steps, sets the scale.
NEAR_END = 0.5
# Rows needed per column to distinguish the columns.
ROWS_PER_COLUMN = 2
# Rows that are converted to float64 at a time.
BLOCK = 128


@dataclass(eq=False)
class Products:
    """Sums over the rows of a convolution, per group.

    g      X̃ᵀX̃ [groups, n, n]; None if only means are wanted.
    e      X̃ᵀ(X - X̃) [groups, n, n]; None if only means are wanted.
    fixed  sum of X̃ [groups, n].
    real   sum of X [groups, n].

    ``e`` is stored as a difference: errors are then not small differences of large sums, and float32 rows suffice.
    """

    g: np.ndarray | None
    e: np.ndarray | None
    fixed: np.ndarray
    real: np.ndarray
    rows: int = 0

    @classmethod
    def zeros(cls, groups: int, columns: int, squares: bool = True) -> Products:
        g, e = (np.zeros((groups, columns, columns)) if squares else None for _ in range(2))
        return cls(g, e, np.zeros((groups, columns)), np.zeros((groups, columns)))

    def add(self, fixed: np.ndarray, real: np.ndarray) -> None:
        """Add rows [groups, rows, n] of the fixed and of the float model."""
        if self.g is not None and self.e is not None:
            turned = fixed.transpose(0, 2, 1)
            self.g += turned @ fixed
            self.e += turned @ (real - fixed)
        self.fixed += _sum_of_rows(fixed)
        self.real += _sum_of_rows(real)
        self.rows += fixed.shape[1]

    def merged(self, other: Products) -> Products:
        g, e = (None if a is None or b is None else a + b for a, b in ((self.g, other.g), (self.e, other.e)))
        return Products(g, e, self.fixed + other.fixed, self.real + other.real, self.rows + other.rows)

    def local(self) -> Products:
        """Return the products as if the float model had the fixed model's inputs."""
        none = None if self.g is None else np.zeros_like(self.g)
        return Products(self.g, none, self.fixed, self.fixed, self.rows)

    def error(self, weight: np.ndarray, rounded: np.ndarray) -> np.ndarray:
        """Return ‖X w - X̃ q‖² - ‖(X - X̃) w‖² of each output, [groups, O], without the mean, which the bias corrects.

        The second term is the effect of the inputs' own error, which no weights can change.
        """
        assert self.g is not None and self.e is not None, "made with squares"
        away = weight - rounded
        whole = ((self.g @ away + 2 * (self.e @ weight)) * away).sum(axis=1)
        return whole - self.mean_error(weight, rounded) ** 2 * self.rows

    def mean_error(self, weight: np.ndarray, rounded: np.ndarray) -> np.ndarray:
        """Return the mean of X w - X̃ q, [groups, O]."""
        both = self.real[:, None] @ weight - self.fixed[:, None] @ rounded
        return both[:, 0] / max(self.rows, 1)


def _sum_of_rows(parts: np.ndarray) -> np.ndarray:
    """Return float64 sums [groups, n]. ``sum`` along the rows takes three times as long if the rows are short."""
    total = np.zeros((parts.shape[0], 1, parts.shape[2]))
    for start in range(0, parts.shape[1], BLOCK):
        block = parts[:, start : start + BLOCK]
        total += np.ones((1, block.shape[1])) @ block.astype(np.float64)
    return total[:, 0]


def enough_rows(products: Products) -> bool:
    return products.g is not None and products.rows >= ROWS_PER_COLUMN * products.g.shape[1]


def nearest(weight: np.ndarray, steps: np.ndarray, limit: int = 127) -> np.ndarray:
    """Return float64 [..., n, O] weights, rounded to the grid of each output's step [..., 1, O]."""
    return np.clip(np.rint(weight / steps), -limit, limit) * steps


def rounded(products: Products, weight: np.ndarray, steps: np.ndarray, limit: int = 127) -> np.ndarray:
    """Return the weights [groups, n, O] on the grid of the steps [groups, 1, O] by the rule of the module.

    Groups whose inputs are all zero are rounded to nearest.
    """
    assert products.g is not None and products.e is not None, "made with squares"
    result, ridge = nearest(weight, steps, limit), RIDGE * np.diagonal(products.g, axis1=1, axis2=2).mean(axis=1)
    some = ridge > 0
    if some.any():
        own = weight[some], steps[some]
        g = products.g[some]
        result[some] = _rounded(g, g + products.e[some], ridge[some], own, limit)
    return result


def _rounded(
    g: np.ndarray, c: np.ndarray, ridge: np.ndarray, own: tuple[np.ndarray, np.ndarray], limit: int
) -> np.ndarray:
    weight, steps = own
    ridge = ridge[:, None, None]
    h = g + ridge * np.eye(g.shape[1])
    real = np.linalg.solve(h, c @ weight + ridge * weight)
    ends = np.abs(weight) >= (limit - NEAR_END) * steps
    real = np.where(ends, weight, real)
    order = np.argsort(-np.diagonal(g, axis1=1, axis2=2), axis=1, kind="stable")
    along = order[:, :, None]
    turned = np.take_along_axis(np.take_along_axis(h, along, 1), order[:, None, :], 2)
    upper = np.linalg.cholesky(np.linalg.inv(turned)).transpose(0, 2, 1)
    rest, ends, weight = (np.take_along_axis(each, along, 1) for each in (real, ends, weight))
    result = np.empty_like(rest)
    for j in range(rest.shape[1]):
        result[:, j] = nearest(np.where(ends[:, j], weight[:, j], rest[:, j]), steps[:, 0], limit)
        away = (rest[:, j] - result[:, j]) / upper[:, j, j, None]
        rest[:, j + 1 :] -= upper[:, j, j + 1 :, None] * away[:, None]
    return np.take_along_axis(result, np.argsort(order, axis=1)[:, :, None], 1)
