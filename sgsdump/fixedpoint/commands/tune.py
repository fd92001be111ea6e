"""Find the smallest set of INT16 convolutions that repairs the model, chosen in the hardware's integers.

If INT8 is within the limits (--min-cos, --max-rmse) on all images, the first line says so, and INT8 is recommended.
Otherwise, the cheapest plan within the limits is recommended. Exit status: 0; 1 if you gave a limit and no plan is
within it; 2 on errors.

Gives the best quant plan for each compression rate: bytes of the convolutions' weights over their bytes at 16 bits (0.5
is all INT8, 1 all INT16), or multiplications with --cost macs. With --target, gives the cheapest plan that reaches the
target. Fake quantisation ranks plans within the budget; models of at most 12 convolutions are searched exhaustively.
The best plans of each size are then run in the hardware's integers; these runs decide and give every final error.
Ranges come from all images of -i. Plans are judged on 10 of these, evenly chosen, or on all images of --evaluate.
Ctrl-C ends the search with the best plans so far; rerun the command to resume.

examples:
  sgsdump tune -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o tuned
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --target "output-cos>=0.999"
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --metric faces.py:matches --budget 60s
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --scheduler tcp://host:8786

the error of an output (--objective):
  sum((fixed - float)^2) / sum(float^2) over all images. If a Softmax computes the output, the error is that of the
  Softmax's input, weighted by the float model's probabilities. The errors of several outputs are scaled to be equal at
  INT8, so that no output hides another. By default, their mean counts. With --objective worst, the output furthest from
  its INT16 error counts; with --objective NAME,NAME... only these outputs count.

targets (--target):
  output-cos>=X (the lowest COS of any output), output-rmse<=X, error<=X, or metric>=X with --metric. The metric is your
  Python function f(outputs, float_outputs) -> number; both arguments are {name: array}. It is called for every image;
  the mean counts, and higher is better. If the function has a parameter picture, it gets the image file. If it has a
  parameter label, it gets the label that the data loader yielded with the feed.

unseen images:
  With 12 or more different images, each image is held out of a calibration on others (3 folds, 2 from 24 images on).
  Plans of the table also run on the held-out images, in integers. The expected error is the measured error plus one
  standard error. Limits must hold on held-out images too. With --validate, your images replace the folds. A plan is
  rejected if it misses the target there, or if its error relative to INT8's is more than 1.5 times that on the search's
  images.

the folder -o:
  For the i-th rate: optimized_quant_info_i_RATE.json for `sgsdump calibrate --quant-file` (with --pickle also .pkl for
  --quant_file of the SDK's sim_calibrator.py), and input_config_i_RATE.ini, which is yours with tensor_arrays. Files
  without i_RATE are those of the recommended plan, marked *, including the .pkl (with --fixed-model also
  optimized.onnx). INT16 ranges in the quant files are wider by half or more, as room for unseen images. pareto.csv,
  .json and .png show all plans. report.html also shows every layer of the plan marked *, on a few of the images.
  progress.json keeps every plan tried. Earlier results stay until the new ones replace them all at once; your own files
  stay.

  With --cure also cured.onnx: all results are for this model.

the plan marked *:
  The cheapest plan within the limits; with --target the smallest that reaches the target. If no plan is within the
  limits: the smallest plan found that covers 95 % of the way from INT8's error to INT16's, or a larger one at the knee.
  Up to the knee, each 5 % of the bytes halve the error.

a cluster (--scheduler):
  A Dask cluster (pip install 'sgsdump[cluster]') calibrates and runs the plans. Images are read and preprocessed here
  and sent with the model; the metric runs here. The workers need none of your files, but the same versions of sgsdump,
  onnx, onnxruntime and numpy, as does the scheduler. No results are lost if a worker dies.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sgsdump.commands.options import (
    INPUTS,
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
from sgsdump.commands.terminal import print_cut, print_lines
from sgsdump.errors import ConfigError, OutputError
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.cured_ways import CURED, Start
from sgsdump.fixedpoint.verbs.judges import Judges
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.fixedpoint.verbs.tune import (
    BUDGET,
    PROGRESS,
    RESULTS,
    Beginning,
    Ending,
    Run,
    Written,
    aims_of,
    calibrated,
    is_kept,
    parse_seconds,
    searched,
)
from sgsdump.models.network import Network

Left = Callable[[], float]
TIDY = (10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600)


@dataclass(frozen=True)
class SearchOptions:
    """The aim of the search, and how plans are judged, as typed."""

    rates: str | None
    target: str | None
    min_cos: float | None
    max_rmse: float | None
    metric: str | None
    objective: str
    cost: str
    evaluate: str | None
    validate: str | None
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("model and images")
    add_model(network)
    add_feeds(network, f"calibration images: {INPUTS}")
    add_input_config(network)
    add_strict_sdk(network)
    add_quant_level(network, "calibration level of the ranges, see calibrate; the level's INT16 proposals are ignored")
    search = parser.add_argument_group("the search")
    search.add_argument("--rates", metavar="R,R…", help="compression rates (default: 0.65,0.7,…,0.95)")
    search.add_argument(
        "--target",
        metavar="NAME>=X",
        help="find the smallest plan that reaches this target, instead of plans for --rates",
    )
    add_limits(search, "an output of the recommended plan")
    search.add_argument(
        "--objective",
        default="mean",
        metavar="mean|worst|NAME",
        help="error to minimise: mean of all outputs, worst output, or the named outputs (default: %(default)s)",
    )
    search.add_argument(
        "--cost",
        choices=("bytes", "macs"),
        default="bytes",
        help="cost to minimise: bytes of weights, or multiplications at 16 bits (default: %(default)s)",
    )
    add_judges(search, "plans", "for the table and --target")
    search.add_argument(
        "--budget",
        default=BUDGET,
        metavar="TIME",
        help="time for the whole command: 60s, 5m, 1h (default: %(default)s)",
    )
    search.add_argument("--cure", action="store_true",
                        help="start from the cured model (see cure); convert the cured model then")  # fmt: skip
    many = parser.add_argument_group("processes").add_mutually_exclusive_group()
    many.add_argument("--num-process", type=whole_number, default=1, metavar="N", help="processes for calibration")
    add_scheduler(many, "calibrate and run plans")
    results = parser.add_argument_group("results")
    results.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the results")
    add_json(results, "also write the table as JSON to this file")
    results.add_argument("--fixed-model", action="store_true", help="write the fixed models, optimized_i_RATE.onnx")
    results.add_argument("--pickle", action="store_true", help="also write quant parameters as pickle (protocol 3)")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.files.atomic_write import check_file, check_outputs, replace_text, replacing_folder, together
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.fixedpoint.quantisation.objective import watched_by_output
    from sgsdump.fixedpoint.reports.pareto_reports import ending_lines, pareto_json, pareto_table
    from sgsdump.fixedpoint.tuning.criteria import parse_objective
    from sgsdump.fixedpoint.tuning.proposals import check_solver
    from sgsdump.reports.made_by import typed

    begun = time.monotonic()
    options = record(Options, args, network=network_of(args), search=record(SearchOptions, args))
    network, search = options.network, options.search
    from sgsdump.comparison.thresholds import Thresholds

    limits = Thresholds(search.min_cos, search.max_rmse)
    aims = aims_of(search.rates, search.target, search.metric, search.objective, search.cost, limits)
    end = begun + parse_seconds(search.budget)
    check_solver()
    if options.json:
        check_file(options.json)
    judges = Judges(search.metric, search.evaluate, search.validate)
    check_outputs([options.output, options.json], [*network.files, *judges.files])
    made = not options.output.exists()
    folder = _usable_folder(options.output, network.input_config)
    progress = Terminal("stderr")
    run = Run(
        options.quant_level,
        Workers(options.num_process, options.scheduler),
        lambda: end - time.monotonic(),
        progress,
        folder / PROGRESS,
        partial(_print_beginning, search.budget, begun, folder / PROGRESS),
    )
    with _no_empty_folder(folder, made):
        opened = open_network(network, options.quant_level)
        parse_objective(search.objective, watched_by_output(deployed(opened.model)))
        feeds = judges.feeds(opened)
        _ = feeds.calibrated[0]  # data that does not fit needs no warnings
        print_warnings(opened, feeds.coverage)
        start = _started(options, opened) if search.cure else None
        ready = calibrated(start or opened, feeds.calibrated, run)
    with _stopped_by_ctrl_c(end) as left:
        found = searched(ready, feeds, aims, replace(run, left=left))
    with together():
        if options.json:
            replace_text(options.json, pareto_json(found.result))
        with replacing_folder(folder, keep=is_kept) as newer:
            found.write(newer, Written(options.fixed_model, options.pickle, typed(args)), progress)
    print(pareto_table(found.result), end="")
    print_lines(ending_lines(found.result))
    of_cured = "" if start is None else f"-m {folder / CURED} "
    print(
        f"{folder}: to make its fixed model, sgsdump calibrate with {of_cured}--input-config "
        f"{folder / 'input_config.ini'} --quant-level {found.quant_level} --quant-file "
        f"{folder / 'optimized_quant_info.json'} (the SDK takes optimized_quant_info.pkl)"
    )
    for clipped in found.clipped:
        print(f"warning: {clipped}")
    print_cut(ready.opened.model, ready.opened.config)
    return 1 if limits and not found.within_limits else 0


def _started(options: Options, opened: OpenNetwork) -> Start:
    """The network cured, and what that brought printed."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.fixedpoint.verbs.cured_ways import start_cured

    start = start_cured(options.network, opened, WITHOUT_BITS[options.quant_level], Terminal("stderr"))
    print_lines(start.lines(), flush=True)
    return start


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


def _print_beginning(budget: str, begun: float, progress: Path, beginning: Beginning) -> None:
    """Whether INT8 is within the limits, how much there is to do, and what is known already."""
    from sgsdump.fixedpoint.reports.pareto_reports import limits_line

    if beginning.limits is not None:
        print(limits_line(beginning.limits))
    runs, spent = beginning.most * beginning.pictures, time.monotonic() - begun
    print(f"{beginning.groups} groups of convolutions; at most {beginning.most} plans on {beginning.pictures} pictures "
          f"= {runs} runs of the network, within {budget}")  # fmt: skip
    if beginning.resumed:
        print(f"{progress}: resuming, {beginning.resumed} plans are known")
    if parse_seconds(budget) - spent < beginning.ending.seconds:
        print(too_small(budget, spent, beginning.ending), flush=True)
