"""Find the tensor that a misnamed one really is, by probing values.

Two dumps of one network may give one name to different tensors (a BatchNormalization folded into its convolution on
one side keeps the convolution's name, though its values are those after it). For a pair that disagrees, tensors of
the same size are distinguished by 64 probed values in both layouts, one matrix operation for all; only the few nearest
are compared in full. Of larger tensors these values are picked up while their pairs are compared.

Among thousands of tensors of one size the nearest are looked for in buckets only, so that the work grows with their
number and not with its square: probes of equal tensors fall on the same sides of random planes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sgsdump.comparison.layout_match import measure
from sgsdump.comparison.metrics.cos import cos
from sgsdump.comparison.metrics.rmse import rmse
from sgsdump.comparison.real_values import real_values
from sgsdump.comparison.sums.picked import Picked
from sgsdump.dumps.dump import Record
from sgsdump.errors import SgsdumpError, ValuesError
from sgsdump.files.mapped.views import let_go
from sgsdump.tensors.device.layout import is_device
from sgsdump.tensors.dtypes import is_complex
from sgsdump.tensors.layout import to_nchw, to_nhwc
from sgsdump.tensors.real_view import Values

PROBES = 64
EXACT = 1 << 20  # as many distances between probes are all computed; beyond, those within buckets
TABLES, CANDIDATES = 8, 32
NEAREST = 4
SMALLEST = 16  # fewer values than this agree by chance
WORTH = 1 << 16  # values of a tensor whose probes are picked up before it is known whether they are needed


@dataclass(frozen=True)
class Match:
    """The record whose values agree, and how well."""

    record: Record
    cos: float
    rmse: float


@dataclass(frozen=True)
class Agreement:
    """What counts as the same values: at least ``cos``, at most ``rmse``, and ``better`` times the pair's own RMSE."""

    cos: float
    rmse: float
    better: float = 0.1


class Probes:
    """The rows of records, as ``probe`` gives them, each made once; by the records' ``id``."""

    def __init__(self) -> None:
        self._rows: dict[int, np.ndarray | None] = {}
        self._sizes: dict[int, int] = {}

    def of(self, record: Record) -> np.ndarray | None:
        """None where the values cannot be had."""
        if id(record) not in self._rows:
            self._rows[id(record)] = _rows_of(record)
        return self._rows[id(record)]

    def to_pick(self, sample: Record, benchmark: Record) -> tuple[Picked, Picked] | None:
        """What is to be picked up while the two are compared, for ``keep``; None where that is not worth it."""
        shapes = [record.tensor.info.shape for record in (sample, benchmark) if id(record) not in self._rows]
        large = [shape for shape in shapes if shape is not None and math.prod(shape) >= WORTH]
        if len(large) < 2:
            return None
        return Picked(large[0], _in_order(large[0])[0]), Picked(large[1], _in_order(large[1])[0])

    def keep(self, sample: Record, benchmark: Record, picked: tuple[Picked, Picked] | None) -> None:
        """What ``to_pick`` gave for the two, once they were compared."""
        for record, one in zip((sample, benchmark), picked or ()):
            if one.whole:
                self._rows[id(record)] = one.values[_in_order(one.shape)[1]]

    def size(self, record: Record) -> int:
        """How many real values a record holds; 0 where they cannot be had."""
        if id(record) not in self._sizes:
            self._sizes[id(record)] = _size(record)
        return self._sizes[id(record)]


def find_matches(
    targets: Mapping[int, tuple[Record, float]],
    pool: Iterable[Record],
    agreement: Agreement,
    probes: Probes | None = None,
) -> dict[int, Match]:
    """For each target (record, the RMSE of its own pair) the best agreeing tensor of the pool, where there is one."""
    probes = probes or Probes()
    wanted: dict[int, list[tuple[int, np.ndarray]]] = defaultdict(list)
    for key, (record, _) in targets.items():
        rows = probes.of(record)
        if rows is not None and (size := probes.size(record)) >= SMALLEST:
            wanted[size].append((key, rows))
    groups: dict[int, list[tuple[Record, np.ndarray]]] = defaultdict(list)
    for record in pool:
        if (size := probes.size(record)) in wanted and (rows := probes.of(record)) is not None:
            groups[size].append((record, rows))
    matches: dict[int, Match] = {}
    for size, group in groups.items():
        keys, own_rows = zip(*wanted[size])
        pool_probes = _stacked([rows for _, rows in group])
        # turning one side is enough where every tensor that could be turned is on that side
        turned = any(len(rows) == 1 for _, rows in group)
        target_probes = _stacked(own_rows if turned else [rows[:1] for rows in own_rows])
        own = [targets[key][1] for key in keys]
        exact = len(target_probes[1]) * len(pool_probes[1]) <= EXACT
        near = (_nearest if exact else _nearest_in_buckets)(target_probes, pool_probes, own)
        for key, numbers in zip(keys, near):
            best = _best(*targets[key], [group[number][0] for number in numbers], agreement) if numbers else None
            if best is not None:
                matches[key] = best
    return matches


def _best(record: Record, own: float, candidates: list[Record], agreement: Agreement) -> Match | None:
    values = real_values(record)
    limit = min(agreement.rmse, own * agreement.better)
    best: Match | None = None
    for candidate in candidates:
        try:
            sums = measure(values, real_values(candidate)).sums
        except ValuesError:
            continue
        match = Match(candidate, cos(sums), rmse(sums))
        if match.cos >= agreement.cos and match.rmse <= limit and (best is None or match.rmse < best.rmse):
            best = match
    return best


def probe(values: Values) -> np.ndarray:
    """A row of PROBES values: as stored and, of a 4-D tensor, in the other layouts. Not of an empty one."""
    array = values.array
    places = _places(array.shape)
    flat = array.flags.c_contiguous
    picked = array.reshape(-1)[places] if flat else array[np.unravel_index(places, array.shape)]
    return np.asarray(picked if values.to_real is None else values.to_real(picked))


def probe_all(tensors: Iterable[Values]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all tensors, behind the number of the tensor each row is of, ascending."""
    return _stacked([_probe_and_let_go(values) for values in tensors])


@lru_cache(maxsize=1024)
def _places(shape: tuple[int, ...]) -> np.ndarray:
    """Where tensors of a shape are probed: for each layout the same places, as indices into the values as stored."""
    places = np.random.default_rng(math.prod(shape)).integers(0, math.prod(shape), PROBES)
    if len(shape) != 4:
        return places[None]
    stored = np.empty(shape, np.uint8)  # of which nothing is read but the strides
    views = stored, to_nchw(stored), to_nhwc(stored)
    return np.stack([np.dot(view.strides, np.unravel_index(places, view.shape)) for view in views])


@lru_cache(maxsize=1024)
def _in_order(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The places in ascending order, and where in this order each of them is."""
    ascending, where = np.unique(_places(shape), return_inverse=True)
    return ascending.astype(np.int64, copy=False), where.reshape(_places(shape).shape)


def _size(record: Record) -> int:
    info = record.tensor.info
    if info.shape is not None and not is_device(info.layout) and not is_complex(info.dtype):
        return math.prod(info.shape)
    try:
        return real_values(record).array.size
    except SgsdumpError:
        return 0


def _rows_of(record: Record) -> np.ndarray | None:
    try:
        values = real_values(record)
    except SgsdumpError:
        return None
    return probe(values) if values.array.size else None


def _probe_and_let_go(values: Values) -> np.ndarray:
    rows = probe(values)
    let_go(values.array)
    return rows


def _stacked(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    owners = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
    return owners, np.concatenate(rows, dtype=np.float64, casting="unsafe")


def _nearest(
    targets: tuple[np.ndarray, np.ndarray], pool: tuple[np.ndarray, np.ndarray], own: list[float]
) -> Iterator[list[int]]:
    """For each target the numbers of the pool's tensors whose probes are nearest, none that is off by more than half
    of what the target's namesake is off by (and none by more than half)."""
    pool_owners, pool_rows = pool
    rows = targets[1]
    borders = np.searchsorted(targets[0], np.arange(len(own)))
    limits = (0.5 * np.minimum(1.0, own)) ** 2
    with np.errstate(all="ignore"):
        pool_norms, norms = (pool_rows**2).sum(1), (rows**2).sum(1)
        # |p - t|² by one matrix product for all rows; its rounding is far below the limit
        squares = (pool_norms[:, None] + norms - 2 * (pool_rows @ rows.T)) / norms
        distances = np.fmin.reduceat(squares, borders, axis=1)
        near: np.ndarray = distances <= limits
    for number, is_near in enumerate(np.logical_or.reduce(near, axis=0).tolist()):
        if not is_near:
            yield []
            continue
        places = np.flatnonzero(near[:, number])
        order = places[np.argsort(distances[places, number], kind="stable")]
        yield list(dict.fromkeys(pool_owners[order].tolist()))[:NEAREST]


def _nearest_in_buckets(
    targets: tuple[np.ndarray, np.ndarray], pool: tuple[np.ndarray, np.ndarray], own: list[float]
) -> Iterator[list[int]]:
    """What ``_nearest`` gives, among the tensors of the pool that share a bucket with a target; at most ``CANDIDATES``
    of each bucket, since a bucket may hold thousands of copies.

    A tensor within the documented thresholds (COS 0.99) misses all ``TABLES`` buckets about once in a thousand times,
    one that is equal but for rounding never.
    """
    pool_owners, pool_rows = pool
    rng = np.random.default_rng(PROBES)
    bits = max(4, int(np.log2(len(pool_rows))) - 3)
    planes = rng.standard_normal((PROBES, TABLES * bits))
    weights = 1 << np.arange(bits)
    with np.errstate(all="ignore"):
        of_pool, of_targets = _directions(pool_rows) @ planes, _directions(targets[1]) @ planes
        middle = np.median(of_pool, axis=0)
        codes, asked = (
            ((side > middle).reshape(len(side), TABLES, bits) * weights).sum(2) for side in (of_pool, of_targets)
        )
    orders = [np.argsort(codes[:, table], kind="stable") for table in range(TABLES)]
    found = []
    for table, order in enumerate(orders):
        ranked = codes[order, table]
        found.append([np.searchsorted(ranked, asked[:, table], side) for side in ("left", "right")])
    borders = np.searchsorted(targets[0], np.arange(len(own) + 1))
    for number, (first, last) in enumerate(pairwise(borders)):
        picked = [
            orders[table][found[table][0][row] : min(found[table][1][row], found[table][0][row] + CANDIDATES)]
            for table in range(TABLES)
            for row in range(first, last)
        ]
        places = np.unique(np.concatenate(picked))
        rows = targets[1][first:last]
        part = pool_owners[places], pool_rows[places]
        yield from _nearest((np.zeros(len(rows), int), rows), part, [own[number]])


def _directions(rows: np.ndarray) -> np.ndarray:
    """The rows as vectors of length 1; those that have no direction as 0."""
    return np.nan_to_num(rows / np.linalg.norm(rows, axis=1, keepdims=True), nan=0.0, posinf=0.0, neginf=0.0)
