"""``tune`` in its default mode: search the smallest plan within a time budget."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from sgsdump.commands.terminal import Terminal, print_cut, print_early, print_lines
from sgsdump.errors import OutputError
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.commands.tune.options import Options
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.cured_ways import CURED, Start
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.fixedpoint.verbs.plan_search import (
    BUDGET,
    COST,
    OBJECTIVE,
    Beginning,
    Ending,
    Run,
    aims_of,
    calibrated,
    parse_seconds,
    searched,
)
from sgsdump.fixedpoint.verbs.tuned import PROGRESS, Written, check_results, kept_in

Left = Callable[[], float]
TIDY = (10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600)


def run(options: Options) -> int:
    """Search; return the exit status."""
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.files.atomic_write import check_file, check_outputs, replace_text, replacing_folder, together
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.fixedpoint.quantisation.objective import watched_by_output
    from sgsdump.fixedpoint.reports.pareto_reports import pareto_json
    from sgsdump.fixedpoint.tuning.criteria import parse_objective
    from sgsdump.fixedpoint.tuning.proposals import check_solver

    begun = time.monotonic()
    network, judges, limits = options.network, options.judges, options.limits
    objective, budget = options.objective or OBJECTIVE, options.budget or BUDGET
    aims = aims_of(options.rates, options.target, judges.metric, objective, options.cost or COST, limits)
    end = begun + parse_seconds(budget)
    check_solver()
    if options.json:
        check_file(options.json)
    files = [*network.files, *judges.files]
    check_outputs([options.folder, options.json], files)
    check_results(options.folder, files, shared=False)
    made = not options.folder.exists()
    folder = _usable_folder(options.folder)
    progress = Terminal("stderr")
    run = Run(
        options.quant_level,
        Workers(options.num_process or 1, options.scheduler),
        lambda: end - time.monotonic(),
        progress,
        folder / PROGRESS,
        partial(_print_beginning, budget, begun, folder / PROGRESS),
    )
    with _no_empty_folder(folder, made):
        opened = open_network(network, options.quant_level)
        parse_objective(objective, watched_by_output(deployed(opened.model)))
        feeds = judges.feeds(opened)
        _ = feeds.calibrated[0]  # reports unsuitable data before any warning
        print_warnings(opened, feeds.coverage)
        start = _started(options, opened) if options.cure else None
        ready = calibrated(start or opened, feeds.calibrated, run)
    with _stopped_by_ctrl_c(end) as left:
        found = searched(ready, feeds, aims, replace(run, left=left))
    with together():
        if options.json:
            replace_text(options.json, pareto_json(found.result))
        with replacing_folder(folder, keep=kept_in(folder)) as newer:
            found.write(newer, Written(options.fixed_model, options.pickle, options.facts), progress)
    print_lines(found.lines())
    of_cured = "" if start is None else f"-m {folder / CURED} "
    print(
        f"{folder}: to make its fixed model, run sgsdump calibrate with {of_cured}--input-config "
        f"{folder / 'input_config.ini'} --quant-level {found.quant_level} --quant-file "
        f"{folder / 'optimized_quant_info.json'} (the SDK takes optimized_quant_info.pkl)"
    )
    for clipped in found.clipped:
        print(f"warning: {clipped}")
    print_cut(ready.opened.model, ready.opened.config)
    return 1 if limits and not found.passes else 0


def _started(options: Options, opened: OpenNetwork) -> Start:
    """Return the cured network; print the effect."""
    from sgsdump.fixedpoint.verbs.cured_ways import start_cured

    start = start_cured(options.network, opened, WITHOUT_BITS[options.quant_level], Terminal("stderr"))
    print_lines(start.lines(), flush=True)
    return start


def too_small(budget: str, spent: float, ending: Ending) -> str:
    """Return the warning that the budget leaves no time for the search; ``spent`` is in seconds."""
    needed = 2 * (spent + ending.seconds)
    tidy = next((seconds for seconds in TIDY if seconds >= needed), needed)
    text = f"{tidy / 60:.0f}m" if tidy >= 120 else f"{tidy:.0f}s"
    return (
        f"warning: --budget {budget} leaves no time for the search; only the first proposed plans are "
        f"tried. Calibration and set-up took {spent:.0f} s; verification and the report take about "
        f"{ending.seconds:.0f} s. Give at least --budget {text}"
    )


@contextmanager
def _no_empty_folder(folder: Path, made: bool) -> Iterator[None]:
    """Remove a new, empty results folder if the work inside ends with an error."""
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def _stopped_by_ctrl_c(end: float) -> Iterator[Left]:
    """Yield a function that returns the seconds left until ``end`` (``time.monotonic``).

    After the first Ctrl-C or SIGTERM it returns 0. The second one stops the program at once.
    """
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


def _usable_folder(path: Path) -> Path:
    """Return the folder, which is made if need be. Raises OutputError if it cannot be written to."""
    from sgsdump.files.atomic_write import make_folder

    progress = path / PROGRESS
    if progress.exists() and not progress.is_file():
        raise OutputError(f"{progress} is not a file; remove it, or name another folder with -o")
    if not os.access(make_folder(path), os.W_OK):
        raise OutputError(f"cannot write into the folder {path}: no permission; select another folder with -o")
    return path


def _print_beginning(budget: str, begun: float, progress: Path, beginning: Beginning) -> None:
    """Print whether INT8 is within the limits, the work to do, and the number of known plans, on standard error."""
    from sgsdump.fixedpoint.reports.pareto_reports import limits_line

    lines = [] if beginning.limits is None else [limits_line(beginning.limits)]
    runs, spent = beginning.most * beginning.pictures, time.monotonic() - begun
    lines.append(
        f"{beginning.groups} groups of convolutions; at most {beginning.most} plans on {beginning.pictures} images = "
        f"{runs} runs of the model, within {budget}"
    )
    if beginning.resumed:
        lines.append(f"{progress}: resuming; {beginning.resumed} plans are known")
    if parse_seconds(budget) - spent < beginning.ending.seconds:
        lines.append(too_small(budget, spent, beginning.ending))
    print_early(lines)
