"""What a simulated record says of its tensor, and that tensors are let go once nothing reads them any more."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.executors.runner import Layer
from sgsdump.quantisation.fixed_facts import FixedFacts, Origin
from sgsdump.quantisation.fixed_metadata import write_facts
from sgsdump.quantisation.fixed_model import make_fixed
from sgsdump.quantisation.simulation import simulation
from sgsdump.quantisation.simulation.simulation import fixed_config, simulate
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

RANGES = {name: Range.of(-1, 1) for name in ("data", "c", "flat")}


def net():
    nodes = [conv("c", "data"), node("Flatten", ["c"], "flat")]
    return model(nodes, weights("c", (5, 3, 1, 2)), {"data": (1, 3, 4, 6)}, ["flat"])


@pytest.mark.parametrize("fixed", [False, True])
def test_four_dimensions_are_nhwc_and_others_have_no_layout(fixed):
    float_net = net()
    one = replace(float_net, proto=make_fixed(float_net, RANGES).proto) if fixed else float_net
    feed = {"data": np.random.default_rng(0).uniform(-1, 1, (1, 3, 4, 6)).astype(np.float32)}
    records = list(simulate(one, feed).records)
    given = {r.name.partition("#")[0]: (r.tensor.info.shape, r.tensor.info.layout) for r in records}
    assert given == {
        "data": ((1, 4, 6, 3), "NHWC"),
        "c.w": ((5, 1, 2, 3), "NHWC"),
        # A fixed model's convolution has two rows: bias and multiplier.
        "c.b": ((2, 5) if fixed else (5,), None),
        "c": ((1, 4, 5, 5), "NHWC"),
        "flat": ((1, 100), None),
    }
    # The two rows are no real values; what they mean depends on the layer's shifts.
    values = [r.tensor.stored() if fixed and r.name.endswith(".b") else r.tensor.real() for r in records]
    assert [array.shape for array in values] == [record.tensor.info.shape for record in records]


def test_a_tensor_is_let_go_after_its_last_reader(monkeypatch):
    kept = {}

    class Runner:
        def __init__(self, model, keep_sessions, provider):
            self.skipped = {}

        def run(self, feed, only, advance):
            for name in ("a", "b", "c", "d"):
                array = np.zeros((2, 3), np.float32)
                kept[name] = weakref.ref(array)
                yield Layer(name, name, "Relu", array)
                del array

    monkeypatch.setattr(simulation, "SegmentRunner", Runner)
    chain = [node("Relu", ["x"], "a"), node("Relu", ["a"], "b"), node("Add", ["a", "b"], "c"), node("Relu", ["c"], "d")]
    records = simulate(model(chain, {}, {"x": (2, 3)}, ["d"]), {"x": np.zeros((2, 3), np.float32)}).records
    alive = {}
    for record in records:
        if record.io == "out":
            alive[record.name] = "".join(name for name, array in kept.items() if array() is not None)
        del record
    assert alive["a"] == "a" and alive["b"] == "ab" and alive["c"] == "abc", "a is read again by c"
    assert alive["d"] == "cd"


@pytest.mark.parametrize("origin", [None, Origin()])
def test_only_a_fixed_model_with_inputs_remembers_a_config(origin):
    assert fixed_config(net()) is None
    fixed = net()
    write_facts(FixedFacts({}, {}, {}, (), origin), fixed.proto)
    assert fixed_config(fixed) is None


def test_the_inputs_of_the_config_are_remembered():
    inputs = (ModelInput("data", "RGB", "RGB", (1.0, 2.0, 3.0), (4.0,) * 3),)
    fixed = net()
    write_facts(FixedFacts({}, {}, {}, (), Origin(inputs)), fixed.proto)
    assert fixed_config(fixed) == InputConfig(inputs)


def test_facts_without_an_origin_give_no_config(monkeypatch):
    monkeypatch.setattr(simulation, "read_facts", lambda model: FixedFacts({}, {}, {}, ()))
    assert fixed_config(net()) is None


def test_constants_of_a_float_model_are_float32_and_integers_say_what_they_were():
    constants = {"at": np.array([2, 0], np.int64), "bias": np.array([0.5], np.float32)}
    nodes = [node("Gather", ["data", "at"], "g", axis=1), node("Add", ["g", "bias"], "y")]
    one = model(nodes, constants, {"data": (1, 3)}, ["y"])
    records = {r.name: r for r in simulate(one, {"data": np.ones((1, 3), np.float32)}).records if r.constant}
    assert {name: r.tensor.info.quant for name, r in records.items()} == {"at": Quant(np.dtype(np.int32)), "bias": None}
    for name, record in records.items():
        assert record.tensor.info.dtype == record.tensor.raw().dtype == np.float32
        np.testing.assert_array_equal(record.tensor.raw(), constants[name])
