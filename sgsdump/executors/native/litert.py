"""Runtime of TFLite models: LiteRT (ai-edge-litert), the extra ``tflite``.

Delegates are off and every tensor is kept, so that the operators are those of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sgsdump.errors import MissingExtra, ModelError
from sgsdump.executors.native.base import Key, Runtime


class LiteRt(Runtime):
    def __init__(self, path: str, tensors: Sequence[Key]):
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise MissingExtra("TFLite models need LiteRT (ai-edge-litert): pip install 'sgsdump[tflite]'") from error
        self._interpreter = Interpreter(
            model_path=path,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )

    def run(self, feed: Mapping[Key, np.ndarray]) -> None:
        run = self._interpreter
        arrays = {int(key[0]): array for key, array in feed.items()}
        for details in run.get_input_details():
            array = arrays[details["index"]]
            if tuple(details["shape"]) != array.shape:
                run.resize_tensor_input(details["index"], array.shape)
        run.allocate_tensors()
        for index, array in arrays.items():
            run.set_tensor(index, array)
        run.invoke()

    def value(self, key: Key) -> np.ndarray:
        array = np.asarray(self._interpreter.get_tensor(int(key[0])))  # LiteRT returns a scalar for a 0-D tensor
        if array.dtype.kind not in "biufcV":
            raise ModelError("holds text, not numbers")
        return array
