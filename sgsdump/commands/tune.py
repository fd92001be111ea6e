"""Find the smallest set of INT16 convolutions that repairs the model, chosen in the hardware's integers.

Gives the best quant plan found for each compression rate (bytes of the convolutions' weights over their bytes at 16
bits: 0.5 is all INT8, 1 all INT16; with --cost macs their multiplications, those at 16 bits counted twice); or, with
--target, the cheapest plan that reaches it. Every convolution
is measured alone, integer programs propose plans, each is tried, and neighbours of the best are tried while the budget
lasts (of the whole command: calibration, search, verification); models of at most 12 convolutions are searched
exhaustively. That approximation ranks the plans; the best of each size are then run in the hardware's integers, which
choose and give every figure told. Ranges come from all calibration pictures (-i), as `sgsdump calibrate` finds them;
plans are judged on 10 of these, evenly chosen, or on all of --evaluate. Ctrl-C ends the search with the best so far;
rerun the command to resume.

examples:
  sgsdump tune -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o tuned
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --target "output-cos>=0.999"
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --metric faces.py:matches --budget 60s
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --scheduler tcp://host:8786

the error of an output (--objective):
  sum((fixed - float)^2) / sum(float^2) over all pictures; where a Softmax makes an output, at its input. The errors of
  several outputs are scaled to be equal at INT8, so that none hides another. Then their mean counts; with
  --objective worst the output furthest from what INT16 gives it, with --objective NAME,NAME... these outputs alone.

targets (--target):
  output-cos>=X (the lowest COS of any output), output-rmse<=X, error<=X, metric>=X with --metric: your Python function
  f(outputs, float_outputs) -> number, {name: array} each, called for every picture; its mean counts, higher is better.

the folder -o:
  For the i-th rate optimized_quant_info_i_RATE.json (for `sgsdump calibrate --quant-file`; --pickle: .pkl for the SDK's
  sim_calibrator.py --quant-file) and input_config_i_RATE.ini (yours, with tensor_arrays). Without i_RATE they are those
  of the plan marked *: the smallest known that goes 95 % of the way from INT8's error to INT16's, or a larger one at
  the knee, up to which each 5 % of the bytes halve the error; with --target the smallest that reaches it (with
  --fixed-model also optimized.onnx). pareto.csv, .json and .png show all plans, report.html also every layer of
  the plan marked *, on a few of the pictures. progress.json keeps every plan tried. The results of an earlier run stay
  until the new ones take their place, all at once; files of yours stay.

  With --cure also cured.onnx, the model that all of it is for.

a cluster (--scheduler):
  A Dask cluster (pip install 'sgsdump[cluster]') calibrates and runs the plans. Pictures are read and preprocessed
  here, and sent with the model, and the metric runs here, so its machines need none of your files, but the same
  versions of sgsdump, onnx, onnxruntime and numpy (the scheduler's too). A worker that dies loses nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    INPUTS,
    add_feeds,
    add_input_config,
    add_json,
    add_model,
    add_quant_level,
    add_scheduler,
    add_strict_sdk,
    network_of,
    record,
    whole_number,
)
from sgsdump.commands.terminal import print_cut, print_warnings
from sgsdump.errors import ConfigError, OutputError
from sgsdump.verbs.calibrate import WITHOUT_BITS
from sgsdump.verbs.network import Network, OpenNetwork, open_network

if TYPE_CHECKING:
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.quantisation.fixed_model import FixedModel
    from sgsdump.quantisation.ranges.statistics import SideRanges
    from sgsdump.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.tensors.types import Range
    from sgsdump.tuning.criteria import Target, UserMetric
    from sgsdump.tuning.integer_choice import IntegerScores
    from sgsdump.tuning.pareto import Pareto, Row
    from sgsdump.tuning.search import SearchResult
    from sgsdump.tuning.setup import PictureFeed, Setup
    from sgsdump.verbs.cured_ways import Start

Left = Callable[[], float]
PROGRESS, CURED = "progress.json", "cured.onnx"
RESULTS = re.compile(
    r"optimized(_\d+_[\d.]+)?\.onnx|optimized_quant_info(_\d+_[\d.]+)?\.(json|pkl)|"
    r"input_config(_\d+_[\d.]+)?\.ini|pareto\.(csv|json|png)|report\.html|cured\.(onnx|quant\.json|quant\.pkl)"
)
# The layers of the plan to take are compared on this many pictures.
COMPARED = 4
# Plans run in integers to find the smallest that does, about; a picture of the report takes as long as so many.
HALVED, REPORTED = 4, 4
TIDY = (10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600)
# A part of an error that need not be told.
WITHIN = 0.01


@dataclass(frozen=True)
class SearchOptions:
    """The aim of the search, and how plans are judged, as typed."""

    rates: str | None
    target: str | None
    metric: str | None
    objective: str
    cost: str
    evaluate: str | None
    budget: str
    cure: bool


@dataclass(frozen=True)
class Options:
    network: Network
    search: SearchOptions
    quant_level: str
    num_process: int
    scheduler: str | None
    output: Path
    json: Path | None
    fixed_model: bool
    pickle: bool


@dataclass(frozen=True)
class Goal:
    """The goal of a search: the best plan of each rate, or with a target the smallest that reaches it.

    seconds      the time for the whole command.
    metric_text  the file of the user's metric.
    """

    rates: tuple[float, ...]
    target: Target | None
    seconds: float
    metric: UserMetric | None
    metric_text: bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and pictures")
    add_model(network)
    add_feeds(network, f"calibration pictures: {INPUTS}")
    add_input_config(network)
    add_strict_sdk(network)
    add_quant_level(network, "how ranges are found, see calibrate; its INT16 proposals are ignored")
    search = parser.add_argument_group("the search")
    search.add_argument("--rates", metavar="R,R…", help="compression rates (default: 0.65,0.7,…,0.95)")
    search.add_argument("--target", metavar="NAME>=X", help="the smallest plan that reaches it, instead of rates")
    search.add_argument("--metric", metavar="FILE.py:FUNCTION", help="your own accuracy, for the table and --target")
    search.add_argument(
        "--objective",
        default="mean",
        metavar="mean|worst|NAME",
        help="which outputs' error is made small: all on average, the worst, or those named (default: %(default)s)",
    )
    search.add_argument(
        "--cost",
        choices=("bytes", "macs"),
        default="bytes",
        help="what is to be small: bytes of weights, or multiplications at 16 bits (default: %(default)s)",
    )
    search.add_argument("--evaluate", metavar="IMAGES", help="pictures to judge plans by, instead of some of -i")
    search.add_argument(
        "--budget", default="10m", metavar="TIME", help="time for the command: 60s, 5m, 1h (default: %(default)s)"
    )
    search.add_argument("--cure", action="store_true",
                        help="start from the cured model (see cure), which is then the one to convert")  # fmt: skip
    many = parser.add_argument_group("processes").add_mutually_exclusive_group()
    many.add_argument("--num-process", type=whole_number, default=1, metavar="N", help="processes that calibrate")
    add_scheduler(many, "calibrate and run plans")
    results = parser.add_argument_group("results")
    results.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the results")
    add_json(results, "write the table as JSON here too")
    results.add_argument("--fixed-model", action="store_true", help="write optimized_i_RATE.onnx, the fixed models")
    results.add_argument("--pickle", action="store_true", help="write quant parameters as pickle (protocol 3) too")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.files.atomic_write import check_file, replace_text, replacing_folder, together
    from sgsdump.quantisation.float_model import deployed
    from sgsdump.quantisation.objective import watched_by_output
    from sgsdump.reports.pareto_reports import pareto_json, pareto_table
    from sgsdump.tuning.criteria import parse_objective
    from sgsdump.tuning.integer_choice import IntegerScores, chosen, fixed_of
    from sgsdump.tuning.pareto import pareto
    from sgsdump.tuning.proposals import check_solver
    from sgsdump.tuning.search import most_evaluations
    from sgsdump.tuning.setup import Judging, set_up

    begun = time.monotonic()
    options = record(Options, args, network=network_of(args), search=record(SearchOptions, args))
    network, goal, cost = options.network, _goal(options.search), options.search.cost
    check_solver()
    if options.json:
        check_file(options.json)
    made = not options.output.exists()
    folder = _usable_folder(options.output, network.input_config)
    with _no_empty_folder(folder, made):
        opened = open_network(network, options.quant_level)
        model, config = opened.model, opened.config
        objective = parse_objective(options.search.objective, watched_by_output(deployed(model)))
        progress, workers = Terminal("stderr"), Workers(options.num_process, options.scheduler)
        feeds = opened.feeds()
        judges = opened.feeds(options.search.evaluate) if options.search.evaluate else feeds
        _ = feeds[0]  # data that does not fit needs no warnings
        print_warnings(opened)
        start = _started(options, opened) if options.search.cure else None
        if start is not None:
            opened, model = start.opened, start.opened.model
        ranges, side = _calibrated(options, opened, feeds, workers)
        if start is not None:
            ranges = start.with_room(ranges)
    with _stopped_by_ctrl_c(begun + goal.seconds) as left:
        judging = Judging(goal.metric, goal.metric_text, objective, folder / PROGRESS, workers, cost, side)
        setup = set_up(model, ranges, config, _judged(judges, options), judging, progress)
        most = most_evaluations(len(setup.sizes.domains), 0 if goal.target else len(goal.rates))
        pool, trial = setup.pool, setup.trial
        first = IntegerScores(pool, trial)
        ending = _ending_of(first, goal)
        _print_beginning(setup, most, options.search.budget, folder / PROGRESS)
        if left() < ending.seconds:
            print(too_small(options.search.budget, time.monotonic() - begun, ending), flush=True)
        found = _searched(setup, goal, most, lambda: left() - ending.seconds)
        exact = IntegerScores(pool, trial, progress)
        exact.scores |= first.scores
        found = chosen(found, pool, setup.sizes, exact, goal.target, lambda: left() - ending.report)
    result = pareto(found, setup, exact)
    taken = fixed_of(trial, result.taken.tensors)
    with together():
        if options.json:
            replace_text(options.json, pareto_json(result))
        with replacing_folder(folder, keep=_is_kept) as newer:
            _write_results(options, newer, opened.ini, result, trial)
            if start is not None:
                start.cured.save(newer / CURED)
            _write_report(newer, result, trial, taken, judges)
    print(pareto_table(result), end="")
    print_ending(result, folder, WITHOUT_BITS[options.quant_level])
    if start is not None:
        print(f"{folder}: give it -m {folder / CURED} and --quant-file {folder / 'optimized_quant_info.json'} too")
    for clipped in taken.clipped:
        print(f"warning: {clipped}")
    print_cut(model, config)
    return 0


def _started(options: Options, opened: OpenNetwork) -> Start:
    """The network cured, and what that brought printed."""
    from sgsdump.commands.terminal import Terminal, print_lines
    from sgsdump.verbs.cured_ways import start_cured

    start = start_cured(options.network, opened, WITHOUT_BITS[options.quant_level], Terminal("stderr"))
    print_lines(start.lines(), flush=True)
    return start


def _searched(setup: Setup, goal: Goal, most: int, left: Left) -> SearchResult:
    """The plans for the rates, or for the target, of ``most`` that are run."""
    from sgsdump.tuning.search import search_rates, search_target

    setup.pool.expect(most * len(setup.pool.pictures))
    try:
        if goal.target is not None:
            return search_target(setup.pool, setup.sizes, goal.target, left)
        return search_rates(setup.pool, setup.sizes, goal.rates, left)
    finally:
        setup.pool.close()


@dataclass(frozen=True)
class Ending:
    """The seconds that are kept for what follows the search: verifying plans in integers, and the report."""

    verify: float
    report: float

    @property
    def seconds(self) -> float:
        return self.verify + self.report


def _ending_of(exact: IntegerScores, goal: Goal) -> Ending:
    """Of how long one plan takes in integers: that of all at 8 bits, which must be run anyway."""
    begun = time.monotonic()
    exact.score(frozenset())
    plan = time.monotonic() - begun
    plans = 1 + (1 if goal.target else len(goal.rates)) + HALVED
    return Ending(plan * plans, plan * COMPARED * REPORTED / exact.pictures)


def too_small(budget: str, spent: float, ending: Ending) -> str:
    """What to say where the budget leaves no time for the search; ``spent``: seconds so far."""
    needed = 2 * (spent + ending.seconds)
    tidy = next((seconds for seconds in TIDY if seconds >= needed), needed)
    text = f"{tidy / 60:.0f}m" if tidy >= 120 else f"{tidy:.0f}s"
    return (
        f"warning: --budget {budget} leaves no time to search: calibration and set-up took {spent:.0f} s, verifying "
        f"and the report take about {ending.seconds:.0f} s more; only the first proposals are tried. Give at least "
        f"--budget {text}"
    )


def _goal(options: SearchOptions) -> Goal:
    """Raises ConfigError for an invalid rate, target or time and for options that do not go together, InputError for a
    metric that cannot be loaded."""
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.tuning.criteria import load_metric, parse_target
    from sgsdump.tuning.search import RATES

    rates = parse_rates(options.rates) if options.rates else RATES
    target = parse_target(options.target) if options.target else None
    seconds = parse_seconds(options.budget)
    if options.target and options.rates:
        raise ConfigError("--rates and --target exclude each other: a target finds its own rate")
    if target is not None and target.name == "metric" and not options.metric:
        raise ConfigError("--target metric>=X needs --metric FILE.py:function")
    metric = load_metric(options.metric) if options.metric else None
    text = read_bytes(Path(options.metric.rpartition(":")[0])) if options.metric else b""
    return Goal(rates, target, seconds, metric, text)


def parse_rates(text: str) -> tuple[float, ...]:
    """Raises ConfigError for anything but a list of rates above 0.5 and at most 1."""
    from sgsdump.tuning.search import check_rates

    try:
        rates = sorted({float(word) for word in text.split(",") if word.strip()})
    except ValueError as error:
        raise ConfigError(f"--rates {text!r} is not a list of numbers like 0.65,0.7") from error
    if not rates:
        raise ConfigError("--rates names no rate")
    check_rates(rates)
    return tuple(rates)


def parse_seconds(text: str) -> float:
    """``60s``, ``5m``, ``1.5h``, or a number of seconds. Raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match:
        raise ConfigError(f"--budget {text!r} is not a time; write 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _calibrated(
    options: Options, network: OpenNetwork, feeds: Feeds, workers: Workers
) -> tuple[dict[str, Range], SideRanges]:
    """The ranges of the model's tensors, and the other statistics."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.quantisation.calibration import calibrate
    from sgsdump.quantisation.fixed_model import rehearse
    from sgsdump.quantisation.ranges.statistics import side_ranges

    level = WITHOUT_BITS[options.quant_level]
    rehearse(network.model, feeds[0], network.config)
    calibration = calibrate(network.model, feeds, network.config, level, workers=workers, progress=Terminal("stderr"))
    return calibration.ranges, side_ranges(calibration.statistics)


def _judged(judges: Feeds, options: Options) -> Iterator[PictureFeed]:
    """The pictures that judge plans: all of --evaluate, or some of the calibration's."""
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.tuning.setup import PICTURES

    every = range(len(judges))
    for index in every if options.search.evaluate else evenly(every, PICTURES):
        _, feed, raw = judges.both(index)
        yield feed, raw


@contextmanager
def _no_empty_folder(folder: Path, made: bool) -> Iterator[None]:
    """Where what is done ends early, a folder ``made`` for the results goes again while it is empty."""
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def _stopped_by_ctrl_c(end: float) -> Iterator[Left]:
    """A function that gives the seconds left until ``end`` (``time.monotonic``): none after the first Ctrl-C or
    SIGTERM. The second stops at once."""
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


def _usable_folder(path: Path, ini: Path | None) -> Path:
    """The folder, made if need be. Raises OutputError when it cannot be written to, ConfigError when a result would
    take the place of the user's own input_config.ini."""
    from sgsdump.files.atomic_write import make_folder

    progress = path / PROGRESS
    if progress.exists() and not progress.is_file():
        raise OutputError(f"{progress} is not a file; remove it, or name another folder with -o")
    if not os.access(make_folder(path), os.W_OK):
        raise OutputError(f"cannot write into the folder {path}: no permission; name another with -o")
    if ini is not None and ini.resolve().parent == path.resolve() and RESULTS.fullmatch(ini.name):
        raise ConfigError(f"the results would overwrite {ini}; name another folder with -o")
    return path


def _is_kept(name: str) -> bool:
    """Whether a file of an older FOLDER stays: progress.json and the user's own, but no result of an earlier run."""
    return not RESULTS.fullmatch(name)


def _write_results(options: Options, folder: Path, ini: bytes, result: Pareto, trial: PlanTrial) -> None:
    """Every file of FOLDER but progress.json; ``ini`` is the user's input_config.ini."""
    from sgsdump.files.atomic_write import replacing
    from sgsdump.quantisation.float_model import serialise
    from sgsdump.reports.charts.pareto import pareto_png
    from sgsdump.reports.pareto_reports import pareto_csv, pareto_json
    from sgsdump.sidecars import quant_param
    from sgsdump.sidecars.input_config import with_tensor_arrays
    from sgsdump.tuning.integer_choice import fixed_of
    from sgsdump.tuning.pareto import optimized, stem

    def write(name: str, data: bytes) -> None:
        with replacing(folder / name) as file:
            file.write(data)

    asked = [row for row in result.rows if row.asked is not None]
    names = [f"_{stem(index, row.asked or row.rate)}" for index, row in enumerate(asked)]
    for name, row in [*zip(names, asked), ("", result.taken)]:
        fixed = fixed_of(trial, row.tensors)
        params = optimized(trial, fixed, options.network.model)
        quant_param.write(params, folder / f"optimized_quant_info{name}.json")
        if options.pickle:
            quant_param.write(params, folder / f"optimized_quant_info{name}.pkl", "pickle")
        if options.fixed_model:
            write(f"optimized{name}.onnx", serialise(fixed.proto))
        write(f"input_config{name}.ini", with_tensor_arrays(ini, row.tensors))
    write("pareto.csv", pareto_csv(result).encode())
    write("pareto.json", pareto_json(result).encode())
    write("pareto.png", pareto_png(result))


def _write_report(folder: Path, result: Pareto, trial: PlanTrial, taken: FixedModel, judges: Feeds) -> None:
    """report.html of the plan to take, compared on a few of the pictures that judge plans."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.quantisation.diagnosis.compared_pictures import PictureComparer, PicturePairs, each_compared, over_all
    from sgsdump.reports.command_reports import report_of_tuning
    from sgsdump.reports.html.document import render
    from sgsdump.reports.report import Context

    pairs = PicturePairs(judges, COMPARED)
    comparer = PictureComparer(trial.model, replace(trial.model, proto=taken.proto), folder)
    compared = over_all(each_compared(comparer, pairs), pairs.labels, Terminal("stderr"))
    facts = [("float model", str(trial.model.path)), ("judged on", f"{result.effort.pictures} pictures"),
             ("layers compared on", ", ".join(pairs.labels))]  # fmt: skip
    title = f"{trial.model.path.name} with the tuned INT16 convolutions"
    report = report_of_tuning(result, compared, trial.model, Context(title, facts, ranges=trial.ranges))
    replace_text(folder / "report.html", render(report))


def _print_beginning(setup: Setup, most: int, budget: str, progress: Path) -> None:
    """How much there is to do, ``most`` plans, and what is known already."""
    pool, groups = setup.pool, len(setup.sizes.domains)
    runs = most * len(pool.pictures)
    print(f"{groups} groups of convolutions; at most {most} plans on {len(pool.pictures)} pictures = {runs} runs of "
          f"the network, within {budget}")  # fmt: skip
    if pool.resumed:
        print(f"{progress}: resuming, {pool.resumed} plans are known")


def how_far(result: Pareto) -> str:
    """How far the approximation that the search used is from the integers, on the plans that were run in both."""
    low, high = min(result.off), max(result.off)
    plans = f"on the {len(result.off)} plans run in both"
    if max(-low, high) < WITHIN:
        return f"the approximation was within {100 * WITHIN:.0f} % of them {plans}"
    below = f"{100 * -low:.0f} % below to " if low < 0 else ""
    return f"{plans} their error is {below}{100 * max(high, 0):.0f} % above the approximation's"


def _macs_of(row: Row) -> str:
    return "" if row.macs16 is None else f"; {row.macs16:.0%} of the multiplications at 16 bits"


def _costs_of(cost: str, smaller: Row, larger: Row) -> tuple[float, float, str]:
    if cost == "bytes":
        return smaller.rate, larger.rate, "bytes"
    return smaller.macs16 or 0.0, larger.macs16 or 0.0, "multiplications at 16 bits"


def print_ending(result: Pareto, folder: Path, level: str) -> None:
    from sgsdump.tuning.pareto import worsened

    how = "every plan there is was tried" if result.effort.exhaustive else f"{result.effort.plans_tried} plans tried"
    rest = "" if result.effort.complete else "; the time ran out before the search ended; rerun the command to resume"
    print(f"{how}, {result.effort.runs} runs of the network{rest}")
    if result.effort.unsearched:
        print(f"not looked at: {'; '.join(result.effort.unsearched)}")
    names = ", ".join(result.taken.raised[:6]) + (" …" if len(result.taken.raised) > 6 else "")
    for name in result.left_out:
        print(f"not counted: {name}, whose error at INT16 is infinite; is it zero in the float model?")
    for name, (error, low) in worsened(result).items():
        print(f"warning: * leaves {name} worse than INT8 does (error {error:.3g}, INT8 {low:.3g}); "
              f"--objective worst or --objective {name} heeds it")  # fmt: skip
    print(f"*: {len(result.taken.raised)} convolutions at INT16{': ' + names if names else ''}")
    print(
        f"*: {result.taken.bytes} bytes of weights, {result.taken.rate:.3f} of all at 16 bits{_macs_of(result.taken)}"
    )
    if result.enough is not None and result.enough is not result.taken:
        less = result.enough
        small, large, of_what = _costs_of(result.cost, less, result.taken)
        print(f"*: {small:.3f} of the {of_what} would go 95 % of the way; {large - small:.3f} more take the error from "
              f"{less.error:.3g} to {result.taken.error:.3g}")  # fmt: skip
    if result.off:
        print(f"*: chosen in the hardware's integers, where its error is {result.taken.error:.3g} (the approximation's "
              f"{result.taken.searched:.3g}); {how_far(result)}")  # fmt: skip
    print(f"{folder}: to make its fixed model, sgsdump calibrate with --input-config {folder / 'input_config.ini'} "
          f"--quant-level {level}")  # fmt: skip
