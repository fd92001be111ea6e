"""Bias correction: the mean that quantising adds to a channel is taken off its bias.

    b' = b + mean(X W) - mean(X̃ Q)

X, X̃, W and Q as in ``rounding.py``: X̃ are the inputs that the layer really gets in the hardware's integers, after all
layers before it were corrected. Source: Nagel et al., Data-Free Quantization (ICCV 2019), section 4.2, with measured
means in place of its estimated ones.
"""

from __future__ import annotations

import numpy as np

from sgsdump.fixedpoint.curing.rounding import Products


def correction(products: Products, weight: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """[O] what to add to the bias of a convolution with the weights [groups, n, O of a group] that is computed with
    ``rounded``."""
    return products.mean_error(weight, rounded).reshape(-1)
