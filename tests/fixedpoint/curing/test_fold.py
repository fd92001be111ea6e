"""How a fold makes a cure of the settings: room of ranges, room of weights, channels that a Clip bounds, biases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import conv, model, node, run_all, weights

from sgsdump.fixedpoint.curing.cure import prepared
from sgsdump.fixedpoint.curing.fold import AS_IT_IS, Fold, Made, Settings
from sgsdump.fixedpoint.curing.ranges import HEADROOM, SHARE
from sgsdump.fixedpoint.curing.steps import BIAS, EQUALISE, CureOptions
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.sidecars import input_config

ROOM = Settings(room=SHARE)
INT16_ROOM = Settings(room=0.0)


def net(clip: float | None = None) -> Model:
    """data -> c1 -> r1 -> c2 -> r2 -> c3; r1's channels are of other loudness, the last of c3 has a small weight beside
    a large bias."""
    constants = {**weights("c1", (8, 3, 3, 3), 1), **weights("c2", (8, 8, 1, 1), 2), **weights("c3", (4, 8, 1, 1), 3)}
    constants["c1.w"] *= np.geomspace(1, 60, 8, dtype=np.float32)[:, None, None, None]
    constants["c3.w"][3] *= 0.001
    constants["c3.b"][3] = 3.0
    if clip is not None:
        constants |= {"low": np.float32(0), "high": np.float32(clip)}
    first = node("Relu", ["c1"], "r1") if clip is None else node("Clip", ["c1", "low", "high"], "r1")
    nodes = [conv("c1", "data", pads=[1] * 4), first, conv("c2", "r1"), node("Relu", ["c2"], "r2"), conv("c3", "r2")]
    return model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c3"])


def fold(folder: Path, source: Model, level: str = "L2", wide: bool = False) -> Fold:
    write_pictures(folder, 4)
    onnx.save(source.proto, folder / "net.onnx")
    source, config = open_model(folder / "net.onnx"), input_config.read(folder / "input_config.ini")
    feeds = PictureFeeds(str(folder / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    config = replace(config, conv_format="ALL_INT16") if wide else config
    return Fold(prepared(source, feeds), config, CureOptions(level), PicturePairs(feeds))


def scales(one: Fold, settings: Settings) -> dict[str, float]:
    """Of the stored tensors in integers."""
    tensors = one.fixed(Made(one.source.proto), settings).plan.tensors
    return {name: float(quant.scale) for name, quant in tensors.items()}


def test_room_is_for_the_ranges_that_the_settings_say(tmp_path: Path) -> None:
    one = fold(tmp_path, net())
    plain, int16, room = (scales(one, settings) for settings in (AS_IT_IS, INT16_ROOM, ROOM))
    for name in ("r1", "r2"):  # UINT8
        assert int16[name] == plain[name] < room[name]
    assert int16["c3"] == room["c3"] == pytest.approx(HEADROOM * plain["c3"])
    assert one.with_cure("ranges", Made(one.source.proto), ROOM)[1] == 2, "the ranges of r1 and r2"
    assert one.with_cure("ranges", Made(one.source.proto), INT16_ROOM)[1] == 1


def test_with_all_at_16_bits_no_range_gets_room_of_8_bits(tmp_path: Path) -> None:
    one = fold(tmp_path, net(), wide=True)
    assert scales(one, ROOM) == scales(one, INT16_ROOM) != scales(one, AS_IT_IS)
    made = Made(one.source.proto)
    assert one.with_cure("ranges", made, ROOM)[1] == one.with_cure("ranges", made, INT16_ROOM)[1] == 1


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_weights_of_16_bits_get_room_where_each_channel_has_a_scale(tmp_path: Path, level: str) -> None:
    one = fold(tmp_path, net(), level, wide=True)
    plain, room = (
        one.fixed(Made(one.source.proto), settings).plan.weights["c3"].scale for settings in (AS_IT_IS, INT16_ROOM)
    )
    assert np.array_equal(plain, room) is (level == "L1")


@pytest.mark.parametrize("clips", [False, True])
def test_channels_that_a_clip_bounds_are_scaled_only_if_asked_for(tmp_path: Path, clips: bool) -> None:
    """Images that are louder than those of the calibration reach the bound."""
    one = fold(tmp_path, net(clip=2000.0))
    made, _ = one.with_cure(EQUALISE, Made(one.source.proto), Settings(clips=clips))
    loud = {"data": 1e3 * np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    before, after = (run_all(proto, loud)["c3"] for proto in (one.source.proto, made.proto))
    assert made.factors is not None and np.allclose(after, before, rtol=1e-3) is not clips


def test_a_model_with_new_biases_is_opened_with_them(tmp_path: Path) -> None:
    """Biases are made layer by layer in one model, which is not opened for good before the last."""
    one = fold(tmp_path, net())
    made, _ = one.with_cure(BIAS, Made(one.source.proto), Settings(inherited=True))
    opened = one.opened(made.proto).proto
    feed = {"data": np.ones((1, 3, 8, 8), np.float32)}
    np.testing.assert_allclose(run_all(opened, feed)["c3"], run_all(made.proto, feed)["c3"], rtol=1e-5)
    assert not np.allclose(run_all(opened, feed)["c3"], run_all(one.source.proto, feed)["c3"], rtol=1e-5)
