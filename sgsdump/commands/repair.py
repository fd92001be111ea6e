"""Raise convolutions to INT16, round by round, until the model's outputs hold the thresholds.

Calibrates once; each round then makes the fixed model, dumps float and fixed, compares, advises and raises. A round
that does not improve the outputs is undone; raised tensors that turn out unneeded are lowered again at the end; what
your input_config.ini raises stays raised. It ends when the thresholds hold (over all debug pictures; a Softmax is
judged by its input, the logits), when nothing improves, or after --rounds. An older folder -o is moved aside.

The rounds replace what L4 and L5 would raise on their own, so to make the same fixed model again, calibrate with the
new input_config.ini at L2 or L3. DebugConfig.txt is not read. Exit status: 0 the thresholds hold or you gave none, 1
they do not, 2 on trouble.

examples:
  sgsdump repair -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o repaired
  sgsdump repair -m net.onnx -i pictures/ --input-config input_config.ini --debug-image cat.jpg -o repaired

the folder -o:
  rounds.txt           what was raised in each round, why, and with what result; rounds.json the same for programs
  report.html          every layer of the fixed model against the float one, on the first debug picture
  fixed.onnx           the fixed model
  input_config.ini     yours, with the tensor_arrays found
  log/                 tensor_min_max.txt and the other files of calibrate
  float.bin fixed.bin  the dumps of the first debug picture
  cured.onnx           with --cure: the model that all of it is for, and its quant files, for calibrate's --quant-file
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    whole_number,
)
from sgsdump.commands.terminal import print_cut, print_lines, print_warnings
from sgsdump.errors import listed
from sgsdump.verbs.calibrate import WITHOUT_BITS
from sgsdump.verbs.network import Network, open_network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.tuning.repair import Repair, Round
    from sgsdump.tuning.sensitivity_analysis import LabelledPictureFeed

DEBUG_PICTURES = 4


@dataclass(frozen=True)
class Options:
    network: Network
    output: Path
    debug_image: str | None
    rounds: int
    quant_level: str
    min_cos: float | None
    max_rmse: float | None
    cure: bool
    json: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and pictures")
    add_model(network)
    add_feeds(network, f"calibrate on: {INPUTS}")
    network.add_argument(
        "--debug-image", help=f"dump and judge on: picture, folder … (default: {DEBUG_PICTURES} of -i)"
    )
    add_input_config(network)
    add_strict_sdk(network)
    add_quant_level(network)
    search = parser.add_argument_group("the rounds")
    search.add_argument("-o", "--output", required=True, type=Path, metavar="FOLDER", help="folder to write")
    add_limits(search, "every output")
    search.add_argument(
        "--rounds", type=whole_number, default=10, metavar="N", help="at most this many (default: %(default)s)"
    )
    search.add_argument("--cure", action="store_true",
                        help="start from the cured model (see cure), which is then the one to convert")  # fmt: skip
    add_json(search, "write rounds.json here too")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
    from sgsdump.files.atomic_write import check_file, make_folder, replace_text, replacing_folder
    from sgsdump.quantisation.calibration import calibrate
    from sgsdump.quantisation.calibration_log import LogOptions, write_log
    from sgsdump.quantisation.fixed_model import rehearse
    from sgsdump.quantisation.ranges.statistics import side_ranges
    from sgsdump.reports.made_by import typed
    from sgsdump.reports.repair_reports import end_lines, render_round, repair_log
    from sgsdump.sidecars.input_config import with_tensor_arrays
    from sgsdump.tuning.dump_trial import Calibrated
    from sgsdump.tuning.repair import Repair
    from sgsdump.verbs.cured_ways import start_cured

    options = record(Options, args, network=network_of(args))
    network = options.network
    given = Thresholds(options.min_cos, options.max_rmse)
    limits = given or DOCUMENTED
    opened = open_network(network, options.quant_level)
    model, config, ini = opened.model, opened.config, opened.ini
    feeds = opened.feeds()
    pictures = _debug_pictures(opened.feeds(options.debug_image) if options.debug_image else feeds, options)
    print_warnings(opened)
    labels = [label for label, _, _ in pictures]
    start = start_cured(network, opened, WITHOUT_BITS[options.quant_level], TERMINAL) if options.cure else None
    if start is not None:
        model = start.opened.model
    if options.json:
        check_file(options.json)
    # Opened first: a long repair must not end with "no such folder".
    asides: list[Path] = []
    with replacing_folder(options.output, asides.append) as folder:
        level = WITHOUT_BITS[options.quant_level]  # raising to INT16 is what the rounds do
        rehearse(model, feeds[0], config)
        calibration = calibrate(model, feeds, config, level, progress=TERMINAL)
        head = [
            f"sgsdump repair {network.model}, calibrated on {len(feeds)} pictures, weights "
            f"{'one scale per tensor' if level == 'L1' else 'per channel'} (--quant-level {options.quant_level})",
            f"Judged on {listed(labels, 4)}, together; the layers on the first.",
            f"Wanted: no output with {limits}{'' if given else ' (the default)'}.",
        ]
        head += start.lines() if start is not None else []
        print_lines(head)
        side = side_ranges(calibration.statistics)
        ranges = start.with_room(calibration.ranges, side, level != "L1") if start else calibration.ranges
        repair = Repair(Calibrated(model, ranges, config, side), pictures, limits, folder, TERMINAL)
        rounds = _printed(repair, options.rounds, limits)
        texts = [render_round(result, limits, repair) for result in rounds]
        tail = list(end_lines(repair, limits))
        _write(folder / "rounds.txt", repair_log(head, texts, tail))
        facts = {
            "model": str(network.model),
            "quant_level": options.quant_level,
            "calibration_pictures": len(feeds),
            "debug_pictures": labels,
        }
        _write_results(folder, model, (facts, typed(args)), repair, rounds, limits)
        if start is not None:
            start.cured.save(folder / "cured.onnx")
        best = repair.best
        if best.tensor_arrays != config.tensor_arrays:
            ini = with_tensor_arrays(ini, repair.config_names(best.tensor_arrays))
        (folder / "input_config.ini").write_bytes(ini)
        write_log(make_folder(folder / "log"), model, calibration, best.run.plan, LogOptions(weights=level != "L1"))
    if options.json:
        replace_text(options.json, (options.output / "rounds.json").read_text(encoding="utf-8"))
    print("\n" + "\n".join(tail))
    for aside in asides:
        print(f"moved the older {options.output} aside to {aside}")
    print(f"{options.output}: {', '.join(sorted(path.name for path in options.output.iterdir()))}")
    print_cut(model, config)
    return 1 if given and not best.holds else 0


def _printed(repair: Repair, most: int, limits: Thresholds) -> list[Round]:
    """The rounds, each printed when it is done."""
    from sgsdump.reports.repair_reports import render_round

    rounds = []
    for result in repair.rounds(most):
        rounds.append(result)
        print(f"\n{render_round(result, limits, repair)}", end="")
    return rounds


def _write_results(
    folder: Path,
    model: Model,
    facts: tuple[dict[str, Any], Sequence[tuple[str, str]]],
    repair: Repair,
    rounds: Sequence[Round],
    limits: Thresholds,
) -> None:
    """rounds.json, which begins with the first facts, and report.html, which ends with them all."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.models.model import open_model
    from sgsdump.reports.command_reports import bits_by, report_of_repair
    from sgsdump.reports.html.document import render
    from sgsdump.reports.made_by import versions
    from sgsdump.reports.repair_reports import repair_json
    from sgsdump.reports.report import Context

    begin, end = facts
    _write(folder / "rounds.json", repair_json(begin, rounds, repair, limits))
    shown = [
        ("float model", begin["model"]),
        ("calibrated on", f"{begin['calibration_pictures']} pictures, level {begin['quant_level']}"),
        ("layers of", begin["debug_pictures"][0]),
        versions(),
        *end,
    ]
    with open_dump(folder / "fixed.bin") as sample, open_dump(folder / "float.bin") as benchmark:
        bits = bits_by(open_model(folder / "fixed.onnx"), "this repair", rounds[0].tensor_arrays)
        title = f"{Path(begin['model']).name}, repaired"
        context = Context(title, shown, sample=sample, benchmark=benchmark, bits=bits)
        page = report_of_repair(repair, rounds, model, limits, context)
    _write(folder / "report.html", render(page))


def _debug_pictures(feeds: Feeds, options: Options) -> tuple[LabelledPictureFeed, ...]:
    """Those of --debug-image, else a few of the calibration pictures, evenly chosen; as the float and as the fixed
    model takes them."""
    few = len(feeds) if options.debug_image else min(DEBUG_PICTURES, len(feeds))
    return tuple(feeds.both(number * (len(feeds) - 1) // max(1, few - 1)) for number in range(few))


def _write(path: Path, text: str) -> None:
    # names that are not UTF-8 come from the model as surrogates, and go back as the bytes they were
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
