"""The output of the SDK's ``parse_net`` for a fixed model, from fixed.sim itself: facts with full scales, and text.

The text has every line of a tensor. Addresses and bVar differ from run to run and are printed as (nil) and 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.fixedpoint.sim import image
from sgsdump.fixedpoint.sim.file import INTEGER_KINDS, SimFile, SimTensor, read
from sgsdump.sidecars.parse_net import NetTensor, ParseNet

_NUMBERS = {"uint8": 3, "int16": 7, "int8": 9, "int32": 2, "float32": 0, "int64": 4, "bool": 6}
_PRINTED_CHANNELS = 4


def net_of_sim(path: Path) -> ParseNet:
    """Return the tensors of a fixed.sim, with exact scales. Raises ModelError for a float model."""
    return _net(_fixed(read(path)))


def net_of_image(path: Path) -> ParseNet:
    """Return the tensors of an offline image, with exact scales. Raises ModelError."""
    return _net(replace(image.read(path).model, path=path))


def text_of_sim(path: Path) -> str:
    """Return what parse_net prints about the tensors of a fixed.sim. Raises ModelError for a float model."""
    return text_of(_fixed(read(path)))


def text_of(sim: SimFile) -> str:
    return "".join(f"{line}\n" for line in _lines(sim))


def _fixed(sim: SimFile) -> SimFile:
    if sim.kind not in INTEGER_KINDS:
        raise ModelError(f"{sim.path} is a float model, which has no scales. Pass fixed.sim")
    return sim


def _net(sim: SimFile) -> ParseNet:
    return ParseNet(sim.path, {tensor.name: _net_tensor(tensor) for tensor in sim.tensors})


def _net_tensor(tensor: SimTensor) -> NetTensor:
    quant = tensor.quant
    low, high, scale = (_only(values) for values in (quant.low, quant.high, quant.scale)) if quant else (None,) * 3
    zero_point = quant.zero_point if quant is not None and quant.scale.size else None
    word = str(tensor.dtype).upper()
    return NetTensor(tensor.name, word, tensor.dtype, tensor.shape, tensor.format, low, high, scale, zero_point, True)


def _only(values: np.ndarray) -> float | None:
    return float(values[0]) if values.size == 1 else None


def _lines(sim: SimFile) -> Iterator[str]:
    for index, tensor in enumerate(sim.tensors):
        word = str(tensor.dtype).upper()
        quant = tensor.quant
        if quant is None:
            high = low = scale = _printed(np.zeros(0))
            zero = ""
        else:
            high, low, scale = (_printed(values) for values in (quant.high, quant.low, quant.scale))
            zero = _first([str(quant.zero_point)] * quant.scale.size)
        shape = " ".join(f"{size:<3}" for size in tensor.shape)
        place = tensor.place - (1 << 32) if tensor.place >= 1 << 31 else tensor.place
        yield (
            f"|   |   |--> Tensor[{index:<2}] type({_NUMBERS.get(str(tensor.dtype), 0)}):{word} "
            f"buffer: {tensor.buffer:<3} (const buffer: {tensor.extent[1]:<6} size: {_size(tensor):<4} : buf: (nil)) "
            f"bVar: 0 shape(len:{len(tensor.shape)}  {shape:<18}) "
            f"Quant:{{Max: {high}, Min: {low}, Scaler: {scale}, zeroP: {zero}}} "
            f"ddr_type: {tensor.format} name({tensor.name}) EvrId({place}) ExtFlag({tensor.flags})"
        )


def _printed(values: np.ndarray) -> str:
    """Format in six decimals; of numbers per channel, only the first four without separators, like parse_net."""
    if not values.size:
        return "na        "
    return _first([f"{value:.6f}" for value in values])


def _first(texts: list[str]) -> str:
    return "".join(texts[:_PRINTED_CHANNELS]) + (" ..." if len(texts) > _PRINTED_CHANNELS else "")


def _size(tensor: SimTensor) -> int:
    if tensor.is_constant:
        return tensor.extent[1]
    begin, end = tensor.memory
    return end - begin if end else tensor.size * tensor.dtype.itemsize
