"""What dumping a torch program costs: a ResNet-50-like net's forward with the hooks idle, taking statistics, and taking
all tensors, as ratios to the same program without them.

    python benchmarks/capture_torch.py            batches of 1 and 8 images, ten forwards, three rounds
    python benchmarks/capture_torch.py --short    a batch of 1, three forwards, one round

Each run is a process of its own, all ways by turns. The first forward is a step of its own, not counted for the ratios:
the weights are dumped in it. Tensors are dumped of the first three forwards, and the bytes a second of these stand
beside those of a plain copy: as many files of the same sizes, written one after the other.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sgsdump.capture.control import DumpControl
from sgsdump.capture.program import run_program
from sgsdump.capture.steps import Steps

DUMPED = 3
WAYS = {
    "plain": None,
    "idle": DumpControl(steps=Steps(((10**6, 10**6),))),
    "statistics": DumpControl(content="stats"),
    "tensors": DumpControl(steps=Steps(((0, DUMPED - 1),))),
}
PROGRAM = """
import json, sys, time
import torch

sys.path.insert(0, sys.argv[4])
from resnet_torch import Net

batch, forwards, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
net, x, seconds = Net().eval(), torch.randn(batch, 3, 224, 224), []
with torch.no_grad():
    for _ in range(forwards + 1):
        start = time.perf_counter()
        net(x)
        seconds.append(time.perf_counter() - start)
with open(out, "w") as file:
    json.dump(seconds, file)
"""


def run(way: str, folder: Path, batch: int, forwards: int) -> tuple[list[float], Path]:
    """Seconds of each forward, the first one too, and the dump."""
    out = folder / "seconds.json"
    argv = [sys.executable, str(folder / "program.py"), str(batch), str(forwards), str(out), str(Path(__file__).parent)]
    control, root = WAYS[way], folder / "dump"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    if control is None:
        subprocess.run(argv, check=True)
    else:
        run_program(argv, control, root)
    return json.loads(out.read_text()), root


def payloads(root: Path) -> list[int]:
    """The sizes of the dump's files, each once."""
    files = {status.st_ino: status.st_size for status in (path.stat() for path in root.rglob("*.bin"))}
    return list(files.values())


def copying(folder: Path, sizes: list[int]) -> float:
    """Seconds to write files of these sizes, one after the other."""
    place = folder / "copied"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    data = memoryview(bytearray(os.urandom(1 << 20)) * (max(sizes) // (1 << 20) + 1))
    start = time.perf_counter()
    for number, size in enumerate(sizes):
        (place / str(number)).write_bytes(data[:size])
    seconds = time.perf_counter() - start
    shutil.rmtree(place)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed (pip install torch): nothing to measure")
        return
    for batch in (1,) if short else (1, 8):
        measure(batch, *((3, 1) if short else (10, 3)))


def measure(batch: int, forwards: int, rounds: int) -> None:
    """Prints the table of one batch size."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    rates: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        for _ in range(rounds):
            for way in WAYS:
                taken, root = run(way, folder, batch, forwards)
                seconds[way] += taken[1:DUMPED] if way == "tensors" else taken[1:]
                if way == "tensors":
                    sizes = payloads(root)
                    rates.append((sum(sizes) / sum(taken[:DUMPED]), sum(sizes) / copying(folder, sizes)))
    plain = statistics.median(seconds["plain"])
    print(f"{f'batch {batch}':<12}{'ms a forward':>14}{'ratio':>8}")
    for way, all_seconds in seconds.items():
        median = statistics.median(all_seconds)
        print(f"{way:<12}{median * 1000:>14.1f}{median / plain:>8.2f}")
    dump, copy = (statistics.median(values) / 2**20 for values in zip(*rates))
    print(f"tensors: {dump:.0f} MiB/s while the program runs, a plain copy {copy:.0f} MiB/s")


if __name__ == "__main__":
    main()
