"""The file is the arithmetic: every runtime gives its integers, at every level of optimisation, with any threads."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator
from small_nets import conv, model, node, residual_net, weights

from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.models.passes.lift import OPSET
from sgsdump.sidecars.input_config import InputConfig, ModelInput

OPSETS = [13, 17, 18, 21, min(26, onnx.defs.onnx_opset_version())]
PICTURE = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]


def many_rules(opset=13):
    """Every operator that has a rule, once or twice."""
    rng = np.random.default_rng(0)
    constants = {
        **weights("a", (8, 3, 3, 3), 1), **weights("b", (8, 8, 1, 1), 2), **weights("dw", (8, 1, 3, 3), 3),
        **weights("g", (6, 4, 3, 3), 4), **weights("c", (8, 8, 3, 3), 5), **weights("d", (8, 8, 1, 1), 6),
        **weights("fc", (5, 8), 7), **weights("e", (8, 8, 1, 1), 8),
        "slope": rng.uniform(0.1, 0.5, (8, 1, 1)).astype(np.float32),
        "t.w": rng.normal(0, 0.3, (8, 4, 2, 2)).astype(np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32), "sizes": np.array([4, 4]),
    }  # fmt: skip
    nodes = [
        conv("a", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], "ra"),
        conv("b", "ra"),
        node("Add", ["ra", "b"], "sum"),
        node("Relu", ["sum"], "rsum"),
        conv("dw", "rsum", group=8, pads=[1, 1, 1, 1]),
        node("PRelu", ["dw", "slope"], "p"),
        conv("d", "p"),
        node("Mul", ["d", "rsum"], "product"),
        conv("e", "product"),
        node("LeakyRelu", ["e"], "leaky", alpha=0.2),
        node("MaxPool", ["leaky"], "mp", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["leaky"], "ap", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
             count_include_pad=1),
        node("Concat", ["mp", "ap"], "cat", axis=1),
        onnx.helper.make_node("Split", ["cat", "halves"], ["s1", "s2"], name="s",
                              axis=1),
        conv("g", "s1", group=2, pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["s2", "t.w"], "t", strides=[2, 2]),
        node("Resize", ["g", "", "scales"], "up", mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("Max", ["t", "t2"], "most"),
        node("GlobalAveragePool", ["c"], "gap"),
        node("Flatten", ["gap"], "flat"),
        onnx.helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["fc"], name="fc", transB=1),
        node("Softmax", ["fc"], "prob", axis=1),
    ]  # fmt: skip
    constants["halves"] = np.array([8, 8])
    before = [each for each in nodes if each.name not in ("most",)]
    index = next(i for i, each in enumerate(before) if each.name == "gap")
    before.insert(index, conv("c", "s2", pads=[1, 1, 1, 1]))
    return model(before, constants, {"data": (1, 3, 8, 8)}, ["prob", "up", "t"], opset)


NETS = {"residual": residual_net, "many": many_rules}


@pytest.fixture(scope="module", params=[(name, wide, opset) for name in NETS for wide in (0, 1) for opset in OPSETS],
                ids=lambda p: f"{p[0]}-{16 if p[1] else 8}-{p[2]}")  # fmt: skip
def fixed(request):
    """A fixed model whose stored tensors are outputs too, and a picture."""
    name, wide, opset = request.param
    net = simplify(NETS[name](opset))
    rng = np.random.default_rng(1)
    feeds = [(str(i), {"data": rng.uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)}) for i in range(3)]
    config = replace(PICTURE, conv_format="ALL_INT16" if wide else "ALL_UINT8")
    made = make_fixed(net, measure_ranges(net, feeds), config)
    assert next(o.version for o in made.proto.opset_import if o.domain in ("", "ai.onnx")) == max(opset, OPSET)
    assert {o.domain for o in made.proto.opset_import} <= {"", "ai.onnx"}, "standard operators only"
    picture = {"data": rng.integers(0, 256, (1, 3, 8, 8)).astype(np.float32)}
    return replace(net, proto=made.proto), picture


def marked(proto):
    """Every stored tensor is an output."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    stored = [name for each in proto.graph.node for name in each.output if name.endswith("#stored")]
    result.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in stored)
    return result


def session(data, level, threads=1, severity=3):
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = level, threads
    options.log_severity_level = severity
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def test_every_level_and_number_of_threads_gives_the_same(fixed):
    net, picture = fixed
    for proto in (net.proto, marked(net.proto)):
        data = proto.SerializeToString()
        wanted = session(data, LEVELS[0]).run(None, picture)
        for level, threads in [*((level, 1) for level in LEVELS[1:]), (LEVELS[0], 2), (LEVELS[3], 2)]:
            found = session(data, level, threads).run(None, picture)
            for output, a, b in zip(proto.graph.output, found, wanted, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{output.name} {level} {threads}")


def test_the_reference_implementation_gives_the_same(fixed):
    net, picture = fixed
    proto = marked(net.proto)
    wanted = session(proto.SerializeToString(), LEVELS[3]).run(None, picture)
    found = ReferenceEvaluator(proto).run(None, picture)
    for output, a, b in zip(proto.graph.output, found, wanted, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=output.name)


def test_the_dump_is_what_the_file_computes(fixed):
    net, picture = fixed
    proto = marked(net.proto)
    names = [output.name for output in proto.graph.output]
    found = dict(zip(names, session(proto.SerializeToString(), LEVELS[3]).run(None, picture), strict=True))
    dumped = {r.name: r.tensor for r in simulate(net, picture, dequantise=False).records if r.io == "out"}
    assert {f"{name}#stored" for name in dumped} >= {n for n in names if n.endswith("#stored")} - {"data#stored"}
    for name, tensor in dumped.items():
        array = tensor.stored()
        array = np.moveaxis(array, -1, 1) if array.ndim == 4 else array
        np.testing.assert_array_equal(array, found[f"{name}#stored"], err_msg=name)


def test_the_checker_finds_nothing(fixed):
    onnx.checker.check_model(fixed[0].proto, full_check=True)


def test_onnxruntime_says_nothing(fixed, capfd):
    session(fixed[0].proto.SerializeToString(), LEVELS[3], severity=2)
    assert capfd.readouterr() == ("", "")
    useless = onnx.ModelProto()
    useless.CopyFrom(fixed[0].proto)
    useless.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2, np.float32), "for nothing"))
    session(useless.SerializeToString(), LEVELS[3], severity=2)
    assert "for nothing" in capfd.readouterr().err, "what it says would be heard"


def test_no_constant_stands_there_twice_or_for_nothing(fixed):
    graph = fixed[0].proto.graph
    names = [each.name for each in graph.initializer]
    assert len(names) == len(set(names))
    assert set(names) <= {name for each in graph.node for name in each.input}
    made = [name for each in graph.node for name in each.output if name]
    assert len(made) == len(set(made)) and len({each.name for each in graph.node}) == len(graph.node)
