"""Device layouts: the orders in which accelerators keep tensors, to and from the logical tensor.

Sources: docs/formats/ascend.md#device-layouts, docs/formats/sigmastar.md#padded-buffers.

===========  =======================================  ==========================================================
NC1HWC0      (N, C1, H, W, C0), C0 the last size      also NC1HWC0_C04
NDC1HWC0     (N, D, C1, H, W, C0)
FRACTAL_Z    (G * C1 * H * W, N1, N0, C0)             weights; G blocks of a grouped convolution, else 1
FRACTAL_NZ   (…, N1, M1, M0, N0)                      matrices of M rows and N columns; also FRACTAL_NZ_C0_16, _C0_32
NHWX, NHWC   flat, padded                             SigmaStar's buffers: see ``sdk_padding``
===========  =======================================  ==========================================================

X1 * X0 is X rounded up to a multiple of X0, what is beyond X is padding. The blocks of a grouped convolution:
``weight_groups``.

X0 is read from the stored shape; only the original shape tells how much of the rest is padding, so without it
(``origin`` None) nothing is converted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from sgsdump.errors import ValuesError
from sgsdump.tensors.device.blocks import AXES, Original, gathered, in_blocks, matrix_shape, scattered
from sgsdump.tensors.device.original_shape import LAYOUTS_OF, Origin, base_of, of_letters, original_of
from sgsdump.tensors.device.weight_groups import grouped, ungrouped
from sgsdump.tensors.layout import NHWC
from sgsdump.tensors.sdk_padding import pad_blocks, pad_channels, padded_sizes, unpad

__all__ = [
    "PLAIN",
    "Origin",
    "Placed",
    "conversion",
    "in_order",
    "is_device",
    "logical_origin",
    "to_device",
    "to_logical",
]

_BLOCKED = re.compile("C0|C1|FRACTAL|NHWX")
PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN")


class Placed(Protocol):
    """What is to be known of a tensor to undo its layout; ``TensorInfo`` has it."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def layout(self) -> str | None: ...
    @property
    def origin(self) -> Origin | None: ...


@lru_cache(maxsize=256)
def is_device(layout: str | None) -> bool:
    """Whether values in this layout are blocks with padding, not an order of the logical dimensions."""
    return layout is not None and _BLOCKED.search(layout) is not None


def logical_origin(info: Placed) -> Origin:
    """The logical tensor that ``to_logical`` makes of one in a device's layout: its shape, and its layout if known.

    Raises ValuesError when its original shape is not known or does not fit, and for layouts not in the table above.
    """
    if info.origin is None:
        raise ValuesError(
            f"tensor {info.name!r} is in the layout {info.layout}, and its file does not give the original shape: "
            f"its padding cannot be told from its values"
        )
    return replace(info.origin, layout=_checked(info, info.origin))


def conversion(info: Placed) -> str:
    """What ``Tensor.logical`` does to a tensor, in words: ``NC1HWC0 to NCHW``; empty when it does nothing or cannot."""
    if not is_device(info.layout) or info.origin is None:
        return ""
    try:
        to = _checked(info, info.origin)
    except ValuesError:
        return ""
    text = f"{info.layout} to {to or list(info.origin.shape)}"
    fitting = [letters for letters in LAYOUTS_OF.get(base_of(info.layout), ()) if _fits(info, info.origin, letters)]
    if info.origin.layout == to or len(fitting) < 2:
        return text
    return f"{text} (its shape would allow {' or '.join(fitting[1:])} too, and the file does not say)"


def to_logical(values: np.ndarray, layout: str, origin: Origin) -> np.ndarray:
    """Stored values, in the shape that ``layout`` has, as an array of ``origin.shape`` in ``origin.layout``.

    Raises ValuesError when the two shapes do not fit each other.
    """
    base = base_of(layout)
    if base in ("NHWX", NHWC):
        return _unpadded(values, base, origin.shape)
    original = original_of(base, values.shape, origin)
    if original is None:
        raise ValuesError(f"{layout} {list(values.shape)} does not fit the original shape {list(origin.shape)}")
    if original.groups > 1:
        return ungrouped(values, original)
    return gathered(in_blocks(values, base, original), AXES[base], original).reshape(origin.shape)


def to_device(array: np.ndarray, of: str, layout: str, c0: int = 16, n0: int = 16, groups: int = 1) -> np.ndarray:
    """An array in the plain layout ``of`` (of no meaning for FRACTAL_NZ) as the device keeps it, zeros as padding.

    c0   the innermost block: 16, and 32 for elements of one byte. n0  the other block of FRACTAL_Z and FRACTAL_NZ.
    """
    base = base_of(layout)
    if base in ("NHWX", NHWC):
        return pad_blocks(array) if base == "NHWX" else pad_channels(array)
    if base == "FRACTAL_NZ":
        rows = array.reshape(matrix_shape(array.shape))
        blocks = scattered(rows, "Bmn", AXES[base], {"n": c0, "m": n0})
        return blocks.reshape(*array.shape[:-2], *blocks.shape[1:])
    if base == "FRACTAL_Z":
        blocks = grouped(array, Original(of, array.shape, groups), c0, n0)
        return blocks.reshape(-1, *blocks.shape[-3:])
    return scattered(array, of, AXES[base], {"C": c0})


def in_order(array: np.ndarray, layout: str, to: str) -> np.ndarray:
    """A view of an array of one plain layout in another of the same letters."""
    return array.transpose([layout.index(letter) for letter in to])


def _checked(info: Placed, origin: Origin) -> str | None:
    """The layout of the original. Raises ValuesError when the shapes do not fit, or the layout is not known."""
    base = base_of(info.layout)
    if base == "NHWX":
        return NHWC
    if base not in AXES:
        raise ValuesError(f"tensor {info.name!r} is in the layout {info.layout}, which is not known how to undo")
    original = original_of(base, info.shape or (), origin)
    if original is None:
        raise ValuesError(
            f"tensor {info.name!r} is {info.layout} {list(info.shape or ())}, which does not fit its original shape "
            f"{list(origin.shape)}"
        )
    if base == "FRACTAL_NZ":
        return origin.layout if origin.layout and len(origin.layout) == len(origin.shape) else None
    return original.letters if len(original.letters) > 3 else None


def _fits(info: Placed, origin: Origin, letters: str) -> bool:
    return of_letters(base_of(info.layout), info.shape or (), origin, letters) is not None


def _unpadded(values: np.ndarray, order: str, shape: tuple[int, ...]) -> np.ndarray:
    flat = values.reshape(-1)
    sizes = padded_sizes(order, shape, flat.itemsize)
    if flat.size not in sizes:
        raise ValuesError(f"a padded {order} buffer of {list(shape)} has {sizes} values, not {flat.size}")
    return unpad(flat, order, shape)
