"""Score quant plans on single pictures: what ``PlanScores`` has done by threads here or by a cluster's workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.models.model import Model
from sgsdump.quantisation.objective import Score, score
from sgsdump.quantisation.plan_trial import PlanTrial
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.value_range import Range
from sgsdump.tuning.plan_walk import Plan, PlanWalk, Prepared
from sgsdump.tuning.user_metric import UserMetric

# Of the outputs' values at most so many, evenly chosen, make up the vectors of the plan model.
MAX_VALUES = 1 << 16


@dataclass(frozen=True, eq=False)
class Picture:
    """What goes into the fixed model, and what the float model makes of it (outputs and watched tensors)."""

    raw: Mapping[str, np.ndarray]
    floats: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Question:
    """Plans to score on the picture of this index; with ``gram`` also its part of the plan model, for which the plans
    must be all-INT16 and all but one domain, among others."""

    index: int
    plans: tuple[Plan, ...]
    gram: bool = False


@dataclass(frozen=True, eq=False)
class Judged:
    """``outputs`` by plan, for a user's metric that is not known where plans are run; else empty."""

    index: int
    scores: dict[Plan, Score]
    gram: np.ndarray | None = None
    outputs: Mapping[Plan, Mapping[str, np.ndarray]] | None = None


class Judge:
    """See ``PlanScores`` for the arguments; ``keeps`` says whether outputs are handed over."""

    def __init__(
        self,
        walk: PlanWalk,
        domains: Sequence[str],
        pictures: Sequence[Picture],
        watched: Sequence[str],
        outputs: Sequence[str],
        metric: UserMetric | None = None,
        keeps: bool = False,
    ):
        self.walk = walk
        self._domains, self._pictures = list(domains), list(pictures)
        self._watched, self._outputs = list(watched), list(outputs)
        self._metric, self._keeps = metric, keeps
        self._energy = {
            n: sum(float(np.square(p.floats[n], dtype=np.float64).sum()) for p in pictures) for n in watched
        }

    def answer(self, question: Question, prepared: Sequence[Prepared]) -> Judged:
        """``prepared``: the question's plans as the walk orders them."""
        picture = self._pictures[question.index]
        scores, vectors, kept = {}, {}, {}
        for plan, outputs in self.walk.run(prepared, picture.raw):
            scores[plan] = self._score(outputs, picture)
            if question.gram and len(plan) >= len(self._domains) - 1:
                vectors[plan] = self._vector(outputs, picture)
            if self._keeps:
                kept[plan] = {name: outputs[name] for name in self._outputs}
        return Judged(question.index, scores, self._gram(vectors) if question.gram else None, kept)

    def _gram(self, vectors: Mapping[Plan, np.ndarray]) -> np.ndarray:
        every = frozenset(self._domains)
        stacked = np.stack([vectors[every], *(vectors[every - {d}] - vectors[every] for d in self._domains)])
        return stacked @ stacked.T

    def _vector(self, outputs: Mapping[str, np.ndarray], picture: Picture) -> np.ndarray:
        parts = []
        for name in self._watched:
            apart = (outputs[name].astype(np.float64) - picture.floats[name]).reshape(-1)
            step = -(-apart.size * len(self._watched) // MAX_VALUES)
            parts.append(apart[::step] * np.sqrt(step / (self._energy[name] or 1.0)))
        return np.concatenate(parts)

    def _score(self, outputs: Mapping[str, np.ndarray], picture: Picture) -> Score:
        if self._metric is None:
            return score(outputs, picture.floats)
        given, golden = ({name: side[name] for name in self._outputs} for side in (outputs, picture.floats))
        return score(outputs, picture.floats, self._metric(given, golden))


@dataclass(frozen=True, eq=False)
class Subject:
    """What a worker needs to make the walk that is searched here: the simplified model's bytes, ranges and config."""

    data: bytes
    path: Path
    ranges: Mapping[str, Range]
    config: InputConfig


def make_answer(subject: Subject, tensors: Sequence[str], *judge: Any) -> Callable[[Question], Judged]:
    """The work of a worker: ``tensors`` are the walk's outputs, ``judge`` the arguments of ``Judge`` after the walk."""
    from onnx import ModelProto

    model = Model(ModelProto.FromString(subject.data), subject.path)
    made = Judge(PlanWalk(PlanTrial(model, subject.ranges, subject.config), tensors), *judge)
    return lambda question: made.answer(question, made.walk.ordered(question.plans))
