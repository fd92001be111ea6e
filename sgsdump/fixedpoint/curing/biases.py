"""Bias correction: subtract the mean error that quantisation adds to a channel.

    b' = b + mean(X W) - mean(X̃ Q)

X, X̃, W and Q are defined in ``rounding.py``. X̃ are the layer's actual inputs in the hardware's integer arithmetic,
after all earlier layers were corrected. Source: Nagel et al., Data-Free Quantization (ICCV 2019), section 4.2, with
measured means instead of estimated ones.
"""

from __future__ import annotations

import numpy as np

from sgsdump.fixedpoint.curing.rounding import Products


def correction(products: Products, weight: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """Return the bias correction [O] of a convolution with weights [groups, n, O of a group] used as ``rounded``."""
    return products.mean_error(weight, rounded).reshape(-1)
