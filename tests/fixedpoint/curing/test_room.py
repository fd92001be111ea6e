"""Room in ranges: what it costs in UINT8, how far it goes in INT16 so that sums keep their bits, how it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.curing.fold import rewritten
from sgsdump.fixedpoint.curing.ranges import (
    HEADROOM,
    MOST,
    headrooms,
    margins,
    params_of,
    suited,
    weight_room,
    widened,
    with_int16_room,
)
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.quant_file import import_params
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, UINT8
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.graph import Graph
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars import input_config
from sgsdump.tensors.types import Range


class Rounding:
    """Layers whose input's rounding counts so much, and nothing else."""

    exact = frozenset({"picture"})

    def parts(self, layer, factors):
        return layer.counted, 0.0, 0.0


class Read:
    def __init__(self, name: str, counted: float):
        self.node, self.counted = node("Conv", [name, f"{name}.w"], f"{name}.out"), counted


def test_rooms_cost_their_share_together_and_none_more_than_it_can_take() -> None:
    layers = [Read("a", 0.6), Read("b", 0.1), Read("b", 0.1), Read("c", 1e-6), Read("picture", 0.0)]
    wider = margins(layers, Rounding(), np.ones(1), 0.4)  # type: ignore[arg-type]
    counted = {"a": 0.6, "b": 0.2, "c": 1e-6}
    assert wider.keys() == counted.keys() and wider["c"] == MOST == 3
    cost = {name: (wider[name] ** 2 - 1) * noise for name, noise in counted.items()}
    assert sum(cost.values()) == pytest.approx(0.4 * 0.800001)
    assert cost["a"] == pytest.approx(cost["b"])
    assert margins(layers, Rounding(), np.ones(1)) == wider  # type: ignore[arg-type]
    # Less than a tenth more keeps nothing from being clipped, and costs all the same.
    assert margins(layers, Rounding(), np.ones(1), 0.2)["a"] == 1.0  # type: ignore[arg-type]
    assert set(margins(layers, Rounding(), np.ones(1), 0.0).values()) == {1.0}  # type: ignore[arg-type]


def test_sums_end_just_below_a_power_of_two() -> None:
    net = model([conv("c", "data")], weights("c", (4, 3, 1, 1), 3), {"data": (1, 3, 4, 4)}, ["c"])
    graph = Graph(net.proto)
    kernel, bias = (graph.value(name).astype(np.float64) for name in ("c.w", "c.b"))
    ranges = {"data": Range.of(-3.0, 2.0)}
    sums = Range(np.array([-1.0, -2.0, -3.0, -4.0]), np.array([5.0, 1.0, 0.5, 4.0]))
    room = headrooms(net, ranges, {"c": sums}, per_channel=True)["data"]
    assert HEADROOM <= room <= 2 * HEADROOM
    reach = np.max(np.abs([bias, sums.min - bias, sums.max - bias]), axis=0)
    steps = np.abs(kernel).reshape(4, -1).max(axis=1) / 32767 * 3.0 * room / 32767
    left = np.log2((reach / steps).max())
    assert 0 <= np.ceil(left) - left < 0.02


def test_a_quant_file_carries_what_a_batch_normalization_needs(tmp_path: Path) -> None:
    """Its factor's and offset's results are stored by no name of their own, and clip at their ranges all the same."""
    constants = {**weights("c1", (4, 3, 3, 3), 1), **weights("c2", (4, 4, 1, 1), 2)}
    constants |= {f"n.{part}": np.full(4, value, np.float32) for part, value in zip("gbmv", (2.0, 0.1, 0.05, 0.5))}
    normal = node("BatchNormalization", ["c1", "n.g", "n.b", "n.m", "n.v"], "n")
    nodes = [conv("c1", "data"), normal, node("Relu", ["n"], "r"), conv("c2", "r")]
    write_pictures(tmp_path, 3)
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"]).proto, tmp_path / "net.onnx")
    source = open_model(tmp_path / "net.onnx")
    config = input_config.read(tmp_path / "input_config.ini")
    float_model = rewritten(source, source.proto)
    feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    calibration = calibrate(float_model, feeds, config, "L2")
    ranges = widened(float_model, calibration.ranges, {})
    side = side_ranges(calibration.statistics)
    wide = make_fixed(float_model, ranges, calibration.config, side=side)
    fixed = type(source)(wide.proto, source.path)
    params = params_of(fixed, float_model, ranges)
    given = {**calibration.ranges, **import_params(float_model, params, config).ranges}
    inner = next(name for name in calibration.ranges if "MUL_output" in name)
    assert given[inner].high == pytest.approx(HEADROOM * calibration.ranges[inner].high)
    again = make_fixed(float_model, given, calibration.config, side=side)
    assert again.proto.graph == wide.proto.graph


# Channels 0 and 1 read alike; 2 has small weights beside a large bias, which takes the others' bits.
KERNEL = np.array([[0.5, -0.2], [0.4, 0.3], [0.001, 0.002], [0.0005, -0.0004]])
REACH = np.array([2.0, 1.5, 3.0, 0.01])


def steps_of_sums(tops: np.ndarray) -> np.ndarray:
    """2^K δ_c, with K as the formula has it."""
    shift = np.ceil(np.log2((REACH / tops).max())) - 13
    return 2.0**shift * tops


def test_weights_of_16_bits_get_scales_that_suit_the_sums() -> None:
    tops = np.abs(KERNEL).max(axis=1)
    wide = suited(tops, REACH)
    assert (wide >= tops).all() and (wide / tops).max() == pytest.approx(16)
    before, after = steps_of_sums(tops) / REACH, steps_of_sums(wide) / REACH
    assert before.max() > 8 * after.max()
    alike = np.array([0.1, 0.2, 0.3])
    assert suited(alike, 5 * alike) == pytest.approx(alike)


def test_scales_stay_as_close_as_one_convolution_bears() -> None:
    """Further apart than that, the hardware has one scale for all of them."""
    wide = suited(np.array([1.0, 1e-5]), np.array([1.0, 1e-5]))
    assert wide[0] == 1.0 and 1 / 1024 < wide[1] < 1.2 / 1024


def test_the_room_of_weights_goes_through_a_quant_file(tmp_path: Path) -> None:
    constants = {"c1.w": KERNEL.reshape(4, 2, 1, 1).repeat(2, axis=1)[:, :3], "c1.b": np.array([0.1, 0.2, 3.0, 0.0])}
    constants = {name: value.astype(np.float32) for name, value in constants.items()} | weights("c2", (4, 4, 1, 1), 2)
    constants |= {"c3.w": constants["c1.w"].repeat(2, axis=1)[:, :4].copy(), "c3.b": constants["c1.b"]}
    nodes = [conv("c1", "data"), conv("c2", "c1"), conv("c3", "c2")]
    write_pictures(tmp_path, 3)
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c3"]).proto, tmp_path / "net.onnx")
    source = open_model(tmp_path / "net.onnx")
    config = replace(input_config.read(tmp_path / "input_config.ini"), conv_format="ALL_INT16")
    float_model = rewritten(source, source.proto)
    feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    calibration = calibrate(float_model, feeds, config, "L2")
    side = side_ranges(calibration.statistics)
    ranges = {**calibration.ranges, **weight_room(float_model, calibration.ranges, side.channels)}
    plain, made = (make_fixed(float_model, given, config, side=side).proto for given in (calibration.ranges, ranges))
    assert plain.graph != made.graph
    fixed = type(source)(made, source.path)
    params = params_of(fixed, float_model, ranges)
    by_name = {param.name: param for param in params}
    assert by_name["c3.w"].bit == 16 and by_name["c3.w"].range.max.size == 4
    assert by_name["c1.w"].bit == 8, "it reads the picture"
    given = {**calibration.ranges, **import_params(float_model, params, config).ranges}
    again = make_fixed(float_model, given, config, side=side)
    assert again.proto.graph == made.graph


def test_weights_that_two_convolutions_read_and_those_of_groups_keep_their_ranges() -> None:
    """One range cannot suit the sums of two; the SDK makes several convolutions of one with groups."""
    constants = {**weights("a", (4, 4, 1, 1), 1), **weights("g", (4, 2, 1, 1), 2)}
    nodes = [conv("a", "data"), node("Conv", ["a", "a.w"], "b"), conv("g", "b", group=2)]
    net = model(nodes, constants, {"data": (1, 4, 4, 4)}, ["g"])
    sums = {name: Range(-np.arange(1.0, 5.0), np.arange(1.0, 5.0)) for name in "abg"}
    assert weight_room(net, {}, sums) == {}
    alone = model(nodes[:1], constants, {"data": (1, 4, 4, 4)}, ["a"])
    assert list(weight_room(alone, {}, sums)) == ["a.w"]


def test_room_of_int16_leaves_8_bits_alone(tmp_path: Path) -> None:
    """What UINT8 reads keeps its range; what INT16 reads goes half as far again or more."""
    constants = {**weights("c1", (4, 3, 3, 3), 1), **weights("c2", (4, 4, 1, 1), 2)}
    nodes = [conv("c1", "data"), node("Relu", ["c1"], "r"), conv("c2", "r")]
    write_pictures(tmp_path, 3)
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"]).proto, tmp_path / "net.onnx")
    source = open_model(tmp_path / "net.onnx")
    config = input_config.read(tmp_path / "input_config.ini")
    float_model = rewritten(source, source.proto)
    feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    calibration = calibrate(float_model, feeds, config, "L2")
    sums = side_ranges(calibration.statistics).channels
    room = with_int16_room(float_model, calibration.ranges, sums, per_channel=True)
    assert room.keys() >= calibration.ranges.keys()
    for name, plain in calibration.ranges.items():
        assert np.array_equal(room[name].at(UINT8).max, plain.max) and np.array_equal(
            room[name].at(UINT8).min, plain.min
        )
    for name in ("r", "c2"):
        assert room[name].at(INT16).high >= HEADROOM * calibration.ranges[name].high
    assert room["data"].at(INT16).high == calibration.ranges["data"].high
