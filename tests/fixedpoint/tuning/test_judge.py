"""Plans are judged by the logits of a Softmax weighed by its probabilities, in scores and in the surrogate alike."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.tuning import judge as judging
from sgsdump.fixedpoint.tuning.criteria import Criteria, Picture
from sgsdump.fixedpoint.tuning.judge import Judge, Question, each_alone

DOMAINS = ("a", "b")
RNG = np.random.default_rng(1)
REAL = RNG.normal(0, 2, (3, 2, 5))  # [images, positions, classes]
WEIGHTS = np.exp(REAL) / np.exp(REAL).sum(axis=-1, keepdims=True)
PLAIN = RNG.normal(0, 3, (3, 8))
OFF = {plan: RNG.normal(0, 0.1, (3, 2, 5)) for plan in each_alone(DOMAINS)}


def judge() -> Judge:
    """Plans whose logits "z" are OFF, and whose other output "y" is off by a tenth, for each image."""
    pictures = [Picture({"image": np.array(n)}, {"z": REAL[n], "y": PLAIN[n]}) for n in range(len(REAL))]

    def visit(raw):
        image = int(raw["image"])
        run = lambda plans: [(p, {"z": REAL[image] + OFF[p][image], "y": 1.1 * PLAIN[image]}) for p in plans]  # noqa: E731
        return SimpleNamespace(run=run, held_bytes=0)

    walk = SimpleNamespace(visit=visit)
    return Judge(walk, Criteria(DOMAINS, pictures, ["z", "y"], ["y"], axes={"z": -1}))  # type: ignore[arg-type]


def test_scores_weigh_logits() -> None:
    plan = frozenset("a")
    answer = judge().answer(Question(1, (plan,)), [plan])  # type: ignore[list-item]
    off, real = np.abs(OFF[plan][1] * WEIGHTS[1]).sum(), np.abs(REAL[1] * WEIGHTS[1]).sum()
    assert output_error(answer.scores[plan].sums) == pytest.approx((off / real + 0.1) / 2, rel=1e-5)


@pytest.mark.parametrize("values", [1 << 16, 4])
def test_the_surrogate_weighs_logits(values: int, monkeypatch) -> None:
    """Products of the plans' errors over the energy on all images; each value that is taken stands for ``step``."""
    monkeypatch.setattr(judging, "MAX_VALUES", values)
    every = frozenset(DOMAINS)
    plans = [plan for plan in each_alone(DOMAINS) if len(plan) >= 1]
    whole = sum(judge().answer(Question(n, tuple(plans), grams=True), plans).grams[0] for n in range(3))  # type: ignore
    widest = (OFF[every] * WEIGHTS).reshape(3, -1)
    vectors = [widest, *((OFF[every - {d}] * WEIGHTS).reshape(3, -1) - widest for d in DOMAINS)]
    step = 1 if values > 20 else 5  # 10 logits and 8 other values beside 4 of both
    taken = np.stack([each[:, ::step].ravel() for each in vectors])
    expected = step * taken @ taken.T / ((REAL * WEIGHTS) ** 2).sum()
    np.testing.assert_allclose(whole, expected, rtol=1e-6)
