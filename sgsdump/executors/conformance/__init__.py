"""What every executor must do, as tests that the author of a plug-in runs on it. Plain asserts; pytest collects them:

    from sgsdump.executors.conformance import ExecutorConformance

    class TestMine(ExecutorConformance):
        def make(self):
            return MyExecutor()

The model (``models.py``) is small: a convolution, a branch, a matrix product, an integer and a boolean path; the oracle
is numpy.
"""

from sgsdump.executors.conformance.harness import assert_raises
from sgsdump.executors.conformance.life_cycle import LifeCycle
from sgsdump.executors.conformance.models import other_model, small_feed, small_model, small_outputs
from sgsdump.executors.conformance.refusals import Refusals
from sgsdump.executors.conformance.values import Values

__all__ = ["ExecutorConformance", "assert_raises", "other_model", "small_feed", "small_model", "small_outputs"]


class ExecutorConformance(Values, LifeCycle, Refusals):
    """Subclass it with a ``make`` that gives a new executor, not yet initialised.

    tolerance   the largest |difference| to numpy, as a share of the largest |value| of the tensor.
    configs     what ``init`` gets.
    any_batch   False for a back-end that cannot take a model with a free batch size.
    """
