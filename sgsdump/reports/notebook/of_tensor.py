"""A tensor's facts and, where it is not too large to be read for a look, how its real values lie."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from sgsdump.errors import SgsdumpError
from sgsdump.reports.notebook.base import card, facts, paragraph
from sgsdump.reports.notebook.histogram import histogram
from sgsdump.reports.shown import number
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.statistics import Statistics, summarise
from sgsdump.tensors.statistics import histogram as counted
from sgsdump.tensors.tensor import Tensor

MOST = 1 << 22  # elements that are read
BINS = 128


def render(tensor: Tensor) -> str:
    pairs, rest = _values(tensor)
    return card(paragraph(f"Tensor {tensor.name}"), facts([*_facts(tensor), *pairs]), rest)


def _facts(tensor: Tensor) -> Iterator[tuple[str, object]]:
    info = tensor.info
    yield "shape", "unknown" if info.shape is None else list(info.shape)
    yield "dtype", name_of(info.dtype)
    yield from ((what, value) for what, value in (("layout", info.layout), ("operator", info.op_type)) if value)
    if info.quant is not None:
        scales = np.size(info.quant.scale)
        yield (
            "scale",
            f"{info.quant.scale:.6g}" if scales == 1 and np.ndim(info.quant.scale) == 0 else f"{scales} scales",
        )
        yield "zero point", info.quant.zero_point


def _values(tensor: Tensor) -> tuple[list[tuple[str, object]], str]:
    """The statistics, and the histogram or why there is none."""
    if tensor.statistics is not None:
        return list(_numbers(tensor.statistics)), ""
    try:
        count = math.prod(tensor.shape) if tensor.shape is not None else tensor.raw().size
        if count > MOST:
            return [("count", f"{count:,}")], paragraph("too many values to read for a look", small=True)
        values = tensor.real()
    except SgsdumpError as error:
        return [], paragraph(str(error), small=True)
    statistics = summarise(values)
    chart = histogram(counted(values, *statistics.span, BINS), *statistics.span) if statistics.finite else ""
    return list(_numbers(statistics)), chart


def _numbers(statistics: Statistics) -> Iterator[tuple[str, object]]:
    """What is known; NaN and Inf only where there are any."""
    for name in ("count", "min", "max", "mean", "l2norm", "nan", "inf"):
        value = getattr(statistics, name)
        if value is not None and (value or name not in ("nan", "inf")):
            yield name, number(value) if isinstance(value, float) else f"{value:,}"
