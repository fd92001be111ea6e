"""A tensor brought to a device's layout, padded with zeros; or given its original shape, so that it can be undone.

The blocks: C0 (N0 of FRACTAL_NZ) is 16 elements, 32 of one byte, 64 of four bits; the other one is 16.
Source: docs/formats/ascend.md#device-layouts.
"""

from __future__ import annotations

from dataclasses import replace

from sgsdump.errors import ValuesError
from sgsdump.tensors.device.layout import PLAIN, Origin, is_device, logical_origin, to_device
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.tensor import Tensor

DEVICE_LAYOUTS = ("NC1HWC0", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_NZ")
BLOCK = 16
_LETTERS = {"NC1HWC0": "CHNW", "NDC1HWC0": "CDHNW", "FRACTAL_Z": "CHNW"}


def in_device_layout(tensor: Tensor, layout: str) -> Tensor:
    """The tensor in one of ``DEVICE_LAYOUTS``, its values converted when they are loaded; itself when it is in it.

    FRACTAL_NZ takes tensors of any shape, as matrices of their last two dimensions; the others those of known layout
    only (NCHW, NHWC … or NCDHW …). Raises ValuesError for any other tensor, and for one without values.
    """
    if tensor.info.layout == layout:
        return tensor
    tensor = tensor.logical()
    info = tensor.info
    letters = _LETTERS.get(layout)
    known = info.layout if info.layout in PLAIN else ""
    if not info.shape or 0 in info.shape or (letters and sorted(known or "") != sorted(letters)):
        raise ValuesError(f"tensor {info.name!r} cannot become {layout}: its layout is {info.layout or 'unknown'}")
    if tensor.statistics is not None:
        raise ValuesError(f"tensor {info.name!r} cannot become {layout}: only statistics were dumped")
    c0, of = _block(info.dtype.itemsize, name_of(info.dtype)), known or ""
    shape = _device_shape(info.shape, of, layout, c0)
    to = replace(info, shape=shape, layout=layout, origin=Origin(info.shape, info.layout))
    return Tensor(to, lambda: to_device(tensor.stored(), of, layout, c0, BLOCK))


def with_original_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor in a device's layout whose original shape is known otherwise, so that ``logical`` can undo it.

    FRACTAL_NZ is stored with M1 and M0 as one dimension too, as ATB does: (…, N1, M, N0). Raises ValuesError when the
    shape does not fit, or the layout is none that can be undone.
    """
    info = tensor.info
    if not is_device(info.layout):
        raise ValuesError(f"tensor {info.name!r} is in no device's layout: it has its original shape")
    origin = replace(info.origin, shape=shape) if info.origin else Origin(shape)
    try:
        logical_origin(completed := replace(info, origin=origin))
    except ValuesError:
        stored = info.shape or ()
        if not (info.layout or "").startswith("FRACTAL_NZ") or len(stored) < 3 or stored[-2] % BLOCK:
            raise
        logical_origin(completed := replace(completed, shape=(*stored[:-2], stored[-2] // BLOCK, BLOCK, stored[-1])))
    return Tensor(completed, tensor.raw, tensor.statistics)


def _block(itemsize: int, name: str) -> int:
    return 4 * BLOCK if name.endswith("int4") else 2 * BLOCK if itemsize == 1 else BLOCK


def _device_shape(shape: tuple[int, ...], of: str, layout: str, c0: int) -> tuple[int, ...]:
    """The shape that ``to_device`` gives."""
    if layout == "FRACTAL_NZ":
        rows, columns = (1, *shape)[-2:]
        return (*shape[:-2], _up(columns, c0), _up(rows, BLOCK), BLOCK, c0)
    size = dict(zip(of, shape))
    channels = _up(size["C"], c0)
    if layout == "FRACTAL_Z":
        return (channels * size["H"] * size["W"], _up(size["N"], BLOCK), BLOCK, c0)
    depth = (size["D"],) if "D" in size else ()
    return (size["N"], *depth, channels, size["H"], size["W"], c0)


def _up(size: int, block: int) -> int:
    return -(-size // block)
