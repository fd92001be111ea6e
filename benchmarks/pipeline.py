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

from sgsdump import dump_info
from sgsdump.executor import Executor, open_executor
from sgsdump.model import Model
from sgsdump.pipeline import Pipeline

SAMPLE = 12


def once_per_tensor(model: Model, folder: Path, sample: int | None) -> tuple[float, int, int]:
    """Seconds for all tensors (scaled from ``sample`` of them, spread evenly), tensors run, tensors in all."""
    import onnx
    import onnxruntime as ort

    pipeline = Pipeline(model, "ort", folder)
    names, feed = pipeline.get_node_output_names(), pipeline.inputs
    chosen = names if sample is None else names[:: len(names) // sample]
    folder.mkdir()
    start = time.perf_counter()
    for name in chosen:
        marked = onnx.ModelProto()
        marked.CopyFrom(model.proto)
        del marked.graph.output[:]
        marked.graph.output.append(onnx.ValueInfoProto(name=name))
        session = ort.InferenceSession(marked.SerializeToString(), providers=["CPUExecutionProvider"])
        (array,) = session.run([name], feed)
        np.save(folder / dump_info.outputs_file(None, name), array)
        dump_info.facts(array)
    return (time.perf_counter() - start) * len(names) / len(chosen), len(chosen), len(names)


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
        for number in range(1 if short else 3):
            for what, executor, mode in ways:
                figures[what].append(pipeline_seconds(model, executor, mode, folder / f"{what}{number}"))
        slow, ran, tensors = once_per_tensor(model, folder / "slow", SAMPLE if short else None)
    scaled = f"timed on {ran} of {tensors} tensors and scaled" if ran < tensors else f"{tensors} tensors"
    print(f"{'way':26} {'time/s':>8}  ratio")
    print(f"{'whole model per tensor':26} {slow:8.2f}   1.0   ({scaled})")
    for what, seconds in figures.items():
        middle = statistics.median(seconds)
        print(f"{what:26} {middle:8.2f} {slow / middle:5.1f}")


if __name__ == "__main__":
    main()
