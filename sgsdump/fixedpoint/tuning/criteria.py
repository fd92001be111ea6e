"""The criteria that plans are judged by: the outputs' errors combined into one, the user's own metric, a target.

Each output's error (``Score.error``) is first scaled by L / (its own error at INT8), L being the mean of all these: at
INT8 every output counts L, so that one with a large error does not hide another. Then

mean    the mean of the scaled errors counts.
worst   the output furthest from what INT16 gives it: the largest (error - its error at INT16), scaled, on top of the
        mean of the scaled errors at INT16.

Of a single output both are its plain error.

The user's metric is ``FILE.py:function``, f(outputs, float_outputs) -> number, higher is better. It is called once for
each picture with the fixed and the float model's outputs, {name: array}; its mean over the pictures counts. Where it
has parameters of these names it also gets ``picture``, the file (of a data loader "feed 3"), and ``label``, what the
data loader gave beside the feed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.comparison.agreement import NAMES as AGREEMENTS
from sgsdump.comparison.agreement import NONE, agreement_of
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import ConfigError, InputError
from sgsdump.files.user_module import blaming, import_function
from sgsdump.fixedpoint.quantisation.objective import Score

MEAN, WORST = "mean", "worst"
# What storing an output as INT16 costs it by itself. An error at INT8 below this leaves nothing to gain, and the last
# bits of such an output must not weigh as much as a real error.
FLOOR = 1e-8
NAMES = ("output-cos", "output-rmse", "error", "metric")
Outputs = Mapping[str, np.ndarray]
UserMetric = Callable[..., float]
"""f(outputs, float_outputs), with ``picture`` and ``label`` where it has them."""
TOLD = ("picture", "label")
# An error on pictures held out, as a part of the one before there, that is so many times the other's is beyond it.
BEYOND = 1.5
# A part of an error that is as good as none.
NEGLIGIBLE = 1e-4


@dataclass(frozen=True, eq=False)
class Criteria:
    """The criteria that plans are judged by.

    domains  names, in execution order.
    watched  tensors whose error counts; ``outputs`` the network's.
    metric   the user's function, or None; see ``measured``.
    axes     of the Softmax that a watched tensor stands in for: its values are weighed (``objective.by_probability``).
    """

    domains: Sequence[str]
    pictures: Sequence[Picture]
    watched: Sequence[str]
    outputs: Sequence[str]
    metric: UserMetric | None = None
    axes: Mapping[str, int] = field(default_factory=dict)

    def measured(self, outputs: Outputs, picture: Picture) -> float:
        """The user's metric of one picture, 0 without one. Raises what it raises."""
        return 0.0 if self.metric is None else measured(self.metric, self.outputs, outputs, picture)


@dataclass(frozen=True, eq=False)
class Picture:
    """The fixed model's feed, and the float model's values for it (outputs and watched tensors); where it comes from,
    and what a data loader says of it."""

    raw: Mapping[str, np.ndarray]
    floats: Mapping[str, np.ndarray]
    name: str = ""
    label: Any = None


def measured(metric: UserMetric, names: Iterable[str], outputs: Outputs, picture: Picture) -> float:
    """The user's metric of these outputs of one picture."""
    sides = ({name: side[name] for name in names} for side in (outputs, picture.floats))
    told = {"picture": picture.name, "label": picture.label}
    return metric(*sides, **{name: told[name] for name in takes(metric)})


def takes(metric: UserMetric) -> tuple[str, ...]:
    """Those of TOLD that a metric has parameters for."""
    if isinstance(metric, LoadedMetric):
        return metric.told
    try:
        parameters = signature(metric).parameters.values()
    except (TypeError, ValueError):
        return ()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return TOLD
    names = {each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY}
    return tuple(name for name in TOLD if name in names)


@dataclass(frozen=True)
class Objective:
    """The error to make small: ``how`` is MEAN or WORST, ``names`` the watched tensors that count."""

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
    watched_names = {name: name for name in every} | dict(watched)
    names = [text] if text in watched_names else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in watched_names:
            every_output = ", ".join(watched)
            raise ConfigError(
                f"--objective: {name!r} is not {MEAN}, {WORST} or an output; the outputs are {every_output}"
            )
    return Objective(MEAN, tuple(dict.fromkeys(watched_names[name] for name in names)))


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


def lies_beyond(held: float, judged: float, best: float) -> bool:
    """Whether an error on pictures held out lies beyond that on the pictures that judge, and beyond the ``best`` there;
    each as a part of the error there before."""
    return held > max(BEYOND * judged, BEYOND * best, NEGLIGIBLE)


@dataclass(frozen=True)
class Target:
    """``name`` is one of NAMES; output-cos is the lowest COS of any output, output-rmse the highest RMSE."""

    name: str
    at_least: bool
    value: float

    def of(self, score: Score, outputs: Sequence[str], error: float) -> float:
        """The figure to compare with ``value``; ``error`` is the ``CombinedError`` of the score."""
        if self.name == "output-cos":
            return min((score.cos(name) for name in outputs), default=math.nan)
        if self.name == "output-rmse":
            return max((score.rmse(name) for name in outputs), default=math.nan)
        return error if self.name == "error" else score.mean_metric

    def reached(self, score: Score, outputs: Sequence[str], error: float) -> bool:
        value = self.of(score, outputs, error)
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"{self.name}{'>=' if self.at_least else '<='}{self.value:g}"


@dataclass(frozen=True)
class OutputLimits(Target):
    """The target of every ``watched`` tensor within ``limits``: the largest figure in units of its limit is at most 1.

    Sums over all images are all that this target sees. ``IntegerScores.past`` also accepts an error of one step.
    """

    limits: Thresholds = DOCUMENTED
    watched: tuple[str, ...] = ()

    def of(self, score: Score, outputs: Sequence[str], error: float) -> float:
        return max((self._in_limits(score, name) for name in self.watched), default=0.0)

    def _in_limits(self, score: Score, name: str) -> float:
        """Return the larger of both figures over its limit; infinite for NaN."""
        if score.sums[name].dd == 0:
            return 0.0
        parts, cos, rmse = [0.0], score.cos(name), score.rmse(name)
        for away, limit in (
            (1 - cos, None if self.limits.min_cos is None else 1 - self.limits.min_cos),
            (rmse, self.limits.max_rmse),
        ):
            if limit is not None:
                parts.append(away / limit if limit > 0 else 0.0 if away <= 0 else math.inf)
        return math.inf if any(math.isnan(part) for part in parts) else max(parts)


def limits_target(limits: Thresholds, watched: Sequence[str]) -> OutputLimits:
    """Return the target of ``watched`` tensors within ``limits``."""
    return OutputLimits("limits", False, 1.0, limits, tuple(watched))


def parse_target(text: str) -> Target:
    """Raises ConfigError for anything but NAME>=NUMBER or NAME<=NUMBER, in the direction that is better."""
    match = re.fullmatch(r"\s*([a-z-]+)\s*(>=|<=)\s*(\S+)\s*", text)
    try:
        value = float(match[3]) if match else math.nan
    except ValueError:
        value = math.nan
    if not match or not math.isfinite(value) or match[1] not in NAMES:
        raise ConfigError(f"--target {text!r} is not NAME>=NUMBER or NAME<=NUMBER; names are {', '.join(NAMES)}")
    at_least = match[1] in ("output-cos", "metric")
    if at_least != (match[2] == ">="):
        raise ConfigError(f"--target {text!r}: {match[1]} is better when {'higher' if at_least else 'lower'}")
    return Target(match[1], at_least, value)


@dataclass(frozen=True)
class LoadedMetric:
    """A user's metric out of a file, whose faults are told in one line; ``told``: what it takes of TOLD."""

    file: Path
    name: str
    function: Callable[..., Any]
    told: tuple[str, ...]

    def __call__(self, outputs: Outputs, floats: Outputs, **told: Any) -> float:
        """Raises InputError where it fails, or gives no finite number."""
        with blaming(self.file, "metric"):
            result = self.function(dict(outputs), dict(floats), **told)
        try:
            value = float(result)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{self.file}: {self.name} gave {str(result)[:60]!r}, which is not a finite number")
        return value


@dataclass(frozen=True)
class AgreementMetric:
    """The share of answers that agree with the float model, by a template of ``comparison.agreement``."""

    template: str

    def __call__(self, outputs: Outputs, floats: Outputs) -> float:
        """Return the share. Raises InputError for outputs of other shapes."""
        agreement = agreement_of(outputs, floats, self.template)
        if agreement is None:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in floats.items())
            raise InputError(
                f"--metric {self.template} does not fit the outputs ({shapes}); use another metric, or none"
            )
        return agreement.share


def load_metric(text: str) -> LoadedMetric | AgreementMetric | None:
    """Return the metric of ``FILE.py:function``, a template of ``comparison.agreement``, or None for ``none``.

    Raises InputError for a file or function that does not exist or fails.
    """
    if text == NONE:
        return None
    if text in AGREEMENTS:
        return AgreementMetric(text)
    file, name, function = import_function(text, "--metric", "metric", "outputs, float_outputs")
    return LoadedMetric(file, name, function, takes(function))
