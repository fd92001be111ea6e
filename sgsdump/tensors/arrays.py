"""Turn what users give as values into a numpy array: scalars, lists, torch tensors, any array-like."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgsdump.tensors.dtypes import BEYOND_NUMPY


def as_array(values: Any) -> np.ndarray:
    """Return values as an array, without a copy if they are one.

    Parameters
    ----------
    values
        An array, a number, nested lists of numbers, a torch tensor on any device, or any object with ``__array__``.

    Raises
    ------
    TypeError, ValueError
        By numpy, if the values have no shape, such as lists of unequal length.
    """
    if isinstance(values, np.ndarray) and not isinstance(values, np.matrix):  # a matrix has two axes whatever is done
        return values
    if callable(detach := getattr(values, "detach", None)):
        return _of_torch(detach())
    return np.asarray(values)


def _of_torch(tensor: Any) -> np.ndarray:
    """Return a torch tensor's values; types that numpy lacks, such as bfloat16, by way of float32, which is exact."""
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    dtype = BEYOND_NUMPY.get(str(tensor.dtype).removeprefix("torch."))
    array: np.ndarray = tensor.numpy() if dtype is None else tensor.float().numpy().astype(dtype)
    return array
