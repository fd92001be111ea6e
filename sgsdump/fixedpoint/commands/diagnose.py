"""Find where a network loses accuracy in fixed point, and what to do about it, in one run and one report.

Calibrates on all images, makes the fixed model and judges its outputs on all images. Compares every layer on the
images with the largest output error, and measures the cost of each convolution's 8 bits. Writes report.html, a single
file that you can open or email. Assumptions are printed first: without --input-config, inputs are assumed to be RGB or
GRAY images, and mean and std_value are found by running the preprocess file (-n) on an image. --fixed takes a fixed
model of calibrate, or a model quantised with another tool (ONNX: QDQ, QOperator, dynamic). --ranges takes a
tensor_min_max.txt or a quant file instead of a calibration. An existing folder -o is renamed. Exit status: 0; 1 if you
gave a limit and an output or another layer is outside it, or if input_config.ini does not describe the images that the
network gets; 2 on errors.

examples:
  sgsdump diagnose -m net.onnx -i pictures/
  sgsdump diagnose -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o net
  sgsdump diagnose -m net.onnx -i pictures/ --fixed net_fixed.onnx --pictures 4
  sgsdump diagnose -m net.onnx -i pictures/ -n preprocess.py --fixed net_int8.onnx
  sgsdump diagnose -m net.tflite -i pictures/ -n preprocess.py --fixed net_int8.tflite

the folder -o:
  report.html             verdict, next steps, error over depth, every layer with its histograms and calibrated range
  layers.csv layers.json  figures of every layer
  model_explorer.json     the network as a graph, coloured with model_explorer_errors.json; netron.onnx: its figures
  fixed.onnx log/         the fixed model and the ranges, if made here (see calibrate)
  advised.onnx            if another --quant-level is advised: the fixed model with all of the advice
  input_config.ini        yours, or the assumed one, with the advised tensor_arrays
  advised.quant.json .pkl if the advice raises convolutions: its plan with room in INT16 ranges, for --quant-file
  cured.onnx              with --cure: the model rewritten so that INT8 loses less, with its ranges (docs/cure.md)
  planned.onnx            with --cure, if cured.onnx is not enough: its quant file also raises convolutions to INT16

a network quantised with another tool (--fixed QUANTISED.onnx, docs/debug_a_quantised_onnx.md):
  Each quantised tensor and weight is inserted into the float network alone, and the worst are left float. The advice
  uses the terms of onnxruntime, NNCF, ModelOpt, AIMET or Quark. The folder also has quantised.csv, but no
  input_config.ini.

unseen images:
  With 12 or more different images, the expected error is measured on images held out of the calibration (3 folds, 2
  from 24 images on), plus one standard error. With --validate, your images replace the folds. The order of the files
  does not matter.

your metric, other images for judging, held-out images:
  --metric FILE.py:f calls f(outputs, float_outputs) -> number for every image, as tune does. The mean is printed for
  the float model, the fixed model, the fixed model with the advice, and with every convolution at 16 bits. --evaluate
  judges outputs and layers on these images instead of the calibration images; if the ranges do not fit these images,
  they are named as a cause. --validate gives images that no choice is based on. A plan that is worse on them is not
  recommended.

a cluster (--scheduler):
  A Dask cluster (pip install 'sgsdump[cluster]') runs the images while calibrating and comparing. Images are read and
  preprocessed here and sent. The workers need none of your files, only the same versions of sgsdump, onnx, onnxruntime
  and numpy. Measurements for the advice run here. The result is the same as with one process.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
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
from sgsdump.commands.terminal import print_early, print_folder, print_lines
from sgsdump.fixedpoint.verbs.diagnose import FOLDER, PICTURES
from sgsdump.fixedpoint.verbs.judges import Judges
from sgsdump.models.network import Network

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
    network = parser.add_argument_group("model and images")
    add_model(network)
    add_feeds(network)
    add_input_config(network, "input_config.ini (default: inferred and printed)")
    add_strict_sdk(network)
    quantising = parser.add_argument_group("the fixed model")
    source = quantising.add_mutually_exclusive_group()
    source.add_argument("--fixed", type=Path, metavar="FILE", help="use this fixed model instead of making one")
    source.add_argument("--ranges", type=Path, metavar="FILE", help="use these ranges instead of calibrating")
    add_quant_level(quantising)
    quantising.add_argument("--cure", action="store_true",
                            help="first report the effect of cure in INT8; takes minutes")  # fmt: skip
    add_judges(parser.add_argument_group("judging"), "outputs", "for the fixed model without and with the advice")
    add_scheduler(parser.add_argument_group("processes"), "calibrate and compare")
    report = parser.add_argument_group("the report")
    report.add_argument("-o", "--output", type=Path, default=Path(FOLDER), metavar="DIR",
                        help="folder to write (default: %(default)s)")  # fmt: skip
    report.add_argument("--pictures", type=whole_number, default=PICTURES, metavar="N",
                        help="compare layers on at most N images, those with the largest output error (default: "
                             "%(default)s)")  # fmt: skip
    add_json(report, "also write layers.json to this file")
    add_limits(report, "a layer")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.files.atomic_write import check_file, check_not_around, replace_text, replacing_folder
    from sgsdump.fixedpoint.verbs.diagnose import diagnosed_in
    from sgsdump.fixedpoint.verbs.diagnose_setting import Task
    from sgsdump.reports.made_by import typed

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
        found = diagnosed_in(folder, task, Terminal("stderr"), print_early)
        facts = (*found.report.facts, *typed(args))
        found = replace(found, report=replace(found.report, facts=facts))
        found.write(folder)
    if options.json:
        replace_text(options.json, found.texts["layers.json"])
    print_lines([*found.verdict, *found.report.details])
    for step in found.report.next_steps:
        print_lines([step.text, *step.copy.splitlines()])
    print_lines(found.paste)
    print_folder(output, asides)
    return 1 if not found.agrees or (options.limits and not found.passes) else 0
