"""Make the README's pictures again: the demo's overview and the trade-off of its tuned plans, in docs/pictures.

python docs/make_pictures.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from PIL import Image

from sgsdump.cli import main

PICTURES = Path(__file__).parent / "pictures"
TUNE = "tune -m digits.onnx -i pictures --input_config input_config.ini -o tuned --budget 60s --quant_level L1"
COLOURS = 256


def make(folder: Path) -> list[Path]:
    """Run the demo and ``tune`` on its files in a folder of their own; the pictures go to ``folder``."""
    folder = folder.resolve()
    folder.mkdir(exist_ok=True)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        try:
            run("demo")
            os.chdir("sgsdump_demo")
            run(TUNE)
            return [
                small("Histograms/overview.png", folder / "overview.png"),
                small("tuned/pareto.png", folder / "tradeoff.png"),
            ]
        finally:
            os.chdir(before)


def run(command: str) -> None:
    if main(command.split()):
        raise SystemExit(f"sgsdump {command} failed")


def small(source: str, target: Path) -> Path:
    """The picture with a palette: half the bytes, and no colour of a legend lost."""
    with Image.open(source) as picture:
        paletted = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    paletted.save(target, optimize=True)
    return target


if __name__ == "__main__":
    for path in make(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES):
        print(f"{path} {path.stat().st_size:,} bytes")
