"""Results of fixed models: output error and the user's metric, on judging images and on held-out images.

The error is that of ``objective``, Σ(fixed - float)² / Σ float², with the chip's integer arithmetic; its mean over the
outputs. A plan is chosen on the judging images. It is not recommended if its remaining share of error on held-out
images is BEYOND times its share on the judging images, and BEYOND times the share that INT16 leaves there. Nor is it
recommended if it is within the limits on the judging images, but not on held-out images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto

from sgsdump.comparison.agreement import Agreement, agreement_of
from sgsdump.executors.onnx_runtime.session import release_unused
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
    """The results of a fixed model on some images.

    error    mean error of the outputs.
    good     whether the outputs are within the limits.
    metric   the user's metric; None without one.
    outputs  the outputs themselves.
    """

    error: float
    good: bool
    metric: float | None = None
    outputs: PlanOutputs | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Worths:
    """The results of fixed models, by their kind (AS_IT_IS, PLAN, ALL_16).

    judged        on judging images; ``held``: on held-out images.
    pictures      numbers of judging and of held-out images.
    float_metric  the user's metric of the float model on both; None if not measured.
    names         inputs that the plan raises.
    """

    judged: Mapping[str, Worth]
    held: Mapping[str, Worth]
    pictures: tuple[int, int]
    float_metric: tuple[float | None, float | None] = (None, None)
    names: tuple[str, ...] = ()

    @property
    def beyond(self) -> bool:
        """Whether the plan is much worse on held-out images than on judging images."""
        if PLAN not in self.held:
            return False
        judged, held = self.judged[PLAN], self.held[PLAN]
        if judged.good and not held.good:
            return True
        return lies_beyond(_part(self.held, PLAN), _part(self.judged, PLAN), _part(self.held, ALL_16))

    @property
    def holds(self) -> bool:
        """Whether the outputs of the unchanged model are within the limits on held-out images too."""
        return AS_IT_IS not in self.held or self.held[AS_IT_IS].good


def _part(worths: Mapping[str, Worth], kind: str) -> float:
    before = worths[AS_IT_IS].error
    return worths[kind].error / before if kind in worths and before > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Weighed:
    """A network, its fixed models by kind, and the criteria that judge them.

    good   returns whether outputs are within the limits.
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
    """Return the results of all fixed models; ``names``: inputs that the plan raises.

    Raises what running the models and the metric raises.
    """
    judged, of_float = _weigh(weighed, judging, progress)
    if held is None:
        return Worths(judged, {}, (len(judging), 0), (of_float, None), tuple(names))
    held_out, of_float_there = _weigh(weighed, held, progress)
    return Worths(judged, held_out, (len(judging), len(held)), (of_float, of_float_there), tuple(names))


def _weigh(weighed: Weighed, pairs: PicturePairs, progress: Progress) -> tuple[dict[str, Worth], float | None]:
    """Return the results on these images, and the user's metric of the float model."""
    model, protos = weighed.model, list(weighed.fixed.values())
    watched = watched_tensors(deployed(model))
    made = (pairs.make(index) for index in range(len(pairs)))
    pictures = each(progress, ((pair.label, pair.feed, pair.raw) for pair in made), "worth", "image", len(pairs))
    found = outputs_of(model, protos, pictures, watched, weighed.spans)
    metrics: Sequence[float | None] = [None] * len(protos)
    of_float = None
    if weighed.metric is not None:
        (of_float, *metrics) = metrics_of(model, protos, weighed.metric, pairs)
    worths = (Worth(_error(one), weighed.good(one), metric, one) for one, metric in zip(found, metrics))
    return dict(zip(weighed.fixed, worths)), of_float


def _error(outputs: PlanOutputs) -> float:
    """Return the mean of the finite errors of the outputs; infinite if none is finite."""
    score = Score(1, outputs.sums)
    errors = [error for name in outputs.sums if math.isfinite(error := score.error(name))]
    return math.fsum(errors) / len(errors) if errors else math.inf


def agreement(
    model: Model, fixed: ModelProto, pairs: PicturePairs, progress: Progress = SILENT, most: int = MOST_COUNTED
) -> Agreement | None:
    """Return how many answers of the fixed model agree with the float model, on at most ``most`` images.

    Outputs that are no tensors, such as sequences, do not count. None if the others have no template. Raises what
    running the models raises.
    """
    outputs = deployed(model).graph.output
    names = [output.name for output in outputs if output.type.WhichOneof("value") in ("tensor_type", None)]
    if not names:
        return None
    real, graph = FloatOutputs(model, names), FixedOutputs(model, fixed, names)
    found: Agreement | None = None
    indices = evenly(pairs.indices, most)
    for index in each(progress, indices, "agreement", "image", len(indices)):
        name, feed, raw = pairs.feeds.both(index)
        one = agreement_of(graph.run(feed, raw), real.run(name, feed), None if found is None else found.template)
        if one is None:
            return None
        found = one if found is None else found + one
    release_unused()
    return found


def metrics_of(
    model: Model, fixed: Sequence[ModelProto], metric: UserMetric, pairs: PicturePairs, progress: Progress = SILENT
) -> list[float]:
    """Return the mean of the user's metric over the images, of the float model and of each fixed model.

    Raises what running the models and the metric raises.
    """
    names = [output.name for output in deployed(model).graph.output]
    real = FloatOutputs(model, names)
    graphs = [FixedOutputs(model, proto, names) for proto in fixed]
    values: list[list[float]] = [[] for _ in range(1 + len(graphs))]
    for index in each(progress, pairs.indices, "metric", "image", len(pairs)):
        name, feed, raw = pairs.feeds.both(index)
        floats = real.run(name, feed)
        picture = Picture(raw, floats, name, pairs.feeds.truth(index))
        for side, kept in zip((floats, *(graph.run(feed, raw) for graph in graphs)), values):
            kept.append(measured(metric, names, side, picture))
    release_unused()
    return [math.fsum(kept) / len(kept) for kept in values]
