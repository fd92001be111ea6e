"""The hardware's padded buffers, as the fixed simulator dumps them when eliminateGarbage is off.

Channels (the innermost dimension) go up to a multiple of 16 bytes, the whole up to a multiple of 64 bytes; a picture
input takes four bytes per pixel, its packed bytes first. Source: formats reference §1.5. The hardware leaves
leftovers in the padding; we write zeros.
"""

from __future__ import annotations

import numpy as np

PIXEL_BYTES = 16
BUFFER_BYTES = 64


def pad_channels(array: np.ndarray) -> np.ndarray:
    """A shaped integer array (NHWC when 4-D) as the flat padded buffer."""
    if not array.ndim:
        return _rounded_up(array.reshape(1))
    step = PIXEL_BYTES // array.itemsize
    missing = -array.shape[-1] % step
    widths = [(0, 0)] * (array.ndim - 1) + [(0, missing)]
    return _rounded_up(np.pad(array, widths).reshape(-1))


def pad_picture(array: np.ndarray) -> np.ndarray:
    """An NHWC picture of bytes as the flat buffer of four bytes per pixel: packed bytes first, then zeros."""
    pixels = array.size // array.shape[-1]
    flat = array.reshape(-1)
    return _rounded_up(np.pad(flat, (0, max(0, pixels * 4 - flat.size))))


def _rounded_up(flat: np.ndarray) -> np.ndarray:
    step = BUFFER_BYTES // flat.itemsize
    return np.pad(flat, (0, -flat.size % step))
