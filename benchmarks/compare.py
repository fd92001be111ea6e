"""Time ``sgsdump.compare`` on large dumps, against touching both once.

    python benchmarks/compare.py [--mb 385] [--cold-mb 4000] [--folder DIR]     about 20 GB of disk, ten minutes
    python benchmarks/compare.py --short                                        what CI runs: seconds

* Two dumps of random float32 tensors of MB megabytes each, in the page cache, start-up apart. The floor touches every
  byte of both mapped files (a sum over 64-bit words) with one thread; compare takes all cores. Each is measured several
  times alternately, in a fresh process. On a busy machine the row in processor time is the one to read.
* Pairs of other types and layouts, in memory, by one thread, in processor time; the floor is the same sum over both.
* The highest anonymous memory (RssAnon) above what the process had before, and the most pages of the mapped files that
  were in its memory, both sampled while compare runs.
* Two dumps of COLD megabytes each that are not in the page cache; the floor reads both files in pieces of 8 MiB, one
  after the other.

Libraries that were tried for the sums, in the time of touching both files of 2 x 166 MB: numpy's dot products over
chunks 1.4 to 4, whole-array formulas, numexpr and numba more than that, and numexpr's and all float32 sums print wrong
digits. Peers: tpu-mlir's npz_tool 27 to 37, the SDK's own tools 36 to 94, Polygraphy 46 to 97.
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
from rows import Row, show

SHAPES = ((1, 112, 112, 64), (1, 56, 56, 256), (1, 28, 28, 512), (1, 14, 14, 1024), (1, 7, 7, 2048), (1, 1000))
PIECE = 8 << 20
REPEATS = 7
SHORT_MB = 48
MEMORY_AIM = 50  # MB


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


def read(path: Path) -> None:
    """Read every byte of a file into one buffer."""
    buffer = bytearray(PIECE)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def forget(path: Path) -> None:
    """Have the system's file cache let go of a file that nobody maps."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(kind: str) -> int:
    """Megabytes of this process: RssAnon belong to no file, RssFile to mapped ones; 0 where the system does not say."""
    try:
        found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 // 1_000_000 if found else 0


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def best(repeats: int, *works: Callable[[], object]) -> list[tuple[float, float]]:
    """The shortest times of each, measured alternately."""
    rounds = [[timed(work) for work in works] for _ in range(repeats)]
    return [(min(wall for wall, _ in each), min(used for _, used in each)) for each in zip(*rounds)]


def touch_words(sides: list[np.ndarray]) -> list[int]:
    return [int(side.sum()) for side in sides]


def compare_files(sample: Path, benchmark: Path) -> None:
    import sgsdump
    from sgsdump.comparison.compare import compare

    assert compare(sgsdump.open_dump(sample), sgsdump.open_dump(benchmark)).rows


def cached(sample: Path, benchmark: Path) -> list[Row]:
    """The rows of two dumps in the page cache."""

    def floor() -> None:
        touch(sample), touch(benchmark)

    compared = partial(compare_files, sample, benchmark)
    floor(), compared()
    megabytes = round((sample.stat().st_size + benchmark.stat().st_size) / 2e6)
    name = f"compare, 2 x {megabytes} MB of float32"
    (floor_wall, floor_used), (wall, used) = best(REPEATS, floor, compared)
    most = peak(compared)
    return [
        Row(name, wall, floor_wall, 1.3),
        Row(f"{name}, processor time", used, floor_used),
        Row("memory beyond the maps", most["RssAnon"], MEMORY_AIM, 1.0, "MB"),
        Row("mapped pages in memory, of both files", most["RssFile"], 2 * megabytes, unit="MB"),
    ]


def peak(work: Callable[[], object]) -> dict[str, int]:
    """How much each kind of memory grew at most."""
    before = {kind: resident(kind) for kind in ("RssAnon", "RssFile")}
    most, stop = dict.fromkeys(before, 0), threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            most.update({kind: max(most[kind], resident(kind) - before[kind]) for kind in before})

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    stop.set()
    watcher.join()
    return most


def cold(sample: Path, benchmark: Path) -> list[Row]:
    """The row of two dumps that have to come from the disk: three rounds, since disks vary."""

    def from_disk(work: Callable[[Path, Path], object]) -> None:
        forget(sample), forget(benchmark)
        times.append(timed(partial(work, sample, benchmark))[0])

    floors: list[float] = []
    figures: list[float] = []
    for _ in range(3):
        times = floors
        from_disk(lambda one, other: (read(one), read(other)))
        times = figures
        from_disk(compare_files)
    megabytes = round((sample.stat().st_size + benchmark.stat().st_size) / 2e6)
    return [Row(f"compare, 2 x {megabytes} MB from the disk", min(figures), min(floors), 1.1)]


def kinds(count: int) -> list[Row]:
    """The rows of other types and layouts: pairs of ``count`` values in memory, one thread."""
    from sgsdump.comparison.sums.summation import pair_sums
    from sgsdump.tensors.tensor import Quant, Tensor, Values, values_of

    rng = np.random.default_rng(0)
    values = rng.standard_normal(count, np.float32)
    floats = Values(values + np.float32(0.01))

    def quantised(dtype: type) -> Values:
        quant = Quant(np.dtype(dtype), 1 / 16, 64, exact=True)
        return values_of(Tensor.of("layer", np.clip(values * 16 + 64, 0, 127).astype(dtype), quant=quant))

    masked = np.where(values > 1, -np.inf, values)
    nchw = values.reshape(4, 64, 64, -1)
    nhwc = np.ascontiguousarray(nchw.transpose(0, 2, 3, 1))
    pairs = {
        "float16 and float32": (Values(values.astype(np.float16)), floats),
        "bfloat16 and float32": (Values(values.astype(ml_dtypes.bfloat16)), floats),
        "int8 and float32": (quantised(np.int8), floats),
        "uint8 and float32": (quantised(np.uint8), floats),
        "int16 and float32": (quantised(np.int16), floats),
        "float32 with -Inf": (Values(masked), Values(masked)),
        "NHWC and NCHW": (Values(nhwc), Values(nchw.transpose(0, 2, 3, 1))),
        "NCHW and NHWC": (Values(nchw), Values(nhwc.transpose(0, 3, 1, 2))),
    }
    rows = []
    for name, (a, b) in pairs.items():
        words = [side.array.ravel("K").view(np.uint64) for side in (a, b)]
        (_, floor), (_, figure) = best(REPEATS, partial(touch_words, words), partial(pair_sums, a, b))
        rows.append(Row(f"sums of {name}", figure, floor))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=385, help="size of each dump in megabytes")
    parser.add_argument("--cold-mb", type=int, default=4000, help="that of those from the disk; 0: none")
    parser.add_argument("--folder", help="where the temporary dumps go (about twice --cold-mb)")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        which, *paths = args.measure
        show({"cached": cached, "cold": cold}[which](*map(Path, paths)))
        return
    from sgsdump.comparison.sums.summation import description

    print(f"{description()}, {os.cpu_count()} cores")
    megabytes, cold_megabytes = (SHORT_MB, 0) if args.short else (args.mb, args.cold_mb)
    for which, size in (("cached", megabytes), ("cold", cold_megabytes)):
        if not size or (which == "cold" and not hasattr(os, "posix_fadvise")):
            continue
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            paths = [Path(folder) / name for name in ("sample.bin", "benchmark.bin")]
            for seed, path in enumerate(paths, 1):
                make(path, size, seed)
            subprocess.run([sys.executable, __file__, "--measure", which, *map(str, paths)], check=True)
    show(kinds(megabytes * 1_000_000 // 4 // (1 << 17) * (1 << 17)))


if __name__ == "__main__":
    main()
