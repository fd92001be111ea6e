"""Time ``sgsdump.compare`` on two large dumps, against reading both files once through memory.

    python benchmarks/compare.py [--mb 385] [--folder DIR]

Two dumps of random float tensors of MB megabytes each are made in a temporary folder. The floor touches every byte of
both mapped files (a sum over 64-bit words, one thread); compare does its work with the files in the page cache and
start-up apart. Both run in a fresh process, each measured several times alternately. Memory is the highest anonymous
memory (RssAnon: not the mapped files) above what the process had before, sampled while compare runs.
"""

from __future__ import annotations

import argparse
import mmap
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SHAPES = ((1, 112, 112, 64), (1, 56, 56, 256), (1, 28, 28, 512), (1, 14, 14, 1024), (1, 7, 7, 2048), (1, 1000))
REPEATS = 7


def make(path: Path, megabytes: int, noise_seed: int) -> None:
    """A dump of about that size: the same values for every seed but for 1 % of noise."""
    from sgsdump import Tensor, save_dump

    def tensors() -> Iterator[Tensor]:
        base, noise = np.random.default_rng(0), np.random.default_rng(noise_seed)
        written = number = 0
        while written < megabytes * 1_000_000:
            shape = SHAPES[number % len(SHAPES)]
            values = base.standard_normal(shape, np.float32)
            values += np.float32(0.01) * noise.standard_normal(shape, np.float32)
            yield Tensor.of(f"layer{number}", values, op_type="CONV_2D")
            written += values.nbytes
            number += 1

    save_dump(tensors(), path, "sigmastar_bin", on_loss="ignore")


def touch(path: Path) -> int:
    """Read every byte of a file through memory."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        words = np.frombuffer(data, np.uint64, len(data) // 8)
        total = int(words.sum())
        del words
    return total


def anonymous_memory() -> int:
    """Bytes of this process that belong to no file; 0 where the system does not say."""
    try:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def measure(sample: Path, benchmark: Path) -> None:
    import sgsdump
    from sgsdump.comparison.comparison import compare

    touch(sample), touch(benchmark)
    compare(sgsdump.open_dump(sample), sgsdump.open_dump(benchmark))
    before, peak, stop = anonymous_memory(), 0, threading.Event()
    floors, times, cpu = [], [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        touch(sample), touch(benchmark)
        floors.append(time.perf_counter() - start)
        start, used = time.perf_counter(), time.process_time()
        rows = compare(sgsdump.open_dump(sample), sgsdump.open_dump(benchmark)).rows
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.002):
            peak = max(peak, anonymous_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    compare(sgsdump.open_dump(sample), sgsdump.open_dump(benchmark))
    stop.set()
    watcher.join()
    floor, best = min(floors), min(times)
    megabytes = (sample.stat().st_size + benchmark.stat().st_size) / 1e6
    print(f"{len(rows)} tensors, {megabytes:.0f} MB in both files, {os.cpu_count()} cores")
    print(f"touching every byte  {floor:.3f} s  ({megabytes / floor / 1000:.1f} GB/s)")
    print(f"compare              {best:.3f} s  ({min(cpu):.3f} s of processor time; idle cores would share it)")
    print(f"ratio                {best / floor:.2f}   (aim: 2 or less)")
    print(f"memory beyond files  {max(0, peak - before) / 1e6:.0f} MB   (aim: 200 or less)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=385, help="size of each dump in megabytes")
    parser.add_argument("--folder", help="where the temporary dumps go (about twice --mb)")
    parser.add_argument("--measure", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(*args.measure)
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        paths = [Path(folder) / name for name in ("sample.bin", "benchmark.bin")]
        for seed, path in enumerate(paths, 1):
            make(path, args.mb, seed)
        subprocess.run([sys.executable, __file__, "--measure", *map(str, paths)], check=True)


if __name__ == "__main__":
    main()
