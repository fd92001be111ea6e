"""Differences between two runs of torch programs in exact arithmetic, tensor by tensor.

Both runs are recomputed in float64 (``sgsdump/replay/exact.py``). Some values were produced by no operator of the
sample (inputs, a cache filled in an earlier round). They are taken from the benchmark if both sides agree up to
rounding, so that each round is judged alone. Equivalent programs then agree to about 1e-15, in bfloat16 as in float32.
Differences between the recorded values of such a tensor are rounding. The distance of each side from its own exact
value is the rounding of that side.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from sgsdump.comparison.align import Pairs
from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.low_precision import Rounding, has_torch
from sgsdump.comparison.measure import Rows
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.row import Exact, Row, bound_of, differs, is_narrow, is_rounding
from sgsdump.dumps.dump import Dump, Network, Record
from sgsdump.replay import torch_operators
from sgsdump.replay.bounds import COLLECTIVE
from sgsdump.replay.check import is_recorded
from sgsdump.replay.exact import ExactRun, exact_run, is_small

if TYPE_CHECKING:
    import torch

_MOST_AXES, _MOST_TRIED, _LARGEST = 4, 64, 1 << 22
_MASK = -1e4  # distance of a mask from the largest value
_Key = tuple[str, int, int, str]


def may_help(pairs: Pairs, measured: Rows) -> bool:
    """Return whether rounding may cause a difference and both runs can be recomputed."""
    if not all(map(is_recorded, pairs.networks)) or not has_torch() or measured.in_8_bits:
        return False
    if any(kind.partition(".")[0] in COLLECTIVE for kind in _kinds(pairs.networks)):
        return False  # values from other ranks cannot be recomputed
    differing = [row for row in measured.rows if differs(row)]
    is_open = any(is_narrow(row.benchmark_dtype) or not is_rounding(row) for row in differing)
    return is_open and _have_values(pairs.whole) and all(map(is_small, pairs.whole, pairs.networks))


def _kinds(networks: Iterable[Network]) -> Iterator[str]:
    return (operator.kind for network in networks for operator in network.values())


def exact_runs(pairs: Pairs, rows: Sequence[Row], rounding: Rounding) -> tuple[ExactRun, ExactRun]:
    """Return both runs recomputed.

    The sample's run starts from the benchmark's inputs if they differ only by rounding.
    """
    sample, benchmark = pairs.whole
    of_benchmark = exact_run(benchmark, pairs.networks[1])
    given = _from_outside(pairs, rows, of_benchmark, rounding)
    loose = [number for number, (_, is_loose) in given.items() if is_loose]
    tensors = {number: tensor for number, (tensor, _) in given.items()}
    return exact_run(sample, pairs.networks[0], tensors, loose), of_benchmark


def with_exact(pairs: Pairs, measured: Rows, runs: tuple[ExactRun, ExactRun], rounding: Rounding) -> Iterator[Row]:
    """Yield the rows; rows that differ get their exact errors if both sides have exact values."""
    of_pair = {_key(pair): pair for pair in measured.alignment.pairs}
    words = [word for word in rounding.products if word] or ["float32"]
    explained = max(map(bound_of, words))
    for row in measured.rows:
        pair = of_pair.get((row.io, row.op_index, row.slot, row.name))
        exact = _exact(pair, pairs.networks, runs, explained) if pair is not None and differs(row) else None
        yield row if exact is None else row.replaced(exact=exact)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the relative root mean square error of ``one``, without masked values of attention."""
    a, b = (torch_operators.as_reals(side) for side in (one, other))
    if not a.numel():
        return 0.0
    masked = b <= b.max() + _MASK
    if masked.any():
        masked &= a <= a[~masked].max() + _MASK / 2
        a, b = a[~masked], b[~masked]
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).masked_fill(same, 0.0)
    size, error = float(b.masked_fill(same & ~b.isfinite(), 0.0).norm()), float(difference.norm())
    return error / size if size else float(error > 0)


def _exact(
    pair: Pair, networks: tuple[Network, Network], runs: tuple[ExactRun, ExactRun], explained: float
) -> Exact | None:
    if pair.sample.tensor.shape != pair.benchmark.tensor.shape:
        return None
    sides = []
    for record, network, run in zip(pair.records, networks, runs):
        number = _number(record, network)
        if number not in run.values or number in run.loose or number in run.outside:
            return None
        exact = run.values[number]
        if exact.numel() != _count(record):
            return None  # a part of the operator's output
        sides.append(exact)
    errors = [_error(record, exact) for record, exact in zip(pair.records, sides)]
    return Exact(apart(*sides), errors[0], errors[1], explained)


def _error(record: Record, exact: torch.Tensor) -> float:
    return apart(torch_operators.wide(record.tensor.stored_view()), exact)


def _from_outside(
    pairs: Pairs, rows: Iterable[Row], benchmark: ExactRun, rounding: Rounding
) -> dict[Hashable, tuple[torch.Tensor, bool]]:
    """Return exact values for inputs that no operator of the sample produced, and whether they carry rounding."""
    of_key = {(row.io, row.op_index, row.slot, row.name): row for row in rows}
    networks = pairs.networks
    made, weights = _made(networks[0]), _weights(networks[0])
    found: dict[Hashable, tuple[torch.Tensor, bool]] = {}
    for pair in pairs.alignment.pairs:
        numbers = [_number(record, network) for record, network in zip(pair.records, networks)]
        mine, theirs = numbers
        if pair.sample.io != "in" or mine is None or mine in made or mine in found or theirs not in benchmark.values:
            continue
        tensor = benchmark.values[theirs]
        row = of_key.get(_key(pair))
        if row is None or tuple(tensor.shape) != tuple(pair.sample.tensor.shape or ()):
            continue
        is_same = rounding.is_converted_value(row) or (mine not in weights and (not differs(row) or is_rounding(row)))
        if is_same:
            found[mine] = tensor, theirs in benchmark.loose
        elif not pair.sample.unwritten:  # a real difference, not rounding
            found[mine] = torch_operators.wide(pair.sample.tensor.stored_view()), False
    others = _outside(pairs.whole[0], networks[0], made)
    explained = max(map(bound_of, rounding.types), default=bound_of("float32"))
    return found | dict(_of_other_form({n: r for n, r in others.items() if n not in found}, benchmark, explained))


def _of_other_form(
    wanted: Mapping[Hashable, Record], benchmark: ExactRun, rounding: float
) -> Iterator[tuple[Hashable, tuple[torch.Tensor, bool]]]:
    """Yield values that the benchmark holds with permuted axes, or as the used part of a buffer."""
    candidates = [(number, record) for number, record in benchmark.outside.items() if _is_plain(record)][:_MOST_TRIED]
    for number, record in [item for item in wanted.items() if _is_plain(item[1])][:_MOST_TRIED]:
        values = torch_operators.wide(record.tensor.stored_view())
        for other, theirs in candidates:
            recorded = torch_operators.wide(theirs.tensor.stored_view())
            formed = _formed(values, recorded, benchmark.values[other], rounding)
            if formed is not None:
                yield number, (formed, other in benchmark.loose)
                break


def _formed(values: torch.Tensor, recorded: torch.Tensor, exact: torch.Tensor, rounding: float) -> torch.Tensor | None:
    """Return ``exact`` in the form of ``values``, if ``recorded`` holds the same values in another form; else None."""
    if values.ndim != recorded.ndim or values.ndim > _MOST_AXES:
        return None
    if sorted(values.shape) == sorted(recorded.shape):
        for axes in permutations(range(values.ndim)):
            turned = recorded.permute(axes)
            if turned.shape == values.shape and apart(values, turned) <= rounding:
                return exact.permute(axes)
        return None
    unlike = [axis for axis, (one, other) in enumerate(zip(values.shape, recorded.shape)) if one != other]
    if len(unlike) != 1:
        return None
    axis, own, length = unlike[0], values.shape[unlike[0]], recorded.shape[unlike[0]]
    if own < length:  # a cache that dropped entries
        parts = ((start, recorded.narrow(axis, start, own)) for start in (0, length - own))
        start = next((start for start, part in parts if apart(values, part) <= rounding), None)
        return None if start is None else exact.narrow(axis, start, own)
    if apart(values.narrow(axis, 0, length), recorded) > rounding:
        return None
    formed = values.clone()
    formed.narrow(axis, 0, length).copy_(exact)
    return formed


def _is_plain(record: Record) -> bool:
    return not record.unwritten and 1 < _count(record) <= _LARGEST and record.tensor.statistics is None


def _count(record: Record) -> int:
    count = 1
    for length in record.tensor.shape or ():
        count *= length
    return count


def _made(network: Network) -> set[Hashable]:
    """Return the values that operators produced.

    An operator that passes its input on, such as a view, produces nothing.
    """
    found: set[Hashable] = set()
    for operator in network.values():
        if not operator.is_module:
            read = {number for (io, _), number in operator.values.items() if io == "in"}
            found |= {n for (io, _), n in operator.values.items() if io == "out" and n not in read}
    return found


def _weights(network: Network) -> set[Hashable]:
    """Return the values that are weights, or that are moved into a weight, as by ``t``."""
    found = {op.values.get(key) for op in network.values() for key in op.weights} - {None}
    moving = (op for op in network.values() if not op.is_module and only_moves(op.kind))
    return found | {op.values.get(("in", 0)) for op in moving if op.values.get(("out", 0)) in found}


def _outside(dump: Dump, network: Network, made: set[Hashable]) -> dict[Hashable, Record]:
    """Return float values that operators read, that no operator produced, and that are not weights."""
    found: dict[Hashable, Record] = {}
    for record in dump.records:
        operator = network.get(record.op_index)
        if record.io != "in" or operator is None or operator.is_module:
            continue
        key = record.io, record.slot
        number = operator.values.get(key)
        if number is not None and number not in made and key not in operator.weights and not operator.parts.get(key):
            found.setdefault(number, record)
    return found


def _number(record: Record, network: Network) -> Hashable:
    operator = network.get(record.op_index)
    return None if operator is None else operator.values.get((record.io, record.slot))


def _have_values(dumps: Sequence[Dump]) -> bool:
    return not any(record.tensor.statistics is not None for dump in dumps for record in dump.records)


def _key(pair: Pair) -> _Key:
    record = pair.benchmark
    return record.io, record.op_index, record.slot, record.name
