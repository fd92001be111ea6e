"""Match the memory layouts of two tensors of one name: as stored, flat, or transposed between NHWC and NCHW.

If both dumps state the layout, it decides; otherwise the shapes decide. If neither does (H = W = C, or a dump without
shapes), the values are compared as stored. If this gives COS < 0.98, they are compared again with the 4-D side
transposed, and the better result is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from sgsdump.comparison.metrics import Sums, cos
from sgsdump.comparison.sums.summation import pair_sums
from sgsdump.errors import ValuesError
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.device import PLAIN, in_order
from sgsdump.tensors.tensor import Values
from sgsdump.tensors.types import to_nchw, to_nhwc

RETRY_BELOW = 0.98  # the SDK's own limit for trying the other layout
Layouts = tuple[str | None, str | None]  # of sample and benchmark; None if unknown
_TURNS = (("NHWC", "NCHW", to_nchw), ("NCHW", "NHWC", to_nhwc))


class Turn(NamedTuple):
    """Permutation of the axes of one side (``sample`` or ``benchmark``) to the other side's order."""

    side: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.side} transposed {self.before} to {self.after}"


class Views(NamedTuple):
    """Views of a sample and a benchmark with equal shape, and how they were made."""

    a: np.ndarray
    b: np.ndarray
    turn: Turn | None = None
    is_flattened: bool = False


class Fit(NamedTuple):
    """Pair as views of equal shape: ``a`` of ``sample`` and ``b`` of ``benchmark``.

    ``settled`` means that the layouts are known, so that no other layout is tried.
    """

    sample: Values
    benchmark: Values
    a: Values
    b: Values
    turn: Turn | None
    is_flattened: bool
    settled: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """Pair in its best matching layouts: values, sums, and the permutation, if any.

    ``cos_untried`` is the COS of the pair as stored if only the values revealed the layout.
    """

    sample: Values
    benchmark: Values
    sums: Sums
    turn: Turn | None = None
    is_flattened: bool = False
    cos_untried: float | None = None

    @property
    def note(self) -> str:
        if self.turn is None:
            return "compared flat" if self.is_flattened else ""
        return str(self.turn) if self.cos_untried is None else f"{self.turn} (COS {self.cos_untried:.6f} as stored)"


def fit(sample: Values, benchmark: Values, layouts: Layouts = (None, None)) -> Fit:
    """Return the pair in the stated layouts, else as the shapes imply. Raises ValuesError if they do not fit."""
    views = match_layouts(sample.array, benchmark.array, layouts)
    a, b, turn, is_flattened = views or match_shapes(sample.array, benchmark.array)
    return Fit(sample, benchmark, sample.of(a), benchmark.of(b), turn, is_flattened, views is not None)


def measure(sample: Values, benchmark: Values, layouts: Layouts = (None, None)) -> Measured:
    """Return the pair in the stated layouts, else in the best matching layouts.

    Raises ValuesError if the sizes or shapes do not fit.
    """
    fitted = fit(sample, benchmark, layouts)
    return best_turned(fitted, pair_sums(fitted.a, fitted.b))


def best_turned(fitted: Fit, sums: Sums, threads: int = 1) -> Measured:
    """Return the pair as fitted with its sums, or in the other layout if that matches better.

    ``threads`` is the number of threads for a large pair.
    """
    best = Measured(fitted.a, fitted.b, sums, fitted.turn, fitted.is_flattened)
    first = cos(sums)
    others = other_layouts(fitted.sample.array, fitted.benchmark.array)
    for a, b, turn, _ in others if first < RETRY_BELOW and not fitted.settled else ():
        x, y = fitted.sample.of(a), fitted.benchmark.of(b)
        turned_sums = pair_sums(x, y, threads=threads)
        if cos(turned_sums) > cos(best.sums):
            best = Measured(x, y, turned_sums, turn, cos_untried=first)
    return best


def match_layouts(a: np.ndarray, b: np.ndarray, layouts: Layouts) -> Views | None:
    """Return views of equal shape in the order of ``a``, according to the layouts of both sides.

    None if a layout is unknown or contradicts the shape. One side may be flat if its dump states no shape.
    """
    a_layout, b_layout = layouts
    if a.size != b.size or a_layout not in PLAIN or b_layout not in PLAIN or sorted(a_layout) != sorted(b_layout):
        return None
    if b.ndim == 1 and a.ndim == len(a_layout):
        b = b.reshape(in_order(a, a_layout, b_layout).shape)
    if b.ndim != len(b_layout):
        return None
    turned = in_order(b, b_layout, a_layout)
    if a.ndim == 1:
        a = a.reshape(turned.shape)
    if a.shape != turned.shape:
        return None
    moved = a_layout != b_layout and not turned.flags.c_contiguous
    return Views(a, turned, Turn("benchmark", b_layout, a_layout) if moved else None)


def match_shapes(a: np.ndarray, b: np.ndarray) -> Views:
    """Return views of equal shape according to the shapes. Raises ValuesError."""
    if a.size != b.size:
        raise ValuesError(
            f"sizes differ: sample {a.size} values {list(a.shape)}, benchmark {b.size} values {list(b.shape)}"
        )
    if a.shape == b.shape:
        return Views(a, b)
    if a.ndim == b.ndim == 4:
        for before, after, turn in _TURNS:
            turned = turn(b)
            if turned.shape == a.shape:
                return Views(a, turned, None if turned.flags.c_contiguous else Turn("benchmark", before, after))
    if a.ndim == b.ndim and [n for n in a.shape if n != 1] != [n for n in b.shape if n != 1]:
        raise ValuesError(
            f"shapes differ: sample {list(a.shape)}, benchmark {list(b.shape)}, also after NHWC/NCHW transposition"
        )
    return Views(a.reshape(-1), b.reshape(-1), is_flattened=1 not in (a.ndim, b.ndim))


def other_layouts(a: np.ndarray, b: np.ndarray) -> Iterator[Views]:
    """Yield views in the other layouts that the shapes allow, as from ``match_shapes``."""
    if a.ndim == b.ndim and not (a.shape == b.shape == to_nchw(b).shape):
        return
    for before, after, turn in _TURNS:
        if b.ndim == 4 and not turn(b).flags.c_contiguous:
            yield Views(a.reshape(turn(b).shape), turn(b), Turn("benchmark", before, after))
        elif b.ndim != 4 and a.ndim == 4 and not turn(a).flags.c_contiguous:
            yield Views(turn(a), b.reshape(turn(a).shape), Turn("sample", before, after))


def without_alignment(a: Values, b: Values, parts: Sequence[tuple[int, int]]) -> tuple[Values, Values]:
    """Return a Concat and the same Concat with aligned parts, without the alignment channels of the larger side.

    The SDK pads the channels (the innermost axis) of each part with meaningless values.

    parts  aligned and original number of channels of each part.
    """
    large = max(a, b, key=lambda values: values.array.size)
    pixels = in_memory(large.array).reshape(-1, sum(aligned for aligned, _ in parts))
    starts = accumulate((aligned for aligned, _ in parts), initial=0)
    columns = [pixels[:, start : start + count] for start, (_, count) in zip(starts, parts)]
    shape = large.array.shape[:-1] if large.array.shape[-1] == pixels.shape[1] else ()
    cut = large.of(np.concatenate(columns, axis=1).reshape(*shape, -1))
    return (cut, b) if large is a else (a, cut)


def without_overallocation(a: Values, b: Values) -> tuple[Values, Values, str]:
    """Return network inputs without the SDK's over-allocation, and a note, if one side has 4/3 of the other's values.

    The SDK's fixed models store images as R, G, B, 0 pixel by pixel. A dump may hold only the first three quarters of
    this stream. The fourth value is constant: 0, or the dequantised value of 0. Other streams have the surplus at the
    end.
    """
    sizes = a.array.size, b.array.size
    if sizes[0] == sizes[1] or 3 * max(sizes) != 4 * min(sizes):
        return a, b, ""
    x, y = in_memory(a.array).reshape(-1), in_memory(b.array).reshape(-1)
    if x.size < y.size:
        second, first, note = without_overallocation(b, a)
        return first, second, note
    count = y.size
    pixels = _pixels_of_four(x) if count % 3 == 0 else None
    if pixels is None:
        note = f"the first {count} of {x.size} values: the rest is the SDK's over-allocation of images"
        return a.of(x[:count].reshape(b.array.shape)), b, note
    interleaved = _interleaved(in_memory(b.array))
    if len(pixels) * 3 == count:
        return (
            a.of(pixels.reshape(interleaved.shape)),
            b.of(interleaved),
            "only R, G and B of pixels stored as R, G, B, 0",
        )
    note = f"only R, G and B of the first {len(pixels)} pixels, stored as R, G, B, 0; the dump lacks the others"
    return a.of(pixels.reshape(-1)), b.of(interleaved.reshape(-1)[: pixels.size]), note


def _pixels_of_four(stream: np.ndarray) -> np.ndarray | None:
    """Return R, G, B of a stream of four values per pixel whose fourth value is constant; None for other streams.

    If only the constant follows the first three quarters, the pixels of these three quarters are returned.
    """
    filler = stream[3]
    held = stream.size * 3 // 4 // 4 * 4
    if not (stream[held:] == filler).all():
        held = stream.size
    pixels = stream[:held].reshape(-1, 4)
    colours = pixels[:, :3]
    if len(pixels) < 2 or not (pixels[:, 3] == filler).all() or colours.min() == colours.max():
        return None
    return colours


def _interleaved(picture: np.ndarray) -> np.ndarray:
    """Return an image with interleaved pixels; a planar image is transposed."""
    planar = picture.ndim == 4 and picture.shape[1] == 3 and picture.shape[3] != 3
    return to_nhwc(picture) if planar else picture
