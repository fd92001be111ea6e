"""The nodes of an ONNX model judged alone: onnxruntime's results are within the bounds, planted errors are outside."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from sgsdump import Record, Tensor
from sgsdump.replay.onnx_operators import check_nodes

CURVES = "Sigmoid Tanh Erf Exp Softplus Elu HardSwish Gelu Sqrt Log Reciprocal LeakyRelu Relu Abs Sin Cos Floor".split()


def model():
    """An image through most kinds of operators."""
    rng = np.random.default_rng(0)

    def weight(name, *shape, positive=False):
        values = rng.normal(size=shape).astype(np.float32)
        return numpy_helper.from_array(np.abs(values) + np.float32(0.1) if positive else values, name)

    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["conv", "s", "b", "m", "v"], ["bn"]),
        node("Conv", ["bn", "d"], ["depthwise"], group=6),
        node("MaxPool", ["bn"], ["pool"], kernel_shape=[2, 2]),
        node("AveragePool", ["bn"], ["mean"], kernel_shape=[2, 2]),
        node("GlobalAveragePool", ["bn"], ["global"]),
        node("Flatten", ["global"], ["flat"]),
        node("Gemm", ["flat", "g", "c"], ["gemm"], transB=1),
        node("MatMul", ["flat", "p"], ["product"]),
        node("Softmax", ["gemm"], ["softmax"], axis=1),
        node("LogSoftmax", ["gemm"], ["log_softmax"], axis=1),
        node("LayerNormalization", ["product", "ls", "lb"], ["ln"], axis=-1),
        node("Add", ["gemm", "c"], ["add"]),
        node("Sub", ["gemm", "c"], ["sub"]),
        node("Mul", ["gemm", "c"], ["mul"]),
        node("Div", ["gemm", "c"], ["div"]),
        node("Pow", ["gemm", "two"], ["pow"]),
        node("ReduceMean", ["bn"], ["reduced"], axes=[2, 3]),
        node("Transpose", ["bn"], ["turned"], perm=[0, 2, 3, 1]),
        node("Concat", ["gemm", "add"], ["joined"], axis=1),
        node("Cast", ["gemm"], ["half"], to=TensorProto.FLOAT16),
        node("Abs", ["gemm"], ["positive"]),
        *[node(kind, ["positive" if kind in ("Sqrt", "Log") else "gemm"], [kind]) for kind in CURVES if kind != "Gelu"],
    ]
    weights = [weight("w", 6, 3, 3, 3), weight("b", 6), weight("s", 6), weight("m", 6), weight("v", 6, positive=True)]
    weights += [weight("d", 6, 1, 3, 3), weight("g", 5, 6), weight("c", 5), weight("p", 6, 7), weight("ls", 7)]
    weights += [weight("lb", 7), numpy_helper.from_array(np.float32(2), "two")]
    made = [helper.make_tensor_value_info(n.output[0], TensorProto.UNDEFINED, None) for n in nodes]
    for info, n in zip(made, nodes):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16 if n.output[0] == "half" else TensorProto.FLOAT
    fed = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 9, 9])
    graph = helper.make_graph(nodes, "net", [fed], made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def run():
    proto = model()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {"x": np.random.default_rng(1).normal(size=(2, 3, 9, 9)).astype(np.float32)}
    names = [output.name for output in session.get_outputs()]
    return proto, feed, dict(zip(names, session.run(names, feed)))


def records(values):
    return [Record("out", 0, n, name, Tensor.of(name, array)) for n, (name, array) in enumerate(values.items())]


def test_what_onnxruntime_computes_is_within(run):
    proto, feed, values = run
    check = check_nodes(proto, feed, records(values))
    assert check.unjudged == ()
    assert len(check.judged) == len(values)
    assert [(j.place.name, j.judgement) for j in check.outside] == []


@pytest.mark.parametrize(
    "name", ["conv", "bn", "depthwise", "gemm", "softmax", "ln", "mul", "Sigmoid", "turned", "half"]
)
def test_one_wrong_element_is_outside_and_nothing_after_it(run, name):
    proto, feed, values = run
    wrong = values[name].copy()
    wrong.reshape(-1)[1] += np.float32(0.01) * np.abs(wrong).max()
    check = check_nodes(proto, feed, records({**values, name: wrong}))
    assert name in [judged.place.name for judged in check.outside]
    (first, *_) = [judged for judged in check.outside if judged.place.name == name]
    assert (first.judgement.outside, first.judgement.index) == (1, 1)


def test_custom_random_and_lost_ones_are_listed():
    node = helper.make_node
    nodes = [
        node("RandomNormalLike", ["x"], ["r"]),
        node("Mine", ["x"], ["m"], domain="mine"),
        node("Det", ["x"], ["d"]),
        node("Relu", ["gone"], ["l"]),
    ]
    graph = helper.make_graph(nodes, "net", [], [])
    given = records({name: np.zeros((2, 2), np.float32) for name in "rmdl"})
    check = check_nodes(helper.make_model(graph), {"x": np.zeros((2, 2), np.float32)}, given)
    assert [unjudged.why for unjudged in check.unjudged] == ["random", "custom", "no bound", "no values"]
