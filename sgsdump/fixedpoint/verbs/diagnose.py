"""``diagnose``: find where a model loses accuracy in fixed point, measure the causes, and recommend a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.verbs.diagnose_native import NativeTask, diagnose_native
from sgsdump.fixedpoint.verbs.diagnose_quantised import QuantisedTask, diagnosed_quantised, is_quantised_by_others
from sgsdump.fixedpoint.verbs.diagnose_setting import Setting, Task, facts_of, preprocessed, setting_of, subject_of
from sgsdump.fixedpoint.verbs.diagnosed import Diagnosed
from sgsdump.fixedpoint.verbs.judges import JudgedBy, judges_of
from sgsdump.fixedpoint.verbs.network import assumed_source
from sgsdump.models.network import Beside, beside_of, feeds_of, named_network

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgsdump.comparison.agreement import Agreement
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.merge import Compared
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
    from sgsdump.fixedpoint.reports.graph_files import NetworkGraph
    from sgsdump.fixedpoint.reports.root_causes import Righted
    from sgsdump.fixedpoint.tuning.criteria import UserMetric
    from sgsdump.fixedpoint.tuning.examined import RootCause
    from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice
    from sgsdump.fixedpoint.tuning.unseen import Unseen
    from sgsdump.fixedpoint.tuning.worth import Worths
    from sgsdump.fixedpoint.verbs.diagnose_unseen import Candidate
    from sgsdump.fixedpoint.verbs.judges import Judges, JudgingFeeds
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.model import Model
    from sgsdump.models.network import Data
    from sgsdump.progress import Progress
    from sgsdump.reports.verdict import Step
    from sgsdump.reports.worst_picture import WorstPicture
    from sgsdump.sidecars.quant_param_entries import QuantParam

MAX_IMAGES, FOLDER = 10, "diagnosis"
MEASURED = 4  # images that sensitivities are measured on

Tell = Callable[[Iterable[str]], None]


class DiagnoseOptions(Beside, JudgedBy, total=False):
    """Options of ``diagnose``, in addition to those of ``JudgedBy``.

    Attributes
    ----------
    fixed : str or Path, optional
        Fixed model of ``calibrate``, or a model quantised with another tool (ONNX with QDQ or QOperator nodes, TFLite,
        OpenVINO). By default ``diagnose`` makes the fixed model.
    ranges : str or Path, optional
        ``tensor_min_max.txt`` or a quant file. Its ranges are used instead of a calibration.
    max_images : int
        Maximum number of images on which layers are compared. The images with the largest output error are used.
        Default: 10.
    min_cos, max_rmse : float, optional
        Limits for outputs and layers: smallest cosine similarity, and largest RMSE as the SDK defines it, sum(|y - r|)
        / sum(|r|). If both are None, the documented limits 0.99 and 0.1 apply.
    cure : bool
        If True, also report the effect of ``cure`` at INT8, which takes some minutes.
    """

    fixed: str | Path | None
    ranges: str | Path | None
    max_images: int
    min_cos: float | None
    max_rmse: float | None
    cure: bool


def diagnose(
    model: str | Path, data: Data, *, quant_level: str = "L5", **options: Unpack[DiagnoseOptions]
) -> Diagnosed:
    """Find where a model loses accuracy in fixed point, and recommend a remedy, as ``sgsdump diagnose`` does.

    Parameters
    ----------
    model : str or Path
        Float model, see ``calibrate``.
    data : str, Path, array, mapping or iterable
        Images or arrays for calibrating and judging, see ``calibrate``.
    quant_level : str
        Calibration level, L1 to L5, see ``calibrate``.
    **options
        See ``DiagnoseOptions`` and ``JudgedBy``. Options of ``calibrate`` that describe the model, such as
        ``preprocess``, are allowed too. Without ``input_config``, settings are inferred and listed in the report.

    Returns
    -------
    Diagnosed
        Verdict, next steps and the errors of every layer. ``Diagnosed.save`` writes the same files as the command
        ``sgsdump diagnose``.

    Raises
    ------
    SgsdumpError
        If a file cannot be read, if the data do not fit the model, or if the model cannot be run or compared.

    Examples
    --------
    >>> found = sgsdump.diagnose("net.onnx", "images/", preprocess="preprocess.py")  # doctest: +SKIP
    >>> print(found)  # doctest: +SKIP
    >>> found.save("diagnosis")  # doctest: +SKIP
    """
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.progress import bars

    network = named_network(model, data, beside_of(options, DiagnoseOptions))
    fixed, ranges = (Path(path) if path else None for path in (options.get("fixed"), options.get("ranges")))
    limits = Thresholds(options.get("min_cos"), options.get("max_rmse")) or DOCUMENTED
    max_images, judges = options.get("max_images", MAX_IMAGES), judges_of(options)
    cure = Path(FOLDER) if options.get("cure") else None
    task = Task(network, fixed, ranges, quant_level, max_images, limits, judges, cure=cure)
    with TemporaryDirectory(prefix="sgsdump_") as folder:
        return diagnosed_in(Path(folder), task, bars(), _untold)


def _untold(lines: Iterable[str]) -> None:
    """Print nothing: in Python, the returned report contains the lines."""


def diagnosed_in(folder: Path, task: Task, progress: Progress, tell: Tell) -> Diagnosed:
    """Diagnose a task.

    ``folder`` holds temporary dumps of layers. ``tell`` is called with the assumptions and warnings before the
    diagnosis starts.
    """
    from sgsdump.errors import ConfigError, listed
    from sgsdump.fixedpoint.reports.graph_files import NetworkGraph
    from sgsdump.fixedpoint.verbs.cured_ways import with_cure
    from sgsdump.models.model import runtime_of

    if task.cure and (task.fixed or task.ranges):
        raise ConfigError("--cure rewrites and recalibrates the float model; leave --fixed and --ranges out")
    of_others = task.fixed is not None and (runtime_of(task.fixed) or is_quantised_by_others(task.fixed))
    if of_others and task.judges.given:
        raise ConfigError(
            f"{listed(task.judges.given)}: available only for INT16 plans, but {task.fixed} was "
            "quantised with another tool; leave the option out"
        )
    if task.fixed is not None and runtime_of(task.fixed):
        native = _native_task(task)
        tell(f"assumed: {sentence}" for sentence in native.assumptions)
        return replace(Diagnosed(*diagnose_native(native, folder, progress)), graph=NetworkGraph(native.model.proto))
    if task.fixed is not None and of_others:
        return diagnosed_quantised(_quantised_task(task, task.fixed), folder, progress)
    found = _diagnosed(folder, task, progress, tell)
    if task.cure is None:
        return found
    judged_by, aims = task.judges.evaluate, (task.quant_level, task.limits)
    return with_cure(found, task.network, aims, judged_by, (folder, task.cure), progress)


def _quantised_task(task: Task, quantised: Path) -> QuantisedTask:
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.sidecars import input_config

    network = task.network
    config = input_config.read(network.input_config) if network.input_config else None
    specs = tuple(graph_inputs(open_model(network.model, network.weight_file).proto))
    feeds = feeds_of(network.source(config), specs)
    return QuantisedTask(network.model, quantised, feeds, task.max_images, task.limits)


def _native_task(task: Task) -> NativeTask:
    from sgsdump.errors import ConfigError
    from sgsdump.models.model import graph_inputs, open_model

    assert task.fixed is not None, "asked of a given model"
    if task.scheduler:
        raise ConfigError(f"--scheduler: {task.fixed} can be run only on this machine; leave --scheduler out")
    network = task.network
    quantised = network.part.of(open_model(task.fixed, native=True))
    model = open_model(network.model, network.weight_file, native=True)
    source, assumed = assumed_source(network, model)
    feeds = feeds_of(source, graph_inputs(model.proto))
    return NativeTask(model, quantised, feeds, task.max_images, task.limits, assumed)


@dataclass(frozen=True, eq=False)
class Judged:
    """The judgement on a fixed model: its outputs, the cause of the output error, and the advice.

    every   images on which the outputs are judged.
    advice  advice for the model as it is; None if nothing could be measured.
    cause   cause to remove before any convolution is raised to INT16.
    root    ``cause`` again, with the error and the advice for the model without this cause.
    worths  the user's metric, and the errors on held-out images; None if neither is requested.
    unseen  errors on images that were not used for calibration or any choice, if there are such images.
    """

    subject: Subject
    every: PicturePairs
    outputs: PlanOutputs
    advice: MeasuredAdvice | None
    cause: RootCause | None
    root: Righted | None
    worths: Worths | None = None
    unseen: Unseen | None = None

    @property
    def advised(self) -> MeasuredAdvice | None:
        """The advice for the model with the cause corrected; without a cause, the advice for the unchanged model."""
        if self.root is None:
            return self.advice
        return self.root.advice or (self.advice and replace(self.advice, promise=None))

    def without_promise(self) -> Judged:
        """Return this judgement with the advised plan removed."""
        doubtful = self.advised and replace(self.advised, promise=None)
        if self.root is None:
            return replace(self, advice=doubtful)
        return replace(self, root=replace(self.root, advice=doubtful))


def _diagnosed(folder: Path, task: Task, progress: Progress, tell: Tell) -> Diagnosed:
    from sgsdump.errors import ValuesError
    from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import over_all
    from sgsdump.fixedpoint.reports.command_reports import diagnosed, report_of_diagnosis
    from sgsdump.fixedpoint.reports.diagnosis import Tried, unseen_step, with_columns, with_findings
    from sgsdump.fixedpoint.reports.diagnosis_verdict import verdict_of_diagnosis
    from sgsdump.fixedpoint.tuning.examined import CONTRADICTED
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.post_processing import to_paste
    from sgsdump.reports.report import Context
    from sgsdump.reports.tensors.views import BUDGET

    metric = task.judges.loaded()
    setting = setting_of(task)
    # Checked before the assumptions are printed: they would only hide an error of the data or the model.
    feeds = task.judges.feeds(setting.opened(task.network))
    subject, warnings = _prepared(task, setting, feeds, progress, tell)
    judged = _judged(task, setting, subject, feeds, progress)
    if metric is not None or feeds.held_out is not None:
        judged = _weighed(judged, task.limits, metric, feeds, progress)
    judged = _on_unseen(judged, feeds, task, progress)

    pairs = replace(judged.every, chosen=worst_of(list(judged.outputs.pictures.values()), task.max_images))
    compared = over_all(_each_compared(task, subject, pairs, folder, progress), pairs.labels, progress)
    comparison = compared.comparison
    if not comparison.rows:
        why = f": {comparison.failed[0].reason}" if comparison.failed else "; was the fixed model made from this model?"
        raise ValuesError(f"no layer of {task.network.model} could be compared{why}")
    tried = Tried(_with_advice(judged, pairs, folder, progress), judged.worths, judged.unseen)

    found = diagnosed(subject, judged.outputs, judged.advice, compared, task.limits, judged.root)
    diagnosis = replace(found, tried=tried)
    context = Context(
        f"{task.network.model.name} in fixed point",
        facts=facts_of(task, feeds, pairs),
        assumptions=[*setting.assumed, *setting.cut_note, *warnings, *subject.notes],
        page_budget=BUDGET,
    )
    assumed = (*setting.assumed, *setting.cut_note, *subject.notes)
    verdict = verdict_of_diagnosis(diagnosis, comparison, assumed)
    verdict = replace(verdict, agreement=_agreement(judged, task.judges, progress))
    report = report_of_diagnosis(subject, compared, diagnosis, context, verdict)
    # arrays need no preprocessing; for images only the user's own file defines it
    preprocessed = bool(task.network.preprocess) or not any(entry.is_picture for entry in setting.config.inputs)
    steps = (*report.next_steps, *_room_step(judged.advised), *unseen_step(diagnosis, preprocessed))
    report = replace(report, view=replace(report.view, worst=_worst_picture(judged)), next_steps=steps)
    add = {"csv": with_columns, "json": with_findings}
    files = {
        "csv": REPORTS["csv"](comparison, diagnosis.limits),
        "json": REPORTS["json"](comparison, diagnosis.limits, verdict),
    }
    texts = {f"layers.{kind}": add[kind](text, diagnosis) for kind, text in files.items()}
    given = setting.config if task.network.input_config else None
    paste = () if setting.model.cut is None else tuple(to_paste(setting.model.cut, given))
    at_level = _advised_model(judged) if diagnosis.advises_level else None
    write = partial(_write_model, subject, setting.ini, judged.advised, at_level)
    agrees = judged.cause is None or judged.cause.finding.facts.get("by") not in CONTRADICTED
    return Diagnosed(
        report,
        comparison,
        bool(verdict.passes),
        texts,
        verdict,
        paste,
        diagnosis.columns,
        tuple(pairs.indices),
        _graph(subject),
        agrees,
        write,
    )


def _agreement(judged: Judged, judges: Judges, progress: Progress) -> Agreement | None:
    """Return how many answers of the fixed model agree with the float model; None if the count was not requested."""
    from sgsdump.fixedpoint.tuning.worth import agreement

    if not judges.counts_agreement or not judged.outputs.outputs:
        return None
    return agreement(judged.subject.float_model, judged.subject.fixed_model.proto, judged.every, progress)


def _prepared(
    task: Task, setting: Setting, judging: JudgingFeeds, progress: Progress, tell: Tell
) -> tuple[Subject, list[str]]:
    """Test the models on the first image. Return the models, and the warnings that were passed to ``tell``."""
    from sgsdump.fixedpoint.quantisation.fixed_model import check_that_it_runs, rehearse
    from sgsdump.fixedpoint.quantisation.float_model import disagreements
    from sgsdump.models.feeds.by_content import coverage_warnings

    feeds, coverage = judging.calibrated, judging.coverage
    first = feeds[0]
    _ = feeds.both(0)  # raises now if the feed has no pixels for the fixed model
    if setting.fixed is None and task.ranges is None:
        rehearse(setting.model, first, setting.config)
    warnings = [*setting.warnings, *disagreements(setting.model, feeds), *coverage_warnings(coverage)]
    tell(f"assumed: {sentence}" for sentence in setting.assumed)
    tell(f"warning: {sentence}" for sentence in warnings)
    tell(f"note: {sentence}" for sentence in setting.cut_note)
    subject = subject_of(task, setting, feeds, progress)
    tell(subject.notes)
    check_that_it_runs(setting.model, subject.fixed_model.proto, setting.config, first[1])
    return subject, warnings


def _judged(task: Task, setting: Setting, subject: Subject, feeds: JudgingFeeds, progress: Progress) -> Judged:
    from sgsdump.fixedpoint.tuning.examined import Examined
    from sgsdump.fixedpoint.tuning.measured_advice import judge, measure, with_causes
    from sgsdump.fixedpoint.tuning.root_causes import root_cause
    from sgsdump.models.feeds.by_content import PicturePairs

    every = PicturePairs(feeds.judges)
    few = replace(every, most=MEASURED)
    outputs, advice = judge(subject, measure(subject, few, progress), every, task.limits, progress)
    advice = advice and with_causes(advice, every, progress)
    examined = Examined(
        subject,
        feeds.judges,
        every,
        few,
        outputs,
        advice,
        task.limits,
        level=task.quant_level if subject.made else "L2" if subject.per_channel else "L1",
        preprocessed=preprocessed(task, setting),
        told=setting.told if task.network.input_config else None,
        others=feeds.evaluated is not None,
    )
    cause = root_cause(examined, progress)
    return Judged(subject, every, outputs, advice, cause, _righted(cause, task.limits, progress))


def _graph(subject: Subject) -> NetworkGraph:
    from sgsdump.fixedpoint.quantisation.analysis import analyse
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.fixedpoint.reports.graph_files import NetworkGraph

    operators = analyse(deployed(subject.float_model)).operators
    return NetworkGraph(
        subject.float_model.proto,
        {name: op.outputs[0] for op in operators if op.outputs for node in op.nodes for name in node.output if name},
    )


def _with_advice(judged: Judged, pairs: PicturePairs, folder: Path, progress: Progress) -> Comparison | None:
    """Apply the advice to the fixed model and compare every layer; return None if there is no advice."""
    from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import PictureComparer, each_compared, over_all

    fixed, cause = _advised_model(judged), judged.cause
    if fixed is None:
        return None
    if cause is not None and cause.pairs is not None:
        pairs = replace(cause.pairs, chosen=pairs.chosen)
    float_model = judged.subject.float_model if cause is None or cause.cured is None else cause.cured.float_model
    comparer = PictureComparer(float_model, fixed, folder, details=False)
    return over_all(each_compared(comparer, pairs), pairs.labels, progress).comparison


def _advised_model(judged: Judged) -> Model | None:
    """Return the fixed model with the cause removed and the advice applied; None if nothing can be changed."""
    from sgsdump.fixedpoint.tuning.measured_advice import fixed_with

    subject, advice, cause, root = judged.subject, judged.advice, judged.cause, judged.root
    if cause is not None:
        if cause.cured is None or cause.pairs is None or root is None:
            return None
        subject, advice = cause.cured, root.advice
    if advice is not None and (advice.promise is not None or advice.per_channel is not None):
        proto = fixed_with(advice.measured, advice.names, advice.per_channel is not None, room=advice.has_room)
        return replace(subject.fixed_model, proto=proto)
    return None if cause is None else subject.fixed_model


def _weighed(
    judged: Judged, limits: Thresholds, metric: UserMetric | None, feeds: JudgingFeeds, progress: Progress
) -> Judged:
    """Add the metric and the output errors of three fixed models on the judging and the held-out images.

    The three models are the unchanged model, the model with the advised changes, and the model with all convolutions at
    INT16.

    If the recommended plan is much worse on held-out images than on the judging images, the plan is no longer
    recommended.
    """
    from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
    from sgsdump.fixedpoint.tuning.worth import Weighed, worths_of
    from sgsdump.models.feeds.by_content import PicturePairs

    subject, advised, held_out = judged.subject, judged.advised, feeds.held_out
    fixed = {kind: candidate.proto for kind, candidate in _candidates(judged, feeds).items()}
    spans = {name: bounds.at(INT16).high - bounds.at(INT16).low for name, bounds in subject.ranges.items()}
    weighed = Weighed(subject.float_model, fixed, lambda outputs: outputs.good(limits), metric, spans)
    held = None if held_out is None else PicturePairs(held_out)
    worths = worths_of(weighed, judged.every, held, advised.config_names if advised is not None else (), progress)
    judged = replace(judged, worths=worths)
    return judged.without_promise() if worths.beyond else judged


def _candidates(judged: Judged, feeds: JudgingFeeds) -> dict[str, Candidate]:
    """Return the fixed models to judge: unchanged, with the advised changes, and with every convolution at INT16."""
    from sgsdump.fixedpoint.tuning.worth import ALL_16, AS_IT_IS, PLAN
    from sgsdump.fixedpoint.verbs.diagnose_unseen import as_it_is, planned
    from sgsdump.models.feeds.feeds import ChosenFeeds

    subject, advised, calibrated = judged.subject, judged.advised, feeds.calibrated
    found = {AS_IT_IS: as_it_is(subject, calibrated)}
    if advised is None:
        return found
    measured, cause = advised.measured, judged.cause
    if cause is not None and cause.pairs is not None and len(cause.pairs) < len(judged.every):
        calibrated = ChosenFeeds(cause.pairs.feeds, cause.pairs.indices)
    changed = advised.promise is not None or advised.per_channel is not None or advised.has_room
    if changed or measured.subject is not subject:
        found[PLAN] = planned(advised, calibrated)
    if measured.every not in (measured.raised, advised.names):
        found[ALL_16] = planned(advised, calibrated, measured.every)
    return found


def _on_unseen(judged: Judged, feeds: JudgingFeeds, task: Task, progress: Progress) -> Judged:
    """Add the expected errors on unseen images; remove the advised plan if the plan increases these errors."""
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.tuning.unseen import Run, Unseen
    from sgsdump.fixedpoint.tuning.worth import ALL_16, AS_IT_IS, PLAN
    from sgsdump.fixedpoint.verbs.diagnose_unseen import in_folds, on_images

    if not judged.outputs.outputs:
        return judged
    if judged.worths is not None and judged.worths.held:
        held = {k: Run(worth.outputs) for k, worth in judged.worths.held.items() if worth.outputs is not None}
        return replace(judged, unseen=Unseen(held))
    candidates = _candidates(judged, feeds)
    if judged.advised is None or judged.advised.promise is None:
        candidates.pop(ALL_16, None)
    if feeds.unseen is not None:
        if judged.root is not None:  # removing the cause may have recalibrated on these images
            candidates = {AS_IT_IS: candidates[AS_IT_IS]}
        return replace(judged, unseen=on_images(candidates, feeds.unseen, progress))
    unseen = in_folds(candidates, task.quant_level, Workers(scheduler=task.scheduler), progress)
    judged = replace(judged, unseen=unseen)
    refused = unseen is not None and PLAN in unseen.ran and unseen.ran[PLAN].worse_than(unseen.ran[AS_IT_IS])
    return judged.without_promise() if refused else judged


def _worst_picture(judged: Judged) -> WorstPicture | None:
    """Return the outputs on the image with the largest error. Both models run again on this image."""
    from sgsdump.fixedpoint.quantisation.float_model import first_picture
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs, FloatOutputs
    from sgsdump.reports.worst_picture import worst_picture

    subject, outputs = judged.subject, judged.outputs
    errors = [error if error == error else float("inf") for error in outputs.pictures.values()]
    if not errors or not max(errors) > 0:
        return None
    picture = judged.every.make(errors.index(max(errors)))
    names = list(outputs.outputs)
    floats = FloatOutputs(subject.float_model, names).run(picture.label, picture.feed)
    fixed = FixedOutputs(subject.float_model, subject.fixed_model.proto, names).run(picture.feed, picture.raw)
    pixels = first_picture(subject.float_model, subject.config, subject.ranges, picture.raw)
    return worst_picture(picture.label, floats, fixed, pixels)


def _righted(root: RootCause | None, limits: Thresholds, progress: Progress) -> Righted | None:
    """Return the cause, with the output errors and the advice for the model in which the cause is corrected."""
    from sgsdump.fixedpoint.reports.root_causes import Righted
    from sgsdump.fixedpoint.tuning.measured_advice import judge, measure

    if root is None or root.cured is None or root.pairs is None:
        return None if root is None else Righted(root.finding)
    few = replace(root.pairs, most=MEASURED, chosen=root.pairs.chosen[:MEASURED])
    outputs, advice = judge(root.cured, measure(root.cured, few, progress), root.pairs, limits, progress)
    return Righted(root.finding, outputs, advice)


def _each_compared(
    task: Task, subject: Subject, pairs: PicturePairs, folder: Path, progress: Progress
) -> Iterator[Compared]:
    from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import (
        PictureComparer,
        compared_on_cluster,
        each_compared,
    )

    models = subject.float_model, subject.fixed_model
    if task.scheduler:
        return compared_on_cluster(*models, pairs, task.scheduler, folder, progress)
    return each_compared(PictureComparer(*models, folder), pairs)


def worst_of(errors: list[float], most: int) -> tuple[int, ...]:
    """Return the indices of the images with the largest output errors (at most ``most``), in ascending order."""
    ranked = sorted(range(len(errors)), key=lambda index: -errors[index])
    return tuple(sorted(ranked[:most]))


def _room_step(advice: MeasuredAdvice | None) -> Iterator[Step]:
    from sgsdump.reports.verdict import Step

    if advice is not None and advice.has_room:
        yield Step(
            "For unseen images, calibrate with --quant-file advised.quant.json of the folder (the SDK takes "
            "advised.quant.pkl): the same plan, with INT16 ranges at least 50 % wider."
        )


def _roomy_params(advice: MeasuredAdvice) -> list[QuantParam]:
    """Return the quant file of the advised plan, with INT16 ranges widened for unseen images."""
    from sgsdump.fixedpoint.curing.ranges import params_of
    from sgsdump.fixedpoint.tuning.measured_advice import fixed_with, roomy_ranges

    subject, per_channel = advice.measured.subject, advice.per_channel is not None
    proto = fixed_with(advice.measured, advice.names, per_channel, room=True)
    ranges = roomy_ranges(subject, per_channel or subject.weights_per_channel)
    return params_of(replace(subject.fixed_model, proto=proto), subject.float_model, ranges)


def _write_model(
    subject: Subject, ini: bytes, advice: MeasuredAdvice | None, at_level: Model | None, folder: Path
) -> None:
    """Write input_config.ini with the advice, and the models and ranges that ``diagnose`` made."""
    from sgsdump.files.atomic_write import make_folder
    from sgsdump.fixedpoint.curing.cure import ranges_beside
    from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log
    from sgsdump.fixedpoint.quantisation.float_model import serialise
    from sgsdump.fixedpoint.reports.root_causes import ADVISED
    from sgsdump.sidecars import quant_param
    from sgsdump.sidecars.input_config import with_tensor_arrays

    names = advice.config_names if advice is not None else subject.config.tensor_arrays
    if advice is not None and advice.has_room:
        json, pickle = ranges_beside(folder / ADVISED)
        params = _roomy_params(advice)
        quant_param.write(params, json)
        quant_param.write(params, pickle, "pickle")
    (folder / "input_config.ini").write_bytes(with_tensor_arrays(ini, names))
    if at_level is not None:
        (folder / ADVISED).write_bytes(serialise(at_level.proto))
    if subject.made is not None:
        (folder / "fixed.onnx").write_bytes(serialise(subject.fixed_model.proto))
        log_options = LogOptions(weights=subject.per_channel)
        write_log(make_folder(folder / "log"), subject.float_model, *subject.made, log_options)
