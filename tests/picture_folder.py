"""What the commands that calibrate are given: input_config.ini and a folder of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

RGB_INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
"""


def write_pictures(folder: Path, count: int, ini: str = RGB_INI) -> None:
    """``folder/input_config.ini`` and ``count`` random 8 x 8 pictures in ``folder/pictures``, 0.png, 1.png …"""
    (folder / "input_config.ini").write_text(ini)
    (folder / "pictures").mkdir()
    for seed in range(count):
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{seed}.png")
