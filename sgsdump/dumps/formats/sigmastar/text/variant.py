"""How a string dump is written: the kinds of record, the head, the lines (the grammar: ``text.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sgsdump.tensors.types import NHWC


class OddHeader(NamedTuple):
    """The header lines of the tensor ``name`` as they stood in the file, where no rule would give them back."""

    name: str
    lines: bytes


@dataclass(frozen=True)
class TextVariant:
    """How a string dump is written.

    style     ``sim``, ``framework`` or ``tflite``: the three kinds of record above.
    is_float  the head's flag; 0 in style ``sim`` only.
    shaped    header lines with shape and dims (where the shape is known).
    head      False for a file of one layer, which has no head line.
    blank     a blank line before the rows (style ``sim``).
    layout    of 4-D tensors: ``NHWC``, or ``NCHW`` in the dumpers' NCHW folder.
    odd       by record number, header lines that follow none of these rules.
    """

    style: str = "sim"
    is_float: bool = True
    shaped: bool = False
    head: bool = True
    blank: bool = True
    layout: str = NHWC
    odd: Mapping[int, OddHeader] = field(default_factory=dict)

    def of_part(self) -> TextVariant:
        """The variant for a dump of other records."""
        return replace(self, odd={})


SIM = TextVariant()
FRAMEWORK = TextVariant("framework", shaped=True)
LAYER = TextVariant("framework", shaped=True, head=False)
TFLITE = TextVariant("tflite", shaped=True)
