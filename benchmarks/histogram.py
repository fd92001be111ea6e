"""What ``sgsdump histogram`` takes: one picture, and 200 layers of 1,000,000 values on every core.

The floor of the layers is every core touching every value once (the sum of each tensor, a thread per core); that of a
picture is the 8 ms set as its goal. The usual way is a new ``plt.figure()``, ``plt.hist(bins="auto")``, two
``axvline`` and ``savefig`` for every layer; ``auto`` can ask for any number of bins, so the layers here are
well-behaved: normal and rectified normal values.

    python benchmarks/histogram.py             in full, 1 GB of memory
    python benchmarks/histogram.py --short     20 layers of 100,000 values
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rows import Row, show

from sgsdump.comparison.distribution import Distribution, distributions
from sgsdump.dumps.dump import Dump, Record
from sgsdump.files.process import cores
from sgsdump.reports.charts.layer_histogram import drawing_beside, save_contact_sheets, save_histogram
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Range

PICTURE_MS = 8.0
USUAL_LAYERS = 10


def make(layers: int, values: int) -> tuple[Dump, dict[str, Range]]:
    rng = np.random.default_rng(0)
    records = []
    for index in range(layers):
        array = rng.normal(size=values).astype(np.float32)
        array = np.maximum(array, 0) if index % 2 else array
        records.append(Record("out", 0, index, "CONV_2D", Tensor.of(f"block{index}/conv", array)))
    ranges = {r.name: Range.of(float(r.tensor.real().min()), float(r.tensor.real().max())) for r in records}
    return Dump(records), ranges


def whole(dump: Dump, ranges: dict[str, Range], folder: Path) -> None:
    """All that the command does once the dump is open."""
    drawn = []
    with drawing_beside(save_histogram) as draw:
        for layer in distributions(dump, ranges):
            assert isinstance(layer, Distribution)
            draw(layer, folder / f"{layer.index}.png")
            drawn.append(layer)
    save_contact_sheets(drawn, folder)


def touched(dump: Dump, ranges: dict[str, Range], folder: Path) -> None:
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(lambda name: dump[name].real().sum(), dump))


def usual(dump: Dump, ranges: dict[str, Range], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for index, name in enumerate(dump):
        pyplot.figure()
        pyplot.hist(dump[name].real().reshape(-1), bins="auto")
        pyplot.axvline(ranges[name].low, color="r", linestyle="--")
        pyplot.axvline(ranges[name].high, color="r", linestyle="--")
        pyplot.title(name)
        pyplot.savefig(folder / f"{index}.png")
        pyplot.close()


def pictures(dump: Dump, ranges: dict[str, Range], folder: Path) -> float:
    """Milliseconds a picture, the counting left out; by one thread."""
    layers = [layer for layer in distributions(dump, ranges) if isinstance(layer, Distribution)]
    return best(lambda: [save_histogram(layer, folder / f"{layer.index}.png") for layer in layers]) / len(layers) * 1000


def best(work: Callable[[], object], times: int = 3) -> float:
    """Seconds, the least of some runs."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    layers, values = (20, 100_000) if parser.parse_args().short else (200, 1_000_000)
    dump, ranges = make(layers, values)
    few = Dump(dump.records[:USUAL_LAYERS])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole(few, ranges, folder)  # fonts, imports
        what = f"histogram, {layers} layers of {values:,} values"
        show(
            [
                Row("histogram, one picture", pictures(few, ranges, folder), PICTURE_MS, 1, "ms"),
                Row(
                    f"{what}, {cores()} threads",
                    best(lambda: whole(dump, ranges, folder)),
                    best(lambda: touched(dump, ranges, folder)),
                ),
            ]
        )
        usual(Dump(dump.records[:1]), ranges, folder)
        seconds = best(lambda: usual(few, ranges, folder), 1), best(lambda: whole(few, ranges, folder), 1)
    a_layer = [1000 * each / USUAL_LAYERS for each in seconds]
    print(f"milliseconds a layer: the usual way {a_layer[0]:.1f}, sgsdump {a_layer[1]:.1f}")


if __name__ == "__main__":
    main()
