"""Which runs of two trees belong together, so that a comparison goes run by run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sgsdump.dumps.runs.run import Run

_TIME = re.compile(r"[0-9]{12,17}")


class RunPairs(NamedTuple):
    """The pairs, sample first, step by step; and the runs that only one tree has."""

    pairs: list[tuple[Run, Run]]
    only_in_sample: list[Run]
    only_in_benchmark: list[Run]


def pair_runs(sample: Sequence[Run], benchmark: Sequence[Run]) -> RunPairs:
    """Pair runs of the same step and rank, and among these of the same graph.

    Steps are of no meaning where each side has only one, and so are ranks. Times in a graph's name do not count. Graphs
    whose names differ, and runs that a tree holds several times, pair in their order where both sides have as many.
    """
    facts = [name for name in ("step", "rank") if any(_varies(side, name) for side in (sample, benchmark))]
    groups: defaultdict[tuple, tuple[list[Run], list[Run]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((sample, benchmark)):
        for run in sorted(runs, key=lambda run: run.order):
            groups[tuple(getattr(run, name) for name in facts)][side].append(run)
    result = RunPairs([], [], [])
    for samples, benchmarks in groups.values():
        pairs = _by_graph(samples, benchmarks)
        left = [[run for run in side if run not in paired] for side, paired in zip((samples, benchmarks), zip(*pairs))]
        left = left or [samples, benchmarks]
        if len(left[0]) == len(left[1]):
            pairs += zip(*left)
            left = [[], []]
        result.pairs.extend(pairs)
        result.only_in_sample.extend(left[0])
        result.only_in_benchmark.extend(left[1])
    result.pairs.sort(key=lambda pair: pair[1].order)
    return result


def _by_graph(samples: Sequence[Run], benchmarks: Sequence[Run]) -> list[tuple[Run, Run]]:
    """The runs whose graphs are called alike, where no other run's is."""
    sides = [{_graph(run): run for run in side} for side in (samples, benchmarks)]
    if any(len(names) < len(side) for names, side in zip(sides, (samples, benchmarks))):
        return []
    return [(run, sides[1][name]) for name, run in sides[0].items() if name in sides[1]]


def _graph(run: Run) -> str:
    return _TIME.sub("", run.graph)


def _varies(runs: Sequence[Run], name: str) -> bool:
    return len({getattr(run, name) for run in runs}) > 1
