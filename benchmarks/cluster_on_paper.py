"""How far --scheduler scales: calibrate, tune and compare on 1 to 64 workers, on paper, from task times measured here.

    python benchmarks/cluster_on_paper.py            ResNet-50-like, 1,000 pictures of 640 x 480; 2 x 4 GB of dumps
    python benchmarks/cluster_on_paper.py --short    a quarter of the width, few repetitions

Measured, as processor time: reading and preprocessing a picture, running it, merging what it gave, making the sessions,
what Dask takes to hand over a task; and how many bytes go each way. Played through on paper, as ``cluster.results``
does it: the client prepares and sends, at most two tasks ahead for each worker, and takes the results in order; all
that comes and goes shares the client's one link; the model goes from worker to worker, twice as many having it after
each round.
The dumps of a comparison lie on a file system that all share; each worker reads its own at the speed of memory.
Not in it: workers that die, differ or share a core, a link that others use, and a file system that is slower than that.
"""

from __future__ import annotations

import argparse
import heapq
import pickle
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from resnet_like import resnet_like

from sgsdump import save_dump
from sgsdump.commands.compare.cluster import TASK_VALUES, _Files, _measuring, _PairIndex
from sgsdump.commands.options import Reading
from sgsdump.comparison.pair_result import Measures
from sgsdump.executors.workers.cluster import on_cluster
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.float_model import serialise, simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import FEWEST_TASKS, GROUP_BYTES, TOGETHER, _see_feed
from sgsdump.fixedpoint.quantisation.ranges.statistics import PLAIN
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
from sgsdump.fixedpoint.tuning.criteria import Criteria, Picture
from sgsdump.fixedpoint.tuning.judge import Question, Subject, each_alone, make_answer
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.progress import SILENT
from sgsdump.sidecars.input_config import InputConfig, ModelInput

WORKERS = (1, 2, 4, 8, 16, 32, 64)
LINK = 117e6  # bytes a second: one gigabit
AHEAD = 2  # tasks for each worker
USEFUL = 0.5  # where a doubling of the workers gains less than half of itself, it stops scaling


@dataclass(frozen=True)
class Job:
    """Seconds and bytes of one command's tasks; ``dispatch``: the client's time for each, beyond the bytes."""

    name: str
    tasks: int
    prepare: float
    run: float
    merge: float
    set_up: float
    dispatch: float
    item_bytes: int
    result_bytes: int
    recipe_bytes: int

    @property
    def client(self) -> float:
        """Seconds that the client is busy for each task."""
        return self.prepare + self.dispatch + self.merge + (self.item_bytes + self.result_bytes) / LINK


def seconds(job: Job, workers: int) -> float:
    """Of the whole job, played through task by task."""
    has_recipe: list[float] = []
    rounds = 0
    while len(has_recipe) < workers:
        rounds += 1
        has_recipe += [rounds * job.recipe_bytes / LINK] * max(1, len(has_recipe))
    free = [ready + job.set_up for ready in has_recipe[:workers]]
    heapq.heapify(free)
    clock, sent = 0.0, 0
    waiting: deque[float] = deque()
    while sent < job.tasks or waiting:
        while sent < job.tasks and len(waiting) < AHEAD * workers:
            clock += job.prepare + job.dispatch + job.item_bytes / LINK
            done = max(heapq.heappop(free), clock) + job.run
            heapq.heappush(free, done)
            waiting.append(done)
            sent += 1
        clock = max(clock, waiting.popleft()) + job.result_bytes / LINK + job.merge
    return clock


def merged_there(job: Job) -> Job:
    """The tasks of ``gather``: a worker merges the ranges of several images."""
    many = max(1, min(TOGETHER, job.tasks // FEWEST_TASKS, -(-GROUP_BYTES // job.item_bytes)))
    run, tasks = many * job.run + (many - 1) * job.merge, -(-job.tasks // many)
    return replace(job, tasks=tasks, prepare=many * job.prepare, run=run, item_bytes=many * job.item_bytes)


def stops_at(taken: Callable[[int], float]) -> int:
    """The number of workers beyond which twice as many gain less than half of what they could."""
    for workers in WORKERS[:-1]:
        if taken(workers) / taken(2 * workers) < 1 + USEFUL:
            return workers
    return WORKERS[-1]


def median(function: Callable[[], object], repeat: int) -> float:
    taken = []
    for _ in range(repeat):
        begun = time.process_time()
        function()
        taken.append(time.process_time() - begun)
    return statistics.median(taken)


def dispatch_seconds(tasks: int) -> float:
    """What each task adds that does nothing, with 64 of them on the way: the client's and the scheduler's own work."""
    from distributed import LocalCluster

    kind = {"n_workers": 1, "threads_per_worker": 32, "host": "127.0.0.1", "dashboard_address": None}
    with (
        LocalCluster(**kind, silence_logs=60) as found,
        on_cluster(_nothing, (), found.scheduler_address, SILENT) as run,
    ):
        next(iter(run([0])))
        begun = time.process_time()
        for _ in run(range(tasks)):
            pass
        return (time.process_time() - begun) / tasks


def _nothing() -> Callable[[int], int]:
    return abs


def measured(folder: Path, width: int, repeat: int, dispatch: float) -> list[Job]:
    (folder / "net.onnx").write_bytes(resnet_like(width).SerializeToString())
    for index in range(2):
        pixels = np.random.default_rng(index).integers(0, 256, (480, 640, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.jpg")
    model = simplify(open_model(folder / "net.onnx"))
    config = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
    feeds = PictureFeeds(str(folder), None, tuple(graph_inputs(model.proto)), config)
    item = feeds[0]
    data = serialise(model.proto)

    begun = time.process_time()
    see = _see_feed(data, model.path, PLAIN)
    statistic = see(item)
    run = median(lambda: see(item), repeat)
    set_up = max(0.0, time.process_time() - begun - (repeat + 1) * run)
    one = Job(
        "calibrate",
        1000,
        median(lambda: feeds[1], repeat),
        run,
        median(lambda: statistic.merged(statistic), repeat),
        set_up,
        dispatch,
        len(pickle.dumps(item)),
        len(pickle.dumps(statistic)),
        len(data),
    )
    pictures = merged_there(one)

    ranges = calibrate(model, feeds, config, "L1").ranges
    trial = PlanTrial(model, ranges, config)
    domains = [domain.name for domain in trial.domains]
    raw = {name: np.zeros_like(array) for name, array in item[1].items()}
    floats = {name: array for _, outputs in [_first_run(trial, raw)] for name, array in outputs.items()}
    criteria = Criteria(domains, [Picture(raw, floats)], list(floats), trial.outputs)
    given = (Subject(data, model.path, ranges, config), list(floats), criteria, False)
    begun = time.process_time()
    answer = make_answer(*given)
    set_up = time.process_time() - begun
    plans = each_alone(domains)
    asked = tuple(plans[: max(2, len(plans) // (1 if repeat > 3 else 8))])
    begun = time.process_time()
    judged = answer(Question(0, asked))
    run = (time.process_time() - begun) * len(plans) / len(asked)
    search = Job(
        "tune, its first round",
        10,
        0.0,
        run,
        0.0,
        set_up,
        dispatch,
        len(pickle.dumps(Question(0, tuple(plans)))),
        len(pickle.dumps(judged)) * len(plans) // len(asked),
        len(pickle.dumps(given)),
    )
    return [pictures, search]


def _first_run(trial: PlanTrial, raw: dict[str, np.ndarray]) -> tuple[frozenset[str], dict[str, np.ndarray]]:
    from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk

    walk = PlanWalk(trial, trial.outputs)
    ((plan, outputs),) = walk.run(walk.ordered([frozenset()]), raw)
    return plan, {name: array.copy() for name, array in outputs.items()}


def comparison(folder: Path, values: int, repeat: int, dispatch: float) -> Job:
    """A layer of so many values, measured as a worker does it; tasks are as large as ``on_cluster`` makes them."""
    rng = np.random.default_rng(0)
    layer = rng.standard_normal(values, np.float32)
    save_dump({"layer": layer}, folder / "float.bin")
    save_dump({"layer": layer + np.float32(0.01)}, folder / "fixed.bin")
    given = _Files(folder / "fixed.bin", folder / "float.bin", Reading(), ()), Measures.of((), None, None, crop=True)
    begun = time.process_time()
    measure = _measuring(*given)
    set_up = time.process_time() - begun
    task = [_PairIndex(0, 0, ("layer", "layer"), "name", "")]
    many = max(1, TASK_VALUES // values)
    run = median(lambda: measure(task), repeat) * many
    item, result = len(pickle.dumps(task)) * many, len(pickle.dumps(measure(task))) * many
    recipe = len(pickle.dumps(given))
    return Job("compare", 1_000_000_000 // TASK_VALUES, 0.0, run, 0.0, set_up, dispatch, item, result, recipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    dispatch = dispatch_seconds(200 if args.short else 2000)
    with tempfile.TemporaryDirectory() as place:
        jobs = measured(Path(place), 16 if args.short else 64, 3 if args.short else 15, dispatch)
        jobs.append(comparison(Path(place), 1_000_000 if args.short else 8_000_000, 3 if args.short else 15, dispatch))
    for job in jobs:
        alone = seconds(job, 1)
        print(
            f"{job.name}: {job.tasks} tasks of {job.run * 1e3:.1f} ms, {job.recipe_bytes / 1e6:.1f} MB for all of them"
        )
        print(
            f"The client is busy {job.client * 1e3:.2f} ms for each: preparing {job.prepare * 1e3:.2f}, handing over "
            f"{job.dispatch * 1e3:.2f}, merging {job.merge * 1e3:.2f}; "
            f"{(job.item_bytes + job.result_bytes) / 1e6:.2f} MB go over its link"
        )
        print(f"{'workers':>9}{'seconds':>11}{'speed-up':>10}{'of ideal':>10}")
        for workers in WORKERS:
            taken = seconds(job, workers)
            print(f"{workers:9}{taken:11.1f}{alone / taken:10.1f}{alone / taken / workers:10.0%}")
        floor = max(job.client * job.tasks, job.set_up + job.run)
        why = "the client's own work" if floor == job.client * job.tasks else "one task at a time on each worker"
        stop = stops_at(partial(seconds, job))
        if job.tasks <= stop:
            why = f"there are only {job.tasks} tasks"
        print(f"It stops scaling at {stop} workers ({why}); the floor is {floor:.1f} s.\n")


if __name__ == "__main__":
    main()
