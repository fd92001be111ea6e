"""Device layouts: the orders in which accelerators keep tensors, to and from the logical tensor.

Sources: docs/formats/ascend.md#device-layouts, docs/formats/sigmastar.md#padded-buffers.

===========  =======================================  ==========================================================
NC1HWC0      (N, C1, H, W, C0), C0 the last size      also NC1HWC0_C04
NDC1HWC0     (N, D, C1, H, W, C0)
FRACTAL_Z    (G * C1 * H * W, N1, N0, C0)             weights; G blocks of a grouped convolution, else 1
FRACTAL_NZ   (…, N1, M1, M0, N0)                      matrices of M rows and N columns; also FRACTAL_NZ_C0_16, _C0_32
NHWX, NHWC   flat, padded                             SigmaStar's buffers: see ``sdk_buffers``
===========  =======================================  ==========================================================

X1 * X0 is X rounded up to a multiple of X0, what is beyond X is padding. A dimension of the logical tensor lies in one
or two of the stored axes: how many blocks, and the index in a block. X0 is read from the stored shape; how much of the
rest is padding only the original shape tells, so without it (``origin`` None) nothing is converted.

Of a convolution in g groups, C is the channels of one group; E groups lie along the diagonal of each block, with zeros
around them, E = min(lcm(lcm(C, C0) / C, lcm(N/g, N0) / (N/g)), g). So a block has E * C rounded up channels, E * N/g
rounded up outputs, and there are g / E rounded up blocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sgsdump.errors import ValuesError
from sgsdump.tensors.sdk_buffers import pad_blocks, pad_channels, padded_sizes, unpad
from sgsdump.tensors.types import NHWC, Origin, TensorInfo

PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN")
Axes = Mapping[str, tuple[int, ...]]
# By layout: where the parts of each dimension lie among the stored axes.
_AXES: dict[str, Axes] = {
    "NC1HWC0": {"N": (0,), "C": (1, 4), "H": (2,), "W": (3,)},
    "NDC1HWC0": {"N": (0,), "D": (1,), "C": (2, 5), "H": (3,), "W": (4,)},
    "FRACTAL_Z": {"C": (0, 5), "H": (1,), "W": (2,), "N": (3, 4)},
    "FRACTAL_NZ": {"B": (0,), "n": (1, 4), "m": (2, 3)},
}
# The original's layouts that each may come from; the first that the shapes allow is taken where the file names none.
_ORIGINALS = {
    "NC1HWC0": ("NCHW", "NHWC", "HWCN", "CHWN", "NC", "C"),
    "NDC1HWC0": ("NCDHW", "NDHWC", "DHWCN"),
    "FRACTAL_Z": ("NCHW", "HWCN", "NHWC", "CHWN"),
    "FRACTAL_NZ": ("Bmn",),
}
_VARIANTS = {"NC1HWC0_C04": "NC1HWC0", "FRACTAL_NZ_C0_16": "FRACTAL_NZ", "FRACTAL_NZ_C0_32": "FRACTAL_NZ"}
_BLOCKED = re.compile("C0|C1|FRACTAL|NHWX")


@lru_cache(maxsize=256)
def is_device(layout: str | None) -> bool:
    """Whether values in this layout are blocks with padding, not an order of the logical dimensions."""
    return layout is not None and _BLOCKED.search(layout) is not None


def logical_origin(info: TensorInfo) -> Origin:
    """The logical tensor that ``to_logical`` makes of one in a device's layout: its shape, and its layout if known.

    Raises ValuesError when its original shape is not known or does not fit, and for layouts not in the table above.
    """
    if info.origin is None:
        raise ValuesError(
            f"is in the layout {info.layout}, and its file does not give the original shape: its padding cannot be "
            f"told from its values",
            tensor=info.name,
        )
    return replace(info.origin, layout=_checked(info, info.origin))


def conversion(info: TensorInfo) -> str:
    """The conversion of ``Tensor.logical`` in words: ``NC1HWC0 to NCHW``; empty when it does nothing or cannot."""
    if not is_device(info.layout) or info.origin is None:
        return ""
    try:
        to = _checked(info, info.origin)
    except ValuesError:
        return ""
    text = f"{info.layout} to {to or list(info.origin.shape)}"
    base, stored = _base_of(info.layout), info.shape or ()
    fitting = [letters for letters in _ORIGINALS.get(base, ()) if _as_letters(base, stored, info.origin, letters)]
    if info.origin.layout == to or len(fitting) < 2:
        return text
    return f"{text} (its shape would allow {' or '.join(fitting[1:])} too, and the file does not say)"


def to_logical(values: np.ndarray, layout: str, origin: Origin) -> np.ndarray:
    """Stored values, in the shape that ``layout`` has, as an array of ``origin.shape`` in ``origin.layout``.

    Raises ValuesError when the two shapes do not fit each other.
    """
    base = _base_of(layout)
    if base in ("NHWX", NHWC):
        flat, sizes = values.reshape(-1), padded_sizes(base, origin.shape, values.itemsize)
        if flat.size not in sizes:
            raise ValuesError(f"a padded {base} buffer of {list(origin.shape)} has {sizes} values, not {flat.size}")
        return unpad(flat, base, origin.shape)
    original = _original_of(base, values.shape, origin)
    if original is None:
        raise ValuesError(f"{layout} {list(values.shape)} does not fit the original shape {list(origin.shape)}")
    if original.groups > 1:
        return _ungrouped(values, original)
    return _gathered(_in_blocks(values, base, original), _AXES[base], original).reshape(origin.shape)


def to_device(array: np.ndarray, of: str, layout: str, c0: int = 16, n0: int = 16, groups: int = 1) -> np.ndarray:
    """An array in the plain layout ``of`` (of no meaning for FRACTAL_NZ) as the device keeps it, zeros as padding.

    c0   the innermost block: 16, and 32 for elements of one byte. n0  the other block of FRACTAL_Z and FRACTAL_NZ.
    """
    base = _base_of(layout)
    if base in ("NHWX", NHWC):
        return pad_blocks(array) if base == "NHWX" else pad_channels(array)
    if base == "FRACTAL_NZ":
        rows = array.reshape(_matrix_shape(array.shape))
        blocks = _scattered(rows, "Bmn", _AXES[base], {"n": c0, "m": n0})
        return blocks.reshape(*array.shape[:-2], *blocks.shape[1:])
    if base == "FRACTAL_Z":
        blocks = _grouped(array, _Original(of, array.shape, groups), c0, n0)
        return blocks.reshape(-1, *blocks.shape[-3:])
    return _scattered(array, of, _AXES[base], {"C": c0})


def in_order(array: np.ndarray, layout: str, to: str) -> np.ndarray:
    """A view of an array of one plain layout in another of the same letters."""
    return array.transpose([layout.index(letter) for letter in to])


def device_shape(shape: tuple[int, ...], of: str, layout: str, c0: int, n0: int = 16) -> tuple[int, ...]:
    """The shape that ``to_device`` gives for a shape in the plain layout ``of``, of one group."""
    if layout == "FRACTAL_NZ":
        return (*shape[:-2], *_stored_shape(layout, _Original("Bmn", _matrix_shape(shape), 1), c0, n0)[1:])
    return _stored_shape(layout, _Original(of, shape, 1), c0, n0)


def _checked(info: TensorInfo, origin: Origin) -> str | None:
    """The layout of the original. Raises ValuesError when the shapes do not fit, or the layout is not known."""
    base = _base_of(info.layout)
    if base == "NHWX":
        return NHWC
    if base not in _AXES:
        raise ValuesError(f"is in the layout {info.layout}, which is not known how to undo", tensor=info.name)
    original = _original_of(base, info.shape or (), origin)
    if original is None:
        raise ValuesError(
            f"is {info.layout} {list(info.shape or ())}, which does not fit its original shape {list(origin.shape)}",
            tensor=info.name,
        )
    if base == "FRACTAL_NZ":
        return origin.layout if origin.layout and len(origin.layout) == len(origin.shape) else None
    return original.letters if len(original.letters) > 3 else None


def _base_of(layout: str | None) -> str:
    """The layout in the table above that this one is a variant of; itself when it is not one."""
    return _VARIANTS.get(layout or "", layout or "")


class _Original(NamedTuple):
    """The logical tensor as its device's layout sees it: a letter and a size for each dimension."""

    letters: str
    shape: tuple[int, ...]
    groups: int

    def size(self, letter: str) -> int:
        return self.shape[self.letters.index(letter)] if letter in self.letters else 1


def _original_of(base: str, stored: tuple[int, ...], origin: Origin) -> _Original | None:
    """The first reading of the original shape that fits the stored one; the layout it names goes first."""
    named = [origin.layout] if origin.layout in _ORIGINALS[base] else []
    for letters in [*named, *_ORIGINALS[base]]:
        original = _as_letters(base, stored, origin, letters or "")
        if original is not None:
            return original
    return None


def _as_letters(base: str, stored: tuple[int, ...], origin: Origin, letters: str) -> _Original | None:
    """The original read as the layout ``letters``; None where the stored shape is not what the device makes of it."""
    shape = _matrix_shape(origin.shape) if base == "FRACTAL_NZ" else origin.shape
    if len(shape) != len(letters):
        return None
    original = _Original(letters, shape, max(origin.groups, 1) if base == "FRACTAL_Z" else 1)
    if len(stored) < 4 or not stored[-1] or not stored[-2]:
        return None
    n, groups = original.size("N"), original.groups
    if groups > 1 and (n % groups or not n or not original.size("C")):
        return None
    expected = _stored_shape(base, original, stored[-1], stored[-2])
    return original if expected == _merged(base, stored) else None


def _stored_shape(base: str, of: _Original, c0: int, n0: int) -> tuple[int, ...]:
    """The stored shape of an original, the leading dimensions of matrices as one."""
    if base == "FRACTAL_Z":
        block = _Groups.of(of, c0, n0)
        rows = block.blocks * _blocks_for(block.channels, c0) * of.size("H") * of.size("W")
        return (rows, _blocks_for(block.outputs, n0), n0, c0)
    if base == "FRACTAL_NZ":
        return (of.shape[0], _blocks_for(of.shape[2], c0), _blocks_for(of.shape[1], n0), n0, c0)
    axes = _AXES[base]
    sizes = [0] * sum(map(len, axes.values()))
    for letter, indices in axes.items():
        sizes[indices[0]] = of.size(letter) if len(indices) == 1 else _blocks_for(of.size(letter), c0)
    sizes[-1] = c0
    return tuple(sizes)


def _blocks_for(size: int, block: int) -> int:
    """How many blocks hold ``size``."""
    return -(-size // block)


def _matrix_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """(leading dimensions as one, rows, columns); a vector is one row."""
    padded = (1, 1, *shape)
    return math.prod(shape[:-2]), padded[-2], padded[-1]


def _merged(base: str, stored: tuple[int, ...]) -> tuple[int, ...]:
    """A stored shape with the leading dimensions of matrices as one."""
    return (math.prod(stored[:-4]), *stored[-4:]) if base == "FRACTAL_NZ" else stored


def _in_blocks(values: np.ndarray, base: str, of: _Original) -> np.ndarray:
    """Stored values with an axis for each entry of ``_AXES``."""
    if base == "FRACTAL_Z":
        n1, n0, c0 = values.shape[-3:]
        return values.reshape(_blocks_for(of.size("C"), c0), of.size("H"), of.size("W"), n1, n0, c0)
    return values.reshape(_merged(base, values.shape))


def _gathered(blocks: np.ndarray, axes: Axes, of: _Original) -> np.ndarray:
    """The dimensions of ``of`` in its order, each cropped to its size; one copy where blocks are taken apart."""
    absent = [axis for letter in axes if letter not in of.letters for axis in axes[letter]]
    order = [axis for letter in of.letters for axis in axes[letter]]
    sizes = [math.prod(blocks.shape[axis] for axis in axes[letter]) for letter in of.letters]
    whole = blocks.transpose([*order, *absent]).reshape(sizes)
    return whole[tuple(slice(size) for size in of.shape)]


def _scattered(array: np.ndarray, of: str, axes: Axes, block: Mapping[str, int]) -> np.ndarray:
    """``_gathered`` undone, padded with zeros; ``block`` is the size of the inner block by letter."""
    padded = np.pad(array, [(0, -size % block.get(letter, 1)) for letter, size in zip(of, array.shape)])
    shape: list[int] = []
    order: list[int] = []
    for letter, size in zip(of, padded.shape):
        order += axes[letter]
        shape += [size // block[letter], block[letter]] if letter in block else [size]
    for letter in axes.keys() - set(of):
        order += axes[letter]
        shape += [1] * len(axes[letter])
    return np.ascontiguousarray(padded.reshape(shape).transpose(np.argsort(order)))


class _Groups(NamedTuple):
    """A grouped convolution's weights: how many blocks, the groups in each, and a block's channels and outputs."""

    blocks: int
    per_block: int
    channels: int
    outputs: int

    @classmethod
    def of(cls, of: _Original, c0: int, n0: int) -> _Groups:
        c, n, groups = of.size("C"), of.size("N") // of.groups, of.groups
        count = 1 if groups == 1 else min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, n0) // n), groups)
        return cls(_blocks_for(groups, count), count, count * c, count * n)


def _slices(of: _Original, groups: _Groups) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """For each group its block, its part of that, and its part of the original."""
    c, n = of.size("C"), of.size("N") // of.groups
    for group in range(of.groups):
        block, inner = divmod(group, groups.per_block)
        inside = {"N": slice(inner * n, (inner + 1) * n), "C": slice(inner * c, (inner + 1) * c)}
        outside = {"N": slice(group * n, (group + 1) * n)}
        parts = [tuple(cut.get(letter, slice(None)) for letter in of.letters) for cut in (inside, outside)]
        yield block, parts[0], parts[1]


def _block_shape(of: _Original, groups: _Groups) -> tuple[int, ...]:
    return tuple({"N": groups.outputs, "C": groups.channels}.get(letter, of.size(letter)) for letter in of.letters)


def _ungrouped(values: np.ndarray, of: _Original) -> np.ndarray:
    """Stored values, one block after another along the first axis, as the original."""
    groups = _Groups.of(of, values.shape[-1], values.shape[-2])
    whole = _Original(of.letters, _block_shape(of, groups), 1)
    blocks = values.reshape(groups.blocks, -1, *values.shape[1:])
    dense = [_gathered(_in_blocks(block, "FRACTAL_Z", whole), _AXES["FRACTAL_Z"], whole) for block in blocks]
    joined = np.empty(of.shape, values.dtype)
    for block, inside, outside in _slices(of, groups):
        joined[outside] = dense[block][inside]
    return joined


def _grouped(array: np.ndarray, of: _Original, c0: int, n0: int) -> np.ndarray:
    """``_ungrouped`` undone: (G, C1, H, W, N1, N0, C0), with zeros beside the groups."""
    groups = _Groups.of(of, c0, n0)
    dense = np.zeros((groups.blocks, *_block_shape(of, groups)), array.dtype)
    for block, inside, outside in _slices(of, groups):
        dense[block][inside] = array[outside]
    return np.stack([_scattered(block, of.letters, _AXES["FRACTAL_Z"], {"C": c0, "N": n0}) for block in dense])
