"""A dump read as real numbers, whatever it stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sgsdump.comparison.alignment import compared
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.sigmastar.net_facts import scales_of
from sgsdump.dumps.formats.sigmastar.true_scales import Ranges, true_scales
from sgsdump.errors import SgsdumpError, ValuesError
from sgsdump.sidecars.parse_net import ParseNet
from sgsdump.tensors.real_view import Values, values_of
from sgsdump.tensors.tensor import Quant


class RealValues:
    """A dump's values as real numbers, with the scales that a parse_net text or the ranges give, the former first."""

    def __init__(self, dump: Dump, ranges: Ranges | None, net: ParseNet | None = None):
        self.dump = dump
        self._scales: dict[str, Quant] = {}
        self._refused: dict[str, str] = {}
        if ranges is not None:
            self._scales, self._refused = true_scales(dump, ranges)
        if net is not None:
            found, refused = scales_of(dump, net)
            self._refused = {n: r for n, r in {**self._refused, **refused}.items() if n not in found | self._scales}
            self._scales |= found

    def of(self, record: Record, as_stored: bool = False) -> Values:
        """The values of a record, a device's layout undone, or with ``as_stored`` left.

        Raises ValuesError when they are integers of unknown scale, or in a device's layout of unknown original shape.
        """
        if record.name in self._refused:
            raise ValuesError(f"no true scale for tensor {record.name!r}: {self._refused[record.name]}")
        return values_of(record.tensor if as_stored else record.tensor.logical(), self._scales.get(record.name))

    def readable(self, inputs: bool = False) -> Iterator[tuple[Record, Values]]:
        """All records a comparison looks at whose values can be had."""
        for record in compared(self.dump, inputs):
            with suppress(SgsdumpError):
                yield record, self.of(record)
