"""Causes of differences between two programs if one computes in a narrow type: faults separated from rounding.

All tensors differ in this case, so a difference alone proves nothing. An operator is at fault in four cases. Its
argument or weight differs (``causes.py``; a rounded weight counts as equal). Its result is further from the exact
result than its bound (``sgsdump/replay``). Only one side writes into memory. Its input is not the output of the
operator before it. If none applies, the differences are rounding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.comparison.alignment import Pair, Unpaired
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.magnified import magnified
from sgsdump.comparison.naming.network import kind_of, plain
from sgsdump.comparison.packed_weights import QUANTISED, packed_weights, unseen
from sgsdump.comparison.replayed import outside_finding
from sgsdump.comparison.row import Row, differs, is_narrow, is_rounding
from sgsdump.dumps.dump import Dump, Network
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.replay.check import Judged, each, is_recorded
from sgsdump.tensors.dtypes import KNOWN, is_float

if TYPE_CHECKING:
    from sgsdump.comparison.naming.sides import OneSided

OUTSIDE, ROUNDING, NO_TORCH = "outside its bound", "rounding", "no torch"
_PRODUCTS = ("matmul", "conv")
_MOST = 0.5  # share of products (or of all outputs) above which their type is the program's type
_TIMES, _MORE = 4.0, 0.05  # an input whose error exceeds its producer's by this much is another tensor
_LITTLE = 0.02  # error of a module without a memory write after rounding to 16 bits
_MOST_TRIED = 64
_HALF_A_STEP = 0.51 / 127  # relative to the largest value
_Key = tuple[str, int, int, str]


@dataclass(frozen=True, eq=False)
class TwoRuns:
    """Both dumps with their networks, the compared pairs, and the records without a partner."""

    dumps: tuple[Dump, Dump]
    networks: tuple[Network, Network]
    pairs: Sequence[Pair]
    unmatched: tuple[Sequence[Unpaired], Sequence[Unpaired]]
    maker_of: Callable[[Pair], OneSided | None]


class Rounding:
    """Differences that conversion to a narrow type explains.

    is_low        a side computes in a type narrower than float32, or with quantised weights.
    is_converted  the sides compute in different types throughout, so that a different type is no finding.
    is_quantised  only one side has 8-bit weights.
    types         narrow types in which either side computes; ``products`` are the types of most products on each side.
    """

    def __init__(
        self, rows: Iterable[Row], pairs: Iterable[Pair], is_quantised: bool = False, products: Sequence[str] = ()
    ):
        self.products = tuple(products)
        outputs = [row for row in rows if row.io == "out" and _are_floats(row)]
        self.types = list(dict.fromkeys([*_types(outputs), *filter(is_narrow, products)]))
        self.is_low = bool(self.types)
        of_products = [row for row in outputs if kind_of(row.op_type) in _PRODUCTS]
        self.is_converted = len({*products}) > 1 or any(
            len(some) > 1 and sum(map(_have_other_types, some)) > _MOST * len(some) for some in (of_products, outputs)
        )
        self.is_quantised = is_quantised
        if is_quantised:
            self.is_low = self.is_converted = True
        self._narrow = [KNOWN[word] for word in self.types]
        self._pairs: dict[_Key, Pair] = {_key(pair): pair for pair in pairs} if self.is_low else {}
        self._known: dict[_Key, bool] = {}

    def pair_of(self, row: Row) -> Pair | None:
        return self._pairs.get((row.io, row.op_index, row.slot, row.name))

    def is_converted_value(self, row: Row) -> bool:
        """Return whether one side holds the other side's values, rounded to a narrower type.

        This is the side's own type, or a type in which it computes and converts back, as in ``weight.float()``.
        """
        if not self.is_low or not _are_floats(row):
            return False
        key = row.io, row.op_index, row.slot, row.name
        if key not in self._known:
            pair = self._pairs.get(key)
            self._known[key] = pair is not None and _is_converted(pair, self._narrow, self.is_quantised)
        return self._known[key]


def of_low_precision(
    rows: Sequence[Row],
    arguments: Sequence[Finding],
    by_value: tuple[Finding, ...],
    runs: TwoRuns,
    rounding: Rounding,
) -> tuple[Finding, ...]:
    """Return the causes of differences between two runs of which one computes in a narrow type.

    ``arguments`` are differing arguments and weights. ``by_value`` begins with the first operator that differs by more
    than rounding, followed by the same findings (``causes.py``).
    """
    if rounding.is_converted:
        return low_precision_causes(rows, arguments, runs, rounding)
    if not by_value:  # rounding explains the size of the difference, but perhaps not its place
        outside = first_outside([row for row in rows if differs(row)], runs)
        return () if outside is None else (outside,)
    if by_value[0].kind != "cause" or by_value[0].evidence != "by value":
        return by_value
    first = rejected_by_replay(by_value[0], rows, runs)
    return low_precision_causes(rows, by_value[1:], runs, rounding) if first is None else (first, *by_value[1:])


def low_precision_causes(
    rows: Sequence[Row], arguments: Sequence[Finding], runs: TwoRuns, rounding: Rounding
) -> tuple[Finding, ...]:
    """Return the differing ``arguments`` and weights, preceded by an earlier fault if there is one.

    Without any cause, a finding of kind ``rounding`` is returned.
    """
    if not any(map(differs, rows)):
        return tuple(arguments)
    places = {row.name: place for place, row in reversed([*enumerate(rows)])}
    end = places.get(arguments[0].layer, len(rows)) if arguments else len(rows)
    found = [(place, f) for place, f in _suspects(rows, runs, rounding) if place < end]
    place, first = min(found, key=lambda item: item[0], default=(end, None))
    outside = first_outside(rows[:place], runs)
    first = outside or first
    if first is not None:
        return (first, *arguments)
    if arguments:
        return tuple(arguments)
    why = {} if find_spec("torch") else {"why": NO_TORCH}
    why |= {"unseen": ", ".join(modules)} if (modules := unseen(runs.networks[0])) else {}
    types = [*rounding.types, *(("8 bits",) if rounding.is_quantised else ())]
    told = Finding("rounding", facts={"types": ", ".join(types), **why})
    return tuple(filter(None, (magnified(rows, runs.networks[1]), told)))


def _suspects(rows: Sequence[Row], runs: TwoRuns, rounding: Rounding) -> Iterator[tuple[int, Finding]]:
    yield from packed_weights(rows, runs.pairs, runs.dumps, runs.networks)
    yield from _writers(rows, runs)
    yield from _other_operators(rows, runs)
    yield from _jumps(rows, runs, rounding)


def _other_operators(rows: Sequence[Row], runs: TwoRuns) -> Iterator[tuple[int, Finding]]:
    """Yield pairs of related operators that compute different functions, such as two ways of resizing.

    Each operator is within its bound, but their outputs differ far more than their inputs.
    """
    partners = {pair.benchmark.op_index: pair.sample.op_index for pair in runs.pairs}
    of_operator: defaultdict[int, list[tuple[int, Row]]] = defaultdict(list)
    for place, row in enumerate(rows):
        of_operator[row.op_index].append((place, row))
    for index, own in of_operator.items():
        both = runs.networks[0].get(partners.get(index, -1)), runs.networks[1].get(index)
        if None in both or any(op.is_module for op in both) or len({plain(op.kind) for op in both}) == 1:  # type: ignore[union-attr]
            continue
        read = max((row.error for _, row in own if row.io == "in" and _are_floats(row)), default=0.0)
        for place, row in own:
            if row.io == "out" and row.finite and _are_floats(row) and row.error > _TIMES * read + _MORE:
                figures = {"error": row.error, "own": row.error - read, "rmse": row.rmse, "cos": row.cos}
                facts = {"module": row.module, "inputs": "differ" if read else "equal"}
                yield place, Finding("cause", row.name, row.op_type, figures, "by value", facts=facts)
                break


def rejected_by_replay(finding: Finding, rows: Sequence[Row], runs: TwoRuns) -> Finding | None:
    """Return None if a difference by value is rounding, because both operators are within their bounds.

    If the sample's operator exceeds its bound, return that measurement; otherwise return the finding unchanged.
    """
    row = next((row for row in rows if row.name == finding.layer), None)
    partners = {pair.benchmark.op_index: pair.sample.op_index for pair in runs.pairs}
    if row is None or not _can_replay(runs) or row.op_index not in partners:
        return finding
    of_sample = _judged(runs, 0, [partners[row.op_index]])
    outside = next((judged for judged in of_sample if judged.judgement.outside), None)
    if outside is not None:
        return _as_cause(outside, row)
    of_benchmark = _judged(runs, 1, [row.op_index])
    both = bool(of_sample) and bool(of_benchmark) and not any(judged.judgement.outside for judged in of_benchmark)
    reads = [other for other in rows if other.op_index == row.op_index and other.io == "in"]
    known = {slot for io, slot in runs.networks[1][row.op_index].values if io == "in"} <= {one.slot for one in reads}
    return None if both and known and all(is_rounding(one) for one in reads if differs(one)) else finding


def first_outside(rows: Sequence[Row], runs: TwoRuns) -> Finding | None:
    """Return the sample's first operator whose own result exceeds its bound."""
    if not _can_replay(runs):
        return None
    partners = {pair.benchmark.op_index: pair.sample.op_index for pair in runs.pairs}
    of_operator = {
        partners[row.op_index]: row for row in reversed(rows) if row.io == "out" and row.op_index in partners
    }
    for judged in each(runs.dumps[0], runs.networks[0], sorted(of_operator)):
        if isinstance(judged, Judged) and judged.judgement.outside:
            return _as_cause(judged, of_operator[judged.place.op_index])
    return None


def _as_cause(judged: Judged, row: Row) -> Finding:
    found = outside_finding(judged)
    return Finding("cause", row.name, row.op_type, found.figures, "measured", facts={**found.facts, "how": OUTSIDE})


def _can_replay(runs: TwoRuns) -> bool:
    return is_recorded(runs.networks[0]) and has_torch()


def has_torch() -> bool:
    """Return whether torch is installed."""
    return find_spec("torch") is not None


def _judged(runs: TwoRuns, side: int, only: Sequence[int]) -> list[Judged]:
    found = each(runs.dumps[side], runs.networks[side], only)
    return [judged for judged in found if isinstance(judged, Judged)]


def _writers(rows: Sequence[Row], runs: TwoRuns) -> Iterator[tuple[int, Finding]]:
    """Yield operators that write into memory and exist on only one side, in a module of both sides."""
    counts = [Counter((op.module, plain(op.kind)) for op in network.values()) for network in runs.networks]
    modules = [{op.module for op in network.values()} for network in runs.networks]
    for side, name in enumerate(("sample", "benchmark")):
        own, other = runs.networks[side], 1 - side
        for unpaired in runs.unmatched[side]:
            record = unpaired.record
            operator = own.get(record.op_index)
            if operator is None or record.io != "out" or not operator.kind.endswith("_"):
                continue
            key = operator.module, plain(operator.kind)
            if (
                counts[side][key] > counts[other][key]
                and operator.module in modules[other]
                and _adds_error(rows, runs, operator.module)
            ):
                facts = {"module": operator.module, "only_in": name, "inputs": "differ"}
                finding = Finding("cause", record.name, operator.kind, {}, "by value", facts=facts)
                yield _place_of(rows, operator.module), finding


def _adds_error(rows: Sequence[Row], runs: TwoRuns, module: str) -> bool:
    """Return whether a module's error exceeds what rounding makes of its inputs' error.

    Memory may be written in another way and still hold the same values.
    """
    inside = [row for row in rows if row.module == module and row.finite and _are_floats(row)]
    read = [row.error for row in inside if row.io == "in" and _is_module(runs.networks[1], row.op_index)]
    return max((row.error for row in inside), default=0.0) > _TIMES * max(read, default=0.0) + _LITTLE


def _place_of(rows: Sequence[Row], module: str) -> int:
    """Return the index of a module's first output row."""
    inside = (place for place, row in enumerate(rows) if row.module == module and row.io == "out")
    return next(inside, len(rows) - 1)


def _jumps(rows: Sequence[Row], runs: TwoRuns, rounding: Rounding) -> Iterator[tuple[int, Finding]]:
    """Yield the first input, or module output, that differs far more than the operator that produced it."""
    network = runs.networks[1]
    errors = {
        row.op_index: row.error for row in reversed(rows) if row.io == "out" and not _is_module(network, row.op_index)
    }
    edges = _edges(rows, network)
    makers = {
        number: index
        for index, operator in sorted(network.items())
        if not operator.is_module
        for (io, _), number in operator.values.items()
        if io == "out" and number is not None
    }
    for place, row in enumerate(rows):
        operator = network.get(row.op_index)
        if operator is None or not row.finite or not _are_floats(row) or not differs(row):
            continue
        if (row.io == "out" and not operator.is_module) or (row.io, row.slot) in operator.weights:
            continue
        before = _error_of(operator.values.get((row.io, row.slot)), network, makers, (errors, edges))
        if before is None or row.error <= _TIMES * before + _MORE or rounding.is_converted_value(row):
            continue
        yield place, _of_jump(row, runs, rounding, before)
        return


def _of_jump(row: Row, runs: TwoRuns, rounding: Rounding, before: float) -> Finding:
    pair = rounding.pair_of(row)
    maker = runs.maker_of(pair) if pair is not None and row.io == "in" else None
    figures = {"error": row.error, "own": row.error - before, "rmse": row.rmse, "cos": row.cos}
    if maker is None:
        facts = {"module": row.module, "inputs": "differ"}
        return Finding("cause", row.name, row.op_type, figures, "by value", facts=facts)
    facts = {"module": maker.module, "only_in": maker.side, "inputs": "differ"}
    facts |= {"chain": ", ".join(maker.chain)} if len(maker.chain) > 1 else {}
    return Finding("cause", maker.name, maker.kind, figures, "by value", names=(row.name,), facts=facts)


def _edges(rows: Sequence[Row], network: Network) -> dict[Hashable, float]:
    """Return the errors of module inputs and outputs, by value."""
    found: dict[Hashable, float] = {}
    for row in rows:
        operator = network.get(row.op_index)
        if operator is not None and operator.is_module and row.finite and _are_floats(row):
            value = operator.values.get((row.io, row.slot))
            found |= {} if value is None else {value: row.error}
    return found


def _error_of(
    number: Hashable,
    network: Network,
    makers: Mapping[Hashable, int],
    errors: tuple[Mapping[int, float], Mapping[Hashable, float]],
) -> float | None:
    """Return the largest error among the nearest compared producers of a value, or modules it passed.

    None if there are none.
    """
    of_operators, of_edges = errors
    waiting, passed, found = [number], set[int](), list[float]()
    parts = {op.values.get(key): own for op in network.values() for key, own in op.parts.items()}
    while waiting and len(passed) < _MOST_TRIED:
        value = waiting.pop()
        index = makers.get(value)
        if value != number and value in of_edges and index not in of_operators:
            found.append(of_edges[value])
            continue
        waiting += parts.get(value, ()) if index is None else ()
        if index is None or index in passed:
            continue
        passed.add(index)
        if index in of_operators:
            found.append(of_operators[index])
        else:
            operator = network[index]
            waiting += [value for key, value in operator.values.items() if key[0] == "in"]
    return max(found, default=None)


def _is_module(network: Network, index: int) -> bool:
    operator = network.get(index)
    return operator is not None and operator.is_module


def _types(rows: Iterable[Row]) -> list[str]:
    """Return the narrow types in which either side computes."""
    words = (word for row in rows for word in (row.sample_dtype, row.benchmark_dtype))
    return [word for word in dict.fromkeys(words) if is_narrow(word)]


def _key(pair: Pair) -> _Key:
    record = pair.benchmark
    return record.io, record.op_index, record.slot, record.name


def _are_floats(row: Row) -> bool:
    types = [KNOWN.get(name) for name in (row.sample_dtype, row.benchmark_dtype)]
    return all(dtype is not None and is_float(dtype) for dtype in types)


def _have_other_types(row: Row) -> bool:
    return bool(row.sample_dtype != row.benchmark_dtype)


def is_quantised(dumps: Sequence[Dump], networks: Sequence[Network]) -> bool:
    """Return whether only one of two torch programs computes modules in 8 bits.

    Such modules have 8-bit weights or use torch's quantised operators.
    """
    if not all(map(is_recorded, networks)):
        return False
    one, other = (set(_quantised_modules(dump, network)) for dump, network in zip(dumps, networks))
    return one != other


def types_of_products(dumps: Sequence[Dump], networks: Sequence[Network]) -> tuple[str, ...]:
    """Return the type of most products on each side, or () if a side has none.

    Autocast computes some products in a narrow type and the operators after them in float32.
    """
    types = tuple(map(_type_of_products, dumps, networks))
    return types if all(types) else ()


def _type_of_products(dump: Dump, network: Network) -> str:
    """Return the element type of most product outputs if it is a float type; else ""."""
    words = (
        record.tensor.dtype.name
        for record in dump.records
        if record.io == "out"
        and (operator := network.get(record.op_index)) is not None
        and not operator.is_module
        and kind_of(operator.kind) in _PRODUCTS
        and is_float(record.tensor.dtype)
    )
    return next((word for word, _ in Counter(words).most_common(1)), "")


def _quantised_modules(dump: Dump, network: Network) -> Iterator[str]:
    yield from (op.module for op in network.values() if op.kind.partition(".")[0] in QUANTISED)
    for record in dump.records:
        operator = network.get(record.op_index)
        is_weight = operator is not None and (record.io, record.slot) in operator.weights
        if is_weight and record.io == "in" and record.tensor.dtype.name in ("int8", "uint8"):
            yield operator.module  # type: ignore[union-attr]


def _is_converted(pair: Pair, types: Sequence[np.dtype[Any]], is_quantised: bool) -> bool:
    try:
        sides = [record.tensor.stored_view() for record in (pair.sample, pair.benchmark)]
    except FileChanged:
        raise
    except SgsdumpError:
        return False
    narrow, wide = sorted(sides, key=lambda values: values.dtype.itemsize)
    if narrow.shape != wide.shape:
        return False
    if narrow.dtype != wide.dtype:
        return _is_rounded(narrow, wide, narrow.dtype)
    if is_quantised and _is_in_8_bits(narrow, wide):
        return True
    return any(_is_rounded(*couple, dtype) for dtype in types for couple in ((narrow, wide), (wide, narrow)))


def _is_rounded(narrow: np.ndarray, wide: np.ndarray, dtype: np.dtype[Any]) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.array_equal(wide.astype(dtype).astype(np.float64), narrow.astype(np.float64), True))


def _is_in_8_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays differ by at most half an 8-bit step, overall or per row or column."""
    sides = [values.astype(np.float64) for values in (one, other)]
    apart = np.abs(sides[0] - sides[1])
    for axis in (0, apart.ndim - 1, None) if apart.ndim > 1 else (None,):
        others = tuple(other for other in range(apart.ndim) if other != axis)
        largest = np.minimum(*(np.abs(side).max(others, keepdims=True, initial=0.0) for side in sides))
        if np.all(apart <= _HALF_A_STEP * largest):
            return True
    return False
