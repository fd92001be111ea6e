"""How the time of every command grows with the number of layers.

    python benchmarks/layers.py [--short] [--only compare show …]

Dumps of 500, 2,000, 8,000 and 32,000 tensors of 64 values are made (50, 200 and 800 with --short). Each command runs on
them in a fresh process, warmed up on a dump of ten; its processor time counts. A row's figure is the slope of the
times' logarithms over the layers' from the second size on, where the fixed costs are small; 1 is linear.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rows import Row, show

SIZES, SHORT = (500, 2000, 8000, 32000), (50, 200, 800)
TINY = 10
SHAPE = (1, 2, 4, 8)
SHORT_RUNS = 3  # of which the least counts: between two sizes that near, a single one's noise is a tenth of the slope
RENAMED = 10  # one layer in so many has another name in the other dump
AIM = 1.1
CODE = """
import os, sys, time
from pathlib import Path
from sgsdump.cli import main
tiny, folder, *words = sys.argv[1:]
for where in (tiny, folder):
    os.chdir(where)
    start, own = time.process_time(), sum(os.times()[2:4])
    status = main(words)
    assert status in (0, 1), status
    used = time.process_time() - start + sum(os.times()[2:4]) - own
print("#", used)
"""
COMMANDS = {
    "show": "show a.bin --csv list.csv --json list.json",
    "compare": "compare a.bin b.bin",
    "compare, renamed": "compare a.bin renamed.bin",
    "compare, files": "compare a.bin b.bin --csv c.csv --json c.json --junit c.xml --markdown c.md",
    "compare, half missing": "compare half.bin b.bin",
    "compare, reversed": "compare a.bin reversed.bin",
    "compare, by value": "compare a.bin renamed.bin --match-by-value",
    "report": "report a.bin b.bin -o report.html",
    "histogram": "histogram a.bin -o drawn",
    "convert to npz": "convert a.bin out.npz",
    "convert to npy": "convert a.bin out",
    "convert to text": "convert a.bin out.txt",
    "convert from text": "convert a.txt out.bin",
    "split": "split a.bin parts",
    "merge": "merge first.bin second.bin merged.bin",
}


def tensors(count: int, seed: int, start: int = 0) -> Iterator[object]:
    from sgsdump import Tensor

    drawn = np.random.default_rng(0).standard_normal((start + count, *SHAPE), np.float32)[start:]
    noise = np.random.default_rng(seed).standard_normal(drawn.shape, np.float32) * np.float32(1e-3 * seed)
    for number, values in enumerate(drawn + noise, start):
        yield Tensor.of(f"block{number // 10}/layer{number}", values, layout="NHWC", op_type="CONV_2D")


def make(folder: Path, layers: int) -> None:
    from dataclasses import replace

    from sgsdump import Tensor, save_dump

    def renamed() -> Iterator[Tensor]:
        for number, tensor in enumerate(tensors(layers, 1)):
            name = f"other{number}" if number % RENAMED == 0 else tensor.name
            yield Tensor(replace(tensor.info, name=name), tensor.raw)

    folder.mkdir()
    save_dump(tensors(layers, 0), folder / "a.bin")
    save_dump(tensors(layers, 0), folder / "a.txt", on_loss="ignore")
    save_dump(tensors(layers, 1), folder / "b.bin")
    save_dump(renamed(), folder / "renamed.bin")
    save_dump(reversed(list(tensors(layers, 1))), folder / "reversed.bin")
    save_dump(list(tensors(layers, 1))[::2], folder / "half.bin")
    save_dump(tensors(layers // 2, 0), folder / "first.bin")
    save_dump(tensors(layers // 2, 0, layers // 2), folder / "second.bin")


# Makes a folder of so many layers or nodes.
Make = Callable[[Path, int], None]


def seconds(tiny: Path, folder: Path, command: str) -> float:
    made = {path.name for path in folder.iterdir()}
    call = [sys.executable, "-c", CODE, tiny, folder, *command.split()]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    for path in [each for where in (tiny, folder) for each in where.iterdir() if each.name not in made]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return float(done.stdout.splitlines()[-1].split()[1])


def slope(sizes: tuple[int, ...], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes[1:]), np.log(times[1:]), 1)[0])


def measure(
    text: str | None, what: str, sizes: tuple[tuple[int, ...], tuple[int, ...]], commands: dict[str, str], make: Make
) -> None:
    """The command line of a benchmark of growth: ``make(folder, n)`` makes a folder with n of ``what``; ``sizes`` are
    the full and the short ones. Prints the times of each command at each size, and a row with the exponent."""
    full, short = sizes
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help=f"{', '.join(map(str, short))} {what}")
    parser.add_argument("--only", nargs="+", metavar="COMMAND", default=list(commands), help="some of the commands")
    args = parser.parse_args()
    chosen = short if args.short else full
    runs = SHORT_RUNS if args.short else 1
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, str(size)) for size in (TINY, *chosen)]
        for folder, size in zip(folders, (TINY, *chosen)):
            make(folder, size)
        rows = []
        print(f"{'processor time in s':24}" + "".join(f"{size:>10,}" for size in chosen))
        for command in args.only:
            times = [min(seconds(folders[0], folder, commands[command]) for _ in range(runs)) for folder in folders[1:]]
            print(f"{command:24}" + "".join(f"{time:10.3f}" for time in times), flush=True)
            rows.append(Row(f"{command}, exponent of its time over {what}", slope(chosen, times), 1, AIM, ""))
    show(rows)


if __name__ == "__main__":
    measure(__doc__, "layers", (SIZES, SHORT), COMMANDS, make)
