"""What each fold of a cure is fitted to, what judges it, and what is expected of the result."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from picture_folder import write_pictures
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.curing import cure as cures
from sgsdump.fixedpoint.curing.cure import Cured, _promise, cure
from sgsdump.fixedpoint.curing.fold import AS_IT_IS, Fold, Made, Settings
from sgsdump.fixedpoint.curing.search import Search
from sgsdump.fixedpoint.curing.steps import CureOptions
from sgsdump.models.feeds.by_content import FEWEST_HELD_OUT, JUDGED, MANY, PicturePairs, content_key
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars import input_config

PROTO = model([], {}, {"x": (1,)}, []).proto


def loud(folder: Path) -> None:
    """data -> c1 -> r1 -> c2, one channel 60 times as loud as its neighbours."""
    constants = {**weights("c1", (8, 3, 3, 3), 1), **weights("c2", (4, 8, 1, 1), 2)}
    constants["c1.w"][0] *= 60
    constants["c1.b"][0] *= 60
    constants["c2.w"][:, 0] /= 60
    nodes = [conv("c1", "data", pads=[1, 1, 1, 1]), node("Relu", ["c1"], "r1"), conv("c2", "r1")]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c2"]).proto, folder / "net.onnx")


def contents(pairs: PicturePairs) -> list[bytes]:
    return [content_key(pairs.make(index).feed) for index in range(len(pairs))]


Parts = Sequence[tuple[Fold, PicturePairs]]


def cured(folder: Path, monkeypatch: pytest.MonkeyPatch, validate: str = "") -> tuple[Cured, Parts]:
    """The cured model, and its folds with the images that judge them."""
    kept: list[Parts] = []

    class Watched(Search):
        def __init__(self, folds, *rest, **named):
            kept.append(folds)
            super().__init__(folds, *rest, **named)

    monkeypatch.setattr(cures, "Search", Watched)
    source, config = open_model(folder / "net.onnx"), input_config.read(folder / "input_config.ini")
    names = tuple(graph_inputs(source.proto))
    feeds = PictureFeeds(str(folder / "pictures"), None, names, config)
    judges = PictureFeeds(str(folder / validate), None, names, config) if validate else None
    found = cure(source, feeds, config, CureOptions("L2", ("ranges", "equalise")), judges)
    (parts,) = kept
    return found, parts


@pytest.mark.parametrize("count", [FEWEST_HELD_OUT, MANY])
def test_every_fold_is_judged_by_the_images_that_it_was_not_fitted_to(tmp_path: Path, monkeypatch, count: int) -> None:
    write_pictures(tmp_path, count)
    first = sorted((tmp_path / "pictures").iterdir())[0]
    shutil.copy(first, first.with_name(f"copy_{first.name}"))
    loud(tmp_path)
    found, parts = cured(tmp_path, monkeypatch)
    assert len(parts) == (3 if count < MANY else 2)
    judged: list[bytes] = []
    for fold, judges in parts:
        assert len(fold.pairs) + len(judges) == count + 1, "nothing else is left out"
        assert not {*contents(fold.pairs)} & {*contents(judges)}
        judged += contents(judges)
    assert len(judged) == found.judged == count + 1 and len(set(judged)) == count


def test_the_result_is_fitted_to_all_images(tmp_path: Path, monkeypatch) -> None:
    """It is made once more, and its ranges are calibrated, on all of them."""
    write_pictures(tmp_path, FEWEST_HELD_OUT)
    loud(tmp_path)
    fitted: list[int] = []
    params = Fold.params
    monkeypatch.setattr(Fold, "params", lambda fold, *rest: fitted.append(len(fold.pairs)) or params(fold, *rest))
    again = Fold.again
    monkeypatch.setattr(Fold, "again", lambda fold, *rest: fitted.append(len(fold.pairs)) or again(fold, *rest))
    found, _ = cured(tmp_path, monkeypatch)
    assert found.helps and fitted == [FEWEST_HELD_OUT] * 2


def test_images_of_their_own_judge_even_a_few_calibration_images(tmp_path: Path, monkeypatch) -> None:
    """Any cure is tried, and the expected error is one standard error above the mean over those images."""
    write_pictures(tmp_path, FEWEST_HELD_OUT - 1 + JUDGED + 1)
    (tmp_path / "val").mkdir()
    for file in sorted((tmp_path / "pictures").iterdir())[FEWEST_HELD_OUT - 1 :]:
        shutil.move(file, tmp_path / "val" / file.name)
    loud(tmp_path)
    found, ((fold, judges),) = cured(tmp_path, monkeypatch, "val")
    assert len(fold.pairs) == FEWEST_HELD_OUT - 1 and len(judges) == JUDGED == found.judged
    assert not {*contents(fold.pairs)} & {*contents(judges)}
    assert found.held_out and {step.cure for step in found.steps} == {"ranges", "equalise"}
    assert found.expected.keys() == {"c2"} and found.expected["c2"] > found.errors["c2"] > 0
    assert found.expected_gain == pytest.approx(found.expected["c2"] / found.as_it_is["c2"])


def promise(taken: list[str], fitted: Sequence[int]) -> tuple[dict[str, float], float]:
    """What is expected of two folds of 2 and 1 judges, whose model on all 9 images has half of the error."""
    result, before, now = Made(PROTO), np.array([4.0, 6.0, 8.0]), np.array([1.0, 2.0, 3.0])

    def judge_whole(fold, made: Made, settings: Settings):
        assert settings is (roomy if made is result else AS_IT_IS)
        assert made is result or made.proto is source.proto
        return {"y": (now if made is result else before) / 2}

    source, roomy = model([], {}, {"y": (1,)}, []), Settings(room=0.0)
    search = SimpleNamespace(
        now={"y": now}, before={"y": before}, names=["y"], taken=taken, judges=["ab", "c"], source=source
    )
    search.judge_whole = judge_whole
    return _promise(search, SimpleNamespace(pairs=range(9)), (result, roomy), fitted)  # type: ignore[arg-type]


def test_what_a_fold_adds_counts_by_its_share_in_both_models() -> None:
    """Shares of 7 / 10 and 8 / 10: errors of half plus so much of the other half."""
    kept = np.array([0.85, 0.85, 0.9])
    errors, before = kept * [1, 2, 3], kept * [4, 6, 8]
    expected, gain = promise(["equalise"], [6, 7])
    above = errors.mean() + np.sqrt(((errors - errors.mean()) ** 2).sum() / 2 / 3)
    assert expected == {"y": pytest.approx(above)} and gain == pytest.approx(above / before.mean())


@pytest.mark.parametrize("taken, fitted", [([], [6, 7]), (["equalise"], [])])
def test_without_a_cure_or_a_fold_the_errors_are_as_measured(taken: list[str], fitted: list[int]) -> None:
    expected, gain = promise(taken, fitted)
    assert expected == {"y": pytest.approx(2 + 1 / 3**0.5)} and gain == pytest.approx(expected["y"] / 6)
