"""Cured models for two commands: the ways that ``diagnose --cure`` compares, and the start of ``tune --cure``.

A way is one option for deployment: the unchanged model at INT8, cured at INT8, cured with an INT16 plan, or all at
INT16. All ways run in integer arithmetic on the same held-out images and are compared with the original float model. An
INT16 plan uses only cures that keep the function of the model, because INT8 corrections of biases and weights are wrong
at INT16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import Network

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.curing.steps import Way
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice
    from sgsdump.fixedpoint.tuning.unseen import Room
    from sgsdump.fixedpoint.verbs.diagnosed import Diagnosed
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.models.network import Data
    from sgsdump.progress import Progress
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.sidecars.quant_param_entries import QuantParam
    from sgsdump.tensors.types import Range

CURED, PLANNED = "cured.onnx", "planned.onnx"
# Images that plans are ranked by.
MEASURED = 4


def with_cure(
    found: Diagnosed,
    network: Network,
    task: tuple[str, Thresholds],
    evaluate: Data | None,
    folder: tuple[Path, Path],
    progress: Progress,
) -> Diagnosed:
    """Cure the model of a diagnosis. Add the ways, the errors of every layer and the cured models to the diagnosis.

    The models are cured.onnx and, with a plan, planned.onnx, each with its quant file.

    task      level and limits
    evaluate  judging images of the diagnosis; None: the images of the network
    folder    folder for temporary dumps, and the later folder of the models
    """
    from sgsdump.fixedpoint.reports.cured import cured_steps
    from sgsdump.fixedpoint.reports.diagnosis import TRY_CURE
    from sgsdump.fixedpoint.reports.diagnosis_verdict import with_cured
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.reports.report import other_run
    from sgsdump.reports.three_lines import verdict_block

    level = "L1" if task[0] == "L1" else "L2"
    opened = open_network(network, level, guesses=True)
    cured = cure_opened(network, opened, level, progress=progress)
    ways: tuple[Way, ...] = ()
    planned, view = False, found.report.view
    models: dict[str, Cured] = {}
    if cured.helps:
        models[CURED] = cured
        feeds = opened.feeds()
        there = ways_of(Task(opened.model, feeds, opened.config, level, task[1]), cured, progress)
        ways, planned = there.ways, there.planned is not None
        if there.planned is not None:
            proto, params = there.planned
            models[PLANNED] = replace(cured, proto=proto, params=params)
        label = "cured, with the plan" if planned else "cured"
        judges = feeds if evaluate is None else opened.feeds(evaluate)
        layers = _layers(there.best, PicturePairs(judges, chosen=found.pictures), folder[0], progress)
        view = replace(view, other=other_run(label, layers))
    steps = cured_steps(cured, ways, planned, level, str(folder[1]))
    others = [step for step in found.report.next_steps if step != TRY_CURE]
    conclusion = with_cured(found.conclusion, ways, str(folder[1])) if ways else found.conclusion
    lines = tuple(verdict_block(replace(conclusion, assumptions=())))
    report = replace(found.report, verdict=lines, next_steps=(*steps, *others), view=view)
    before = found._write_more

    def write(into: Path) -> None:
        before(into)
        for name, model in models.items():
            model.save(into / name)

    return replace(found, report=report, conclusion=conclusion, _write_more=write)


def _layers(best: Subject, pairs: PicturePairs, folder: Path, progress: Progress) -> Comparison:
    from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import PictureComparer, each_compared, over_all

    comparer = PictureComparer(best.float_model, best.fixed_model, folder, details=False)
    return over_all(each_compared(comparer, pairs), pairs.labels, progress).comparison


def cure_opened(
    network: Network, opened: OpenNetwork, level: str, cures: tuple[str, ...] = (), progress: Progress | None = None
) -> Cured:
    """Cure an open model, judged on the folds of its images. Without ``cures``, try all cures."""
    from sgsdump.fixedpoint.curing.cure import cure
    from sgsdump.fixedpoint.curing.steps import CURES, CureOptions
    from sgsdump.models.model import open_model
    from sgsdump.progress import SILENT

    outputs = [entry.name for entry in opened.config.outputs]
    model = network.part.of(open_model(network.model, network.weight_file, staged_outputs=outputs))
    options = CureOptions(level, cures or CURES)
    return cure(model, opened.feeds(), opened.config, options, progress=progress or SILENT)


@dataclass(frozen=True, eq=False)
class Start:
    """A cured model whose convolutions can be raised to INT16; ``opened`` contains the cured model."""

    opened: OpenNetwork
    cured: Cured

    def with_room(
        self,
        ranges: Mapping[str, Range],
        side: SideRanges,
        per_channel: bool,
        some: Mapping[str, Range] | None = None,
    ) -> dict[str, Range]:
        """Return calibration ranges, replaced and widened by the quant file of the cured model.

        per_channel  True above L1
        some         ranges calibrated on some of the images; they are widened by the same factors
        """
        model, params = self.opened.model, self.cured.params
        wide = with_room(model, ranges, params, self.opened.config, side if per_channel else None)
        return wide if some is None or some is ranges else _widened_as(some, ranges, wide)

    def lines(self) -> list[str]:
        """Return the effect of the cures at INT8, as lines."""
        from sgsdump.fixedpoint.reports.cured import lines, summary

        return [*lines(self.cured), f"before anything is raised: {summary(self.cured)}"]


def _widened_as(some: Mapping[str, Range], every: Mapping[str, Range], wide: Mapping[str, Range]) -> dict[str, Range]:
    """Widen each range of ``some`` by the factor from ``every`` to ``wide``; if ``some`` is ``every``, use ``wide``."""
    from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, UINT8

    found = {}
    for name, measured in every.items():
        if name in some and some[name].same(measured):
            found[name] = wide[name]
        elif name in some:
            eight, sixteen = (
                _scaled(some[name].at(dtype), measured.at(dtype), wide[name].at(dtype)) for dtype in (UINT8, INT16)
            )
            found[name] = replace(some[name], min=eight.min, max=eight.max, wide=sixteen)
    return found


def _scaled(some: Range, measured: Range, wide: Range) -> Range:
    width = measured.high - measured.low
    factor = (wide.high - wide.low) / width if width > 0 else 1.0
    return replace(some, min=some.min * factor, max=some.max * factor, wide=None)


def start_cured(network: Network, opened: OpenNetwork, level: str, progress: Progress) -> Start:
    """Cure a model with only the cures that keep its function; see the module docstring."""
    from sgsdump.fixedpoint.curing.fold import rewritten
    from sgsdump.fixedpoint.curing.steps import KEEPING

    cured = cure_opened(network, opened, "L1" if level == "L1" else "L2", KEEPING, progress)
    return Start(replace(opened, model=rewritten(opened.model, cured.proto)), cured)


@dataclass(frozen=True)
class Task:
    """An open float model with the options for calibrating and judging its ways."""

    model: Model
    feeds: Feeds
    config: InputConfig
    level: str
    limits: Thresholds


@dataclass(frozen=True, eq=False)
class Ways:
    """The measured ways.

    best     fixed model of the plan or, without a plan, of the cured model, with an equivalent float model of the same
             scales
    planned  float model and quant file entries of the plan; None if no plan is needed or no plan helps
    """

    ways: tuple[Way, ...]
    best: Subject
    planned: tuple[ModelProto, tuple[QuantParam, ...]] | None


def ways_of(task: Task, cured: Cured, progress: Progress) -> Ways:
    """Measure the ways on the images that judged the cure. No way is calibrated on the images that judge it.

    A plan that makes an output worse than the cured model by more than WORSE is left out. Raises errors of calibration.
    """
    from sgsdump.fixedpoint.curing.ranges import params_of
    from sgsdump.fixedpoint.curing.steps import ALL_16, AS_IT_IS, CURED_8, PLAN, Way
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import WORSE
    from sgsdump.fixedpoint.tuning.measured_advice import fixed_with, judge, measure
    from sgsdump.fixedpoint.tuning.rules_of_thumb import config_names
    from sgsdump.models.feeds.by_content import JUDGED, PicturePairs
    from sgsdump.models.feeds.image_list import evenly

    _, eight = _cured_subject(task, cured.proto, cured.params, progress)
    room, scaled = _cured_subject(task, *cured.scaled, progress)
    every = PicturePairs(task.feeds, most=JUDGED)
    few = replace(every, chosen=tuple(evenly(every.indices, MEASURED)))
    _, advice = judge(scaled, measure(scaled, few, progress), every, task.limits, progress)
    errors = {AS_IT_IS: cured.as_it_is, CURED_8: cured.errors}
    planned, best = None, replace(scaled, fixed_model=eight.fixed_model)
    ways: dict[str, Way] = {kind: Way(kind, error) for kind, error in errors.items()}
    if advice is not None and advice.promise is not None:
        names, convolutions = advice.promise.names, advice.measured.convolutions
        fixed = replace(scaled.fixed_model, proto=fixed_with(advice.measured, names))
        config = replace(task.config, tensor_arrays=tuple(config_names(names, convolutions)))
        error = _errors(task, cured, replace(scaled, fixed_model=fixed, config=config), room, progress)
        if all(error[name] <= (1 + WORSE) * before for name, before in cured.errors.items()):
            planned = cured.scaled[0], tuple(params_of(fixed, scaled.float_model, scaled.ranges))
            best = replace(scaled, fixed_model=fixed)
            ways[PLAN] = Way(PLAN, error, _raised(advice), len(convolutions))
    ways[ALL_16] = Way(ALL_16, _errors(task, cured, *_all_16(task, progress), progress))
    return Ways(tuple(ways.values()), best, planned)


def _raised(advice: MeasuredAdvice) -> int:
    """Return the number of convolutions at INT16 in the advised plan."""
    assert advice.promise is not None
    analysis = advice.measured.analysis
    domains = {analysis.switch(name) for name in advice.promise.names}
    return sum(analysis.switch(conv.input) in domains for conv in advice.measured.convolutions)


def _cured_subject(
    task: Task, proto: ModelProto, params: tuple[QuantParam, ...] | None, progress: Progress
) -> tuple[Room, Subject]:
    """Return a cured model, calibrated with its quant file, and a function that widens other ranges equally."""
    from sgsdump.fixedpoint.curing.fold import rewritten
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges

    model = rewritten(task.model, proto)
    calibration = calibrate(model, task.feeds, task.config, task.level, progress=progress)
    side = side_ranges(calibration.statistics)
    ranges = with_room(model, calibration.ranges, params, task.config, side if task.level != "L1" else None)

    def room(some: Mapping[str, Range], side: SideRanges, per_channel: bool) -> Mapping[str, Range]:
        return _widened_as(some, calibration.ranges, ranges)

    fixed = make_fixed(model, ranges, calibration.config, side=side)
    fixed_model = replace(model, proto=fixed.proto)
    return room, Subject(model, fixed_model, task.config, ranges, task.level != "L1", None, fixed.notes, side)


def _all_16(task: Task, progress: Progress) -> tuple[Subject, Room]:
    """Return the original model with all convolutions at INT16, and a function that adds room to its INT16 ranges."""
    from sgsdump.fixedpoint.curing.ranges import with_int16_room
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import calibrated
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed

    subject = calibrated(task.model, task.feeds, replace(task.config, conv_format="ALL_INT16"), task.level, progress)

    def room(ranges: Mapping[str, Range], side: SideRanges, per_channel: bool) -> Mapping[str, Range]:
        return with_int16_room(task.model, ranges, side.channels, per_channel)

    ranges = room(subject.ranges, subject.side, subject.per_channel)
    proto = make_fixed(task.model, ranges, subject.config, side=subject.side).proto
    return replace(subject, fixed_model=replace(subject.fixed_model, proto=proto)), room


def with_room(
    model: Model,
    ranges: Mapping[str, Range],
    params: tuple[QuantParam, ...] | None,
    config: InputConfig,
    side: SideRanges | None,
) -> dict[str, Range]:
    """Return a cured model's ranges, replaced by its quant file, with room for tensors raised to INT16 later.

    side  channel ranges, if weights have one scale per output channel; else None
    """
    from sgsdump.fixedpoint.curing.ranges import weight_room, widened
    from sgsdump.fixedpoint.quantisation.quant_file import import_params

    if not params:
        return dict(ranges)
    weights = {} if side is None else weight_room(model, ranges, side.channels)
    room, given = widened(model, {**ranges, **weights}, {}), import_params(model, params, config).ranges
    return {
        name: replace(given[name], wide=measured.wide)
        if name in given and given[name].bit == 8
        else given.get(name, measured)
        for name, measured in room.items()
    }


def _errors(task: Task, cured: Cured, way: Subject, room: Room, progress: Progress) -> dict[str, float]:
    """Return sum((y - r)^2) / sum(r^2) of each output of a fixed model.

    If there are enough images for folds, each image runs on a model that was calibrated without this image.
    """
    from sgsdump.comparison.metrics import ratio
    from sgsdump.executors.onnx_runtime.session import release_unused
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import ByPicture, outputs_of
    from sgsdump.fixedpoint.tuning.measured_advice import labelled
    from sgsdump.fixedpoint.tuning.unseen import Calibrating, folds_for
    from sgsdump.models.feeds.by_content import JUDGED, PicturePairs
    from sgsdump.progress import each

    fixed: ModelProto | ByPicture = way.fixed_model.proto
    pairs = PicturePairs(task.feeds, most=JUDGED)
    folds = folds_for(Calibrating(way.float_model, way.config, task.level, room), task.feeds, progress)
    if folds is not None:
        pairs = PicturePairs(folds.feeds)
        of_image, labels = folds.fixed(way.config, True), pairs.labels
        fixed = lambda label: of_image(labels.index(label))  # noqa: E731
    release_unused()
    pictures = each(progress, labelled(pairs), "ways", "image", len(pairs))
    (found,) = outputs_of(task.model, [fixed], pictures, list(cured.as_it_is))
    return {name: ratio(sums.dd, sums.bb) if sums.dd else 0.0 for name, sums in found.sums.items()}
