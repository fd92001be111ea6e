"""Make the README's pictures again, in docs/pictures: the demo's overview, its tuned plans' trade-off, its report.

The report is photographed by Chromium (Debian's chromium and chromium-driver, and selenium); without them its picture
stays as it is.

python docs/make_pictures.py [FOLDER]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

from sgsdump.cli import main

PICTURES = Path(__file__).parent / "pictures"
TUNE = "tune -m digits.onnx -i pictures --input-config input_config.ini -o tuned --budget 60s --quant-level L1"
REPORT = "report fixed.bin float.bin --ranges log/tensor_min_max.txt"
WINDOW = (1280, 1720)
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
            run(REPORT)
            return [
                small("Histograms/overview.png", folder / "overview.png"),
                small("tuned/pareto.png", folder / "tradeoff.png"),
                *photographed(Path("report.html"), folder / "report.png"),
            ]
        finally:
            os.chdir(before)


def run(command: str) -> None:
    if main(command.split()):
        raise SystemExit(f"sgsdump {command} failed")


def photographed(page: Path, target: Path) -> list[Path]:
    """The page in a window, as a picture; nothing without a browser."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        print(f"{target}: not made again, as there is no chromium")
        return []
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        size = dict(zip(("width", "height"), WINDOW), deviceScaleFactor=1, mobile=False)
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.resolve().as_uri())
        driver.save_screenshot("report.png")
    finally:
        driver.quit()
    return [small("report.png", target)]


def small(source: str, target: Path) -> Path:
    """The picture with a palette: half the bytes, and no colour of a legend lost."""
    with Image.open(source) as picture:
        paletted = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    paletted.save(target, optimize=True)
    return target


if __name__ == "__main__":
    for path in make(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES):
        print(f"{path} {path.stat().st_size:,} bytes")
