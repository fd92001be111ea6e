"""``tune --explain``: how much each convolution contributes to the output error, without a search."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgsdump.errors import ConfigError, InputError, ModelError, ValuesError
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.calibrate import FixedModel, How, calibrated
from sgsdump.fixedpoint.verbs.contributions import Measured, Plans, both, measured_words, sources
from sgsdump.fixedpoint.verbs.explained import Explained
from sgsdump.fixedpoint.verbs.judges import JUDGING, Judges
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import Beside, Network, beside_of, named_network

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump
    from sgsdump.fixedpoint.quantisation.analysis import Analysis
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.causes import Exact
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import Measurement
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.graph import Graph
    from sgsdump.models.network import Data
    from sgsdump.progress import Progress
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range

MODELS = (".onnx", ".tflite", ".xml")
Given = TypeVar("Given")


@dataclass(frozen=True, eq=False)
class Task:
    """A model to explain.

    ranges       a calibration, or its file; None: calibrate on the images of the network
    dump, fixed  dumps of the float and of the fixed model, of the same image
    limits       limits of the outputs, used if there are images to measure on; empty: the documented limits
    evaluate     images to measure on, instead of those of the network
    """

    network: Network
    ranges: Path | FixedModel | None
    dump: Path | Dump | None
    fixed: Path | Dump | None
    quant_level: str
    limits: Thresholds
    evaluate: Data | None = None

    @property
    def files(self) -> list[Path | None]:
        """Files that are read."""
        named = (path for path in (self.ranges, self.dump, self.fixed) if isinstance(path, Path))
        return [*self.network.files, *Judges(evaluate=self.evaluate).files, *named]


class ExplainOptions(Beside, total=False):
    """Options of ``tune(explain=True)``.

    Attributes
    ----------
    ranges : FixedModel, str or Path, optional
        Result of ``calibrate``, or the file of a calibration. By default the ranges are calibrated on ``data``.
    dump : Dump, str or Path, optional
        Dump of the float model. It shows whether values use only a small part of their range.
    fixed : Dump, str or Path, optional
        Dump of the fixed model on the same image. It shows layers with large errors and the convolutions before them.
        Needs ``dump``.
    evaluate : str, Path, array, mapping or iterable, optional
        Images to measure on, instead of ``data``.
    min_cos, max_rmse : float, optional
        Limits for the outputs. If both are None, the documented limits 0.99 and 0.1 apply.
    """

    ranges: str | Path | FixedModel | None
    dump: Dump | str | Path | None
    fixed: Dump | str | Path | None
    evaluate: Data | None
    min_cos: float | None
    max_rmse: float | None


def explain(model: str | Path, data: Data | None, quant_level: str, options: ExplainOptions) -> Explained:
    """Explain a model for a caller in Python; see ``tune``."""
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.progress import bars

    network = named_network(model, "" if data is None else data, beside_of(options, ExplainOptions))
    ranges = options.get("ranges")
    task = Task(
        network,
        _path_of(ranges),
        _path_of(options.get("dump")),
        _path_of(options.get("fixed")),
        quant_level,
        Thresholds(options.get("min_cos"), options.get("max_rmse")),
        options.get("evaluate"),
    )
    check(task)
    return explained(opened_for(task), bars())


def _path_of(given: Given | str) -> Given | Path:
    return Path(given) if isinstance(given, str) else given


@dataclass(frozen=True, eq=False)
class Opened:
    """A task with its open model, the calibration images, and the images to measure on."""

    task: Task
    network: OpenNetwork
    calibrating: Feeds | None = None
    measured: PicturePairs | None = None

    @property
    def coverage(self) -> Feeds | None:
        """Images that the ranges or the measurement come from."""
        return self.calibrating or (None if self.measured is None else self.measured.feeds)


def opened_for(task: Task) -> Opened:
    """Open the model of a task that passed ``check``."""
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.graph import Graph

    known = task.ranges.imported.config if isinstance(task.ranges, FixedModel) else None
    opened = open_network(task.network, task.quant_level, guesses=known is not None)
    if known is not None and task.network.input_config is None:
        opened = replace(opened, config=known, source=task.network.source(known))
    _check_inputs(Graph(deployed(opened.model)), opened.config)
    feeds = opened.feeds() if task.network.data else None
    calibrating = feeds if task.ranges is None else None
    measured = None if feeds is None else PicturePairs(feeds, None if calibrating is None else JUDGING)
    if task.evaluate is not None:
        measured = PicturePairs(opened.feeds(task.evaluate))
    return Opened(task, opened, calibrating, measured)


def explained(ready: Opened, progress: Progress) -> Explained:
    """Explain an open model."""
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.dumps.io import open_dump
    from sgsdump.executors.onnx_runtime.session import release_unused
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.quantisation.analysis import analyse
    from sgsdump.fixedpoint.quantisation.float_model import deployed, uint8_inputs
    from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
    from sgsdump.fixedpoint.tuning import advice, rules_of_thumb
    from sgsdump.fixedpoint.tuning.causes import output_findings
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import SensitivityAnalysis
    from sgsdump.models.graph import Graph

    task, opened, feeds = ready.task, ready.network, ready.measured
    network, model, config = task.network, opened.model, opened.config
    proto, calibration = deployed(model), None
    if ready.calibrating is not None:
        how = How(WITHOUT_BITS[task.quant_level])
        calibration = calibrated(opened, ready.calibrating, how, Workers(), progress)
    all_ranges, side, whence = _ranges_of(calibration or task.ranges)
    ranges = rules_of_thumb.ranges_of_model(Graph(proto), dict(all_ranges), whence)
    for entry in config.inputs:
        if not entry.quantised:
            ranges.pop(entry.name, None)
    analysis = analyse(proto, uint8_inputs(model, config, ranges))
    convolutions = rules_of_thumb.convolutions(analysis)
    if not convolutions:
        raise ModelError(
            f"{network.model} has no convolution with constant weights: there is nothing to raise to INT16"
        )
    float_dump, fixed_dump = (open_dump(each) if isinstance(each, Path) else each for each in (task.dump, task.fixed))
    comparison = _compared(fixed_dump, float_dump, all_ranges) if fixed_dump and float_dump else None
    signs = rules_of_thumb.read_signs(analysis, convolutions, ranges, float_dump, comparison, fixed_dump)
    limits = task.limits or DOCUMENTED

    def judged(measurement: Measurement) -> tuple[Advice, ...]:
        return advice.advise(convolutions, signs, measurement, limits, good=False)

    measured: Measured | None = None
    made: Plans | None = None
    exact: Exact | None = None
    if feeds is not None and not all(conv.reads_picture for conv in convolutions):
        trial = SensitivityAnalysis(model, ranges, config, per_channel=task.quant_level != "L1")
        with progress.bar("measure contributions", "run", trial.most_runs(len(feeds))) as advance:
            measurement = trial.measure(both(feeds), advance)
        measured = measured_words(trial, measurement, feeds, judged(measurement), convolutions)
        release_unused()
        names = RaisedInputs(analysis).inputs_of(measured.words)
        made = Plans(task.quant_level, opened, ranges, side, feeds)
        exact = made.exact(names)
    measurement_or_none = measured.measurement if measured else None
    good = exact.all_8.good(limits) if exact else None
    verdicts = advice.advise(convolutions, signs, measurement_or_none, limits, good)
    inputs = advice.tensor_arrays(verdicts, convolutions)
    words = tuple(rules_of_thumb.config_names(inputs, convolutions))
    found: tuple[Finding, ...] = ()
    if measured and made and exact:
        exact = replace(exact, foreseen=measured.foreseen if inputs else None)
        causes = sources(measured, verdicts, made, exact, limits)
        found = (*output_findings(exact.all_8.outputs, limits), *causes)
    rows = tuple(comparison.rows) if comparison else ()
    first, notes = _notes(task, config, analysis, words)
    return Explained(
        verdicts, words, limits, measurement_or_none, exact, found, rows, notes, first, opened.ini, calibration
    )


def _ranges_of(given: Path | FixedModel | None) -> tuple[Mapping[str, Range], SideRanges, str]:
    """Return the ranges, the further results of calibration, and the source of the ranges."""
    from sgsdump.fixedpoint.quantisation.calibration_log import read_side_ranges
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.sidecars.tensor_min_max import read_ranges

    if isinstance(given, FixedModel):
        return given.ranges, side_ranges(given.calibration.statistics), "the ranges"
    assert given is not None, "checked"
    return read_ranges(given), read_side_ranges(given), str(given)


def _notes(
    task: Task, config: InputConfig, analysis: Analysis, words: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the notes to print before the advice, and the notes to print after it."""
    from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs, wider

    ini, first = task.network.input_config or "the input_config.ini of the calibration", []
    all_wide = config.conv_format == "ALL_INT16"
    if all_wide:
        first.append(
            f"{ini} has input_format=ALL_INT16: nothing is left to raise. The advice starts from all convolutions at "
            "INT8:"
        )
    notes = [f"warning: {wider(word, others)}" for word, others in RaisedInputs(analysis).beside(words).items()]
    if all_wide and words:
        notes.append(f"To raise only these, remove input_format=ALL_INT16 from {ini}.")
    elif config.conv_format or config.tensor_arrays:
        notes.append(
            f"{ini} already has a [CONV_CONFIG]; the result starts from all convolutions at INT8 and replaces it."
        )
    return tuple(first), tuple(notes)


def check(task: Task) -> None:
    """Check the options. Raises ConfigError if they conflict, or for a model quantised with another tool.

    For a quantised model, the message contains the ``diagnose`` command.
    """
    network = task.network
    if task.ranges is None and not network.data:
        raise ConfigError("--explain needs ranges; give --ranges TENSOR_MIN_MAX, or images to calibrate on with -i")
    if task.fixed is not None and task.dump is None:
        raise ConfigError("--fixed requires a dump of the float model to compare with; also give --dump")
    measures = network.data or task.evaluate is not None
    if not measures and network.preprocess:
        raise ConfigError("-n preprocesses images, but no images are given; give images with -i")
    if not measures and task.limits:
        raise ConfigError("--min-cos and --max-rmse are limits on measured outputs; give images with -i")
    fixed = task.fixed
    if not isinstance(fixed, Path) or not _is_by_others(fixed):
        return
    beside = [fixed, *(fixed.with_suffix(ending) for ending in MODELS)]
    quantised = next((str(file) for file in beside if file.suffix.lower() in MODELS and file.is_file()), "QUANTISED")
    words = ["sgsdump", "diagnose", "-m", str(network.model), "--fixed", quantised]
    words += ["--data-loader-script", network.data_loader_script] if network.data_loader_script else []
    words += ["-i", network.image or "INPUTS"] if not network.data_loader_script else []
    words += ["-n", network.preprocess] if network.preprocess else []
    raise ConfigError(
        f"{fixed} was quantised with another tool, so it has no INT16 inputs; to find the layers to "
        f"keep in float, run: {shlex.join(words)}"
    )


def _is_by_others(fixed: Path) -> bool:
    """Return whether the model, or the model that a dump's graph describes, was quantised with another tool."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.onnx_network import OnnxNetwork
    from sgsdump.models.fixed_facts import is_fixed
    from sgsdump.models.model import open_model
    from sgsdump.models.quantised_model import QuantisedModel

    if fixed.suffix.lower() not in MODELS:
        network = open_dump(fixed).network()
        graph = network.quantised if isinstance(network, OnnxNetwork) else None
        return graph is not None and (graph.is_quantised or bool(graph.quants))
    if fixed.suffix.lower() != ".onnx":
        return fixed.is_file()
    model = open_model(fixed)
    return not is_fixed(model) and QuantisedModel(model.proto).is_quantised


def _check_inputs(graph: Graph, config: InputConfig) -> None:
    for entry in config.inputs:
        if entry.name not in graph.inputs:
            raise ConfigError(
                f"input_config: the key inputs names {entry.name!r}, but the inputs of the model are "
                f"{', '.join(graph.inputs)}"
            )


def _compared(fixed: Dump, float_dump: Dump, ranges: Mapping[str, Range]) -> Comparison:
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.environment import OF_OTHER_RUNS
    from sgsdump.dumps.formats.sigmastar.side_files import with_scales
    from sgsdump.reports.three_lines import environment_lines

    comparison = compare(with_scales(fixed, dict(ranges)), with_scales(float_dump, dict(ranges)))
    if not comparison.rows:
        why = f": {comparison.failed[0].reason}" if comparison.failed else "; are both dumps of the same model?"
        raise ValuesError(f"no layer of {fixed.path} could be compared with {float_dump.path}{why}")
    if doubts := [finding for finding in comparison.environment if finding.facts["what"] in OF_OTHER_RUNS]:
        lines = " ".join(environment_lines(doubts))
        raise InputError(f"{float_dump.path} (--dump) and {fixed.path} (--fixed) do not match: {lines}")
    return comparison
