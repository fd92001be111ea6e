"""Time ``sgsdump convert`` on a large container, to .npy files and back, against copying its bytes.

    python benchmarks/convert.py [--mb 2048] [--short] [--folder DIR]

A SigmaStar container of random float tensors of MB megabytes (128 with --short) is made in a temporary folder. Then in
turn, each several times: the file is copied as ``shutil.copyfile`` does; a fresh process, warmed up with a tiny dump,
converts it to a folder of .npy files; another converts that folder back. Nothing is flushed to the disk while the clock
runs. Run it on an idle machine: other work on the disk or in the memory falls on the two unequally. Memory is the
highest resident set of the convert processes, mapped pages included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SHAPES = ((1, 112, 112, 64), (8, 112, 112, 256), (1, 56, 56, 256), (1, 28, 28, 512), (1, 7, 7, 2048), (1, 1000))
REPEATS = 5
CODE = """
import re, sys, time
from sgsdump.cli import main
assert main(["convert", *sys.argv[3:]]) == 0
start, used = time.perf_counter(), time.process_time()
assert main(["convert", *sys.argv[1:3]]) == 0
took, used = time.perf_counter() - start, time.process_time() - used
# not getrusage: what it tells begins with the memory of the process that started this one
print("#", took, used, re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def make(path: Path, megabytes: float) -> None:
    from sgsdump import Tensor, save_dump

    def tensors() -> Iterator[Tensor]:
        generator = np.random.default_rng(0)
        written = number = 0
        while written < megabytes * 1_000_000:
            values = generator.standard_normal(SHAPES[number % len(SHAPES)], np.float32)
            yield Tensor.of(f"layer{number}", values, layout="NHWC" if values.ndim == 4 else None, op_type="CONV_2D")
            written += values.nbytes
            number += 1

    save_dump(tensors(), path, "sigmastar_bin", on_loss="ignore")


def converted(source: Path, target: Path) -> tuple[float, float, float]:
    """Seconds, seconds of processor time and peak megabytes of a fresh process that converts ``source``."""
    remove(target)
    tiny = [target.with_name("tiny.bin"), target.with_name("tiny")]
    command = [sys.executable, "-c", CODE, source, target, *tiny]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    remove(tiny[1])
    took, used, kilobytes = done.stdout.splitlines()[-1].split()[1:]
    return float(took), float(used), int(kilobytes) * 1024 / 1e6


def copied(source: Path, target: Path) -> tuple[float, float]:
    remove(target)
    start, used = time.perf_counter(), time.process_time()
    shutil.copyfile(source, target)
    return time.perf_counter() - start, time.process_time() - used


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    os.sync()  # what an earlier round left to write must not slow this one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=2048, help="size of the container in megabytes")
    parser.add_argument("--short", action="store_true", help="128 MB, three rounds")
    parser.add_argument("--folder", help="where the temporary files go (about three times --mb)")
    args = parser.parse_args()
    megabytes, repeats = (128, 3) if args.short else (args.mb, REPEATS)
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        container, arrays, back = folder / "dump.bin", folder / "arrays", folder / "back.bin"
        make(folder / "tiny.bin", 0.001)
        make(container, megabytes)
        floors, there, home = [], [], []
        for _ in range(repeats):
            floors.append(copied(container, folder / "copy.bin"))
            remove(folder / "copy.bin")
            there.append(converted(container, arrays))
            home.append(converted(arrays, back))
        same = back.read_bytes() == container.read_bytes() if megabytes < 1000 else True
        size = container.stat().st_size / 1e6
    floor, floor_used = (min(column) for column in zip(*floors))
    print(f"{size:.0f} MB")
    print(f"copy of the bytes      {floor:.3f} s  ({floor_used:.3f} s of processor time)")
    for what, runs in (("container to .npy", there), (".npy to container", home)):
        took, used, _ = (min(column) for column in zip(*runs))
        ratios = f"ratio {took / floor:.2f} (aim: 1.5 or less), of processor time {used / floor_used:.2f}"
        print(f"{what:<22} {took:.3f} s  ({used:.3f})  {ratios}")
    print(f"peak resident memory   {max(peak for *_, peak in there + home):.0f} MB   (aim: 300 or less)")
    if not same:
        raise SystemExit("what came back differs from the container")


if __name__ == "__main__":
    main()
