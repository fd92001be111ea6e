"""Save a part of a model as a stand-alone test case.

    FOLDER/model.onnx                        sub-model with its weights
    FOLDER/test_data_set_0/input_0.pb …      one TensorProto per input, in order
    FOLDER/test_data_set_0/output_0.pb …     one TensorProto per output, as the executor computed it

The layout is that of https://github.com/onnx/onnx/tree/main/onnx/backend/test/data and of the ONNX model zoo. It is
read by onnx's backend test runner, onnxruntime's ``onnx_test_runner`` and accelerators' own test tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.executors.runner import Layer
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.models.external_data import external_bytes, in_one_piece
from sgsdump.models.graph import weight_names
from sgsdump.models.model import Model, fitted, graph_inputs
from sgsdump.models.passes.extract import Extractor
from sgsdump.pipeline.run import run
from sgsdump.pipeline.steps import Engine

if TYPE_CHECKING:
    import onnx

DATA_SET = "test_data_set_0"
FILE_LIMIT = 2**31 - 1
# First IR version that does not list weights among the inputs; every input of a test case needs a file.
FIRST_IR_WITH_OWN_WEIGHTS = 4


def save_test_case(
    model: Model,
    engine: Engine,
    feed: Mapping[str, np.ndarray],
    output_names: Sequence[str],
    folder: Path,
    depth: int | None = None,
) -> list[Layer]:
    """Write the sub-model of ``output_names`` as a test case, completely or not at all; return the expected outputs.

    feed   input name -> array for the whole model.
    depth  number of last nodes to keep, without Constant nodes; the inputs are then the values at the cut in a run of
           the whole model. None keeps all nodes that lead to the outputs.

    Raises ConfigError for an unknown name, InputError for a feed that does not fit, ModelError if the model cannot be
    cut, run or written as one file, and OutputError.
    """
    extractor = Extractor(model.proto)
    cut = extractor.last_inputs(output_names, depth) or []
    values = _values(model, engine, feed, cut)
    proto = extractor.extract(cut, output_names, {name: _type(name, values[name]) for name in cut if name not in feed})
    # Fail early, before gigabytes are loaded and run.
    if external_bytes(proto) + proto.ByteSize() > FILE_LIMIT:
        raise _too_large(folder)
    proto = in_one_piece(proto, str(model.folder) if model.folder else None)
    _own_weights(proto)
    inputs = graph_inputs(proto)
    fed = fitted({spec.name: values[spec.name] for spec in inputs}, inputs)
    names = [info.name for info in proto.graph.output]
    with engine.opened(None) as ready:
        arrays = dict(zip(names, ready.execute(proto, names, fed)))
    for info in proto.graph.output:
        info.type.CopyFrom(_type(info.name, arrays[info.name]))
    _write(proto, [fed[spec.name] for spec in inputs], list(arrays.values()), folder)
    makers = {name: node for node in proto.graph.node for name in node.output}
    return [Layer(n, makers[n].name, makers[n].op_type, a) for n, a in arrays.items() if n in makers]


def _values(model: Model, engine: Engine, feed: Mapping[str, np.ndarray], cut: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the feed, and the values at the cut in a run of the whole model."""
    values = dict(feed)
    inner = [name for name in cut if name not in feed]
    for layer in run(model, engine, feed, inner) if inner else ():
        if not isinstance(layer, Layer):
            raise ModelError(f"cannot cut the model at {layer.name!r}: {layer.reason}; choose another depth")
        values[layer.name] = layer.array
    return values


def _type(name: str, array: np.ndarray) -> onnx.TypeProto:
    from onnx import helper

    try:
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    except (KeyError, ValueError, TypeError):
        raise ModelError(f"tensor {name!r} is {array.dtype}, which this version of onnx cannot write") from None


def _own_weights(proto: onnx.ModelProto) -> None:
    """Remove the weights that older models list among their inputs from that list, in place."""
    weights = weight_names(proto.graph)
    kept = [info for info in proto.graph.input if info.name not in weights]
    if len(kept) < len(proto.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        proto.ir_version = max(proto.ir_version, FIRST_IR_WITH_OWN_WEIGHTS)


def _write(proto: onnx.ModelProto, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], folder: Path) -> None:
    from google.protobuf.message import EncodeError
    from onnx import numpy_helper

    with replacing_folder(folder) as new:
        data = new / DATA_SET
        data.mkdir()
        try:
            (new / "model.onnx").write_bytes(proto.SerializeToString())
            for kind, infos, arrays in (("input", proto.graph.input, inputs), ("output", proto.graph.output, outputs)):
                for index, (info, array) in enumerate(zip(infos, arrays)):
                    tensor = numpy_helper.from_array(np.asarray(array, order="C"), info.name)
                    (data / f"{kind}_{index}.pb").write_bytes(tensor.SerializeToString())
        except (EncodeError, ValueError) as error:
            raise _too_large(folder) from error


def _too_large(folder: Path) -> ModelError:
    return ModelError(
        f"cannot write {folder}: the model or one of its tensors exceeds the 2 GiB limit of an ONNX file; "
        f"keep fewer nodes (--depth)"
    )
