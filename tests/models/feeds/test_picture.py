"""What is given as a picture and is none that may be opened.

A context of the whole process, entered by several threads.
"""

import io
import os
import struct
import warnings
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from PIL import Image
from platforms import unix_only

from sgsdump.errors import InputError
from sgsdump.executors.workers.task_pool import in_threads
from sgsdump.models.feeds.image_list import expand
from sgsdump.models.feeds.picture import FORMATS, SharedContext, decode

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_eps_is_not_handed_to_its_program(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("the program was started"))
    (tmp_path / "x.png").write_bytes(EPS)
    with pytest.raises(InputError, match="not an image of a supported format"):
        decode(tmp_path / "x.png")


@pytest.mark.parametrize("form", FORMATS)
def test_the_formats_named_are_read(tmp_path, form):
    Image.new("RGB", (8, 6), (10, 200, 30)).save(tmp_path / "x", form)
    assert decode(tmp_path / "x").shape == (6, 8, 3)


@unix_only
def test_a_pipe_is_no_picture(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(InputError, match="device or a pipe"):
        decode(tmp_path / "x.png")


def test_a_list_of_a_folders_files_does_not_lead_out_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("pictures", "lists"):
        (tmp_path / folder).mkdir()
    for name in ("secret.png", "pictures/x.png", "lists/beside.png"):
        Image.new("L", (2, 2)).save(tmp_path / name)
    (tmp_path / "lists" / "fine.txt").write_text("x.png\nbeside.png\n")
    assert [file for (file,) in expand("pictures:lists/fine.txt")] == ["pictures/x.png", "lists/beside.png"]
    for name in ("../secret.png", str(tmp_path / "secret.png")):
        (tmp_path / "lists" / "out.txt").write_text(name)
        with pytest.raises(InputError, match="is outside the folder"):
            expand("pictures:lists/out.txt")


def test_what_libtiff_says_of_a_damaged_file_is_not_printed(tmp_path, capfd):
    file = io.BytesIO()
    Image.effect_noise((32, 32), 60).save(file, "tiff", compression="tiff_lzw")
    whole = file.getvalue()
    for at in range(8, 200, 7):
        (tmp_path / "x.tif").write_bytes(whole[:at] + b"\xff\xff\xff" + whole[at + 3 :])
        with suppress(InputError):
            decode(tmp_path / "x.tif")
    assert capfd.readouterr() == ("", "")


def test_a_name_too_long_for_the_system_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("x" * 5000)
    with pytest.raises(InputError, match=r"list.txt:1: there is no file"):
        expand("list.txt")


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


def test_a_small_file_of_a_huge_picture_takes_no_memory(tmp_path):
    """A TIFF of a few hundred bytes may say that it has 65 million pixels, for which the decoder takes 262 MB."""
    path = tmp_path / "x.tif"
    Image.fromarray(np.zeros((9, 8, 3), np.uint8)).save(path)
    length = struct.pack("<HHII", 257, 4, 1, 9)  # ImageLength, which Pillow writes so
    content = path.read_bytes()
    assert content.count(length) == 1
    path.write_bytes(content.replace(length, struct.pack("<HHII", 257, 4, 1, 8_192_009)))
    with pytest.raises(InputError, match=r"a file of \d+ bytes cannot hold 8 x 8192009 pixels"):
        decode(path)


def test_a_large_picture_of_one_colour_is_read(tmp_path):
    Image.fromarray(np.full((4200, 4200, 3), 7, np.uint8)).save(tmp_path / "x.png")
    assert decode(tmp_path / "x.png").shape == (4200, 4200, 3)
