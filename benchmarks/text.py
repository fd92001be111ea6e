"""Time and memory of a large string dump: listed, compared with the binary dump of the same run, converted to it; and
the time that dumps of many tiny records take to open.

    python benchmarks/text.py [--mb 442] [--short] [--folder DIR]

A string dump of the simulators' kind, of MB megabytes (40 with --short), is made of random values in a temporary
folder, with its binary dump. Each command runs in a fresh process, warmed up with a tiny dump, three times; the
shortest run and the highest resident set count, mapped pages included. The floor of the times is reading the file's
bytes once; the aims are 3 s and 100 MB for 442 MB, and in proportion of the time for others.

100,000 records of 16 values (10,000 with --short) are opened as a binary and as a string dump, in the same way; the
floor is again reading the file's bytes, the aim 1 s for 100,000.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rows import Row, show

if TYPE_CHECKING:
    from sgsdump import Tensor

SHAPES = ((1, 112, 112, 64), (1, 56, 56, 256), (1, 28, 28, 512), (1, 7, 7, 2048), (1, 1000))
BYTES_PER_VALUE = 10.56
REPEATS = 3
SECONDS_PER_MB, MEGABYTES = 3 / 442, 100
TINY_RECORDS, TINY_RECORDS_SHORT = 100_000, 10_000
TINY_SHAPE = (1, 1, 1, 16)
SECONDS_PER_RECORD = 1 / 100_000
CODE = """
import re, sys, time
from sgsdump.cli import main
assert main(["compare", sys.argv[1], sys.argv[1]]) == 0
start = time.perf_counter()
assert main(sys.argv[2:]) == 0
took = time.perf_counter() - start
# not getrusage: what it tells begins with the memory of the process that started this one
print("#", took, re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""

OPEN = """
import sys, time
from sgsdump import open_dump
open_dump(sys.argv[1])
start = time.perf_counter()
open_dump(sys.argv[2])
print(time.perf_counter() - start)
"""


def make(text: Path, binary: Path, megabytes: float) -> None:
    from sgsdump import Tensor

    def tensors() -> Iterator[Tensor]:
        generator = np.random.default_rng(0)
        written = number = 0
        while written * BYTES_PER_VALUE < megabytes * 1e6:
            values = generator.standard_normal(SHAPES[number % len(SHAPES)], np.float32)
            yield Tensor.of(f"layer{number}", values, layout="NHWC", op_type="CONV_2D")
            written += values.size
            number += 1

    save_both(tensors, text, binary)


def make_tiny(text: Path, binary: Path, records: int) -> None:
    from sgsdump import Tensor

    def tensors() -> Iterator[Tensor]:
        values = np.random.default_rng(0).standard_normal((records, *TINY_SHAPE), np.float32)
        return (Tensor.of(f"layer{i}", v, layout="NHWC", op_type="CONV_2D") for i, v in enumerate(values))

    save_both(tensors, text, binary)


def save_both(tensors: Callable[[], Iterator[Tensor]], text: Path, binary: Path) -> None:
    from sgsdump import save_dump
    from sgsdump.dumps.formats.sigmastar.text_dump import SIM, write
    from sgsdump.dumps.io import as_records

    write(as_records(tensors()), text, SIM)
    save_dump(tensors(), binary, "sigmastar_bin", on_loss="ignore")


def run(tiny: Path, *args: str | Path) -> tuple[float, float]:
    """Seconds and peak megabytes of a fresh process that runs a command."""
    done = subprocess.run([sys.executable, "-c", CODE, tiny, *args], check=True, capture_output=True, text=True)
    took, kilobytes = done.stdout.splitlines()[-1].split()[1:]
    return float(took), int(kilobytes) * 1024 / 1e6


def read(path: Path) -> float:
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def opening(tiny: Path, path: Path) -> float:
    """Seconds to open a dump in a fresh process."""
    call = [sys.executable, "-c", OPEN, tiny, path]
    return float(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def opened(folder: Path, tiny_text: Path, tiny_binary: Path, records: int) -> Iterator[Row]:
    text, binary = folder / "records_text.bin", folder / "records.bin"
    make_tiny(text, binary, records)
    for kind, tiny, path in (("binary", tiny_binary, binary), ("string", tiny_text, text)):
        floor = min(read(path) for _ in range(REPEATS))
        took = min(opening(tiny, path) for _ in range(REPEATS))
        aim = round(SECONDS_PER_RECORD * records / floor, 1)
        yield Row(f"open, {kind} dump of {records:,} tiny records, its bytes read", took, floor, aim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=442, help="size of the string dump in megabytes")
    parser.add_argument("--short", action="store_true", help="40 MB")
    parser.add_argument("--folder", help="where the temporary files go (about twice --mb)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        text, binary, out, tiny = (Path(name, file) for file in ("dump_text.bin", "dump.bin", "out.bin", "tiny.bin"))
        make(tiny, out, 0.001)
        records = TINY_RECORDS_SHORT if args.short else TINY_RECORDS
        of_records = list(opened(Path(name), tiny, out, records))
        make(text, binary, 40 if args.short else args.mb)
        size = text.stat().st_size / 1e6
        commands = {"show": ("show", text), "compare": ("compare", text, binary), "convert": ("convert", text, out)}
        floor = min(read(text) for _ in range(REPEATS))
        rows = []
        for what, command in commands.items():
            took, peak = (
                f(column) for f, column in zip((min, max), zip(*(run(tiny, *command) for _ in range(REPEATS))))
            )
            aim = round(SECONDS_PER_MB * size / floor, 1)
            rows.append(Row(f"{what}, string dump of {size:.0f} MB, its bytes read", took, floor, aim))
            rows.append(Row(f"{what}, string dump of {size:.0f} MB, memory", peak, MEGABYTES, 1, "MB"))
    show([*rows, *of_records])


if __name__ == "__main__":
    main()
