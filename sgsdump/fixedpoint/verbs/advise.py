"""``advise``: of every convolution whether its input should be INT16, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins
from sgsdump.errors import ConfigError, InputError, ModelError, ValuesError
from sgsdump.fixedpoint.verbs.calibrate import FixedModel
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import Beside, Network, beside_of, named_network

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.row import Row
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump
    from sgsdump.fixedpoint.quantisation.analysis import Analysis
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.causes import Exact
    from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import (
        LabelledPictureFeed,
        Measurement,
        SensitivityAnalysis,
        Totals,
    )
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.graph import Graph
    from sgsdump.models.network import Data
    from sgsdump.progress import Progress
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range

MODELS = (".onnx", ".tflite", ".xml")


@dataclass(frozen=True, eq=False)
class Task:
    """What to advise on.

    ranges       the file of a calibration, or what ``calibrate`` gave.
    dump, fixed  of the float and of the fixed model, on the same picture.
    limits       of the outputs, where pictures are given to measure on; empty for the documented ones.
    """

    network: Network
    ranges: Path | FixedModel
    dump: Path | Dump | None
    fixed: Path | Dump | None
    quant_level: str
    limits: Thresholds


@dataclass(frozen=True, eq=False)
class Advised:
    """Of every convolution whether its input should be INT16, and why.

    advice    one for each convolution, worst first: ``verdict`` (yes, maybe, no), ``reason``, and what was measured.
    names     the words of ``tensor_arrays`` to write.
    limits    that the outputs should hold.
    measurement  of each convolution alone, ``exact`` of the outputs in the hardware's integers; None without pictures.
    findings  the outputs and the causes of their error, as ``diagnose`` has them.
    rows      the layers compared, where both dumps were given.
    notes     what the words raise besides, and what input_config.ini has already.
    """

    advice: tuple[Advice, ...]
    names: tuple[str, ...]
    limits: Thresholds
    measurement: Measurement | None = None
    exact: Exact | None = None
    findings: tuple[Finding, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    first: tuple[str, ...] = ()

    @property
    def to_copy(self) -> str:
        """``[CONV_CONFIG]`` of input_config.ini; empty where nothing is to be raised."""
        from sgsdump.fixedpoint.reports.cause_sentences import conv_config

        return conv_config(self.names) if self.names else ""

    @property
    def verdict(self) -> list[str]:
        """The causes, what the outputs lose, and what to raise, a sentence each."""
        from sgsdump.fixedpoint.reports.cause_sentences import first_lines

        return [*first_lines(self.findings), *self._verdict]

    @property
    def _verdict(self) -> list[str]:
        from sgsdump.fixedpoint.reports.advice_reports import advice_verdict

        text = advice_verdict(self.advice, self.names, self.limits, self.measurement, self.exact, self.rows)
        return text.splitlines()

    def lines(self) -> list[str]:
        """What the command prints: the causes, a table of the convolutions, the verdict, the notes."""
        from sgsdump.fixedpoint.reports.advice_reports import advice_table
        from sgsdump.fixedpoint.reports.cause_sentences import first_lines

        texts = [*self.first, *first_lines(self.findings), advice_table(self.advice)]
        return [*texts, *self._verdict, *self.notes]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw what each convolution's 8 bits bring to the outputs' error, the most first; without pictures the widths
        of their inputs' ranges."""
        drawn: Axes = plugins.ask("plot of an advice", self.advice, axes)
        return drawn

    def to_html(self, path: str | Path) -> Path:
        """Write what a notebook shows as a page. Raises OutputError."""
        plugins.ask("page of a card", self, Path(path))
        return Path(path)

    def to_pandas(self) -> Any:
        """Every convolution as a DataFrame. Raises MissingExtra without pandas."""
        from sgsdump.fixedpoint.tuning.advice import to_pandas

        return to_pandas(self.advice)

    def save(self, path: str | Path) -> Path:
        """Write the JSON of ``sgsdump advise --json``. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text
        from sgsdump.fixedpoint.reports.advice_reports import advice_json

        replace_text(Path(path), advice_json(self.advice, self.names, self.measurement, self.exact, self.findings))
        return Path(path)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str | None:
        return plugins.as_html("advised", self)


class AdviseOptions(Beside, total=False):
    """What an advice is asked for.

    data   a few pictures to measure on, whatever ``calibrate`` takes: each convolution alone at 8 and alone at 16 bits.
    dump   of the float model, or its file: whether values are concentrated in a small part of their range.
    fixed  of the fixed model on the same picture: layers that are off, and the convolutions before them.
    quant_level  when measuring: L1 has one scale per tensor of weights, those above one per output channel (L5).
    min_cos, max_rmse  what the outputs must hold; without both the documented limits, 0.99 and 0.1.
    """

    data: Data | None
    dump: Dump | str | Path | None
    fixed: Dump | str | Path | None
    quant_level: str
    min_cos: float | None
    max_rmse: float | None


def advise(model: str | Path, ranges: str | Path | FixedModel, **options: Unpack[AdviseOptions]) -> Advised:
    """Of every convolution whether its input should be INT16, and why; as ``sgsdump advise``.

    model    ONNX, or Caffe's ``.prototxt`` (with ``weight_file``).
    ranges   what ``calibrate`` returned, or the file of a calibration: ``tensor_min_max.txt``, JSON or pickle.
    options  see ``AdviseOptions``; and what stands beside a model, see ``calibrate``.

    Raises SgsdumpError: what cannot be read, fed or measured.
    """
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.progress import bars

    data = options.get("data")
    network = named_network(model, "" if data is None else data, beside_of(options, AdviseOptions))
    task = Task(
        network,
        ranges if isinstance(ranges, FixedModel) else Path(ranges),
        _dump_of(options.get("dump")),
        _dump_of(options.get("fixed")),
        options.get("quant_level", "L5"),
        Thresholds(options.get("min_cos"), options.get("max_rmse")),
    )
    check(task)
    return advised(task, *opened_for(task), bars())


def _dump_of(given: Dump | str | Path | None) -> Dump | Path | None:
    return Path(given) if isinstance(given, str) else given


def opened_for(task: Task) -> tuple[OpenNetwork, Feeds | None]:
    """The network of a ``check``ed task, and what to measure on; None without data."""
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.models.graph import Graph

    known = task.ranges.imported.config if isinstance(task.ranges, FixedModel) else None
    opened = open_network(task.network, task.quant_level, guesses=known is not None)
    if known is not None and task.network.input_config is None:
        opened = replace(opened, config=known, source=task.network.source(known))
    _check_inputs(Graph(deployed(opened.model)), opened.config)
    return opened, opened.feeds() if task.network.data else None


def advised(task: Task, opened: OpenNetwork, feeds: Feeds | None, progress: Progress) -> Advised:
    """Of a network that is open; ``feeds``: to measure on."""
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.dumps.io import open_dump
    from sgsdump.executors.onnx_runtime.session import release_unused
    from sgsdump.fixedpoint.quantisation.analysis import analyse
    from sgsdump.fixedpoint.quantisation.float_model import deployed, uint8_inputs
    from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
    from sgsdump.fixedpoint.tuning import advice, rules_of_thumb
    from sgsdump.fixedpoint.tuning.causes import output_findings
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import SensitivityAnalysis
    from sgsdump.models.graph import Graph

    network, model, config = task.network, opened.model, opened.config
    proto = deployed(model)
    all_ranges, side, whence = _ranges_of(task.ranges)
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
        with progress.bar("advise", "run", trial.most_runs(len(feeds))) as advance:
            measurement = trial.measure(_both(feeds), advance)
        measured = _measured(trial, measurement, feeds, judged(measurement), convolutions)
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
        sources = _sources(measured, verdicts, made, exact, limits)
        found = (*output_findings(exact.all_8.outputs, limits), *sources)
    rows = tuple(comparison.rows) if comparison else ()
    first, notes = _notes(task, config, analysis, words)
    return Advised(verdicts, words, limits, measurement_or_none, exact, found, rows, notes, first)


def _ranges_of(given: Path | FixedModel) -> tuple[Mapping[str, Range], SideRanges, str]:
    """The ranges, what calibration found beside them, and where they are from."""
    from sgsdump.fixedpoint.quantisation.calibration_log import read_side_ranges
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.sidecars.tensor_min_max import read_ranges

    if isinstance(given, FixedModel):
        return given.ranges, side_ranges(given.calibration.statistics), "the ranges"
    return read_ranges(given), read_side_ranges(given), str(given)


def _notes(
    task: Task, config: InputConfig, analysis: Analysis, words: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is to be known before the advice, and after it."""
    from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs, wider

    ini, first = task.network.input_config or "the input_config.ini of the calibration", []
    all_wide = config.conv_format == "ALL_INT16"
    if all_wide:
        first.append(f"{ini} has input_format=ALL_INT16: nothing is left to raise. From all at 8 bits:")
    notes = [f"warning: {wider(word, others)}" for word, others in RaisedInputs(analysis).beside(words).items()]
    if all_wide and words:
        notes.append(f"To raise these alone, take input_format=ALL_INT16 out of {ini}.")
    elif config.conv_format or config.tensor_arrays:
        notes.append(f"{ini} has a [CONV_CONFIG] already: the advice starts from all at 8 bits and replaces it.")
    return tuple(first), tuple(notes)


def check(task: Task) -> None:
    """Raises ConfigError for what does not go together, and for a network that others quantised, with the command that
    gives advice in its quantiser's words; here everything is of the chip's fixed model."""
    network = task.network
    if task.fixed is not None and task.dump is None:
        raise ConfigError("--fixed is compared with the float model's dump; give that too, with --dump")
    if not network.data and network.preprocess:
        raise ConfigError("-n prepares pictures to measure on; give them with -i")
    if not network.data and task.limits:
        raise ConfigError("--min-cos and --max-rmse are limits on measured outputs; give pictures with -i")
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
        f"{fixed} is of a network that others quantised, which has no INT16 inputs; what it is to leave float: "
        f"{shlex.join(words)}"
    )


def _is_by_others(fixed: Path) -> bool:
    """Of a dump by the graph of its model, of a model itself; not a fixed model of ``sgsdump calibrate``."""
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
            raise ConfigError(f"input_config: inputs names {entry.name!r}, the model has {', '.join(graph.inputs)}")


def _compared(fixed: Dump, float_dump: Dump, ranges: Mapping[str, Range]) -> Comparison:
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.environment import OF_OTHER_RUNS
    from sgsdump.dumps.formats.sigmastar.side_files import with_scales
    from sgsdump.reports.three_lines import environment_lines

    comparison = compare(with_scales(fixed, dict(ranges)), with_scales(float_dump, dict(ranges)))
    if not comparison.rows:
        why = f": {comparison.failed[0].reason}" if comparison.failed else "; are they dumps of one model?"
        raise ValuesError(f"no layer of {fixed.path} could be compared with {float_dump.path}{why}")
    if doubts := [finding for finding in comparison.environment if finding.facts["what"] in OF_OTHER_RUNS]:
        lines = " ".join(environment_lines(doubts))
        raise InputError(f"{float_dump.path} (--dump) and {fixed.path} (--fixed) do not fit: {lines}")
    return comparison


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured in the float approximation, the words of tensor_arrays that follow from it, and what is
    foreseen with these raised."""

    trial: SensitivityAnalysis
    measurement: Measurement
    words: tuple[str, ...]
    foreseen: Totals | None


def _measured(
    trial: SensitivityAnalysis,
    measurement: Measurement,
    feeds: Feeds,
    verdicts: tuple[Advice, ...],
    convolutions: Sequence[Convolution],
) -> Measured:
    """What follows from the measurement; ``verdicts``: the advice on it."""
    from sgsdump.fixedpoint.tuning.advice import tensor_arrays
    from sgsdump.fixedpoint.tuning.rules_of_thumb import config_names

    names = tensor_arrays(verdicts, convolutions)
    foreseen = trial.try_plan(names, _both(feeds)) if names else None
    return Measured(trial, measurement, tuple(config_names(names, convolutions)), foreseen)


def _sources(
    measured: Measured, verdicts: tuple[Advice, ...], made: Plans, exact: Exact, limits: Thresholds
) -> tuple[Finding, ...]:
    """What the outputs' error comes from, measured in integers."""
    from sgsdump.fixedpoint.quantisation.objective import output_error
    from sgsdump.fixedpoint.tuning.causes import named_causes, with_contributions

    inputs = {entry.convolution.name: entry.convolution.input for entry in verdicts}

    def left(convolutions: Sequence[str], held: Mapping[str, Range]) -> float:
        if not convolutions:
            return output_error(exact.all_16.sums)
        plan = made.plan(tuple(inputs[name] for name in convolutions))
        return output_error(made.outputs([plan], held)[0].sums)

    sources = named_causes(verdicts, measured.measurement, exact.all_8, limits, left)
    return with_contributions(sources, measured.trial, measured.measurement, _both(made.feeds))


@dataclass(frozen=True, eq=False)
class Plans:
    """Fixed models of one network, each with other inputs of convolutions at INT16."""

    quant_level: str
    network: OpenNetwork
    ranges: Mapping[str, Range]
    side: SideRanges
    feeds: Feeds

    def plan(self, names: tuple[str, ...] = (), conv_format: str = "ALL_UINT8") -> InputConfig:
        return replace(self.network.config, conv_format=conv_format, tensor_arrays=names)

    def outputs(self, plans: Iterable[InputConfig], held: Mapping[str, Range] = {}) -> list[PlanOutputs]:
        """Return the outputs in the hardware's integers; ``held``: ranges in place of those of calibration."""
        from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
        from sgsdump.fixedpoint.quantisation.float_model import deployed
        from sgsdump.fixedpoint.quantisation.objective import watched_tensors
        from sgsdump.fixedpoint.quantisation.trials.integer_outputs import outputs_of
        from sgsdump.tensors.types import Range

        model, ranges = self.network.model, {**self.ranges, **held}
        per_channel = self.quant_level != "L1"
        made = [make_fixed(model, ranges, plan, True, per_channel, self.side).proto for plan in plans]
        spans = {name: found.high - found.low for name, found in self.ranges.items() if isinstance(found, Range)}
        return outputs_of(model, made, _both(self.feeds), watched_tensors(deployed(model)), spans)

    def exact(self, names: tuple[str, ...]) -> Exact:
        """Return the outputs with all at 8 bits, with these inputs raised, and with all at 16 bits."""
        from sgsdump.fixedpoint.tuning.causes import Exact

        raised = [self.plan(names)] if names else []
        all_8, all_16, *others = self.outputs([self.plan(), self.plan(conv_format="ALL_INT16"), *raised])
        return Exact(all_8, all_16, others[0] if others else None)


def _both(feeds: Feeds) -> Iterator[LabelledPictureFeed]:
    """Every run as the float model and as the fixed model takes it."""
    return map(feeds.both, range(len(feeds)))
