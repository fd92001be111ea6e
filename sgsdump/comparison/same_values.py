"""Tensors of the same values, whatever their names: probes that tell them apart, and pairs that are misnamed.

A probe is 64 values, at places that tensors of one size share, in the layouts of 4-D ones too: equal tensors have equal
probes, whatever their layout. Those of larger tensors are picked up while their pairs are compared.

Two dumps of one network may give one name to different tensors (a BatchNormalization folded into its convolution on
one side keeps the convolution's name, though its values are those after it). For a pair that disagrees, tensors of
the same size are distinguished by their probes, one matrix operation for all; only the few nearest are compared in
full. Among thousands of probes the nearest are looked for in buckets only, so that the work grows with their number
and not with its square: nearly equal rows fall on the same sides of random planes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sgsdump.comparison.alignment import NAME_WAYS, Mapper, Pair, size_of
from sgsdump.comparison.layout_match import Measured, measure
from sgsdump.comparison.metrics import Settings, cos, ratio, rmse
from sgsdump.comparison.row import Failed, Misnamed, Row, is_suspicious
from sgsdump.comparison.stored_integers import Differences, are_indices
from sgsdump.comparison.sums.summation import pair_sums
from sgsdump.comparison.sums.tiles import Picked
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Record
from sgsdump.errors import FileChanged, SgsdumpError, ValuesError
from sgsdump.files.mapped import picked
from sgsdump.tensors.tensor import Values, values_of
from sgsdump.tensors.types import to_nchw, to_nhwc

PROBES = 64
WORTH = 1 << 14  # values of a tensor whose probes are picked up before it is known whether they are needed


@dataclass(frozen=True, eq=False)
class Probes:
    """The rows of records, as ``probe`` gives them, each made once; by the records' ``id``."""

    _rows: dict[int, np.ndarray | None] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)

    def of(self, record: Record, values: Values | None = None) -> np.ndarray | None:
        """None where the values cannot be had; ``values`` are the record's, where they are known."""
        if id(record) not in self._rows:
            try:
                values = values or values_of(record.tensor.logical())
                self._rows[id(record)] = probe(values) if values.array.size else None
            except FileChanged:
                raise
            except SgsdumpError:
                self._rows[id(record)] = None
        return self._rows[id(record)]

    def to_pick(self, sample: Record, benchmark: Record) -> tuple[Picked, Picked] | None:
        """The places to pick up while the two are compared, for ``keep``; None where that is not worth it."""
        shapes = [record.tensor.info.shape for record in (sample, benchmark) if id(record) not in self._rows]
        large = [shape for shape in shapes if shape is not None and math.prod(shape) >= WORTH]
        if len(large) < 2:
            return None
        return Picked(large[0], _in_order(large[0])[0]), Picked(large[1], _in_order(large[1])[0])

    def keep(self, sample: Record, benchmark: Record, picked: tuple[Picked, Picked]) -> None:
        """Keep what ``to_pick`` gave for the two, once they were compared."""
        for record, side in zip((sample, benchmark), picked):
            if side.whole:
                self._rows[id(record)] = side.values[_in_order(side.shape)[1]]

    def size(self, record: Record) -> int:
        if id(record) not in self._sizes:
            self._sizes[id(record)] = size_of(record)
        return self._sizes[id(record)]


def probe(values: Values) -> np.ndarray:
    """A row of PROBES values: as stored and, of a 4-D tensor, in the other layouts. Not of an empty one."""
    array = values.array
    places = _places(array.shape)
    probed = picked(array, places)
    return np.asarray(probed if values.to_real is None else values.to_real(probed))


def probe_all(tensors: Iterable[Values]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all tensors, after the number of the tensor each row is of, ascending."""
    return stacked([probe(values) for values in tensors])


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


def stacked(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    owners = np.repeat(np.arange(len(rows)), [len(tensor_rows) for tensor_rows in rows])
    return owners, np.concatenate(rows, dtype=np.float64, casting="unsafe")


Rows = tuple[np.ndarray, np.ndarray]
"""Rows, after the number of the tensor each is of, ascending."""

SMALLEST = 16  # fewer values than this agree by chance
EXACT = 1 << 20  # as many distances are all computed; beyond, those within buckets
TABLES, CANDIDATES = 8, 32
NEAREST = 4
_SEED = 64
_ROUNDING = 1e-6
_AT_ONCE = 1 << 12  # rows whose distances are computed in one go


def may_be_renamed(pair: Pair, outputs: Set[str]) -> bool:
    """Whether another tensor than the namesake may be meant: only names made the pair, and it is not one of the
    networks' ``outputs``."""
    return pair.how in NAME_WAYS and not {pair.sample.name, pair.benchmark.name} & outputs


def find_misnamed(
    pairs: tuple[Pair, ...],
    results: list[Row | Failed],
    held: Mapping[str, Sequence[Record]],
    probes: Probes,
    run: Mapper = map,
) -> dict[int, Misnamed]:
    """By number of the pair, the tensor that agrees with one side of a pair that does not.

    A pair is misnamed when one side agrees with another tensor within the documented thresholds and ten times better
    than with its namesake: a layer that quantisation spoilt does not, one with a Relu folded in does, though
    its COS may well pass. Pairs with an error of at most ``row.SURE`` are not looked at, nor those with NaN or Inf.
    Where only the names made a pair, the tensor that agrees may well be the right one; a pair that a user, a rule or a
    graph made, and a network's output, is what it is: see ``may_be_renamed``.
    ``held`` are the records that the sample and the benchmark could pair, ``probes`` were kept while the pairs were
    compared; ``run`` may spread work over threads.
    """
    suspicious = {
        i: result.error if isinstance(result, Row) else float("inf")
        for i, result in enumerate(results)
        if is_suspicious(result)
    }
    assert DOCUMENTED.min_cos is not None and DOCUMENTED.max_rmse is not None
    agreement = Agreement(DOCUMENTED.min_cos, DOCUMENTED.max_rmse)
    own_errors = {id(pair.sample): result.error for pair, result in zip(pairs, results) if isinstance(result, Row)}
    misnamed: dict[int, Misnamed] = {}
    for side, other in (("benchmark", "sample"), ("sample", "benchmark")):
        ids = set(map(id, held[other]))
        targets = {}
        for i in suspicious.keys() - misnamed.keys():
            record = pairs[i].sample if other == "sample" else pairs[i].benchmark
            if id(record) in ids:
                targets[i] = record, suspicious[i]
        for i, match in find_matches(targets, held[side], agreement, probes, run).items():
            r = match.record
            if side == "sample" and own_errors.get(id(r), math.inf) <= AS_GOOD * match.error:
                continue  # two tensors of the reference are equal, and this one has its own
            misnamed[i] = Misnamed(side, r.name, r.op_index, r.op_type, match.cos, match.rmse)
    return misnamed


@dataclass(frozen=True)
class Match:
    """The record whose values agree, and how well; ``error`` as rows have it."""

    record: Record
    cos: float
    rmse: float
    error: float


@dataclass(frozen=True)
class Agreement:
    """When values count as the same: at least ``cos``, at most ``rmse``, and ``better`` times the pair's own error."""

    cos: float
    rmse: float
    better: float = 0.1


def find_matches(
    targets: Mapping[int, tuple[Record, float]],
    pool: Iterable[Record],
    agreement: Agreement,
    probes: Probes | None = None,
    run: Mapper = map,
) -> dict[int, Match]:
    """For each target (record, the error of its own pair) the best agreeing tensor of the pool, where there is one;
    ``run`` may spread those of large tensors over threads."""
    probes = probes or Probes()
    of_size: dict[int, list[tuple[int, np.ndarray]]] = defaultdict(list)
    for key, (record, _) in targets.items():
        rows = probes.of(record)
        if rows is not None and (size := probes.size(record)) >= SMALLEST:
            of_size[size].append((key, rows))
    groups: dict[int, list[tuple[Record, np.ndarray]]] = defaultdict(list)
    for record in pool:
        if (size := probes.size(record)) in of_size and (rows := probes.of(record)) is not None:
            groups[size].append((record, rows))
    matches: dict[int, Match] = {}
    for size, group in groups.items():
        keys, own_rows = zip(*of_size[size])
        pool_probes = stacked([rows for _, rows in group])
        # turning one side is enough where every tensor that could be turned is on that side
        turned = any(len(rows) == 1 for _, rows in group)
        target_probes = stacked(own_rows if turned else [rows[:1] for rows in own_rows])
        errors = [targets[key][1] for key in keys]
        near = zip(keys, nearest_rows(target_probes, pool_probes, errors))
        tried = [(key, [group[number][0] for number in numbers]) for key, numbers in near if numbers]
        bests = (run if size >= WORTH else map)(lambda item: _best(*targets[item[0]], item[1], agreement), tried)
        matches |= {key: best for (key, _), best in zip(tried, bests) if best is not None}
    return matches


def _best(record: Record, error: float, candidates: list[Record], agreement: Agreement) -> Match | None:
    values = values_of(record.tensor.logical())
    limit = min(agreement.rmse, error * agreement.better)
    best: Match | None = None
    for candidate in candidates:
        try:
            measured = measure(values, values_of(candidate.tensor.logical()))
        except ValuesError:
            continue
        sums = measured.sums
        match = Match(candidate, cos(sums), rmse(sums), _error(Pair(record, candidate, ""), measured))
        if match.cos >= agreement.cos and match.error <= limit and (best is None or match.error < best.error):
            best = match
    return best


def _error(pair: Pair, measured: Measured) -> float:
    """As ``Row.error`` has it: of whole numbers that mean themselves how many differ, however large they are."""
    if not are_indices(pair):
        return rmse(measured.sums)
    differences = Differences(Settings())
    pair_sums(measured.sample, measured.benchmark, (differences,))
    return ratio(differences.differing, differences.count)


def nearest_rows(targets: Rows, pool: Rows, errors: list[float]) -> Iterator[list[int]]:
    """For each target the numbers of the pool's tensors whose rows are nearest, none that is off by more than half
    of what the target's namesake is off by, ``own`` (and none by more than half)."""
    exact = len(targets[1]) * len(pool[1]) <= EXACT
    return (_nearest if exact else _nearest_in_buckets)(targets, pool, errors)


def _nearest(targets: Rows, pool: Rows, errors: list[float]) -> Iterator[list[int]]:
    pool_owners, pool_rows = pool
    rows = targets[1]
    borders = np.searchsorted(targets[0], np.arange(len(errors)))
    limits = (0.5 * np.minimum(1.0, errors)) ** 2
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


def _nearest_in_buckets(targets: Rows, pool: Rows, errors: list[float]) -> Iterator[list[int]]:
    """As ``_nearest``, among the tensors of the pool that share a bucket with a target; at most ``CANDIDATES``
    of each bucket, since a bucket may hold thousands of copies.

    A tensor within the documented thresholds (COS 0.99) misses all ``TABLES`` buckets about once in a thousand times,
    one that is equal but for rounding never.
    """
    pool_owners, pool_rows = pool
    rng = np.random.default_rng(_SEED)
    bits = max(4, int(np.log2(len(pool_rows))) - 3)
    planes = rng.standard_normal((pool_rows.shape[1], TABLES * bits))
    weights = 1 << np.arange(bits)
    with np.errstate(all="ignore"):
        of_pool, of_targets = _directions(pool_rows) @ planes, _directions(targets[1]) @ planes
        middle = np.median(of_pool, axis=0)
        codes, asked = (
            ((side > middle).reshape(len(side), TABLES, bits) * weights).sum(2) for side in (of_pool, of_targets)
        )
    orders = [np.argsort(codes[:, table], kind="stable") for table in range(TABLES)]
    bounds = []
    for table, order in enumerate(orders):
        ranked = codes[order, table]
        bounds.append([np.searchsorted(ranked, asked[:, table], side) for side in ("left", "right")])
    owners, rows = targets
    with np.errstate(all="ignore"):
        pool_norms, norms = np.linalg.norm(pool_rows, axis=1), np.linalg.norm(rows, axis=1)
        reach = (0.5 + _ROUNDING) * np.minimum(1.0, np.take(errors, owners)) * norms
        candidates = [np.empty(0, np.int64)]
        for row, index in _in_buckets(orders, bounds):
            # rows are no nearer than their lengths are
            near = np.abs(pool_norms[index] - norms[row]) <= reach[row]
            candidates.append(owners[row[near]] * len(pool_rows) + index[near])
    target, index = np.divmod(np.unique(np.concatenate(candidates)), len(pool_rows))
    distances = _distances(targets, pool_rows, target, index)
    near = distances <= (0.5 * np.minimum(1.0, np.take(errors, target))) ** 2
    target, index, distances = target[near], index[near], distances[near]
    found = pool_owners[index[np.lexsort((distances, target))]].tolist()
    for first, last in pairwise(np.searchsorted(target, np.arange(len(errors) + 1)).tolist()):
        yield list(dict.fromkeys(found[first:last]))[:NEAREST]


def _in_buckets(
    orders: Sequence[np.ndarray], bounds: Sequence[Sequence[np.ndarray]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """By table, rows of targets and those of the pool that lie in the same bucket."""
    for order, (left, right) in zip(orders, bounds):
        counts = np.minimum(right - left, CANDIDATES)
        row = np.repeat(np.arange(len(left)), counts)
        yield row, order[left[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)]


def _distances(targets: Rows, pool_rows: np.ndarray, target: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The square of the distance of each target from a row of the pool, by the target's own length; of a target's rows
    the nearest counts."""
    owners, rows = targets
    borders = np.searchsorted(owners, np.arange(len(rows) + 1))
    counts = np.diff(borders)[target]
    starts = np.cumsum(counts) - counts
    pair = np.repeat(np.arange(len(target)), counts)
    row = borders[target][pair] + np.arange(len(pair)) - starts[pair]
    squares = np.empty(len(pair))
    with np.errstate(all="ignore"):
        for start in range(0, len(pair), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            apart = pool_rows[index[pair[part]]] - rows[row[part]]
            squares[part] = np.einsum("ij,ij->i", apart, apart)
        squares /= (rows**2).sum(1)[row]
    return np.fmin.reduceat(squares, starts) if len(starts) else squares


def _directions(rows: np.ndarray) -> np.ndarray:
    """The rows as vectors of length 1; those that have no direction as 0."""
    return np.nan_to_num(rows / np.linalg.norm(rows, axis=1, keepdims=True), nan=0.0, posinf=0.0, neginf=0.0)


AS_GOOD = 2.0  # times the best error; copies of one tensor have the same error but for the order of its sums
