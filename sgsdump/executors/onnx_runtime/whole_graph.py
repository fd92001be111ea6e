"""onnxruntime, one session for the whole graph: only chosen outputs, as fast as it goes, again and again.

For trying many quant plans: the graph never changes, the inputs do. Several threads may run one session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.providers import CPU
from sgsdump.executors.onnx_runtime.session_options import fake_quantised
from sgsdump.executors.onnx_runtime.versions import loadable

if TYPE_CHECKING:
    from onnx import ModelProto


class WholeGraph:
    """A session over a model whose weights are in it. Raises ModelError when onnxruntime will not load it."""

    def __init__(self, proto: ModelProto, threads: int = 0):
        model = loadable(proto)
        try:
            self._session = ort.InferenceSession(model, fake_quantised(threads), providers=[CPU])
        except Exception as error:
            raise ModelError(f"onnxruntime cannot load the graph: {str(error).splitlines()[0]}") from error

    def run(self, feed: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """The outputs by name; values of ``feed`` are arrays, or what ``hold`` gave."""
        return {name: value.numpy() for name, value in zip(outputs, self.values(feed, outputs))}

    def values(self, feed: Mapping[str, Any], outputs: Sequence[str]) -> list[ort.OrtValue]:
        """The outputs as onnxruntime has them, of any type."""
        held = {name: value if isinstance(value, ort.OrtValue) else self.hold(value) for name, value in feed.items()}
        return self._session.run_with_ort_values(list(outputs), held)

    @staticmethod
    def hold(array: np.ndarray) -> ort.OrtValue:
        """An array kept where onnxruntime reads it, for inputs that are fed many times."""
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
