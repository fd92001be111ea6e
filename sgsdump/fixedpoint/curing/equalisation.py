"""Equalisation: channel factors that minimise the noise of 8 bits (``noise.py``).

As a function of the logarithms of the factors, the noise is a sum of exponentials of maxima. It is convex, except for
the whole powers of two that sums lose, so descent leads to the minimum: a geometric program (Boyd et al., A tutorial on
geometric programming, 2007). Maxima are smoothed as (Σ v^p)^(1/p), with p from 8 to 128; the steps are those of Adam
(Kingma and Ba, ICLR 2015). The scalable channels, and their ranges on calibration images, follow Nagel et al.,
Data-Free Quantization (ICCV 2019), section 4.1, whose rule fills the range of every channel alike.
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

# Largest ratio of factors within one tensor: the multipliers of a convolution have 15 bits.
WIDEST = 256.0
# A channel that reached less than this part of its tensor's range counts as if it had reached this part.
FLOOR = 1 / 8
# Least reduction of noise for scaling: a model whose channels are already alike would only change.
GAIN = 0.02
# The smooth maxima use the sharpness p = 2 to the power of each of these, for STEPS steps each.
SHARPNESS = (3, 4, 5, 6, 7)
STEPS = 20
# Sums lose a whole power of two; averaged over all values between two powers, the mean square grows by this factor.
ROUNDED_UP = 1.5 / math.log(2)
# Adam: first step size (falls to zero), decay of slopes and of squared slopes, and epsilon. The slope of a factor is
# relative to the noise that it affects, so that quiet layers are equalised like loud ones.
PACE, MOMENTUM, MEMORY, DAMPING = 0.1, 0.9, 0.95, 0.01


def equalising_factors(scaling: Scaling, layers: Sequence[Layer], noise: Noise) -> np.ndarray:
    """Return the factor of each class; all 1 if the noise falls by less than GAIN."""

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
    """Bounds of the logarithms of the factors.

    free     by class, whether the factor may change.
    limits   by class, the largest value if a Clip bounds the class; such factors are also at least 1.
    domains  classes that share tensors.
    loose    domains without a fixed or bounded class: a common factor has no effect there.
    """

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
        """Limit the spread within a domain to what a multiplier holds, and centre loose domains on 1."""
        clipped = np.isfinite(self.limits)
        logs = np.where(clipped, np.clip(logs, 0.0, self.limits), logs)
        for domain in self.domains:
            own = domain[~clipped[domain]]
            logs[own] = np.maximum(logs[own], logs[domain].max() - math.log(WIDEST))
        for domain in self.loose:
            logs[domain] -= logs[domain].mean()
        return logs


def domains_of(scaling: Scaling) -> list[np.ndarray]:
    """Return the free classes grouped by the tensors that they share, in the order of the network."""
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
    """The noise of a layer as the descent uses it.

    before, after  classes of the input and output channels.
    inputs   [I] weight of the squared tensor step over the squared factor.
    high, low  [I] how far each channel reaches from 0.
    largest  [O, I] largest weight.
    weights  [O, I] weight of the squared weight scale.
    reach    [O] how far sums reach, in units of their last bit.
    sums     [O] weight of the squared step of the sums.
    gaps     [O] how far the scales of the outputs may be apart, as logarithm.
    """

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
    """Return, by class, the noise that grows with the factor and the noise that falls.

    The difference is half the gradient with respect to the logarithm of the factor.
    """
    grows, falls = np.zeros(logs.size), np.zeros(logs.size)
    for term in terms:
        factors, outputs = np.exp(logs[term.before]), np.exp(logs[term.after])
        (high, highest), (low, lowest) = (_smooth(factors * each, doublings) for each in (term.high, term.low))
        inputs = (high + low) ** 2 * term.inputs / factors**2
        np.add.at(grows, term.before, inputs.sum() * (high * highest + low * lowest) / max(high + low, TINIEST))
        np.add.at(falls, term.before, inputs)
        # a channel's scale falls with the input factor that sets it; a common scale also grows with its output's factor
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
    """Return smooth maxima [...] of values [..., n] from 0, and each value's share, which is the gradient."""
    top = np.maximum(values.max(axis=-1, keepdims=True), TINIEST)
    parts = values / top
    for _ in range(doublings):
        parts = parts * parts
    whole = np.maximum(parts.sum(axis=-1, keepdims=True), TINIEST)
    return (top * whole ** (0.5**doublings))[..., 0], parts / whole


def _within_ratio(terms: Sequence[_Terms], logs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Raise the factors of outputs whose weight scales are too far below the largest scale of the layer."""
    logs = logs.copy()
    for term in terms:
        lack = _gaps(term.largest, logs, term.before, term.after) - term.gaps
        some = free[term.after] & (lack > 0)
        logs[term.after[some]] += lack[some]
    return logs


def _gaps(largest: np.ndarray, logs: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return how far each output's weight scale is below the layer's largest, as logarithm [O]; 0 without weights."""
    tops = (largest / np.exp(logs[before])).max(axis=1) * np.exp(logs[after])
    return np.log(tops.max() / np.where(largest.max(axis=1) > EMPTY, tops, tops.max()))
