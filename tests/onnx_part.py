"""A part of a fixed model, from some of its stored tensors to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime

from sgsdump.models.graph import drop_unused_constants

STORED = "{}#stored"


def part_of(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> onnx.ModelProto:
    """The nodes between the tensors of ``feeds`` and ``outputs``, as a model of their own."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    wanted, seen, nodes = list(outputs), set(feeds), []
    while wanted:
        name = wanted.pop()
        if name in seen or name not in makers:
            continue
        seen.update(makers[name].output)
        nodes.append(makers[name])
        wanted.extend(makers[name].input)
    order = {id(node): index for index, node in enumerate(proto.graph.node)}
    part = onnx.helper.make_graph(
        sorted(nodes, key=lambda node: order[id(node)]),
        "part",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        list(proto.graph.initializer),
    )
    model = onnx.helper.make_model(part, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    drop_unused_constants(model)
    return model


def part_outputs(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """What they compute, in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    data = part_of(proto, feeds, outputs).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(outputs, {name: np.ascontiguousarray(array) for name, array in feeds.items()})
