"""Pairs go to threads by the batch: handing over one by one costs more than a small pair itself. The sums of a batch
are one call of the kernel where that is possible: what Python does for a pair is three times as slow just after the
values of another one went through the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from sgsdump.comparison.misnaming.match_by_value import Mapper
from sgsdump.comparison.misnaming.misnamed import is_suspicious
from sgsdump.comparison.misnaming.value_probes import Probes
from sgsdump.comparison.pair_result import Measures, Started
from sgsdump.comparison.pair_sums import sums_of_each
from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.comparison.row import Failed, Row
from sgsdump.files.mapped import KEPT, MappedFile, file_of, kept_open

LEAST, MOST, PAIRS = 4 << 20, 24 << 20, 64
SHARES = 4  # batches that a thread would have to go if all were as large as the next one


def in_batches(
    run: Mapper, measures: Measures, pairs: Sequence[Pair], probes: Probes | None = None
) -> Iterator[Row | Failed]:
    """The results in the pairs' order; ``run`` maps over threads. ``probes`` gets what the look for misnamed
    pairs needs of the values."""

    def results(batch: list[Pair]) -> list[Row | Failed]:
        with kept_open():
            return list(batch_results(measures, batch, probes))

    return chain.from_iterable(run(results, list(batches(pairs, measures.threads))))


def batches(pairs: Sequence[Pair], threads: int = 1) -> Iterator[list[Pair]]:
    """Pairs that follow each other, a fair share of the benchmark's bytes that are left or PAIRS: large batches first,
    so that little is done beside the values, small ones last, so that all threads end together."""
    sizes = [math.prod(info.shape or ()) * info.dtype.itemsize for info in (p.benchmark.tensor.info for p in pairs)]
    left = sum(sizes)
    batch: list[Pair] = []
    enough, size = _share(left, threads), 0
    for pair, its_size in zip(pairs, sizes):
        batch.append(pair)
        size += its_size
        if size >= enough or len(batch) == PAIRS:
            yield batch
            left -= size
            batch, enough, size = [], _share(left, threads), 0
    if batch:
        yield batch


def _share(left: int, threads: int) -> int:
    return min(MOST, max(LEAST, left // (SHARES * threads)))


def batch_results(measures: Measures, pairs: Iterable[Pair], probes: Probes | None) -> Iterator[Row | Failed]:
    """The results of pairs. Those that cost no memory wait for each other, and have their sums made together."""
    waiting: list[Started] = []
    files: set[MappedFile] = set()
    for pair in pairs:
        started = measures.started(pair)
        its_files = _read_from(started) if isinstance(started, Started) else None
        if its_files is None or len(files | its_files) > KEPT:
            yield from _finished(measures, waiting, probes)
            waiting, files = [], set()
        if not isinstance(started, Started):
            yield started
        elif its_files is None:
            yield from _finished(measures, [started], probes, are_mapped=False)
        else:
            waiting.append(started)
            files |= its_files
    yield from _finished(measures, waiting, probes)


def _read_from(started: Started) -> set[MappedFile] | None:
    """The files from which the kernel can read the pair; None where values lie in memory, or are looked at again."""
    files = {file_of(started.fit.sample.array), file_of(started.fit.benchmark.array)}
    if None in files or started.looks_again or not started.by_kernel:
        return None
    return files  # type: ignore[return-value]


def _finished(
    measures: Measures, started: list[Started], probes: Probes | None, are_mapped: bool = True
) -> Iterator[Row | Failed]:
    picks = [probes.to_pick(one.pair.sample, one.pair.benchmark) if probes else None for one in started]
    sums = sums_of_each([one.to_sum(picked) for one, picked in zip(started, picks)], measures.threads)
    for one, picked, its_sums in zip(started, picks, sums):
        result = measures.finished(one, its_sums)
        if probes:
            probes.keep(one.pair.sample, one.pair.benchmark, picked)
            if are_mapped and is_suspicious(result):
                probes.of(one.pair.sample)
                probes.of(one.pair.benchmark)
        yield result
