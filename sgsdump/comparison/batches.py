"""Pairs go to threads by the batch: handing over one by one costs more than a small pair itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from sgsdump.comparison.alignment import Pair
from sgsdump.files.mapped.reading import kept_open

BYTES, PAIRS = 4 << 20, 64
Result = TypeVar("Result")
Mapper = Callable[[Callable, Iterable], Iterable]


def in_batches(run: Mapper, result: Callable[[Pair], Result], pairs: Sequence[Pair]) -> Iterator[Result]:
    """The results in the pairs' order; ``run`` maps over threads."""

    def results(batch: list[Pair]) -> list[Result]:
        with kept_open():
            return [result(pair) for pair in batch]

    return chain.from_iterable(run(results, list(batches(pairs))))


def batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Pairs that follow each other, until they have BYTES of the benchmark's values or are PAIRS."""
    batch: list[Pair] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        info = pair.benchmark.tensor.info
        size += math.prod(info.shape or ()) * info.dtype.itemsize
        if size >= BYTES or len(batch) == PAIRS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
