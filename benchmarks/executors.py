"""Every tensor of a model by onnxruntime, held against every other executor that is installed.

    python benchmarks/executors.py [MODEL.onnx ...]   default: ultraface (beside the checkout), ResNet-50-like
    python benchmarks/executors.py --short            a narrow ResNet-50-like model

Prints how many tensors each dumped by their ONNX names, seconds, and the worst max|s-b| / max|b| with its tensor.
Exit status 1 when a tensor is missing or differs by more than 1e-5.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from resnet_like import resnet_like

from sgsdump.errors import MissingExtra
from sgsdump.executors.runner import Layer
from sgsdump.executors.table import open_executor
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.pipeline.bisection import worst_relative
from sgsdump.pipeline.run import run
from sgsdump.pipeline.selection import node_outputs
from sgsdump.pipeline.steps import Engine

OTHERS = ("reference", "openvino", "tvm")
AIM = 1e-5
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "ultraface"


def is_installed(name: str) -> bool:
    try:
        open_executor(name).release()
    except MissingExtra as error:
        print(f"left out: {error}")
        return False
    return True


def dump(model: Model, executor: str, feed: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], float]:
    start = time.perf_counter()
    outcomes = list(run(model, Engine(executor), feed))
    for lost in outcomes:
        if not isinstance(lost, Layer):
            print(f"  {executor}: {lost.name} not dumped: {lost.reason}")
    arrays = {layer.name: layer.array for layer in outcomes if isinstance(layer, Layer)}
    return arrays, time.perf_counter() - start


def compare(model: Model, executors: list[str]) -> bool:
    random = np.random.default_rng(0)
    feed = {
        spec.name: random.standard_normal([size or 1 for size in spec.shape]).astype(spec.dtype)
        for spec in graph_inputs(model.proto)
    }
    names = [each.name for each in node_outputs(model.proto.graph)]
    benchmark, seconds = dump(model, "ort", feed)
    print(f"{model.path.name:42} ort        {len(benchmark):4} of {len(names):4} {seconds:7.2f}")
    good = benchmark.keys() == set(names)
    for executor in executors:
        sample, seconds = dump(model, executor, feed)
        differences = {name: worst_relative(sample[name], benchmark[name]) for name in sample if name in benchmark}
        worst = max(differences, key=differences.__getitem__, default="")
        value = differences.get(worst, np.inf)
        print(f"{'':42} {executor:9}  {len(sample):4} of {len(names):4} {seconds:7.2f}  {value:9.2e} {worst}")
        good &= sample.keys() == set(names) and value <= AIM
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--short", action="store_true", help="a narrow ResNet-50-like model only: shows that it works")
    args = parser.parse_args()
    models = [open_model(path) for path in args.models or ([] if args.short else sorted(SHARED.glob("*.onnx")))]
    if not args.models:
        models.append(Model(resnet_like(8 if args.short else 64), Path("resnet_like.onnx")))
    executors = list(filter(is_installed, OTHERS))
    print(f"{'model':42} executor   tensors      time/s  worst     of tensor")
    verdicts = [compare(model, executors) for model in models]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
