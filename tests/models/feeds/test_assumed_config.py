"""The input_config.ini that nobody gave: mean and std of a preprocess file, what is no picture, and its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sgsdump.errors import InputError
from sgsdump.models.feeds.assumed_config import assume_config, fit_normalisation, ini_text
from sgsdump.models.feeds.feeds import feed_maker
from sgsdump.models.model import InputSpec
from sgsdump.sidecars import input_config
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput

F32 = np.dtype(np.float32)
PICTURE = InputSpec("data", (1, 3, 6, 5), F32)


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ((127.0, 127.0, 127.0), (128.0, 128.0, 128.0)),
        ((0.0, 0.0, 0.0), (255.0, 255.0, 255.0)),
        ((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
        ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
        ((104.0, 117.0, 123.0), (1.0, 1.0, 1.0)),
    ],
    ids=str,
)
def test_mean_and_std_of_common_normalisations_are_found_to_the_digit(mean, std) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (1, 3, 30, 40)).astype(np.float32)
    shape = (1, 3, 1, 1)
    normalised = ((raw - np.reshape(mean, shape)) / np.reshape(std, shape)).astype(np.float32)
    assert fit_normalisation(raw, normalised) == (mean, std)


def test_what_is_no_such_normalisation_is_not_taken_for_one() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (1, 3, 30, 40)).astype(np.float32)
    for other in (np.sqrt(raw), raw[:, ::-1] / 255, -raw, np.zeros_like(raw)):
        assert fit_normalisation(raw, other) is None


def write_preprocess(tmp_path: Path, ending: str) -> str:
    text = "import numpy as np\nfrom PIL import Image\ndef image_preprocess(path, norm=True):\n"
    text += "    x = np.asarray(Image.open(path).resize((5, 6)), np.float32)[None]\n"
    (tmp_path / "pre.py").write_text(text + ending)
    return str(tmp_path / "pre.py")


@pytest.fixture
def picture(tmp_path: Path) -> tuple[str]:
    pixels = np.random.default_rng(1).integers(0, 256, (6, 5, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return (str(tmp_path / "a.png"),)


def test_a_preprocess_file_tells(tmp_path: Path, picture: tuple[str]) -> None:
    file = write_preprocess(tmp_path, "    return (x - [123, 117, 104]) / 57 if norm else x\n")
    assumed = assume_config([PICTURE], ["prob"], file, picture)
    (entry,) = assumed.config.inputs
    assert (entry.mean, entry.std, entry.training_format) == ((123.0, 117.0, 104.0), (57.0,) * 3, "RGB")
    assert "mean 123:117:104" in assumed.sentences[1]


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("    return np.sqrt(x) if norm else x\n", "does more than"),
        ("    return x / 255 if norm else x * 9 - 300\n", "gives no raw image"),
    ],
)
def test_one_that_cannot_tell_leaves_the_input_as_it_is(tmp_path, picture, ending, why) -> None:
    assumed = assume_config([PICTURE], ["prob"], write_preprocess(tmp_path, ending), picture)
    assert not assumed.config.inputs[0].is_picture and why in assumed.sentences[1]


def test_without_one_pictures_are_divided_by_255_and_arrays_taken_as_they_are(picture: tuple[str]) -> None:
    specs = [PICTURE, InputSpec("grey", (1, 1, 6, 5), F32), InputSpec("state", (1, 7), F32)]
    assumed = assume_config(specs, ["prob"], None, (*picture, "b.png", "c.npy"))
    formats = [(entry.training_format, entry.input_format) for entry in assumed.config.inputs]
    assert formats == [("RGB", "RGB"), ("RGB", "GRAY"), ("RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC")]
    assert assumed.config.inputs[0].std == (255.0,) * 3
    assert len(assumed.sentences) == 4 and "divided by 255" in assumed.sentences[1]
    (array,) = assume_config([PICTURE], ["prob"], None, ("x.npy",)).config.inputs
    assert not array.is_picture


def test_a_picture_with_its_channels_last_is_a_picture(tmp_path: Path, picture: tuple[str]) -> None:
    last = InputSpec("data", (None, 6, 5, 3), F32)
    (entry,) = assume_config([last], ["prob"], None, picture).config.inputs
    assert (entry.training_format, entry.std) == ("RGB", (255.0,) * 3)
    file = write_preprocess(tmp_path, "    return (x - [123, 117, 104]) / [57, 58, 59] if norm else x\n")
    (entry,) = assume_config([last], ["prob"], file, picture).config.inputs
    assert (entry.mean, entry.std) == ((123.0, 117.0, 104.0), (57.0, 58.0, 59.0))
    assert (
        not assume_config([InputSpec("data", (1, 6, 5, 7), F32)], ["prob"], None, picture).config.inputs[0].is_picture
    )


def test_a_picture_whose_size_is_open_keeps_its_own_down_to_a_multiple_of_32(tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    Image.fromarray(np.zeros((75, 100, 3), np.uint8)).save(path)
    spec = InputSpec("data", (None, 3, 40, None), F32)
    config = assume_config([spec], ["prob"], None, (path,)).config
    assert feed_maker(None, [spec], config)((path,))["data"].shape == (1, 3, 40, 96)
    (tmp_path / "made.ini").write_text(ini_text(config))
    assert input_config.read(tmp_path / "made.ini") == config


def test_an_input_of_bytes_takes_the_picture_as_it_is(picture: tuple[str]) -> None:
    assumed = assume_config([InputSpec("data", (1, 6, 5, 3), np.dtype(np.uint8))], ["prob"], None, picture)
    (entry,) = assumed.config.inputs
    assert entry.is_picture and (entry.mean, entry.std) == ((0.0,) * 3, (1.0,) * 3)
    assert "uint8" in assumed.sentences[1]


def test_its_text_is_read_back_as_it_is(tmp_path: Path, picture: tuple[str]) -> None:
    specs = [InputSpec("state", (1, 7), F32), PICTURE]
    config = assume_config(specs, ["prob", "boxes"], None, ("c.npy", *picture)).config
    (tmp_path / "made.ini").write_text(ini_text(config))
    assert input_config.read(tmp_path / "made.ini") == config


def test_its_text_is_what_sdk_1_1_5_reads() -> None:
    """mean_red, mean_green and mean_blue, of each picture and of nothing else; a std for each colour only where they
    differ (m_three, s_fraction, two_each, cfg_pic_raw1)."""
    first = ModelInput("a", "RGB", "RGB", (123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    second = ModelInput("b", "RGB", "GRAY", (127.0,) * 3, (128.0,) * 3)
    state = ModelInput("s", "RAWDATA_S16_NHWC", "RAWDATA_S16_NHWC", (), ())
    lines = ini_text(InputConfig((first, state, second), (ModelOutput("y", True),))).splitlines()
    assert lines[4:8] == [
        "mean_red = 123.675,127;",
        "mean_green = 116.28,127;",
        "mean_blue = 103.53,127;",
        "std_value = 58.395:57.12:57.375,128;",
    ]
    assert not any(line.startswith("mean =") for line in lines)


def test_a_preprocess_file_that_fails_is_said(tmp_path: Path, picture: tuple[str]) -> None:
    with pytest.raises(InputError):
        assume_config([PICTURE], ["prob"], write_preprocess(tmp_path, "    return 1 / 0\n"), picture)
