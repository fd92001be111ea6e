"""A model of a plan's error, from one measurement of each domain alone, that knows how errors add up.

Quantising one domain to 8 bits moves the outputs of the all-INT16 model by a vector. To first order the vectors of
several domains add, so the squared error of a plan is a quadratic form: the Gram matrix of the vectors holds every
pair's interaction at no further run of the network. Measured on a face detector (41 domains, random plans of every
size): rank correlation with the true error 0.999, median misprediction 7 %; the sum of the domains' own errors 0.99
and 11 %. (The same form measured from the other end, all-INT8 with one domain raised, predicts nothing, -0.7: the
noise that a raised domain takes away is not the noise that comes after it. Its errors alone are of use.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Surrogate:
    """What a search knows before it tries a plan.

    grams   float64 [k, n + 1, n + 1], one for each sum of a ``CombinedError``: row 0 is the all-INT16 model's deviation
            from float, row 1 + i domain i's vector; ``base`` float64 [k] is added.
    raised  float64 [n]: the error of all-INT8 with domain i alone at INT16, the k sums added up.
    low     the same of all-INT8.
    """

    grams: np.ndarray
    base: np.ndarray
    raised: np.ndarray
    low: float

    def predict(self, plans: np.ndarray) -> np.ndarray:
        """Errors [m] of plans bool [m, n], True where a domain is at INT16."""
        at_8 = np.hstack([np.ones((len(plans), 1)), 1.0 - plans])
        return (((at_8 @ self.grams) * at_8).sum(axis=2) + self.base[:, None]).max(axis=0)

    def gains(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What raising each domain takes off the error, [n]: as measured near all-INT16, near all-INT8, and the mean
        of both, scaled so that all domains together lead from one end to the other."""
        gram = self.grams.sum(axis=0)
        above = np.diag(gram)[1:] + 2 * gram[0, 1:]
        below = self.low - self.raised
        shares = [gains / gains.sum() for gains in (above, below) if gains.sum() > 0]
        mean = (self.low - gram[0, 0]) * np.mean(shares, axis=0) if shares else (above + below) / 2
        return above, below, mean
