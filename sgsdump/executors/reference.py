"""Executor ``reference``: ONNX's own reference evaluator (1.23), which is plain numpy, slow, and follows the standard.

Known oddities of the evaluator: a scan output of scalars in a Loop has one extra axis of size 1 at the end, and the
output of OptionalGetElement one at the front. Operators that the evaluator computes differently from the standard are
implemented here; the evaluator finds each class by the operator's name. Options of recurrent operators that the
evaluator silently ignores are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_gru import CommonGRU
from onnx.reference.ops.op_loop import Loop as _Loop
from onnx.reference.ops.op_lstm import CommonLSTM
from onnx.reference.ops.op_max_pool import MaxPool as _MaxPool
from onnx.reference.ops.op_rnn import CommonRNN
from onnx.reference.ops.op_roi_align import RoiAlign as _RoiAlign

from sgsdump.errors import ModelError
from sgsdump.executors.base import Configs, Executor, reason_of
from sgsdump.models.external_data import in_one_piece
from sgsdump.models.graph import called, opset_of

if TYPE_CHECKING:
    from onnx import ModelProto


# Operator sets in which BatchNormalization is in training mode exactly if it has more than one output.
OUTPUTS_TELL_TRAINING = range(7, 14)
# Operator sets in which Softmax, LogSoftmax and Hardmax flatten the input to a matrix, split at ``axis``.
MATRIX_SOFTMAX = range(1, 13)
# Operator sets whose RoiAlign has no coordinate_transformation_mode: corners are not shifted by half a pixel.
CORNERS_STAY = range(10, 16)
SIGMOID_TANH = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


class ReferenceExecutor(Executor):
    """Back-end of the ONNX reference evaluator."""

    name = "reference"
    _evaluator: Any = None

    def on_load(self, model: ModelProto, configs: Configs, folder: str | None) -> None:
        self._evaluator = None
        operators = corrected(opset_of(model, absent=0))
        self._evaluator = ReferenceEvaluator(in_one_piece(model, folder), new_ops=operators)

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        # The caller reports NaN and Inf in the values; numpy's warnings would not name the tensor.
        with np.errstate(all="ignore"):
            values = self._evaluator.run(output_names, dict(feed))
        return [_array(name, value) for name, value in zip(output_names, values)]

    def on_release(self) -> None:
        self._evaluator = None

    def plain(self, error: Exception) -> str:
        """Return the message with the name of the failing node, which is read from the evaluator's stack frame."""
        node = None
        trace = error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename.endswith("reference_evaluator.py"):
                node = getattr(trace.tb_frame.f_locals.get("node"), "onnx_node", node)
            trace = trace.tb_next
        return f"{called(node)}: {reason_of(error)}" if node is not None else reason_of(error)


def _array(name: str, value: Any) -> np.ndarray:
    if value is None or isinstance(value, (list, dict)):
        kind = "an optional value that is absent" if value is None else "a sequence or a map, not a tensor"
        raise ModelError(f"executor reference: output {name!r} cannot be returned: {kind}")
    array = np.array(value)
    if array.dtype.kind in "OUS":
        raise ModelError(f"executor reference: output {name!r} cannot be returned: the output holds text, not numbers")
    return array


def corrected(opset: int) -> list[type[OpRun]]:
    """Return the operators that replace the evaluator's own in models of this operator set."""
    chosen: list[type[OpRun]] = [AveragePool, GRU, Loop, LpNormalization, LSTM, MaxPool, RNN]
    if opset in OUTPUTS_TELL_TRAINING:
        chosen.append(BatchNormalization)
    if opset in MATRIX_SOFTMAX:
        chosen += [Hardmax, LogSoftmax, Softmax]
    if opset in CORNERS_STAY:
        chosen.append(RoiAlign)
    return chosen


class BatchNormalization(OpRun):
    """BatchNormalization of versions 7 and 9, inference mode.

    https://onnx.ai/onnx/operators/onnx__BatchNormalization.html. The evaluator normalises with the statistics of the
    batch, as in training (https://github.com/onnx/onnx/pull/8442).
    """

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        var: np.ndarray,
        epsilon: float | None = None,
        **rest: Any,
    ) -> tuple[np.ndarray]:
        if len(self.onnx_node.output) > 1 or rest.get("spatial") == 0:
            raise NotImplementedError("BatchNormalization in training mode or with spatial=0 is not supported")
        wide = np.promote_types(x.dtype, np.float32)
        scale, bias, mean, var = (
            array.astype(wide).reshape(-1, *[1] * (x.ndim - 2)) for array in (scale, bias, mean, var)
        )
        small = 1e-5 if epsilon is None else epsilon
        return ((scale * (x.astype(wide) - mean) / np.sqrt(var + wide.type(small)) + bias).astype(x.dtype),)


class Softmax(OpRun):
    """Softmax of versions 1 and 11; the evaluator implements version 13 only, which normalises along one axis."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
        if not any(item.name == "axis" for item in self.onnx_node.attribute):
            axis = 1  # the evaluator passes the default of version 13
        rows = x.reshape(int(np.prod(x.shape[: axis % x.ndim])), -1)
        return (self._of_rows(rows).astype(x.dtype).reshape(x.shape),) if x.size else (x,)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        powers = np.exp(rows - rows.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)


class LogSoftmax(Softmax):
    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        below = rows - rows.max(1, keepdims=True)
        return below - np.log(np.exp(below).sum(1, keepdims=True))


class Hardmax(Softmax):
    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        return np.arange(rows.shape[1]) == rows.argmax(1)[:, None]


class Loop(_Loop):
    """Loop that runs without a condition input; the evaluator's own stops before the first iteration."""

    op_domain = ""

    def _run(self, M: Any, cond: Any, *args: Any, **rest: Any) -> Any:
        return super()._run(M, np.bool_(True) if cond is None else cond, *args, **rest)


class LpNormalization(OpRun):
    """LpNormalization whose norm for p = 1 sums absolute values; the evaluator sums signed values."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int | None = None, p: int | None = None) -> tuple[np.ndarray]:
        norm = np.linalg.norm(x, 2 if p is None else p, -1 if axis is None else axis, keepdims=True)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0).astype(x.dtype),)


class RoiAlign(_RoiAlign):
    """RoiAlign of version 10; version 16 added coordinate_transformation_mode with a different default."""

    op_domain = ""

    def _run(self, *inputs: np.ndarray, **attributes: Any) -> Any:
        return super()._run(*inputs, **{**attributes, "coordinate_transformation_mode": "output_half_pixel"})


class _Recurrent(OpRun):
    """Recurrent operator that refuses the attributes and inputs that the evaluator silently ignores."""

    op_domain = ""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        name = self.onnx_node.op_type
        passed_over = [key for key in ("clip", "input_forget") if attributes.get(key)]
        usual, asked = SIGMOID_TANH.get(name), [word.lower() for word in attributes.get("activations") or []]
        if usual and asked not in ([], usual, usual * 2):
            passed_over.append("activations")
        lengths = inputs[4] if len(inputs) > 4 else None
        if lengths is not None and (np.asarray(lengths) != inputs[0].shape[1 if attributes.get("layout") else 0]).any():
            passed_over.append("sequence_lens")
        if passed_over:
            raise NotImplementedError(
                f"the reference evaluator ignores {' and '.join(passed_over)} of the operator {name}"
            )
        return super()._run(*inputs, **attributes)  # type: ignore[safe-super]


class LSTM(_Recurrent, CommonLSTM):
    pass


class GRU(_Recurrent, CommonGRU):
    pass


class RNN(_Recurrent, CommonRNN):
    pass


class MaxPool(_MaxPool):
    """MaxPool; the evaluator's is wrong for unequal pads, for SAME_LOWER, and if the last window exceeds the edge."""

    op_domain = ""

    def _run(self, x: np.ndarray, **attributes: Any) -> Any:  # type: ignore[override]
        windows = _Windows.of(x.shape[2:], attributes)
        if len(self.onnx_node.output) > 1:
            pads = [*windows.before, *windows.after]
            return super()._run(x, **{**attributes, "auto_pad": "NOTSET", "pads": pads})
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (windows.view(x, least, least).max(windows.axes),)


class AveragePool(OpRun):
    """AveragePool; the evaluator's own has the same errors as its MaxPool."""

    op_domain = ""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        windows = _Windows.of(x.shape[2:], attributes)
        ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
        counted = windows.view(ones, attributes.get("count_include_pad") or 0, 0).sum(windows.axes)
        return ((windows.view(x, 0, 0).sum(windows.axes) / counted).astype(x.dtype),)


class _Windows(NamedTuple):
    """Geometry of pooling windows, one element per axis; ``beyond``: how far the last window exceeds the padding."""

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
        counts -= (counts - 1) * strides >= sizes + before  # no window starts beyond the values
        beyond = np.maximum((counts - 1) * strides + spans - sizes - before - after, 0)
        return cls(spans, strides, dilations, before, after, counts, beyond)

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of a view that lie within a window."""
        return tuple(range(-len(self.spans), 0))

    def view(self, x: np.ndarray, padding: float, beyond: float) -> np.ndarray:
        """Return the windows of [N, C, ...] values, padded with ``padding`` and then with ``beyond``."""
        x = np.pad(x, [(0, 0), (0, 0), *zip(self.before, self.after)], constant_values=padding)
        x = np.pad(x, [(0, 0), (0, 0), *((0, size) for size in self.beyond)], constant_values=beyond)
        windows = sliding_window_view(x, tuple(self.spans), tuple(range(2, x.ndim)))  # type: ignore[call-overload]
        where = [slice(0, count * stride, stride) for count, stride in zip(self.counts, self.strides)]
        return windows[(slice(None), slice(None), *where, *(slice(None, None, step) for step in self.dilations))]
