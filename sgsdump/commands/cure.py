"""Rewrite a float model so that 8 bits lose less, before any INT16 is spent.

Writes the model to convert in place of yours, with the same inputs, outputs and tensors. What it computes as a float
model stays, but for weights that are rounded and biases that are corrected, which is said. Each cure is tried and
judged by itself, in the hardware's integers, against your model as it is, on pictures that it was not fitted to: every
third of -i, or those of --validate. One that does not help is left out, and said. A Caffe model comes back as ONNX.

  cure      what it does
  ranges    room in the ranges for what the calibration pictures do not show: in FILE.quant.json, not in the model
  fold      BatchNormalization goes into the convolution before it, which SDK 1.1.5 leaves to two operators of 16 bits
  equalise  channels are scaled so that one range suits all of a tensor
  bias      the mean that quantising adds to a channel is taken off its bias
  round     weights are rounded so that the layer's output is kept, where the pictures support it

examples:
  sgsdump cure -m net.onnx -i pictures/ --input-config input_config.ini -o cured.onnx
  sgsdump cure -m net.onnx -i pictures/ --input-config input_config.ini -o cured.onnx --validate faces/
  sgsdump cure -m net.onnx -i pictures/ --input-config input_config.ini -o cured.onnx --cures fold,equalise
  sgsdump calibrate -m cured.onnx -i pictures/ --input-config input_config.ini --quant-level L2 \\
      --quant-file cured.quant.json

the files:
  cured.onnx        the model; calibrate it with the same pictures and level
  cured.quant.json  its ranges, for calibrate's --quant-file; cured.quant.pkl is the same for the SDK's --quant_file
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    INPUTS,
    QUANT_LEVELS,
    add_feeds,
    add_input_config,
    add_model,
    add_strict_sdk,
    network_of,
    record,
)
from sgsdump.verbs.network import Network, open_network

if TYPE_CHECKING:
    from sgsdump.models.feeds.feeds import Feeds

SUFFIXES = (".quant.json", ".quant.pkl")


@dataclass(frozen=True)
class Options:
    network: Network
    output: Path | None
    quant_level: str
    cures: str | None
    validate: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and pictures")
    add_model(network)
    add_feeds(network)
    add_input_config(network)
    add_strict_sdk(network)
    curing = parser.add_argument_group("curing")
    curing.add_argument("--quant-level", choices=QUANT_LEVELS, default="L2",
                        help="level that the model is cured for, see calibrate (default: %(default)s)")  # fmt: skip
    curing.add_argument("--cures", metavar="NAME,NAME...", help="the cures to try (default: all)")
    curing.add_argument("--validate", metavar="IMAGES", help=f"judge on these, which nothing is fitted to: {INPUTS}")
    output = parser.add_argument_group("results")
    output.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="model to write (default: MODEL_cured.onnx here)"
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal, print_lines, print_warnings
    from sgsdump.curing.cure import CURES, CureOptions, cure
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_outputs, replacing, together
    from sgsdump.models.model import open_model
    from sgsdump.quantisation.fixed_model import rehearse
    from sgsdump.quantisation.float_model import save_model
    from sgsdump.reports.cured import lines, summary
    from sgsdump.sidecars import quant_param

    options = record(Options, args, network=network_of(args))
    network = options.network
    target = options.output or Path(f"{network.model.stem}_cured.onnx")
    if target.suffix != ".onnx":
        raise ConfigError(f"-o {target}: the cured model is ONNX; give it a name that ends in .onnx")
    beside = [target.with_name(target.stem + suffix) for suffix in SUFFIXES]
    cures = tuple(options.cures.split(",")) if options.cures else CURES
    how = CureOptions(options.quant_level, cures)
    validate_path = Path(options.validate) if options.validate else None
    check_outputs([target, *beside], [*network.files, validate_path])
    opened = open_network(network, options.quant_level)
    feeds = opened.feeds()
    validate = opened.feeds(options.validate) if options.validate else None
    if validate is not None and (same := sorted(_files(validate) & _files(feeds))):
        raise ConfigError(
            f"--validate has {same[0]}, which -i has too: judged on what it is fitted to, every cure looks good; "
            f"give other files"
        )
    rehearse(opened.model, feeds[0], opened.config)
    print_warnings(opened)
    outputs = [entry.name for entry in opened.config.outputs]
    model = network.part.of(open_model(network.model, network.weight_file, staged_outputs=outputs))
    with together(), replacing(target) as file:
        cured = cure(model, feeds, opened.config, how, validate, Terminal("stderr"))
        save_model(cured.proto, target, file)
    for path, form in zip(beside, ("json", "pickle")):
        if cured.params is not None:
            quant_param.write(cured.params, path, form)
        else:
            path.unlink(missing_ok=True)
    print_lines(lines(cured))
    if cured.params is not None:
        print(f"{beside[0]}: {len(cured.params)} ranges, for --quant-file; {beside[1].name} for the SDK's --quant_file")
    print(f"{target}: {summary(cured)}")
    return 0


def _files(feeds: Feeds) -> set[Path]:
    """The files that runs are made of, where they are."""
    from sgsdump.models.feeds.feeds import PictureFeeds

    runs = feeds.runs if isinstance(feeds, PictureFeeds) else ()
    return {Path(file).resolve() for run in runs for file in run}
