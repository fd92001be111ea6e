"""Conversion between the device layouts of accelerators and the logical layout of a tensor.

Sources: docs/formats/ascend.md#device-layouts, docs/formats/sigmastar.md#padded-buffers.

===========  =======================================  ==========================================================
NC1HWC0      (N, C1, H, W, C0)                        C0 is the last size; also NC1HWC0_C04
NDC1HWC0     (N, D, C1, H, W, C0)
FRACTAL_Z    (G * C1 * H * W, N1, N0, C0)             weights; G blocks of a grouped convolution, otherwise 1
FRACTAL_NZ   (…, N1, M1, M0, N0)                      matrices of M rows and N columns; also FRACTAL_NZ_C0_16, _C0_32
NHWX, NHWC   flat, padded                             SigmaStar buffers: see ``sdk_buffers``
===========  =======================================  ==========================================================

A dimension X is stored as X1 blocks of X0 elements. X1 * X0 is X rounded up to a multiple of X0; the remainder is
padding. A logical dimension is stored in one axis or in two: block number and index in the block. The stored shape
gives X0, but only the original shape tells which elements are padding. Without an original shape (``origin`` is None)
nothing is converted.

For a convolution in g groups, C is the number of channels of one group. E groups lie along the diagonal of each block,
surrounded by zeros: E = min(lcm(lcm(C, C0) / C, lcm(N/g, N0) / (N/g)), g). A block therefore has E * C channels and
E * N/g outputs, both rounded up. The number of blocks is g / E, rounded up.
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
# Layout -> letter of a dimension -> stored axes that hold the dimension.
_AXES: dict[str, Axes] = {
    "NC1HWC0": {"N": (0,), "C": (1, 4), "H": (2,), "W": (3,)},
    "NDC1HWC0": {"N": (0,), "D": (1,), "C": (2, 5), "H": (3,), "W": (4,)},
    "FRACTAL_Z": {"C": (0, 5), "H": (1,), "W": (2,), "N": (3, 4)},
    "FRACTAL_NZ": {"B": (0,), "n": (1, 4), "m": (2, 3)},
}
# Device layout -> possible original layouts. If the file names none, the first that fits the shapes is used.
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
    """Return whether the layout stores values in padded blocks instead of an order of the logical dimensions."""
    return layout is not None and _BLOCKED.search(layout) is not None


def logical_origin(info: TensorInfo) -> Origin:
    """Return the shape of the logical tensor made by ``to_logical``, and its layout if known.

    Raises ValuesError if the original shape is unknown or does not fit the stored shape, or if the layout is not in the
    module's table.
    """
    if info.origin is None:
        raise ValuesError(
            f"has layout {info.layout}, but its file does not give the original shape: padding cannot be "
            f"distinguished from values",
            tensor=info.name,
        )
    return replace(info.origin, layout=_checked(info, info.origin))


def conversion(info: TensorInfo) -> str:
    """Return the conversion of ``Tensor.logical`` as text, such as ``NC1HWC0 to NCHW``; "" if there is none."""
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
    return f"{text} (the shape also allows {' or '.join(fitting[1:])}; the file does not name the original layout)"


def to_logical(values: np.ndarray, layout: str, origin: Origin) -> np.ndarray:
    """Convert stored values, shaped as in ``layout``, to an array of ``origin.shape`` in ``origin.layout``.

    Raises ValuesError if the two shapes do not fit each other.
    """
    base = _base_of(layout)
    if base in ("NHWX", NHWC):
        flat, sizes = values.reshape(-1), padded_sizes(base, origin.shape, values.itemsize)
        if flat.size not in sizes:
            needed = " or ".join(map(str, sizes)) or "another number of"
            raise ValuesError(
                f"a padded {base} buffer of shape {list(origin.shape)} needs {needed} values, but has {flat.size}"
            )
        return unpad(flat, base, origin.shape)
    original = _original_of(base, values.shape, origin)
    if original is None:
        raise ValuesError(f"{layout} shape {list(values.shape)} does not fit the original shape {list(origin.shape)}")
    if original.groups > 1:
        return _ungrouped(values, original)
    return _gathered(_in_blocks(values, base, original), _AXES[base], original).reshape(origin.shape)


def to_device(array: np.ndarray, of: str, layout: str, c0: int = 16, n0: int = 16, groups: int = 1) -> np.ndarray:
    """Convert an array in the plain layout ``of`` to a device layout; padding is zero.

    of   plain layout of ``array``; ignored for FRACTAL_NZ
    c0   size of the innermost block: 16, or 32 for elements of one byte
    n0   size of the other block of FRACTAL_Z and FRACTAL_NZ
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
    """Return a view of an array with its axes in another plain layout of the same letters."""
    return array.transpose([layout.index(letter) for letter in to])


def device_shape(shape: tuple[int, ...], of: str, layout: str, c0: int, n0: int = 16) -> tuple[int, ...]:
    """Return the shape that ``to_device`` gives for a shape in the plain layout ``of`` and one group."""
    if layout == "FRACTAL_NZ":
        return (*shape[:-2], *_stored_shape(layout, _Original("Bmn", _matrix_shape(shape), 1), c0, n0)[1:])
    return _stored_shape(layout, _Original(of, shape, 1), c0, n0)


def _checked(info: TensorInfo, origin: Origin) -> str | None:
    """Return the layout of the original; raise ValuesError if the shapes do not fit or the layout is unknown."""
    base = _base_of(info.layout)
    if base == "NHWX":
        return NHWC
    if base not in _AXES:
        raise ValuesError(f"has layout {info.layout}, which sgsdump cannot convert", tensor=info.name)
    original = _original_of(base, info.shape or (), origin)
    if original is None:
        raise ValuesError(
            f"has layout {info.layout} {list(info.shape or ())}, "
            f"which does not fit its original shape {list(origin.shape)}",
            tensor=info.name,
        )
    if base == "FRACTAL_NZ":
        return origin.layout if origin.layout and len(origin.layout) == len(origin.shape) else None
    return original.letters if len(original.letters) > 3 else None


def _base_of(layout: str | None) -> str:
    """Return the layout of the module's table that ``layout`` is a variant of, or ``layout`` itself."""
    return _VARIANTS.get(layout or "", layout or "")


class _Original(NamedTuple):
    """The logical tensor as its device layout describes it: one letter and one size per dimension."""

    letters: str
    shape: tuple[int, ...]
    groups: int

    def size(self, letter: str) -> int:
        return self.shape[self.letters.index(letter)] if letter in self.letters else 1


def _original_of(base: str, stored: tuple[int, ...], origin: Origin) -> _Original | None:
    """Return the first original layout that fits the stored shape; a layout named by the file is tried first."""
    named = [origin.layout] if origin.layout in _ORIGINALS[base] else []
    for letters in [*named, *_ORIGINALS[base]]:
        original = _as_letters(base, stored, origin, letters or "")
        if original is not None:
            return original
    return None


def _as_letters(base: str, stored: tuple[int, ...], origin: Origin, letters: str) -> _Original | None:
    """Return the original in the layout ``letters``, or None if the device would store it in another shape."""
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
    """Return the stored shape of an original; leading dimensions of matrices are merged."""
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
    return -(-size // block)


def _matrix_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return (product of leading dimensions, rows, columns); a vector is one row."""
    padded = (1, 1, *shape)
    return math.prod(shape[:-2]), padded[-2], padded[-1]


def _merged(base: str, stored: tuple[int, ...]) -> tuple[int, ...]:
    """Merge the leading dimensions of matrices in a stored shape."""
    return (math.prod(stored[:-4]), *stored[-4:]) if base == "FRACTAL_NZ" else stored


def _in_blocks(values: np.ndarray, base: str, of: _Original) -> np.ndarray:
    """Reshape stored values to one axis per entry of ``_AXES``."""
    if base == "FRACTAL_Z":
        n1, n0, c0 = values.shape[-3:]
        return values.reshape(_blocks_for(of.size("C"), c0), of.size("H"), of.size("W"), n1, n0, c0)
    return values.reshape(_merged(base, values.shape))


def _gathered(blocks: np.ndarray, axes: Axes, of: _Original) -> np.ndarray:
    """Return the dimensions of ``of`` in its order, each cropped to its size; copies once if blocks must be split."""
    absent = [axis for letter in axes if letter not in of.letters for axis in axes[letter]]
    order = [axis for letter in of.letters for axis in axes[letter]]
    sizes = [math.prod(blocks.shape[axis] for axis in axes[letter]) for letter in of.letters]
    whole = blocks.transpose([*order, *absent]).reshape(sizes)
    return whole[tuple(slice(size) for size in of.shape)]


def _scattered(array: np.ndarray, of: str, axes: Axes, block: Mapping[str, int]) -> np.ndarray:
    """Invert ``_gathered`` and pad with zeros; ``block`` maps a letter to the size of its inner block."""
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
    """Blocks of a grouped convolution's weights: their number, groups per block, channels and outputs of a block."""

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
    """Yield for each group its block, its slices in the block and its slices in the original."""
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
    """Convert stored values, with blocks along the first axis, to the original."""
    groups = _Groups.of(of, values.shape[-1], values.shape[-2])
    whole = _Original(of.letters, _block_shape(of, groups), 1)
    blocks = values.reshape(groups.blocks, -1, *values.shape[1:])
    dense = [_gathered(_in_blocks(block, "FRACTAL_Z", whole), _AXES["FRACTAL_Z"], whole) for block in blocks]
    joined = np.empty(of.shape, values.dtype)
    for block, inside, outside in _slices(of, groups):
        joined[outside] = dense[block][inside]
    return joined


def _grouped(array: np.ndarray, of: _Original, c0: int, n0: int) -> np.ndarray:
    """Invert ``_ungrouped``: return (G, C1, H, W, N1, N0, C0) with zeros beside the groups."""
    groups = _Groups.of(of, c0, n0)
    dense = np.zeros((groups.blocks, *_block_shape(of, groups)), array.dtype)
    for block, inside, outside in _slices(of, groups):
        dense[block][inside] = array[outside]
    return np.stack([_scattered(block, of.letters, _AXES["FRACTAL_Z"], {"C": c0, "N": n0}) for block in dense])
