"""The records of a dump as real numbers, whatever they store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sgsdump.comparison.pairing.alignment import compared
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import SgsdumpError
from sgsdump.tensors.tensor import Quant, Values, values_of


def real_values(record: Record, as_stored: bool = False, quant: Quant | None = None) -> Values:
    """The values of a record in its logical layout, or in the device's layout with ``as_stored``; ``quant`` replaces
    what the record says of its integers.

    Raises ValuesError for integers of unknown scale, and for a device layout whose original shape is unknown.
    """
    return values_of(record.tensor if as_stored else record.tensor.logical(), quant)


def readable(dump: Dump, inputs: bool = False) -> Iterator[tuple[Record, Values]]:
    """All compared records (see ``compared``) whose values can be loaded."""
    for record in compared(dump, inputs):
        with suppress(SgsdumpError):
            yield record, real_values(record)
