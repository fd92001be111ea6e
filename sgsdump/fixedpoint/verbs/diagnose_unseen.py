"""The errors that ``diagnose`` expects on held-out images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import ByPicture, PlanOutputs
    from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice
    from sgsdump.fixedpoint.tuning.unseen import Folds, Room, Run, Unseen
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.progress import Progress
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fixed model, with the options to make this model again from other calibration ranges.

    feeds        images that its ranges were calibrated on
    config       configuration, with the inputs raised to INT16
    room         INT16 ranges have room
    per_channel  weights have one scale per output channel, also at L1
    """

    subject: Subject
    proto: ModelProto
    feeds: Feeds
    config: InputConfig
    room: bool = False
    per_channel: bool = False


def as_it_is(subject: Subject, feeds: Feeds) -> Candidate:
    """Return the fixed model as it is."""
    config = subject.config if subject.made is None else subject.made[0].config
    return Candidate(subject, subject.fixed_model.proto, feeds, config, per_channel=subject.weights_per_channel)


def planned(advice: MeasuredAdvice, feeds: Feeds, names: tuple[str, ...] | None = None) -> Candidate:
    """Return the advised model as ``diagnose`` writes it, or the model with the inputs ``names`` at INT16."""
    from sgsdump.fixedpoint.tuning.measured_advice import fixed_with
    from sgsdump.fixedpoint.tuning.rules_of_thumb import config_names

    measured, subject = advice.measured, advice.measured.subject
    room = subject.made is not None if names is not None else advice.has_room
    per_channel = names is None and advice.per_channel is not None
    names = advice.names if names is None else names
    words = tuple(config_names(names, measured.convolutions))
    proto = fixed_with(measured, names, per_channel, room=room)
    config = replace(subject.config, tensor_arrays=words)
    return Candidate(subject, proto, feeds, config, room, per_channel or subject.weights_per_channel)


def in_folds(candidates: Mapping[str, Candidate], level: str, workers: Workers, progress: Progress) -> Unseen | None:
    """Run each candidate on images that were not used to calibrate it; ``workers`` calibrate.

    Returns None if there are too few images, or if the ranges were not calibrated here. Raises errors of calibration.
    """
    from sgsdump.fixedpoint.tuning.unseen import Unseen

    if any(candidate.subject.made is None for candidate in candidates.values()):
        return None
    known: dict[int, Folds | None] = {}
    ran: dict[str, Run] = {}
    most = 0
    for kind, candidate in candidates.items():
        if id(candidate.feeds) not in known:
            known[id(candidate.feeds)] = _folds(candidate, level, workers, progress)
        folds = known[id(candidate.feeds)]
        if folds is None:
            return None
        ran[kind], most = _run(candidate, folds, progress), len(folds.folds)
    return Unseen(ran, most)


def on_images(candidates: Mapping[str, Candidate], feeds: Feeds, progress: Progress) -> Unseen:
    """Run each candidate on unseen images."""
    from sgsdump.fixedpoint.tuning.unseen import Run, Unseen
    from sgsdump.models.feeds.by_content import PicturePairs

    pairs = PicturePairs(feeds)
    return Unseen({kind: Run(_outputs(each, [each.proto], pairs, progress)[0]) for kind, each in candidates.items()})


def _folds(candidate: Candidate, level: str, workers: Workers, progress: Progress) -> Folds | None:
    from sgsdump.fixedpoint.tuning.unseen import Calibrating, folds_for

    subject = candidate.subject
    room = _room_of(subject.float_model)
    how = Calibrating(subject.float_model, subject.config, WITHOUT_BITS[level], room, workers)
    return folds_for(how, candidate.feeds, progress)


def _room_of(model: Model) -> Room:
    from sgsdump.fixedpoint.curing.ranges import with_int16_room

    def room(ranges: Mapping[str, Range], side: SideRanges, per_channel: bool) -> Mapping[str, Range]:
        return with_int16_room(model, ranges, side.channels, per_channel)

    return room


def _run(candidate: Candidate, folds: Folds, progress: Progress) -> Run:
    from sgsdump.fixedpoint.tuning.unseen import Run
    from sgsdump.models.feeds.by_content import PicturePairs

    pairs = PicturePairs(folds.feeds)
    fixed, places = folds.fixed(candidate.config, candidate.room, candidate.per_channel), pairs.labels

    def of_fold(label: str) -> ModelProto:
        return fixed(places.index(label))

    held, seen = _outputs(candidate, [of_fold, candidate.proto], pairs, progress)
    return Run(held, seen, folds.shares)


def _outputs(
    candidate: Candidate, fixed: Sequence[ModelProto | ByPicture], pairs: PicturePairs, progress: Progress
) -> list[PlanOutputs]:
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.fixedpoint.quantisation.objective import watched_tensors
    from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import outputs_of
    from sgsdump.fixedpoint.tuning.measured_advice import labelled
    from sgsdump.progress import each

    model = candidate.subject.float_model
    spans = {name: r.at(INT16).high - r.at(INT16).low for name, r in candidate.subject.ranges.items()}
    pictures = each(progress, labelled(pairs), "held out", "image", len(pairs))
    watched = watched_tensors(deployed(model))
    return outputs_of(model, fixed, pictures, watched, spans)
