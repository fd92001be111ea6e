"""What a plug-in gives is held against the model, whatever its author forgot; its feeds are the caller's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from small_nets import model as net
from small_nets import node

from sgsdump.errors import ModelError
from sgsdump.executors.base import Executor
from sgsdump.executors.conformance import assert_raises
from sgsdump.executors.runner import Layer
from sgsdump.models.model import Model
from sgsdump.pipeline.run import run
from sgsdump.pipeline.steps import Engine

X = np.array([[1.5, -2.0]], np.float32)


class Plugin(Executor):
    """Gives for every output what it was made with."""

    name = "mine"

    def __init__(self, *arrays: object):
        self.arrays = list(arrays)

    def on_load(self, model, configs, folder):
        pass

    def on_execute(self, output_names, feed, configs):
        return self.arrays


class Careless(Plugin):
    def on_execute(self, output_names, feed, configs):
        feed["x"][...] = 0
        return [feed["x"]]


def negated(*shape: int | str | None, elem_type: int = 1) -> onnx.ModelProto:
    """y = -x, float32 [1, 2]; the output as declared here."""
    proto = net([node("Neg", ["x"], "y")], {}, {"x": (1, 2)}, ["y"]).proto
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", elem_type, shape) if shape else UNTYPED)
    return proto


UNTYPED = onnx.ValueInfoProto(name="y")


def gives(array: object, proto: onnx.ModelProto, count: int = 1) -> list[np.ndarray]:
    with Plugin(*[array] * count) as executor:
        executor.load_model(proto)
        return executor.execute(["y"], {"x": X})


@pytest.mark.parametrize("proto", [negated(1, 2), negated("n", 2), negated()], ids=["declared", "open", "untyped"])
def test_another_dtype_or_shape_is_refused(proto: onnx.ModelProto) -> None:
    np.testing.assert_array_equal(gives(-X, proto)[0], -X)
    wrong_type = "executor mine returned float64 for output 'y'; the model declares float32"
    assert_raises(ModelError, wrong_type, lambda: gives(-X.astype(np.float64), proto))
    wrong_shape = "executor mine returned shape [2] for output 'y'; the model declares [1, 2]"
    assert_raises(ModelError, wrong_shape, lambda: gives(-X[0], proto))
    assert_raises(ModelError, "returned 0 arrays for 1 outputs", lambda: gives(None, proto, count=0))


def test_a_shape_that_the_model_declares_wrongly_is_not_held_against_the_back_end() -> None:
    np.testing.assert_array_equal(gives(-X, negated(7, 2))[0], -X)


def test_an_operator_that_inference_does_not_know() -> None:
    proto = negated()
    proto.graph.node[0].domain = "somebody.else"
    assert gives(np.zeros(5, np.int8), proto)[0].shape == (5,)


def test_feeds_are_read_only() -> None:
    x = X.copy()
    with Careless() as executor:
        executor.load_model(negated(1, 2))
        assert_raises(ModelError, "read-only", lambda: executor.execute(["y"], {"x": x}))
    np.testing.assert_array_equal(x, X)
    assert x.flags.writeable


def test_in_a_dump_the_tensor_is_reported_and_the_others_are_dumped(tmp_path) -> None:
    class Widens(Plugin):
        """Gives what onnxruntime gives, but sums as float64."""

        def on_load(self, model, configs, folder):
            from sgsdump.executors.ort import OrtExecutor

            self.inner = OrtExecutor()
            self.inner.init()
            self.inner.load_model(model, None, folder)

        def on_execute(self, output_names, feed, configs):
            arrays = self.inner.execute(output_names, feed)
            return [a.astype(np.float64) if name == "s" else a for name, a in zip(output_names, arrays)]

    proto = net(
        [node("Neg", ["x"], "n"), node("Add", ["n", "x"], "s"), node("Abs", ["x"], "a")], {}, {"x": (1, 2)}, ["s"]
    )
    outcomes = {each.name: each for each in run(Model(proto.proto, tmp_path), Engine(Widens()), {"x": X})}
    assert isinstance(outcomes["n"], Layer) and isinstance(outcomes["a"], Layer)
    assert "executor mine returned float64 for output 's'; the model declares float32" in outcomes["s"].reason
