"""An input, output or buffer as the header of an operator dump describes it, and the tensor it becomes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from sgsdump.dumps.formats.ascend.types.coding import RAW, Coding, loader
from sgsdump.errors import FormatError
from sgsdump.tensors.tensor import Tensor, TensorInfo
from sgsdump.tensors.types import Origin

MOST_RANK, MOST_ELEMENTS = 32, 2**48
UNDEFINED = "undefined"


@dataclass(frozen=True)
class Slot:
    """``kind`` ``number`` is input 0, space 1 …; ``size`` the bytes of its payload.

    coding     how its elements lie; None where that is not known (``type_name`` is the vendor's name of the type).
    shape      None when the header tells none: all of the payload is one dimension.
    of_graph   False for what is no tensor of the graph: work spaces, L1 buffers, argument buffers.
    offset     its payload's first byte, counted from the file's.
    """

    kind: str
    number: int
    size: int
    coding: Coding | None = RAW
    type_name: str = "uint8"
    shape: tuple[int, ...] | None = None
    layout: str | None = None
    origin: Origin | None = None
    of_graph: bool = True
    offset: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it stands for an input or output that was not dumped: no type, no shape, no bytes."""
        return not self.size and self.shape is None and self.type_name == UNDEFINED


def checked_shape(sizes: Iterable[int]) -> tuple[int, ...]:
    """A shape that numpy can hold. Raises FormatError."""
    shape = tuple(islice(sizes, MOST_RANK + 1))
    if len(shape) > MOST_RANK or math.prod(filter(None, shape)) > MOST_ELEMENTS:
        raise FormatError(f"a tensor of shape {str(list(shape))[:80]} cannot be")
    return shape


def placed(slots: Iterable[Slot], start: int, end: int, notes: list[str]) -> Iterator[Slot]:
    """The slots with their offsets, one payload behind the other from byte ``start`` on. Bytes left over before ``end``
    are reported in ``notes``. Raises FormatError when there are too few."""
    offset = start
    for slot in slots:
        if slot.size > end - offset:
            where = f"{slot.kind} {slot.number}"
            raise FormatError(
                f"its {where} has {slot.size} bytes, {end - offset} are left in the file; was it cut off?"
            )
        yield replace(slot, offset=offset)
        offset += slot.size
    if offset < end:
        notes.append(f"{end - offset} bytes behind the last tensor are ignored; was the file written twice?")


def tensor_of(slot: Slot, path: Path, name: str, op_type: str, notes: list[str]) -> Tensor:
    """The tensor of a placed slot. A payload longer than the shape keeps its first elements; of a shorter one ``raw``
    gives what is there and ``stored`` raises FormatError. What is not plain gets a line in ``notes``."""
    coding, shape = slot.coding, slot.shape
    if coding is None:
        of_shape = "" if shape is None else f" of shape {list(shape)}"
        notes.append(f"tensor {name!r} holds {slot.type_name}{of_shape}, kept as its {slot.size} bytes")
        coding, shape = RAW, None
    if shape is None:
        shape = (coding.fit(slot.size),)
    count = math.prod(shape)
    if coding.size(count) > slot.size:
        notes.append(f"tensor {name!r} holds {slot.size} bytes, its shape {list(shape)} needs {coding.size(count)}")
        count = coding.fit(slot.size)
    elif coding.bits == 4 and slot.size == count > 1:
        notes.append(
            f"tensor {name!r} holds as many bytes as elements of {slot.type_name}; they are read two to a byte"
        )
    of = TensorInfo(name, shape, np.dtype(coding.dtype), slot.layout, None, op_type, slot.origin)
    return Tensor(of, loader(path, coding, count, slot.offset))
