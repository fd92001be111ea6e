"""Pairs in device layouts: which side is converted before the comparison, and the note that reports it."""

from __future__ import annotations

from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.tensors.device import conversion, is_device
from sgsdump.tensors.tensor import TensorInfo
from sgsdump.tensors.types import NHWC


def compared_as_stored(pair: Pair) -> bool:
    """Whether both sides are compared as stored, padding included: they have the same device layout and shape, and the
    original shape of one is unknown. (Where both are known, msaccucmp compares the logical tensors too.)"""
    sample, benchmark = pair.sample.tensor.info, pair.benchmark.tensor.info
    alike = (sample.layout, sample.shape) == (benchmark.layout, benchmark.shape)
    return alike and is_device(sample.layout) and not (conversion(sample) and conversion(benchmark))


def layouts(pair: Pair, as_stored: bool) -> tuple[str | None, str | None]:
    """The layouts of the two tensors once those of devices are undone; None where unknown, or of blocks compared as
    stored. Two of NHWC count as unknown: SigmaStar's dumps are all called so, whatever was written into them.

    Raises ValuesError where a device's layout cannot be undone.
    """
    if as_stored:
        return None, None
    known = pair.sample.tensor.logical().info.layout, pair.benchmark.tensor.logical().info.layout
    return (None, None) if known == (NHWC, NHWC) else known


def layout_note(pair: Pair, as_stored: bool) -> str:
    """How the layouts were converted, for the row; "" when they were not."""
    sample, benchmark = pair.sample.tensor.info, pair.benchmark.tensor.info
    if as_stored:
        return f"both {sample.layout}, compared with their padding: the original shape is not known"
    return "; ".join(filter(None, [_converted("sample", sample), _converted("benchmark", benchmark)]))


def _converted(side: str, info: TensorInfo) -> str:
    change = conversion(info)
    return f"{side} {change}" if change else ""
