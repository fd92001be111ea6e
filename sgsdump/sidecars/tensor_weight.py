"""tensor_weight.txt and tensor_weight_calibration.txt: weights of every convolution, the latter with their ranges.

Name:[data,conv1_filter],
     Operator:CONV_2D,
     shape:[10,3,3,3],
     hasChanged:FALSE,
     BitWidth:[UINT8,INT8],
     min:[],
     max:[],
     AllowedBitWidth:[8],
     data:[0.676210, ..., 0.255645, ];

Shapes are [O, H, W, I], [1, H, W, O] for a depthwise convolution, and [O, 1, 1, I] for a fully connected operator. Data
are in that order. tensor_weight_calibration.txt has one min and max per output channel, and no AllowedBitWidth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.sidecars.quant_param_entries import numbers_range, numbers_text
from sgsdump.tensors.types import Range

CHUNK = 1 << 16
LINE = 1 << 20
_HEAD = re.compile(r"Name:\[(.*)\],\s*")
_FIELD = re.compile(r"\s+(BitWidth|min|max):\[(.*)\],\s*")


@dataclass(frozen=True, eq=False)
class ConvolutionWeights:
    """Weights of a convolution: ``data`` in the module's order; ``types`` of input and weights: ("UINT8", "INT8")."""

    input: str
    name: str
    operator: str
    data: np.ndarray
    range: Range
    types: tuple[str, str]
    allowed_bits: tuple[int, ...]
    changed: bool = False

    def without_values(self) -> ConvolutionWeights:
        """Return a copy whose ``data`` are zeros that take no memory."""
        return replace(self, data=np.broadcast_to(np.float32(0), self.data.shape))


@dataclass(frozen=True, eq=False)
class WeightRange:
    """An entry of tensor_weight_calibration.txt without its values.

    names  input and weights as in the file; either may contain a comma
    range  one range per output channel
    types  of input and weights, such as ("UINT8", "INT8")
    """

    names: str
    range: Range
    types: tuple[str, ...]


def read(path: Path) -> list[WeightRange]:
    """Return the convolutions of a tensor_weight_calibration.txt in file order.

    A tensor_weight.txt gives none, because it has no ranges. Raises FormatError for numbers that are not a range, and
    ConfigError if the file cannot be read.
    """
    ranges: list[WeightRange] = []
    names, fields = "", dict[str, str]()
    with reading(path, ConfigError), open_file(path) as file:
        # The line of the weights can be as long as the file: it is read in parts and skipped.
        for number, line in enumerate(iter(lambda: file.readline(LINE), b""), 1):
            if line.lstrip().startswith(b"data:["):
                if names and fields.get("min"):
                    ends = numbers_range(fields["min"], fields.get("max", ""), f"{path}:{number}")
                    ranges.append(WeightRange(names, ends, tuple(fields.get("BitWidth", "").split(","))))
                names, fields = "", {}
                continue
            text = line.decode("utf-8", "surrogateescape")
            if head := _HEAD.fullmatch(text):
                names = head[1]
            elif field := _FIELD.fullmatch(text):
                fields[field[1]] = field[2]
    return ranges


def write(convolutions: Iterable[ConvolutionWeights], path: Path, with_ranges: bool, with_data: bool = True) -> None:
    """Write ``tensor_weight_calibration.txt`` if with ranges, otherwise ``tensor_weight.txt``. Raises OutputError."""
    with replacing(path) as file:
        for weights in convolutions:
            shape = ",".join(map(str, weights.data.shape))
            low, high = (numbers_text(end) if with_ranges else "" for end in (weights.range.min, weights.range.max))
            lines = [
                f"Name:[{weights.input},{weights.name}]",
                f"Operator:{weights.operator}",
                f"shape:[{shape}]",
                f"hasChanged:{'TRUE' if weights.changed else 'FALSE'}",
                f"BitWidth:[{','.join(weights.types)}]",
                f"min:[{low}]",
                f"max:[{high}]",
            ]
            lines += [] if with_ranges else [f"AllowedBitWidth:[{','.join(map(str, weights.allowed_bits))}]"]
            file.write(
                ("\n     ".join(f"{line}," for line in lines) + "\n     data:[").encode("utf-8", "surrogateescape")
            )
            if with_data:
                _write_values(file, weights.data.reshape(-1))
            file.write(b"];\n")


def _write_values(file: IO[bytes], values: np.ndarray) -> None:
    for start in range(0, values.size, CHUNK):
        chunk = values[start : start + CHUNK].tolist()
        file.write(("%f, " * len(chunk) % tuple(chunk)).encode())
