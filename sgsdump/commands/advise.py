"""Say of every convolution whether its input should be INT16, and why, and give the [CONV_CONFIG] to paste.

The advice gets better the more you give:
  TENSOR_MIN_MAX  alone: inputs whose range is over 30
  --dump          the float model's dump: whether values are concentrated in a small part of their range
  --fixed         the fixed model's dump of the same picture: layers of RMSE over 0.5, and the convolutions before them
  -i              a few representative pictures: each convolution's own error apart from the one it inherits, and its
                  share of the output error, measured by running the network with it alone at 8 and alone at 16 bits
Measured figures outrank the rules. A Softmax is judged by its input.

examples:
  sgsdump advise log/tensor_min_max.txt -m net.onnx --input-config input_config.ini
  sgsdump advise log/tensor_min_max.txt -m net.onnx --input-config input_config.ini --dump float.bin --fixed fixed.bin
  sgsdump advise log/tensor_min_max.txt -m net.onnx --input-config input_config.ini -i pictures/ -n preprocess.py
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    INPUTS,
    add_feeds,
    add_input_config,
    add_json,
    add_limits,
    add_model,
    add_quant_level,
    add_strict_sdk,
    network_of,
    record,
)
from sgsdump.commands.terminal import print_cut, print_warnings
from sgsdump.errors import ConfigError, ModelError, ValuesError
from sgsdump.verbs.network import Network, OpenNetwork, open_network

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.graph import Graph
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range
    from sgsdump.tuning.advice import Advice
    from sgsdump.tuning.causes import Exact
    from sgsdump.tuning.rules_of_thumb import Convolution
    from sgsdump.tuning.sensitivity_analysis import (
        Contributions,
        LabelledPictureFeed,
        Measurement,
        SensitivityAnalysis,
        Totals,
    )

MODELS = (".onnx", ".tflite", ".xml")


@dataclass(frozen=True)
class Options:
    ranges: Path
    network: Network
    dump: Path | None
    fixed: Path | None
    quant_level: str
    limits: Thresholds
    json: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ranges", type=Path, metavar="TENSOR_MIN_MAX", help="the ranges: text, JSON or pickle")
    network = parser.add_argument_group("model")
    add_model(network)
    add_input_config(network)
    add_strict_sdk(network)
    dumps = parser.add_argument_group("dumps")
    dumps.add_argument("--dump", type=Path, metavar="FLOAT_DUMP", help="dump of the float model")
    dumps.add_argument("--fixed", type=Path, metavar="FIXED_DUMP", help="dump of the fixed model, same picture")
    measuring = parser.add_argument_group("measuring")
    add_feeds(measuring, f"measure on: {INPUTS}", required=False)
    add_quant_level(measuring, "weights when measuring: L1 one scale per tensor, above it one per output channel")
    add_limits(measuring, "the outputs")
    results = parser.add_argument_group("results")
    add_json(results, "write the advice as JSON too")


def run(args: argparse.Namespace) -> int:
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.dumps.io import open_dump
    from sgsdump.executors.onnx_runtime.session import release_unused
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.models.graph import Graph
    from sgsdump.quantisation.analysis import analyse
    from sgsdump.quantisation.float_model import deployed
    from sgsdump.quantisation.pictures import uint8_inputs
    from sgsdump.quantisation.tensor_arrays import RaisedInputs, wider
    from sgsdump.reports.advice_reports import advice_json, advice_table, advice_verdict
    from sgsdump.reports.cause_sentences import first_lines
    from sgsdump.sidecars.tensor_min_max import read_ranges
    from sgsdump.tuning import advice, rules_of_thumb
    from sgsdump.tuning.causes import findings_of
    from sgsdump.tuning.sensitivity_analysis import SensitivityAnalysis

    options = record(Options, args, network=network_of(args), limits=Thresholds(args.min_cos, args.max_rmse))
    _check_options(options)
    _check_fixed(options)
    check_outputs(
        [options.json],
        [options.ranges, *options.network.files, options.dump, options.fixed],
    )
    network = options.network
    opened = open_network(network, options.quant_level)
    model, config = opened.model, opened.config
    proto = deployed(model)
    _check_inputs(Graph(proto), config)
    feeds = opened.feeds() if network.data else None
    print_warnings(opened)
    all_ranges = read_ranges(options.ranges)
    ranges = rules_of_thumb.ranges_of_model(Graph(proto), all_ranges, str(options.ranges))
    for entry in config.inputs:
        if not entry.quantised:
            ranges.pop(entry.name, None)
    analysis = analyse(proto, uint8_inputs(model, config, ranges))
    convolutions = rules_of_thumb.convolutions(analysis)
    if not convolutions:
        raise ModelError(
            f"{network.model} has no convolution with constant weights: there is nothing to raise to INT16"
        )
    float_dump = open_dump(options.dump) if options.dump else None
    fixed_dump = open_dump(options.fixed) if options.fixed else None
    comparison = _compared(fixed_dump, float_dump, all_ranges) if fixed_dump and float_dump else None
    signs = rules_of_thumb.read_signs(analysis, convolutions, ranges, float_dump, comparison, fixed_dump)
    limits = options.limits or DOCUMENTED

    def judged(measurement: Measurement) -> tuple[Advice, ...]:
        return advice.advise(convolutions, signs, measurement, limits, good=False)

    measured: Measured | None = None
    exact: Exact | None = None
    if feeds is not None and not all(conv.reads_picture for conv in convolutions):
        trial = SensitivityAnalysis(model, ranges, config, per_channel=options.quant_level != "L1")
        measured = _measure(trial, feeds, judged, convolutions)
        del trial  # its sessions take much memory
        release_unused()
        exact = _exact(options, opened, ranges, feeds, RaisedInputs(analysis).inputs_of(measured.words))
    measurement = measured.measurement if measured else None
    verdicts = advice.advise(convolutions, signs, measurement, limits, exact.all_8.good(limits) if exact else None)
    names = advice.tensor_arrays(verdicts, convolutions)
    written = rules_of_thumb.config_names(names, convolutions)
    found: tuple[Finding, ...] = ()
    if measured and exact:
        exact = replace(exact, foreseen=measured.foreseen if names else None)
        found = findings_of(verdicts, measurement, exact, limits, measured.contributions)
    if options.json:
        replace_text(options.json, advice_json(verdicts, written, measurement, exact, found))
    all_wide = config.conv_format == "ALL_INT16"
    if all_wide:
        print(f"{network.input_config} has input_format=ALL_INT16: nothing is left to raise. From all at 8 bits:")
    for line in first_lines(found):
        print(line)
    print(advice_table(verdicts))
    rows = comparison.rows if comparison else ()
    print(advice_verdict(verdicts, written, limits, measurement, exact, rows), end="")
    for word, others in RaisedInputs(analysis).beside(written).items():
        print(f"warning: {wider(word, others)}")
    if all_wide and written:
        print(f"To raise these alone, take input_format=ALL_INT16 out of {network.input_config}.")
    elif config.conv_format or config.tensor_arrays:
        print(
            f"{network.input_config} has a [CONV_CONFIG] already: the advice starts from all at 8 bits and replaces it."
        )
    print_cut(model, config)
    return 0


def _check_options(options: Options) -> None:
    if options.fixed and not options.dump:
        raise ConfigError("--fixed is compared with the float model's dump; give that too, with --dump")
    if not options.network.data and options.network.preprocess:
        raise ConfigError("-n prepares pictures to measure on; give them with -i")
    if not options.network.data and options.limits:
        raise ConfigError("--min-cos and --max-rmse are limits on measured outputs; give pictures with -i")


def _check_fixed(options: Options) -> None:
    """Raises ConfigError for a network that others quantised, with the command that gives advice in its quantiser's
    words; here everything is of the chip's fixed model."""
    fixed = options.fixed
    if fixed is None or not _is_by_others(fixed):
        return
    network, beside = options.network, [fixed, *(fixed.with_suffix(ending) for ending in MODELS)]
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
    from sgsdump.models.model import open_model
    from sgsdump.models.quantised_model import QuantisedModel
    from sgsdump.quantisation.fixed_facts import is_fixed

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


def _compared(fixed: Dump, float_dump: Dump, ranges: dict[str, Range]) -> Comparison:
    from sgsdump.comparison.compare import compare
    from sgsdump.dumps.formats.sigmastar.side_files import with_scales

    comparison = compare(with_scales(fixed, ranges), with_scales(float_dump, ranges))
    if not comparison.rows:
        why = f": {comparison.failed[0].reason}" if comparison.failed else "; are they dumps of one model?"
        raise ValuesError(f"no layer of {fixed.path} could be compared with {float_dump.path}{why}")
    return comparison


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured in the float approximation, the words of tensor_arrays that follow from it, what is foreseen
    with these raised, and what the input and the weights bring of the first cause."""

    measurement: Measurement
    words: tuple[str, ...]
    foreseen: Totals | None
    contributions: Contributions | None


def _measure(
    trial: SensitivityAnalysis,
    feeds: Feeds,
    judged: Callable[[Measurement], tuple[Advice, ...]],
    convolutions: Sequence[Convolution],
) -> Measured:
    """All that is asked of ``trial``; ``judged``: the advice that follows."""
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.tuning.advice import tensor_arrays
    from sgsdump.tuning.causes import ranked
    from sgsdump.tuning.rules_of_thumb import config_names

    with TERMINAL.bar("advise", "run", trial.most_runs(len(feeds))) as advance:
        measurement = trial.measure(_both(feeds), advance)
    verdicts = judged(measurement)
    names = tensor_arrays(verdicts, convolutions)
    foreseen = trial.try_plan(names, _both(feeds)) if names else None
    first = next(iter(ranked(verdicts, measurement)), None)
    by_picture = first is None or first.facts["reason"] == "picture"
    contributions = None if first is None or by_picture else trial.contributions(first.layer, _both(feeds))
    return Measured(measurement, tuple(config_names(names, convolutions)), foreseen, contributions)


def _exact(
    options: Options, network: OpenNetwork, ranges: dict[str, Range], feeds: Feeds, names: tuple[str, ...]
) -> Exact:
    """The outputs in the hardware's integers with all at 8 bits, with these inputs raised, and with all at 16 bits."""
    from sgsdump.quantisation.calibration_log import read_side_ranges
    from sgsdump.quantisation.fixed_model import make_fixed
    from sgsdump.quantisation.float_model import deployed
    from sgsdump.quantisation.objective import watched_tensors
    from sgsdump.quantisation.trials.integer_outputs import outputs_of
    from sgsdump.tensors.types import Range
    from sgsdump.tuning.causes import Exact

    model, config = network.model, network.config
    side = read_side_ranges(options.ranges)
    plain = replace(config, conv_format="ALL_UINT8", tensor_arrays=())
    wide = replace(config, conv_format="ALL_INT16", tensor_arrays=())
    plans = [plain, wide, *([replace(plain, tensor_arrays=names)] if names else [])]
    made = [make_fixed(model, ranges, plan, True, options.quant_level != "L1", side).proto for plan in plans]
    spans = {name: found.high - found.low for name, found in ranges.items() if isinstance(found, Range)}
    all_8, all_16, *raised = outputs_of(model, made, _both(feeds), watched_tensors(deployed(model)), spans)
    return Exact(all_8, all_16, raised[0] if raised else None)


def _both(feeds: Feeds) -> Iterator[LabelledPictureFeed]:
    """Every run as the float model and as the fixed model takes it."""
    return map(feeds.both, range(len(feeds)))
