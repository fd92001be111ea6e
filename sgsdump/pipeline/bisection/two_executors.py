"""Bisection of one model run by two executors, on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.executors.base import Executor
from sgsdump.executors.runner import Layer
from sgsdump.pipeline.bisection.bisect import THRESHOLD, bisect
from sgsdump.pipeline.bisection.result import Answer, Bisection, Missing
from sgsdump.pipeline.running.attempt import ExecutorConfigs
from sgsdump.pipeline.running.not_dumped import NotDumped
from sgsdump.pipeline.running.run import FAST, run
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.dtypes import is_complex

if TYPE_CHECKING:
    from sgsdump.models.model import Model


def bisect_executors(
    model: Model,
    executor: str | Executor,
    reference: str | Executor,
    feed: Mapping[str, np.ndarray],
    threshold: float = THRESHOLD,
    mode: str = FAST,
    configs: ExecutorConfigs | None = None,
    progress: Progress = SILENT,
) -> Bisection:
    """Where ``executor`` (with its ``configs``) first differs from ``reference`` by more than ``threshold``, measured
    by ``worst_relative``, or which of them does not give it. ``feed`` and ``mode`` as in ``running.run.run``, whose
    errors it raises."""

    def differs(name: str) -> Answer:
        own = _outcome(run(model, executor, feed, [name], mode, configs or ExecutorConfigs()))
        other = _outcome(run(model, reference, feed, [name], mode))
        if isinstance(own, np.ndarray) and isinstance(other, np.ndarray):
            return worst_relative(own, other)
        lacking = [
            (each if isinstance(each, str) else each.name, outcome)
            for each, outcome in ((executor, own), (reference, other))
            if isinstance(outcome, NotDumped)
        ]
        reason = next((lost.reason for _, lost in lacking if lost.failed), lacking[0][1].reason)
        return Missing(tuple(name for name, _ in lacking), reason, any(lost.failed for _, lost in lacking))

    return bisect(model.proto, differs, threshold, progress)


def worst_relative(sample: np.ndarray, benchmark: np.ndarray) -> float:
    """max|s-b| / max|b|: the worst error held against the tensor's own largest value, so that it is blind to units.

    Not a mean, in which one wrong element of a large tensor would drown. Inf where the shapes differ, where one has
    NaN or Inf and the other has not or another, and where b is all 0 and s is not.
    """
    if sample.shape != benchmark.shape:
        return math.inf
    wide = np.complex128 if is_complex(sample.dtype) or is_complex(benchmark.dtype) else np.float64
    s, b = sample.astype(wide), benchmark.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(s[~finite], b[~finite], equal_nan=True) or not np.isfinite(s[finite]).all():
        return math.inf
    s, b = s[finite], b[finite]
    worst, largest = np.abs(s - b).max(initial=0.0), np.abs(b).max(initial=0.0)
    if worst == 0:
        return 0.0
    return float(worst / largest) if largest else math.inf


def _outcome(outcomes: Iterable[Layer | NotDumped]) -> np.ndarray | NotDumped:
    """The one tensor asked for, or why it was not given."""
    for outcome in outcomes:
        return outcome.array if isinstance(outcome, Layer) else outcome
    return NotDumped("", "", "", "the run gave nothing", True)
