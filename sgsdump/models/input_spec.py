"""The inputs of a model (``InputSpec``): making an array fit one, and checking a whole feed before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ml_dtypes import iinfo

from sgsdump.errors import InputError, hint
from sgsdump.tensors.dtypes import is_float, is_integer
from sgsdump.tensors.types import NHWC, to_nchw, to_nhwc


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    shape  None for every size that is not fixed; 4-D is NCHW, or NHWC.
    dtype  numpy's; float32 for bfloat16.
    also   the model's own dtype where that is bfloat16, or that of a quantised input's codes; such arrays are taken as
           they are.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype
    also: tuple[np.dtype, ...] = ()


def shape_text(shape: Sequence[int | None]) -> str:
    """``[1, 3, ?, ?]``: a shape for people."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def fits(shape: Sequence[int], sizes: Sequence[int | None]) -> bool:
    """Whether a shape has these sizes; None stands for any."""
    return len(shape) == len(sizes) and all(size in (length, None) for length, size in zip(shape, sizes))


def fit(array: np.ndarray, spec: InputSpec, layout: str, what: str) -> np.ndarray:
    """``array`` in the input's shape and dtype, C-contiguous; ``what`` begins the error messages.

    A missing batch axis is added; a 4-D array is transposed when only so it fits. Where both ways fit, NHWC is
    transposed and NCHW left. Raises InputError for another shape, NaN or Inf, and values the dtype cannot hold.
    """
    batched = array[None] if array.ndim == len(spec.shape) - 1 else array
    transposed = [to_nchw(batched), to_nhwc(batched)]
    ways = [transposed[0], batched, transposed[1]] if layout == NHWC else [batched, *transposed]
    fitting = next((way for way in ways if fits(way.shape, spec.shape)), None)
    if fitting is None:
        raise InputError(
            f"{what} has the shape {shape_text(array.shape)}, "
            f"the model's input {spec.name!r} takes {shape_text(spec.shape)}{_of_batch(ways, spec)}"
        )
    if fitting.dtype.kind == "f" and not np.isfinite(fitting).all():
        raise InputError(f"{what} holds {np.count_nonzero(~np.isfinite(fitting))} NaN or infinite values")
    return np.asarray(_cast(fitting, spec, what), order="C")


def _of_batch(ways: Sequence[np.ndarray], spec: InputSpec) -> str:
    """What to do about an array that the input would take but for its first axis; empty where it is not that."""
    batch = spec.shape[0] if spec.shape else None
    sizes = {len(way) for way in ways if way.ndim and fits(way.shape[1:], spec.shape[1:])}
    if batch == 1 and sizes:
        return ": give a file for each of them, or a data loader that yields one at a time (--data-loader-script)"
    return f": give .npy files of {batch} at once, or export it for a batch of 1" if batch and 1 in sizes else ""


def _cast(array: np.ndarray, spec: InputSpec, what: str) -> np.ndarray:
    if array.dtype in spec.also:
        return array
    if is_integer(spec.dtype) and array.size:
        limits = iinfo(spec.dtype)
        rounded = np.rint(array) if array.dtype.kind == "f" else array
        low, high = rounded.min(), rounded.max()
        if low < limits.min or high > limits.max:
            raise InputError(
                f"{what} holds values from {low} to {high}, the model's input {spec.name!r} is {spec.dtype}"
            )
        return rounded.astype(spec.dtype, copy=False)
    with np.errstate(over="ignore"):
        cast = array.astype(spec.dtype, copy=False)
    if cast is not array and is_float(spec.dtype) and not np.isfinite(cast).all():
        raise InputError(f"{what} holds values too large for the model's input {spec.name!r}, which is {spec.dtype}")
    return cast


def check_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> None:
    """Raises InputError, naming the expected and the given type and shape, when a feed does not fit the inputs."""
    specs = {spec.name: spec for spec in inputs}
    for name in feed:
        if name not in specs:
            raise InputError(f"the model has no input {name!r}{hint(name, specs)}")
    for name, spec in specs.items():
        expected = f"{spec.dtype} {shape_text(spec.shape)}"
        if name not in feed:
            raise InputError(f"the model's input {name!r} is not fed; it expects {expected}")
        array = feed[name]
        if array.dtype not in (spec.dtype, *spec.also) or not fits(array.shape, spec.shape):
            actual = f"{array.dtype} {shape_text(array.shape)}"
            raise InputError(f"the model's input {name!r} expects {expected}, got {actual}")


def fitted(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    """The feed, checked, in the model's own dtypes: what goes to a bfloat16 input may come as float32 too, and is
    rounded to nearest even. Raises InputError as ``check_feed``."""
    check_feed(feed, inputs)
    rounded = {spec.name: spec.also[0] for spec in inputs if spec.also}
    return {name: array.astype(rounded[name]) if name in rounded else array for name, array in feed.items()}
