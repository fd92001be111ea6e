"""Time the start of a command, as a user waits for it, against the start of what it cannot do without.

    python benchmarks/startup.py [--short]

``sgsdump --help`` and ``sgsdump show --help`` are held against an empty Python program. ``sgsdump show`` of 2,000 small
tensors, which reads every value, and ``sgsdump compare`` of two dumps with one tiny layer are held against a program
that imports numpy. Each runs in turn, several times; the shortest counts. The aims are 0.1 s, 0.2 s and 1.5 imports of
numpy. Python keeps compiled modules in a folder of this benchmark.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rows import Row, show

TENSORS = 2000
SIDES = "sample", "benchmark"
HELP_SECONDS, SHOW_SECONDS, COMPARE_IMPORTS = 0.1, 0.2, 1.5


def make(path: Path) -> None:
    from sgsdump import Tensor, save_dump

    drawn = np.random.default_rng(0).standard_normal((TENSORS, 1, 4, 4, 4), np.float32)
    save_dump((Tensor.of(f"layer{i}", v, layout="NHWC", op_type="CONV_2D") for i, v in enumerate(drawn)), path)
    for side, error in zip(SIDES, (0.01, 0.0)):
        save_dump([Tensor.of("layer", drawn[0] + np.float32(error), layout="NHWC")], path.with_name(f"{side}.bin"))


def seconds(compiled: Path, *args: str) -> float:
    own = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled), "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    subprocess.run([sys.executable, *args], check=True, env=own, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="four runs of each in place of twenty")
    repeats = 4 if parser.parse_args().short else 20
    with tempfile.TemporaryDirectory() as name:
        dump, compiled = Path(name, "dump.bin"), Path(name, "compiled")
        make(dump)
        programs = {
            "python": ("-c", "pass"),
            "numpy": ("-c", "import numpy"),
            "--help": ("-m", "sgsdump", "--help"),
            "show --help": ("-m", "sgsdump", "show", "--help"),
            "show": ("-m", "sgsdump", "show", str(dump)),
            "compare": ("-m", "sgsdump", "compare", *(str(Path(name, f"{side}.bin")) for side in SIDES)),
        }
        runs = [{what: seconds(compiled, *args) for what, args in programs.items()} for _ in range(repeats + 1)]
    best = {what: min(run[what] for run in runs[1:]) for what in programs}  # the first one compiles
    python, numpy = best["python"], best["numpy"]
    show(
        [
            Row("sgsdump --help, python", best["--help"], python, round(HELP_SECONDS / python, 2)),
            Row("sgsdump show --help, python", best["show --help"], python, round(HELP_SECONDS / python, 2)),
            Row(
                f"sgsdump show of {TENSORS:,} tensors, import numpy",
                best["show"],
                numpy,
                round(SHOW_SECONDS / numpy, 2),
            ),
            Row("sgsdump compare of one tiny layer, import numpy", best["compare"], numpy, COMPARE_IMPORTS),
        ]
    )


if __name__ == "__main__":
    main()
