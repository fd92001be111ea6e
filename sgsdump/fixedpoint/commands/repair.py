"""Raise convolutions to INT16, round by round, until the model's outputs hold the thresholds.

Calibrates once; each round then makes the fixed model, dumps float and fixed, compares, advises and raises. A round
that does not improve the outputs is undone; raised tensors that turn out unneeded are lowered again at the end; what
your input_config.ini raises stays raised. It ends when the thresholds hold (over all pictures that judge; a Softmax is
judged by its input, the logits), when nothing improves, or after --rounds. An older folder -o is moved aside.

The rounds replace what L4 and L5 would raise on their own, so to make the same fixed model again, calibrate with the
new input_config.ini at L2 or L3. DebugConfig.txt is not read. Exit status: 0 the thresholds hold or you gave none, 1
they do not, on pictures held out (--validate) too, 2 on trouble.

examples:
  sgsdump repair -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o repaired
  sgsdump repair -m net.onnx -i pictures/ --input-config input_config.ini --evaluate cat.jpg -o repaired

your metric, other pictures to judge by, pictures held out:
  --metric FILE.py:f calls f(outputs, float_outputs) -> number for every picture, as tune does; its mean is told of the
  float model, of the fixed one as it was, repaired, and with every convolution at 16 bits. --evaluate: what the rounds
  are judged on, in place of some of -i. --validate: pictures that nothing is chosen on, on which these models are run
  at the end. What is worse there than on the pictures that judge is not recommended.

the folder -o:
  rounds.txt           what was raised in each round, why, and with what result; rounds.json the same for programs
  report.html          every layer of the fixed model against the float one, on the first picture that judges
  fixed.onnx           the fixed model
  input_config.ini     yours, with the tensor_arrays found
  log/                 tensor_min_max.txt and the other files of calibrate
  float.bin fixed.bin  the dumps of the first picture that judges
  cured.onnx           with --cure: the model that all of it is for, and its quant files, for calibrate's --quant-file
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
    add_judges,
    add_limits,
    add_model,
    add_quant_level,
    add_strict_sdk,
    network_of,
    record,
    whole_number,
)
from sgsdump.commands.terminal import print_cut, print_lines
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.verbs.judges import Judges
from sgsdump.fixedpoint.verbs.repair import JUDGING, ROUNDS, Task, opened_for, repaired_in
from sgsdump.models.network import Network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds


@dataclass(frozen=True)
class Options:
    network: Network
    judges: Judges
    output: Path
    rounds: int
    quant_level: str
    limits: Thresholds
    cure: bool
    json: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and pictures")
    add_model(network)
    add_feeds(network, f"calibrate on: {INPUTS}")
    add_input_config(network)
    add_strict_sdk(network)
    add_quant_level(network)
    judging = parser.add_argument_group("judging")
    add_judges(judging, "rounds", "told of the model as it was and repaired")
    judging.add_argument(
        "--debug-image", dest="evaluate", metavar="IMAGES", help=f"the same as --evaluate (default: {JUDGING} of -i)"
    )
    search = parser.add_argument_group("the rounds")
    search.add_argument("-o", "--output", required=True, type=Path, metavar="FOLDER", help="folder to write")
    add_limits(search, "every output")
    search.add_argument(
        "--rounds", type=whole_number, default=ROUNDS, metavar="N", help="at most this many (default: %(default)s)"
    )
    search.add_argument("--cure", action="store_true",
                        help="start from the cured model (see cure), which is then the one to convert")  # fmt: skip
    add_json(search, "write rounds.json here too")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.files.atomic_write import check_file, check_not_around, replace_text, replacing_folder
    from sgsdump.reports.made_by import typed

    options = record(Options, args, network=network_of(args), judges=record(Judges, args),
                     limits=Thresholds(args.min_cos, args.max_rmse))  # fmt: skip
    check_not_around(options.output, [*options.network.files, *options.judges.files])
    task = Task(options.network, options.judges, options.quant_level, options.limits, options.rounds, options.cure)
    ready = opened_for(task)
    print_warnings(ready.network, ready.coverage)
    if options.json:
        check_file(options.json)
    # Opened first: a long repair must not end with "no such folder".
    asides: list[Path] = []
    with replacing_folder(options.output, asides.append) as folder:
        found = repaired_in(folder, ready, TERMINAL, print_lines, lambda lines: print_lines(["", *lines]))
        found.write(folder, typed(args))
    if options.json:
        replace_text(options.json, (options.output / "rounds.json").read_text(encoding="utf-8"))
    print_lines(["", *found.tail()])
    for aside in asides:
        print(f"moved the older {options.output} aside to {aside}")
    print(f"{options.output}: {', '.join(sorted(path.name for path in options.output.iterdir()))}")
    print_cut(found.basis.opened.model, found.basis.opened.config)
    return 1 if options.limits and not found.passes else 0
