"""Judge the nodes of an ONNX model's run one by one, with onnx's own reference evaluator.

Each node gets its recorded inputs (tensors of the run, feeds and weights), with floats widened to float64.
``bounds.py`` has the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.replay.bounds import ONNX, Bound, terms
from sgsdump.replay.check import Check, Judged, Place, Unjudged, judged_outputs
from sgsdump.replay.judgement import Reference
from sgsdump.tensors.dtypes import is_float

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

RANDOM = frozenset(
    ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
)
_CUSTOM, _STANDARD = "custom", ("", "ai.onnx")
_ADDING = {"Sub": "Add"}
_COUNTING = ("Reshape", "Expand", "Tile", "Pad", "ConstantOfShape", "Range", "OneHot")
_MOST_OF_RECORDED = 1 << 28  # limit for the elements of a node whose size depends on recorded arguments


def check_nodes(model: ModelProto, values: Mapping[str, np.ndarray], records: Sequence[Record]) -> Check:
    """Judge the nodes whose outputs are among ``records``; ``values`` are the run's feeds by name."""
    from onnx import numpy_helper

    known = {**{t.name: numpy_helper.to_array(t) for t in model.graph.initializer if _is_inside(t)}, **values}
    made = {record.name: record for record in records if record.io == "out"}
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    judged: list[Judged] = []
    unjudged: list[Unjudged] = []
    for node in model.graph.node:
        outputs = [made[name] for name in node.output if name in made]
        if not outputs:
            continue
        for found in _of_node(node, outputs, known, made, opsets):
            (unjudged if isinstance(found, Unjudged) else judged).append(found)  # type: ignore[arg-type]
    return Check(tuple(judged), tuple(unjudged))


def _is_inside(tensor: Any) -> bool:
    return not tensor.external_data


def _of_node(
    node: NodeProto,
    outputs: Sequence[Record],
    known: Mapping[str, np.ndarray],
    made: Mapping[str, Record],
    opsets: Mapping[str, int],
) -> Iterator[Judged | Unjudged]:
    place = Place(outputs[0].op_index, outputs[0].name, node.op_type)
    bound = ONNX.get(node.op_type)
    if node.op_type in RANDOM:
        yield Unjudged(place, "random")
        return
    if node.domain not in _STANDARD or bound is None:
        yield Unjudged(place, "custom" if node.domain not in _STANDARD else "no bound")
        return
    if len(outputs) != len([name for name in node.output if name]) or outputs[0].name != node.output[0]:
        yield Unjudged(place, "no values")
        return
    inputs = {name: known[name] if name in known else _values(made.get(name)) for name in node.input if name}
    if any(values is None for values in inputs.values()):
        yield Unjudged(place, "no values")
        return
    try:
        found = _references(node, bound, inputs, opsets, outputs)  # type: ignore[arg-type]
    except Exception as error:  # the evaluator raises all kinds of errors
        text = str(error).splitlines()[0][:200] if str(error) else ""
        yield Unjudged(place, "refused", f"{type(error).__name__}: {text}")
        return
    reads = [values for values in inputs.values() if values is not None and values.dtype.kind == "f"]
    yield from judged_outputs(place, outputs, [[reference] for reference in found], reads)


def _values(record: Record | None) -> np.ndarray | None:
    if record is None or record.tensor.statistics is not None:
        return None
    return record.tensor.stored_view()


def _references(
    node: NodeProto,
    bound: Bound,
    inputs: Mapping[str, np.ndarray],
    opsets: Mapping[str, int],
    outputs: Sequence[Record],
) -> list[Reference]:
    if node.op_type in _COUNTING and sum(math.prod(o.tensor.shape or ()) for o in outputs) > _MOST_OF_RECORDED:
        raise ValueError("the operator's result is too large")
    wide = {name: values.astype(np.float64) if is_float(values.dtype) else values for name, values in inputs.items()}
    results = _run(node, wide, opsets)
    if node.op_type in MAGNITUDES:
        reads = [wide[name] if name else None for name in node.input]
        size = MAGNITUDES[node.op_type](reads, results[0], node)
        return [Reference(results[0], size, bound.units, bound.roundings)]
    if bound.magnitude == "exact" or not is_float(results[0].dtype):
        return [Reference(result) for result in results]
    if bound.magnitude == "result":
        return [Reference(result, None, bound.units, bound.roundings) for result in results]
    units = bound.units + (terms(_length(bound.length, wide, node, results[0])) if bound.length else 0.0)
    sizes = _run(node, {name: np.abs(values) if is_float(values.dtype) else values for name, values in wide.items()},
                 opsets, _ADDING.get(node.op_type))  # fmt: skip
    return [Reference(r, np.abs(s), units, bound.roundings) for r, s in zip(results, sizes)]


def _run(
    node: NodeProto, inputs: Mapping[str, np.ndarray], opsets: Mapping[str, int], op_type: str | None = None
) -> list[np.ndarray]:
    from onnx import NodeProto, TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    copy = NodeProto()
    copy.CopyFrom(node)
    copy.op_type = op_type or node.op_type
    if node.op_type == "Cast":
        _widen(copy)
    reads, makes = (
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in dict.fromkeys(names) if name]
        for names in (node.input, node.output)
    )
    graph = helper.make_graph([copy], "node", reads, makes)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items() if domain in _STANDARD]
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(helper.make_model(graph, opset_imports=imports)).run(None, dict(inputs)))


def _widen(cast: NodeProto) -> None:
    """Change a cast to a float type into one to float64."""
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    for attribute in cast.attribute:
        if attribute.name == "to" and attribute.i in floats:
            attribute.i = TensorProto.DOUBLE


def _length(how: str, inputs: Mapping[str, np.ndarray], node: NodeProto, result: np.ndarray) -> int:
    """Return the number of terms of a sum."""
    shapes = [inputs[name].shape for name in node.input if name]
    if how == "product":
        transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return shapes[0][0 if transposed else -1] if shapes[0] else 1
    if how == "convolution":
        return math.prod(shapes[1][1:]) if node.op_type == "Conv" else math.prod(shapes[1])
    if how == "axis":
        return max([1, *(length for shape in shapes for length in shape)])
    return max(1, math.ceil(max(map(math.prod, shapes), default=1) / max(result.size, 1)))


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


Reads = Sequence["np.ndarray | None"]


def _softmax(reads: Reads, result: np.ndarray, node: NodeProto) -> np.ndarray:
    x, axis = reads[0], _attribute(node, "axis", -1)
    assert x is not None, "it has an input"
    with np.errstate(all="ignore"):
        below = np.nan_to_num(np.abs(x - x.max(axis, keepdims=True)), posinf=0.0)
    units = terms(x.shape[axis]) + 8 + below
    if node.op_type == "Softmax":
        return result * units
    return units + np.abs(x) + np.abs(result)


def _batch_normalisation(reads: Reads, result: np.ndarray, node: NodeProto) -> np.ndarray:
    x, scale, bias, mean, variance = reads[:5]
    assert x is not None and scale is not None and bias is not None and mean is not None and variance is not None
    shape = (1, -1, *[1] * (x.ndim - 2))
    factor = np.abs(scale) / np.sqrt(variance + _attribute(node, "epsilon", 1e-5))
    size: np.ndarray = (np.abs(x) + np.abs(mean).reshape(shape)) * factor.reshape(shape) + np.abs(bias).reshape(shape)
    return size


def _layer_normalisation(reads: Reads, result: np.ndarray, node: NodeProto) -> np.ndarray:
    x, scale = reads[0], reads[1]
    assert x is not None and scale is not None
    axes = tuple(range(_attribute(node, "axis", -1) % x.ndim, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    root = 1 / np.sqrt(variance + _attribute(node, "epsilon", 1e-5))
    count = terms(math.prod(x.shape[axis] for axis in axes))
    away = np.sqrt(1 + np.minimum(mean**2 / np.maximum(variance, 1e-300), 1e12))
    off_mean = count * np.abs(x).mean(axes, keepdims=True)
    inner = np.abs(x - mean) * root * (count * away + 8) + 2 * (np.abs(x) + np.abs(mean) + off_mean) * root
    size: np.ndarray = inner * np.abs(scale) + 4 * np.abs(result)
    return size


def _at_least_one(reads: Reads, result: np.ndarray, node: NodeProto) -> np.ndarray:
    return np.maximum(np.abs(result), 1.0)


def _of_input(reads: Reads, result: np.ndarray, node: NodeProto) -> np.ndarray:
    assert reads[0] is not None, "it has an input"
    return np.abs(reads[0]) + 1.0


MAGNITUDES: Mapping[str, Callable[[Reads, np.ndarray, NodeProto], np.ndarray]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "BatchNormalization": _batch_normalisation,
    "LayerNormalization": _layer_normalisation,
    **dict.fromkeys(("Sin", "Cos", "Sigmoid", "Erf", "Tanh", "Elu", "HardSigmoid"), _at_least_one),
    **dict.fromkeys(("Gelu", "HardSwish", "Softplus", "Selu"), _of_input),
}
