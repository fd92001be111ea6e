"""Random inputs exactly as the SDAA dump tool draws them, so that the same seed gives the same values there and here.

Each input has a fresh ``np.random.default_rng(seed)`` (by default one seed for all inputs, so two inputs of
the same shape, dtype and range are equal). Floats are drawn uniformly from low to high in float64 and then cast;
integers by ``integers(low, high, endpoint=True)`` of their own dtype, high included. Booleans, which that tool refuses,
are whole numbers 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgsdump.errors import ConfigError, InputError
from sgsdump.models.input_spec import InputSpec

Number = int | float


@dataclass(frozen=True)
class InputDefaults:
    """What holds for every input that has no range of its own."""

    seed: int = 42
    float_min: float = 0.0
    float_max: float = 1.0
    int_min: int = 0
    int_max: int = 100


DEFAULTS = InputDefaults()


@dataclass(frozen=True)
class Range:
    """Where one input's values come from: low to high, both included for integers. None stands for the default."""

    seed: int | None = None
    low: Number | None = None
    high: Number | None = None


@dataclass(frozen=True)
class Bounds:
    """A range with nothing left open."""

    seed: int
    low: Number
    high: Number


def full_range(spec: InputSpec, given: Range, defaults: InputDefaults) -> Bounds:
    """``given`` with the defaults of the input's dtype put in. Raises ConfigError when low is above high."""
    low, high = _default_bounds(spec, defaults)
    low = low if given.low is None else given.low
    high = high if given.high is None else given.high
    if not low <= high:
        raise ConfigError(f"the range of the input {spec.name!r} goes from {low} to {high}; low is at most high")
    return Bounds(defaults.seed if given.seed is None else given.seed, low, high)


def draw(spec: InputSpec, shape: tuple[int, ...], bounds: Bounds) -> np.ndarray:
    """An array of the input's dtype and this shape; ``bounds`` is a ``full_range``.

    Raises ConfigError for a range or seed that the dtype cannot hold, InputError for an input of text.
    """
    kind = spec.dtype.kind
    if kind not in "biuf":
        raise InputError(f"the input {spec.name!r} takes {spec.dtype}, which cannot be drawn at random; give an array")
    try:
        generator = np.random.default_rng(bounds.seed)
        if kind == "f":
            return generator.uniform(bounds.low, bounds.high, shape).astype(spec.dtype)
        low, high = _whole(bounds.low), _whole(bounds.high)
        if kind == "b":
            return generator.integers(low, high, shape, endpoint=True).astype(np.bool_)
        return generator.integers(low, high, shape, dtype=spec.dtype.type, endpoint=True)
    except (ValueError, OverflowError, TypeError) as error:
        raise ConfigError(
            f"the input {spec.name!r} ({spec.dtype}) cannot be drawn from {bounds.low} to {bounds.high} "
            f"with the seed {bounds.seed}: {error}"
        ) from None


def _whole(bound: Number) -> int:
    if bound != int(bound):
        raise ValueError("not a whole number")
    return int(bound)


def _default_bounds(spec: InputSpec, defaults: InputDefaults) -> tuple[Number, Number]:
    if spec.dtype.kind == "f":
        return defaults.float_min, defaults.float_max
    if spec.dtype.kind == "b":
        return 0, 1
    return defaults.int_min, defaults.int_max
