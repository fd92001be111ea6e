"""Tune: the smallest set of INT16 convolutions that repairs the model, found by search and verified by simulation.

For each compression rate (bytes of the convolutions' weights over their bytes at 16 bits: 0.5 is all INT8, 1 all INT16)
the best quant plan found; or, with --target, the plan of the fewest bytes that reaches it. Every convolution is
measured alone, integer programs propose plans, each is verified, and neighbours of the best are tried while the budget
lasts; models of at most 12 convolutions are searched exhaustively. Ranges come from all calibration pictures (-i), as
`sgsdump calibrate` finds them; plans are judged on 10 of these, evenly chosen, or on all of --evaluate.

An output's error is sum((fixed - float)^2) / sum(float^2) over all pictures; where a Softmax makes an output, at its
input. The errors of several outputs are scaled to be equal at INT8, so that none hides another. Then their mean counts;
with --objective worst the output furthest from what INT16 gives it, with --objective NAME,NAME... these outputs alone.

Targets: output-cos>=X (the lowest COS of any output), output-rmse<=X, error<=X, metric>=X with --metric: your Python
function f(outputs, float_outputs) -> number, {name: array} each, called for every picture; its mean counts, higher is
better.

FOLDER gets, for the i-th rate, optimized_quant_info_i_RATE.json (for `sgsdump calibrate --quant-file`; --pickle: .pkl
for the SDK's sim_calibrator.py --quant-file) and input_config_i_RATE.ini (yours, with tensor_arrays); without i_RATE
they are those of the plan marked *: the smallest known that goes 95 % of the way from INT8's error to INT16's, or
reaches the target (with --fixed-model also optimized.onnx). pareto.csv, .json and .png show them all, report.html
besides every layer of the plan marked *, on a few of the pictures.
progress.json keeps every plan tried: Ctrl-C ends the search with the best so far, the same command goes on. The results
of an earlier run in FOLDER stay until the new ones take their place, all at once; files of yours in FOLDER stay.

With --scheduler a Dask cluster (pip install 'sgsdump[cluster]') calibrates and runs the plans. Pictures are read and
preprocessed here, and sent with the model, and the metric runs here, so its machines need none of your files, but the
same versions of sgsdump, onnx, onnxruntime and numpy (the scheduler's too). A worker that dies loses nothing.

examples:
  sgsdump tune -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o tuned
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --target "output-cos>=0.999"
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --metric faces.py:matches --budget 60s
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --scheduler tcp://host:8786
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import INPUTS, add_model, add_pictures

if TYPE_CHECKING:
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.models.model import Model
    from sgsdump.quantisation.fixed_model import FixedModel
    from sgsdump.quantisation.ranges.side_ranges import SideRanges
    from sgsdump.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.value_range import Range
    from sgsdump.tuning.pareto import Pareto
    from sgsdump.tuning.sizes import Found
    from sgsdump.tuning.target import Target
    from sgsdump.tuning.tuning_setup import PictureFeed, Setup

# Bits are what the search decides, so of L4 and L5 the rest remains.
RESULTS = re.compile(r"optimized(_\d+_[\d.]+)?\.onnx|optimized_quant_info(_\d+_[\d.]+)?\.(json|pkl)|"
                     r"input_config(_\d+_[\d.]+)?\.ini|pareto\.(csv|json|png)|report\.html")  # fmt: skip
# The layers of the plan to take are compared on this many pictures.
COMPARED = 4
LEVELS = {"L1": "L1", "L2": "L2", "L3": "L3", "L4": "L2", "L5": "L3"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_pictures(parser, f"calibration pictures: {INPUTS}")
    parser.add_argument("--input-config", required=True, help="input_config.ini")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON here too")
    parser.add_argument("--rates", metavar="R,R…", help="compression rates (default: 0.65,0.7,…,0.95)")
    parser.add_argument("--target", metavar="NAME>=X", help="the smallest plan that reaches it, instead of rates")
    parser.add_argument("--metric", metavar="FILE.py:FUNCTION", help="your own accuracy, for the table and --target")
    parser.add_argument("--objective", default="mean", metavar="mean|worst|NAME", help="which outputs' error is made "
                        "small: all on average, the worst, or those named (default: %(default)s)")  # fmt: skip
    parser.add_argument("--evaluate", metavar="IMAGES", help="pictures to judge plans by, instead of some of -i")
    parser.add_argument("--budget", default="10m", help="time for the search: 60s, 5m, 1h (default: %(default)s)")
    parser.add_argument("--quant-level", choices=LEVELS, default="L5", help="how ranges are found, see calibrate "
                        "(default: %(default)s; the bits it proposes are not taken)")  # fmt: skip
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--num-process", type=int, default=1, metavar="N", help="processes that calibrate")
    many.add_argument("--scheduler", metavar="ADDRESS", help="calibrate and run plans on the Dask cluster whose "
                      "scheduler is here (tcp://host:8786); see above")  # fmt: skip
    parser.add_argument("--fixed-model", action="store_true", help="write optimized_i_RATE.onnx, the fixed models")
    parser.add_argument("--pickle", action="store_true", help="write quant parameters as pickle (protocol 3) too")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.errors import OutputError
    from sgsdump.files.atomic_write import replacing, replacing_folder, together
    from sgsdump.files.text_file import read_bytes
    from sgsdump.models.feeds.board_formats import board_notes
    from sgsdump.quantisation.float_model import deployed, open_float_model
    from sgsdump.quantisation.objective import watched_by_output
    from sgsdump.reports.tuning.pareto_json import render
    from sgsdump.reports.tuning.pareto_table import render as table
    from sgsdump.sidecars import input_config
    from sgsdump.tuning import search
    from sgsdump.tuning.combined_error import parse_objective
    from sgsdump.tuning.pareto import pareto
    from sgsdump.tuning.plan_search import check_solver
    from sgsdump.tuning.target import parse_target
    from sgsdump.tuning.tuned_files import fixed_of
    from sgsdump.tuning.tuning_setup import set_up
    from sgsdump.tuning.user_metric import load_metric
    from sgsdump.tuning.verification import verify

    rates = parse_rates(args.rates) if args.rates else list(search.RATES)
    target = parse_target(args.target) if args.target else None
    seconds = parse_seconds(args.budget)
    check_options(args)
    check_solver()
    metric = load_metric(args.metric) if args.metric else None
    config = input_config.read(args.input_config)
    if args.json and not Path(args.json).parent.is_dir():
        raise OutputError(f"cannot write {args.json}: there is no folder {Path(args.json).parent}; make it first")
    folder = usable_folder(args.output, Path(args.input_config))
    ini = read_bytes(Path(args.input_config))
    text = read_bytes(Path(args.metric.rpartition(":")[0])) if args.metric else b""
    model = open_float_model(args.model, args.weight_file, config)
    objective = parse_objective(args.objective, watched_by_output(deployed(model)))
    for note in board_notes(config):
        print(f"warning: {note}")
    ranges, side, feeds = calibrated(args, model, config)
    with stopped_by_ctrl_c(seconds) as left:
        setup = set_up(model, ranges, config, feeds, metric, objective, folder / "progress.json", text,
                       workers_of(args), Terminal("stderr"))  # fmt: skip
        plans_found = searched(setup, rates, target, left, args.budget, folder / "progress.json")
    result = pareto(plans_found, setup.pool, setup.sizes, setup.trial, metric is not None)
    taken = fixed_of(setup.trial, result.taken, side)
    judged = (setup.pool.pictures, setup.pool.combined, setup.pool.outputs)
    result = replace(result, verified=verify(model, taken, *judged, Terminal("stderr")))
    with together():
        if args.json:
            with replacing(args.json) as file:
                file.write(render(result).encode())
        with replacing_folder(folder, keep=is_kept) as newer:
            write_results(args, newer, ini, result, setup.trial, side)
            write_report(args, newer, result, setup.trial, taken)
    print(table(result), end="")
    print_ending(args, folder, result)
    for each in taken.clipped:
        print(f"warning: {each}")
    return 0


def searched(
    setup: Setup, rates: list[float], target: Target | None, left: Callable[[], float], budget: str, progress: Path
) -> Found:
    """The plans for the rates or for the target, after lines on how much there is to do and what is known already."""
    from sgsdump.tuning import search

    most = search.most_evaluations(len(setup.sizes.domains), 0 if target else len(set(rates)))
    runs = most * len(setup.pool.pictures)
    setup.pool.expect(runs)
    print(f"{len(setup.sizes.domains)} groups of convolutions; at most {most} plans on {len(setup.pool.pictures)} "
          f"pictures = {runs} runs of the network, within {budget}")  # fmt: skip
    if setup.pool.resumed:
        print(f"{progress}: going on, {setup.pool.resumed} plans are known")
    try:
        if target:
            return search.search_target(setup.pool, setup.sizes, target, left)
        return search.search_rates(setup.pool, setup.sizes, rates, left)
    finally:
        setup.pool.close()


def is_kept(name: str) -> bool:
    """Whether a file of an older FOLDER stays: progress.json and the user's own, but no result of an earlier run."""
    return not RESULTS.fullmatch(name)


def check_options(args: argparse.Namespace) -> None:
    """Raises ConfigError for options that do not go together."""
    from sgsdump.errors import ConfigError

    if args.target and args.rates:
        raise ConfigError("--rates and --target exclude each other: a target finds its own rate")
    if args.target and args.target.strip().startswith("metric") and not args.metric:
        raise ConfigError("--target metric>=X needs --metric FILE.py:function")
    if args.num_process < 1:
        raise ConfigError(f"--num-process {args.num_process} is no number of 1 or more")


def workers_of(args: argparse.Namespace) -> Workers:
    from sgsdump.executors.workers.task_pool import Workers

    return Workers(args.num_process, args.scheduler)


def parse_rates(text: str) -> list[float]:
    """Raises ConfigError for what is no list of rates above 0.5 and at most 1."""
    from sgsdump.errors import ConfigError
    from sgsdump.tuning.search import check_rates

    try:
        rates = sorted({float(word) for word in text.split(",") if word.strip()})
    except ValueError as error:
        raise ConfigError(f"--rates {text!r} is not a list of numbers like 0.65,0.7") from error
    if not rates:
        raise ConfigError("--rates names no rate")
    check_rates(rates)
    return rates


def parse_seconds(text: str) -> float:
    """``60s``, ``5m``, ``1.5h``, or a number of seconds. Raises ConfigError."""
    from sgsdump.errors import ConfigError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match:
        raise ConfigError(f"--budget {text!r} is no time; write 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def usable_folder(path: Path, ini: Path) -> Path:
    """The folder, made if need be. Raises OutputError when it cannot be written to, ConfigError when a result would
    take the place of the user's own input_config.ini."""
    import os

    from sgsdump.errors import ConfigError, OutputError
    from sgsdump.files.atomic_write import make_folder

    progress = path / "progress.json"
    if progress.exists() and not progress.is_file():
        raise OutputError(f"{progress} is no file; remove it, or name another folder with -o")
    if not os.access(make_folder(path), os.W_OK):
        raise OutputError(f"cannot write into the folder {path}: no permission; name another with -o")
    if ini.resolve().parent == path.resolve() and RESULTS.fullmatch(ini.name):
        raise ConfigError(f"the results would overwrite {ini}; name another folder with -o")
    return path


def calibrated(
    args: argparse.Namespace, model: Model, config: InputConfig
) -> tuple[dict[str, Range], SideRanges, Iterator[PictureFeed]]:
    """The ranges of the model's tensors, what was seen besides, and the pictures that judge plans."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.models.feeds.feeds import feeds
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.models.feeds.picture_feeds import PictureFeeds
    from sgsdump.models.model import graph_inputs
    from sgsdump.quantisation.levels import calibrate
    from sgsdump.quantisation.ranges.side_ranges import side_ranges
    from sgsdump.tuning.tuning_setup import PICTURES

    specs = tuple(graph_inputs(model.proto))
    pictures = PictureFeeds(args.image, args.preprocess, specs, config)
    judges = PictureFeeds(args.evaluate, args.preprocess, specs, config) if args.evaluate else pictures
    calibration = calibrate(
        model, pictures, config, LEVELS[args.quant_level], workers=workers_of(args), progress=Terminal("stderr")
    )
    chosen = set(range(len(judges))) if args.evaluate else set(evenly(range(len(judges)), PICTURES))
    raws = feeds(args.evaluate or args.image, args.preprocess, specs, config, normalised=False)
    pairs = ((judges[i][1], raw) for i, (_, raw) in enumerate(raws) if i in chosen)
    return calibration.ranges, side_ranges(calibration.statistics), pairs


@contextmanager
def stopped_by_ctrl_c(seconds: float) -> Iterator[Callable[[], float]]:
    """A function that gives the seconds left: none after the first Ctrl-C or SIGTERM. The second one stops at once."""
    import signal
    import threading
    import time

    end = time.monotonic() + seconds
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield lambda: end - time.monotonic()
        return

    def stop(*_: object) -> None:
        stopped.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: 0.0 if stopped.is_set() else end - time.monotonic()
    finally:
        restore()


def write_results(
    args: argparse.Namespace, folder: Path, ini: bytes, result: Pareto, trial: PlanTrial, side: SideRanges
) -> None:
    """Every file of FOLDER but progress.json; ``ini`` is the user's input_config.ini."""
    from sgsdump.files.atomic_write import replacing
    from sgsdump.quantisation.float_model import serialise
    from sgsdump.reports.tuning import pareto_csv, pareto_json, pareto_png
    from sgsdump.sidecars import quant_param
    from sgsdump.sidecars.tensor_arrays import with_tensor_arrays
    from sgsdump.tuning.tuned_files import fixed_of, optimized, stem

    def write(name: str, data: bytes) -> None:
        with replacing(folder / name) as file:
            file.write(data)

    asked = [row for row in result.rows if row.asked is not None]
    names = [f"_{stem(index, row.asked or row.rate)}" for index, row in enumerate(asked)]
    for name, row in [*zip(names, asked), ("", result.taken)]:
        fixed = fixed_of(trial, row, side)
        params = optimized(trial, fixed, Path(args.model))
        quant_param.write(params, folder / f"optimized_quant_info{name}.json")
        if args.pickle:
            quant_param.write(params, folder / f"optimized_quant_info{name}.pkl", "pickle")
        if args.fixed_model:
            write(f"optimized{name}.onnx", serialise(fixed.proto))
        write(f"input_config{name}.ini", with_tensor_arrays(ini, row.tensors))
    write("pareto.csv", pareto_csv.render(result).encode())
    write("pareto.json", pareto_json.render(result).encode())
    write("pareto.png", pareto_png.render(result))


def write_report(args: argparse.Namespace, folder: Path, result: Pareto, trial: PlanTrial, taken: FixedModel) -> None:
    """report.html of the plan to take, compared on a few of the pictures that judge plans."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.models.model import graph_inputs
    from sgsdump.quantisation.diagnosis.compared_pictures import PictureComparer, each_compared, over_all
    from sgsdump.quantisation.diagnosis.picture_pairs import PicturePairs
    from sgsdump.reports.html.document import render
    from sgsdump.reports.html.of_tuning import report_of_tuning

    specs = tuple(graph_inputs(trial.model.proto))
    pairs = PicturePairs(args.evaluate or args.image, args.preprocess, specs, trial.config, COMPARED)
    comparer = PictureComparer(trial.model, replace(trial.model, proto=taken.proto), folder)
    compared = over_all(each_compared(comparer, pairs), pairs.labels, Terminal("stderr"))
    facts = [("float model", str(args.model)), ("judged on", f"{result.pictures} pictures"),
             ("layers compared on", ", ".join(pairs.labels))]  # fmt: skip
    title = f"{args.model.name} with the tuned INT16 convolutions"
    report = report_of_tuning(result, compared, trial.model, trial.ranges, title=title, facts=facts)
    replace_text(folder / "report.html", render(report))


def print_ending(args: argparse.Namespace, folder: Path, result: Pareto) -> None:
    from sgsdump.tuning.pareto import worsened

    how = "every plan there is was tried" if result.exhaustive else f"{result.plans_tried} plans tried"
    rest = "" if result.complete else "; the time ran out before the search ended, the same command goes on"
    print(f"{how}, {result.runs} runs of the network{rest}")
    if result.unsearched:
        print(f"not looked at: {'; '.join(result.unsearched)}")
    names = ", ".join(result.taken.raised[:6]) + (" …" if len(result.taken.raised) > 6 else "")
    for name in result.left_out:
        print(f"not counted: {name}, whose error at INT16 is infinite; is it zero in the float model?")
    for name, (error, low) in worsened(result).items():
        print(f"warning: * leaves {name} worse than INT8 does (error {error:.3g}, INT8 {low:.3g}); "
              f"--objective worst or --objective {name} heeds it")  # fmt: skip
    print(f"*: {len(result.taken.raised)} convolutions at INT16{': ' + names if names else ''}")
    if result.verified is not None:
        print(f"*: in the hardware's integers its error is {result.verified.error:.3g} (searched with "
              f"{result.taken.error:.3g})")  # fmt: skip
    level = LEVELS[args.quant_level]
    print(f"{folder}: to make its fixed model, sgsdump calibrate with --input-config {folder / 'input_config.ini'} "
          f"--quant-level {level}")  # fmt: skip
