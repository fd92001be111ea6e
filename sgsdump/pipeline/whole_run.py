"""Check fused operators: does a normal run of the whole model give the outputs in the dump?

A dump marks inner tensors as outputs, which prevents their fusion. A kernel that is wrong only when fused thus leaves
no trace in a dump of many tensors at a time. The model is therefore run once more with only its own outputs. If these
differ from the dump, each tensor is computed as the only output of its model (``isolated``). Each operator is then
recomputed from these recordings (``pipeline/replay.py``). The first wrong operator ends the fused group.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sgsdump.models.model import Model
from sgsdump.pipeline.bisection import worst_relative
from sgsdump.pipeline.replay import SAMPLE, OwnError, judge, recorded_run
from sgsdump.pipeline.run import run_whole
from sgsdump.pipeline.steps import FAST, ISOLATED, Engine, Failed
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.dtypes import is_float

_LIMIT, _LIMIT_OF_16_BITS = 1e-4, 2e-2


@dataclass(frozen=True)
class WholeRun:
    """Comparison of a run of the whole model with a dump.

    differing  outputs that differ from the dump, with the difference.
    fused      operators that are wrong when fused, in the order of the graph.
    failed     reason why the whole model did not run, or "".
    """

    differing: Mapping[str, float]
    fused: tuple[OwnError, ...] = ()
    failed: str = ""

    @property
    def agrees(self) -> bool:
        return not self.differing


def check_whole(
    model: Model,
    engine: Engine,
    feed: Mapping[str, np.ndarray],
    dumped: Mapping[str, np.ndarray],
    progress: Progress = SILENT,
) -> WholeRun:
    """Run the whole model once and compare its outputs with ``dumped``, the dump by name.

    If they differ by more than rounding, the fused operators at fault are found too.
    """
    whole = run_whole(model, engine, feed)
    if isinstance(whole, Failed):
        return WholeRun({}, failed=whole.reason)
    apart = {name: worst_relative(array, dumped[name]) for name, array in whole.items() if name in dumped}
    differing = {name: by for name, by in apart.items() if not by <= _limit(whole[name].dtype)}
    if not differing or engine.mode != FAST:
        return WholeRun(differing)
    with tempfile.TemporaryDirectory(prefix="sgsdump-") as folder:
        alone = recorded_run(model, replace(engine, mode=ISOLATED), feed, Path(folder) / "alone", progress)
        names = [name for name in alone if name in dumped and name not in feed]
        with progress.bar("judge", "tensor") as advance:
            errors = judge(model, alone, dumped, names, advance).errors
    return WholeRun(differing, tuple(error for error in errors if error.side == SAMPLE))


def _limit(dtype: np.dtype) -> float:
    """Return how far rounding may change an output; integers flip by rounding and are not compared."""
    if not is_float(dtype):
        return float("inf")
    return _LIMIT_OF_16_BITS if dtype.itemsize <= 2 else _LIMIT
