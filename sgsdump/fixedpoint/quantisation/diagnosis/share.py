"""Share of a model that became integers, by weights and by multiplications, and the bits of each convolution.

Operators that stay in float32 in the fixed model (an LSTM, branches of an If, products of two tensors in attention)
have no error there. This tells nothing about their error on the chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto

from sgsdump.errors import listed
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.quant_plan import RULE
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.models.fixed_facts import FixedFacts
from sgsdump.models.graph import Graph, attribute
from sgsdump.models.model import Model
from sgsdump.reports.text import percent

RECURRENT = ("LSTM", "GRU", "RNN")
PRODUCT = "MatMul of two tensors"
_FLOATS = (1, 10, 11, 16)  # of TensorProto: float32, float16, float64, bfloat16


@dataclass(frozen=True)
class IntegerShare:
    """The share of a model that became integers.

    weights       share of all weights that became integers, or None.
    macs          share of multiplications that became integers; None if unknown.
    floats        by type, the number of operators with weights and products of two tensors that stayed in float32.
    convolutions  number of convolutions that became integers; ``wide``: how many of these have 16 bits.
    """

    weights: float | None
    macs: float | None
    floats: dict[str, int]
    convolutions: int
    wide: int

    @property
    def whole(self) -> bool:
        return not self.floats


@dataclass(frozen=True)
class ConvolutionBits:
    """The bits of a convolution, by the tensor that its operator stores.

    input      its first input; the bits are also those of the weights.
    bits       8 or 16.
    raised_by  RULE, CONFIG, QUANT_FILE or LEVEL of ``quant_plan``; "" for 8 bits.
    rule       the rule, if a rule raised it.
    """

    input: str
    bits: int
    raised_by: str = ""
    rule: str = ""


def bits_by_layer(facts: FixedFacts | None) -> dict[str, ConvolutionBits]:
    """Return the bits of a fixed model's convolutions, by the tensor that the operator stores."""
    found = {}
    for operator in facts.operators if facts is not None else ():
        types = [facts.weights[name].dtype for name in operator.constants if name in facts.weights] if facts else []
        if not types or not operator.inputs or not operator.outputs:
            continue
        name, origin = operator.inputs[0], facts.origin if facts else None
        raised_by = origin.raised_by.get(name, "") if origin is not None and types[0] == INT16 else ""
        rule = origin.decided.get(name, "") if origin is not None and raised_by == RULE else ""
        found[operator.outputs[0]] = ConvolutionBits(name, 16 if types[0] == INT16 else 8, raised_by, rule)
    return found


def float_layers(model: Model, facts: FixedFacts | None) -> dict[str, str]:
    """Return the input of each float32 operator that has weights or multiplies two tensors, by its output."""
    graph, done = Graph(deployed(model)), facts.convolutions if facts else {}
    stayed = (node for node in graph.nodes if node.output and node.output[0] not in done)
    return {
        n.output[0]: n.input[0] if n.input else "" for n in stayed if any(_weights(graph, n)) or _is_product(graph, n)
    }


def integer_share(model: Model, facts: FixedFacts | None) -> IntegerShare:
    graph = Graph(deployed(model))
    done = facts.convolutions if facts else {}
    shapes = _shapes(graph)
    sizes, macs = {True: 0, False: 0}, {True: 0, False: 0}
    known, floats = True, dict[str, int]()
    for node in graph.nodes:
        weights = sum(_weights(graph, node))
        if not weights and _is_product(graph, node):
            floats[PRODUCT] = floats.get(PRODUCT, 0) + 1
            count = _product_macs(node, shapes)
            known = known and count is not None
            macs[False] += count or 0
        if not weights:
            continue
        became = bool(node.output) and node.output[0] in done
        sizes[became] += weights
        if not became:
            floats[node.op_type] = floats.get(node.op_type, 0) + 1
        count = _macs(graph, node, weights, shapes)
        known = known and count is not None
        macs[became] += count or 0
    wide = sum(weights.dtype == INT16 for weights in facts.weights.values()) if facts else 0
    return IntegerShare(
        _part(sizes), _part(macs) if known else None, floats, len(facts.weights) if facts else 0, int(wide)
    )


def _is_product(graph: Graph, node: NodeProto) -> bool:
    """Return whether a node multiplies two computed tensors."""
    return node.op_type in ("MatMul", "Gemm") and not any(name in graph.constants for name in node.input[:2])


def _product_macs(node: NodeProto, shapes: dict[str, list[int]]) -> int | None:
    first, made = shapes.get(node.input[0]), shapes.get(node.output[0])
    if not first or not made:
        return None
    turned = node.op_type == "Gemm" and bool(attribute(node, "transA", 0))
    return int(np.prod(made)) * first[0 if turned else -1]


def _part(sums: dict[bool, int]) -> float | None:
    whole = sums[True] + sums[False]
    return sums[True] / whole if whole else None


def _weights(graph: Graph, node: NodeProto) -> Iterator[int]:
    """Yield the sizes of a node's weights: constants of two or more axes, including those in its branches.

    Operators that only move, add or scale have no weights.
    """
    subgraphs = [each.g for each in node.attribute if each.HasField("g")]
    if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul", *RECURRENT):
        for name in node.input:
            tensor = graph.constants.get(name)
            if tensor is not None and tensor.data_type in _FLOATS and len(tensor.dims) >= 2:
                yield int(np.prod(tensor.dims))
    for subgraph in subgraphs:
        yield from _inside(subgraph)


def _inside(graph: GraphProto) -> Iterator[int]:
    constants = [*graph.initializer]
    constants += [a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")]
    yield from (int(np.prod(t.dims)) for t in constants if t.data_type in _FLOATS and len(t.dims) >= 2)
    for node in graph.node:
        for each in node.attribute:
            if each.HasField("g"):
                yield from _inside(each.g)


def _macs(graph: Graph, node: NodeProto, weights: int, shapes: dict[str, list[int]]) -> int | None:
    if node.op_type in RECURRENT:
        shape = shapes.get(node.input[0])
        return weights * shape[0] * shape[1] if shape else None
    if any(each.HasField("g") for each in node.attribute):
        return None
    shape = shapes.get(node.input[0] if node.op_type == "ConvTranspose" else node.output[0])
    if not shape:
        return None
    channels = shape[1] if node.op_type in ("Conv", "ConvTranspose") else shape[-1]
    return weights * int(np.prod(shape)) // max(channels, 1)


def _shapes(graph: Graph) -> dict[str, list[int]]:
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(graph.proto).graph
    except Exception:  # shapes only serve one figure
        return {}
    shapes = {}
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if dims and all(size > 0 for size in dims[1:]):
            shapes[info.name] = [dims[0] or 1, *dims[1:]]
    return shapes


MOST_NAMED = 4


def share_text(share: IntegerShare) -> str:
    """Return which part of a model became integers and what stayed in float32; "" if everything became integers."""
    if share.weights is None or not share.convolutions:
        return "no weight became an integer, so the whole model runs in float32 here"
    if share.whole:
        return ""
    kinds = listed([f"{count} {kind}" for kind, count in share.floats.items()], MOST_NAMED)
    macs = f" and {percent(share.macs)} of the multiplications" if share.macs is not None else ""
    return (
        f"{percent(share.weights)} of the weights{macs} became integers; {kinds} stayed in float32. "
        "The result does not contain the error of these float32 operators on the chip"
    )
