"""Criteria that plans are judged by: the combined error of the outputs, the user's metric, and a target.

The error of each output (``Score.error``) is scaled by L / (its error at INT8), where L is the mean of the errors at
INT8. At INT8 every output then counts L, so that an output with a large error does not hide another. The scaled errors
are combined in one of two ways; for a single output both are its plain error.

mean    the mean of the scaled errors.
worst   the mean of the scaled errors at INT16, plus the largest scaled (error - error at INT16) of any output.

The user's metric is ``FILE.py:function``, f(outputs, float_outputs) -> number, higher is better. It is called once per
image with the outputs of the fixed and the float model, {name: array}; its mean over the images counts. If the function
has parameters of these names, it also gets ``picture``, the file (for a data loader "feed 3"), and ``label``, which the
data loader gives beside the feed.
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
# The error from storing an output as INT16. A smaller error at INT8 cannot be reduced, and must not weigh as much as
# a real error.
FLOOR = 1e-8
NAMES = ("output-cos", "output-rmse", "error", "metric")
Outputs = Mapping[str, np.ndarray]
UserMetric = Callable[..., float]
"""f(outputs, float_outputs), with ``picture`` and ``label`` if the function has such parameters."""
TOLD = ("picture", "label")
# Largest ratio of the remaining share of error on held-out images to that on judging images.
BEYOND = 1.5
# A remaining share of error that counts as none.
NEGLIGIBLE = 1e-4


@dataclass(frozen=True, eq=False)
class Criteria:
    """The criteria that plans are judged by.

    domains  names, in execution order.
    watched  tensors whose error counts; ``outputs``: outputs of the model.
    metric   the user's function, or None; see ``measured``.
    axes     watched tensor -> axis of the Softmax that it feeds; its values are weighted (``by_probability``).
    """

    domains: Sequence[str]
    pictures: Sequence[Picture]
    watched: Sequence[str]
    outputs: Sequence[str]
    metric: UserMetric | None = None
    axes: Mapping[str, int] = field(default_factory=dict)

    def measured(self, outputs: Outputs, picture: Picture) -> float:
        """Return the user's metric of one image, 0 without a metric. Raises what the metric raises."""
        return 0.0 if self.metric is None else measured(self.metric, self.outputs, outputs, picture)


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, or another set of inputs.

    raw     feed of the fixed model.
    floats  values of the float model: outputs and watched tensors.
    name    source of the image; ``label``: given by a data loader.
    """

    raw: Mapping[str, np.ndarray]
    floats: Mapping[str, np.ndarray]
    name: str = ""
    label: Any = None


def measured(metric: UserMetric, names: Iterable[str], outputs: Outputs, picture: Picture) -> float:
    """Return the user's metric of these outputs of one image."""
    sides = ({name: side[name] for name in names} for side in (outputs, picture.floats))
    told = {"picture": picture.name, "label": picture.label}
    return metric(*sides, **{name: told[name] for name in takes(metric)})


def takes(metric: UserMetric) -> tuple[str, ...]:
    """Return the names of TOLD that a metric has parameters for."""
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
    """The error to minimise: ``how`` is MEAN or WORST, ``names`` are the watched tensors that count."""

    how: str
    names: tuple[str, ...]


def parse_objective(text: str, watched: Mapping[str, str]) -> Objective:
    """Return the objective of ``mean``, ``worst``, or names of outputs separated by commas (their mean).

    watched  output of the model -> tensor that is watched instead; both names are accepted.
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
                f"--objective: {name!r} is unknown. Use '{MEAN}', '{WORST}' or names of outputs: {every_output}"
            )
    return Objective(MEAN, tuple(dict.fromkeys(watched_names[name] for name in names)))


@dataclass(frozen=True, eq=False)
class CombinedError:
    """The largest of k sums: max over k of (weights[k] . errors + base[k]).

    names     the n tensors whose errors count, in this order.
    weights   float64 [k, n]; ``base``: float64 [k].
    left_out  requested tensors with infinite error at INT16 (zero in the float model).
    """

    names: tuple[str, ...]
    weights: np.ndarray
    base: np.ndarray
    left_out: tuple[str, ...] = ()

    def errors(self, score: Score) -> np.ndarray:
        """Return the error of each tensor, float64 [n]."""
        return np.array([score.error(name) for name in self.names])

    def of(self, score: Score) -> float:
        """Return the combined error; infinite if one of the errors is."""
        errors = self.errors(score)
        return float((self.weights @ errors + self.base).max()) if np.isfinite(errors).all() else float("inf")


def combined_error(objective: Objective, int8: Score, int16: Score) -> CombinedError:
    """Return the objective with the scales of this model, from the scores of all-INT8 and all-INT16."""
    finite = tuple(name for name in objective.names if np.isfinite(int16.error(name)))
    names = finite or objective.names
    low, high = (np.array([score.error(name) for name in names]) for score in (int8, int16))
    if not finite:
        return CombinedError(names, np.full((1, len(names)), 1 / len(names)), np.zeros(1))
    # An infinite error at INT8 counts as 1, the error of an output without any signal.
    low = np.maximum(np.where(np.isfinite(low), low, 1.0), FLOOR)
    scale = low.mean() / low if len(names) > 1 else np.ones(1)
    if objective.how == WORST:
        weights, base = np.diag(scale), (scale * high).mean() - scale * high
    else:
        weights, base = scale[None] / len(names), np.zeros(1)
    return CombinedError(names, weights, base, tuple(sorted({*objective.names} - {*names})))


def lies_beyond(held: float, judged: float, best: float) -> bool:
    """Return whether an error on held-out images is much larger than expected.

    held, judged  the plan's error as a share of the unchanged model's, on held-out and on judging images.
    best          the same share with every convolution at INT16, on held-out images.
    """
    return held > max(BEYOND * judged, BEYOND * best, NEGLIGIBLE)


@dataclass(frozen=True)
class Target:
    """A value to reach; ``name`` is one of NAMES.

    output-cos is the lowest COS of any output, output-rmse the highest RMSE.
    """

    name: str
    at_least: bool
    value: float

    def of(self, score: Score, outputs: Sequence[str], error: float) -> float:
        """Return the figure to compare with ``value``; ``error`` is the ``CombinedError`` of the score."""
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
    """The target that every ``watched`` tensor is within ``limits``: the largest figure / limit is at most 1.

    The target uses sums over all images only. ``IntegerScores.past`` also accepts an error of one step.
    """

    limits: Thresholds = DOCUMENTED
    watched: tuple[str, ...] = ()

    def of(self, score: Score, outputs: Sequence[str], error: float) -> float:
        return max((self._in_limits(score, name) for name in self.watched), default=0.0)

    def _in_limits(self, score: Score, name: str) -> float:
        """Return the larger ratio of both figures to their limits; infinite for NaN."""
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
    """Return the target of NAME>=NUMBER or NAME<=NUMBER. Raises ConfigError for other text or the worse direction."""
    match = re.fullmatch(r"\s*([a-z-]+)\s*(>=|<=)\s*(\S+)\s*", text)
    try:
        value = float(match[3]) if match else math.nan
    except ValueError:
        value = math.nan
    if not match or not math.isfinite(value) or match[1] not in NAMES:
        raise ConfigError(f"--target {text!r} is not NAME>=NUMBER or NAME<=NUMBER; NAME is one of {', '.join(NAMES)}")
    at_least = match[1] in ("output-cos", "metric")
    if at_least != (match[2] == ">="):
        raise ConfigError(
            f"--target {text!r}: {match[1]} is better when {'higher' if at_least else 'lower'}; use the "
            "other sign (>= or <=)"
        )
    return Target(match[1], at_least, value)


@dataclass(frozen=True)
class LoadedMetric:
    """A user's metric loaded from a file, with errors reported in one line; ``told``: its parameters of TOLD."""

    file: Path
    name: str
    function: Callable[..., Any]
    told: tuple[str, ...]

    def __call__(self, outputs: Outputs, floats: Outputs, **told: Any) -> float:
        """Return the metric. Raises InputError if it fails or does not return a finite number."""
        with blaming(self.file, "metric"):
            result = self.function(dict(outputs), dict(floats), **told)
        try:
            value = float(result)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{self.file}: {self.name} returned {str(result)[:60]!r}, not a finite number")
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
                f"--metric {self.template} does not fit the shapes of the outputs ({shapes}); use "
                "another metric, or omit --metric"
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
