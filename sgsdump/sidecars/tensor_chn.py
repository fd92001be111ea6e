"""tensor_chn.txt: calibration range of every output channel of the convolutions, two lines per tensor.

Name:conv1, 10
min_chn: -2.913756, ..., max_chn: 2.414397, ...;
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.sidecars.quant_param_entries import numbers_range, numbers_text
from sgsdump.tensors.types import Range

LIMIT = 64 << 20
_NAME = re.compile(r"Name:(.*), (\d{1,4000})")
_ENDS = re.compile(r"min_chn: ([^;]*?),? ?max_chn: ([^;]*);")


def read(path: Path) -> dict[str, Range]:
    """Return tensor name -> Range of C values.

    Raises FormatError, with the line, for another file type or for numbers that are not a range. Raises ConfigError if
    the file cannot be read.
    """
    lines = read_bytes(path, LIMIT).decode("utf-8", "surrogateescape").split("\n")
    lines = lines[: len(lines) - (not lines[-1])]
    channels = {}
    for index in range(0, len(lines), 2):
        name = _NAME.fullmatch(lines[index].rstrip())
        ends = _ENDS.fullmatch(lines[index + 1].strip()) if index + 1 < len(lines) else None
        if name is None or ends is None:
            raise FormatError(
                f"{path}:{index + 1}: {quoted(lines[index])} and the next line do not contain the ranges of a tensor"
            )
        channels[name[1]] = numbers_range(ends[1], ends[2], f"{path}:{index + 2}", int(name[2]))
    return channels


def write(channels: Mapping[str, Range], path: Path) -> None:
    """Write tensor name -> Range of C values. Raises OutputError."""
    with replacing(path) as file:
        for name, bounds in channels.items():
            low, high = numbers_text(bounds.min), numbers_text(bounds.max)
            lines = f"Name:{name}, {bounds.min.size}\nmin_chn: {low}, max_chn: {high};\n"
            file.write(lines.encode("utf-8", "surrogateescape"))
