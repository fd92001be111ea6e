"""Runtime of OpenVINO models: OpenVINO, the extra ``openvino``, in float32.

Every requested tensor becomes an output, so that OpenVINO does not fuse the operators between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgsdump.errors import MissingExtra, ModelError
from sgsdump.executors.native.base import Key, Runtime
from sgsdump.executors.openvino import SETTINGS, array_of


class OpenvinoIr(Runtime):
    def __init__(self, path: str, tensors: Sequence[Key]):
        try:
            import openvino
        except ImportError as error:
            raise MissingExtra("OpenVINO models need OpenVINO: pip install 'sgsdump[openvino]'") from error
        self._library = openvino
        core = openvino.Core()
        model = core.read_model(path)
        layers = {layer.get_friendly_name(): layer for layer in model.get_ordered_ops()}
        self._inputs = {layer.get_friendly_name(): place for place, layer in enumerate(model.get_parameters())}
        made = {key: layers[str(key[0])].output(int(key[1])) for key in tensors if key[0] in layers}
        model.add_outputs([*made.values()])
        places = {_port(result.input_value(0)): place for place, result in enumerate(model.get_results())}
        self._places = {key: places[_port(output)] for key, output in made.items() if _port(output) in places}
        self._request = core.compile_model(model, "CPU", SETTINGS).create_infer_request()

    def run(self, feed: Mapping[Key, np.ndarray]) -> None:
        self._request.infer({self._inputs[str(key[0])]: np.ascontiguousarray(array) for key, array in feed.items()})

    def value(self, key: Key) -> np.ndarray:
        if key not in self._places:
            raise ModelError("OpenVINO's own graph has no layer of this name")
        return array_of(str(key[0]), self._request.get_output_tensor(self._places[key]))


def _port(output: Any) -> tuple[str, int]:
    return output.get_node().get_friendly_name(), output.get_index()
