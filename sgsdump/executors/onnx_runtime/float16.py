"""Conversion of a float32 model to float16.

The model's inputs stay float32, each followed by a Cast (``graph_input_cast_0`` ...). All other tensors become float16
and keep their names, except the inputs of operators that onnxruntime runs in float32 only. As in onnxruntime's
converter, weights beyond float16's range are clipped to +-65504, and weights nearer to zero than 5.96e-8 become
+-5.96e-8.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence

import onnx
from onnx import NodeProto, TensorProto

from sgsdump.errors import ModelError
from sgsdump.executors.base import reason_of
from sgsdump.models.external_data import graph_tensors, in_one_piece
from sgsdump.models.graph import weight_names
from sgsdump.models.model import graph_inputs


def is_float16(proto: onnx.ModelProto) -> bool:
    """Return whether more weight elements are float16 than float32."""
    count = _elements(proto)
    return count[TensorProto.FLOAT16] > count[TensorProto.FLOAT]


def to_float16(proto: onnx.ModelProto, folder: str | None = None) -> onnx.ModelProto:
    """Return a float16 copy, or ``proto`` itself if it is float16 already.

    ``folder`` holds the external data files. Nodes keep their order; each inserted Cast follows the node that it reads.
    Raises ModelError for a model without float32 values, and if the converter fails.
    """
    if is_float16(proto):
        return proto
    inputs = [spec.name for spec in graph_inputs(proto) if spec.dtype == "float32"]
    if not inputs and not _elements(proto)[TensorProto.FLOAT]:
        raise ModelError("the model holds no float32 values; there is nothing to convert to float16")
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        # Infer shapes before external data are loaded: inference copies the model, and protobuf's limit is 2 GiB.
        whole = in_one_piece(onnx.shape_inference.infer_shapes(proto), folder)
        with warnings.catch_warnings():
            # The converter warns once per clipped weight.
            warnings.simplefilter("ignore")
            half = convert_float_to_float16(whole, keep_io_types=inputs, disable_shape_infer=True)
    except Exception as error:
        raise ModelError(f"onnxruntime's converter cannot convert the model to float16: {reason_of(error)}") from error
    _put_casts_in_place(half, len(proto.graph.node))
    return half


def _elements(proto: onnx.ModelProto) -> dict[int, int]:
    """Count the elements of the weights, constants included, by element type."""
    count: dict[int, int] = defaultdict(int)
    for tensor in graph_tensors(proto.graph):
        count[tensor.data_type] += math.prod(tensor.dims)
    return count


def _put_casts_in_place(half: onnx.ModelProto, count: int) -> None:
    """Move each Cast behind the node that it reads; the converter appends all Casts after the ``count`` nodes."""
    nodes: Sequence[NodeProto] = list(half.graph.node)
    casts: dict[str, list[NodeProto]] = defaultdict(list)
    for cast in nodes[count:]:
        casts[cast.input[0]].append(cast)

    def casts_after(names: Sequence[str]) -> Iterator[NodeProto]:
        for name in names:
            for cast in casts.pop(name, []):
                yield cast
                yield from casts_after(cast.output)

    available = [*(info.name for info in half.graph.input), *sorted(weight_names(half.graph))]
    ordered = list(casts_after(available))
    for node in nodes[:count]:
        ordered += [node, *casts_after(node.output)]
    if casts:
        raise ModelError(
            f"onnxruntime's converter cannot convert the model to float16: it loses {next(iter(casts))!r}, "
            f"a tensor inside the body of an If, Loop or Scan node"
        )
    del half.graph.node[:]
    half.graph.node.extend(ordered)
