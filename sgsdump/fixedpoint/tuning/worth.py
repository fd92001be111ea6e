"""What fixed models are worth: the outputs' error and the user's metric, on pictures that judge and on those held out.

The error is ``objective``'s, Σ(fixed - float)² / Σ float², in the hardware's integers, its mean over the outputs. A
plan was chosen on the pictures that judge. Where its error on those held out, as a part of that of the model as it is,
is BEYOND times the same on the pictures that judge, and so many times what INT16 gives there, it is not recommended;
nor is one that holds the limits on the first and not on the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto

from sgsdump.comparison.agreement import Agreement, agreement_of
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.objective import Score, watched_tensors
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs, FloatOutputs, PlanOutputs, outputs_of
from sgsdump.fixedpoint.tuning.criteria import Picture, UserMetric, lies_beyond, measured
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.image_list import evenly
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress, each

AS_IT_IS, PLAN, ALL_16 = "as it is", "plan", "all at 16 bits"
MOST_COUNTED = 100  # images on which answers are counted


@dataclass(frozen=True)
class Worth:
    """A fixed model on some pictures: the error, whether the outputs are within the limits, and the user's metric,
    None without one; ``outputs`` that this is of."""

    error: float
    good: bool
    metric: float | None = None
    outputs: PlanOutputs | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Worths:
    """By what they are (AS_IT_IS, PLAN, ALL_16) fixed models on the pictures that judge, and on those held out.

    pictures  how many that judge, and how many held out.
    float_metric  the user's metric of the float model, on both; None where it was not measured.
    names  what the plan raises.
    """

    judged: Mapping[str, Worth]
    held: Mapping[str, Worth]
    pictures: tuple[int, int]
    float_metric: tuple[float | None, float | None] = (None, None)
    names: tuple[str, ...] = ()

    @property
    def beyond(self) -> bool:
        """Whether what the plan gives on the pictures held out lies beyond what it gives on those that judge."""
        if PLAN not in self.held:
            return False
        judged, held = self.judged[PLAN], self.held[PLAN]
        if judged.good and not held.good:
            return True
        return lies_beyond(_part(self.held, PLAN), _part(self.judged, PLAN), _part(self.held, ALL_16))

    @property
    def holds(self) -> bool:
        """Whether the outputs of the model as it is are within the limits on the pictures held out too."""
        return AS_IT_IS not in self.held or self.held[AS_IT_IS].good


def _part(worths: Mapping[str, Worth], kind: str) -> float:
    before = worths[AS_IT_IS].error
    return worths[kind].error / before if kind in worths and before > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Weighed:
    """A network and its fixed models, by what they are, and what they are judged by.

    good   whether the outputs of one are within the limits.
    spans  see ``outputs_of``.
    """

    model: Model
    fixed: Mapping[str, ModelProto]
    good: Callable[[PlanOutputs], bool]
    metric: UserMetric | None = None
    spans: Mapping[str, float] = field(default_factory=dict)


def worths_of(
    weighed: Weighed,
    judging: PicturePairs,
    held: PicturePairs | None,
    names: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Worths:
    """``names``: what the plan raises. Raises what running the models and the metric raises."""
    judged, of_float = _weigh(weighed, judging, progress)
    if held is None:
        return Worths(judged, {}, (len(judging), 0), (of_float, None), tuple(names))
    held_out, of_float_there = _weigh(weighed, held, progress)
    return Worths(judged, held_out, (len(judging), len(held)), (of_float, of_float_there), tuple(names))


def _weigh(weighed: Weighed, pairs: PicturePairs, progress: Progress) -> tuple[dict[str, Worth], float | None]:
    """On these pictures; and the user's metric of the float model."""
    model, protos = weighed.model, list(weighed.fixed.values())
    watched = watched_tensors(deployed(model))
    made = (pairs.make(index) for index in range(len(pairs)))
    pictures = each(progress, ((pair.label, pair.feed, pair.raw) for pair in made), "worth", "picture", len(pairs))
    found = outputs_of(model, protos, pictures, watched, weighed.spans)
    metrics: Sequence[float | None] = [None] * len(protos)
    of_float = None
    if weighed.metric is not None:
        (of_float, *metrics) = metrics_of(model, protos, weighed.metric, pairs)
    worths = (Worth(_error(one), weighed.good(one), metric, one) for one, metric in zip(found, metrics))
    return dict(zip(weighed.fixed, worths)), of_float


def _error(outputs: PlanOutputs) -> float:
    """The mean of the outputs' errors that are finite; infinite where none is."""
    score = Score(1, outputs.sums)
    errors = [error for name in outputs.sums if math.isfinite(error := score.error(name))]
    return math.fsum(errors) / len(errors) if errors else math.inf


def agreement(
    model: Model, fixed: ModelProto, pairs: PicturePairs, progress: Progress = SILENT, most: int = MOST_COUNTED
) -> Agreement | None:
    """Return how many answers of the fixed model agree with the float model, on at most ``most`` images.

    None if the outputs have no template. Raises what running the models raises.
    """
    names = [output.name for output in deployed(model).graph.output]
    real, graph = FloatOutputs(model, names), FixedOutputs(model, fixed, names)
    found: Agreement | None = None
    indices = evenly(pairs.indices, most)
    for index in each(progress, indices, "agreement", "image", len(indices)):
        name, feed, raw = pairs.feeds.both(index)
        one = agreement_of(graph.run(feed, raw), real.run(name, feed), None if found is None else found.template)
        if one is None:
            return None
        found = one if found is None else found + one
    return found


def metrics_of(
    model: Model, fixed: Sequence[ModelProto], metric: UserMetric, pairs: PicturePairs, progress: Progress = SILENT
) -> list[float]:
    """The mean over the pictures of the user's metric: of the float model, and of each fixed one. Raises what running
    the models and the metric raises."""
    names = [output.name for output in deployed(model).graph.output]
    real = FloatOutputs(model, names)
    graphs = [FixedOutputs(model, proto, names) for proto in fixed]
    values: list[list[float]] = [[] for _ in range(1 + len(graphs))]
    for index in each(progress, pairs.indices, "metric", "picture", len(pairs)):
        name, feed, raw = pairs.feeds.both(index)
        floats = real.run(name, feed)
        picture = Picture(raw, floats, name, pairs.feeds.truth(index))
        for side, kept in zip((floats, *(graph.run(feed, raw) for graph in graphs)), values):
            kept.append(measured(metric, names, side, picture))
    return [math.fsum(kept) / len(kept) for kept in values]
