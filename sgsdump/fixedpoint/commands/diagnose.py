"""Find where a model loses accuracy in fixed point, and what to do, in one run and one report.

examples:
  sgsdump diagnose -m net.onnx -i images/
  sgsdump diagnose -m net.onnx -i images/ -n preprocess.py --input-config input_config.ini -o net
  sgsdump diagnose -m net.onnx -i images/ --fixed net_fixed.onnx --max-images 4
  sgsdump diagnose -m net.onnx -i images/ -n preprocess.py --fixed net_int8.onnx
  sgsdump diagnose -m net.tflite -i images/ -n preprocess.py --fixed net_int8.tflite

what it does:
  It calibrates on all images, makes the fixed model, and judges its outputs on
  all images. It compares every layer on the images with the largest output
  error, and measures the contribution of each convolution to the output error.

assumptions:
  Assumptions are printed first. Without --input-config, inputs are assumed to
  be RGB or GRAY images; running the preprocess file (-n) on an image gives
  mean and std_value.

exit status:
  0; 1 if you gave a limit and an output or a layer exceeds it, or if
  input_config.ini does not describe the images that the model gets; 2 on
  errors.

files in the folder -o (an existing folder is renamed):
  report.html             verdict, next steps, a chart of the error against the
                          depth of the layer, and the histogram and calibration
                          range of every layer
  layers.csv layers.json  metrics of every layer
  model_explorer.json     the graph of the float model for Model Explorer;
                          model_explorer_errors.json colours the layers of this
                          graph by error; netron.onnx is the same graph for
                          Netron, with the errors as metadata
  fixed.onnx log/         the fixed model and its ranges, if diagnose made them
  advised.onnx            the fixed model with all recommended changes; written
                          only if another --quant-level is recommended
  input_config.ini        your configuration file or the inferred configuration
                          file; its tensor_arrays lists the tensors that should
                          become INT16
  advised.quant.json .pkl a quant file for --quant-file, written only if INT16
                          is recommended; the quant file raises the recommended
                          convolutions to INT16, and its INT16 ranges are wider
                          than the calibration ranges
  cured.onnx              with --cure: the float model, rewritten so that INT8
                          loses less accuracy; a quant file contains the
                          calibration ranges of the rewritten model
  planned.onnx            with --cure, if cured.onnx is not accurate enough at
                          INT8: a rewritten float model, and a quant file that
                          also raises convolutions to INT16

a model quantised with another tool (--fixed QUANTISED.onnx):
  --fixed accepts an ONNX model with QDQ nodes, QOperator nodes or dynamic
  quantisation. Each quantised tensor and weight is tested alone in the float
  model. The advice names operators to keep in float, in the terms of
  onnxruntime, NNCF, ModelOpt, AIMET or Quark. With such a model, the folder -o
  also contains quantised.csv, but no input_config.ini
  (docs/debug_a_quantised_onnx.md).

held-out images:
  With 12 or more different images, the expected error is measured on images
  that calibration does not use, plus one standard error. There are 3 folds of
  the images, or 2 folds with 24 or more images. With --validate, the images of
  --validate are held out instead.

your metric:
  --metric FILE.py:f calls f(outputs, float_outputs) -> number for every image.
  The mean metric is printed for the float model, the fixed model, the fixed
  model with the recommended changes, and the fixed model with every convolution
  at INT16.

a cluster (--scheduler):
  A Dask cluster (pip install 'sgsdump[cluster]') runs the model on the images.
  The local machine reads and preprocesses the images, and sends the images and
  the model to the cluster. The workers need the same versions of sgsdump, onnx,
  onnxruntime and numpy, but none of your files. The measurements that lead to
  the recommendation run on the local machine, not on the cluster. The result is
  the same as without a cluster.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    add_cure,
    add_feeds,
    add_fixed,
    add_input_config,
    add_json,
    add_judges,
    add_limits,
    add_model,
    add_output,
    add_quant_level,
    add_ranges,
    add_scheduler,
    add_strict_sdk,
    network_of,
    record,
    whole_number,
)
from sgsdump.commands.terminal import print_early, print_folder, print_lines
from sgsdump.fixedpoint.verbs.diagnose import FOLDER, MAX_IMAGES
from sgsdump.fixedpoint.verbs.judges import Judges
from sgsdump.models.network import Network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds


RARE = ("--model-inputs", "--model-outputs", "--strict-sdk", "--scheduler")


@dataclass(frozen=True)
class Given:
    """Files that replace the calibration."""

    fixed: Path | None
    ranges: Path | None


@dataclass(frozen=True)
class Options:
    network: Network
    given: Given
    output: Path
    max_images: int
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
    quantising = parser.add_argument_group("fixed model")
    source = quantising.add_mutually_exclusive_group()
    add_fixed(source, "use this fixed model, or a model quantised with another tool, instead of making one")
    add_ranges(source, "use these ranges (tensor_min_max.txt or a quant file) instead of calibrating")
    add_quant_level(quantising)
    add_cure(
        quantising,
        "also run sgsdump cure, which rewrites the model, and report the INT8 error of the rewritten "
        "model; takes minutes",
    )
    add_judges(
        parser.add_argument_group("judging"),
        "errors of outputs and layers",
        "which scores the fixed model with and without the recommended changes",
        "the images of -i",
    )
    add_scheduler(parser.add_argument_group("processes"), "calibrate and compare")
    report = parser.add_argument_group("output and limits")
    add_output(report, "folder to write (default: %(default)s)", "DIR", Path(FOLDER))
    report.add_argument(
        "--max-images",
        type=whole_number,
        default=MAX_IMAGES,
        metavar="N",
        help=(
            "compare layers on at most N images, namely the images with the largest output error (default: %(default)s)"
        ),
    )
    add_json(report, "also write layers.json (the metrics of every layer) to this file")
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
    level, most = options.quant_level, options.max_images
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
