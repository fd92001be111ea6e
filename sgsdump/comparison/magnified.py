"""Operators that magnify rounding errors (``magnified``): no fault, so they are reported after all possible faults.

If one of two runs computes in a narrow type, all tensors differ, by 0.2 to 1 % for bfloat16. An operator within its own
bound may magnify this error: the cosine of an angle of 300, rounded by bfloat16 to a step of 2, or the difference of
two nearly equal numbers. Its inputs should be computed in float32. The ratio of the relative errors of the output and
of the worst input is an estimate of the condition number (Higham 2002, 1.6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.row import Row, differs
from sgsdump.dumps.dump import Network
from sgsdump.tensors.dtypes import KNOWN, is_float

_TIMES, _LEAST = 10.0, 0.05  # least magnification, and least relative error of the output
_MOST = 64  # operators to search for the first rounding


def magnified(rows: Sequence[Row], network: Network) -> Finding | None:
    """Return the first operator with 10 times the relative error of its inputs and at least 5 %, or None.

    ``network`` is the benchmark's.
    """
    operators: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row.op_index in network and not network[row.op_index].is_module:
            operators[row.op_index].append(row)
    for index, own in sorted(operators.items()):
        outputs = [row for row in own if row.io == "out" and _is_known(row)]
        inputs = [row for row in own if row.io == "in" and _is_known(row)]
        if not outputs or not inputs or only_moves(network[index].kind):
            continue
        output, read = max(outputs, key=_error), max(inputs, key=_error)
        if not read.error or output.error < max(_TIMES * read.error, _LEAST):
            continue
        rounded = _rounded_first(index, network, operators)
        figures = {"error": output.error, "before": read.error, "times": output.error / read.error}
        facts = {"module": output.module, "rounded": rounded.name, "rounded_type": rounded.op_type}
        return Finding("magnified", output.name, output.op_type, figures, "by value", facts=facts)
    return None


def _is_known(row: Row) -> bool:
    dtypes = [KNOWN.get(name) for name in (row.sample_dtype, row.benchmark_dtype)]
    return row.finite and all(dtype is not None and is_float(dtype) for dtype in dtypes)


def _error(row: Row) -> float:
    return row.error


def _rounded_first(index: int, network: Network, operators: Mapping[int, Sequence[Row]]) -> Row:
    """Follow the largest error upstream to the row where the rounding began.

    This is an output whose operator's inputs agree, an input whose producer's output agrees, or the last compared row
    if the value comes from outside.
    """
    makers: dict[Hashable, int] = {}
    for number, operator in network.items():
        if not operator.is_module:
            makers |= {value: number for (io, _), value in operator.values.items() if io == "out" and value is not None}
    found = operators[index][0]
    for _ in range(_MOST):
        reads = [row for row in operators.get(index, ()) if row.io == "in" and differs(row)]
        if not reads:
            break
        found = max(reads, key=_error)
        maker = makers.get(network[index].values.get(("in", found.slot)))
        if maker is None or maker == index:
            break
        made = [row for row in operators.get(maker, ()) if row.io == "out" and differs(row)]
        if not made:
            break  # a cast on one side only lies between
        index, found = maker, max(made, key=_error)
    return found
