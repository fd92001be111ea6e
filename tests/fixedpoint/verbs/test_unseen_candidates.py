"""A candidate is run on held-out images as its files have it: its plan, its room, its scales."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump.executors.workers.task_pool import ALONE
from sgsdump.fixedpoint.verbs import diagnose_unseen
from sgsdump.fixedpoint.verbs.diagnose_unseen import Candidate, _run, as_it_is
from sgsdump.fixedpoint.verbs.judges import JudgingFeeds
from sgsdump.progress import SILENT


@pytest.mark.parametrize(("room", "per_channel"), [(False, False), (True, False), (False, True)])
def test_the_model_of_a_fold_has_what_the_candidate_has(monkeypatch, room: bool, per_channel: bool) -> None:
    class Images(list):
        labels = ("first", "second")

    asked = []
    fixed = lambda *how: asked.append(how) or (lambda place: f"of image {place}")  # noqa: E731
    folds = SimpleNamespace(feeds=Images("ab"), fixed=fixed, shares=(0.5, 0.25))
    monkeypatch.setattr(diagnose_unseen, "_outputs", lambda candidate, models, *_: [models[0]("second"), models[1]])
    candidate = Candidate(None, "of all", None, "plan", room, per_channel)  # type: ignore[arg-type]
    found = _run(candidate, folds, SILENT)  # type: ignore[arg-type]
    assert asked == [("plan", room, per_channel)]
    assert (found.outputs, found.seen, found.shares) == ("of image 1", "of all", (0.5, 0.25))


@pytest.mark.parametrize(("level", "without"), [("L1", "L1"), ("L3", "L3"), ("L4", "L2"), ("L5", "L3")])
def test_a_fold_proposes_no_bits(monkeypatch, level: str, without: str) -> None:
    """Those of the level stand in the configuration of the candidate; trials for others take minutes."""
    asked = []
    monkeypatch.setattr(
        "sgsdump.fixedpoint.tuning.unseen.folds_for", lambda how, feeds, progress: asked.append(how.level)
    )
    candidate = SimpleNamespace(subject=SimpleNamespace(float_model=None, config=None), feeds=None)
    diagnose_unseen._folds(candidate, level, ALONE, SILENT)  # type: ignore[arg-type]
    assert asked == [without]


def test_the_model_as_it_is_has_the_bits_that_its_level_raised() -> None:
    fixed_model = SimpleNamespace(proto="fixed")
    given = SimpleNamespace(config="given", made=None, fixed_model=fixed_model, weights_per_channel=True)
    assert as_it_is(given, None).config == "given" and as_it_is(given, None).per_channel  # type: ignore[arg-type]
    given.made = (SimpleNamespace(config="raised"),)
    found = as_it_is(given, None)  # type: ignore[arg-type]
    assert found.config == "raised" and not found.room and found.proto == "fixed"


def test_images_to_judge_by_are_unseen_unless_one_was_calibrated_on() -> None:
    """By content: the same image in a file of another name was calibrated on too."""
    calibrated, others = ([(f"{n}.npy", {"x": np.array([n])}) for n in numbers] for numbers in (range(3), range(5, 7)))
    mixed = [*others, ("renamed.npy", {"x": np.array([1])})]
    assert JudgingFeeds(calibrated, others).unseen is others  # type: ignore[arg-type]
    assert JudgingFeeds(calibrated, mixed).unseen is None  # type: ignore[arg-type]
    assert JudgingFeeds(calibrated, mixed, others).unseen is others  # type: ignore[arg-type]
    assert JudgingFeeds(calibrated).unseen is None  # type: ignore[arg-type]
