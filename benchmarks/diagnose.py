"""diagnose against the commands it replaces: processor time, and the largest memory of one.

    python benchmarks/diagnose.py [--data FOLDER] [--short] [--repeats N]

FOLDER holds ``ultraface/version-RFB-320_without_postprocessing.onnx`` and ``images/``; by default ../shared/data beside
the checkout, and where that is not there either the demo's digits. Every command is a process of its own. The floor of
the time is the sum of calibrate, simulate of both models and compare on the same pictures, that of the memory the
largest of these; the best of the repeats counts. ``--short``: two pictures, once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rows import Row, show

from sgsdump.fixedpoint.commands import demo

MODEL = "ultraface/version-RFB-320_without_postprocessing.onnx"
INI = """[INPUT_CONFIG]
inputs = input;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = scores,boxes;
dequantizations = TRUE,TRUE;
"""
CONFIG = ["--input-config", "input_config.ini"]


@dataclass(frozen=True)
class Cost:
    """Processor time in s, largest resident memory in MB."""

    processor: float
    memory: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--short", action="store_true", help="two pictures, once")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        show(rows(args.data.resolve(), args.short, 1 if args.short else args.repeats))


def rows(data: Path, short: bool, repeats: int) -> Iterator[Row]:
    count = lay_out(data, 2 if short else None)
    alone = [least(command, repeats) for command in replaced()]
    whole = least(["diagnose", *model(), *CONFIG, "-o", "whole", "--max-images", str(count)], repeats)
    processor, memory = sum(cost.processor for cost in alone), max(cost.memory for cost in alone)
    yield Row(f"diagnose, {count} pictures: processor", whole.processor, processor, 1.5)
    yield Row(f"diagnose, {count} pictures: memory", whole.memory, memory, 1.0, "MB")


def lay_out(data: Path, most: int | None) -> int:
    """The user's files here; how many pictures there are."""
    if not (data / MODEL).is_file():
        demo._lay_out(demo._digits())
        Path("digits.onnx").rename("net.onnx")
        return len(list(Path("pictures").iterdir()))
    Path("input_config.ini").write_text(INI)
    Path("DebugConfig.txt").write_text(demo.DEBUG_CONFIG)
    shutil.copy(data / MODEL, "net.onnx")
    pictures = sorted(path for path in (data / "images").iterdir() if path.suffix == ".jpg")[:most]
    Path("pictures").mkdir()
    for path in pictures:
        shutil.copy(path, "pictures")
    return len(pictures)


def model() -> list[str]:
    return ["-m", "net.onnx", "-i", "pictures"]


def replaced() -> Iterator[list[str]]:
    """The commands, each to be run before the next one is asked for."""
    yield ["calibrate", *model(), *CONFIG, "-o", "fixed.onnx"]
    yield ["simulate", *model(), "-t", "Float", *CONFIG]
    gathered("float")
    yield ["simulate", "-m", "fixed.onnx", "-i", "pictures", "-t", "Fixed"]
    gathered("fixed")
    yield ["compare", "fixed", "float", "--runs"]


def gathered(folder: str) -> None:
    Path(folder).mkdir()
    for path in Path.cwd().glob("sigma_outtensor_dump*.bin"):
        path.rename(Path(folder) / path.name)


def least(command: list[str], repeats: int) -> Cost:
    costs = [cost_of(command) for _ in range(repeats)]
    return Cost(min(cost.processor for cost in costs), min(cost.memory for cost in costs))


def cost_of(command: list[str]) -> Cost:
    process = subprocess.Popen([sys.executable, "-m", "sgsdump", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"sgsdump {' '.join(command)} ended with status {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
