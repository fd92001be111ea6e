"""A Softmax of before opset 13 over channels and pixels at once: rows, a Softmax and a Reshape of ours. As the SDK's,
the fixed model's goes over the channels alone. The Reshape is not a reader that takes the integers for others; one of
the model's own is, as in the SDK."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.models.model import Model


@pytest.fixture
def net(tmp_path):
    rng = np.random.default_rng(4)
    weights = rng.normal(0, 0.4, (2, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["data", "w"], ["cls"], name="cls", pads=[1] * 4),
        helper.make_node("Softmax", ["cls"], ["prob"], name="prob", axis=1),
        helper.make_node("Reshape", ["prob", "shape"], ["flat"], name="flat"),
    ]
    shapes = {"data": (1, 3, 6, 6), "prob": (1, 2, 6, 6), "flat": (1, 2, 36)}
    data, *outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items())
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([1, 2, 36]), "shape")]
    proto = helper.make_model(
        helper.make_graph(nodes, "net", [data], outputs, constants),
        opset_imports=[helper.make_opsetid("", 11)],
        ir_version=6,
    )
    onnx.checker.check_model(proto)
    feed = {"data": rng.uniform(-1, 1, (1, 3, 6, 6)).astype(np.float32)}
    return proto, simplify(Model(proto, tmp_path / "net.onnx")), feed


def with_output(proto, name):
    wider = onnx.ModelProto.FromString(proto.SerializeToString())
    wider.graph.output.add(name=name)
    return wider.SerializeToString()


def test_the_models_own_softmax_is_read_right_at_the_output(net):
    proto, model, feed = net
    fixed = make_fixed(model, measure_ranges(model, [("picture", feed)]))
    scores = ort.InferenceSession(with_output(proto, "cls")).run(["cls"], feed)[0]
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    got = ort.InferenceSession(fixed.proto.SerializeToString()).run(["prob"], feed)[0]
    assert got == pytest.approx(wanted, abs=0.01)


def test_what_the_model_reads_it_with_takes_its_range(net):
    _, model, feed = net
    fixed = make_fixed(model, measure_ranges(model, [("picture", feed)]))
    prob, flat = (fixed.plan.tensors[name] for name in ("prob", "flat"))
    assert prob.scale == 1 / 32768 and flat.scale < prob.scale / 3
    assert [note for note in fixed.notes if "Softmax prob " in note] and "_intermediate" not in "".join(fixed.notes)
