"""Tensors with equal values, whatever their names: probes that distinguish tensors, and pairs that are misnamed.

A probe holds 64 values at positions that depend on the size only, for 4-D tensors in the other layouts too. Equal
tensors thus have equal probes, whatever their layout. Probes of larger tensors are collected while their pairs are
compared.

Two dumps of one network may use one name for different tensors. For example, a BatchNormalization is folded into its
convolution on one side, whose output keeps the convolution's name. For a pair that disagrees, tensors of the same size
are ranked by their probes in one matrix operation, and only the nearest are compared in full. Among thousands of
probes, the nearest are searched only in hash buckets: nearly equal rows lie on the same sides of random planes. The
work thus grows linearly with the number of probes.
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
WORTH = 1 << 14  # tensor size from which probes are collected before it is known whether they are needed


@dataclass(frozen=True, eq=False)
class Probes:
    """Probes of records as from ``probe``, each computed once; keyed by the records' ``id``."""

    _rows: dict[int, np.ndarray | None] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)

    def of(self, record: Record, values: Values | None = None) -> np.ndarray | None:
        """Return the probe of a record, or None if its values are not available.

        ``values`` avoids reading them again.
        """
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
        """Return the positions to collect during a comparison, for ``keep``; None if the tensors are too small."""
        shapes = [record.tensor.info.shape for record in (sample, benchmark) if id(record) not in self._rows]
        large = [shape for shape in shapes if shape is not None and math.prod(shape) >= WORTH]
        if len(large) < 2:
            return None
        return Picked(large[0], _in_order(large[0])[0]), Picked(large[1], _in_order(large[1])[0])

    def keep(self, sample: Record, benchmark: Record, picked: tuple[Picked, Picked]) -> None:
        """Store the values collected for ``to_pick`` after the comparison."""
        for record, side in zip((sample, benchmark), picked):
            if side.whole:
                self._rows[id(record)] = side.values[_in_order(side.shape)[1]]

    def size(self, record: Record) -> int:
        if id(record) not in self._sizes:
            self._sizes[id(record)] = size_of(record)
        return self._sizes[id(record)]


def probe(values: Values) -> np.ndarray:
    """Return rows of PROBES values of a non-empty tensor: as stored and, for 4-D tensors, in the other layouts."""
    array = values.array
    places = _places(array.shape)
    probed = picked(array, places)
    return np.asarray(probed if values.to_real is None else values.to_real(probed))


def probe_all(tensors: Iterable[Values]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all tensors, and the ascending tensor number of each row (first)."""
    return stacked([probe(values) for values in tensors])


@lru_cache(maxsize=1024)
def _places(shape: tuple[int, ...]) -> np.ndarray:
    """Return the probed positions of a shape: the same positions for each layout, as indices into the stored values."""
    places = np.random.default_rng(math.prod(shape)).integers(0, math.prod(shape), PROBES)
    if len(shape) != 4:
        return places[None]
    stored = np.empty(shape, np.uint8)  # only the strides are used
    views = stored, to_nchw(stored), to_nhwc(stored)
    return np.stack([np.dot(view.strides, np.unravel_index(places, view.shape)) for view in views])


@lru_cache(maxsize=1024)
def _in_order(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions in ascending order, and the index of each position in this order."""
    ascending, where = np.unique(_places(shape), return_inverse=True)
    return ascending.astype(np.int64, copy=False), where.reshape(_places(shape).shape)


def stacked(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    owners = np.repeat(np.arange(len(rows)), [len(tensor_rows) for tensor_rows in rows])
    return owners, np.concatenate(rows, dtype=np.float64, casting="unsafe")


Rows = tuple[np.ndarray, np.ndarray]
"""Ascending tensor number of each row, and the rows."""

SMALLEST = 16  # smaller tensors may agree by chance
EXACT = 1 << 20  # up to this number all distances are computed, beyond only those within buckets
TABLES, CANDIDATES = 8, 32
NEAREST = 4
_SEED = 64
_ROUNDING = 1e-6
_AT_ONCE = 1 << 12  # rows per distance computation


def may_be_renamed(pair: Pair, outputs: Set[str]) -> bool:
    """Return whether a tensor other than the namesake may be the right one.

    This is the case if only names made the pair and it is not one of the networks' ``outputs``.
    """
    return pair.how in NAME_WAYS and not {pair.sample.name, pair.benchmark.name} & outputs


def find_misnamed(
    pairs: tuple[Pair, ...],
    results: list[Row | Failed],
    held: Mapping[str, Sequence[Record]],
    probes: Probes,
    run: Mapper = map,
) -> dict[int, Misnamed]:
    """Return pair number -> tensor that agrees with one side of a pair whose sides disagree.

    A pair is misnamed if one side agrees with another tensor within the documented thresholds, and ten times better
    than with its namesake. A layer that quantisation degraded has no such tensor; a layer with a fused Relu has one,
    although its COS may pass. Pairs with an error of at most ``row.SURE``, or with NaN or Inf, are skipped. If only
    names made a pair, the matching tensor may be the right one; pairs from a user, a rule or a graph, and network
    outputs, are kept as they are (see ``may_be_renamed``).

    held    records of sample and benchmark that could be paired.
    probes  collected while the pairs were compared.
    run     may distribute the work over threads.
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
                continue  # two tensors of the reference are equal, and this one already has its partner
            misnamed[i] = Misnamed(side, r.name, r.op_index, r.op_type, match.cos, match.rmse)
    return misnamed


@dataclass(frozen=True)
class Match:
    """Record whose values agree, and how well; ``error`` is as in rows."""

    record: Record
    cos: float
    rmse: float
    error: float


@dataclass(frozen=True)
class Agreement:
    """Limits for equal values: least ``cos``, most ``rmse``, and most error as a share of the pair's own error."""

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
    """Return for each target (record, error of its own pair) the best matching tensor of the pool, if any.

    ``run`` may distribute large tensors over threads.
    """
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
        # transposing one side is enough if all 4-D tensors are on that side
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
    """Return the error as in ``Row.error``: for indices the share of differing values, however large they are."""
    if not are_indices(pair):
        return rmse(measured.sums)
    differences = Differences(Settings())
    pair_sums(measured.sample, measured.benchmark, (differences,))
    return ratio(differences.differing, differences.count)


def nearest_rows(targets: Rows, pool: Rows, errors: list[float]) -> Iterator[list[int]]:
    """Yield for each target the numbers of the pool's nearest tensors.

    A tensor is dropped if its distance exceeds half of the error of the target's own pair (``errors``), or one half.
    """
    exact = len(targets[1]) * len(pool[1]) <= EXACT
    return (_nearest if exact else _nearest_in_buckets)(targets, pool, errors)


def _nearest(targets: Rows, pool: Rows, errors: list[float]) -> Iterator[list[int]]:
    pool_owners, pool_rows = pool
    rows = targets[1]
    borders = np.searchsorted(targets[0], np.arange(len(errors)))
    limits = (0.5 * np.minimum(1.0, errors)) ** 2
    with np.errstate(all="ignore"):
        pool_norms, norms = (pool_rows**2).sum(1), (rows**2).sum(1)
        # |p - t|² by one matrix product for all rows; rounding is far below the limit
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
    """Yield as ``_nearest``, but only from tensors that share a bucket with a target.

    At most ``CANDIDATES`` per bucket are used, because a bucket may hold thousands of copies. A tensor within the
    documented thresholds (COS 0.99) misses all ``TABLES`` buckets about once in a thousand cases; a tensor that is
    equal up to rounding never does.
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
            # the distance of two rows is at least the difference of their lengths
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
    """Yield per table the target rows and the pool rows that share a bucket."""
    for order, (left, right) in zip(orders, bounds):
        counts = np.minimum(right - left, CANDIDATES)
        row = np.repeat(np.arange(len(left)), counts)
        yield row, order[left[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)]


def _distances(targets: Rows, pool_rows: np.ndarray, target: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return squared distances of targets from pool rows, relative to the target's length; the nearest row counts."""
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
    """Return the rows scaled to length 1; rows without a direction become 0."""
    return np.nan_to_num(rows / np.linalg.norm(rows, axis=1, keepdims=True), nan=0.0, posinf=0.0, neginf=0.0)


AS_GOOD = 2.0  # factor on the best error; copies of one tensor differ only in the order of their sums
