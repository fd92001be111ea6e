"""What stands at some places of a tensor, picked up while all of it is read for the sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class Picked:
    """The real values at some places of a tensor, as float32; they count when they are ``whole``.

    shape   of the tensor as stored.
    places  flat indices into it, ascending, as int64.
    """

    shape: tuple[int, ...]
    places: np.ndarray
    values: np.ndarray = field(init=False)
    whole: bool = False

    def __post_init__(self) -> None:
        self.values = np.empty(len(self.places), np.float32)
