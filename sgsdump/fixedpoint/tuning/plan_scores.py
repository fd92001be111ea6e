"""Scores of tried plans on all images, cached in memory and in progress.json: no plan is measured twice.

progress.json holds the score of every tried plan, so that rerunning the command resumes the search. A damaged file, or
a file of another search (``fingerprint``), is ignored.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.comparison.metrics import Sums
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import read_whole
from sgsdump.fixedpoint.quantisation.objective import Score, total
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan
from sgsdump.fixedpoint.tuning.criteria import MEAN, CombinedError, Criteria, Objective, combined_error, measured
from sgsdump.fixedpoint.tuning.judge import Judge, Judged, Question, each_alone
from sgsdump.fixedpoint.tuning.proposals import Surrogate
from sgsdump.models.feeds.image_list import evenly
from sgsdump.progress import SILENT, Progress

SAVE_SECONDS = 1.0
MOST_SAVING = 0.02
# Domains times images on which each domain is measured alone (2 n + 2 plans, whose time grows like n squared): ten
# images for a network of 50 convolutions, FEWEST from 250 on.
RANKED, FEWEST = 500, 2
# Number of rival plans that are judged on all images: the best on the ranking images.
KEPT = 3
Run = Callable[[Iterable[Question]], Iterator[Judged]]


class PlanScores:
    """Scores of plans, measured on demand.

    judge        scores single images.
    objective    combines the errors of the outputs; by default their mean.
    best         summary for people who read the file.
    file         progress file, or None; ``fingerprint`` identifies the search.
    progress     counts the runs of the network until ``close``; ``expect`` sets their largest number.
    metric       the user's, or None.
    elsewhere    context, open until ``close``, that answers questions instead of local threads, with the outputs that
                 the metric needs.
    """

    def __init__(
        self,
        judge: Judge,
        objective: Objective | None = None,
        file: Path | None = None,
        fingerprint: str = "",
        progress: Progress = SILENT,
        elsewhere: AbstractContextManager[Run] | None = None,
    ):
        criteria = judge.criteria
        self.domains, self.watched, self.outputs = map(list, (criteria.domains, criteria.watched, criteria.outputs))
        self.pictures = list(criteria.pictures)
        self.scores: dict[Plan, Score] = {}
        self._errors: dict[Plan, tuple[Score, float]] = {}
        self._passed_over: set[Plan] = set()
        self.runs = 0
        self.resumed = 0
        self.best: dict[str, Any] = {}
        self.objective = objective or Objective(MEAN, tuple(self.watched))
        self._judge, self.metric = judge, criteria.metric
        self._file, self._fingerprint, self._saved, self._saving = file, fingerprint, 0.0, 0.0
        self._sensitivities: dict[int, Judged] = {}
        self._stack = ExitStack()
        self._advance = self._stack.enter_context(progress.bar("tune", "run"))
        self._elsewhere = self._stack.enter_context(elsewhere) if elsewhere is not None else None
        self._threads = max(1, min(os.cpu_count() or 1, len(self.pictures)))
        self._pool = ThreadPoolExecutor(self._threads)
        if file is not None:
            progressed = load_progress(file, fingerprint, criteria)
            self.scores, self._sensitivities = progressed.scores, progressed.sensitivities
            self.resumed = len(self.scores)

    def expect(self, runs: int) -> None:
        """Set the largest number of runs of the network for the progress bar."""
        self._advance(self.runs, runs)

    @cached_property
    def combined(self) -> CombinedError:
        """The combined error; requires the scores of all-INT8 and all-INT16."""
        return combined_error(self.objective, self.scores[frozenset()], self.scores[frozenset(self.domains)])

    def error(self, plan: Plan) -> float:
        """Return the ``combined`` error of a plan whose score is known."""
        known = self._errors.get(plan)
        score = self.scores[plan]
        if known is None or known[0] is not score:
            self._errors[plan] = known = score, self.combined.of(score)
        return known[1]

    @property
    def ranking(self) -> list[int]:
        """The evenly chosen images on which each domain is measured alone; plans are judged on all images."""
        return evenly(range(len(self.pictures)), max(FEWEST, RANKED // max(1, len(self.domains))))

    @property
    def unmeasured(self) -> int:
        """The number of ranking images that were not measured."""
        return sum(index not in self._sensitivities for index in self.ranking)

    def measure(self, plans: Iterable[Plan]) -> None:
        """Measure the scores of these plans."""
        new = [plan for plan in dict.fromkeys(plans) if plan not in self.scores]
        if not new:
            return
        by_picture = [judged.scores for judged in self._judged(range(len(self.pictures)), new)]
        self.scores |= {plan: total(scores[plan] for scores in by_picture) for plan in new}
        self.save(SAVE_SECONDS)

    def is_tried(self, plan: Plan) -> bool:
        """Return whether a plan was measured, or rejected in favour of rivals."""
        return plan in self.scores or plan in self._passed_over

    def measure_best(self, plans: Iterable[Plan]) -> None:
        """Measure like ``measure``, but only the plans that are best on the ``ranking`` images."""
        new = [plan for plan in dict.fromkeys(plans) if not self.is_tried(plan)]
        if len(self.ranking) == len(self.pictures) or len(new) <= KEPT:
            self.measure(new)
            return
        first = {judged.index: judged.scores for judged in self._judged(self.ranking, new)}
        errors = {plan: self.combined.of(total(scores[plan] for scores in first.values())) for plan in new}
        best = sorted(new, key=lambda plan: errors[plan])[:KEPT]
        others = [index for index in range(len(self.pictures)) if index not in first]
        first |= {judged.index: judged.scores for judged in self._judged(others, best)}
        self.scores |= {plan: total(first[index][plan] for index in sorted(first)) for plan in best}
        self._passed_over.update(set(new) - set(best))
        self.save(SAVE_SECONDS)

    def surrogate(self, left: Callable[[], float] = lambda: float("inf")) -> Surrogate:
        """Measure each domain alone at 8 bits and alone at INT16, 2 n + 2 plans on each image of ``ranking``.

        left  remaining seconds; without any, the images measured so far are used, at least one.
        """
        every, plans = frozenset(self.domains), each_alone(self.domains)
        missing = [index for index in self.ranking if index not in self._sensitivities]

        def timely() -> Iterator[int]:
            for count, index in enumerate(missing):
                if (count or self._sensitivities) and left() <= 0:
                    return
                yield index

        for judged in self._judged(timely(), plans, grams=True):
            self._sensitivities[judged.index] = judged
            self.save(SAVE_SECONDS)
        parts = list(self._sensitivities.values())
        if len(parts) == len(self.pictures):
            self.scores |= {plan: total(part.scores[plan] for part in parts) for plan in plans}
        self.measure([frozenset(), every])
        combined = self.combined
        errors = {plan: combined.errors(total(part.scores[plan] for part in parts)) for plan in plans}
        # Vectors of an image are relative to the energy of all images, so they are scaled up if images are missing.
        counted = [self.watched.index(name) for name in combined.names]
        grams = np.sum([np.asarray(part.grams)[counted] for part in parts], axis=0)
        alone = grams[:, 0, 0]
        grams *= np.divide(errors[every], alone, out=np.ones_like(alone), where=alone > 0)[:, None, None]
        added = combined.weights.sum(axis=0)
        raised = np.array([added @ errors[frozenset({d})] for d in self.domains])
        return Surrogate(
            np.tensordot(combined.weights, grams, 1), combined.base, raised, float(added @ errors[frozenset()])
        )

    def save(self, seconds: float = 0.0) -> None:
        """Write the progress file, at most once in ``seconds``. Raises OutputError.

        The whole file is written each time, so a large file is written less often.
        """
        begun = time.monotonic()
        if self._file is None or (seconds and begun - self._saved < max(seconds, self._saving / MOST_SAVING)):
            return
        progressed = SavedScores(self.scores, self._sensitivities)
        save_progress(self._file, self._fingerprint, self.domains, self.best, progressed)
        self._saved = time.monotonic()
        self._saving = self._saved - begun

    def close(self) -> None:
        """Save, and release the threads or workers."""
        self._stack.close()
        self._pool.shutdown(cancel_futures=True)
        self.save()

    def _judged(self, pictures: Iterable[int], plans: Iterable[Plan], grams: bool = False) -> Iterator[Judged]:
        """Yield one result per image, lazily."""
        asked = tuple(dict.fromkeys(plans))
        questions = (Question(index, asked, grams) for index in pictures)
        if self._elsewhere is not None:
            answers: Iterator[Judged] = map(self._with_metric, self._elsewhere(questions))
        else:
            prepared = self._judge.walk.ordered(asked)
            answers = self._threaded(lambda question: self._judge.answer(question, prepared), questions)
        for judged in answers:
            self.runs += len(judged.scores)
            self._advance(self.runs)
            yield judged

    def _threaded(self, answer: Callable[[Question], Judged], questions: Iterator[Question]) -> Iterator[Judged]:
        waiting: deque[Future[Judged]] = deque()
        while True:
            some = islice(questions, self._threads - len(waiting))
            waiting.extend(self._pool.submit(answer, question) for question in some)
            if not waiting:
                return
            yield waiting.popleft().result()

    def _with_metric(self, judged: Judged) -> Judged:
        if self.metric is None:
            return judged
        picture, kept, metric = self.pictures[judged.index], judged.outputs or {}, self.metric
        scores = {
            plan: replace(s, metric=measured(metric, self.outputs, kept[plan], picture))
            for plan, s in judged.scores.items()
        }
        return replace(judged, scores=scores, outputs=None)


@dataclass(frozen=True, eq=False)
class SavedScores:
    """``scores`` on all images; ``sensitivities``: of every domain alone, by index of the image."""

    scores: dict[Plan, Score] = field(default_factory=dict)
    sensitivities: dict[int, Judged] = field(default_factory=dict)


def load_progress(file: Path, fingerprint: str, criteria: Criteria) -> SavedScores:
    """Return the scores in the file, empty for an unusable file; bit i of a plan's key is domain i of the criteria."""
    try:
        document = json.loads(read_whole(file))
        if document["fingerprint"] != fingerprint or document["domains"] != list(criteria.domains):
            return SavedScores()
        sensitivities = {int(i): _judged(int(i), part, criteria) for i, part in document["sensitivities"].items()}
        return SavedScores(_scores(document["plans"], criteria), sensitivities)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return SavedScores()


def save_progress(
    file: Path, fingerprint: str, domains: Sequence[str], best: Mapping[str, Any], progressed: SavedScores
) -> None:
    """Write the progress file; ``best``: summary for people who read it. Raises OutputError."""

    def plain(scores: Mapping[Plan, Score]) -> dict[str, Any]:
        return {"".join("01"[name in plan] for name in domains): _plain(score) for plan, score in scores.items()}

    document = {
        "fingerprint": fingerprint,
        "domains": list(domains),
        "best": best,
        "plans": plain(progressed.scores),
        "sensitivities": {
            index: {"grams": np.asarray(part.grams).tolist(), "plans": plain(part.scores)}
            for index, part in progressed.sensitivities.items()
        },
    }
    with replacing(file) as target:
        target.write(json.dumps(document).encode())


def _judged(index: int, plain: Mapping[str, Any], criteria: Criteria) -> Judged:
    """Return the answer read from the file. Raises ValueError, among others, if it cannot belong to this search."""
    grams, size = np.array(plain["grams"], float), len(criteria.domains) + 1
    scores = _scores(plain["plans"], criteria)
    whole = grams.shape == (len(criteria.watched), size, size) and scores.keys() >= set(each_alone(criteria.domains))
    if not whole or index not in range(len(criteria.pictures)):
        raise ValueError("damaged")
    return Judged(index, scores, grams)


def _scores(plain: Mapping[str, Any], criteria: Criteria) -> dict[Plan, Score]:
    scores = {
        frozenset(name for name, bit in zip(criteria.domains, key) if bit == "1"): Score(
            score["pictures"], {name: Sums.of_numbers(sums) for name, sums in score["sums"].items()}, score["metric"]
        )
        for key, score in plain.items()
    }
    if any(score.sums.keys() != {*criteria.watched, *criteria.outputs} for score in scores.values()):
        raise ValueError("damaged")
    return scores


def _plain(score: Score) -> dict[str, Any]:
    sums = {name: list(each.numbers) for name, each in score.sums.items()}
    return {"pictures": score.pictures, "sums": sums, "metric": score.metric}
