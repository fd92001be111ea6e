"""The pairs of ``compare --scheduler``, measured by workers that open both dumps. Apart: runs in other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sgsdump.commands.opening import described
from sgsdump.commands.options import Reading
from sgsdump.commands.shared_files import absolute, in_tasks, on_this_worker, record_at, shared, size_of

if TYPE_CHECKING:
    from sgsdump.commands.compare.options import Options
    from sgsdump.comparison.alignment import Pair
    from sgsdump.comparison.measure import MeasuredBy
    from sgsdump.comparison.pair_result import Measures
    from sgsdump.comparison.row import Failed, Row
    from sgsdump.dumps.dump import Dump

# A task is closed when it has so many values, a tenth of a second of measuring, or so many pairs.
TASK_VALUES = 32_000_000
TASK_PAIRS = 300


class _PairIndex(NamedTuple):
    """A pair by the indexes of its records in both dumps, with the names they have there."""

    sample: int
    benchmark: int
    names: tuple[str, str]
    how: str
    note: str
    stage: str = ""
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Files:
    """The files a worker opens: both dumps, and FILE.py:function of the user's own metrics."""

    sample: Path
    benchmark: Path
    reading: Reading
    metric: tuple[str, ...]

    @classmethod
    def of(cls, options: Options) -> _Files:
        functions = [text.rpartition(":") for text in options.measuring.metric]
        metric = tuple(f"{absolute(Path(file))}:{name}" for file, _, name in functions)
        return cls(absolute(options.sample), absolute(options.benchmark), shared(options.reading), metric)

    def open(self) -> list[Dump]:
        return described(self.reading, self.sample, self.benchmark)


def measured_on_cluster(options: Options, scheduler: str) -> MeasuredBy:
    """Return the ``measured_by`` of ``compare`` for the dumps of the options and a cluster."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.row import Failed
    from sgsdump.executors.workers.task_pool import Workers, run_tasks

    def measured(measures: Measures, sample: Dump, benchmark: Dump, pairs: Sequence[Pair]) -> Iterator[Row | Failed]:
        sizes = (size_of(pair.benchmark) for pair in pairs)
        tasks = in_tasks(_indexes(sample, benchmark, pairs), sizes, TASK_VALUES, TASK_PAIRS)
        setting = _Files.of(options), replace(measures, own={})
        results = run_tasks(_measuring, setting, tasks, Workers(scheduler=scheduler), Terminal("stderr"))
        for pair, result in zip(pairs, chain.from_iterable(results)):
            yield Failed(pair, *result) if isinstance(result, tuple) else result

    return measured


def _indexes(sample: Dump, benchmark: Dump, pairs: Sequence[Pair]) -> Iterator[_PairIndex]:
    of_sample, of_benchmark = ({id(record): i for i, record in enumerate(dump.records)} for dump in (sample, benchmark))
    for pair in pairs:
        names, facts = (pair.sample.name, pair.benchmark.name), (pair.how, pair.note, pair.stage, pair.parts)
        yield _PairIndex(of_sample[id(pair.sample)], of_benchmark[id(pair.benchmark)], names, *facts)


def _measuring(files: _Files, measures: Measures) -> Callable[[list[_PairIndex]], list[Row | tuple[str, str, bool]]]:
    """From indexes of pairs to their rows, or why they have none; called once in each thread of a worker."""
    from threadpoolctl import threadpool_limits

    from sgsdump.comparison.alignment import Pair
    from sgsdump.comparison.own_metric import load_own_metrics
    from sgsdump.comparison.row import Failed

    own = on_this_worker(lambda: load_own_metrics(files.metric))
    sample, benchmark = on_this_worker(files.open)
    measures = replace(measures, own=own)

    def measure(index: _PairIndex) -> Row | tuple[str, str, bool]:
        of_sample = record_at(sample.records, index.sample, index.names[0], files.sample)
        of_benchmark = record_at(benchmark.records, index.benchmark, index.names[1], files.benchmark)
        with threadpool_limits(limits=1, user_api="blas"):
            result = measures.result(Pair(of_sample, of_benchmark, index.how, index.note, index.stage, index.parts))
        return (result.reason, result.unlike, result.damaged) if isinstance(result, Failed) else result

    return lambda indexes: [measure(index) for index in indexes]
