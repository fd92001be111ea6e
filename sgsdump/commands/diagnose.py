"""Say where a network loses accuracy in fixed point, and what to do about it, in one go and on one page.

Calibrates on all pictures, makes the fixed model, judges its outputs on all pictures, compares every layer on those
that go wrong most, measures what each convolution's 8 bits cost, and writes report.html: a file to look at, mail or
keep. Assumptions are printed first: without --input-config the inputs are taken as RGB or GRAY pictures, and mean and
std_value are found by running the preprocess file (-n) on a picture. --fixed takes a fixed model of calibrate as it is,
or one that others quantised (ONNX: QDQ, QOperator, dynamic), --ranges a tensor_min_max.txt or a quant file in place of
a calibration. An older folder -o is moved aside. Exit status:
0, or 1 when you gave a limit and an output or another layer is past it, or when input_config.ini does not describe the
pictures that the network gets, 2 on trouble.

examples:
  sgsdump diagnose -m net.onnx -i pictures/
  sgsdump diagnose -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o net
  sgsdump diagnose -m net.onnx -i pictures/ --fixed net_fixed.onnx --pictures 4
  sgsdump diagnose -m net.onnx -i pictures/ -n preprocess.py --fixed net_int8.onnx
  sgsdump diagnose -m net.tflite -i pictures/ -n preprocess.py --fixed net_int8.tflite

the folder -o:
  report.html             verdict, next steps, error over depth, every layer with its histograms and calibrated range
  layers.csv layers.json  every layer's figures
  model_explorer.json     the network as a graph, coloured with model_explorer_errors.json; netron.onnx: its figures
  fixed.onnx log/         the fixed model and the ranges, where they were made here (see calibrate)
  advised.onnx            where another --quant-level is advised: the fixed model of that, with all that is advised
  input_config.ini        yours, or the assumed one, with the tensor_arrays advised
  advised.quant.json .pkl where that raises convolutions: its plan with room in INT16 ranges, for --quant-file
  cured.onnx              with --cure: the model rewritten so that 8 bits lose less, its ranges beside it (docs/cure.md)
  planned.onnx            with --cure, where that is not enough: its quant file raises convolutions besides

a network that others quantised (--fixed QUANTISED.onnx, docs/debug_a_quantised_onnx.md):
  Each quantised tensor and weight is put into the float network alone, and the worst are taken out; what to leave
  float is said in the words of onnxruntime, NNCF, ModelOpt, AIMET or Quark. The folder has quantised.csv besides, no
  input_config.ini.

unseen images:
  From 12 different images on, the expected error is of images held out of the calibration: in 3 folds, 2 from 24 images
  on, one standard error above what was measured. With --validate it is of those. The order of the files is no matter.

your metric, other pictures to judge by, pictures held out:
  --metric FILE.py:f calls f(outputs, float_outputs) -> number for every picture, as tune does; its mean is told of the
  float model, of the fixed one as it is, with what is advised, and with every convolution at 16 bits. --evaluate: what
  outputs and layers are judged on, in place of the pictures of the calibration; ranges that do not fit them are a
  cause. --validate: pictures that nothing is chosen on. A plan that is worse on them is not recommended.

a cluster (--scheduler):
  The pictures run on a Dask cluster (pip install 'sgsdump[cluster]'), while calibrating and comparing. They are read
  and preprocessed here and sent: its workers need no files of yours, only the same versions of sgsdump, onnx,
  onnxruntime and numpy. Measuring for the advice stays here. The result is the same as of one process.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    add_feeds,
    add_input_config,
    add_json,
    add_judges,
    add_limits,
    add_model,
    add_quant_level,
    add_scheduler,
    add_strict_sdk,
    network_of,
    record,
    whole_number,
)
from sgsdump.commands.terminal import print_folder, print_lines, print_verdict
from sgsdump.verbs.diagnose import FOLDER, PICTURES
from sgsdump.verbs.judges import Judges
from sgsdump.verbs.network import Network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds


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
    json: Path | None
    limits: Thresholds
    cure: bool
    judges: Judges


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
    quantising.add_argument("--cure", action="store_true",
                            help="say first what curing brings in 8 bits (see cure); takes minutes")  # fmt: skip
    add_judges(parser.add_argument_group("judging"), "outputs", "told of the model as it is and with what is advised")
    add_scheduler(parser.add_argument_group("processes"), "calibrate and compare")
    report = parser.add_argument_group("the report")
    report.add_argument("-o", "--output", type=Path, default=Path(FOLDER), metavar="DIR",
                        help="folder to write (default: %(default)s)")  # fmt: skip
    report.add_argument("--pictures", type=whole_number, default=PICTURES, metavar="N",
                        help="compare layers on at most N pictures, those whose outputs are furthest off (default: "
                             "%(default)s)")  # fmt: skip
    add_json(report, "write layers.json here too")
    add_limits(report, "a layer")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.files.atomic_write import check_file, check_not_around, replace_text, replacing_folder
    from sgsdump.reports.made_by import typed
    from sgsdump.verbs.diagnose import diagnosed_in
    from sgsdump.verbs.diagnose_setting import Task

    options = record(Options, args, network=network_of(args), given=record(Given, args),
                     limits=Thresholds(args.min_cos, args.max_rmse), judges=record(Judges, args))  # fmt: skip
    given, output = options.given, options.output
    check_not_around(output, [*options.network.files, given.fixed, given.ranges, *options.judges.files])
    if options.json:
        check_file(options.json)
    limits = options.limits or DOCUMENTED
    level, most = options.quant_level, options.pictures
    cure = output if options.cure else None
    task = Task(
        options.network, given.fixed, given.ranges, level, most, limits, options.judges, options.scheduler, cure
    )
    asides: list[Path] = []
    with replacing_folder(output, asides.append) as folder:
        found = diagnosed_in(folder, task, Terminal("stderr"), partial(print_lines, flush=True))
        facts = (*found.report.facts, *typed(args))
        found = replace(found, report=replace(found.report, facts=facts))
        found.write(folder)
    if options.json:
        replace_text(options.json, found.texts["layers.json"])
    print_verdict(found.report)
    print_lines(found.paste)
    print_folder(output, asides)
    return 1 if not found.agrees or (options.limits and not found.passes) else 0
