"""progress.json: every plan tried so far and its score, so that the same command goes on where it was stopped.

A file of another search (``fingerprint``), and one that is damaged, is as good as none: the work is done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.comparison.metrics import Sums
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import read_whole
from sgsdump.quantisation.objective import Score
from sgsdump.quantisation.trials.plan_walk import Plan
from sgsdump.tuning.scoring.judge import Criteria, Judged, each_alone


@dataclass(frozen=True, eq=False)
class Known:
    """``scores`` on all pictures; ``sensitivities``: of each picture, by index, every domain alone."""

    scores: dict[Plan, Score] = field(default_factory=dict)
    sensitivities: dict[int, Judged] = field(default_factory=dict)


def load(file: Path, fingerprint: str, criteria: Criteria) -> Known:
    """What the file knows; bit i of a plan's key is domain i of the criteria. Raises nothing."""
    try:
        document = json.loads(read_whole(file))
        if document["fingerprint"] != fingerprint or document["domains"] != list(criteria.domains):
            return Known()
        sensitivities = {int(i): _judged(int(i), part, criteria) for i, part in document["sensitivities"].items()}
        return Known(_scores(document["plans"], criteria), sensitivities)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Known()


def save(file: Path, fingerprint: str, domains: Sequence[str], best: Mapping[str, Any], known: Known) -> None:
    """``best`` is a summary for people who read the file. Raises OutputError."""

    def plain(scores: Mapping[Plan, Score]) -> dict[str, Any]:
        return {"".join("01"[name in plan] for name in domains): _plain(score) for plan, score in scores.items()}

    document = {
        "fingerprint": fingerprint,
        "domains": list(domains),
        "best": best,
        "plans": plain(known.scores),
        "sensitivities": {
            index: {"grams": np.asarray(part.grams).tolist(), "plans": plain(part.scores)}
            for index, part in known.sensitivities.items()
        },
    }
    with replacing(file) as target:
        target.write(json.dumps(document).encode())


def _judged(index: int, plain: Mapping[str, Any], criteria: Criteria) -> Judged:
    """Raises ValueError and others for what cannot be of this search."""
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
    return {**asdict(score), "sums": {name: list(sums.numbers) for name, sums in score.sums.items()}}
