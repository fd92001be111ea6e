"""Two tensors of one name in device layouts: which of them are converted before they are compared, and what is said."""

from __future__ import annotations

from sgsdump.comparison.alignment import Pair
from sgsdump.tensors.device_layout import conversion, is_device
from sgsdump.tensors.layout import NHWC
from sgsdump.tensors.tensor import TensorInfo


def compared_as_stored(pair: Pair) -> bool:
    """Whether the values of both sides are compared as they lie, padding and all: they are in one device layout and
    shape, and the original shape of one is not known. (Where it is, msaccucmp compares the logical tensors too.)"""
    ours, theirs = pair.sample.tensor.info, pair.benchmark.tensor.info
    alike = (ours.layout, ours.shape) == (theirs.layout, theirs.shape)
    return alike and is_device(ours.layout) and not (conversion(ours) and conversion(theirs))


def layouts(pair: Pair, as_stored: bool) -> tuple[str | None, str | None]:
    """The layouts of the two tensors once those of devices are undone; None where unknown, or of blocks compared as
    they lie. Two of NHWC count as unknown: SigmaStar's dumps are all called so, whatever was written into them.

    Raises ValuesError where a device's layout cannot be undone.
    """
    if as_stored:
        return None, None
    found = pair.sample.tensor.logical().info.layout, pair.benchmark.tensor.logical().info.layout
    return (None, None) if found == (NHWC, NHWC) else found


def layout_note(pair: Pair, as_stored: bool) -> str:
    """What was done to the layouts, for the row; empty when nothing."""
    ours, theirs = pair.sample.tensor.info, pair.benchmark.tensor.info
    if as_stored:
        return f"both {ours.layout}, compared with their padding: the original shape is not known"
    return "; ".join(filter(None, [_said("sample", ours), _said("benchmark", theirs)]))


def _said(side: str, info: TensorInfo) -> str:
    how = conversion(info)
    return f"{side} {how}" if how else ""
