"""Layouts of 4-D tensors: their names and the permutations between them.

A dump stores 4-D tensors as NHWC; ONNX and Caffe compute in NCHW. Tensors of another rank have no layout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NCHW = "NCHW"
NHWC = "NHWC"


def to_nhwc(array: np.ndarray) -> np.ndarray:
    """A 4-D NCHW array as an NHWC view; an array of another rank unchanged."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def to_nchw(array: np.ndarray) -> np.ndarray:
    """A 4-D NHWC array as an NCHW view; an array of another rank unchanged."""
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def nhwc_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape ``to_nhwc`` gives for an NCHW shape."""
    if len(shape) != 4:
        return tuple(shape)
    n, c, h, w = shape
    return (n, h, w, c)


def nchw_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape ``to_nchw`` gives for an NHWC shape."""
    if len(shape) != 4:
        return tuple(shape)
    n, h, w, c = shape
    return (n, c, h, w)
