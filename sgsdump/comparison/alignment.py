"""Result of pairing two dumps: pairs of records, and the records without a partner, each with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.tensors.device import is_device
from sgsdump.tensors.dtypes import is_complex
from sgsdump.tensors.tensor import values_of

NAME_WAYS = ("name", "normalised name", "cut name")
QUANTISED_VALUES = "quantised values"
# Maps a function over items, possibly in threads.
Mapper = Callable[[Callable, Iterable], Iterable]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records of one tensor.

    how    how the pair was made: one of NAME_WAYS, ``map``, ``value``, or the rule.
    stage  the SDK's name for a value of a Caffe blob, if one side is such a stage and the other side the blob.
    parts  for a Concat whose parts the SDK aligned: aligned and original number of channels of each part.
    """

    sample: Record
    benchmark: Record
    how: str
    note: str = ""
    stage: str = ""
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def records(self) -> tuple[Record, Record]:
        return self.sample, self.benchmark


@dataclass(frozen=True)
class Unpaired:
    """Record without a partner in the other dump, with the reason.

    expected  the other dump cannot have it, so it is not missing.
    unnamed   no tensor of the other dump has its name.
    compiled  it is inside a compiled graph of one side.
    """

    record: Record
    reason: str
    expected: bool = False
    unnamed: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class Alignment:
    """Pairs in the benchmark's file order, and the unpaired records of each side in its own order."""

    pairs: tuple[Pair, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]


def ids_of(pairs: Iterable[Pair]) -> set[int]:
    """Return the ``id`` of every paired record."""
    return {id(record) for pair in pairs for record in (pair.sample, pair.benchmark)}


def compared(dump: Dump, inputs: bool = False) -> list[Record]:
    """Return the records to compare: outputs that are not constants and, with ``inputs``, each network input once."""
    network_inputs = dump.inputs if inputs else {}
    records: list[Record] = []
    input_names: set[str] = set()
    for record in dump.records:
        if record.constant:
            continue
        if record.io == "in":
            if record.name in input_names or record.name not in network_inputs:
                continue
            input_names.add(record.name)
        records.append(record)
    return records


def size_of(record: Record) -> int:
    """Return the number of real values in a record; 0 if they are not available."""
    info = record.tensor.info
    if info.shape is not None and not is_device(info.layout) and not is_complex(info.dtype):
        return math.prod(info.shape)
    try:
        return values_of(record.tensor.logical()).array.size
    except FileChanged:
        raise
    except SgsdumpError:
        return 0


def has_own_inputs(dump: Dump) -> bool:
    """Return whether the dump names the inputs of each operator separately; such inputs are compared too.

    This is a property of the format (``Format.own_inputs``), or the records were converted from such a format.
    Converted dumps are recognised by inputs of several operators that share no name with any output. Dumps that record
    the data flow repeat the outputs' names as inputs; other dumps contain only the network's inputs.
    """
    if dump.format in FORMATS and FORMATS[dump.format].own_inputs:
        return True
    fed = [record for record in dump.records if record.io == "in" and not record.constant]
    several = len({record.op_index for record in fed}) > 1
    return several and not any(record.name in dump.outputs for record in fed)
