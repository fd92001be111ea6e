"""Operators that ONNX's reference evaluator (1.23) computes differently from their definition, computed right; and
options of recurrent operators that it passes over without a word, refused.

Each class is named after its operator, which is how the evaluator finds it;
``corrected`` lists those of an operator set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_gru import CommonGRU
from onnx.reference.ops.op_loop import Loop as _Loop
from onnx.reference.ops.op_lstm import CommonLSTM
from onnx.reference.ops.op_rnn import CommonRNN
from onnx.reference.ops.op_roi_align import RoiAlign as _RoiAlign

from sgsdump.executors.onnx_reference.pooling import AveragePool, MaxPool

# The operator sets in which a BatchNormalization trains when it has more than one output, and only then.
OUTPUTS_TELL_TRAINING = range(7, 14)
# Those in which Softmax and its kin see a matrix: the axes before ``axis``, and all the others as one.
MATRIX_SOFTMAX = range(1, 13)
# Those whose RoiAlign has no coordinate_transformation_mode: its corners are not moved by half a pixel.
CORNERS_STAY = range(10, 16)
SIGMOID_TANH = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


def corrected(opset: int) -> list[type[OpRun]]:
    """The operators to put in the place of the evaluator's own, in models of this operator set."""
    chosen: list[type[OpRun]] = [AveragePool, GRU, Loop, LpNormalization, LSTM, MaxPool, RNN]
    if opset in OUTPUTS_TELL_TRAINING:
        chosen.append(BatchNormalization)
    if opset in MATRIX_SOFTMAX:
        chosen += [Hardmax, LogSoftmax, Softmax]
    if opset in CORNERS_STAY:
        chosen.append(RoiAlign)
    return chosen


class BatchNormalization(OpRun):
    """https://onnx.ai/onnx/operators/onnx__BatchNormalization.html, versions 7 and 9, inference. The evaluator
    normalises by the batch's own statistics, as in training (https://github.com/onnx/onnx/pull/8442)."""

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
            raise NotImplementedError("BatchNormalization in training, or without spatial, is not run")
        wide = np.promote_types(x.dtype, np.float32)
        scale, bias, mean, var = (
            each.astype(wide).reshape(-1, *[1] * (x.ndim - 2)) for each in (scale, bias, mean, var)
        )
        small = 1e-5 if epsilon is None else epsilon
        return ((scale * (x.astype(wide) - mean) / np.sqrt(var + wide.type(small)) + bias).astype(x.dtype),)


class Softmax(OpRun):
    """Versions 1 and 11; the evaluator knows version 13 only, which normalises along one axis."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
        if not any(each.name == "axis" for each in self.onnx_node.attribute):
            axis = 1  # the evaluator gives version 13's default
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
    """Without a condition it goes on; the evaluator's own does not begin."""

    op_domain = ""

    def _run(self, M: Any, cond: Any, *args: Any, **rest: Any) -> Any:
        return super()._run(M, np.bool_(True) if cond is None else cond, *args, **rest)


class LpNormalization(OpRun):
    """The evaluator's sum for p = 1 is that of the values, not of their sizes."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int | None = None, p: int | None = None) -> tuple[np.ndarray]:
        norm = np.linalg.norm(x, 2 if p is None else p, -1 if axis is None else axis, keepdims=True)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0).astype(x.dtype),)


class RoiAlign(_RoiAlign):
    """Version 10: coordinate_transformation_mode came with version 16, whose default is another rule."""

    op_domain = ""

    def _run(self, *inputs: np.ndarray, **attributes: Any) -> Any:
        return super()._run(*inputs, **{**attributes, "coordinate_transformation_mode": "output_half_pixel"})


class _Recurrent(OpRun):
    """Refuses what the evaluator's own passes over: its numbers would be those of another operator."""

    op_domain = ""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        name = self.onnx_node.op_type
        passed_over = [key for key in ("clip", "input_forget") if attributes.get(key)]
        usual, given = SIGMOID_TANH.get(name), [each.lower() for each in attributes.get("activations") or []]
        if usual and given not in ([], usual, usual * 2):
            passed_over.append("activations")
        lengths = inputs[4] if len(inputs) > 4 else None
        if lengths is not None and (np.asarray(lengths) != inputs[0].shape[1 if attributes.get("layout") else 0]).any():
            passed_over.append("sequence_lens")
        if passed_over:
            raise NotImplementedError(f"the reference evaluator does not compute {' and '.join(passed_over)} of {name}")
        return super()._run(*inputs, **attributes)  # type: ignore[safe-super]


class LSTM(_Recurrent, CommonLSTM):
    pass


class GRU(_Recurrent, CommonGRU):
    pass


class RNN(_Recurrent, CommonRNN):
    pass
