"""The sentence of ``diagnose`` on the error to expect on unseen images."""

from types import SimpleNamespace

import pytest

from sgsdump.fixedpoint.reports.diagnosis import Diagnosis, _on_unseen
from sgsdump.fixedpoint.tuning.unseen import Expected
from sgsdump.fixedpoint.tuning.worth import AS_IT_IS, PLAN


@pytest.mark.parametrize(
    "promise, per_channel, root, what",
    [
        (None, None, None, "with wider INT16 ranges"),
        ("a plan", None, None, "with the recommendation"),
        (None, "a level", None, "with the recommendation"),
        (None, None, SimpleNamespace(advice=None), "with the recommendation"),
    ],
)
def test_it_names_what_was_measured(promise, per_channel, root, what):
    errors = {AS_IT_IS: Expected(0.02, 0.01, 0.03, 20), PLAN: Expected(0.002, 0.001, 0.003, 20)}
    unseen = SimpleNamespace(ran=dict.fromkeys(errors), folds=3, expected=errors.get)
    diagnosis = SimpleNamespace(
        unseen=unseen, advice=SimpleNamespace(promise=promise, per_channel=per_channel), root=root
    )
    diagnosis.advises_change = Diagnosis.advises_change.fget(diagnosis)  # type: ignore[attr-defined]
    diagnosis.good = diagnosis.holds = True
    assert list(_on_unseen(diagnosis)) == [
        f"Expected output error on new images: 0.02 for the unchanged model → 0.002 {what} "
        "(error 0.001 on the median image and 0.003 on the worst image; "
        "20 images, held out in 3 folds)."
    ]
