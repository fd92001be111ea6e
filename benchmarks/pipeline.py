"""Dumping every tensor of a ResNet-50-like model: the pipeline's two ways against the whole model once per tensor.

    python benchmarks/pipeline.py            ResNet-50-like, every tensor, three runs of the pipeline's ways
    python benchmarks/pipeline.py --short    a quarter of the width, a sample of tensors for the slow way, one run

All write the same .npy files and statistics. The old way marks one tensor as the only output, serialises the model,
loads it with onnxruntime and runs it, for every tensor. A second executor stands for back-ends other than onnxruntime:
onnxruntime behind the four calls.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path

import numpy as np
from resnet_like import resnet_like
from rows import Row, show

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import facts_of
from sgsdump.executors.base import Executor
from sgsdump.executors.table import open_executor
from sgsdump.models.model import Model
from sgsdump.pipeline.pipeline import Pipeline

SAMPLE = 12


def once_per_tensor(model: Model, names: list[str], feed: dict[str, np.ndarray], folder: Path) -> float:
    """Seconds for these tensors, the old way."""
    import onnx
    import onnxruntime as ort

    folder.mkdir(exist_ok=True)
    start = time.perf_counter()
    for name in names:
        marked = onnx.ModelProto()
        marked.CopyFrom(model.proto)
        del marked.graph.output[:]
        marked.graph.output.append(onnx.ValueInfoProto(name=name))
        session = ort.InferenceSession(marked.SerializeToString(), providers=["CPUExecutionProvider"])
        (array,) = session.run([name], feed)
        np.save(folder / dump_info.outputs_file(None, name), array)
        facts_of(array)
    return time.perf_counter() - start


def pipeline_seconds(model: Model, executor: str | Executor, mode: str, folder: Path) -> float:
    start = time.perf_counter()
    pipeline = Pipeline(model, executor, folder, mode=mode)
    pipeline.dump_full()
    assert not pipeline.not_dumped
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a small model and a sample: shows that it works")
    short = parser.parse_args().short
    import_module("sgsdump.executors.ort")
    model = Model(resnet_like(16 if short else 64), Path("resnet_like.onnx"))
    ways: list[tuple[str, str | Executor, str]] = [
        ("fast, ort", "ort", "fast"),
        ("fast, by the four calls", open_executor("ort"), "fast"),
        ("isolated, ort", "ort", "isolated"),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, list[float]] = {what: [] for what, _, _ in ways}
        whole = Pipeline(model)
        names, feed = whole.get_node_output_names(), whole.inputs
        chosen = names[:: len(names) // SAMPLE] if short else names
        slow = 0.0
        runs = 1 if short else 3
        # By turns, so that what else the machine does burdens all ways alike; the old way a part of its tensors a turn.
        for number in range(runs):
            for what, executor, mode in ways:
                figures[what].append(pipeline_seconds(model, executor, mode, folder / f"{what}{number}"))
            slow += once_per_tensor(model, chosen[number::runs], feed, folder / "slow")
    slow *= len(names) / len(chosen)
    scaled = (
        f"{len(names)} tensors" if chosen is names else f"timed on {len(chosen)} of {len(names)} tensors and scaled"
    )
    print(f"the floor: the whole model for each tensor, {scaled}")
    show(Row(f"pipeline: {what}, once per tensor", statistics.median(times), slow) for what, times in figures.items())


if __name__ == "__main__":
    main()
