"""Equalisation: factors of the channels that make the noise of 8 bits (``noise.py``) least.

In the logarithms of the factors the noise is a sum of exponentials of maxima, so it is convex but for the whole powers
of two that sums lose, and going down leads to the least: a geometric program (Boyd et al., A tutorial on geometric
programming, 2007). A maximum is smoothed, (Σ v^p)^(1/p), with p from 8 to 128; the steps are those of Adam (Kingma and
Ba, ICLR 2015). The channels that may be scaled, and their ends on calibration pictures, as in Nagel et al., Data-Free
Quantization (ICCV 2019), section 4.1, whose rule fills every channel's range alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.fixedpoint.curing.noise import EMPTY, INT8_STEPS, TINIEST, UINT8_STEPS, Layer, Noise
from sgsdump.fixedpoint.curing.scaling import Scaling
from sgsdump.fixedpoint.quantisation.integer.convolution import BIAS_BITS
from sgsdump.fixedpoint.quantisation.quant_plan import WIDEST_RATIO

# Further apart than this the channels of one tensor are not drawn: the multipliers of a convolution have 15 bits.
WIDEST = 256.0
# What a channel reached counts as this part of what its tensor reached, where it is less.
FLOOR = 1 / 8
# What scaling has to take off the noise: a network whose channels are alike already only changes.
GAIN = 0.02
# The sharpness p of smooth maxima is 2 to the power of each of these, for STEPS steps.
SHARPNESS = (3, 4, 5, 6, 7)
STEPS = 20
# Sums lose a whole power of two: of all between one and the next, the mean square is so much more.
ROUNDED_UP = 1.5 / math.log(2)
# Of Adam: its first step, which falls to nothing, what it remembers of slopes and of their squares, and its epsilon.
# The slope of a factor is taken in parts of the noise that it moves, so that quiet layers are equalised as loud ones.
PACE, MOMENTUM, MEMORY, DAMPING = 0.1, 0.9, 0.95, 0.01


def equalising_factors(scaling: Scaling, layers: Sequence[Layer], noise: Noise) -> np.ndarray:
    """The factor of each class, an array by class; all 1 where that takes less than GAIN off the noise."""

    def total(logs: np.ndarray) -> float:
        return sum(noise.of(layer, np.exp(logs)) for layer in layers)

    terms, bounds = [_Terms.of(layer, noise) for layer in layers], Bounds.of(scaling)
    best = logs = speed = size = np.zeros(scaling.size)
    before, count = total(logs), STEPS * len(SHARPNESS)
    least = before * (1 - GAIN)
    for number in range(count if least > 0 else 0):
        grows, falls = _pulls(terms, logs, SHARPNESS[number // STEPS], noise.per_channel)
        some = bounds.free & (grows > 0) & (falls > 0)
        slope = np.where(some, (grows - falls) / np.where(some, grows + falls, 1.0), 0.0)
        speed, size = MOMENTUM * speed + (1 - MOMENTUM) * slope, MEMORY * size + (1 - MEMORY) * slope**2
        mean, square = speed / (1 - MOMENTUM ** (number + 1)), size / (1 - MEMORY ** (number + 1))
        logs = bounds.within(logs - PACE * (1 - number / count) * mean / (np.sqrt(square) + DAMPING))
        if noise.per_channel:
            logs = _within_ratio(terms, logs, bounds.free)
        if number % (STEPS // 2) == STEPS // 2 - 1 and (now := total(logs)) < least:
            best, least = logs, now
    return np.exp(best)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Of logarithms of factors: which are ``free``, and the largest where a Clip bounds them, which are above 1 too
    (both by class); the ``domains``, and those that nothing holds: what all of one is scaled by changes nothing."""

    free: np.ndarray
    limits: np.ndarray
    domains: Sequence[np.ndarray]
    loose: Sequence[np.ndarray]

    @classmethod
    def of(cls, scaling: Scaling) -> Bounds:
        free, limits = np.ones(scaling.size, bool), np.full(scaling.size, np.inf)
        free[list(scaling.fixed)] = False
        limits[list(scaling.limits)] = np.log(list(scaling.limits.values()))
        held = ~free | np.isfinite(limits)
        beside = held.copy()
        for ids in scaling.classes.values():
            beside[ids] |= held[ids].any()
        domains = domains_of(scaling)
        return cls(free, limits, domains, [domain for domain in domains if not beside[domain].any()])

    def within(self, logs: np.ndarray) -> np.ndarray:
        """No further apart in a domain than a multiplier can hold; the mean 1 of what nothing holds."""
        clipped = np.isfinite(self.limits)
        logs = np.where(clipped, np.clip(logs, 0.0, self.limits), logs)
        for domain in self.domains:
            own = domain[~clipped[domain]]
            logs[own] = np.maximum(logs[own], logs[domain].max() - math.log(WIDEST))
        for domain in self.loose:
            logs[domain] -= logs[domain].mean()
        return logs


def domains_of(scaling: Scaling) -> list[np.ndarray]:
    """The free classes by the tensors that they stand in together, in the order of the network."""
    parent: dict[int, int] = {}

    def root(c: int) -> int:
        while parent.setdefault(c, c) != c:
            c = parent[c]
        return c

    for ids in scaling.classes.values():
        free = [c for c in ids.tolist() if c not in scaling.fixed]
        for c in free[1:]:
            parent[root(c)] = root(free[0])
        for c in free[:1]:
            root(c)
    members: dict[int, list[int]] = {}
    for c in parent:
        members.setdefault(root(c), []).append(c)
    return [np.array(sorted(each)) for each in members.values()]


@dataclass(frozen=True, eq=False)
class _Terms:
    """A layer's noise as the descent sees it: its classes; what each channel of its input counts by the square of the
    tensor's step over its factor (``inputs`` [I]) and how far it reaches (``high``, ``low`` [I], from 0); the largest
    weight [O, I], and what its square counts (``weights`` [O, I]); how far sums reach (``reach`` [O], in units of their
    last bit), and what the square of a step of theirs counts (``sums`` [O]); how far the scales of its outputs may be
    apart (``gaps`` [O])."""

    before: np.ndarray
    after: np.ndarray
    inputs: np.ndarray
    high: np.ndarray
    low: np.ndarray
    largest: np.ndarray
    weights: np.ndarray
    reach: np.ndarray
    sums: np.ndarray
    gaps: np.ndarray

    @classmethod
    def of(cls, layer: Layer, noise: Noise) -> _Terms:
        name = layer.node.input[0]
        read = noise.figures[name]
        ends = [np.maximum(each, 0.0) for each in (read.high, -read.low)]
        high, low = (np.where(each > 0, np.maximum(each, FLOOR * each.max()), 0.0) for each in ends)
        inputs = np.zeros(high.size) if name in noise.exact else layer.counts @ layer.squares * layer.apart
        weights = (layer.largest > 0) * noise.power(layer) * layer.counts[:, None] * layer.taps
        ones = np.zeros(1 + max(int(layer.before.max()), int(layer.after.max())))
        gaps = np.maximum(_gaps(layer.largest, ones, layer.before, layer.after), math.log(WIDEST_RATIO / 2))
        return cls(
            layer.before,
            layer.after,
            inputs / 12,
            high / UINT8_STEPS,
            low / UINT8_STEPS,
            layer.largest,
            weights / (12 * INT8_STEPS**2),
            np.where(layer.largest.max(axis=1) > EMPTY, layer.reach, 0.0) * INT8_STEPS / 2.0**BIAS_BITS,
            ROUNDED_UP * layer.counts * layer.apart / (12 * INT8_STEPS**2),
            gaps,
        )


def _pulls(
    terms: Sequence[_Terms], logs: np.ndarray, doublings: int, per_channel: bool
) -> tuple[np.ndarray, np.ndarray]:
    """By class the noise that grows with its factor and the noise that falls: their difference is half the gradient by
    the factor's logarithm."""
    grows, falls = np.zeros(logs.size), np.zeros(logs.size)
    for term in terms:
        factors, outputs = np.exp(logs[term.before]), np.exp(logs[term.after])
        (high, highest), (low, lowest) = (_smooth(factors * each, doublings) for each in (term.high, term.low))
        inputs = (high + low) ** 2 * term.inputs / factors**2
        np.add.at(grows, term.before, inputs.sum() * (high * highest + low * lowest) / max(high + low, TINIEST))
        np.add.at(falls, term.before, inputs)
        # a scale falls with the factor of the input that it comes from; one for all grows with its output's, too
        scales, shares = _smooth(term.largest / factors, doublings)
        if not per_channel:
            scale, of_outputs = _smooth(scales * outputs, doublings)
            scales, shares = scale / outputs, np.broadcast_to(of_outputs @ shares, shares.shape)
        scales = np.maximum(scales, TINIEST)
        weights = scales[:, None] ** 2 * term.weights * factors**2
        np.add.at(grows, term.before, weights.sum(axis=0))
        reach, furthest = _smooth(term.reach / scales, doublings)
        sums = scales**2 * term.sums * reach**2 * (reach > high + low)
        rounded = weights.sum(axis=1) + sums
        np.add.at(falls, term.before, rounded @ shares)
        np.add.at(grows, term.before, sums.sum() * (furthest @ shares))
        if not per_channel:
            np.add.at(grows, term.after, rounded.sum() * of_outputs)
            np.add.at(falls, term.after, rounded)
            np.add.at(falls, term.after, sums.sum() * of_outputs)
            np.add.at(grows, term.after, sums.sum() * furthest)
    return grows, falls


def _smooth(values: np.ndarray, doublings: int) -> tuple[np.ndarray, np.ndarray]:
    """[...] smooth maxima of values [..., n] from 0, and the part of each value in theirs, which is their gradient."""
    top = np.maximum(values.max(axis=-1, keepdims=True), TINIEST)
    parts = values / top
    for _ in range(doublings):
        parts = parts * parts
    whole = np.maximum(parts.sum(axis=-1, keepdims=True), TINIEST)
    return (top * whole ** (0.5**doublings))[..., 0], parts / whole


def _within_ratio(terms: Sequence[_Terms], logs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The factors of outputs whose weights' scales are further below the layer's largest than they may be, raised."""
    logs = logs.copy()
    for term in terms:
        lack = _gaps(term.largest, logs, term.before, term.after) - term.gaps
        some = free[term.after] & (lack > 0)
        logs[term.after[some]] += lack[some]
    return logs


def _gaps(largest: np.ndarray, logs: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """[O] how far, in logarithms, the scale of an output's weights is below the layer's largest; 0 without weights."""
    tops = (largest / np.exp(logs[before])).max(axis=1) * np.exp(logs[after])
    return np.log(tops.max() / np.where(largest.max(axis=1) > EMPTY, tops, tops.max()))
