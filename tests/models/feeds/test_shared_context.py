"""A context of the whole process, entered by several threads."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from sgsdump.errors import InputError
from sgsdump.executors.workers.threads import in_threads
from sgsdump.models.feeds.picture import decode
from sgsdump.models.feeds.shared_context import SharedContext


def test_the_first_makes_it_and_the_last_leaves_it():
    seen = []

    @contextmanager
    def made():
        seen.append("made")
        yield
        seen.append("left")

    shared = SharedContext(made)
    for _ in range(2):
        with shared:
            with shared:
                assert seen[-1] == "made"
            assert seen[-1] == "made"
        assert seen[-1] == "left"
    assert seen == ["made", "left"] * 2


def test_pictures_too_large_are_refused_by_every_thread_and_the_filters_are_as_before(tmp_path, monkeypatch):
    for number in range(16):
        Image.fromarray(np.full((20, 30 + number % 2 * 100, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1500)
    before = list(warnings.filters)

    def size(number):
        try:
            return decode(tmp_path / f"{number}.png").shape[1]
        except InputError as error:
            return "larger than" in str(error)

    assert list(in_threads(size, range(16), 4)) == [30, True] * 8
    assert list(warnings.filters) == before
    with pytest.raises(InputError, match="larger than 1500 pixels"):
        decode(tmp_path / "1.png")
