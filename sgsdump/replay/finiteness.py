"""Find operators that made NaN or Inf from finite inputs, in a dump of any tool, from values or statistics.

Nothing is computed again. An operator is examined if all of its inputs are known: by values, or by statistics with
minimum and maximum. An infinite or NaN argument (a mask's fill value) is not a finite input. An operator without tensor
inputs is skipped. A backward operator (``exp_backward``) also reads the inputs and outputs of its forward operator. If
an operator inside a module is found, the module is not named too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.replay.check import Place, has_odd_argument
from sgsdump.tensors.dtypes import is_complex, is_float
from sgsdump.tensors.statistics import Statistics, summarise

_BACKWARD = "_backward"
NAN, INF = "NaN", "Inf"


@dataclass(frozen=True)
class Made:
    """A NaN or Inf (``what``) that an operator made from finite inputs; ``source``: the calling line, or ""."""

    place: Place
    output: str
    what: str
    source: str = ""


@dataclass(frozen=True)
class Finiteness:
    """The result of the search.

    made       in execution order.
    looked_at  number of operators examined.
    unknown    number of operators with too little data.
    came_in    the first non-finite input before which everything was finite: no dumped operator made it.
    """

    made: tuple[Made, ...] = ()
    looked_at: int = 0
    unknown: int = 0
    came_in: Made | None = None

    def first(self, what: str) -> Made | None:
        return next((made for made in self.made if made.what == what), None)


def finiteness(dump: Dump) -> Finiteness:
    """Examine every operator of a dump. Raises FileChanged if a file has changed."""
    network = dump.network()
    records: defaultdict[int, list[Record]] = defaultdict(list)
    for record in dump.records:
        records[record.op_index].append(record)
    made: list[Made] = []
    looked_at = unknown = 0
    came_in: Made | None = None
    odd_forward: set[tuple[str, str, str]] = set()
    for index in sorted(records):
        inputs = [record for record in records[index] if record.io == "in"]
        outputs = [record for record in records[index] if record.io == "out"]
        if not inputs or not outputs:
            continue
        words = [_odd_of(record) for record in (*inputs, *outputs)]
        if None in words:
            unknown += 1
            continue
        looked_at += 1
        operator = network.get(index)
        if operator is not None:
            call = (operator.kind.removesuffix(_BACKWARD), operator.module, operator.source)
            if operator.kind.endswith(_BACKWARD) and call in odd_forward:
                continue
            odd_forward |= {call} if any(words) else set()
        if any(words[: len(inputs)]):
            if not made and came_in is None:
                came_in = next(_odd(index, operator, inputs, words))
            continue
        if has_odd_argument(operator):
            continue
        found = list(_odd(index, operator, outputs, words[len(inputs) :]))
        made += [] if found and _is_around(found[0], network, made) else found
    return Finiteness(tuple(made), looked_at, unknown, came_in)


def _odd(
    index: int, operator: Operator | None, records: Sequence[Record], words: Sequence[str | None]
) -> Iterator[Made]:
    """Yield the records of an operator that are not finite."""
    kind, module, source = records[0].op_type, "", ""
    if operator is not None:
        kind, module, source = operator.kind or kind, operator.module, operator.source
    for record, word in zip(records, words):
        if word:
            yield Made(Place(index, records[0].name, kind, module), record.name, word, source)


def _is_around(found: Made, network: Mapping[int, Operator], made: Sequence[Made]) -> bool:
    """Return whether an operator is a module around an operator that was found already."""
    operator = network.get(found.place.op_index)
    if operator is None or not operator.is_module:
        return False
    inside = (network[inner.place.op_index].module for inner in made if inner.place.op_index in network)
    return any(module == operator.module or module.startswith(f"{operator.module}.") for module in inside)


def _odd_of(record: Record) -> str | None:
    """Return "NaN" or "Inf" if a tensor has one, "" if not, None if unknown."""
    tensor = record.tensor
    if not (is_float(tensor.info.dtype) or is_complex(tensor.info.dtype)) or 0 in (tensor.info.shape or ()):
        return ""
    try:
        if tensor.statistics is not None:
            return _of_statistics(tensor.statistics)
        values = tensor.stored_view()
        return _of_statistics(summarise(values)) if values.dtype.kind != "c" else _of_complex(values)
    except FileChanged:
        raise
    except SgsdumpError:
        return None


def _of_statistics(figures: Statistics) -> str | None:
    ends = [end for end in (figures.min, figures.max) if end is not None]
    counts = [count for count in (figures.nan, figures.negative_inf, figures.positive_inf) if count is not None]
    if not ends and not counts:
        return None
    if figures.nan or any(map(math.isnan, ends)):
        return NAN
    return INF if figures.inf or any(map(math.isinf, ends)) else ""


def _of_complex(values: np.ndarray) -> str:
    if np.isnan(values).any():
        return NAN
    return "" if np.isfinite(values).all() else INF
