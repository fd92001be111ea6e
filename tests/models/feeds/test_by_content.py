"""Runs in the order of their content, whatever their files are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from picture_folder import write_pictures
from small_nets import conv, model, weights

from sgsdump.models.feeds.by_content import HeldPictures, by_content, content_key, runs_by_content
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import graph_inputs
from sgsdump.sidecars import input_config


def pictures(folder: Path) -> PictureFeeds:
    write_pictures(folder, 6)
    net = model([conv("c", "data")], weights("c", (2, 3, 1, 1)), {"data": (1, 3, 8, 8)}, ["c"])
    config = input_config.read(folder / "input_config.ini")
    return PictureFeeds(str(folder / "pictures"), None, tuple(graph_inputs(net.proto)), config)


def test_runs_of_files_and_of_a_list_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    feeds = pictures(tmp_path)
    expected = sorted((content_key(feed), label) for label, feed in feeds)
    assert [label for _, label in expected] != feeds.labels
    for ordered in (by_content(feeds), runs_by_content(feeds), runs_by_content(list(feeds))):
        assert [(content_key(feed), label) for label, feed in ordered] == expected
    assert [*by_content(feeds).keys] == [key for key, _ in expected]


def test_keys_are_made_once(tmp_path: Path, monkeypatch) -> None:
    ordered = by_content(pictures(tmp_path))
    monkeypatch.setattr("sgsdump.models.feeds.by_content.content_key", lambda feed: 1 / 0)
    assert by_content(ordered) is ordered is runs_by_content(ordered)


def test_equal_runs_have_one_key() -> None:
    runs = [(str(n), {"x": np.array([n % 2])}) for n in range(4)]
    assert len(set(by_content(runs).keys)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pixels", "size"),
    [([0, 255, 7], 3), ([0, 255, 0.5], 12), ([0, -0.0, 1], 12), ([1, 256, 0], 12), ([np.nan, 0, 1], 12)],
)
def test_a_cached_image_is_the_same_and_grey_levels_take_a_byte(
    monkeypatch: pytest.MonkeyPatch, pixels: list[float], size: int
) -> None:
    feed, raw = {"data": np.zeros(3, np.float32)}, {"data": np.array(pixels, np.float32)}
    monkeypatch.setattr("sgsdump.models.feeds.by_content.HELD_BYTES", 12 + size - 1)
    held = HeldPictures()
    held.keep(0, (feed, raw))
    assert held.get(0) is None
    monkeypatch.setattr("sgsdump.models.feeds.by_content.HELD_BYTES", 12 + size)
    held = HeldPictures()
    held.keep(0, (feed, raw))
    kept = held.get(0)
    assert kept is not None and kept[0] is feed
    assert kept[1]["data"].dtype == np.float32 and kept[1]["data"].tobytes() == raw["data"].tobytes()
