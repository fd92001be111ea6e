"""What dumping a torch program costs: a ResNet-50-like net's forward with the hooks idle, taking statistics, and taking
all tensors, beside the same program without them.

    python benchmarks/capture_torch.py            batches of 1 and 8 images, ten forwards, five rounds
    python benchmarks/capture_torch.py --short    a batch of 1, three forwards, one round

Each run is a process of its own, all ways by turns; the least time of a forward counts, for other work on the machine
only ever adds to it, and the median is printed beside. The first forward is a step of its own, not counted: the weights
are dumped in it. ``idle`` is held against forwards of the same process that the hook does not see, by turns, since one
percent is less than processes differ by.

Of tensors, the seconds that three dumped forwards took longer than plain ones are held against those of a plain copy:
as many files of the same sizes, written one after the other to the same disk.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import Row, is_short_with_torch, show

from sgsdump.capture.programs.control import DumpControl, Steps
from sgsdump.capture.programs.program import run_program

DUMPED = 3
TURNS = 6  # of the idle hook, for each forward of the others
NEVER = Steps(((10**6, 10**6),))
WAYS = {
    "plain": None,
    "idle": DumpControl(steps=NEVER),
    "statistics": DumpControl(content="stats"),
    "tensors": DumpControl(steps=Steps(((0, DUMPED),))),
}
PROGRAM = """
import json, sys, time
import torch

way, batch, forwards, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
sys.path.insert(0, sys.argv[5])
from resnet_torch import Net

torch.manual_seed(0)
net, x = Net().eval(), torch.randn(batch, 3, 224, 224)
seen = torch.nn.Module.__call__
unseen = getattr(seen, "__wrapped__", seen)
seconds, others = [], []


def forward(call, seconds):
    torch.nn.Module.__call__ = call
    began = time.perf_counter(), time.process_time()
    net(x)
    seconds.append((time.perf_counter() - began[0], time.process_time() - began[1]))


with torch.no_grad():
    forward(seen, seconds)
    for turn in range(forwards):
        pair = [(seen, seconds), (unseen, others)] if way == "idle" else [(seen, seconds)]
        for one in pair if turn % 2 else pair[::-1]:
            forward(*one)
with open(out, "w") as file:
    json.dump([seconds, others], file)
"""

Times = list[tuple[float, float]]


def run(way: str, folder: Path, batch: int, forwards: int) -> tuple[Times, Times, Path]:
    """Seconds (by the clock, by the processor) of each forward, the first one too; of those unseen; and the dump."""
    out = folder / "seconds.json"
    words = [way, str(batch), str(forwards), str(out), str(Path(__file__).parent)]
    argv = [sys.executable, str(folder / "program.py"), *words]
    control, root = WAYS[way], folder / "dump"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    if control is None:
        subprocess.run(argv, check=True)
    else:
        run_program(argv, control, root)
    seconds, others = json.loads(out.read_text())
    return seconds, others, root


def payloads(root: Path) -> list[int]:
    """The sizes of the files that the dump has from the second step on and not from the first, each once."""
    sizes: dict[bool, dict[int, int]] = {True: {}, False: {}}
    for path in root.rglob("*.bin"):
        status = path.stat()
        sizes[path.relative_to(root).parts[2] == "0"][status.st_ino] = status.st_size
    return [size for inode, size in sizes[False].items() if inode not in sizes[True]]


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


def measure(batch: int, forwards: int, rounds: int) -> list[Row]:
    """Prints the table of one batch size; the rows of it."""
    times: dict[str, Times] = {way: [] for way in (*WAYS, "unseen")}
    writing: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        for _ in range(rounds):
            for way in WAYS:
                count = {"idle": TURNS * forwards, "tensors": DUMPED}.get(way, forwards)
                taken, others, root = run(way, folder, batch, count)
                times[way] += taken[1:]
                times["unseen"] += others
                if way == "tensors":
                    sizes = payloads(root)
                    writing.append((sum(clock for clock, _ in taken[1:]), copying(folder, sizes), sum(sizes)))
    print(
        f"{f'batch {batch}':<12}{'ms a forward: least':>20}{'median':>10}{'by the processor: least':>26}{'median':>10}"
    )
    for way, both in times.items():
        cells = [pick(column) * 1000 for column in zip(*both) for pick in (min, statistics.median)]
        print(f"{way:<12}{cells[0]:>20.1f}{cells[1]:>10.1f}{cells[2]:>26.1f}{cells[3]:>10.1f}")
    least = {way: min(both)[0] for way, both in times.items()}
    added, copied, size = min((taken - DUMPED * least["plain"], copied, size) for taken, copied, size in writing)
    print(f"tensors: {size / added / 2**20:.0f} MiB/s, a plain copy {size / copied / 2**20:.0f} MiB/s")
    return [
        Row(f"torch, batch {batch}: hook idle", least["idle"], least["unseen"], 1.01),
        Row(f"torch, batch {batch}: statistics", least["statistics"], least["plain"], 2),
        Row(f"torch, batch {batch}: {size >> 20} MiB of tensors", added, copied, 1),
    ]


def main() -> None:
    short = is_short_with_torch(__doc__ or "")
    if short is None:
        return
    batches, forwards, rounds = ((1,), 3, 1) if short else ((1, 8), 10, 5)
    show(row for batch in batches for row in measure(batch, forwards, rounds))


if __name__ == "__main__":
    main()
