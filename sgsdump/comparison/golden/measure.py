"""From the arrays of two or three sides to their row: fitted to one shape, in the types the formulas want."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sgsdump.comparison.golden.formulas import diff2, diff3, exact_difference
from sgsdump.comparison.golden.row import GoldenRow
from sgsdump.comparison.layout_match import Layouts, match_layouts, match_shapes
from sgsdump.errors import SgsdumpError, ValuesError

Load = Callable[[], np.ndarray]


def row_of(
    file: str,
    name: str,
    sides: Sequence[Load],
    tag: float,
    th1: float,
    pair_note: str = "",
    known: Sequence[Layouts] = (),
) -> GoldenRow:
    """The row of two or three sides, the last of which gives the shape; ``known`` has each side's layout and its."""
    try:
        stored = [load() for load in sides]
        fitted, notes = _fitted(stored, known or [(None, None)] * len(sides))
    except SgsdumpError as error:
        return GoldenRow(file, name, tag, reason=str(error))
    arrays = [_computable(array) for array in fitted]
    nan_inf = not all(np.isfinite(array).all() for array in arrays)
    if stored[0].dtype != stored[1].dtype:
        notes.append(f"dtypes differ: sample {stored[0].dtype}, benchmark {stored[1].dtype}")
    note = "; ".join(filter(None, [pair_note, *notes]))
    with np.errstate(over="ignore"):
        e, c = (array.astype(np.float32, copy=False) if _is_float(stored) else array for array in arrays[:2])
    apart = exact_difference(fitted[0], fitted[1])
    if len(arrays) == 2:
        close = bool(np.allclose(e, c, rtol=th1, atol=th1, equal_nan=True))
        if apart is not None:
            close = bool((apart <= th1 + th1 * np.abs(c)).all())
        return GoldenRow(file, name, tag, nan_inf, diff2(e, c, apart), close, note=note)
    sw, accepted = (diff3(arrays[i], arrays[2], th1, exact_difference(fitted[i], fitted[2])) for i in (0, 1))
    return GoldenRow(
        file, name, tag, nan_inf, diff2(e, c, apart), None, sw[0], accepted[0], sw[1], accepted[1], note=note
    )  # fmt: skip


def _fitted(arrays: list[np.ndarray], known: Sequence[Layouts]) -> tuple[list[np.ndarray], list[str]]:
    """All arrays in the last one's shape, and how. Raises ValuesError when one does not fit."""
    names = ("sample", "benchmark", "golden")[: len(arrays)]
    last, notes, fitted = arrays[-1], [], []
    for name, array, (own, lasts) in zip(names, arrays, known):
        matched = match_layouts(last, array, (lasts, own))
        if matched is not None:
            fitted.append(matched[1].reshape(last.shape))
            notes.extend([f"{name} transposed {own} to {lasts}"] if matched[2] else [])
            continue
        if array.shape == last.shape:
            fitted.append(array)
            continue
        try:
            _, view, _ = match_shapes(last, array)
        except ValuesError:
            shapes = ", ".join(f"{side} {array.shape}" for side, array in zip(names, arrays))
            raise ValuesError(f"shape mismatch: {shapes}") from None
        fitted.append(view.reshape(last.shape))
        notes.append(f"{name} brought from {list(array.shape)} to {list(last.shape)}")
    return fitted, notes


def _computable(array: np.ndarray) -> np.ndarray:
    """float16 and smaller floats as float32, integers and bool as float64, complex as its parts; others unchanged."""
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array).view(array.real.dtype)
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _is_float(arrays: list[np.ndarray]) -> bool:
    return all(array.dtype.kind not in "iub" for array in arrays)
