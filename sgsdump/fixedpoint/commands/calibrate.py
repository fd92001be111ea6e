"""Create the fixed model and compute the range of every tensor from a float model, images and input_config.ini.

examples:
  sgsdump calibrate -m net.onnx -i images/ -n preprocess.py --input-config input_config.ini -o net_fixed.onnx
  sgsdump calibrate -m net.onnx -i list.txt --input-config input_config.ini --quant-level L2 --num-process 4
  sgsdump calibrate -m net.onnx -i images/ --input-config input_config.ini --quant-file quant_info.json
  sgsdump calibrate -m net.onnx -i cat.jpg --input-config input_config.ini --quant-file sdk_log/tensor_min_max.txt
  sgsdump calibrate -m net.prototxt --weight-file net.caffemodel -i images/ --input-config input_config.ini

the fixed model:
  An ONNX file of standard operators that compute the same integers as the
  hardware. Run this file with sgsdump simulate -t Fixed or with onnxruntime.
  At the end, calibrate lists each operator without an integer rule, and the
  method used instead (docs/exact_integers.md).

the levels (--quant-level):
        weights per channel  activation ranges fitted  raised to INT16
  L1                         (minimum and maximum)
  L2    x
  L3    x                    x
  L4    x                                              x
  L5    x                    x                         x

  Weight ranges are the minimum and maximum of each output channel, as in the
  SDK. At L1 and L2, all ranges are computed as in the SDK. Fitted activation
  ranges (percentile, entropy, least squares) are kept if the outputs of the
  model improve on a few images. A convolution is raised to INT16 if quantising
  only this convolution to INT8 changes the outputs by more than -sth: sum((y -
  r)^2) / sum(r^2), averaged over the outputs. If an output is a softmax, the
  input of the softmax is measured instead. If input_config.ini sets ALL_INT16,
  all levels above L1 have the same effect as L2.

your own ranges (--quant-file):
  Without --quant-level, tensor_weight_calibration.txt beside the file gives the
  level. With log/tensor_min_max.txt of the SDK's calibrator, the fixed model is
  identical to the SDK's; tensor_chn.txt, softmax_lut_range.txt and, above L1,
  tensor_weight_calibration.txt are read from the same folder. Ranges that the
  file lacks are computed with the method of the level. Only the quant file
  raises convolutions to INT16: with --quant-file, L5 has the same effect as L3,
  and L4 the same effect as L2. Weight ranges of tensor_min_max.txt are used at
  L1 only.

files in the folder log/ (files of an older run are replaced, all others kept):
  tensor_min_max.txt     ranges of all tensors
  tensor_chn.txt         ranges of the output channels of convolutions
  softmax_lut_range.txt  ranges of the lookup tables of softmax operators
  tensor_weight.txt, tensor_weight_calibration.txt
                         at levels above L1: weights of the convolutions,
                         and weights with their ranges; models with more than
                         four million weights get files without weight values

DebugConfig.txt:
  disableDomainFuseOps in ./DebugConfig.txt makes calibrate keep the output of
  every layer, except a convolution directly before its Relu, Clip, LeakyRelu or
  PRelu. The hardware computes the convolution and this activation in one step.

a cluster (--scheduler):
  A Dask cluster (pip install 'sgsdump[cluster]') runs the model on the images.
  This machine reads and preprocesses the images, and sends the images and the
  model to the workers. The workers need the same versions of sgsdump, onnx,
  onnxruntime and numpy, but none of your files. The result is the same on the
  same type of processor; another type may round the last bit of a value
  differently.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sgsdump.commands.options import (
    add_feeds,
    add_input_config,
    add_json,
    add_metric,
    add_model,
    add_num_process,
    add_output,
    add_quant_level,
    add_scheduler,
    add_strict_sdk,
    network_of,
    not_negative,
    record,
)
from sgsdump.commands.terminal import print_cut
from sgsdump.errors import ConfigError, listed
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.verbs.calibrate import BY_PARTS, THRESHOLD, How, calibrated, level_of, with_metric
from sgsdump.fixedpoint.verbs.network import open_network
from sgsdump.models.network import Network

if TYPE_CHECKING:
    from sgsdump.fixedpoint.quantisation.calibration import Calibration
    from sgsdump.fixedpoint.verbs.calibrate import FixedModel


RARE = ("--model-inputs", "--model-outputs", "--strict-sdk", "--scheduler", "--ranges-format")
_BARE = Path()  # --json without a file, which meant --ranges-format json before 0.2


@dataclass(frozen=True)
class Options:
    network: Network
    output: Path | None
    quant_level: str
    level_told: bool
    sensitivity_threshold: float
    quant_file: str | None
    plan_of: Path | None
    range_room: bool
    num_process: int
    scheduler: str | None
    ranges_format: Literal["text", "json"]
    json: Path | None
    metric: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and images")
    add_model(network)
    add_feeds(network)
    add_input_config(network)
    add_strict_sdk(network)
    quantising = parser.add_argument_group("quantisation")
    add_quant_level(
        quantising,
        "calibration level, which selects how ranges are computed and whether some convolutions are raised to INT16; "
        "see --help-all",
    )
    quantising.add_argument(
        "-sth",
        "--sensitivity-threshold",
        type=not_negative,
        default=THRESHOLD,
        metavar="X",
        help=(
            "at levels L4 and L5, a convolution is raised to INT16 if quantising it to INT8 changes the "
            "outputs by more than X (default: %(default)s)"
        ),
    )
    quantising.add_argument(
        "--quant-file",
        metavar="FILE",
        help=(
            "file with your own ranges, bit widths and weights: JSON or pickle list of "
            "{name, min, max, bit, data}, or tensor_min_max.txt"
        ),
    )
    quantising.add_argument(
        "--plan-of",
        type=Path,
        metavar="FIXED",
        help=(
            "raise exactly those convolutions to INT16 that run at INT16 in this fixed model; "
            "[CONV_CONFIG] of input_config.ini is ignored"
        ),
    )
    quantising.add_argument(
        "--range-room",
        action="store_true",
        help=(
            "make INT16 ranges wider by at least half, because other images can have values outside calibration ranges"
        ),
    )
    output = parser.add_argument_group("output")
    add_output(output, "fixed model to write (default: MODEL_fixed.onnx in the current folder)")
    output.add_argument(
        "--ranges-format",
        choices=("text", "json"),
        default="text",
        help="format of log/tensor_min_max (default: %(default)s)",
    )
    add_json(output, "write calibration ranges, bit widths and warnings as JSON", bare=_BARE)
    add_metric(output, "your own accuracy function, which scores the float model and the fixed model")
    many = parser.add_argument_group("processes").add_mutually_exclusive_group()
    add_num_process(many)
    add_scheduler(many, "run the model on images")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.files.atomic_write import check_outputs, replace_text, replacing, replacing_folder, together
    from sgsdump.files.json_yaml import json_text
    from sgsdump.fixedpoint.quantisation.calibration_log import FILES
    from sgsdump.fixedpoint.quantisation.diagnosis.share import integer_share, share_text
    from sgsdump.fixedpoint.quantisation.fixed_model import clipped_ranges
    from sgsdump.fixedpoint.quantisation.float_model import deployed, disagreements
    from sgsdump.fixedpoint.quantisation.objective import left_out_outputs, watched_tensors
    from sgsdump.fixedpoint.quantisation.quant_file import WIDE_TIMES, read_quant_file, too_wide
    from sgsdump.fixedpoint.tuning.criteria import load_metric
    from sgsdump.models.fixed_facts import read_facts
    from sgsdump.sidecars import debug_config

    if args.json == _BARE:
        print("warning: --json without a file is now --ranges-format json; version 0.3 will reject it")
        args.ranges_format, args.json = "json", None
    told = getattr(args, "quant_level_told", False)
    options = record(Options, args, network=network_of(args), level_told=told)
    network, quant_file = options.network, Path(options.quant_file) if options.quant_file else None
    debug = debug_config.read(dumps_fixed=False) or debug_config.DebugConfig()
    if quant_file is not None:
        read_quant_file(quant_file)  # fails early, before the model is opened
    target = options.output or Path(f"{network.model.stem}_fixed.onnx")
    if target.suffix == ".sim":
        raise ConfigError(f"{target}: calibrate writes ONNX, not .sim; use the name {target.with_suffix('.onnx')}")
    metric = load_metric(options.metric) if options.metric else None
    fuse = not debug.disable_domain_fuse_ops
    how = How(_level(options), quant_file, options.sensitivity_threshold, fuse, options.range_room, options.plan_of)
    check_outputs([target, options.json], [*network.files, quant_file, options.plan_of])
    by_parts = how.level in BY_PARTS and not options.scheduler and metric is None
    opened = open_network(network, options.quant_level, outside=by_parts)
    model, feeds = opened.model, opened.files()
    _ = feeds[0]  # reports unsuitable data before any warning
    print_warnings(opened)
    if not by_parts:
        _print_weights(network.model)
    for sentence in disagreements(model, feeds):
        print(f"warning: {sentence}", flush=True)
    # Opened first, so that a long calibration cannot end with "no such folder".
    log = replacing_folder(Path("log"), keep=lambda name: name not in FILES)
    with together(), replacing(target) as file, log as folder:
        workers = Workers(options.num_process, options.scheduler)
        progress = Terminal("stderr")
        made = with_metric(calibrated(opened, feeds, how, workers, progress), feeds, metric, progress)
        made.write(target, file)
        ranges_file = made.write_log(folder, options.ranges_format)
        if options.json is not None:
            replace_text(options.json, json_text(_document(made, len(feeds))))
    calibration, imported, fixed = made.calibration, made.imported, made.fixed
    runs = "feeds" if network.data_loader_script else "images"
    if quant_file is not None:
        print(
            f"{quant_file}: {len(imported.ranges) - len(imported.moved)} ranges used; level {how.level} gives all "
            "others"
        )
        if made.measured:
            print(f"{quant_file}: no range for {listed(made.measured)}: measured on the {runs}")
    if options.plan_of is not None:
        raised = imported.config.by_quant_file
        print(f"{options.plan_of}: INT16 for {listed(raised) if raised else 'no convolution'}")
    if imported.unknown:
        print(f"{quant_file or options.plan_of}: names that are not in this model: {listed(imported.unknown)}")
    _print_choices(calibration, options.sensitivity_threshold)
    if calibration.fits or calibration.sensitivities:
        proto = deployed(imported.model)
        for name, reason in left_out_outputs(proto, watched_tensors(proto)).items():
            print(f"judging ignores the output {name}, {reason}")
    narrowed = {name for fit in calibration.fits if fit.after < fit.before for name in fit.tensors}
    for clipped in clipped_ranges(fixed.plan, calibration.seen):
        if clipped.name not in narrowed:
            print(f"warning: {clipped}")
    wide = too_wide(imported.ranges, calibration.seen)
    if wide:
        name, times = next(iter(wide.items()))
        given, seen = imported.ranges[name], calibration.seen[name]
        print(
            f"warning: {quant_file}: {len(wide)} of {len(imported.ranges)} ranges are more than {WIDE_TIMES:g} times "
            f"as wide as the values on these {runs}; {name} is {times:.3g} times as wide: {given.low:g} to "
            f"{given.high:g}, values {seen.low:g} to {seen.high:g}. Check that the file was made for this model and "
            f"for data like these"
        )
    print(f"log/{ranges_file.name}: the ranges of {len(calibration.ranges)} tensors over {len(feeds)} {runs}")
    in_16 = sum(str(quant.dtype) == "int16" for quant in fixed.plan.weights.values())
    print(f"{target}: {len(fixed.plan.weights)} convolutions, {in_16} of them INT16")
    if made.has_tight_int16:
        print("INT16 ranges fit these images exactly; --range-room widens them by half for unseen images")
    for note in fixed.notes:
        print(note)
    if text := share_text(integer_share(imported.model, read_facts(made.model))):
        print(text)
    if made.metric is not None:
        print(f"your metric over {len(feeds)} {runs}: float {made.metric[0]:.4g}, fixed {made.metric[1]:.4g}")
    print_cut(model, opened.config)
    return 0


def _document(made: FixedModel, runs: int) -> dict[str, Any]:
    """Return the document of ``--json``, see docs/formats/json.md."""
    return {
        "format": "sgsdump calibration",
        "version": 1,
        "level": made.how.level,
        "runs": runs,
        "convolutions": made.convolutions,
        "ranges": {name: [float(one.low), float(one.high)] for name, one in made.ranges.items()},
        "notes": list(made.notes),
        "warnings": list(made.warnings),
        "metric": None if made.metric is None else dict(zip(("float", "fixed"), made.metric)),
    }


def _print_weights(path: Path) -> None:
    """Print a note if a model with large external weights is held in memory."""
    from sgsdump.models import external_data
    from sgsdump.models.model import open_model

    size = external_data.external_bytes(open_model(path).proto) if path.suffix.lower() == ".onnx" else 0
    if size >= external_data.MANY_BYTES:
        print(
            f"note: the {size / 1e9:.1f} GB of weights are held in memory several times; with --quant-level L1 or L2 "
            f"and no --scheduler, weights are read one at a time",
            flush=True,
        )


def _level(options: Options) -> str:
    """Return the calibration level; print that of the quant file's log."""
    from sgsdump.fixedpoint.quantisation.calibration_log import has_weight_ranges

    quant_file = Path(options.quant_file) if options.quant_file else None
    level = level_of(options.quant_level if options.level_told else None, quant_file, options.plan_of)
    is_fine = has_weight_ranges(quant_file) if quant_file else None
    if is_fine is None:
        return level
    if (level != "L1") == is_fine:
        print(f"{quant_file}: made at level {'above L1' if is_fine else 'L1'}, according to the weights file beside it")
    else:
        print(
            f"warning: {quant_file} was made at level {'above L1' if is_fine else 'L1'}, but --quant-level is "
            f"{options.quant_level}; omit --quant-level, otherwise integers differ from those of the SDK"
        )
    return level


def _print_choices(calibration: Calibration, threshold: float) -> None:
    """Print the narrowed ranges and the raised convolutions, with the reasons."""
    for fit in calibration.fits:
        if fit.after < fit.before:
            low, high = fit.taken.low, fit.taken.high
            print(
                f"range of {', '.join(fit.tensors)}: {low:g} to {high:g} by {fit.taken.kind}; "
                f"the outputs' error falls from {fit.before:.3g} to {fit.after:.3g}"
            )
    raised = [sensitivity for sensitivity in calibration.sensitivities if sensitivity.raised]
    for sensitivity in raised:
        print(
            f"INT16 proposed for {listed(sensitivity.domain.convolutions)} (tensor_arrays {sensitivity.domain.name}): "
            f"quantising only this tensor to INT8 changes the outputs by {sensitivity.effect:.2g}, more than "
            f"{threshold:g}"
        )
    if calibration.sensitivities and not raised:
        most = calibration.sensitivities[0]
        which = f"the most sensitive convolution, {listed(most.domain.convolutions)}, changes"
        if most.together > 1:
            which = f"{most.together} tensors at INT8 together change"
        print(f"no INT16 proposed: {which} the outputs by {most.effect:.2g}, not more than {threshold:g}")
