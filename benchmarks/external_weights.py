"""Make a model whose weights lie in a file beside it, for ``dump.py``: ``python external_weights.py OUT.onnx LAYERS``.

A chain of matrix products of 100 MB of weights each, with a Relu behind each one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

SIZE = 5000


def external_weights(path: Path, layers: int) -> None:
    """The model; input ``data``, float32 [N, 3, 224, 224]. Its weights are written one by one."""
    generator = np.random.default_rng(0)
    nodes = [
        helper.make_node("GlobalAveragePool", ["data"], ["gap"]),
        helper.make_node("Flatten", ["gap"], ["flat"]),
    ]
    weights, last, rows = [], "flat", 3
    beside = path.with_suffix(".weights")
    with beside.open("wb") as file:
        for number in range(layers):
            values = generator.standard_normal((rows, SIZE), np.float32) * np.float32((2 / rows) ** 0.5)
            tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=values.shape)
            tensor.data_location = TensorProto.EXTERNAL
            facts = {"location": beside.name, "offset": file.tell(), "length": values.nbytes}
            for key, value in facts.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(values.data)
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"]))
            nodes.append(helper.make_node("Relu", [f"m{number}"], [f"r{number}"]))
            last, rows = f"r{number}", SIZE
    ends = (
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", SIZE])],
    )
    graph = helper.make_graph(nodes, "external_weights", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


if __name__ == "__main__":
    external_weights(Path(sys.argv[1]), int(sys.argv[2]))
