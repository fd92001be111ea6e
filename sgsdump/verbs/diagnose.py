"""``diagnose``: where a network loses accuracy in fixed point, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sgsdump.verbs.diagnose_native import NativeTask, diagnose_native
from sgsdump.verbs.diagnosed import Diagnosed
from sgsdump.verbs.judges import JudgedBy, Judges, judges_of
from sgsdump.verbs.network import (
    Beside,
    Network,
    OpenNetwork,
    assumed_source,
    beside_of,
    feeds_of,
    named_network,
    open_network,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.merge import Compared
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.models.feeds.feeds import Feeds, LabelledFeed
    from sgsdump.models.input_spec import InputSpec
    from sgsdump.models.model import Model
    from sgsdump.progress import Progress
    from sgsdump.quantisation.diagnosis.picture_pairs import PicturePairs
    from sgsdump.quantisation.diagnosis.subject import Subject
    from sgsdump.quantisation.trials.integer_outputs import PlanOutputs
    from sgsdump.reports.graph_files import NetworkGraph
    from sgsdump.reports.quantised_diagnosis import QuantisedDiagnosis
    from sgsdump.reports.report import Context
    from sgsdump.reports.root_causes import Righted
    from sgsdump.reports.worst_picture import WorstPicture
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tuning.criteria import UserMetric
    from sgsdump.tuning.examined import RootCause
    from sgsdump.tuning.measured_advice import MeasuredAdvice
    from sgsdump.tuning.worth import Weighed
    from sgsdump.verbs.judges import JudgingFeeds
    from sgsdump.verbs.network import Data

PICTURES, FOLDER = 10, "diagnosis"
# Sensitivities are measured on this many of them, and what each tensor that others quantised does to the outputs.
MEASURED, MEASURED_OF_OTHERS = 4, 2

Tell = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class Task:
    """What to diagnose.

    fixed      the fixed model, of calibrate or of others; None: it is made.
    ranges     what it is made of in place of a calibration.
    pictures   layers are compared on at most so many, those whose outputs are furthest off.
    judges     pictures to judge by in place of those of the network, and pictures held out; the user's metric.
    scheduler  of a Dask cluster that calibrates and compares.
    cure       say first what curing brings in 8 bits, and what is to be done with the models in this folder.
    """

    network: Network
    fixed: Path | None
    ranges: Path | None
    quant_level: str
    pictures: int
    limits: Thresholds
    judges: Judges
    scheduler: str | None = None
    cure: Path | None = None


class DiagnoseOptions(Beside, JudgedBy, total=False):
    """What a diagnosis is asked for; see also ``JudgedBy``.

    fixed     a fixed model, of ``calibrate`` or quantised by others (ONNX: QDQ, QOperator; TFLite, OpenVINO).
    ranges    a ``tensor_min_max.txt`` or a quant file, in place of calibrating.
    pictures  compare layers on at most so many, those whose outputs are furthest off (10).
    min_cos, max_rmse  what the outputs and layers must hold; without both the documented limits, 0.99 and 0.1.
    cure      say first what curing brings in 8 bits; takes minutes.
    """

    fixed: str | Path | None
    ranges: str | Path | None
    pictures: int
    min_cos: float | None
    max_rmse: float | None
    cure: bool


def diagnose(
    model: str | Path, data: Data, *, quant_level: str = "L5", **options: Unpack[DiagnoseOptions]
) -> Diagnosed:
    """Where a network loses accuracy in fixed point, and what to do about it; as ``sgsdump diagnose``.

    model, data  as of ``calibrate``; without ``input_config`` one is assumed, and ``found.report`` says so.
    options      see ``DiagnoseOptions``; and what stands beside a model, see ``calibrate``.

    Raises SgsdumpError: what cannot be read, fed, run or compared.
    """
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.verbs.bars import bars

    network = named_network(model, data, beside_of(options, DiagnoseOptions))
    fixed, ranges = (Path(path) if path else None for path in (options.get("fixed"), options.get("ranges")))
    limits = Thresholds(options.get("min_cos"), options.get("max_rmse")) or DOCUMENTED
    pictures, judges = options.get("pictures", PICTURES), judges_of(options)
    cure = Path(FOLDER) if options.get("cure") else None
    task = Task(network, fixed, ranges, quant_level, pictures, limits, judges, cure=cure)
    with TemporaryDirectory(prefix="sgsdump_") as folder:
        return diagnosed_in(Path(folder), task, bars(), _untold)


def _untold(lines: Iterable[str]) -> None:
    """In Python the report says it."""


def diagnosed_in(folder: Path, task: Task, progress: Progress, tell: Tell) -> Diagnosed:
    """``folder`` is for what is written while layers are compared; ``tell`` gets what is assumed, before the work."""
    from sgsdump.errors import ConfigError, listed
    from sgsdump.models.model import runtime_of
    from sgsdump.reports.graph_files import NetworkGraph
    from sgsdump.verbs.cured_ways import with_cure

    if task.cure and (task.fixed or task.ranges):
        raise ConfigError("--cure rewrites the float model and calibrates it anew; leave --fixed and --ranges out")
    of_others = task.fixed is not None and (runtime_of(task.fixed) or is_quantised_by_others(task.fixed))
    if of_others and task.judges.given:
        raise ConfigError(
            f"{listed(task.judges.given)}: plans of INT16 are judged so, and {task.fixed}, which others quantised, has "
            f"none; leave it out"
        )
    if task.fixed is not None and runtime_of(task.fixed):
        native = _native_task(task)
        tell(f"assumed: {sentence}" for sentence in native.assumptions)
        return replace(Diagnosed(*diagnose_native(native, folder, progress)), graph=NetworkGraph(native.model.proto))
    if task.fixed is not None and of_others:
        return _diagnosed_quantised(_quantised_task(task, task.fixed), folder, progress)
    found = _diagnosed(folder, task, progress, tell)
    if task.cure is None:
        return found
    judged_by, aims = task.judges.evaluate, (task.quant_level, task.limits)
    return with_cure(found, task.network, aims, judged_by, (folder, task.cure), progress)


def _diagnosed(folder: Path, task: Task, progress: Progress, tell: Tell) -> Diagnosed:
    from sgsdump.errors import ValuesError
    from sgsdump.quantisation.diagnosis.compared_pictures import over_all
    from sgsdump.quantisation.diagnosis.picture_pairs import PicturePairs
    from sgsdump.quantisation.fixed_model import check_that_it_runs, rehearse
    from sgsdump.quantisation.pictures import disagreements
    from sgsdump.reports.command_reports import diagnosed, report_of_diagnosis
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.diagnosis import Tried, with_columns, with_findings
    from sgsdump.reports.post_processing import to_paste
    from sgsdump.reports.report import Context
    from sgsdump.tuning.examined import Examined
    from sgsdump.tuning.measured_advice import judge, measure
    from sgsdump.tuning.root_causes import root_cause
    from sgsdump.tuning.worth import worths_of

    metric = task.judges.loaded()
    setting = _setting(task)
    # Before anything is told: data that does not fit, and a network that does not run on the first picture, or cannot
    # be quantised, need no assumptions.
    given_feeds = task.judges.feeds(setting.opened(task.network))
    feeds, judging = given_feeds.calibrated, given_feeds.judges
    first = feeds[0]
    if setting.fixed is None and task.ranges is None:
        rehearse(setting.model, first, setting.config)
    warnings = [*setting.warnings, *disagreements(setting.model, feeds)]
    tell(f"assumed: {sentence}" for sentence in setting.assumed)
    tell(f"warning: {sentence}" for sentence in warnings)
    tell(f"note: {sentence}" for sentence in setting.cut_note)
    subject = _subject(task, setting, feeds, progress)
    tell(subject.notes)
    check_that_it_runs(setting.model, subject.fixed_model.proto, setting.config, first[1])
    every = PicturePairs(judging)
    few = replace(every, most=MEASURED)
    outputs, advice = judge(subject, measure(subject, few, progress), every, task.limits, progress)
    level = task.quant_level if subject.made else "L2" if subject.per_channel else "L1"
    preprocessed = _preprocessed(task, setting)
    told = setting.told if task.network.input_config else None
    others = given_feeds.evaluated is not None
    examined = Examined(subject, judging, every, few, outputs, advice, task.limits, level, preprocessed, told, others)
    cause = root_cause(examined, progress)
    root = _righted(cause, task.limits, progress)
    advised = advice if root is None else root.advice or (advice and replace(advice, promise=None))
    worths = None
    if metric is not None or given_feeds.held_out is not None:
        held = None if given_feeds.held_out is None else PicturePairs(given_feeds.held_out)
        weighed = _weighed(subject, advised, task.limits, metric)
        worths = worths_of(weighed, every, held, advised.config_names if advised is not None else (), progress)
    if worths is not None and worths.beyond and advised is not None:
        advised = replace(advised, promise=None)
        advice = advised if root is None else advice
        root = None if root is None else replace(root, advice=advised)
    pairs = replace(every, chosen=worst_of(list(outputs.pictures.values()), task.pictures))
    compared = over_all(_each_compared(task, subject, pairs, folder, progress), pairs.labels, progress)
    comparison = compared.comparison
    if not comparison.rows:
        why = f": {comparison.failed[0].reason}" if comparison.failed else "; was the fixed model made of this net?"
        raise ValuesError(f"no layer of {task.network.model} could be compared{why}")
    as_it_is, put_right = (subject, advice), (cause, root)
    tried = Tried(_with_advice(as_it_is, put_right, pairs, folder, progress), worths)
    diagnosis = replace(diagnosed(subject, outputs, advice, compared, task.limits, root), tried=tried)
    context = Context(
        f"{task.network.model.name} in fixed point",
        facts=_facts(task, given_feeds, pairs),
        assumptions=[*setting.assumed, *setting.cut_note, *warnings, *subject.notes],
    )
    report = report_of_diagnosis(subject, compared, diagnosis, context)
    report = replace(report, view=replace(report.view, worst=_worst_picture(subject, outputs, every)))
    add = {"csv": with_columns, "json": with_findings}
    texts = {f"layers.{kind}": add[kind](REPORTS[kind](comparison, diagnosis.limits), diagnosis) for kind in add}
    passes = diagnosis.passes and not comparison.failed
    given = setting.config if task.network.input_config else None
    paste = () if setting.model.cut is None else tuple(to_paste(setting.model.cut, given))
    at_level = _advised_model(as_it_is, put_right) if diagnosis.advises_level else None
    write = partial(_write_model, subject, setting.ini, advised, at_level)
    return Diagnosed(
        report, comparison, passes, texts, paste, diagnosis.columns, tuple(pairs.indices), _graph(subject), write
    )


def _graph(subject: Subject) -> NetworkGraph:
    from sgsdump.quantisation.analysis import analyse
    from sgsdump.quantisation.float_model import deployed
    from sgsdump.reports.graph_files import NetworkGraph

    operators = analyse(deployed(subject.float_model)).operators
    return NetworkGraph(
        subject.float_model.proto,
        {name: op.outputs[0] for op in operators if op.outputs for node in op.nodes for name in node.output if name},
    )


def _with_advice(
    as_it_is: tuple[Subject, MeasuredAdvice | None],
    root: tuple[RootCause | None, Righted | None],
    pairs: PicturePairs,
    folder: Path,
    progress: Progress,
) -> Comparison | None:
    """Every layer on the same pictures with the cause put right and what is advised; None where neither is."""
    from sgsdump.quantisation.diagnosis.compared_pictures import PictureComparer, each_compared, over_all

    fixed, cause = _advised_model(as_it_is, root), root[0]
    if fixed is None:
        return None
    if cause is not None and cause.pairs is not None:
        pairs = replace(cause.pairs, chosen=pairs.chosen)
    float_model = as_it_is[0].float_model if cause is None or cause.cured is None else cause.cured.float_model
    comparer = PictureComparer(float_model, fixed, folder, details=False)
    return over_all(each_compared(comparer, pairs), pairs.labels, progress).comparison


def _advised_model(
    as_it_is: tuple[Subject, MeasuredAdvice | None], root: tuple[RootCause | None, Righted | None]
) -> Model | None:
    """The fixed model with the cause put right and what is advised; None where neither is."""
    from sgsdump.tuning.measured_advice import fixed_with

    (subject, advice), (cause, righted) = as_it_is, root
    if cause is not None:
        if cause.cured is None or cause.pairs is None or righted is None:
            return None
        subject, advice = cause.cured, righted.advice
    if advice is not None and (advice.promise is not None or advice.per_channel is not None):
        proto = fixed_with(advice.measured, advice.names, advice.per_channel is not None)
        return replace(subject.fixed_model, proto=proto)
    return None if cause is None else subject.fixed_model


def _weighed(
    subject: Subject, advised: MeasuredAdvice | None, limits: Thresholds, metric: UserMetric | None
) -> Weighed:
    """The fixed model as it is, with what is advised, and with every convolution at 16 bits."""
    from sgsdump.quantisation.scales import INT16
    from sgsdump.tuning.measured_advice import fixed_with
    from sgsdump.tuning.worth import ALL_16, AS_IT_IS, PLAN, Weighed

    fixed = {AS_IT_IS: subject.fixed_model.proto}
    if advised is not None:
        measured = advised.measured
        if advised.promise is not None:
            fixed[PLAN] = fixed_with(measured, advised.promise.names)
        elif measured.subject is not subject:
            fixed[PLAN] = measured.subject.fixed_model.proto
        if measured.every not in (measured.raised, advised.names):
            fixed[ALL_16] = fixed_with(measured, measured.every)
    spans = {name: bounds.at(INT16).high - bounds.at(INT16).low for name, bounds in subject.ranges.items()}
    return Weighed(subject.float_model, fixed, lambda outputs: outputs.good(limits), metric, spans)


def _worst_picture(subject: Subject, outputs: PlanOutputs, every: PicturePairs) -> WorstPicture | None:
    """What the outputs say on the picture with the largest error, by one run more of each model."""
    from sgsdump.quantisation.pictures import first_picture
    from sgsdump.quantisation.trials.integer_outputs import FixedOutputs, FloatOutputs
    from sgsdump.reports.worst_picture import worst_picture

    errors = [error if error == error else float("inf") for error in outputs.pictures.values()]
    if not errors or not max(errors) > 0:
        return None
    picture = every.make(errors.index(max(errors)))
    names = list(outputs.outputs)
    floats = FloatOutputs(subject.float_model, names).run(picture.label, picture.feed)
    fixed = FixedOutputs(subject.float_model, subject.fixed_model.proto, names).run(picture.feed, picture.raw)
    pixels = first_picture(subject.float_model, subject.config, subject.ranges, picture.raw)
    return worst_picture(picture.label, floats, fixed, pixels)


def _preprocessed(task: Task, setting: Setting) -> InputConfig | None:
    """The pictures as the user's preprocess file makes them, where there is one beside an input_config.ini."""
    from sgsdump.errors import SgsdumpError
    from sgsdump.models.feeds.feeds import expand
    from sgsdump.quantisation.assumed_config import assume_config

    network = task.network
    if not network.preprocess or not network.input_config or not network.image:
        return None
    run = expand(network.image, len(setting.specs))[0]
    try:
        return assume_config(setting.specs, (), network.preprocess, run).config
    except SgsdumpError:  # the file takes the user's pictures, and not what it is tried on to tell
        return None


def _righted(root: RootCause | None, limits: Thresholds, progress: Progress) -> Righted | None:
    """The cause, with what is left once it is put right."""
    from sgsdump.reports.root_causes import Righted
    from sgsdump.tuning.measured_advice import judge, measure

    if root is None or root.cured is None or root.pairs is None:
        return None if root is None else Righted(root.finding)
    few = replace(root.pairs, most=MEASURED, chosen=root.pairs.chosen[:MEASURED])
    outputs, advice = judge(root.cured, measure(root.cured, few, progress), root.pairs, limits, progress)
    return Righted(root.finding, outputs, advice)


def _quantised_task(task: Task, quantised: Path) -> QuantisedTask:
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.sidecars import input_config

    network = task.network
    config = input_config.read(network.input_config) if network.input_config else None
    specs = tuple(graph_inputs(open_model(network.model, network.weight_file).proto))
    feeds = feeds_of(network.source(config), specs)
    return QuantisedTask(network.model, quantised, feeds, task.pictures, task.limits)


def _native_task(task: Task) -> NativeTask:
    from sgsdump.errors import ConfigError
    from sgsdump.models.model import graph_inputs, open_model

    assert task.fixed is not None, "asked of a given model"
    if task.scheduler:
        raise ConfigError(f"--scheduler: {task.fixed} is run here; leave it out")
    network = task.network
    quantised = network.part.of(open_model(task.fixed, native=True))
    model = open_model(network.model, network.weight_file, native=True)
    source, assumed = assumed_source(network, model)
    feeds = feeds_of(source, graph_inputs(model.proto))
    return NativeTask(model, quantised, feeds, task.pictures, task.limits, assumed)


@dataclass(frozen=True, eq=False)
class Setting:
    """The facts before any picture is run. ``fixed``: of --fixed; ``told``: as input_config.ini has it."""

    model: Model
    config: InputConfig
    ini: bytes
    assumed: tuple[str, ...] = ()
    fixed: Subject | None = None
    warnings: tuple[str, ...] = ()
    told: InputConfig | None = None

    def opened(self, network: Network) -> OpenNetwork:
        source = network.source(self.config)
        return OpenNetwork(self.model, self.config, self.ini, source, self.assumed, self.warnings)

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        from sgsdump.models.model import graph_inputs

        return tuple(graph_inputs(self.model.proto))

    @property
    def cut_note(self) -> tuple[str, ...]:
        """The notes on a network cut before its post-processing, and on its branches."""
        from sgsdump.reports.post_processing import cut_sentence

        cut = () if self.model.cut is None else (cut_sentence(self.model.cut),)
        return (*cut, *(self.model.branches.sentences() if self.model.branches else ()))


def _setting(task: Task) -> Setting:
    """Raises what reading the model and the files beside it raises."""
    from sgsdump.quantisation.assumed_config import ini_text
    from sgsdump.quantisation.diagnosis.subject import given_fixed

    network, path = task.network, task.fixed
    opened = open_network(network, task.quant_level, guesses=True)
    config, ini, assumed = opened.config, opened.ini, opened.assumed
    fixed = given_fixed(opened.model, path, config if network.input_config else None) if path else None
    if fixed is not None:
        config = fixed.config
        if not network.input_config:
            ini, assumed = ini_text(config).encode(), ()
    return Setting(opened.model, config, ini, assumed, fixed, opened.warnings, opened.config)


def _subject(task: Task, setting: Setting, feeds: Feeds, progress: Progress) -> Subject:
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.quantisation.diagnosis.subject import calibrated, of_ranges

    if setting.fixed is not None:
        return setting.fixed
    if task.ranges:
        return of_ranges(setting.model, task.ranges, setting.config)
    workers = Workers(scheduler=task.scheduler)
    return calibrated(setting.model, feeds, setting.config, task.quant_level, progress, workers)


def _each_compared(
    task: Task, subject: Subject, pairs: PicturePairs, folder: Path, progress: Progress
) -> Iterator[Compared]:
    from sgsdump.quantisation.diagnosis.compared_pictures import PictureComparer, compared_on_cluster, each_compared

    models = subject.float_model, subject.fixed_model
    if task.scheduler:
        return compared_on_cluster(*models, pairs, task.scheduler, progress)
    return each_compared(PictureComparer(*models, folder), pairs)


def _facts(task: Task, given: JudgingFeeds, pairs: PicturePairs) -> list[tuple[str, str]]:
    from sgsdump.reports.made_by import versions

    feeds, judging = given.calibrated, given.judges
    facts = [("float model", str(task.network.model))]
    if task.fixed:
        facts.append(("fixed model", str(task.fixed)))
    elif task.ranges:
        facts.append(("ranges", str(task.ranges)))
    else:
        facts.append(("calibrated on", f"{len(feeds)} of {task.network.data}, level {task.quant_level}"))
    if given.evaluated is not None:
        facts.append(("judged on", f"{len(judging)} of {task.judges.texts[0]}"))
    if given.held_out is not None:
        facts.append(("held out", f"{len(given.held_out)} of {task.judges.texts[1]}"))
    which = "" if len(pairs) == len(judging) else ", those whose outputs are furthest off"
    facts.append(("layers compared on", f"{len(pairs)}{which}: {', '.join(pairs.labels)}"))
    if task.network.input_config:
        facts.append(("input_config", str(task.network.input_config)))
    return [*facts, versions()]


def worst_of(errors: list[float], most: int) -> tuple[int, ...]:
    """The indices of the pictures whose outputs are furthest off, in the pictures' order."""
    ranked = sorted(range(len(errors)), key=lambda index: -errors[index])
    return tuple(sorted(ranked[:most]))


def _write_model(
    subject: Subject, ini: bytes, advice: MeasuredAdvice | None, at_level: Model | None, folder: Path
) -> None:
    """input_config.ini as it should be; the fixed model and its ranges where they were made here, and the fixed model
    of the level that is advised."""
    from sgsdump.files.atomic_write import make_folder
    from sgsdump.quantisation.calibration_log import LogOptions, write_log
    from sgsdump.quantisation.float_model import serialise
    from sgsdump.reports.root_causes import ADVISED
    from sgsdump.sidecars.input_config import with_tensor_arrays

    names = advice.config_names if advice is not None else subject.config.tensor_arrays
    (folder / "input_config.ini").write_bytes(with_tensor_arrays(ini, names))
    if at_level is not None:
        (folder / ADVISED).write_bytes(serialise(at_level.proto))
    if subject.made is not None:
        (folder / "fixed.onnx").write_bytes(serialise(subject.fixed_model.proto))
        log_options = LogOptions(weights=subject.per_channel)
        write_log(make_folder(folder / "log"), subject.float_model, *subject.made, log_options)


@dataclass(frozen=True)
class QuantisedTask:
    """What to diagnose: the models' paths, the inputs and how many of these layers are compared on."""

    model: Path
    quantised: Path
    feeds: Sequence[LabelledFeed]
    most: int
    limits: Thresholds


def is_quantised_by_others(path: Path) -> bool:
    """Whether a file is an ONNX model with operators that quantise, and not made by ``sgsdump calibrate``. Raises what
    opening the model raises."""
    from sgsdump.models.model import open_model
    from sgsdump.models.quantised_model import QuantisedModel
    from sgsdump.quantisation.fixed_facts import is_fixed

    model = open_model(path)
    return not is_fixed(model) and QuantisedModel(model.proto).is_quantised


def _diagnosed_quantised(task: QuantisedTask, folder: Path, progress: Progress) -> Diagnosed:
    """Of a network that others quantised: no ranges, no chip."""
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.models.model import open_model
    from sgsdump.quantisation.others.compared import compared_networks
    from sgsdump.quantisation.others.link import QuantisedPair, float_proto
    from sgsdump.quantisation.others.quantisers import quantiser_of
    from sgsdump.quantisation.others.trial import SwitchedNetwork
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.graph_files import NetworkGraph
    from sgsdump.reports.quantised_diagnosis import (
        QuantisedDiagnosis,
        quantised_csv,
        report_of_quantised,
        with_findings,
    )
    from sgsdump.reports.worst_picture import worst_input
    from sgsdump.tuning.exclusions import ExclusionTrial

    limits = task.limits
    models = open_model(task.model), open_model(task.quantised)
    _check_inputs(models, task)
    pair = QuantisedPair(float_proto(models[0]), models[1].proto)
    indices = evenly(list(range(len(task.feeds))), task.most)
    chosen = [task.feeds[index] for index in indices]
    network = SwitchedNetwork(pair)
    networks = compared_networks(pair, models, chosen, folder, progress)
    worst = sorted(range(len(chosen)), key=lambda index: -networks.errors[index])[:MEASURED_OF_OTHERS]
    trial = ExclusionTrial(network, [chosen[index][1] for index in sorted(worst)])
    good = all(figures.good(limits) for figures in networks.outputs.values())
    measured = trial.measure(limits, good, progress)
    quantiser = quantiser_of(models[1].proto)
    diagnosis = QuantisedDiagnosis(pair, networks, measured, limits, quantiser, network.left_out, inputs=len(chosen))
    comparison = networks.compared.comparison
    texts = {
        "layers.csv": REPORTS["csv"](comparison, limits),
        "layers.json": with_findings(REPORTS["json"](comparison, limits), diagnosis),
        "quantised.csv": quantised_csv(diagnosis),
    }
    report = report_of_quantised(diagnosis, _context_of_others(task, diagnosis))
    report = replace(report, view=replace(report.view, worst=worst_input(networks.worst, task.feeds, indices)))
    return Diagnosed(report, comparison, diagnosis.good, texts, graph=NetworkGraph(models[0].proto))


def _check_inputs(models: tuple[Model, Model], task: QuantisedTask) -> None:
    from sgsdump.errors import ModelError
    from sgsdump.models.model import graph_inputs

    own, others = ({spec.name for spec in graph_inputs(model.proto)} for model in models)
    if own != others:
        raise ModelError(
            f"{task.quantised} was made of another net: its inputs are {', '.join(sorted(others))}, those of "
            f"{task.model} {', '.join(sorted(own))}"
        )


def _context_of_others(task: QuantisedTask, diagnosis: QuantisedDiagnosis) -> Context:
    from sgsdump.reports.made_by import versions
    from sgsdump.reports.quantised_diagnosis import attributes_of_units
    from sgsdump.reports.report import Context

    facts = [("float model", str(task.model)), ("quantised model", str(task.quantised))]
    facts.append(("quantised by", diagnosis.quantiser or "unknown"))
    facts.append(("compared on", f"{diagnosis.inputs} of {len(task.feeds)} inputs"))
    facts.append(versions())
    return Context(f"{task.quantised.name} quantised", facts=facts, attributes=attributes_of_units(diagnosis.pair))
