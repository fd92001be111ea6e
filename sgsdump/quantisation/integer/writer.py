"""Write a quant plan as the hardware computes it: an ONNX graph of standard operators whose numbers are its integers.

Every stored tensor ``X`` is ``X#stored`` (uint8 or int16), made by the rule of its operator (see ``walk``); a graph
output ``X`` is the float32 its integers mean. A picture input takes the raw bytes of the picture, as the SDK's fixed
model does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgsdump.models.graph import Graph, drop_unused_constants, mark_of, opset_of
from sgsdump.quantisation.fixed_facts import Origin
from sgsdump.quantisation.fixed_metadata import write_facts
from sgsdump.quantisation.integer.emitter import Emitter
from sgsdump.quantisation.integer.walk import Walk
from sgsdump.quantisation.pictures import Picture
from sgsdump.quantisation.quant_plan import QuantPlan
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, eq=False)
class Written:
    """``approximate``: an operator's output -> what is done in place of a rule of the hardware."""

    proto: ModelProto
    approximate: Mapping[str, str]


def write_integers(
    proto: ModelProto,
    plan: QuantPlan,
    ranges: Mapping[str, Range],
    channels: Mapping[str, Range],
    pictures: Mapping[str, Picture],
    keep_integer: frozenset[str] = frozenset(),
    origin: Origin | None = None,
) -> Written:
    """The fixed model of a float model (whose nodes ``plan.operators`` are).

    ranges        calibrated range of every float tensor, those inside fused chains too.
    channels      a convolution's output -> the range of each of its channels; its whole range where it is missing.
    keep_integer  graph outputs that leave as integers (dequantizations=FALSE).
    origin        what the plan was made from, to keep beside it in the model's metadata (see ``fixed_metadata``).
    """
    from onnx import ModelProto

    walk = Walk(Graph(proto), plan, ranges, channels, Emitter(opset_of(proto), mark_of(proto)))
    for name in walk.graph.inputs:
        if name in plan.tensors:
            walk.input(name, pictures.get(name))
    for operator in plan.operators:
        walk.operator(operator)
    walk.outputs(keep_integer)
    result = ModelProto()
    result.CopyFrom(proto)
    del result.graph.node[:]
    del result.graph.value_info[:]
    result.graph.node.extend(walk.emit.nodes)
    result.graph.initializer.extend(walk.emit.constants)
    _integer_outputs(result, keep_integer & set(plan.tensors), walk)
    drop_unused_constants(result)
    write_facts(walk.facts(pictures, origin, {tensor.name for tensor in result.graph.initializer}), result)
    return Written(result, walk.approximate)


def _integer_outputs(proto: ModelProto, names: frozenset[str] | set[str], walk: Walk) -> None:
    from onnx import helper

    for output in proto.graph.output:
        if output.name in names:
            dtype = walk.plan.tensors[output.name].dtype
            output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
            output.name = walk.emit.stored(output.name)
