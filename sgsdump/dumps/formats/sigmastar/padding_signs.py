"""Signs that an integer dump of the older SDK is padded: its headers have no shape, so that only sizes can tell.

With eliminateGarbage off every buffer is a multiple of 64 bytes (docs/formats/sigmastar.md#padded-buffers); without
padding a network has hardly ever only such sizes, its outputs' least of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.errors import SgsdumpError
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.sdk_buffers import BUFFER_BYTES

_ASKED = 20
_BEGINNING = "may be padded"


def padding_notes(records: Sequence[Record], sizes: Sequence[int]) -> list[str]:
    """A note where every integer tensor without a shape is a multiple of 64 bytes, and one of the smallest ends in zero
    bytes; ``sizes`` are those of the records' payloads, in bytes."""
    integers = [
        (size, record)
        for record, size in zip(records, sizes)
        if size and not record.constant and record.tensor.info.shape is None and is_integer(record.tensor.info.dtype)
    ]
    if not integers or any(size % BUFFER_BYTES for size, _ in integers):
        return []
    smallest = sorted(integers, key=lambda pair: pair[0])[:_ASKED]
    if not any(_ends_in_zero(record) for _, record in smallest):
        return []
    return [
        f"{_BEGINNING}: all of {len(integers)} integer tensors without a shape are multiples of {BUFFER_BYTES} bytes, "
        f"as with eliminateGarbage off; --parse-net tells their shapes and takes the padding away"
    ]


def without_padding_notes(notes: Sequence[str]) -> list[str]:
    """The notes of a dump whose shapes have become known otherwise."""
    return [note for note in notes if not note.startswith(_BEGINNING)]


def _ends_in_zero(record: Record) -> bool:
    try:
        return not np.ravel(record.tensor.raw())[-1:].any()
    except SgsdumpError:
        return False
