"""What a tuned plan is worth on pictures that the search did not see: accuracy by labels, two trained networks.

    python benchmarks/tune_labelled.py [--short]

digits  the demo's network, made sick on purpose, and scikit-learn's 8 x 8 digits: calibrated on 32, plans judged on 60
        others by label, held out some 1,600 (200 with --short) that neither saw
sounds  six kinds of synthetic sounds as spectrograms, told apart by a network that is trained here and whose channels
        are then scaled apart, so that 8 bits do not fit; calibrated on 32, judged on 60, held out 1,200 (200)

The rows hold the accuracy that is lost on the pictures held out, in points, against half a point. Needs torch and
scikit-learn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rows import Row, show

import sgsdump
from sgsdump.fixedpoint.verbs.smallest_plan import SmallestPlan

CALIBRATED, JUDGED = 32, 60
POINTS = 0.5
KINDS, SIZE = 6, 32
LEVEL = "L1"


@dataclass(frozen=True)
class Task:
    """A model with one input ``x`` and labelled arrays for it; of digits as they come out of a normalised picture."""

    name: str
    model: bytes
    source: str
    output: str
    arrays: np.ndarray
    labels: np.ndarray

    def feeds(self, start: int, stop: int) -> list[tuple[Mapping[str, np.ndarray], int]]:
        pairs = zip(self.arrays[start:stop], self.labels[start:stop])
        return [({self.source: array[None]}, int(label)) for array, label in pairs]


def digits() -> Task:
    from sklearn.datasets import load_digits

    found = load_digits()
    samples = Path(sgsdump.__file__).parent / "samples"
    order = np.random.default_rng(0).permutation(len(found.target))
    pixels = ((found.images * 15).astype(np.float32)[:, None] - 127) / 128
    return Task("digits", (samples / "digits.onnx").read_bytes(), "image", "prob", pixels[order], found.target[order])


def sounds(count: int) -> Task:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, KINDS, count)
    arrays = np.stack([spectrogram(kind, generator) for kind in labels])
    trained = generator.integers(0, KINDS, 2400)
    training = np.stack([spectrogram(kind, generator) for kind in trained])
    return Task("sounds", train(training, trained), "x", "y", arrays, labels)


def spectrogram(kind: int, generator: np.random.Generator) -> np.ndarray:
    """Float32 [1, SIZE, SIZE]: the logarithm of the energy by time and frequency."""
    time = np.arange(SIZE * 64) / (SIZE * 64)
    low, high = np.sort(generator.uniform(60, 900, 2))
    sweep = {0: low + (high - low) * time, 1: high - (high - low) * time}.get(kind, np.full(len(time), low))
    wave = np.sin(2 * np.pi * np.cumsum(sweep) / len(time))
    if kind == 3:
        wave = wave + np.sin(2 * np.pi * (high + 60) * time)
    if kind == 4:
        wave = wave * (np.abs(time - generator.uniform(0.3, 0.7)) < 0.12)
    if kind == 5:
        wave = wave * (1 + np.sign(np.sin(2 * np.pi * generator.uniform(4, 7) * time)))
    wave = wave + generator.normal(0, generator.uniform(0.2, 1.2), len(time))
    frames = np.abs(np.fft.rfft(wave.reshape(SIZE, 64) * np.hanning(64), axis=1))[:, :SIZE]
    return (np.log(frames + 0.1) / 3).astype(np.float32)[None]


def train(arrays: np.ndarray, labels: np.ndarray) -> bytes:
    """A network of three convolutions as ONNX; the channels of the first two are scaled apart, which float undoes."""
    import torch
    from onnx import TensorProto, helper, numpy_helper
    from torch.nn import functional as F

    torch.manual_seed(0)
    shapes = {"a": (16, 1, 3, 3), "b": (16, 16, 3, 3), "c": (24, 16, 3, 3), "y": (KINDS, 24)}
    layers: dict[str, torch.nn.Module] = {
        name: torch.nn.Conv2d(shape[1], shape[0], 3, padding=1) for name, shape in shapes.items() if name != "y"
    }
    layers["y"] = torch.nn.Linear(24, KINDS)
    parameters = [each for layer in layers.values() for each in layer.parameters()]
    optimizer = torch.optim.Adam(parameters, 3e-3)
    x, wanted = torch.from_numpy(arrays), torch.from_numpy(labels)
    for _ in range(12):
        for batch in torch.randperm(len(x)).split(64):
            value = x[batch]
            for name in "abc":
                value = F.max_pool2d(F.relu(layers[name](value)), 2)
            optimizer.zero_grad()
            F.cross_entropy(layers["y"](value.mean((2, 3))), wanted[batch]).backward()
            optimizer.step()
    weights = {name: [each.detach().numpy().copy() for each in layer.parameters()] for name, layer in layers.items()}
    generator = np.random.default_rng(2)
    for name, following in (("a", "b"), ("b", "c")):
        scale = (2.0 ** generator.uniform(-4, 4, 16)).astype(np.float32)
        weights[name] = [weights[name][0] * scale[:, None, None, None], weights[name][1] * scale]
        weights[following][0] /= scale[None, :, None, None]
    nodes, last = [], "x"
    for name in "abc":
        reads = [last, f"{name}.w", f"{name}.b"]
        nodes.append(helper.make_node("Conv", reads, [name], name, kernel_shape=[3, 3], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [name], [f"r{name}"]))
        nodes.append(helper.make_node("MaxPool", [f"r{name}"], [f"p{name}"], kernel_shape=[2, 2], strides=[2, 2]))
        last = f"p{name}"
    nodes += [helper.make_node("GlobalAveragePool", [last], ["gap"]), helper.make_node("Flatten", ["gap"], ["flat"])]
    nodes.append(helper.make_node("Gemm", ["flat", "y.w", "y.b"], ["y"], "y", transB=1))
    constants = [
        numpy_helper.from_array(array, f"{name}.{part}")
        for name, pair in weights.items()
        for part, array in zip("wb", pair)
    ]
    ends = [("x", [1, 1, SIZE, SIZE]), ("y", [1, KINDS])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    graph = helper.make_graph(nodes, "sounds", infos[:1], infos[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def tuned(task: Task, folder: Path, budget: str) -> SmallestPlan:
    path = folder / f"{task.name}.onnx"
    path.write_bytes(task.model)

    def right(outputs: Mapping[str, np.ndarray], floats: Mapping[str, np.ndarray], label: int) -> float:
        return float(outputs[task.output].argmax() == label)

    middle = CALIBRATED + JUDGED
    return sgsdump.tune(
        path,
        task.feeds(0, CALIBRATED),
        evaluate=task.feeds(CALIBRATED, middle),
        validate=task.feeds(middle, len(task.arrays)),
        metric=right,
        quant_level=LEVEL,
        budget=budget,
    )


def rows(folder: Path, short: bool) -> Iterator[Row]:
    budget = "20s" if short else "5m"
    tasks = digits(), sounds(CALIBRATED + JUDGED + (200 if short else 1200))
    for task in tasks:
        if short:
            kept = CALIBRATED + JUDGED + 200
            task = Task(task.name, task.model, task.source, task.output, task.arrays[:kept], task.labels[:kept])
        found = tuned(task, folder, budget)
        held, taken = found.result.held_out, found.taken
        assert held is not None and held.float_metric is not None and taken.outputs.held_metric is not None
        low = found.result.rows[0].outputs.held_metric or 0.0
        print(
            f"{task.name}: {held.pictures} held out; float {held.float_metric[1]:.4f}, all INT8 {low:.4f}, the plan "
            f"{taken.outputs.held_metric:.4f} with {taken.rate:.3f} of the bytes and {taken.macs16 or 0:.3f} of the "
            f"multiplications at 16 bits; confirmed: {held.confirmed}",
            flush=True,
        )
        yield Row(
            f"tune, {task.name}: accuracy lost on {held.pictures} held out, points",
            100 * (held.float_metric[1] - taken.outputs.held_metric),
            POINTS,
            1.0,
            "",
        )


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        show(rows(Path(folder), "--short" in sys.argv[1:]))


if __name__ == "__main__":
    main()
