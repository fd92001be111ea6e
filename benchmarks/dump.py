"""Dumping segment by segment against one run with every output marked, both written to a dump in the same way.

    python benchmarks/dump.py            ResNet-50-like, batch 1 and 16, five and three runs; 2.6 GB of external weights
    python benchmarks/dump.py --short    a quarter of the width, batch 1 and 2, one run; 0.2 GB

Each run is a process of its own (peak memory is the process's), the two ways by turns; the rows give the least time and
the median of the peaks, segments held against the one run. A model with external weights is too large to hand over in
memory: onnxruntime reads a file of it with every output marked.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
from rows import Row, show

from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats.sigmastar.binary import FORMAT, FRAMEWORK
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.model import open_model
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import NCHW

WAYS = ("segments", "one run")
# Of time and of peak memory, by batch.
AIMS = {1: (0.6, 0.5), 16: (0.4, 0.13)}
EXTERNAL, EXTERNAL_AIMS = "external weights", (0.25, 0.1)
EXTERNAL_LAYERS, EXTERNAL_LAYERS_SHORT = 27, 3


def segments(path: Path, feed: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for layer in SegmentRunner(open_model(path, in_place=True)).run(feed):
        yield layer.name, layer.array


def one_run(path: Path, feed: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The plain way: every output marked, optimisation off, one ``session.run``."""
    import onnx
    import onnxruntime as ort

    external = path.stem == "external"
    proto = onnx.load(path, load_external_data=not external)
    names = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    if external:
        data: bytes | str = str(path.with_name("marked.onnx"))
        onnx.save(proto, data)
    else:
        data = proto.SerializeToString()
    del proto
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(data, options)
    del data
    yield from zip(names, session.run(names, feed))


def measure(way: str, model: Path, batch: int, out: Path) -> None:
    """Runs in the child: prints seconds (loading of modules apart), peak bytes and the dump's size."""
    import_module("sgsdump.executors.onnx_runtime.segment_runner")
    start = time.perf_counter()
    feed = {"data": np.random.default_rng(1).standard_normal((batch, 3, 224, 224), np.float32)}
    pairs = (segments if way == WAYS[0] else one_run)(model, feed)
    records = (
        Record("out", 0, index, name, Tensor.of(name, array, layout=NCHW if array.ndim == 4 else None))
        for index, (name, array) in enumerate(pairs)
    )
    FORMAT.write(records, out, FRAMEWORK)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, peak, out.stat().st_size]))


def child(way: str, model: Path, batch: int, out: Path) -> list[float]:
    command = [sys.executable, __file__, "--child", way, str(model), str(batch), str(out)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    out.unlink()
    return result


def compare(
    model: Path, folder: Path, batch: int, runs: int, what: str, aims: tuple[float | None, float | None]
) -> list[Row]:
    figures: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            figures[way].append(child(way, model, batch, folder / "dump.bin"))
    seconds = [min(row[0] for row in figures[way]) for way in WAYS]
    peaks = [statistics.median(row[1] for row in figures[way]) / 2**20 for way in WAYS]
    return [
        Row(f"dump: {what}, segments against one run", *seconds, aims[0]),
        Row(f"dump: {what}, peak memory", *peaks, aims[1], "MiB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a small model and one run: shows that it works")
    parser.add_argument("--child", nargs=4, metavar=("WAY", "MODEL", "BATCH", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        way, model, batch, out = args.child
        measure(way, Path(model), int(batch), Path(out))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "resnet_like.onnx"
        # Made by another process: a child's peak never shows less than what its parent holds when it starts it.
        maker = Path(__file__).with_name("resnet_like.py")
        subprocess.run([sys.executable, str(maker), str(model), "16" if args.short else "64"], check=True)
        settings = ((1, 1), (2, 1)) if args.short else ((1, 5), (16, 3))
        rows = [
            row
            for batch, runs in settings
            for row in compare(model, folder, batch, runs, f"batch {batch}", AIMS.get(batch, (None, None)))
        ]
        model.unlink()
        large = folder / "external.onnx"
        layers = EXTERNAL_LAYERS_SHORT if args.short else EXTERNAL_LAYERS
        maker = Path(__file__).with_name("external_weights.py")
        subprocess.run([sys.executable, str(maker), str(large), str(layers)], check=True)
        size = large.with_suffix(".weights").stat().st_size / 1e9
        aims = (None, None) if args.short else EXTERNAL_AIMS
        show([*rows, *compare(large, folder, 1, 1 if args.short else 3, f"{size:.1f} GB of {EXTERNAL}", aims)])


if __name__ == "__main__":
    main()
