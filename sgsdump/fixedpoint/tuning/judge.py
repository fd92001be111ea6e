"""Scores of plans on single images, for ``PlanScores``; computed in local threads or by workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgsdump.fixedpoint.quantisation.objective import Score, by_probability, score
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import OnHardware
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan, PlanTrial
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk, Prepared, Visit
from sgsdump.fixedpoint.tuning.criteria import Criteria, Picture
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# The surrogate's vectors hold at most this many values of the outputs, evenly chosen.
MAX_VALUES = 1 << 16
# Most bytes of intermediate tensors that all images together keep for the next plans.
KEPT_BYTES = 256 << 20


def each_alone(domains: Sequence[str]) -> list[Plan]:
    """Return the plans that the surrogate needs: all at INT16, none, all but one, and one."""
    every = frozenset(domains)
    return list(
        dict.fromkeys([every, frozenset(), *(every - {d} for d in domains), *(frozenset({d}) for d in domains)])
    )


@dataclass(frozen=True)
class Question:
    """Plans to score on the image of this index.

    ``grams`` also asks for the image's part of the surrogate; ``plans`` must then contain those of ``each_alone``.
    """

    index: int
    plans: tuple[Plan, ...]
    grams: bool = False


@dataclass(frozen=True, eq=False)
class Judged:
    """The answer to a ``Question``.

    grams    of each watched tensor, if requested.
    outputs  by plan, for a user's metric that is unknown to the worker; else empty.
    """

    index: int
    scores: dict[Plan, Score]
    grams: np.ndarray | None = None
    outputs: Mapping[Plan, Mapping[str, np.ndarray]] | None = None


class Judge:
    """Scores plans on images; ``keep_outputs``: return the outputs too, because the metric is unknown here."""

    def __init__(self, walk: PlanWalk, criteria: Criteria, keep_outputs: bool = False):
        self.walk, self.criteria = walk, criteria
        self._keep_outputs = keep_outputs
        self._visits: dict[int, Visit] = {}
        self._energy = {
            name: sum(float(np.square(self._pair(name, p.floats, p)[1]).sum()) for p in criteria.pictures)
            for name in criteria.watched
        }

    def answer(self, question: Question, prepared: Sequence[Prepared]) -> Judged:
        """Return the scores; ``prepared``: the plans of the question in the order of the walk."""
        picture = self.criteria.pictures[question.index]
        scores, vectors, kept = {}, {}, {}
        visit = self._visits.pop(question.index, None) or self.walk.visit(picture.raw)
        for plan, outputs in visit.run(prepared):
            scores[plan] = self._score(outputs, picture)
            if question.grams and len(plan) >= len(self.criteria.domains) - 1:
                vectors[plan] = self._vectors(outputs, picture)
            if self._keep_outputs:
                kept[plan] = {name: outputs[name] for name in self.criteria.outputs}
        if visit.held_bytes + sum(other.held_bytes for other in list(self._visits.values())) <= KEPT_BYTES:
            self._visits[question.index] = visit
        return Judged(question.index, scores, self._grams(vectors) if question.grams else None, kept)

    def _grams(self, vectors: Mapping[Plan, Sequence[np.ndarray]]) -> np.ndarray:
        """Return the Gram matrices, [watched tensors, n + 1, n + 1]; see ``Surrogate``."""
        every, domains = frozenset(self.criteria.domains), self.criteria.domains
        grams = []
        for index, widest in enumerate(vectors[every]):
            stacked = np.stack([widest, *(vectors[every - {d}][index] - widest for d in domains)])
            grams.append(stacked @ stacked.T)
        return np.stack(grams)

    def _vectors(self, outputs: Mapping[str, np.ndarray], picture: Picture) -> list[np.ndarray]:
        """Return the deviation of each watched tensor from float; its squares add up to the error over all images."""
        vectors = []
        for name in self.criteria.watched:
            ours, real = self._pair(name, outputs, picture)
            apart = (ours - real).reshape(-1)
            step = -(-apart.size * len(self.criteria.watched) // MAX_VALUES)
            vectors.append(apart[::step] * np.sqrt(step / (self._energy[name] or 1.0)))
        return vectors

    def _pair(self, name: str, outputs: Mapping[str, np.ndarray], picture: Picture) -> tuple[np.ndarray, np.ndarray]:
        """Return both sides of a watched tensor as they count, in float64."""
        values, real = outputs[name], picture.floats[name]
        if name in self.criteria.axes and real.size:
            return by_probability(values, real, self.criteria.axes[name])
        return values.astype(np.float64), real.astype(np.float64)

    def _score(self, outputs: Mapping[str, np.ndarray], picture: Picture) -> Score:
        measured = self.criteria.measured(outputs, picture)
        return score(outputs, picture.floats, measured, self.criteria.axes)


@dataclass(frozen=True, eq=False)
class Subject:
    """The data from which a worker makes the walk: bytes of the simplified model, ranges and config.

    ``side``: see ``Judging``.
    """

    data: bytes
    path: Path
    ranges: Mapping[str, Range]
    config: InputConfig
    side: SideRanges = NOTHING_BESIDE


def make_answer(
    subject: Subject, tensors: Sequence[str], criteria: Criteria, keep_outputs: bool
) -> Callable[[Question], Judged]:
    """Return the function that a worker runs; ``tensors``: outputs of the walk; see ``Judge``."""
    from onnx import ModelProto

    model = Model(ModelProto.FromString(subject.data), subject.path)
    trial = PlanTrial(model, subject.ranges, subject.config, hardware=OnHardware(subject.side))
    judge = Judge(PlanWalk(trial, tensors), criteria, keep_outputs)
    return lambda question: judge.answer(question, judge.walk.ordered(question.plans))
