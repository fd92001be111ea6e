"""``sgsdump histogram --scheduler``: workers open the dump and count the values; the pictures are drawn here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from sgsdump.commands.histogram.ranges import with_what_is_known
from sgsdump.commands.options import opened
from sgsdump.commands.shared_files import absolute, another_dump, in_tasks, on_this_worker, size_of

if TYPE_CHECKING:
    from sgsdump.comparison.distribution import Distribution, Undrawn
    from sgsdump.dumps.dump import Dump
    from sgsdump.tensors.types import Range

# A task is closed when it has so many values, a tenth of a second of counting, or so many layers.
TASK_VALUES = 16_000_000
TASK_LAYERS = 100
_Places = list[tuple[int, str]]


def distributions_on_cluster(
    args: argparse.Namespace, dump: Dump, ranges: Mapping[str, Range]
) -> Iterator[Distribution | Undrawn]:
    """What ``distributions(dump, ranges)`` gives, counted on the cluster of ``args``."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.distribution import layers, numbered
    from sgsdump.executors.workers.task_pool import Workers, run_tasks

    options = argparse.Namespace(
        dump=absolute(args.dump), parse_net=absolute(args.parse_net), step=args.step, rank=args.rank
    )
    workers = Workers(scheduler=args.scheduler)
    records = layers(dump)
    places = ((place, record.name) for place, record in enumerate(records))
    tasks = in_tasks(places, map(size_of, records), TASK_VALUES, TASK_LAYERS)
    counted = run_tasks(_counting, (options, dict(ranges)), tasks, workers, Terminal("stderr"))
    return numbered(chain.from_iterable(counted))


def _counting(
    options: argparse.Namespace, ranges: Mapping[str, Range]
) -> Callable[[_Places], list[Distribution | Undrawn]]:
    """From layers' places to how their values lie; called once in each thread of a worker."""
    from sgsdump.comparison.distribution import distribution_of, layers

    records = layers(on_this_worker(lambda: with_what_is_known(options, opened(options, options.dump)[0], ranges)))

    def count(places: _Places) -> list[Distribution | Undrawn]:
        for place, name in places:
            here = records[place].name if place < len(records) else None
            if here != name:
                raise another_dump(options.dump, here, name)
        return [distribution_of(records[place], ranges) for place, _ in places]

    return count
