"""Picture inputs: how they were normalised for the float model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """real = (byte - mean) / std, per channel in the model's order."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
