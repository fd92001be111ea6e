"""Preparation of a search: the plans, their costs, the images, and the progress file's fingerprint."""

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

# Number of evenly chosen calibration images that judge plans.
PICTURES = 10
# Version of the progress file; files of other versions are ignored.
FORM = b"4"
Arrays = Mapping[str, np.ndarray]
PictureFeed = tuple[Arrays, Arrays] | tuple[Arrays, Arrays, str, Any]
"""(feed of the float model, the same feed with images as raw bytes), and optionally source and label"""


@dataclass(frozen=True, eq=False)
class Setup:
    """A prepared search.

    cost      cost that the search minimises; ``sizes``: its counts.
    held_out  images that the search does not use.
    """

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
    """Options for judging plans.

    metric     the user's; ``metric_text``: identifies it in the fingerprint.
    objective  combines the errors of several outputs; by default their mean.
    file       progress file; used if model, ranges, images and ``metric_text`` agree.
    workers    a cluster that runs the plans with the same results; by default local threads. The metric runs here.
    cost       cost that the search minimises: BYTES of weights, or MACS at INT16.
    side       results of calibration besides the ranges, so that trials round like the chip does.
    held_out   images that the search does not use.
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
    """Prepare a search over the plans of a simplified float model, judged on ``feeds``.

    Raises ConfigError if no convolution can be raised or costs cannot be counted, and InputError for outputs whose
    shape depends on values.
    """
    if config.conv_format not in (None, "ALL_UINT8"):
        raise ConfigError(
            f"input_config: input_format = {config.conv_format} sets the bits of all convolutions. "
            "Remove input_format from [CONV_CONFIG], so that tune can choose the bits of each "
            "convolution"
        )
    trial = PlanTrial(model, ranges, config, hardware=OnHardware(judging.side))
    if not trial.domains:
        raise ConfigError(
            "there is no convolution to tune: tune needs a convolution that has constant weights and does not "
            "read the image"
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
    """Return an image with the float model's values for it."""
    feed, raw, *told = given
    return Picture(raw, {layer.name: layer.array.copy() for layer in runner.run(feed, only=names)}, *told)


def _check_outputs(walk: PlanWalk, pictures: Sequence[Picture], names: Sequence[str]) -> None:
    if not pictures:
        raise InputError("there is no image to judge the plans on")
    floats = pictures[0].floats
    ((_, outputs),) = walk.run(walk.ordered([frozenset()]), pictures[0].raw)
    for name in names:
        if outputs[name].shape != floats[name].shape:
            raise InputError(
                f"output {name!r} has the shape {list(floats[name].shape)} in float and "
                f"{list(outputs[name].shape)} in INT8, because its size depends on the computed "
                "values. Tune the model without post-processing"
            )
        if not np.isfinite(floats[name]).all():
            raise InputError(
                f"output {name!r} of the float model contains NaN or infinity, so plans cannot be judged by this output"
            )
