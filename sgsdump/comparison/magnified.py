"""Where rounding is magnified (``magnified``). Apart: no fault, so it is told after all that could be one.

Two runs of which one computes in a narrow type differ everywhere, by 0.2 to 1 % where that is bfloat16. An operator
whose own result is within its bound may make much more of that: the cosine of an angle of 300 that bfloat16 rounded to
a step of 2, the difference of two numbers that are nearly equal. What it reads is to be computed in float32 then. The
relative error of the output over the largest of the inputs' is the condition number, as far as these values show it
(Higham 2002, 1.6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.naming.network import only_moves
from sgsdump.comparison.row import Row, differs
from sgsdump.dumps.dump import Network
from sgsdump.tensors.dtypes import KNOWN, is_float

_TIMES, _LEAST = 10.0, 0.05  # by how much, and to what relative error
_MOST = 64  # operators that are looked through for the one that rounded first


def magnified(rows: Sequence[Row], network: Network) -> Finding | None:
    """The first operator that makes at least ten times the relative error of what it reads, and 5 %; None for none.
    ``network`` is the benchmark's."""
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
    """From an operator upstream, always where the error is largest, the output that differs while nothing that its
    operator reads does, or the input that does while what made it does not; the last one that was compared where it
    comes from outside."""
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
            break  # a cast that one side alone has is between
        index, found = maker, max(made, key=_error)
    return found
