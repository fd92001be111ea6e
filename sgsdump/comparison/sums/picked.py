"""What stands at some places of a tensor, picked up while all of it is read for the sums."""

from __future__ import annotations

import numpy as np


class Picked:
    """The real values at some places of a tensor, as float32; they count when they are ``whole``.

    shape   of the tensor as stored.
    places  flat indices into it, ascending, as int64.
    """

    __slots__ = ("places", "shape", "values", "whole")

    def __init__(self, shape: tuple[int, ...], places: np.ndarray):
        self.shape, self.places = shape, places
        self.values = np.empty(len(places), np.float32)
        self.whole = False
