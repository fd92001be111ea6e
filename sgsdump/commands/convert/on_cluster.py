"""``sgsdump convert --scheduler``: workers open the dump and make the values, which are written here in their order.

It pays where making values takes longer than sending them: devices' layouts, text, integers that become floats.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from sgsdump.commands.convert.records import converted
from sgsdump.commands.shared_files import absolute, another_dump, on_this_worker
from sgsdump.errors import SgsdumpError

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.conversion import Loading
    from sgsdump.dumps.dump import Record

OPTIONS = "dump step rank parse_net select original_shape layout dtype".split()
_Place = tuple[int, str]


def loading_on_cluster(args: argparse.Namespace, records: list[Record]) -> Loading:
    """The ``loading`` of ``save`` for the records that ``converted`` gave of ``args``."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.executors.workers.task_pool import Workers, run_tasks

    options = argparse.Namespace(**{name: getattr(args, name) for name in OPTIONS})
    options.dump, options.parse_net = absolute(args.dump), absolute(args.parse_net)
    places = {id(record): (index, record.name) for index, record in enumerate(records)}

    def loading(wanted: Iterable[Record]) -> Iterator[np.ndarray | SgsdumpError]:
        items = (places[id(record)] for record in wanted)
        return run_tasks(_loading, (options,), items, Workers(scheduler=args.scheduler), Terminal("stderr"))

    return loading


def _loading(options: argparse.Namespace) -> Callable[[_Place], np.ndarray | SgsdumpError]:
    """From a record's place to its values, or to why it has none; called once in each thread of a worker."""
    from sgsdump.dumps.conversion import load

    _, records = on_this_worker(lambda: converted(options))

    def loaded(place: _Place) -> np.ndarray | SgsdumpError:
        index, name = place
        if index >= len(records) or records[index].name != name:
            raise another_dump(options.dump, records[index].name if index < len(records) else None, name)
        return next(load([records[index]]))

    return loaded
