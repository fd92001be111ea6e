"""``sgsdump compare --scheduler``: the pairs are measured by workers that open both dumps themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sgsdump.commands.options import described
from sgsdump.commands.shared_files import absolute, another_dump, in_tasks, on_this_worker, size_of

if TYPE_CHECKING:
    from sgsdump.comparison.alignment import Pair
    from sgsdump.comparison.compare import MeasuredBy
    from sgsdump.comparison.pair_result import Measures
    from sgsdump.comparison.row import Failed, Row
    from sgsdump.dumps.dump import Dump, Record

# A task is closed when it has so many values, a tenth of a second of measuring, or so many pairs.
TASK_VALUES = 32_000_000
TASK_PAIRS = 300


class _Place(NamedTuple):
    """A pair by the places of its records in both dumps, with the names they have there."""

    sample: int
    benchmark: int
    names: tuple[str, str]
    how: str
    note: str
    stage: str = ""
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Files:
    """What a worker opens: the options of ``described``, and FILE.py:function of the user's own metrics."""

    sample: Path
    benchmark: Path
    step: int | None
    rank: int | None
    tensor_min_max: Path | None
    parse_net: Path | None
    metric: tuple[str, ...]

    @classmethod
    def of(cls, args: argparse.Namespace) -> _Files:
        sample, benchmark, ranges, net = map(
            absolute, (args.sample, args.benchmark, args.tensor_min_max, args.parse_net)
        )
        assert sample is not None and benchmark is not None
        own = tuple(
            f"{absolute(Path(file))}:{name}" for file, _, name in (text.rpartition(":") for text in args.metric)
        )
        return cls(sample, benchmark, args.step, args.rank, ranges, net, own)

    def open(self) -> list[Dump]:
        args = argparse.Namespace(
            step=self.step, rank=self.rank, tensor_min_max=self.tensor_min_max, parse_net=self.parse_net
        )
        return described(args, self.sample, self.benchmark)


def measured_on_cluster(args: argparse.Namespace) -> MeasuredBy | None:
    """The ``measured_by`` of ``compare`` for the dumps and the cluster of ``args``; None without ``--scheduler``."""
    if args.scheduler is None:
        return None
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.row import Failed
    from sgsdump.executors.workers.task_pool import Workers, run_tasks

    def measured(measures: Measures, sample: Dump, benchmark: Dump, pairs: Sequence[Pair]) -> Iterator[Row | Failed]:
        sizes = (size_of(pair.benchmark) for pair in pairs)
        tasks = in_tasks(_places(sample, benchmark, pairs), sizes, TASK_VALUES, TASK_PAIRS)
        given = _Files.of(args), replace(measures, own={})
        done = run_tasks(_measuring, given, tasks, Workers(scheduler=args.scheduler), Terminal("stderr"))
        for pair, result in zip(pairs, chain.from_iterable(done)):
            yield Failed(pair, result) if isinstance(result, str) else result

    return measured


def _places(sample: Dump, benchmark: Dump, pairs: Sequence[Pair]) -> Iterator[_Place]:
    mine, theirs = ({id(record): i for i, record in enumerate(dump.records)} for dump in (sample, benchmark))
    for pair in pairs:
        names, facts = (pair.sample.name, pair.benchmark.name), (pair.how, pair.note, pair.stage, pair.parts)
        yield _Place(mine[id(pair.sample)], theirs[id(pair.benchmark)], names, *facts)


def _measuring(files: _Files, measures: Measures) -> Callable[[list[_Place]], list[Row | str]]:
    """From places of pairs to their rows, or the reasons why they have none; called once in each thread of a worker."""
    from threadpoolctl import threadpool_limits

    from sgsdump.comparison.alignment import Pair
    from sgsdump.comparison.own_metric import load_own_metrics
    from sgsdump.comparison.row import Failed

    own = on_this_worker(lambda: load_own_metrics(files.metric))
    sample, benchmark = on_this_worker(files.open)
    measures = replace(measures, own=own)

    def measure(place: _Place) -> Row | str:
        mine = _record(sample, place.sample, place.names[0], files.sample)
        theirs = _record(benchmark, place.benchmark, place.names[1], files.benchmark)
        with threadpool_limits(limits=1, user_api="blas"):
            result = measures.result(Pair(mine, theirs, place.how, place.note, place.stage, place.parts))
        return result.reason if isinstance(result, Failed) else result

    return lambda places: [measure(place) for place in places]


def _record(dump: Dump, index: int, name: str, path: Path) -> Record:
    """The record at a place. Raises WorkerError where another one is there than the user's machine has."""
    here = dump.records[index].name if index < len(dump.records) else None
    if here != name:
        raise another_dump(path, here, name)
    return dump.records[index]
