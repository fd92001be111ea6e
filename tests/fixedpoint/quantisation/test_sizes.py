"""What follows from the sizes of pictures stays as it is: rounded, it would give other sizes."""

import numpy as np
import pytest
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (0.0,) * 3, (255.0,) * 3),), (ModelOutput("end", True),))


@pytest.fixture(scope="module")
def grid_net() -> Model:
    """A convolution to which the centre of each column is added, as detectors' heads do it, and another."""
    constants = {**weights("c1", (4, 3, 1, 1), 1), **weights("end", (2, 4, 1, 1), 2)}
    constants |= {"three": np.array(3), "zero": np.float32(0), "one": np.float32(1), "half": np.float32(0.5)}
    nodes = [
        conv("c1", "data"),
        node("Shape", ["c1"], "shape"),
        node("Gather", ["shape", "three"], "width"),
        node("Cast", ["width"], "columns", to=1),
        node("Range", ["zero", "columns", "one"], "numbers"),
        node("Add", ["numbers", "half"], "centres"),
        node("Add", ["c1", "centres"], "placed"),
        conv("end", "placed"),
    ]
    net = simplify(model(nodes, constants, {"data": (1, 3, "h", "w")}, ["end"]))
    return net


def raw(width: int) -> dict[str, np.ndarray]:
    return {"data": np.random.default_rng(width).integers(0, 256, (1, 3, 4, width)).astype(np.float32)}


def feed(width: int) -> dict[str, np.ndarray]:
    return {"data": raw(width)["data"] / 255}


@pytest.fixture(scope="module")
def ranges(grid_net):
    return measure_ranges(grid_net, [(str(width), feed(width)) for width in (8, 11, 13)])


def test_sizes_are_told_from_operands(grid_net):
    sizes = analyse(grid_net.proto, ["data"]).sizes
    assert {"columns", "numbers", "width", "shape"} <= sizes
    assert "centres" not in sizes, "which is added to values"


def test_what_follows_from_shapes_joins_no_operator_of_values(grid_net):
    chains = [[n.output[0] for n in op.nodes] for op in analyse(grid_net.proto, ["data"]).operators]
    assert ["centres"] in chains
    assert Graph(grid_net.proto).from_shapes == {"shape", "width", "columns", "numbers", "centres"}


@pytest.mark.parametrize("width", [8, 11, 13])
def test_a_fixed_model_takes_pictures_of_several_sizes(grid_net, ranges, width):
    fixed = make_fixed(grid_net, ranges, CONFIG)
    assert not any(what.op_type == "Add" for what in fixed.approximate.values())
    assert "columns" not in fixed.plan.tensors and "placed" in fixed.plan.tensors
    given = simulate(Model(fixed.proto, grid_net.path), raw(width))
    list(given.records)
    real = simulate(grid_net, feed(width))
    list(real.records)
    step = fixed.plan.tensors["end"].scale
    span = np.ptp(real.outputs["end"])
    assert given.outputs["end"].shape == (1, 2, 4, width)
    assert np.abs(given.outputs["end"] - real.outputs["end"]).max() < 0.03 * span + step


@pytest.mark.parametrize("width", [8, 11, 13])
def test_so_does_a_trial_of_plans(grid_net, ranges, width):
    ran = PlanTrial(grid_net, ranges, CONFIG).run((), raw(width))["end"]
    assert ran.shape == (1, 2, 4, width)
