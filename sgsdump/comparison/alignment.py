"""What pairing two dumps gives: pairs of records, and the records left over, each with its reason."""

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
# Maps a function over items, in threads say.
Mapper = Callable[[Callable, Iterable], Iterable]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records of one tensor; ``how`` is one of NAME_WAYS, ``map``, ``value``, or the rule that made the pair.

    stage  what the SDK calls a Caffe blob's value, where one side is such a stage and the other the blob.
    parts  of a Concat whose parts the SDK aligned, the channels that each takes there, and its own.
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
    """A record without partner in the other dump, and the reason; ``expected``: the other one cannot have it, so
    nothing is missing; ``unnamed``: nothing in the other one has its name; ``compiled``: it is inside a compiled graph
    of one side."""

    record: Record
    reason: str
    expected: bool = False
    unnamed: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class Alignment:
    """Pairs in the benchmark's file order, and what is left on either side in its own."""

    pairs: tuple[Pair, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]


def ids_of(pairs: Iterable[Pair]) -> set[int]:
    """The ``id`` of every paired record."""
    return {id(record) for pair in pairs for record in (pair.sample, pair.benchmark)}


def compared(dump: Dump, inputs: bool = False) -> list[Record]:
    """The records a comparison looks at: outputs that are not constants, with ``inputs`` each network input once."""
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
    """How many real values a record holds; 0 where they cannot be had."""
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
    """Whether the dump has each operator's inputs as tensors with names of their own, which are then compared too: the
    format does so (``Format.own_inputs``), or the records came from such a format into another one.

    The latter is recognised by inputs of several operators none of which has the name of an output. Dumps that record
    the data flow repeat the outputs' names as inputs; others have the network's inputs only.
    """
    if dump.format in FORMATS and FORMATS[dump.format].own_inputs:
        return True
    fed = [record for record in dump.records if record.io == "in" and not record.constant]
    several = len({record.op_index for record in fed}) > 1
    return several and not any(record.name in dump.outputs for record in fed)
