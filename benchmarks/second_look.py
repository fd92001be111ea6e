"""What ``compare`` spends on looking for misnamed tensors, against the comparison without that.

    python benchmarks/second_look.py [--mb 385] [--short] [--folder DIR]

Two dumps of MB megabytes each (40 with --short) are compared in one process, several times: one in which every layer is
off by two percent, so that each is looked for, and one in which a tenth of the layers have each other's names, so that
each of these is compared in full with what it is found to be. Processor time counts; what is picked up of the values
while the pairs are compared belongs to the comparison.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rows import Row, show

SHAPES = ((1, 112, 112, 64), (1, 56, 56, 256), (1, 28, 28, 512), (1, 7, 7, 2048), (1, 1000))
REPEATS = 5
AIM = 1.05


def make(path: Path, megabytes: float, factor: float = 1.0, swapped: bool = False) -> None:
    from sgsdump import Tensor, save_dump

    def tensors() -> Iterator[Tensor]:
        generator = np.random.default_rng(0)
        written = number = 0
        while written < megabytes * 1e6:
            values = generator.standard_normal(SHAPES[number % len(SHAPES)], np.float32)
            other = {0: number + 10, 10: number - 10}.get(number % 100 // 5 * 5, number) if swapped else number
            yield Tensor.of(f"layer{other}", values * np.float32(factor), layout="NHWC", op_type="CONV_2D")
            written += values.nbytes
            number += 1

    save_dump(tensors(), path, "sigmastar_bin", on_loss="ignore")


def measured(sample: Path, benchmark: Path) -> tuple[float, float]:
    """Processor time of a comparison, and of its look for misnamed tensors."""
    from sgsdump.comparison import measure
    from sgsdump.comparison.compare import compare

    search, spent = measure.find_misnamed, 0.0

    def timed(*args):  # type: ignore[no-untyped-def]
        nonlocal spent
        start = time.process_time()
        found = search(*args)
        spent += time.process_time() - start
        return found

    measure.find_misnamed = timed
    try:
        start = time.process_time()
        compare(sample, benchmark)
        return time.process_time() - start, spent
    finally:
        measure.find_misnamed = search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=385, help="size of each dump in megabytes")
    parser.add_argument("--short", action="store_true", help="40 MB")
    parser.add_argument("--folder", help="where the temporary files go (about three times --mb)")
    args = parser.parse_args()
    megabytes = 40 if args.short else args.mb
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        plain, noisy, swapped = (Path(name, file) for file in ("plain.bin", "noisy.bin", "swapped.bin"))
        make(plain, megabytes)
        make(noisy, megabytes, factor=1.02)
        make(swapped, megabytes, factor=1.0005, swapped=True)
        rows = []
        for what, sample in (("every layer off", noisy), ("a tenth misnamed", swapped)):
            whole, search = min(measured(sample, plain) for _ in range(REPEATS))
            rows.append(Row(f"compare, {what}, without the look for misnamed tensors", whole, whole - search, AIM))
    show(rows)


if __name__ == "__main__":
    main()
