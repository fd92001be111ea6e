"""ONNX's own reference evaluator: plain numpy, slow, and true to the operator definitions.

Its known oddities (onnx 1.23): a Loop's scan output of scalars has a further axis of 1, and what OptionalGetElement
gives has one in front. What it computes wrong is put right, or refused, in ``onnx_reference``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from sgsdump.errors import ModelError
from sgsdump.executors.base import Configs, Executor, reason_of
from sgsdump.executors.onnx_reference.operators import corrected
from sgsdump.models.external_data import in_one_piece
from sgsdump.models.passes.topology import called

if TYPE_CHECKING:
    from onnx import ModelProto


class ReferenceExecutor(Executor):
    name = "reference"
    _evaluator: Any = None

    def on_load(self, model: ModelProto, configs: Configs, folder: str | None) -> None:
        self._evaluator = None
        opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
        self._evaluator = ReferenceEvaluator(in_one_piece(model, folder), new_ops=corrected(opset))

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        # NaN and Inf stay in the values, for the caller to report; numpy's warnings would name no tensor.
        with np.errstate(all="ignore"):
            values = self._evaluator.run(output_names, dict(feed))
        return [_array(name, value) for name, value in zip(output_names, values)]

    def on_release(self) -> None:
        self._evaluator = None

    def plain(self, error: Exception) -> str:
        """The evaluator names no node; the innermost one at work when it failed is in its frame."""
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
        raise ModelError(f"executor reference: output {name!r} cannot be given: {kind}")
    array = np.array(value)
    if array.dtype.kind in "OUS":
        raise ModelError(f"executor reference: output {name!r} cannot be given: holds text, not numbers")
    return array
