"""Rewrite a float model so that INT8 loses less accuracy, before any convolution needs INT16.

examples:
  sgsdump cure -m net.onnx -i images/ --input-config net.ini -o cured.onnx
  sgsdump cure -m net.onnx -i images/ --input-config net.ini -o cured.onnx --validate faces/
  sgsdump cure -m net.onnx -i images/ --input-config net.ini -o cured.onnx --cures fold,equalise
  sgsdump calibrate -m cured.onnx -i images/ --input-config net.ini --quant-level L2 --quant-file cured.quant.json

the cures:
  ranges    widens calibration ranges, because other images can have values
            outside these ranges; changes only FILE.quant.json, not the model
  fold      folds BatchNormalization into the convolution before it; SDK 1.1.5
            keeps BatchNormalization as two INT16 operators
  equalise  scales channels so that one range fits all channels of a tensor
  absorb    moves the constant part of a channel into the bias of the next layer
  bias      subtracts the mean quantisation error of a channel from its bias
  round     rounds each weight up or down so that the output of the layer
            changes least; kept only if the error decreases on both halves of
            the images

how cures are judged:
  The cured model has the same inputs, outputs and tensors as your model. After
  each cure, the model runs in the integers of the hardware. The outputs are
  compared with the outputs of your float model on held-out images: each fold
  of -i in turn, or --validate. A cure that does not help is skipped. sgsdump
  cure prints how much the outputs of the float model change. With fewer than
  12 different images, no images are held out, and only INT16 ranges are
  widened.

output files:
  cured.onnx        the cured model; calibrate this model with the same images
                    and the same calibration level that you gave to cure
  cured.quant.json  calibration ranges of the cured model, for --quant-file of
                    calibrate
  cured.quant.pkl   the ranges of cured.quant.json as a pickle, for --quant_file
                    of the SDK
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from sgsdump.commands.options import (
    add_feeds,
    add_input_config,
    add_json,
    add_model,
    add_output,
    add_quant_level,
    add_strict_sdk,
    add_validate,
    network_of,
    record,
)
from sgsdump.fixedpoint.verbs.network import open_network
from sgsdump.models.network import Network

RARE = ("--model-inputs", "--model-outputs")


@dataclass(frozen=True)
class Options:
    network: Network
    output: Path | None
    quant_level: str
    cures: str | None
    validate: str | None
    json: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and images")
    add_model(network)
    add_feeds(network)
    add_input_config(network)
    add_strict_sdk(network)
    curing = parser.add_argument_group("cures")
    add_quant_level(
        curing, "calibration level that you will use for the rewritten model, see calibrate --help-all", "L2"
    )
    curing.add_argument(
        "--cures", metavar="NAME,NAME...", help="cures (ways to rewrite the model) to try (default: all)"
    )
    add_validate(
        curing,
        "held-out images on which the effect of each cure is measured (default: each fold of the images of -i in turn)",
    )
    output = parser.add_argument_group("output")
    add_output(output, "model to write (default: MODEL_cured.onnx in the current folder)")
    add_json(output, "write the effect of each cure (change of the model) as JSON")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal, print_lines
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_file, check_outputs, replace_text
    from sgsdump.fixedpoint.commands.network_lines import print_warnings
    from sgsdump.fixedpoint.curing.cure import ranges_beside
    from sgsdump.fixedpoint.curing.steps import CURES, CureOptions
    from sgsdump.fixedpoint.reports.cured import cure_json, lines, summary
    from sgsdump.fixedpoint.verbs.cure import cured

    options = record(Options, args, network=network_of(args))
    network = options.network
    target = options.output or Path(f"{network.model.stem}_cured.onnx")
    if target.suffix != ".onnx":
        raise ConfigError(f"-o {target}: the cured model is ONNX; give it a name that ends in .onnx")
    how = CureOptions(options.quant_level, tuple(options.cures.split(",")) if options.cures else CURES)
    validate_path = Path(options.validate) if options.validate else None
    check_outputs([target, *ranges_beside(target), options.json], [*network.files, validate_path])
    for path in filter(None, (target, options.json)):
        check_file(path)  # fails early, not after a long cure
    opened = open_network(network, options.quant_level)
    feeds, judges = opened.feeds(), opened.feeds(options.validate) if options.validate else None
    _ = feeds[0]  # reports unsuitable data before any warning
    print_warnings(opened, judges or feeds)
    found = cured(network, opened, how, (feeds, judges), Terminal("stderr"))
    found.save(target)
    if options.json:
        replace_text(options.json, cure_json(found, options.quant_level))
    print_lines(lines(found))
    if found.params is not None:
        beside = ranges_beside(target)
        print(f"{beside[0]}: {len(found.params)} ranges, for --quant-file; {beside[1].name} for the SDK's --quant_file")
    print(f"{target}: {summary(found)}")
    return 0
