"""Any operator may follow any other: with a rule of the hardware or without one, the fixed model computes about what
the float model does. Each case stands behind a convolution, twice in a row, and in front of another convolution. Not so
a Softmax: what reads it takes its values for others, as the SDK does (docs/formats/fixed_arithmetic.md#softmax)."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.models.model import Model

SHAPE = (1, 8, 6, 6)
F = np.float32


def ints(*values):
    return np.array(values, np.int64)


class Net:
    """Nodes and constants as they are added; operators are methods: ``net.Relu(x)``, arrays become constants."""

    def __init__(self):
        self.nodes, self.constants, self.rng = [], {}, np.random.default_rng(0)

    def __getattr__(self, op_type):
        def add(*inputs, outputs=1, **attributes):
            names = [f"{op_type.lower()}{len(self.nodes)}{'abc'[each]}" for each in range(outputs)]
            read = [each if isinstance(each, str) else self.constant(each) for each in inputs]
            self.nodes.append(helper.make_node(op_type, read, names, name=names[0], **attributes))
            return names[0] if outputs == 1 else names

        return add

    def constant(self, values):
        name = f"constant{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def normal(self, *shape):
        return self.rng.normal(0, 0.4, shape).astype(F)

    def conv(self, x, channels=8):
        return self.Conv(x, self.normal(8, channels, 3, 3), self.normal(8), pads=[1] * 4)

    def proto(self, output):
        ends = [("data", (1, 3, 6, 6)), (output, SHAPE)]
        source, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends)
        graph = helper.make_graph(self.nodes, "net", [source], [result], list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gated(n, x):
    first, second = n.Split(x, ints(4, 4), axis=1, outputs=2)
    return n.Concat(n.Sigmoid(second), n.Mul(first, second), axis=1)


CASES = {
    # with rules
    "Sigmoid": lambda n, x: n.Sigmoid(x),
    "Tanh": lambda n, x: n.Tanh(x),
    "Max of a tensor and a constant": lambda n, x: n.Max(x, F(-0.2)),
    "Max of a tensor and a factor a channel": lambda n, x: n.Max(n.normal(8, 1, 1), x),
    "Max of three": lambda n, x: n.Max(x, n.Neg(x), F(0.1)),
    "Sub from a constant": lambda n, x: n.Sub(F(1), x),
    "PRelu": lambda n, x: n.PRelu(x, n.normal(8, 1, 1)),
    "Swish": lambda n, x: n.Mul(x, n.Sigmoid(x)),
    "squeeze and excitation": lambda n, x: n.Mul(x, n.Sigmoid(n.conv(n.GlobalAveragePool(x)))),
    # as tables
    "Clip": lambda n, x: n.Clip(x, F(-0.5), F(0.7)),
    "HardSwish": lambda n, x: n.HardSwish(x),
    "Pow": lambda n, x: n.Pow(x, F(2)),
    "Erf in GELU": lambda n, x: n.Mul(n.Mul(x, n.Add(n.Erf(n.Div(x, F(1.4142135))), F(1))), F(0.5)),
    # in float32
    "Pow by a power a channel": lambda n, x: n.Pow(n.Abs(x), np.linspace(1, 2, 8, dtype=F).reshape(8, 1, 1)),
    "Pow of a constant": lambda n, x: n.Pow(F(2), n.Tanh(x)),
    "Div by a constant": lambda n, x: n.Div(x, F(3)),
    "Div of a constant": lambda n, x: n.Div(F(1), n.Add(n.Abs(x), F(0.5))),
    "Min": lambda n, x: n.Min(x, n.Mul(x, F(0.5))),
    "Sum": lambda n, x: n.Sum(x, n.Tanh(x), n.Relu(x)),
    "Where": lambda n, x: n.Where(n.Greater(x, F(0)), x, n.Mul(x, F(0.2))),
    "LayerNormalization": lambda n, x: n.LayerNormalization(x, n.normal(6), n.normal(6), axis=-1),
    "LayerNormalization, ReduceMean": lambda n, x: n.Add(
        x, n.ReduceMean(n.LayerNormalization(x, n.normal(6), axis=-1), axes=[3])
    ),
    "InstanceNormalization": lambda n, x: n.InstanceNormalization(x, n.normal(8), n.normal(8)),
    "division by a norm": lambda n, x: n.Div(x, n.ReduceL2(x, axes=[1])),
    "attention": lambda n, x: n.MatMul(n.Softmax(n.MatMul(x, n.Transpose(x, perm=[0, 1, 3, 2]))), x),
    "MatMul of a constant": lambda n, x: n.MatMul(n.normal(6, 6), x),
    "CumSum": lambda n, x: n.CumSum(x, np.int64(3)),
    "double precision": lambda n, x: n.Cast(n.Sqrt(n.Abs(n.Cast(x, to=TensorProto.DOUBLE))), to=TensorProto.FLOAT),
    # moving values
    "Pad by a value, then cut": lambda n, x: n.Pad(
        n.Pad(x, ints(0, 0, 1, 1, 0, 0, 1, 1), F(1.5)), ints(0, 0, -1, 0, 0, 0, -1, -2)
    ),
    "channels gated by channels": gated,
    "Concat with a constant": lambda n, x: n.Slice(n.Concat(x, n.normal(*SHAPE), axis=1), ints(4), ints(12), ints(1)),
    "GatherElements": lambda n, x: n.GatherElements(x, np.tile(ints(5, 4, 3, 2, 1, 0), (1, 8, 6, 1)), axis=3),
    "second output of TopK": lambda n, x: n.Mul(
        x, n.Cast(n.TopK(x, ints(8), axis=1, outputs=2)[1], to=TensorProto.FLOAT)
    ),
    "convolution plus a second output": lambda n, x: (lambda mean: n.Add(n.conv(x), mean))(
        n.LayerNormalization(x, n.normal(6), outputs=2)[1]
    ),
    "an element-wise map of a resized tensor": lambda n, x: n.AveragePool(
        n.Resize(x, "", F([1, 1, 2, 2]), mode="linear"), kernel_shape=[2, 2], strides=[2, 2]
    ),
}
# What turns a small error of its input into a large one of its output: which is the k-th largest.
COARSE = {"second output of TopK": 0.9}


@pytest.mark.parametrize("last", [False, True], ids=["then a convolution", "last"])
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("case", CASES)
def test_fixed_is_close_to_float(case, fuse, last):
    net = Net()
    x = net.conv("data", 3)
    for _ in range(2):
        x = CASES[case](net, x)
    proto = onnx.shape_inference.infer_shapes(net.proto(x if last else net.conv(x)))
    model = simplify(Model(proto, Path("net.onnx")))
    feeds = [
        (str(seed), {"data": np.random.default_rng(seed).normal(size=(1, 3, 6, 6)).astype(F)}) for seed in range(4)
    ]
    fixed = make_fixed(model, measure_ranges(model, iter(feeds), fuse), None, fuse).proto
    onnx.checker.check_model(fixed, full_check=True)
    want, got = (run(each, feeds[1][1]) for each in (proto, fixed))
    cos = np.vdot(want, got) / np.linalg.norm(want) / np.linalg.norm(got)
    assert cos > COARSE.get(case, 0.99)
    assert 0.9 < np.linalg.norm(got) / np.linalg.norm(want) < 1.1


def run(proto, feed):
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0].astype(np.float64)
