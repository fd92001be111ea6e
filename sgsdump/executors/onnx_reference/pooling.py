"""MaxPool and AveragePool for ONNX's reference evaluator (1.23), whose own miss their definition where pads differ,
where SAME_LOWER rounds, and where the last window reaches over the edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_max_pool import MaxPool as _MaxPool


class MaxPool(_MaxPool):
    op_domain = ""

    def _run(self, x: np.ndarray, **attributes: Any) -> Any:  # type: ignore[override]
        windows = _Windows.of(x.shape[2:], attributes)
        if len(self.onnx_node.output) > 1:
            pads = [*windows.before, *windows.after]
            return super()._run(x, **{**attributes, "auto_pad": "NOTSET", "pads": pads})
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (windows.view(x, least, least).max(windows.axes),)


class AveragePool(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        windows = _Windows.of(x.shape[2:], attributes)
        ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
        counted = windows.view(ones, attributes.get("count_include_pad") or 0, 0).sum(windows.axes)
        return ((windows.view(x, 0, 0).sum(windows.axes) / counted).astype(x.dtype),)


class _Windows(NamedTuple):
    """Where a pooling's windows lie, axis by axis: how far each reaches, how far they are apart, what is padded, how
    many there are, and by how much the last one reaches beyond the padding."""

    spans: np.ndarray
    strides: np.ndarray
    dilations: np.ndarray
    before: np.ndarray
    after: np.ndarray
    counts: np.ndarray
    beyond: np.ndarray

    @classmethod
    def of(cls, shape: Sequence[int], attributes: dict[str, Any]) -> _Windows:
        sizes, auto_pad = np.array(shape), attributes.get("auto_pad")
        strides, dilations = (np.array(attributes.get(name) or [1] * len(sizes)) for name in ("strides", "dilations"))
        spans = (np.array(attributes["kernel_shape"]) - 1) * dilations + 1
        before, after = np.reshape(attributes.get("pads") or [0] * 2 * len(sizes), (2, -1))
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = np.maximum((-(-sizes // strides) - 1) * strides + spans - sizes, 0)
            before, after = (total // 2, total - total // 2)[:: 1 if auto_pad == "SAME_UPPER" else -1]
        steps = (sizes + before + after - spans) / strides
        counts = (np.ceil(steps) if attributes.get("ceil_mode") else np.floor(steps)).astype(int) + 1
        counts -= (counts - 1) * strides >= sizes + before  # no window begins behind the values
        beyond = np.maximum((counts - 1) * strides + spans - sizes - before - after, 0)
        return cls(spans, strides, dilations, before, after, counts, beyond)

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of a view that lie within a window."""
        return tuple(range(-len(self.spans), 0))

    def view(self, x: np.ndarray, padding: float, behind: float) -> np.ndarray:
        x = np.pad(x, [(0, 0), (0, 0), *zip(self.before, self.after)], constant_values=padding)
        x = np.pad(x, [(0, 0), (0, 0), *((0, size) for size in self.beyond)], constant_values=behind)
        each = sliding_window_view(x, tuple(self.spans), tuple(range(2, x.ndim)))  # type: ignore[call-overload]
        where = [slice(0, count * stride, stride) for count, stride in zip(self.counts, self.strides)]
        return each[(slice(None), slice(None), *where, *(slice(None, None, step) for step in self.dilations))]
