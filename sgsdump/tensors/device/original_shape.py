"""The logical tensor behind a device's layout, and whether a stored shape is what the layout makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.tensors.device.blocks import AXES, Original, blocks_for, matrix_shape, merged
from sgsdump.tensors.device.weight_groups import Groups

_SAME = {"NC1HWC0_C04": "NC1HWC0", "FRACTAL_NZ_C0_16": "FRACTAL_NZ", "FRACTAL_NZ_C0_32": "FRACTAL_NZ"}
# The original's layouts that each may come from; the first that the shapes allow is taken where the file names none.
LAYOUTS_OF = {
    "NC1HWC0": ("NCHW", "NHWC", "HWCN", "CHWN", "NC", "C"),
    "NDC1HWC0": ("NCDHW", "NDHWC", "DHWCN"),
    "FRACTAL_Z": ("NCHW", "HWCN", "NHWC", "CHWN"),
    "FRACTAL_NZ": ("Bmn",),
}


@dataclass(frozen=True)
class Origin:
    """The logical tensor behind values in a device's layout: its shape and layout (None when the file does not say),
    and the groups of a grouped convolution's weights."""

    shape: tuple[int, ...]
    layout: str | None = None
    groups: int = 1


def base_of(layout: str | None) -> str:
    """The layout in the table of ``device/layout.py`` that this one is a variant of; itself when it is none."""
    return _SAME.get(layout or "", layout or "")


def original_of(base: str, stored: tuple[int, ...], origin: Origin) -> Original | None:
    """The first reading of the original shape that fits the stored one; the layout it names goes first."""
    named = [origin.layout] if origin.layout in LAYOUTS_OF[base] else []
    for letters in [*named, *LAYOUTS_OF[base]]:
        original = of_letters(base, stored, origin, letters or "")
        if original is not None:
            return original
    return None


def of_letters(base: str, stored: tuple[int, ...], origin: Origin, letters: str) -> Original | None:
    """The original read as the layout ``letters``; None where the stored shape is not what the device makes of it."""
    shape = matrix_shape(origin.shape) if base == "FRACTAL_NZ" else origin.shape
    if len(shape) != len(letters):
        return None
    original = Original(letters, shape, max(origin.groups, 1) if base == "FRACTAL_Z" else 1)
    return original if _expected(base, stored, original) == merged(base, stored) else None


def _expected(base: str, stored: tuple[int, ...], of: Original) -> tuple[int, ...] | None:
    """The stored shape that an original has, with the blocks of ``stored``; None where there can be none."""
    if len(stored) < 4 or not stored[-1] or not stored[-2]:
        return None
    c0, n0 = stored[-1], stored[-2]
    if base == "FRACTAL_Z":
        if of.groups > 1 and (of.size("N") % of.groups or not of.size("C") or not of.size("N")):
            return None
        block = Groups.of(of, c0, n0)
        return (
            block.blocks * blocks_for(block.channels, c0) * of.size("H") * of.size("W"),
            blocks_for(block.outputs, n0),
            n0,
            c0,
        )
    if base == "FRACTAL_NZ":
        return (of.shape[0], blocks_for(of.shape[2], c0), blocks_for(of.shape[1], n0), n0, c0)
    axes = AXES[base]
    sizes = [0] * sum(map(len, axes.values()))
    for letter, places in axes.items():
        sizes[places[0]] = of.size(letter) if len(places) == 1 else blocks_for(of.size(letter), c0)
    sizes[-1] = c0
    return tuple(sizes)
