"""How the errors of several outputs combine into the one error that a search minimises.

Each output's error (``Score.error``) is first scaled by L / (its own error at INT8), L being the mean of all these: at
INT8 every output counts L, so that one with a large error does not hide another. Then

mean    the mean of the scaled errors counts.
worst   the output furthest from what INT16 gives it: the largest (error - its error at INT16), scaled, on top of the
        mean of the scaled errors at INT16.

Of a single output both are its plain error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.quantisation.objective import Score

MEAN, WORST = "mean", "worst"
# What storing an output as INT16 costs it by itself. An error at INT8 below this leaves nothing to gain, and the last
# bits of such an output must not weigh as much as a real error.
FLOOR = 1e-8


@dataclass(frozen=True)
class Objective:
    """What was asked for: ``how`` is MEAN or WORST, ``names`` the watched tensors that count."""

    how: str
    names: tuple[str, ...]


def parse_objective(text: str, watched: Mapping[str, str]) -> Objective:
    """``mean``, ``worst``, or outputs' names by commas, whose mean then counts.

    watched  for each output of the network the tensor that is watched in its place; both names are understood.
    Raises ConfigError for any other text.
    """
    every = tuple(dict.fromkeys(watched.values()))
    if text in (MEAN, WORST):
        return Objective(text, every)
    known = {name: name for name in every} | dict(watched)
    names = [text] if text in known else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            every_output = ", ".join(watched)
            raise ConfigError(
                f"--objective: {name!r} is not {MEAN}, {WORST} or an output; the outputs are {every_output}"
            )
    return Objective(MEAN, tuple(dict.fromkeys(known[name] for name in names)))


@dataclass(frozen=True, eq=False)
class CombinedError:
    """The largest of k sums: max over k of (weights[k] . errors + base[k]).

    names     the tensors whose errors go in, n of them, in this order.
    weights   float64 [k, n]; ``base`` float64 [k].
    left_out  asked for, but of infinite error at INT16 (an output that is zero in the float model).
    """

    names: tuple[str, ...]
    weights: np.ndarray
    base: np.ndarray
    left_out: tuple[str, ...] = ()

    def errors(self, score: Score) -> np.ndarray:
        """Each output's own error, [n]."""
        return np.array([score.error(name) for name in self.names])

    def of(self, score: Score) -> float:
        """Infinite when one of the errors is."""
        errors = self.errors(score)
        return float((self.weights @ errors + self.base).max()) if np.isfinite(errors).all() else float("inf")


def combined_error(objective: Objective, int8: Score, int16: Score) -> CombinedError:
    """The objective with the scales of this network, from the scores of its two ends."""
    finite = tuple(name for name in objective.names if np.isfinite(int16.error(name)))
    names = finite or objective.names
    low, high = (np.array([score.error(name) for name in names]) for score in (int8, int16))
    if not finite:
        return CombinedError(names, np.full((1, len(names)), 1 / len(names)), np.zeros(1))
    # An output that INT8 drives to infinity is as good as one without any signal: error 1.
    low = np.maximum(np.where(np.isfinite(low), low, 1.0), FLOOR)
    scale = low.mean() / low if len(names) > 1 else np.ones(1)
    if objective.how == WORST:
        weights, base = np.diag(scale), (scale * high).mean() - scale * high
    else:
        weights, base = scale[None] / len(names), np.zeros(1)
    return CombinedError(names, weights, base, tuple(sorted({*objective.names} - {*names})))
