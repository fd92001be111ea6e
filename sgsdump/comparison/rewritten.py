"""Modules that both sides compute with different operators (``without_rewritten``).

They are handled before the search for causes. Operators of such a module are paired by kind and order, which can pair
operators that compute different values: the queries with a part of a fused computation of queries, keys and values. If
the inputs and outputs of the module agree up to rounding, an inner tensor that differs much more is no evidence. It has
no partner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import ml_dtypes

from sgsdump.comparison.alignment import Alignment, Pair, Unpaired
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.naming.pairs_by_network import MODULE, PLACE
from sgsdump.comparison.row import SURE, UNITS_OF_16_BITS, Failed, Row, is_narrow, is_rounding
from sgsdump.dumps.dump import Network, Operator
from sgsdump.tensors.dtypes import KNOWN

_TIMES = 4.0  # factor on the error of a module's inputs and outputs above which an inner tensor is another tensor
_MORE = 0.05  # error that rounding to 16 bits may add
_GROWS = 2.0  # factor on the inputs' error that the outputs of a correct module may have
REASON = "inside a module that the two sides compute with different operators"
_Key = tuple[str, int, int, str]


@dataclass(frozen=True)
class _Call:
    """Call of a module: its number, the number after its last inner operator, and its path."""

    index: int
    end: int
    path: str


def without_rewritten(
    rows: list[Row],
    failed: list[Failed],
    alignment: Alignment,
    networks: tuple[Network, Network],
    in_8_bits: bool = False,
) -> tuple[list[Row], list[Failed], Alignment]:
    """Return the arguments without pairs of operators that compute different values.

    ``in_8_bits`` means that one side computes in 8 bits.
    """
    rewritten = {
        operator.module
        for side, network in zip((alignment.only_in_sample, alignment.only_in_benchmark), networks)
        for unpaired in side
        if (operator := network.get(unpaired.record.op_index)) is not None
        if not operator.is_module and not only_moves(operator.kind)  # a cast does not change the computation
    }
    if not rewritten:
        return rows, failed, alignment
    of_operator: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        of_operator[row.op_index].append(row)
    inside: dict[int, _Call] = {}
    calls = [call for call in _calls(networks[1]) if call.index in of_operator]
    for call in calls:  # the innermost call of both sides counts
        inside |= dict.fromkeys(range(call.index + 1, call.end), call)
    for call in calls:  # a module is paired by its path
        inside.pop(call.index, None)
    paths = {call.path for call in calls}
    rewritten = {_innermost(path, paths) for path in rewritten}
    rounding = _MORE if in_8_bits else _rounding(rows)
    levels = {
        call: _level(of_operator[call.index], rounding) for call in set(inside.values()) if call.path in rewritten
    }
    keys = _apart(rows, failed, {index: levels.get(call) for index, call in inside.items()})
    of_outputs = {op_index for io, op_index, _, _ in keys if io == "out"}
    keys |= {key for key in map(_key, alignment.pairs) if key[1] in of_outputs}
    if not keys:
        return rows, failed, alignment
    pairs = [pair for pair in alignment.pairs if _key(pair) in keys]
    both = [tuple(Unpaired(record, REASON, expected=True) for record in pair.records) for pair in pairs]
    alignment = replace(
        alignment,
        pairs=tuple(pair for pair in alignment.pairs if _key(pair) not in keys),
        only_in_sample=(*alignment.only_in_sample, *(sample for sample, _ in both)),
        only_in_benchmark=(*alignment.only_in_benchmark, *(benchmark for _, benchmark in both)),
    )
    rows = [row for row in rows if (row.io, row.op_index, row.slot, row.name) not in keys]
    return rows, [one for one in failed if _key(one.pair) not in keys], alignment


def _calls(network: Network) -> Iterator[_Call]:
    """Return the calls of modules, outer calls before inner ones."""
    end = max(network, default=0) + 1
    begun: list[_Call] = []
    calls: list[_Call] = []
    for index, operator in sorted(network.items()):
        while begun and not _goes_on(begun[-1], operator):
            calls.append(replace(begun.pop(), end=index))
        if operator.is_module:
            begun.append(_Call(index, end, operator.module))
    return iter(sorted((*calls, *begun), key=lambda call: call.index))


def _goes_on(call: _Call, operator: Operator) -> bool:
    """Return whether a following operator still runs inside the call; a module does not run inside itself."""
    return _is_inside(operator.module, call.path) and not (operator.is_module and operator.module == call.path)


def _innermost(path: str, paths: Container[str]) -> str:
    """Return the innermost of these modules that is, or contains, the given one; "" if there is none."""
    while path and path not in paths:
        path = path.rpartition(".")[0]
    return path


def _is_inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


def _rounding(rows: Iterable[Row]) -> float:
    """Return the error that rounding to the narrowest type leaves in an output of a wider type."""
    words = {word for row in rows for word in (row.sample_dtype, row.benchmark_dtype) if is_narrow(word)}
    return max((UNITS_OF_16_BITS * float(ml_dtypes.finfo(KNOWN[word]).eps) for word in words), default=0.0)


def _level(rows: Iterable[Row], rounding: float) -> float | None:
    """Return the error of a module's inputs and outputs.

    None if the module may contain a fault or is not fully known.
    """
    taken = [row for row in rows if row.io == "in"]
    given = [row for row in rows if row.io == "out"]
    if not given or not all(row.finite or row.equal for row in (*taken, *given)):
        return None
    before = max((row.error for row in taken), default=0.0)
    if not all(is_rounding(row) or row.error <= max(_GROWS * before, rounding) for row in given):
        return None
    return max(before, *(row.error for row in given))


def _apart(rows: Iterable[Row], failed: Iterable[Failed], levels: Mapping[int, float | None]) -> set[_Key]:
    """Return the pairs of operators inside such modules that hold different tensors."""
    apart = {
        (row.io, row.op_index, row.slot, row.name)
        for row in rows
        if row.paired in (MODULE, PLACE) and _is_apart(row, levels.get(row.op_index))
    }
    pairs = (one.pair for one in failed if one.pair.how in (MODULE, PLACE))
    return apart | {_key(pair) for pair in pairs if levels.get(pair.benchmark.op_index) is not None}


def _is_apart(row: Row, level: float | None) -> bool:
    if level is None or row.indices is not None:  # whole numbers do not round
        return False
    more = _MORE if is_narrow(row.sample_dtype) or is_narrow(row.benchmark_dtype) else SURE
    return not is_rounding(row) and row.error > _TIMES * level + more


def _key(pair: Pair) -> _Key:
    record = pair.benchmark
    return record.io, record.op_index, record.slot, record.name
