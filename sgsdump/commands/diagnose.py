"""Say where a network loses accuracy in fixed point, and what to do about it, in one go and on one page.

Calibrates on all pictures, makes the fixed model, judges its outputs on all pictures, compares every layer on those
that go wrong most, measures what each convolution's 8 bits cost, and writes report.html: a file to look at, mail or
keep. Assumptions are printed first: without --input-config the inputs are taken as RGB or GRAY pictures, and mean and
std_value are found by running the preprocess file (-n) on a picture. --fixed takes a fixed model of calibrate as it is,
or one that others quantised (ONNX: QDQ, QOperator, dynamic), --ranges a tensor_min_max.txt or a quant file in place of
a calibration. An older folder -o is moved aside. Exit status:
0, or 1 when you gave a limit and an output or another layer is past it, 2 on trouble.

examples:
  sgsdump diagnose -m net.onnx -i pictures/
  sgsdump diagnose -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o net
  sgsdump diagnose -m net.onnx -i pictures/ --fixed net_fixed.onnx --pictures 4
  sgsdump diagnose -m net.onnx -i pictures/ -n preprocess.py --fixed net_int8.onnx
  sgsdump diagnose -m net.tflite -i pictures/ -n preprocess.py --fixed net_int8.tflite

the folder -o:
  report.html             verdict, next steps, error over depth, every layer with its histograms and calibrated range
  layers.csv layers.json  every layer's figures
  fixed.onnx log/         the fixed model and the ranges, where they were made here (see calibrate)
  input_config.ini        yours, or the assumed one, with the tensor_arrays advised

a network that others quantised (--fixed QUANTISED.onnx, docs/debug_a_quantised_onnx.md):
  Each quantised tensor and weight is put into the float network alone, and the worst are taken out; what to leave
  float is said in the words of onnxruntime, NNCF, ModelOpt, AIMET or Quark. The folder has quantised.csv besides, no
  input_config.ini.

a cluster (--scheduler):
  The pictures run on a Dask cluster (pip install 'sgsdump[cluster]'), while calibrating and comparing. They are read
  and preprocessed here and sent: its workers need no files of yours, only the same versions of sgsdump, onnx,
  onnxruntime and numpy. Measuring for the advice stays here. The result is the same as of one process.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    Network,
    add_feeds,
    add_input_config,
    add_limits,
    add_model,
    add_quant_level,
    add_scheduler,
    add_strict_sdk,
    assumed_source,
    feeds_of,
    network_of,
    open_network,
    record,
    whole_number,
)
from sgsdump.commands.terminal import cut_sentence, print_folder, print_lines, print_verdict, to_paste

if TYPE_CHECKING:
    from sgsdump.commands.diagnose_native import NativeTask
    from sgsdump.commands.diagnose_quantised import QuantisedTask
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.input_spec import InputSpec
    from sgsdump.models.model import Model
    from sgsdump.progress import Progress
    from sgsdump.quantisation.diagnosis.compared_pictures import Compared, PicturePairs
    from sgsdump.quantisation.diagnosis.subject import Subject
    from sgsdump.reports.diagnosis import Diagnosis
    from sgsdump.reports.report import Report
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tuning.measured_advice import MeasuredAdvice

PICTURES = 10
# Sensitivities are measured on this many of them.
MEASURED = 4


@dataclass(frozen=True)
class Given:
    """What is taken in place of calibrating."""

    fixed: Path | None
    ranges: Path | None


@dataclass(frozen=True)
class Options:
    network: Network
    given: Given
    output: Path
    pictures: int
    quant_level: str
    scheduler: str | None
    limits: Thresholds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and pictures")
    add_model(network)
    add_feeds(network)
    add_input_config(network, "input_config.ini (default: assumed, and printed)")
    add_strict_sdk(network)
    quantising = parser.add_argument_group("the fixed model")
    source = quantising.add_mutually_exclusive_group()
    source.add_argument("--fixed", type=Path, metavar="FILE", help="the fixed model, in place of making one")
    source.add_argument("--ranges", type=Path, metavar="FILE", help="ranges, in place of calibrating")
    add_quant_level(quantising)
    add_scheduler(parser.add_argument_group("processes"), "calibrate and compare")
    report = parser.add_argument_group("the report")
    report.add_argument("-o", "--output", type=Path, default=Path("diagnosis"), metavar="DIR",
                        help="folder to write (default: %(default)s)")  # fmt: skip
    report.add_argument("--pictures", type=whole_number, default=PICTURES, metavar="N",
                        help="compare layers on at most N pictures, those whose outputs are furthest off (default: "
                             "%(default)s)")  # fmt: skip
    add_limits(report, "a layer")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.diagnose_native import diagnose_native
    from sgsdump.commands.diagnose_quantised import diagnose_quantised, is_quantised_by_others
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.errors import ValuesError
    from sgsdump.files.atomic_write import check_not_around, replacing_folder
    from sgsdump.models.model import runtime_of
    from sgsdump.quantisation.diagnosis.compared_pictures import PicturePairs, over_all
    from sgsdump.quantisation.fixed_model import check_that_it_runs, rehearse
    from sgsdump.quantisation.pictures import disagreements
    from sgsdump.reports.command_reports import diagnosed, report_of_diagnosis
    from sgsdump.reports.report import Context
    from sgsdump.tuning.measured_advice import judge, measure

    options = record(Options, args, network=network_of(args), given=record(Given, args),
                     limits=Thresholds(args.min_cos, args.max_rmse))  # fmt: skip
    limits = options.limits or DOCUMENTED
    progress = Terminal("stderr")
    check_not_around(options.output, [*options.network.files, options.given.fixed, options.given.ranges])
    if options.given.fixed is not None and runtime_of(options.given.fixed):
        return diagnose_native(_native_task(options))
    if options.given.fixed is not None and is_quantised_by_others(options.given.fixed):
        return diagnose_quantised(_quantised_task(options, options.given.fixed))
    setting = _setting(options)
    # Before anything is printed: data that does not fit, a folder that cannot be written, and a network that does not
    # run on the first picture, or cannot be quantised, need no assumptions.
    feeds = feeds_of(options.network.source(setting.config), setting.specs)
    first = feeds[0]
    asides: list[Path] = []
    with replacing_folder(options.output, asides.append) as folder:
        if setting.fixed is None and options.given.ranges is None:
            rehearse(setting.model, first, setting.config)
        warnings = [*setting.warnings, *disagreements(setting.model, feeds)]
        assumptions = [f"assumed: {sentence}" for sentence in setting.assumed]
        assumptions += [f"warning: {sentence}" for sentence in warnings]
        assumptions += [f"note: {sentence}" for sentence in setting.cut_note]
        print_lines(assumptions, flush=True)
        subject = _subject(options, setting, feeds, progress)
        print_lines(subject.notes, flush=True)
        check_that_it_runs(setting.model, subject.fixed_model.proto, setting.config, first[1])
        every = PicturePairs(feeds)
        few = replace(every, most=MEASURED)
        outputs, advice = judge(subject, measure(subject, few, progress), every, limits, progress)
        pairs = replace(every, chosen=worst_of(list(outputs.pictures.values()), options.pictures))
        compared = over_all(_each_compared(options, subject, pairs, folder, progress), pairs.labels, progress)
        comparison = compared.comparison
        if not comparison.rows:
            why = f": {comparison.failed[0].reason}" if comparison.failed else "; was the fixed model made of this net?"
            raise ValuesError(f"no layer of {options.network.model} could be compared{why}")
        diagnosis = diagnosed(subject, outputs, advice, compared, limits)
        report = report_of_diagnosis(
            subject,
            compared,
            diagnosis,
            Context(
                f"{options.network.model.name} in fixed point",
                facts=_facts(options, feeds, pairs),
                assumptions=[*setting.assumed, *setting.cut_note, *warnings, *subject.notes],
            ),
        )
        _write(folder, report, comparison, diagnosis)
        _write_model(folder, subject, setting.ini, advice)
    print_verdict(report)
    if setting.model.cut is not None:
        print_lines(to_paste(setting.model.cut, setting.config if options.network.input_config else None))
    print_folder(options.output, asides)
    return 1 if options.limits and not (diagnosis.passes and not comparison.failed) else 0


def _quantised_task(options: Options, quantised: Path) -> QuantisedTask:
    from sgsdump.commands.diagnose_quantised import QuantisedTask
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.sidecars import input_config

    network = options.network
    config = input_config.read(network.input_config) if network.input_config else None
    specs = tuple(graph_inputs(open_model(network.model, network.weight_file).proto))
    feeds = feeds_of(network.source(config), specs)
    return QuantisedTask(network.model, quantised, feeds, options.output, options.pictures, options.limits or None)


def _native_task(options: Options) -> NativeTask:
    from sgsdump.commands.diagnose_native import NativeTask
    from sgsdump.errors import ConfigError
    from sgsdump.models.model import graph_inputs, open_model

    assert options.given.fixed is not None, "asked of a given model"
    if options.scheduler:
        raise ConfigError(f"--scheduler: {options.given.fixed} is run here; leave it out")
    network = options.network
    quantised = network.part.of(open_model(options.given.fixed, native=True))
    model = open_model(network.model, network.weight_file, native=True)
    source, assumed = assumed_source(network, model)
    feeds = feeds_of(source, graph_inputs(model.proto))
    return NativeTask(model, quantised, feeds, options.output, options.pictures, options.limits or None, assumed)


@dataclass(frozen=True, eq=False)
class Setting:
    """The facts before any picture is run. ``fixed``: of --fixed."""

    model: Model
    config: InputConfig
    ini: bytes
    assumed: tuple[str, ...] = ()
    fixed: Subject | None = None
    warnings: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        from sgsdump.models.model import graph_inputs

        return tuple(graph_inputs(self.model.proto))

    @property
    def cut_note(self) -> tuple[str, ...]:
        """The notes on a network cut before its post-processing, and on its branches."""
        cut = () if self.model.cut is None else (cut_sentence(self.model.cut),)
        return (*cut, *(self.model.branches.sentences() if self.model.branches else ()))


def _setting(options: Options) -> Setting:
    """Raises what reading the model and the files beside it raises."""
    from sgsdump.quantisation.assumed_config import ini_text
    from sgsdump.quantisation.diagnosis.subject import given_fixed

    network, path = options.network, options.given.fixed
    opened = open_network(network, options.quant_level, guesses=True)
    config, ini, assumed = opened.config, opened.ini, opened.assumed
    fixed = given_fixed(opened.model, path, config if network.input_config else None) if path else None
    if fixed is not None:
        config = fixed.config
        if not network.input_config:
            ini, assumed = ini_text(config).encode(), ()
    return Setting(opened.model, config, ini, assumed, fixed, opened.warnings)


def _subject(options: Options, setting: Setting, feeds: Feeds, progress: Progress) -> Subject:
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.quantisation.diagnosis.subject import calibrated, of_ranges

    if setting.fixed is not None:
        return setting.fixed
    if options.given.ranges:
        return of_ranges(setting.model, options.given.ranges, setting.config)
    workers = Workers(scheduler=options.scheduler)
    return calibrated(setting.model, feeds, setting.config, options.quant_level, progress, workers)


def _each_compared(
    options: Options, subject: Subject, pairs: PicturePairs, folder: Path, progress: Progress
) -> Iterator[Compared]:
    from sgsdump.quantisation.diagnosis.compared_pictures import PictureComparer, compared_on_cluster, each_compared

    models = subject.float_model, subject.fixed_model
    if options.scheduler:
        return compared_on_cluster(*models, pairs, options.scheduler, progress)
    return each_compared(PictureComparer(*models, folder), pairs)


def _facts(options: Options, feeds: Feeds, pairs: PicturePairs) -> list[tuple[str, str]]:
    facts = [("float model", str(options.network.model))]
    if options.given.fixed:
        facts.append(("fixed model", str(options.given.fixed)))
    elif options.given.ranges:
        facts.append(("ranges", str(options.given.ranges)))
    else:
        facts.append(("calibrated on", f"{len(feeds)} of {options.network.data}, level {options.quant_level}"))
    which = "" if len(pairs) == len(feeds) else ", those whose outputs are furthest off"
    return [*facts, ("layers compared on", f"{len(pairs)}{which}: {', '.join(pairs.labels)}")]


def worst_of(errors: list[float], most: int) -> tuple[int, ...]:
    """The indices of the pictures whose outputs are furthest off, in the pictures' order."""
    ranked = sorted(range(len(errors)), key=lambda index: -errors[index])
    return tuple(sorted(ranked[:most]))


def _write(folder: Path, report: Report, comparison: Comparison, diagnosis: Diagnosis) -> None:
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.diagnosis import with_columns, with_findings
    from sgsdump.reports.html.document import render

    replace_text(folder / "report.html", render(report))
    for name, add in (("csv", with_columns), ("json", with_findings)):
        replace_text(folder / f"layers.{name}", add(REPORTS[name](comparison, diagnosis.limits), diagnosis))


def _write_model(folder: Path, subject: Subject, ini: bytes, advice: MeasuredAdvice | None) -> None:
    """input_config.ini as it should be; the fixed model and its ranges where they were made here."""
    from sgsdump.files.atomic_write import make_folder
    from sgsdump.quantisation.calibration_log import LogOptions, write_log
    from sgsdump.quantisation.float_model import serialise
    from sgsdump.sidecars.input_config import with_tensor_arrays

    names = advice.config_names if advice is not None else subject.config.tensor_arrays
    (folder / "input_config.ini").write_bytes(with_tensor_arrays(ini, names))
    if subject.made is not None:
        (folder / "fixed.onnx").write_bytes(serialise(subject.fixed_model.proto))
        log_options = LogOptions(weights=subject.per_channel)
        write_log(make_folder(folder / "log"), subject.float_model, *subject.made, log_options)
