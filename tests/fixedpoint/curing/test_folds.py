"""Folds by content: what a cure does and promises depends on neither the names nor the order of the images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_folder import write_pictures
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.curing.cure import Cured, cure
from sgsdump.fixedpoint.curing.fold import Made, Settings, rewritten
from sgsdump.fixedpoint.curing.search import Search, State
from sgsdump.fixedpoint.curing.steps import ABSORB, BIAS, EQUALISE, RANGES, CureOptions, Step
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.reports.cured import lines, summary
from sgsdump.models.feeds.by_content import (
    FEWEST_HELD_OUT,
    FOLDS,
    JUDGED,
    MANY,
    OF_MANY,
    content_key,
    folds_of,
    judging,
)
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.sidecars import input_config


def net(clip: float | None = None, factor: float = 60.0) -> Model:
    """data -> c1 -> Relu or Clip -> c2, one channel ``factor`` times as loud as its neighbours."""
    constants = {**weights("c1", (8, 3, 3, 3), 1), **weights("c2", (4, 8, 1, 1), 2)}
    constants["c1.w"][0] *= factor
    constants["c1.b"][0] *= factor
    constants["c2.w"][:, 0] /= factor
    if clip is not None:
        constants |= {"low": np.float32(0), "high": np.float32(clip)}
    act = node("Relu", ["c1"], "r1") if clip is None else node("Clip", ["c1", "low", "high"], "r1")
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), act, conv("c2", "r1")]
    return model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"])


def cured(folder: Path, cures: tuple[str, ...], pictures: str = "pictures") -> Cured:
    source, config = open_model(folder / "net.onnx"), input_config.read(folder / "input_config.ini")
    feeds = PictureFeeds(str(folder / pictures), None, tuple(graph_inputs(source.proto)), config)
    return cure(source, feeds, config, CureOptions("L2", cures))


def test_names_and_order_change_nothing(tmp_path: Path) -> None:
    write_pictures(tmp_path, 13)
    onnx.save(net().proto, tmp_path / "net.onnx")
    files = sorted((tmp_path / "pictures").iterdir())
    (tmp_path / "renamed").mkdir()
    for number, file in zip(np.random.default_rng(5).permutation(len(files)), files):
        shutil.copy(file, tmp_path / "renamed" / f"{number:02d}{file.suffix}")
    first, second = (cured(tmp_path, ("ranges", "equalise", "bias"), name) for name in ("pictures", "renamed"))
    assert first.proto.SerializeToString() == second.proto.SerializeToString()
    assert (first.errors, first.expected, first.by_image) == (second.errors, second.expected, second.by_image)
    assert [(s.cure, s.taken, s.errors) for s in first.steps] == [(s.cure, s.taken, s.errors) for s in second.steps]


def test_identities_and_the_order_of_the_nodes_change_nothing(tmp_path: Path) -> None:
    """Two branches whose layers draw random numbers one after the other while equalising weighs their noise."""
    write_pictures(tmp_path, 13)
    constants = {name: value for seed in range(4) for name, value in weights(f"c{seed}", (8, 3, 3, 3), seed).items()}
    constants |= {f"c{seed}.w": weights("w", (8, 8, 1, 1), seed)["w.w"] for seed in (2, 3)}
    for name in ("c0", "c1"):
        constants[f"{name}.w"][0] *= 60
        constants[f"{name}.b"][0] *= 60

    def saved(first: int, moved: bool) -> Cured:
        end, nodes = ".i" if moved else "", []
        for branch in (first, 1 - first):
            nodes += [conv(f"c{branch}", "data", pads=[1, 1, 1, 1])]
            nodes += [node("Identity", [f"c{branch}"], f"c{branch}.i")] if moved else []
            nodes += [node("Relu", [f"c{branch}{end}"], f"r{branch}"), conv(f"c{branch + 2}", f"r{branch}")]
        nodes.append(node("Add", ["c2", "c3"], "s"))
        onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["s"]).proto, tmp_path / "net.onnx")
        return cured(tmp_path, ("ranges", "equalise"))

    plain, turned, moved = saved(0, False), saved(1, False), saved(0, True)
    for other in (turned, moved):
        assert (plain.errors, plain.expected, plain.by_image) == (other.errors, other.expected, other.by_image)
        assert [(s.cure, s.taken, s.errors) for s in plain.steps] == [(s.cure, s.taken, s.errors) for s in other.steps]
    for found, names in (
        (plain, "c0 r0 c2 c1 r1 c3 s"),
        (moved, "c0 r0 c2 c1 r1 c3 s"),
        (turned, "c1 r1 c3 c0 r0 c2 s"),
    ):
        assert [each.output[0] for each in found.proto.graph.node] == names.split(), "as in the file"


@pytest.mark.parametrize(
    "images, copies", [(1, 1), (FEWEST_HELD_OUT - 1, 1), (FEWEST_HELD_OUT - 1, 2), (FEWEST_HELD_OUT, 1)]
)
def test_of_a_few_different_images_only_ranges_get_room(tmp_path: Path, images: int, copies: int) -> None:
    write_pictures(tmp_path, images)
    for copy in range(1, copies):
        for file in sorted((tmp_path / "pictures").iterdir())[:images]:
            shutil.copy(file, file.with_name(f"copy{copy}_{file.name}"))
    onnx.save(net().proto, tmp_path / "net.onnx")
    found, enough = cured(tmp_path, ("ranges", "equalise")), images >= FEWEST_HELD_OUT
    assert found.held_out is enough and (found.expected_gain is not None) is enough and bool(found.expected) is enough
    assert [step.cure for step in found.steps] == (["equalise", "ranges"] if enough else ["ranges"])
    text = "\n".join([*lines(found), summary(found)])
    assert ("fewer than 12 different images" in text) is not enough
    assert ("expected error on other images" in text) is enough


@pytest.mark.parametrize("count", [1, FEWEST_HELD_OUT - 1, FEWEST_HELD_OUT, MANY - 1, MANY, MANY + 7])
@given(st.lists(st.integers(0, 40), max_size=20), st.randoms(use_true_random=False))
def test_folds_part_the_images_by_content(count: int, copies: list[int], random) -> None:
    values = [*range(count), *(copy % count for copy in copies)]
    keys = [content_key({"x": np.array([value])}) for value in values]
    folds, different = folds_of(keys), len(set(values))
    assert len(folds) == (0 if different < FEWEST_HELD_OUT else FOLDS if different < MANY else OF_MANY)
    contents = [{values[index] for index in fold} for fold in folds]
    order = list(range(len(values)))
    random.shuffle(order)
    again = folds_of([keys[index] for index in order])
    assert [{values[order[index]] for index in fold} for fold in again] == contents
    if folds:
        assert sorted(index for fold in folds for index in fold) == list(range(len(values)))
        assert sum(map(len, contents)) == different, "equal images share a fold"
        assert max(map(len, contents)) - min(map(len, contents)) <= 1


@pytest.mark.parametrize("count", [JUDGED - 1, JUDGED, 10 * JUDGED])
def test_a_fold_is_judged_by_some_of_its_images_from_all_over_it(count: int) -> None:
    found = judging(range(7, 7 + count))
    assert len(found) == min(count, JUDGED) and found[0] == 7 and found[-1] == 6 + count
    gaps = np.diff(found)
    assert gaps.min() > 0 and gaps.max() - gaps.min() <= 1


def test_keys_differ_by_name_type_shape_and_value() -> None:
    array = np.arange(4, dtype=np.float32)
    feeds = [{"x": array}, {"y": array}, {"x": array.astype(np.int32)}, {"x": array.reshape(2, 2)}, {"x": array + 1}]
    assert len({content_key(feed) for feed in feeds}) == len(feeds)
    assert content_key({"x": array, "y": array}) == content_key({"y": array, "x": array[::-1][::-1]})


def test_a_clip_that_does_not_bind_leaves_channels_to_scale(tmp_path: Path) -> None:
    """A network with Clip(0, 6e4), which no channel reaches, loses what the one with Relu does."""
    write_pictures(tmp_path, 12)
    gains = []
    for clip in (None, 6e4):
        onnx.save(net(clip).proto, tmp_path / "net.onnx")
        found = cured(tmp_path, ("equalise",))
        gains.append(found.gain)
        assert [step.taken for step in found.steps] == [True]
    assert gains[1] < 1 / 3 + 2 / 3 * gains[0], "two thirds of the gain"


def test_biases_make_up_for_averages_that_the_hardware_truncates(tmp_path: Path) -> None:
    """data -> c1 -> Relu -> GlobalAveragePool -> Flatten -> fc: every average is half a step low in the mean."""
    write_pictures(tmp_path, 13)
    constants = {**weights("c1", (8, 3, 3, 3), 1), "fc.w": np.full((8, 2), 0.5, np.float32), "fc.b": np.zeros(2)}
    constants["fc.b"] = constants["fc.b"].astype(np.float32)
    nodes = [
        conv("c1", "data", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("GlobalAveragePool", ["r1"], "g"),
        node("Flatten", ["g"], "f", axis=1),
        node("Gemm", ["f", "fc.w", "fc.b"], "fc"),
    ]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["fc"]).proto, tmp_path / "net.onnx")
    found = cured(tmp_path, ("bias",))
    assert found.errors["fc"] < 0.5 * found.as_it_is["fc"]


def test_a_model_that_is_worse_without_its_quant_file_is_taken_back() -> None:
    search, proto, other = object.__new__(Search), model([], {}, {"x": (1,)}, []), model([], {}, {"y": (1,)}, [])
    search.source, search.few, search.taken = proto, False, [EQUALISE, RANGES, BIAS]
    search.__dict__["before"] = {"a": np.ones(2)}
    first = State((Made(proto.proto),))
    equalised = State((Made(other.proto),))
    roomy = State((Made(other.proto),), Settings(room=0.0))
    corrected = State((Made(other.proto, plain=other.proto),), Settings(room=0.0))
    worse = {id(corrected.made[0])}

    def judge(state: State, what: str = "") -> dict[str, np.ndarray]:
        assert state.settings.room is None, "without the quant file"
        return {"a": np.full(2, 1.2 if id(state.made[0]) in worse else 0.5)}

    search.judge = judge  # type: ignore[method-assign]
    search.now = {"a": np.full(2, 0.1)}
    errors = [{"a": np.full(2, error)} for error in (1.0, 0.5, 0.4, 0.1)]
    steps = [Step(name, True, {}, {}, 1) for name in search.taken]
    reached = list(zip((first, equalised, roomy, corrected), errors))
    assert search._as_a_model_alone(reached, steps) is roomy
    assert search.taken == [EQUALISE, RANGES] and search.now["a"][0] == 0.4
    settled = search._settled([*steps, Step(ABSORB, False, {}, {}, 1)])
    assert [step.taken for step in settled] == [True, True, False, False]
    assert [step.undone for step in settled] == [False, False, True, False]


def test_bits_are_those_of_the_model_as_it_is_on_all_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path, 13)
    onnx.save(net().proto, tmp_path / "net.onnx")
    source, config = open_model(tmp_path / "net.onnx"), input_config.read(tmp_path / "input_config.ini")
    feeds = PictureFeeds(str(tmp_path / "pictures"), None, tuple(graph_inputs(source.proto)), config)
    raised = calibrate(rewritten(source, source.proto), feeds, config, "L5").config.tensor_arrays
    assert raised == ("r1",)
    judged: list[tuple[str, tuple[str, ...]]] = []

    def in_fold(model, images, config, level, **more):
        judged.append((level, config.tensor_arrays))
        return calibrate(model, images, config, level, **more)

    monkeypatch.setattr("sgsdump.fixedpoint.curing.fold.calibrate", in_fold)
    found = cure(source, feeds, config, CureOptions("L5", ("ranges", "equalise")))
    assert len(judged) > 3 and set(judged) == {("L3", raised)}, "no fold, and no cured model, has others"
    assert found.params is not None
    assert {param.name for param in found.params if param.bit == 16} >= {"r1", "c2.w"}
