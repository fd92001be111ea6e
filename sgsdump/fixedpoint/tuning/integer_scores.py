"""Scores of plans with the chip's integer arithmetic, on images of a search, on all images, or on held-out images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from onnx import ModelProto

from sgsdump.comparison.metrics import mse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import InputError
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.fixedpoint.quantisation.objective import Score, watched_tensors
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import (
    ByPicture,
    FloatOutputs,
    OutputFigures,
    PlanOutputs,
    outputs_of,
)
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan, PlanTrial, words_of
from sgsdump.fixedpoint.tuning.criteria import (
    CombinedError,
    Picture,
    combined_error,
    measured,
)
from sgsdump.fixedpoint.tuning.measured_advice import labelled
from sgsdump.fixedpoint.tuning.plan_scores import PlanScores
from sgsdump.fixedpoint.tuning.unseen import Expected, Folds, Run
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.progress import SILENT, Progress, each


def fixed_of(trial: PlanTrial, tensors: tuple[str, ...]) -> FixedModel:
    """Return the fixed model with these words in ``tensor_arrays``, with the chip's integer arithmetic."""
    config = replace(trial.config, tensor_arrays=tensors)
    return make_fixed(trial.model, trial.ranges, config, side=trial.side)


class _Ran:
    """Plans that are run in integers on demand; ``ran``: their outputs."""

    ran: dict[Plan, PlanOutputs]

    def run(self, plan: Plan) -> PlanOutputs:
        """Return the outputs of a plan."""
        raise NotImplementedError

    def past(self, plan: Plan, limits: Thresholds) -> list[str]:
        """Return the watched tensors beyond the limits."""
        return past_limits(self.run(plan).outputs, limits)

    def worse(self, plan: Plan) -> bool:
        """Return whether a plan makes an output worse than INT8 does (``PlanOutputs.worse_than``)."""
        return bool(plan) and bool(self.run(plan).worse_than(self.run(frozenset())))


class IntegerScores(_Ran):
    """Scores of plans in integers, measured on demand on the images of ``pool`` or on ``pictures``.

    spans  the width of each tensor's range over all calibration images.
    """

    def __init__(
        self,
        pool: PlanScores,
        trial: PlanTrial,
        progress: Progress = SILENT,
        pictures: Sequence[Picture] | None = None,
        spans: Mapping[str, float] = {},
    ):
        self.scores: dict[Plan, Score] = {}
        self.ran: dict[Plan, PlanOutputs] = {}
        self._more: dict[Plan, list[PlanOutputs]] = {}
        self._pool, self._trial, self._progress = pool, trial, progress
        self._pictures = pool.pictures if pictures is None else pictures
        self._spans = spans

    @property
    def outputs(self) -> list[str]:
        return self._pool.outputs

    @property
    def domains(self) -> list[str]:
        return self._pool.domains

    @property
    def pictures(self) -> int:
        """The number of images that a plan is run on."""
        return len(self._pictures)

    @property
    def folds(self) -> int:
        """The number of folds that hold the images out; 0 for images of their own."""
        return 0

    def score(self, plan: Plan) -> Score:
        """Return the sums over all images of every tensor in ``Picture.floats``, and the user's metric."""
        if plan not in self.scores:
            self.scores[plan] = self._run(plan)
        return self.scores[plan]

    def run(self, plan: Plan) -> PlanOutputs:
        self.score(plan)
        found, watched = self.ran[plan], self._pool.watched
        return replace(found, outputs={name: found.outputs[name] for name in watched})

    def expected(self, plan: Plan) -> Expected:
        """Return the expected ``combined`` error of a plan on new images."""
        return self._held(self.run(plan), plan).expected(lambda sums: self.combined.of(Score(self.pictures, sums)))

    @cached_property
    def combined(self) -> CombinedError:
        """The combined error, scaled by the scores of all-INT8 and all-INT16 in integers."""
        ends = (frozenset[str](), frozenset(self._pool.domains))
        return combined_error(self._pool.objective, *(self.score(plan) for plan in ends))

    def error(self, plan: Plan) -> float:
        """Return the ``combined`` error of a plan."""
        return self.combined.of(self.score(plan))

    def part(self, plan: Plan) -> float:
        """Return the error of a plan as a share of the error of all-INT8."""
        low = self.error(frozenset())
        return self.error(plan) / low if low > 0 else 0.0

    def off(self) -> dict[Plan, float]:
        """Return, for each plan that was run, its error in integers / its error in the search - 1."""
        pool = self._pool
        pairs = {p: (pool.combined.of(s), pool.error(p)) for p, s in self.scores.items() if p in pool.scores}
        return {plan: exact / searched - 1 for plan, (exact, searched) in pairs.items() if searched > 0}

    def _run(self, plan: Plan) -> Score:
        pool, pictures, model = self._pool, self._pictures, self._trial.model
        fixed = self._fixed(words_of(self._trial, plan))
        names = list(pictures[0].floats)
        floats = _KnownFloats(pictures, pool)
        fed = each(self._progress, floats.fed(), "verify", "image", len(pictures))
        found, *more = outputs_of(model, [fixed, *self._beside(plan)], fed, names, self._spans, floats)
        if odd := [name for name in names if name not in found.outputs]:
            raise InputError(
                f"output {odd[0]!r} has different shapes in float and in fixed point, because its "
                "size depends on the computed values. Tune the model without post-processing"
            )
        self.ran[plan] = found
        self._more[plan] = more
        return Score(len(pictures), found.sums, floats.metric)

    def _fixed(self, words: tuple[str, ...]) -> ModelProto | ByPicture:
        return fixed_of(self._trial, words).proto

    def _beside(self, plan: Plan) -> list[ModelProto]:
        """Return further fixed models to run for a plan."""
        return []

    def _held(self, outputs: PlanOutputs, plan: Plan) -> Run:
        return Run(outputs)


class FoldScores(IntegerScores):
    """Scores on held-out images, each run by a model calibrated without it. ``pictures``: those of ``folds``."""

    def __init__(
        self,
        folds: Folds,
        pool: PlanScores,
        trial: PlanTrial,
        progress: Progress,
        pictures: Sequence[Picture],
        spans: Mapping[str, float],
    ):
        super().__init__(pool, trial, progress, pictures, spans)
        self._folds = folds

    @property
    def folds(self) -> int:
        return len(self._folds.folds)

    def _fixed(self, words: tuple[str, ...]) -> ModelProto | ByPicture:
        fixed = self._folds.fixed(replace(self._trial.config, tensor_arrays=words), room=True)
        return lambda label: fixed(int(label))

    def _beside(self, plan: Plan) -> list[ModelProto]:
        return [fixed_of(self._trial, words_of(self._trial, plan)).proto]

    def _held(self, outputs: PlanOutputs, plan: Plan) -> Run:
        (seen,) = self._more[plan]
        return Run(outputs, seen, self._folds.shares)


class EveryPicture(_Ran):
    """Plans in integers on all images of ``pairs``; ``IntegerScores`` has some of these images."""

    def __init__(self, trial: PlanTrial, pairs: PicturePairs, spans: Mapping[str, float], progress: Progress = SILENT):
        self.ran: dict[Plan, PlanOutputs] = {}
        self._trial, self._pairs, self._spans, self._progress = trial, pairs, spans, progress
        self._watched = watched_tensors(trial.proto)
        self._floats = FloatOutputs(trial.model, self._watched)

    @property
    def pictures(self) -> int:
        return len(self._pairs)

    def run(self, plan: Plan) -> PlanOutputs:
        if plan not in self.ran:
            proto = fixed_of(self._trial, words_of(self._trial, plan)).proto
            fed = each(self._progress, labelled(self._pairs), "verify", "image", len(self._pairs))
            (found,) = outputs_of(self._trial.model, [proto], fed, self._watched, self._spans, self._floats)
            self.ran[plan] = found
        return self.ran[plan]


def past_limits(figures: Mapping[str, OutputFigures], limits: Thresholds) -> list[str]:
    """Return the tensors beyond the limits, as ``diagnose`` judges them.

    The documented limits always accept an error of one 8-bit step. Limits of the user do not, because INT16 can remove
    such an error.
    """
    return [
        name
        for name, each in figures.items()
        if not each.good(limits) or (limits != DOCUMENTED and not limits.hold(each.cos, each.rmse, mse(each.sums)))
    ]


class _KnownFloats:
    """Known tensors of the float model on images, labelled by index; ``metric``: the user's, summed over the images."""

    def __init__(self, pictures: Sequence[Picture], pool: PlanScores):
        self._pictures, self._pool, self.metric = pictures, pool, 0.0

    def fed(self) -> Iterator[tuple[str, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
        for index, picture in enumerate(self._pictures):
            yield str(index), picture.raw, picture.raw

    def run(self, label: str, _: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return self._pictures[int(label)].floats

    def compare(self, label: str, values: Sequence[Mapping[str, np.ndarray]]) -> None:
        if self._pool.metric is not None:
            self.metric += measured(self._pool.metric, self._pool.outputs, values[0], self._pictures[int(label)])
