"""Executor ``openvino``: a second opinion on every tensor, by OpenVINO's own kernels. Needs the extra ``openvino``.

``read_model`` reads the model; ``convert_model`` is not used because it sends usage data. All values are computed in
float32, whatever the model's float type, so that they can be compared with another back-end. OpenVINO fuses the
operators between two outputs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sgsdump.errors import MissingExtra, ModelError
from sgsdump.executors.base import Configs, Executor, reason_of
from sgsdump.models.external_data import external_bytes, in_one_piece
from sgsdump.models.graph import MAIN_DOMAINS, needs, opset_of
from sgsdump.tensors.dtypes import BEYOND_NUMPY, packed, packed_size, unpacked

if TYPE_CHECKING:
    from onnx import ModelProto

PROTOBUF_LIMIT = 2**31 - 1
SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
NOISE = (
    r"Exception from |Check '|While validating|FrontEnd API failed|Model wasn't fully|Summary:|Conversion is failed|"
    r"To facilitate|Loading input model|\[ ?GENERAL_ERROR|\S+ with a message:"
)
# OpenVINO's names of element types that numpy lacks.
BEYOND = {
    name: BEYOND_NUMPY[dtype]
    for name, dtype in (
        *(("bf16", "bfloat16"), ("f8e4m3", "float8_e4m3fn"), ("f8e5m2", "float8_e5m2")),
        *(("f8e8m0", "float8_e8m0fnu"), ("f4e2m1", "float4_e2m1fn"), ("i4", "int4"), ("u4", "uint4")),
    )
    if dtype in BEYOND_NUMPY
}


class OpenvinoExecutor(Executor):
    """Back-end of OpenVINO."""

    name = "openvino"
    init_options: ClassVar = {"device": "OpenVINO device: CPU (default), GPU, GPU.1, NPU ..."}
    _request: Any = None

    def on_init(self, configs: Configs) -> None:
        try:
            import openvino
        except ImportError:
            raise MissingExtra("executor openvino needs OpenVINO: pip install 'sgsdump[openvino]'") from None
        self._library = openvino
        self._device = str(configs.get("device", "CPU"))
        self._core = openvino.Core()

    def on_load(self, model: ModelProto, configs: Configs, folder: str | None) -> None:
        self._request = None
        if model.ByteSize() + external_bytes(model) > PROTOBUF_LIMIT:
            raise ModelError(
                "executor openvino cannot load the model: OpenVINO accepts at most 2 GiB of weights. "
                "Run the model a few layers at a time (mode 'fast')."
            )
        graph = self._core.read_model(_with_matrix_softmax(in_one_piece(model, folder)).SerializeToString())
        self._request = self._core.compile_model(graph, self._device, SETTINGS).create_infer_request()
        self._index = {info.name: index for index, info in enumerate(model.graph.output)}
        self._inputs = _input_names(model, [port.get_names() for port in self._request.model_inputs])

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        self._request.infer({index: self._tensor(feed[name]) for index, name in enumerate(self._inputs)})
        return [array_of(name, self._request.get_output_tensor(self._index[name])) for name in output_names]

    def on_release(self) -> None:
        self._request = None
        self._core = None

    def plain(self, error: Exception) -> str:
        """Return OpenVINO's message without its source references, prefixed with the ONNX node."""
        text = str(error)
        lines = [line.strip().removeprefix("-- ") for line in text.splitlines() if line.strip()]
        telling = [line for line in lines if not re.match(NOISE, line)]
        node = re.search(r"ONNX node '<Node\((\w+)\): (.*?)>'", text)
        where = f"node {node[2]!r} ({node[1]}): " if node else ""
        return where + telling[-1 if node else 0] if telling else reason_of(error)

    def _tensor(self, array: np.ndarray) -> Any:
        array = np.ascontiguousarray(array).reshape(array.shape)
        word = next((word for word, dtype in BEYOND.items() if dtype == array.dtype), None)
        if word is None:
            return self._library.Tensor(array)
        kind = getattr(self._library.Type, word)
        return self._library.Tensor(np.frombuffer(packed(array), np.uint8), list(array.shape), kind)


def _with_matrix_softmax(model: ModelProto) -> ModelProto:
    """Return the model with a Flatten and a Reshape around each Softmax of operator sets 11 and 12.

    In these sets Softmax normalises over all axes from ``axis`` on; OpenVINO normalises over one axis.
    """
    from onnx import ModelProto, NodeProto

    if opset_of(model) not in (11, 12) or not any(node.op_type == "Softmax" for node in model.graph.node):
        return model
    laid_out = ModelProto()
    laid_out.CopyFrom(model)
    del laid_out.graph.node[:]
    for node in model.graph.node:
        if node.op_type != "Softmax" or node.domain not in MAIN_DOMAINS:
            laid_out.graph.node.append(node)
            continue
        shape, rows, result = (f"{node.output[0]}#{part}" for part in ("shape", "rows", "made"))
        laid_out.graph.node.extend(
            [
                NodeProto(op_type="Shape", input=node.input, output=[shape]),
                NodeProto(op_type="Flatten", input=node.input, output=[rows], attribute=node.attribute),
                NodeProto(op_type="Softmax", input=[rows], output=[result]),
                NodeProto(op_type="Reshape", input=[result, shape], output=node.output),
            ]
        )
    return laid_out


def _input_names(model: ModelProto, ports: Sequence[Collection[str]]) -> list[str]:
    """Return the model's name of each OpenVINO input.

    OpenVINO drops inputs without a reader. An input that only a Dropout reads takes the Dropout's name; fed under its
    own name, the input would keep uninitialised memory.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [info.name for info in model.graph.input if info.name not in constants]
    names = [next((name for name in inputs if name in port), "") for port in ports]
    read = {name for node in model.graph.node for name in needs(node)}
    renamed = [name for name in inputs if name in read and name not in names]
    if "" in names and names.count("") != len(renamed):
        raise ModelError(f"executor openvino cannot load the model: OpenVINO lost the names of {', '.join(renamed)}")
    return [name or renamed.pop(0) for name in names]


def array_of(name: str, tensor: Any) -> np.ndarray:
    """Return a copy of the tensor's values; the next run overwrites the tensor's memory."""
    word = tensor.element_type.get_type_name()
    shape = tuple(tensor.shape)
    if word in BEYOND:
        size = packed_size(BEYOND[word], tensor.size)
        raw = tensor.data.reshape(-1).view(np.uint8)[:size].tobytes()
        return unpacked(raw, BEYOND[word], tensor.size).reshape(shape)
    if word == "string":
        raise ModelError(f"executor openvino: output {name!r} cannot be returned: the output holds text, not numbers")
    return np.array(tensor.data).reshape(shape)
