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
from dataclasses import dataclass
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
from sgsdump.commands.terminal import print_cut, print_lines
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.verbs.advise import Task, advised, check, opened_for
from sgsdump.models.network import Network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds


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
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.files.atomic_write import check_outputs

    options = record(Options, args, network=network_of(args), limits=Thresholds(args.min_cos, args.max_rmse))
    network = options.network
    task = Task(network, options.ranges, options.dump, options.fixed, options.quant_level, options.limits)
    check(task)
    check_outputs([options.json], [options.ranges, *network.files, options.dump, options.fixed])
    opened, feeds = opened_for(task)
    print_warnings(opened, feeds)
    found = advised(task, opened, feeds, TERMINAL)
    if options.json:
        found.save(options.json)
    print_lines(found.lines())
    print_cut(opened.model, opened.config)
    return 0
