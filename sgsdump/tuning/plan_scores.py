"""Scores of the plans tried on all pictures, cached in memory and on disk: no plan is measured twice."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.comparison.metrics.base import Sums
from sgsdump.files.atomic_write import replacing
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.objective import Score, total
from sgsdump.quantisation.trials.plan_walk import Plan
from sgsdump.tuning.plan_judge import Judge, Judged, Question
from sgsdump.tuning.surrogate import Surrogate

SAVE_SECONDS = 1.0


Run = Callable[[Iterable[Question]], Iterator[Judged]]


class PlanScores:
    """Scores of plans, measured on demand.

    judge     scores single pictures; bit i of a plan's key in the file is domain i of its criteria.
    best      a summary for people who read the file.
    file      where everything known is kept, or None; a file of another ``fingerprint`` is not read.
    progress  counts the runs of the network until ``close``; ``expect`` says how many there may be.
    elsewhere  a context open until ``close`` that answers the questions instead of threads here, with the outputs a
               metric needs.
    """

    def __init__(
        self,
        judge: Judge,
        file: Path | None = None,
        fingerprint: str = "",
        progress: Progress = SILENT,
        elsewhere: AbstractContextManager[Run] | None = None,
    ):
        criteria = judge.criteria
        self.domains, self.watched, self.outputs = map(list, (criteria.domains, criteria.watched, criteria.outputs))
        self.pictures = list(criteria.pictures)
        self.scores: dict[Plan, Score] = {}
        self.runs = 0
        self.resumed = 0
        self.best: dict[str, Any] = {}
        self._judge, self._metric = judge, criteria.metric
        self._file, self._fingerprint, self._saved = file, fingerprint, 0.0
        self._sensitivities: dict[int, Judged] = {}
        self._stack = ExitStack()
        self._advance = self._stack.enter_context(progress.bar("tune", "run"))
        self._elsewhere = self._stack.enter_context(elsewhere) if elsewhere is not None else None
        self._threads = max(1, min(os.cpu_count() or 1, len(self.pictures)))
        self._pool = ThreadPoolExecutor(self._threads)
        self._load()

    def expect(self, runs: int) -> None:
        """At most so many runs of the network will be asked for, in all."""
        self._advance(self.runs, runs)

    def error(self, plan: Plan) -> float:
        """The error of a plan whose score is known; see ``objective``."""
        return self.scores[plan].error(self.watched)

    def measure(self, plans: Iterable[Plan]) -> None:
        """Make the scores of these plans known."""
        new = [plan for plan in dict.fromkeys(plans) if plan not in self.scores]
        if not new:
            return
        by_picture = [judged.scores for judged in self._judged(range(len(self.pictures)), new)]
        self.scores |= {plan: total(scores[plan] for scores in by_picture) for plan in new}
        self.save(SAVE_SECONDS)

    def surrogate(self, left: Callable[[], float] = lambda: float("inf")) -> Surrogate:
        """Each domain alone at 8 bits among INT16, and at INT16 among 8 bits: 2 n + 2 plans, picture by picture.

        left  seconds left: with none the pictures measured so far, at least one, must do.
        """
        every = frozenset(self.domains)
        plans = [every, frozenset(), *(every - {d} for d in self.domains), *(frozenset({d}) for d in self.domains)]
        missing = [index for index in range(len(self.pictures)) if index not in self._sensitivities]

        def timely() -> Iterator[int]:
            for count, index in enumerate(missing):
                if (count or self._sensitivities) and left() <= 0:
                    return
                yield index

        for judged in self._judged(timely(), plans, gram=True):
            self._sensitivities[judged.index] = judged
            self.save(SAVE_SECONDS)
        parts = list(self._sensitivities.values())
        if len(parts) == len(self.pictures):
            self.scores |= {plan: total(part.scores[plan] for part in parts) for plan in plans}
        errors = {plan: total(part.scores[plan] for part in parts).error(self.watched) for plan in plans}
        # Each picture's vectors are relative to all pictures' energy; scaled up where some are missing.
        grams = [np.asarray(part.gram) for part in parts]
        seen = sum(gram[0, 0] for gram in grams)
        gram = np.sum(grams, axis=0) * (errors[every] / seen if seen > 0 else 1.0)
        return Surrogate(gram, np.array([errors[frozenset({d})] for d in self.domains]), errors[frozenset()])

    def save(self, seconds: float = 0.0) -> None:
        """Write the progress file, at most once in ``seconds``. Raises OutputError."""
        if self._file is None or time.monotonic() - self._saved < seconds:
            return
        document = {
            "fingerprint": self._fingerprint,
            "domains": self.domains,
            "best": self.best,
            "plans": {self._key(plan): _plain(score) for plan, score in self.scores.items()},
            "sensitivities": {
                index: {
                    "gram": np.asarray(part.gram).tolist(),
                    "plans": {self._key(plan): _plain(score) for plan, score in part.scores.items()},
                }
                for index, part in self._sensitivities.items()
            },
        }
        with replacing(self._file) as file:
            file.write(json.dumps(document).encode())
        self._saved = time.monotonic()

    def close(self) -> None:
        """Save, and let the threads or workers go."""
        self._stack.close()
        self._pool.shutdown(cancel_futures=True)
        self.save()

    def _judged(self, pictures: Iterable[int], plans: Iterable[Plan], gram: bool = False) -> Iterator[Judged]:
        """One result for each picture, lazily."""
        asked = tuple(dict.fromkeys(plans))
        questions = (Question(index, asked, gram) for index in pictures)
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
        if self._metric is None:
            return judged
        floats = self.pictures[judged.index].floats
        golden = {name: floats[name] for name in self.outputs}
        kept = judged.outputs or {}
        scores = {plan: replace(s, metric=self._metric(kept[plan], golden)) for plan, s in judged.scores.items()}
        return replace(judged, scores=scores, outputs=None)

    def _key(self, plan: Plan) -> str:
        return "".join("1" if name in plan else "0" for name in self.domains)

    def _plan(self, key: str) -> Plan:
        return frozenset(name for name, bit in zip(self.domains, key) if bit == "1")

    def _load(self) -> None:
        document = _read(self._file) if self._file else {}
        if document.get("fingerprint") != self._fingerprint or document.get("domains") != self.domains:
            return
        self.scores = {self._plan(key): _score(score) for key, score in document["plans"].items()}
        for index, part in document["sensitivities"].items():
            scores = {self._plan(key): _score(score) for key, score in part["plans"].items()}
            self._sensitivities[int(index)] = Judged(int(index), scores, np.array(part["gram"]))
        self.resumed = len(self.scores)


def _read(file: Path) -> dict[str, Any]:
    """A progress file; {} for one that is absent or damaged, whose work is then done again."""
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _plain(score: Score) -> dict[str, Any]:
    return {**asdict(score), "sums": {name: list(asdict(sums).values()) for name, sums in score.sums.items()}}


def _score(plain: Mapping[str, Any]) -> Score:
    return Score(plain["pictures"], {name: Sums(*sums) for name, sums in plain["sums"].items()}, plain["metric"])
