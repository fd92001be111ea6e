"""A constant broadcasts as ONNX says, whatever its rank and wherever it stands, and any operator may read the picture:
what the fixed model computes has the float model's shape, and about its values, in plans of 8 and of 16 bits."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.types import Range

F = np.float32
SIZE = (1, 3, 6, 5)
SHAPES = [(), (1,), (1, 1, 1, 1), (1, 1, 1, 1, 1), (3, 1, 1), (1, 3, 1, 1), (5,), (6, 5), (2, 1, 1, 1), (1, 1, 3, 1, 1)]
OPERATORS = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Sum", "Mean", "Clip")
BYTES = np.random.default_rng(0).integers(0, 256, SIZE).astype(F)
PICTURE = InputConfig((ModelInput("data", "RGB", "RGB", (110.0, 120.0, 130.0), (60.0, 60.0, 60.0)),))
REAL = (BYTES - F([110, 120, 130]).reshape(1, 3, 1, 1)) / F(60)


def constant(shape):
    return (
        np.linspace(0.5, 2, int(np.prod(shape)), dtype=F).reshape(shape) if np.prod(shape) > 1 else np.full(shape, 2, F)
    )


def net(op_type, shape, swapped, where):
    """The operator on the picture itself, behind a convolution, or at the end."""
    first = "data" if where == "on the picture" else "c"
    if op_type == "Pow":
        nodes = [node("Abs", [first], "p")]
        first = "p"
    else:
        nodes = []
    inputs = [first, *(["k", "top"] if op_type == "Clip" else ["k"])]
    nodes.append(node(op_type, inputs[::-1] if swapped else inputs, "y"))
    nodes = nodes if where == "on the picture" else [conv("c", "data"), *nodes]
    outputs = ["y"]
    if where == "between convolutions" and len(shape) < 5:
        nodes.append(conv("z", "y"))
        outputs = ["z"]
    constants = {"k": constant(shape), "top": F(3), **weights("c", (3, 3, 1, 1)), **weights("z", (4, 3, 1, 1))}
    used = {name for each in nodes for name in each.input}
    return model(nodes, {n: a for n, a in constants.items() if n in used}, {"data": SIZE}, outputs)


def cases():
    for op_type in OPERATORS:
        for shape in SHAPES:
            if op_type == "Clip" and len(shape):
                continue
            if op_type == "PRelu" and (len(shape) > 4 or np.prod(shape) == 2):
                continue
            yield op_type, shape, False
            if op_type in ("Sub", "Mul", "Pow"):
                yield op_type, shape, True


@pytest.mark.parametrize("where", ["on the picture", "behind a convolution", "between convolutions"])
@pytest.mark.parametrize(("op_type", "shape", "swapped"), list(cases()))
def test_a_constant_broadcasts(op_type, shape, swapped, where):
    holds(net(op_type, shape, swapped, where))


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("bias", [(), (1,), (4,), (1, 1), (1, 4), ("rows", 1), ("rows", 4)])
def test_the_bias_of_a_gemm_broadcasts(bias, rows):
    shape = tuple(rows if each == "rows" else each for each in bias)
    nodes = [
        conv("c", "data"),
        node("Reshape", ["c", "s"], "r"),
        node("Gemm", ["r", "w", "k"], "y", beta=0.5),
    ]
    constants = {"k": constant(shape), "s": np.array([rows, -1]), **weights("c", (4, 3, 1, 1))}
    constants["w"] = np.random.default_rng(1).normal(0, 0.3, (120 // rows, 4)).astype(F)
    holds(model(nodes, constants, {"data": SIZE}, ["y"]))


@pytest.mark.parametrize("shape", [(5,), (5, 4), (1, 5, 4), (1, 4, 5, 4), (2, 1, 5, 4)])
def test_the_matrix_of_a_matmul_broadcasts(shape):
    nodes = [conv("c", "data"), node("MatMul", ["c", "k"], "y")]
    constants = {"k": np.random.default_rng(1).normal(0, 0.3, shape).astype(F), **weights("c", (4, 3, 1, 1))}
    holds(model(nodes, constants, {"data": SIZE}, ["y"]))


@pytest.mark.parametrize("op_type", ["Max", "Min", "Clip"])
def test_a_constant_may_be_infinite(op_type):
    """The limit that changes nothing: it has no range, and needs none."""
    limits = F([-np.inf]) if op_type == "Max" else F([np.inf])
    inputs = ["c", "", "k"] if op_type == "Clip" else ["c", "k"]
    nodes = [conv("c", "data"), node(op_type, inputs, "x"), conv("y", "x")]
    constants = {"k": limits.reshape(() if op_type == "Clip" else (1,))}
    constants |= {**weights("c", (3, 3, 1, 1)), **weights("y", (4, 3, 1, 1))}
    holds(model(nodes, constants, {"data": SIZE}, ["y"]))


def in_a_branch():
    """An If whose branch reads the picture, as another scope's."""
    unknown = helper.make_tensor_value_info("taken", TensorProto.FLOAT, None)
    taken = helper.make_graph([node("Mul", ["data", "data"], "taken")], "then", [], [unknown])
    other = onnx.GraphProto()
    other.CopyFrom(taken)
    other.node[0].output[0] = other.output[0].name = "other"
    return helper.make_node("If", ["yes"], ["x"], then_branch=taken, else_branch=other)


READERS = {
    "BatchNormalization": (node("BatchNormalization", ["data", "v", "v", "v", "v"], "x"), {"v": F([0.5, 1, 2])}),
    "linear Resize": (node("Resize", ["data", "", "s"], "x", mode="linear"), {"s": F([1, 1, 2, 2])}),
    "reflect Pad": (node("Pad", ["data", "p"], "x", mode="reflect"), {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}),
    "MaxPool": (node("MaxPool", ["data"], "x", kernel_shape=[2, 2]), {}),
    "Div": (node("Div", ["data", "d"], "x"), {"d": F(2)}),
    "If": (in_a_branch(), {"yes": np.array(True)}),
}


@pytest.mark.parametrize("reader", READERS)
def test_an_operator_without_a_rule_may_read_the_picture(reader):
    first, constants = READERS[reader]
    constants = {**constants, **weights("c", (4, 3, 1, 1))}
    nodes = [first, conv("c", "x"), node("Relu", ["c"], "y")]
    holds(model(nodes, constants, {"data": SIZE}, ["y"]))


def test_an_operator_without_a_rule_reads_the_stored_integers_of_an_input_of_numbers():
    float_model = simplify(model([node("Div", ["data", "d"], "y")], {"d": F(2)}, {"data": (1, 4)}, ["y"]))
    numbers = InputConfig((ModelInput("data", "RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC", (), ()),))
    fixed = make_fixed(float_model, {"data": Range.of(-32767, 32767), "y": Range.of(-3, 3)}, numbers).proto
    np.testing.assert_array_equal(run(fixed, F([[0.4, 0.6, 1.4, 1.6]])), run(fixed, F([[0, 0, 1, 1]])))


def holds(net):
    float_model = simplify(net)
    ranges = measure_ranges(float_model, [("picture", {"data": REAL})])
    fixed = make_fixed(float_model, ranges, PICTURE)
    want = run(float_model.proto, REAL)
    agree(run(fixed.proto, BYTES), want)
    if any(each.op_type == "Conv" for each in float_model.proto.graph.node):
        trial = PlanTrial(float_model, ranges, PICTURE, per_channel=True)
        raised = [domain.name for domain in trial.domains]
        for plan in ((), raised):
            agree(trial.run(plan, {"data": BYTES})[float_model.proto.graph.output[0].name], want)


def agree(got, want):
    assert got.shape == want.shape
    assert np.sum((got - want) ** 2.0) < 1e-3 * np.sum(want**2.0)


def run(proto, data):
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"data": data})[0]
