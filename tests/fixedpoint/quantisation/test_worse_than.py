"""A candidate is worse where an output is off by more than 5 % more, on nine of ten images at least."""

import pytest

from sgsdump.comparison.metrics import Sums, merged_sums
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import OutputFigures, PlanOutputs
from sgsdump.fixedpoint.tuning.integer_scores import _Ran


def plan(errors):
    """An output of ten values of 1 an image, each off by these."""
    by_image = {str(n): {"y": Sums(10, 10, 10, 10, 10 * e * e, 10 * e, 10)} for n, e in enumerate(errors)}
    return PlanOutputs({"y": OutputFigures(merged_sums([each["y"] for each in by_image.values()]))}, {}, by_image)


AS_IT_IS = plan([0.01] * 10)


@pytest.mark.parametrize(
    ("errors", "worse"),
    [
        ([0.011] * 10, True),
        ([0.0104] * 10, False),
        ([0.012] * 9 + [0.009], True),
        ([0.03] * 8 + [0.009] * 2, False),
        ([0.009] * 10, False),
    ],
)
def test_by_five_percent_and_on_nine_of_ten_images(errors, worse):
    assert plan(errors).worse_than(AS_IT_IS) == (("y",) if worse else ())


def test_a_plan_of_tune_is_worse_than_int8_and_int8_never_is():
    class Ran(_Ran):
        def run(self, plan):
            return {frozenset(): AS_IT_IS, frozenset("a"): off, frozenset("b"): AS_IT_IS}[plan]

    off = plan([0.011] * 10)
    assert [Ran().worse(frozenset(names)) for names in ("a", "b", "")] == [True, False, False]
