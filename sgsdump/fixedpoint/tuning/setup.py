"""Prepare a search."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import ConfigError, InputError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.workers.task_pool import ALONE, Workers, task_pool
from sgsdump.fixedpoint.quantisation.float_model import serialise
from sgsdump.fixedpoint.quantisation.objective import softmax_axes, watched_tensors
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import OnHardware
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk
from sgsdump.fixedpoint.tuning.criteria import Criteria, Objective, Picture, UserMetric
from sgsdump.fixedpoint.tuning.judge import Judge, Subject, make_answer
from sgsdump.fixedpoint.tuning.plan_costs import BYTES, PlanCosts, Sizes, costs_of
from sgsdump.fixedpoint.tuning.plan_scores import PlanScores
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# Plans are judged on this many of the calibration pictures, evenly chosen.
PICTURES = 10
# Of the progress file: one of another form is not read.
FORM = b"4"
Arrays = Mapping[str, np.ndarray]
PictureFeed = tuple[Arrays, Arrays] | tuple[Arrays, Arrays, str, Any]
"""(feed of the float model, the same with pictures as raw bytes), and where it comes from and its label"""


@dataclass(frozen=True, eq=False)
class Setup:
    """``sizes``: those of ``costs`` that steer the search, ``cost`` which these are; ``held_out``: pictures that the
    search does not see."""

    trial: PlanTrial
    pool: PlanScores
    costs: PlanCosts
    cost: str = BYTES
    held_out: tuple[Picture, ...] = ()

    @property
    def sizes(self) -> Sizes:
        return self.costs.steering(self.cost)


@dataclass(frozen=True)
class Judging:
    """How plans are judged.

    metric     the user's, with its ``metric_text``.
    objective  how the errors of several outputs become one; their mean without.
    file       the progress file; what it knows is taken over when model, ranges, pictures and ``metric_text`` agree.
    workers    a cluster runs the plans, with the same results; without one, threads here do. The metric runs here.
    cost       what the search makes small: BYTES of weights, or MACS at 16 bits.
    side       what calibration found beside the ranges: the trials round as the hardware does where they know it.
    held_out   pictures that the search does not see.
    """

    metric: UserMetric | None = None
    metric_text: bytes = b""
    objective: Objective | None = None
    file: Path | None = None
    workers: Workers = ALONE
    cost: str = BYTES
    side: SideRanges = NOTHING_BESIDE
    held_out: Iterable[PictureFeed] = ()


def set_up(
    model: Model,
    ranges: Mapping[str, Range],
    config: InputConfig,
    feeds: Iterable[PictureFeed],
    judging: Judging = Judging(),
    progress: Progress = SILENT,
) -> Setup:
    """The plans of a simplified float model, to be judged on ``feeds``.

    Raises ConfigError when no convolution can have another width or its cost cannot be counted, InputError for outputs
    whose shape depends on values.
    """
    if config.conv_format not in (None, "ALL_UINT8"):
        raise ConfigError(
            f"input_config: input_format = {config.conv_format} decides the bits of all convolutions; remove it from "
            f"[CONV_CONFIG] and let tune decide"
        )
    trial = PlanTrial(model, ranges, config, hardware=OnHardware(judging.side))
    if not trial.domains:
        raise ConfigError(
            "there is no convolution to tune: none has weights to quantise and an input other than the picture"
        )
    costs = costs_of(trial)
    costs.steering(judging.cost)
    watched = watched_tensors(trial.proto)
    names = list(dict.fromkeys([*watched, *trial.outputs]))
    walk = PlanWalk(trial, names)
    floats = partial(_floats, SegmentRunner(model, keep_sessions=True), set(names))
    pictures = [floats(feed) for feed in feeds]
    digest = hashlib.sha256(FORM + trial.every_plan.SerializeToString(deterministic=True) + judging.metric_text)
    for name, bounds in sorted(ranges.items()):
        wide = bounds.at(INT16)
        ends = (bounds.min.tolist(), bounds.max.tolist(), wide.min.tolist(), wide.max.tolist())
        digest.update(repr((name, *ends)).encode())
    for name, bounds in sorted(judging.side.channels.items()):
        digest.update(repr((name, bounds.min.tolist(), bounds.max.tolist())).encode())
    for picture in pictures:
        for array in picture.raw.values():
            digest.update(np.ascontiguousarray(array).tobytes())
        if judging.metric is not None:
            digest.update(repr((picture.name, picture.label)).encode("utf-8", "surrogateescape"))
    _check_outputs(walk, pictures, names)
    held_out = tuple(floats(feed) for feed in judging.held_out)
    axes = softmax_axes(trial.proto)
    criteria = Criteria(costs.bytes.domains, pictures, watched, trial.outputs, judging.metric, axes)
    elsewhere = None
    if judging.workers.scheduler is not None:
        subject = Subject(serialise(model.proto), model.path, ranges, config, judging.side)
        shared = (subject, names, replace(criteria, metric=None), judging.metric is not None)
        elsewhere = task_pool(make_answer, shared, judging.workers, progress)
    pool = PlanScores(Judge(walk, criteria), judging.objective, judging.file, digest.hexdigest(), progress, elsewhere)
    return Setup(trial, pool, costs, judging.cost, held_out)


def _floats(runner: SegmentRunner, names: set[str], given: PictureFeed) -> Picture:
    """A picture with what the float model gives of it."""
    feed, raw, *told = given
    return Picture(raw, {layer.name: layer.array.copy() for layer in runner.run(feed, only=names)}, *told)


def _check_outputs(walk: PlanWalk, pictures: Sequence[Picture], names: Sequence[str]) -> None:
    if not pictures:
        raise InputError("there is no picture to judge the plans with")
    floats = pictures[0].floats
    ((_, outputs),) = walk.run(walk.ordered([frozenset()]), pictures[0].raw)
    for name in names:
        if outputs[name].shape != floats[name].shape:
            raise InputError(
                f"output {name!r} has the shape {list(floats[name].shape)} in float and {list(outputs[name].shape)} in "
                f"8 bits: its size depends on values (post-processing in the model?); tune the model without that part"
            )
        if not np.isfinite(floats[name]).all():
            raise InputError(
                f"output {name!r} of the float model holds NaN or infinity, so no plan can be judged by it"
            )
