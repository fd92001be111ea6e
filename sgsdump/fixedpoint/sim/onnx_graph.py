"""The float model of a .sim file as ONNX, with the file's tensor names and the SDK's order of operators.

Further facts are in the model's metadata (``models/sim_facts``). The model is therefore the same when opened from the
.sim file or from the ONNX file that ``convert`` writes of it.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from sgsdump.errors import FormatError, ModelError
from sgsdump.fixedpoint.sim.builder import TO_NCHW, TO_NHWC, Builder
from sgsdump.fixedpoint.sim.file import INTEGER_KINDS, SimFile, SimOperator, SimTensor
from sgsdump.fixedpoint.sim.nodes import BUILDERS
from sgsdump.models.fixed_facts import DumpedOperator
from sgsdump.models.model import Model
from sgsdump.models.sim_facts import ShownConstant, SimFacts, write_facts

OPSET = 15
_IR_VERSION = 8


def float_model(sim: SimFile) -> Model:
    """Return the float model of a float.sim, cmodel_float.sim or Debug_float.sim.

    Raises ModelError for a file that is damaged, has an unknown operator, or holds integers.
    """
    if sim.kind in INTEGER_KINDS:
        raise ModelError(f"{sim.path} is a fixed model. For the float model, pass float.sim")
    builder = Builder(sim)
    proto = build(builder)
    try:
        shown = shown_constants(builder)
    except FormatError as error:
        raise ModelError(f"{sim.path}: the .sim model {error}. Convert the model again") from None
    write_facts(SimFacts(dumped_operators(sim), shown, planned_types(sim)), proto)
    names = frozenset(tensor.name for tensor in sim.tensors)
    return Model(proto, sim.path, blobs=names)


def build(builder: Builder) -> onnx.ModelProto:
    """Return the graph of a builder's file. Raises ModelError."""
    sim = builder.sim
    try:
        for operator in ordered(sim):
            build_operator = BUILDERS.get(operator.kind)
            if build_operator is None:
                raise ModelError(
                    f"{sim.path}: unknown operator {operator.kind} with output "
                    f"{_made(sim, operator)!r}. Please report this operator with a small .sim file of "
                    "your own that contains the operator"
                )
            start = len(builder.nodes)
            build_operator(builder, operator)
            builder.spans.append((operator, range(start, len(builder.nodes))))
        return _proto(builder)
    except FormatError as error:
        raise ModelError(f"{sim.path}: the .sim model {error}. Convert the model again") from None


def ordered(sim: SimFile) -> tuple[SimOperator, ...]:
    """Return the operators in file order. Raises FormatError if one reads the output of a later one."""
    makers = {index for operator in sim.operators for index in operator.outputs}
    made: set[int] = set()
    for operator in sim.operators:
        early = [i for i in operator.inputs if i in makers and i not in made and not sim.tensors[i].is_constant]
        if early or made.intersection(operator.outputs):
            raise FormatError(
                f"has operators out of order at {_made(sim, operator)!r}: an operator must come after the "
                "operators that compute its inputs"
            )
        made.update(operator.outputs)
    return sim.operators


def _made(sim: SimFile, operator: SimOperator) -> str:
    return sim.tensors[operator.outputs[0]].name if operator.outputs else ""


def _proto(builder: Builder) -> onnx.ModelProto:
    sim = builder.sim
    made = {name for node in builder.nodes for name in node.output}
    # The file also lists an output whose operator was fused into the next one. No operator makes that output.
    ends = [sim.tensors[index].name for index in dict.fromkeys(sim.outputs) if sim.tensors[index].name in made]
    if not ends:
        raise FormatError("has no output that an operator computes")
    known = {*made, *builder.constants, *(sim.tensors[index].name for index in sim.inputs)}
    for node in builder.nodes:
        lost = next((name for name in node.input if name and name not in known), None)
        if lost is not None:
            raise FormatError(f"has the tensor {lost!r}, which no operator computes")

    def declared(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        sizes = [shape[axis] for axis in TO_NCHW] if len(shape) == 4 else list(shape)
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes)

    inputs = [declared(sim.tensors[i].name, sim.tensors[i].shape) for i in dict.fromkeys(sim.inputs)]
    outputs = [declared(name, builder.shapes[name]) for name in ends]
    graph = helper.make_graph(builder.nodes, "sim", inputs, outputs, list(builder.constants.values()))
    for name, shape in builder.shapes.items():
        graph.value_info.append(declared(name, shape))
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION, producer_name="sgsdump"
    )


def dumped_operators(sim: SimFile) -> tuple[DumpedOperator, ...]:
    """Return the operators as the SDK's float simulator dumps them, without fusion."""
    return tuple(dumped_operator(sim, operator) for operator in sim.operators)


def dumped_operator(sim: SimFile, operator: SimOperator) -> DumpedOperator:
    """Return an operator as it is dumped, with its constants under the names of the file."""
    tensors = [sim.tensors[index] for index in operator.inputs if index >= 0]
    inputs, constants = (tuple(t.name for t in tensors if t.is_constant == kind) for kind in (False, True))
    reads = tuple(tensor.name for tensor in tensors)
    outputs = tuple(sim.tensors[index].name for index in operator.outputs)
    reads = () if reads == (*inputs, *constants) else reads
    return DumpedOperator(operator.kind, operator.kind, inputs, constants, outputs, reads)


def shown_constants(builder: Builder) -> dict[str, ShownConstant]:
    """Return how each constant that an operator reads is dumped. Sizes and positions are integers."""
    sim, shown = builder.sim, dict[str, ShownConstant]()
    for operator in sim.operators:
        for slot, index in enumerate(operator.inputs):
            tensor = sim.tensors[index]
            if index >= 0 and tensor.is_constant and tensor.name not in shown:
                shown[tensor.name] = _shown(builder, operator, slot, tensor)
    return shown


def _shown(builder: Builder, operator: SimOperator, slot: int, tensor: SimTensor) -> ShownConstant:
    initializer = builder.constants.get(tensor.name)
    if initializer is None:
        return ShownConstant("", (), tensor.shape, values=whole_numbers(builder.sim, tensor))
    rank = len(initializer.dims)
    if operator.kind == "DEPTHWISE_CONV_2D" and slot == 1:
        return ShownConstant(tensor.name, (1, 2, 3, 0), tensor.shape)
    size = int(np.prod(initializer.dims, dtype=np.int64))
    if slot == 2 and tensor.size == 2 * size:
        return ShownConstant(tensor.name, (), tensor.shape, ones=True)
    return ShownConstant(tensor.name, TO_NHWC if rank == 4 else (1, 2, 0) if rank == 3 else (), tensor.shape)


def whole_numbers(sim: SimFile, tensor: SimTensor) -> tuple[int, ...]:
    """Return a constant's values as integers. Raises FormatError for NaN and Inf."""
    values = sim.values(tensor).reshape(-1)
    if not np.isfinite(values).all():
        raise FormatError(f"has NaN or Inf in the constant {tensor.name!r}")
    return tuple(map(int, values))


def planned_types(sim: SimFile) -> dict[str, np.dtype]:
    """Return the type that the file plans for each variable, if any."""
    return {
        tensor.name: tensor.planned
        for tensor in sim.tensors
        if tensor.planned is not None and not tensor.is_constant and tensor.planned in (np.uint8, np.int16)
    }
