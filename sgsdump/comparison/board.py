"""Check whether a board's raw output buffer equals the simulator's output, and find the likely cause if not.

The board's file has no header. Shape, type and scale come from the network's outputs in the fixed model's dump of the
same image. The SDK's own dumps do not state shapes; then every number of channels is tried. The hardware aligns
channels to 16 bytes and the whole buffer to 64 bytes; a buffer in the aligned shape is accepted too. A cause is
reported only if undoing it makes every integer equal, except that another image is inferred from the share of equal
integers.

This module is separate because no reader of dumps accepts bytes without a header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from sgsdump.tensors.sdk_buffers import pad_channels

# If a smaller share of the integers agrees, the buffers probably belong to different images.
FEW = 0.5
ANOTHER = (
    "another image, a stale buffer of another image, or an input with swapped channels: compare the file that the "
    "board reads with the file of simulate --dump-rawdata"
)
_CHANNEL_BYTES = 16


@dataclass(frozen=True, eq=False)
class Output:
    """Output of the network in the simulator: stored integers, channels last; flat if its shape is unknown."""

    name: str
    stored: np.ndarray
    scale: float | None = None
    zero_point: int = 0


@dataclass(frozen=True)
class BoardResult:
    """Result of comparing a board's file with an output.

    identical  every integer is equal; ``as_written`` says how the file stores the output.
    cause      the cause, or the most likely cause if none explains every difference.
    explained  the cause explains every difference.
    first      index of the first differing integer, and both integers.
    differing  number of differing integers out of ``count``.
    """

    output: str
    identical: bool
    as_written: str = ""
    cause: str = ""
    explained: bool = False
    first: tuple[tuple[int, ...], float, float] | None = None
    differing: int = 0
    count: int = 0


def aligned(stored: np.ndarray) -> np.ndarray:
    """Return the flat buffer of an output in the aligned shape."""
    return pad_channels(stored)


def fits(data: bytes, output: Output) -> bool:
    """Return whether a file has a possible size of the output's buffer."""
    return any(
        len(data) in (aligned(stored).nbytes, _unrounded(stored), stored.nbytes, stored.size * 4)
        for stored in (shaped.stored for shaped in _shapes(output))
    )


def judged(data: bytes, output: Output, others: Mapping[str, Output]) -> BoardResult:
    """Return the result for a board's file and an output; ``others`` are all outputs of the network."""
    results = []
    for shaped in _shapes(output):
        if as_written := _identical(data, shaped):
            return BoardResult(output.name, True, as_written, count=shaped.stored.size)
        results.append(_differing(data, shaped, others))
    return max(results, key=lambda result: (result.explained, result.first is not None, -result.differing))


def _shapes(output: Output) -> list[Output]:
    """Return the output; if its shape is unknown, one output per possible number of channels, then the flat output."""
    stored = output.stored
    if stored.ndim != 1:
        return [output]
    small = [size for size in range(1, isqrt(stored.size) + 1) if stored.size % size == 0]
    channels = sorted({*small, *(stored.size // size for size in small)} - {stored.size})
    return [*(replace(output, stored=stored.reshape(-1, count)) for count in channels), output]


def _identical(data: bytes, output: Output) -> str:
    """Return how a file stores the output, or "" if it does not."""
    stored = output.stored
    for as_written, values in _readings(data, stored):
        if np.array_equal(values, stored):
            return as_written
    if output.scale is not None and len(data) == stored.size * 4:
        real = np.frombuffer(data, "<f4").reshape(stored.shape)
        expected = (stored.astype(np.float32) - output.zero_point) * np.float32(output.scale)
        if np.allclose(real, expected, rtol=1e-6, atol=0):
            return "dequantised floats"
    return ""


def _differing(data: bytes, output: Output, others: Mapping[str, Output]) -> BoardResult:
    stored, name = output.stored, output.name
    readings = [array for _, array in _readings(data, stored)]
    cause = next(_causes(data, output, others), "")
    explained = bool(cause)
    if not readings:
        size = (
            f"the file has {len(data)} bytes, but the output has {stored.nbytes} ({aligned(stored).nbytes} if aligned)"
        )
        return BoardResult(name, False, "", cause or size, explained, differing=stored.size, count=stored.size)
    values = readings[0]
    wrong = values != stored
    index = tuple(int(axis) for axis in np.argwhere(wrong)[0])
    share = 1 - wrong.mean()
    if not cause:
        cause = ANOTHER if share < FEW else "no known cause explains all differences"
    first = (index, float(values[index]), float(stored[index]))
    return BoardResult(name, False, "", cause, explained, first, int(wrong.sum()), stored.size)


def _readings(data: bytes, stored: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the ways in which a file of this size can store the output, with the resulting array."""
    dtype = stored.dtype.newbyteorder("<")
    if len(data) == stored.nbytes:
        yield "without alignment", np.frombuffer(data, dtype).reshape(stored.shape)
    if len(data) in (aligned(stored).nbytes, _unrounded(stored)) and stored.ndim:
        channels = stored.shape[-1]
        wide = channels + -channels % (_CHANNEL_BYTES // stored.itemsize)
        rows = np.frombuffer(data, dtype)[: stored.size // channels * wide].reshape(*stored.shape[:-1], wide)
        yield f"aligned, {channels} channels as {wide}", rows[..., :channels]


def _unrounded(stored: np.ndarray) -> int:
    """Return the size in bytes of the aligned shape if the whole buffer is not rounded up."""
    channels = stored.shape[-1] if stored.ndim else 1
    step = _CHANNEL_BYTES // stored.itemsize
    return stored.size // channels * (channels + -channels % step) * stored.itemsize


def _causes(data: bytes, output: Output, others: Mapping[str, Output]) -> Iterator[str]:
    stored = output.stored
    for _, values in _readings(data, stored):
        if values.size and (values == values.reshape(-1)[0]).all():
            yield f"the buffer is stale: every value is {values.reshape(-1)[0]}, so no output was written"
        yield from _reordered(values, stored)
        written = _written(values, stored)
        if written:
            yield f"the buffer is stale: no output was written after the first {written} values"
    wide = aligned(stored).tobytes()
    if len(data) == stored.nbytes < len(wide) and data == wide[: len(data)]:
        yield "the padding is not removed: the file is the beginning of the padded buffer, read in the unpadded shape"
    if len(data) == stored.size * 4:
        real = np.frombuffer(data, "<f4").reshape(stored.shape)
        if np.array_equal(real, stored.astype(np.float32)):
            yield "the scale is not applied: the floats are the integers themselves"
        elif output.zero_point and output.scale and np.allclose(real, stored * np.float32(output.scale), rtol=1e-6):
            yield "the zero point is not subtracted"
    for name, other in others.items():
        if name != output.name and any(
            np.array_equal(values, shaped.stored)
            for shaped in _shapes(other)
            for _, values in _readings(data, shaped.stored)
        ):
            yield f"the values belong to output {name}: the outputs are in the wrong order"


def _reordered(values: np.ndarray, stored: np.ndarray) -> Iterator[str]:
    if stored.ndim > 1 and min(stored.shape[-1], stored.size // stored.shape[-1]) > 1:
        planes = np.stack([sample.reshape(-1, stored.shape[-1]).T for sample in _samples(stored)]).reshape(stored.shape)
        if np.array_equal(values, planes):
            yield "NCHW instead of the simulator's NHWC"
    if stored.ndim and stored.shape[-1] > 1:
        order = _channels_of(values, stored)
        if order:
            moved = [f"{ours} holds {theirs}" for ours, theirs in enumerate(order) if ours != theirs]
            yield f"channels swapped: channel {', '.join(moved[:3])}"
    if np.array_equal(values.byteswap(), stored) and stored.itemsize > 1:
        yield "the bytes of each integer are swapped (big endian)"


def _samples(stored: np.ndarray) -> np.ndarray:
    return stored if stored.ndim == 4 else stored[None]


def _channels_of(values: np.ndarray, stored: np.ndarray) -> list[int]:
    """Return the simulator's channel for each of the board's channels; [] if one has no match."""
    theirs = {stored[..., channel].tobytes(): channel for channel in reversed(range(stored.shape[-1]))}
    order = [
        theirs.get(np.ascontiguousarray(values[..., channel]).tobytes(), -1) for channel in range(values.shape[-1])
    ]
    return [] if -1 in order or len(set(order)) != len(set(theirs.values())) else order


def _written(values: np.ndarray, stored: np.ndarray) -> int:
    """Return the number of equal values before a rest of zeros; 0 if the pattern does not apply."""
    flat, expected = values.reshape(-1), stored.reshape(-1)
    first = int(np.argmax(flat != expected))
    return first if first and not flat[first:].any() else 0
