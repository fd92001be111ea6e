"""What the outputs say on the picture that is furthest off: both models' largest values, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

MOST_OUTPUTS, MOST_VALUES = 4, 1 << 20
TOP = 3


@dataclass(frozen=True)
class Said:
    """One value of an output: its place, and what both models give there; ``first``: the largest of the float model's,
    and of the fixed model's."""

    output: str
    place: str
    benchmark: float
    sample: float
    first: tuple[bool, bool]


@dataclass(frozen=True)
class WorstPicture:
    """The picture, the values, and whether the largest one of each output is at the same place in both models."""

    label: str
    said: tuple[Said, ...]
    agrees: bool


def worst_picture(label: str, floats: Mapping[str, np.ndarray], fixed: Mapping[str, np.ndarray]) -> WorstPicture | None:
    """Of real values by output, the three largest of either model; None where nothing is to be shown: no finite values,
    too many, or other shapes."""
    shown = {
        name: (values, fixed[name])
        for name, values in floats.items()
        if name in fixed and fixed[name].shape == values.shape and 1 < values.size <= MOST_VALUES
        if np.isfinite(values).all() and np.isfinite(fixed[name]).all()
    }
    said = tuple(one for name, both in list(shown.items())[:MOST_OUTPUTS] for one in _said(name, *both))
    agrees = all(one.first[0] == one.first[1] for one in said)
    return WorstPicture(label, said, agrees) if said else None


def _said(name: str, floats: np.ndarray, fixed: np.ndarray) -> Iterator[Said]:
    real, own = floats.reshape(-1).astype(np.float64), fixed.reshape(-1).astype(np.float64)
    best = [np.argsort(-values, kind="stable")[:TOP] for values in (real, own)]
    for place in sorted(set(best[0].tolist()) | set(best[1].tolist()), key=lambda index: -real[index]):
        indices = [int(index) for index in np.unravel_index(place, floats.shape)]
        while len(indices) > 1 and floats.shape[-len(indices)] == 1:
            del indices[0]  # of axes of one place
        where = ", ".join(map(str, indices))
        yield Said(name, where, float(real[place]), float(own[place]), (place == best[0][0], place == best[1][0]))
