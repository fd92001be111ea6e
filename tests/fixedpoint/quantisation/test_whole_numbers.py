"""Token ids that come as floats pick the rows that they picked before."""

import numpy as np
import onnx
from small_nets import model, node, weights

from sgsdump.cli import main
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig


def of_ids(*more, outputs=("y",)):
    """ids -> rows of a table -> a product; ``more``: nodes that read ids too."""
    table = np.random.default_rng(0).normal(0, 1, (60, 8)).astype(np.float32)
    nodes = [
        node("Squeeze", ["ids", "first"], "flat"),
        node("Cast", ["flat"], "whole", to=6),
        node("Gather", ["table", "whole"], "rows"),
        node("Gemm", ["rows", "fc.w", "fc.b"], "y", transB=1),
        *more,
    ]
    constants = {"table": table, "first": np.array([0]), **weights("fc", (5, 8))}
    return model(nodes, constants, {"ids": (1, 12)}, list(outputs))


def test_ids_of_floats_pick_the_same_rows():
    net, rng = of_ids(), np.random.default_rng(1)
    assert analyse(net.proto, []).whole == {"ids", "flat"}
    feeds = [(str(n), {"ids": rng.integers(0, 60, (1, 12)).astype(np.float32)}) for n in range(3)]
    fixed = make_fixed(net, measure_ranges(net, feeds), InputConfig(()))
    assert "ids" not in fixed.plan.tensors and "rows" in fixed.plan.tensors
    given, real = simulate(Model(fixed.proto, net.path), feeds[0][1]), simulate(net, feeds[0][1])
    assert [*given.records] and [*real.records]
    assert np.abs(given.outputs["y"] - real.outputs["y"]).max() < 0.05


def test_what_is_read_as_a_real_number_too_is_quantised():
    both = of_ids(node("Relu", ["ids"], "r"), outputs=("y", "r"))
    assert not analyse(both.proto, []).whole
    assert not analyse(of_ids(outputs=("y", "flat")).proto, []).whole


def test_a_network_that_is_quantised_already_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scale = {"s": np.float32(0.1), "z": np.int8(0)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "dq"),
        node("Gemm", ["dq", "fc.w", "fc.b"], "y", transB=1),
    ]
    onnx.save(model(nodes, {**scale, **weights("fc", (5, 8))}, {"x": (1, 8)}, ["y"]).proto, "q.onnx")
    np.save("x.npy", np.ones((1, 8), np.float32))
    assert main(["calibrate", "-m", "q.onnx", "-i", "x.npy", "--quant-level", "L1"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "quantised already" in line]
    assert line.startswith("warning: q.onnx is quantised already (QuantizeLinear, DequantizeLinear)")
    assert "sgsdump diagnose -m FLOAT.onnx --fixed q.onnx" in line
