"""Checking a feed against the inputs a model declares, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import InputError
from sgsdump.models.input_spec import InputSpec, shape_text
from sgsdump.registry import hint

if TYPE_CHECKING:
    import onnx


def check_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> None:
    """Raises InputError, naming what is expected and what was given, when a feed does not fit the inputs."""
    known = {each.name: each for each in inputs}
    for name in feed:
        if name not in known:
            raise InputError(f"the model has no input {name!r}{hint(name, known)}")
    for name, wanted in known.items():
        if name not in feed:
            raise InputError(
                f"the model's input {name!r} is not fed; it expects {_describe(wanted.dtype, wanted.shape)}"
            )
        array = feed[name]
        if array.dtype not in (wanted.dtype, *wanted.also) or not _fits(array.shape, wanted.shape):
            raise InputError(
                f"the model's input {name!r} expects {_describe(wanted.dtype, wanted.shape)}, "
                f"got {_describe(array.dtype, array.shape)}"
            )


def bfloat16_inputs(proto: onnx.ModelProto) -> frozenset[str]:
    """Names of the inputs that are bfloat16; ``graph_inputs`` calls them float32, which is what users have."""
    import onnx

    kinds = ((info.name, info.type.tensor_type.elem_type) for info in proto.graph.input)
    return frozenset(name for name, kind in kinds if kind == onnx.TensorProto.BFLOAT16)


def fitted(
    feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec], bfloat16: Collection[str]
) -> dict[str, np.ndarray]:
    """The feed, checked, in the model's own dtypes: what goes to ``bfloat16`` inputs may come as float32 too, and is
    rounded to nearest even. Raises InputError as ``check_feed``."""
    check_feed(feed, inputs)
    if not bfloat16:
        return dict(feed)
    import ml_dtypes

    return {n: array.astype(ml_dtypes.bfloat16) if n in bfloat16 else array for n, array in feed.items()}


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(size in (own, None) for own, size in zip(shape, wanted))


def _describe(dtype: np.dtype, shape: Sequence[int | None]) -> str:
    return f"{dtype} {shape_text(shape)}"
