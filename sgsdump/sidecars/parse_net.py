"""parse_net text: the output of the SDK's ``bin/parse_net fixed.sim``, one line per tensor of the fixed model.

::

    |   |   |--> Tensor[12] type(3):UINT8 buffer: 12  (const buffer: 0      size: 1920 : buf: 0x..) bVar: 32
        shape(len:4  1   10  12  10    ) Quant:{Max: 4.386048, Min: 0.000000, Scaler: 0.017200, zeroP: 0}
        ddr_type: IPU_U8_NHWX name(relu1) EvrId(3) ExtFlag(16)                              (all in one line)

Shapes are NHWC. ``na`` means a missing number. parse_net prints only the first four numbers of a per-channel list,
without separators, so these are lost. ``size`` is not read: at the network's inputs and outputs it is not the buffer's
size. Other text is skipped, and so is a truncated line: parse_net aborts on float models after the list. Source: output
of the SDK; its use: docs/formats/sigmastar.md#padded-buffers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes

_LINE = re.compile(
    r"Tensor\[\s*\d+\s*\]\s+type\(\d+\):\s*(?P<type>\S+) .*?shape\(len:\s*(?P<rank>\d{1,3})(?P<shape>[\s\d]*)\)\s+"
    r"Quant:\{Max: (?P<max>[^,]*), Min: (?P<min>[^,]*), Scaler: (?P<scale>[^,]*), zeroP: (?P<zero>[^}]*)\} "
    r"ddr_type: (?P<ddr>\S+) name\((?P<name>.*)\) EvrId\("
)
_NUMBER = re.compile(r"-?\d+(?:\.\d{6})?")
_LONGEST_LINE = 1 << 16
_DTYPES = {
    "UINT8": np.uint8,
    "INT8": np.int8,
    "UINT16": np.uint16,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FLOAT32": np.float32,
}


@dataclass(frozen=True)
class NetTensor:
    """One tensor of the fixed model.

    type_name, dtype   name of the element type, and the type itself (None if unknown)
    shape              NHWC if it has four dimensions
    ddr_type           element type and order in memory: ``IPU_U8_NHWC``, ``IPU_S16_NHWX``, ``RGB``, ``RGBA`` …
    low, high, scale   of the whole tensor, to six decimals; None for ``na`` and for per-channel values
    exact              True if the numbers have every digit: they come from a fixed.sim, not from the text
    """

    name: str
    type_name: str
    dtype: np.dtype | None
    shape: tuple[int, ...]
    ddr_type: str
    low: float | None
    high: float | None
    scale: float | None
    zero_point: int | None
    exact: bool = False

    @property
    def order(self) -> str:
        """Order in memory, the last word of ``ddr_type``, such as ``NHWC``, ``NHWX``, ``KB`` (filters) or ``RGB``."""
        return self.ddr_type.rpartition("_")[2]


@dataclass(frozen=True)
class ParseNet:
    """Tensors by name; ``ambiguous`` are names shared by different tensors, which ``tensors`` omits."""

    path: Path
    tensors: Mapping[str, NetTensor]
    ambiguous: frozenset[str] = frozenset()


def read(path: Path | str) -> ParseNet:
    """Return all tensors of a parse_net text.

    Raises FormatError if the text lists no tensor, and ConfigError if the file cannot be read.
    """
    path = Path(path)
    tensors: dict[str, NetTensor] = {}
    ambiguous: set[str] = set()
    for tensor in _tensors(decode(read_bytes(path), path)):
        if tensors.setdefault(tensor.name, tensor) != tensor:
            ambiguous.add(tensor.name)
    if not tensors:
        raise FormatError(
            f"{path} is not parse_net text: no line lists a tensor; "
            f"save the output of the SDK's 'bin/parse_net fixed.sim'"
        )
    return ParseNet(path, {n: t for n, t in tensors.items() if n not in ambiguous}, frozenset(ambiguous))


def text_of(tensors: Iterable[NetTensor]) -> str:
    """Return the lines of tensors with the fields that ``read`` reads; sizes and addresses are 0."""
    return "".join(_line(index, tensor) for index, tensor in enumerate(tensors))


def _line(index: int, tensor: NetTensor) -> str:
    low, high, scale = ("na" if number is None else f"{number:f}" for number in (tensor.low, tensor.high, tensor.scale))
    shape = "".join(f"{size:<3} " for size in tensor.shape)
    return (
        f"|   |   |--> Tensor[{index}] type(0):{tensor.type_name} buffer: {index}  "
        f"(const buffer: 0      size: 0 : buf: 0x0) bVar: 0 shape(len:{len(tensor.shape)}  {shape}) "
        f"Quant:{{Max: {high}, Min: {low}, Scaler: {scale}, "
        f"zeroP: {'na' if tensor.zero_point is None else tensor.zero_point}}} ddr_type: {tensor.ddr_type} "
        f"name({tensor.name}) EvrId(0) ExtFlag(0)\n"
    )


def _tensors(text: str) -> Iterator[NetTensor]:
    for line in text.split("\n"):
        start = line.find("Tensor[")
        match = _LINE.match(line, start) if start >= 0 and len(line) <= _LONGEST_LINE else None
        if match is None:
            continue
        shape = tuple(int(number[:18]) for number in match["shape"].split())
        if str(len(shape)) != match["rank"]:
            continue
        word = match["type"]
        zero = _number(match["zero"])
        yield NetTensor(
            name=match["name"],
            type_name=word,
            dtype=np.dtype(_DTYPES[word]) if word in _DTYPES else None,
            shape=shape,
            ddr_type=match["ddr"],
            low=_number(match["min"]),
            high=_number(match["max"]),
            scale=_number(match["scale"]),
            zero_point=None if zero is None else int(zero),
        )


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) and len(text) < 40 else None
