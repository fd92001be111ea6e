"""Plans tried on all pictures: scores by plan, kept, on disk too, and never measured twice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.metric import Sums
from sgsdump.objective import Score, score, total
from sgsdump.output import replacing
from sgsdump.plan_model import PlanModel
from sgsdump.plan_walk import Plan, PlanWalk, Prepared
from sgsdump.user_metric import UserMetric

# Of the outputs' values at most so many, evenly chosen, make up the vectors of the plan model.
MAX_VALUES = 1 << 16
SAVE_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class Picture:
    """What goes into the fixed model, and what the float model makes of it (outputs and watched tensors)."""

    raw: Mapping[str, np.ndarray]
    floats: Mapping[str, np.ndarray]


@dataclass
class _Sensitivity:
    """One picture's part of the plan model."""

    gram: np.ndarray
    scores: dict[Plan, Score]


class PlanScores:
    """Scores of plans, made as they are asked for.

    domains   names, in execution order: bit i of a plan's key in the file is domain i.
    watched   tensors whose error counts; ``outputs`` the network's.
    metric    the user's function, or None.
    best      what a reader of the file may want to know at once.
    file      where everything known is kept, or None; a file of another ``fingerprint`` is not read.
    ran       called with (runs done so far) as the network is run.
    """

    def __init__(
        self,
        walk: PlanWalk,
        domains: Sequence[str],
        pictures: Sequence[Picture],
        watched: Sequence[str],
        outputs: Sequence[str],
        metric: UserMetric | None = None,
        file: Path | None = None,
        fingerprint: str = "",
        ran: Callable[[int], None] | None = None,
    ):
        self.domains, self.watched, self.outputs = list(domains), list(watched), list(outputs)
        self.pictures = list(pictures)
        self.scores: dict[Plan, Score] = {}
        self.runs = 0
        self.resumed = 0
        self.best: dict[str, Any] = {}
        self._walk, self._metric, self._ran = walk, metric, ran
        self._file, self._fingerprint, self._saved = file, fingerprint, 0.0
        self._sensitivities: dict[int, _Sensitivity] = {}
        self._energy = {
            n: sum(float(np.square(p.floats[n], dtype=np.float64).sum()) for p in pictures) for n in watched
        }
        self._pool = ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, len(self.pictures))))
        self._load()

    def error(self, plan: Plan) -> float:
        """The error of a plan whose score is known; see ``objective``."""
        return self.scores[plan].error(self.watched)

    def measure(self, plans: Iterable[Plan]) -> None:
        """Make the scores of these plans known."""
        new = [plan for plan in dict.fromkeys(plans) if plan not in self.scores]
        if not new:
            return
        prepared = self._walk.ordered(new)

        def one(picture: Picture) -> dict[Plan, Score]:
            return {plan: self._score(outputs, picture) for plan, outputs in self._walk.run(prepared, picture.raw)}

        found = [self._counted(scores) for scores in self._pool.map(one, self.pictures)]
        self.scores |= {plan: total(scores[plan] for scores in found) for plan in new}
        self.save(SAVE_SECONDS)

    def plan_model(self, left: Callable[[], float] = lambda: float("inf")) -> PlanModel:
        """Each domain alone at 8 bits among INT16, and at INT16 among 8 bits: 2 n + 2 plans, picture by picture.

        left  seconds left: with none the pictures measured so far, at least one, must do.
        """
        every = frozenset(self.domains)
        plans = [every, frozenset(), *(every - {d} for d in self.domains), *(frozenset({d}) for d in self.domains)]
        prepared = self._walk.ordered(plans)
        at_once = self._pool._max_workers
        missing = [index for index in range(len(self.pictures)) if index not in self._sensitivities]
        for start in range(0, len(missing), at_once):
            if self._sensitivities and left() <= 0:
                break
            some = missing[start : start + at_once]
            for index, found in zip(some, self._pool.map(lambda i: self._sensitivity(prepared, i), some)):
                self._counted(found.scores)
                self._sensitivities[index] = found
            self.save(SAVE_SECONDS)
        parts = list(self._sensitivities.values())
        if len(parts) == len(self.pictures):
            self.scores |= {plan: total(part.scores[plan] for part in parts) for plan in plans}
        errors = {plan: total(part.scores[plan] for part in parts).error(self.watched) for plan in plans}
        # Each picture's vectors are relative to all pictures' energy; scaled up where some are missing.
        seen = sum(part.gram[0, 0] for part in parts)
        gram = np.sum([part.gram for part in parts], axis=0) * (errors[every] / seen if seen > 0 else 1.0)
        return PlanModel(gram, np.array([errors[frozenset({d})] for d in self.domains]), errors[frozenset()])

    def save(self, seconds: float = 0.0) -> None:
        """Write what is known, unless that was done less than so many seconds ago. Raises OutputError."""
        if self._file is None or time.monotonic() - self._saved < seconds:
            return
        document = {
            "fingerprint": self._fingerprint,
            "domains": self.domains,
            "best": self.best,
            "plans": {self._key(plan): _plain(found) for plan, found in self.scores.items()},
            "sensitivities": {
                index: {
                    "gram": part.gram.tolist(),
                    "plans": {self._key(plan): _plain(found) for plan, found in part.scores.items()},
                }
                for index, part in self._sensitivities.items()
            },
        }
        with replacing(self._file) as file:
            file.write(json.dumps(document).encode())
        self._saved = time.monotonic()

    def close(self) -> None:
        """Save, and let the threads go."""
        self._pool.shutdown(cancel_futures=True)
        self.save()

    def _sensitivity(self, prepared: Sequence[Prepared], index: int) -> _Sensitivity:
        picture, scores, vectors = self.pictures[index], {}, {}
        for plan, outputs in self._walk.run(prepared, picture.raw):
            scores[plan] = self._score(outputs, picture)
            if len(plan) >= len(self.domains) - 1:
                vectors[plan] = self._vector(outputs, picture)
        every = frozenset(self.domains)
        moves = [vectors[every], *(vectors[every - {d}] - vectors[every] for d in self.domains)]
        stacked = np.stack(moves)
        return _Sensitivity(stacked @ stacked.T, scores)

    def _vector(self, outputs: Mapping[str, np.ndarray], picture: Picture) -> np.ndarray:
        parts = []
        for name in self.watched:
            apart = (outputs[name].astype(np.float64) - picture.floats[name]).reshape(-1)
            step = -(-apart.size * len(self.watched) // MAX_VALUES)
            parts.append(apart[::step] * np.sqrt(step / (self._energy[name] or 1.0)))
        return np.concatenate(parts)

    def _score(self, outputs: Mapping[str, np.ndarray], picture: Picture) -> Score:
        if self._metric is None:
            return score(outputs, picture.floats)
        given, golden = ({name: side[name] for name in self.outputs} for side in (outputs, picture.floats))
        return score(outputs, picture.floats, self._metric(given, golden))

    def _counted(self, scores: dict[Plan, Score]) -> dict[Plan, Score]:
        self.runs += len(scores)
        if self._ran:
            self._ran(self.runs)
        return scores

    def _key(self, plan: Plan) -> str:
        return "".join("1" if name in plan else "0" for name in self.domains)

    def _plan(self, key: str) -> Plan:
        return frozenset(name for name, bit in zip(self.domains, key) if bit == "1")

    def _load(self) -> None:
        document = _read(self._file) if self._file else {}
        if document.get("fingerprint") != self._fingerprint or document.get("domains") != self.domains:
            return
        self.scores = {self._plan(key): _score(found) for key, found in document["plans"].items()}
        for index, part in document["sensitivities"].items():
            scores = {self._plan(key): _score(found) for key, found in part["plans"].items()}
            self._sensitivities[int(index)] = _Sensitivity(np.array(part["gram"]), scores)
        self.resumed = len(self.scores)


def _read(file: Path) -> dict[str, Any]:
    """A progress file; {} for one that is absent or damaged, whose work is then done again."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(found: Score) -> dict[str, Any]:
    return {**asdict(found), "sums": {name: list(asdict(sums).values()) for name, sums in found.sums.items()}}


def _score(plain: Mapping[str, Any]) -> Score:
    return Score(plain["pictures"], {name: Sums(*sums) for name, sums in plain["sums"].items()}, plain["metric"])
