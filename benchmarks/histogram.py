"""Milliseconds a picture of ``sgsdump histogram``, and the ratio against the usual way.

The usual way: for every layer a new ``plt.figure()``, ``plt.hist(bins="auto")``, two ``axvline`` and ``savefig``.
``auto`` can ask for any number of bins, so the layers here are well-behaved: normal and rectified normal values.

    python benchmarks/histogram.py [layers] [values per layer]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sgsdump.comparison.distribution import Distribution, distributions
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.histogram.contact_sheet import save_contact_sheets
from sgsdump.reports.histogram.histogram_png import save_histogram
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.value_range import Range


def make(layers: int, values: int) -> tuple[Dump, dict[str, Range]]:
    rng = np.random.default_rng(0)
    records = []
    for index in range(layers):
        array = rng.normal(size=values).astype(np.float32)
        array = np.maximum(array, 0) if index % 2 else array
        records.append(Record("out", 0, index, "CONV_2D", Tensor.of(f"block{index}/conv", array)))
    ranges = {r.name: Range.of(float(r.tensor.real().min()), float(r.tensor.real().max())) for r in records}
    return Dump(records), ranges


def ours(dump: Dump, ranges: dict[str, Range], folder: Path) -> None:
    for layer in distributions(dump, ranges):
        assert isinstance(layer, Distribution)
        save_histogram(layer, folder)


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


def overview(dump: Dump, ranges: dict[str, Range], folder: Path) -> None:
    save_contact_sheets([layer for layer in distributions(dump, ranges) if isinstance(layer, Distribution)], folder)


def milliseconds(way: Callable[[Dump, dict[str, Range], Path], None], dump: Dump, ranges: dict[str, Range]) -> float:
    """The best of three runs, after one picture to warm up, per layer."""
    with tempfile.TemporaryDirectory() as folder:
        way(Dump(dump.records[:1]), ranges, Path(folder))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            way(dump, ranges, Path(folder))
            times.append(time.perf_counter() - start)
    return min(times) / len(dump.outputs) * 1000


def main() -> None:
    layers, values = (int(word) for word in (sys.argv[1:] + ["40", "200000"][len(sys.argv) - 1 :]))
    dump, ranges = make(layers, values)
    ours_ms, overview_ms, usual_ms = (milliseconds(way, dump, ranges) for way in (ours, overview, usual))
    print(f"{layers} layers of {values:,} values, milliseconds a layer (best of three)")
    print(f"  one picture, sgsdump      {ours_ms:7.1f}    (aim: at most 30)")
    print(f"  overview page, sgsdump    {overview_ms:7.1f}")
    print(f"  one picture, usual way    {usual_ms:7.1f}    {usual_ms / ours_ms:.1f} times sgsdump's")


if __name__ == "__main__":
    main()
