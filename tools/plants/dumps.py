"""Faults in dumps, found by ``compare``: one layer's tensor is changed, or records are lost, whatever the format.

A small net runs in numpy; its benchmark dump records the dataflow or not, by the format drawn. A fault is in the dumped
tensor of one layer and in all that it feeds, as in a run, or in records alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from plants.layer_dumps import FORMATS, Layers, outcome, records, save, told
from plants.outcome import Outcome, Plant
from sgsdump import Record, Tensor

Change = Callable[[np.ndarray], np.ndarray]


def _run(rng: np.random.Generator, at: str = "", change: Change | None = None) -> Layers:
    """The layers of a net by name: operator, sources, values; ``at`` one layer's values are changed."""
    layers: Layers = {}
    count, channels = int(rng.integers(5, 10)), int(rng.choice([4, 8, 16]))
    x = rng.standard_normal((1, 8, 6, channels)).astype(np.float32)

    def add(name: str, operator: str, sources: tuple[str, ...], value: np.ndarray) -> np.ndarray:
        value = value.astype(np.float32)
        value = change(value).astype(np.float32) if change is not None and name == at else value
        layers[name] = operator, sources, value
        return value

    before = "data"
    for number in range(count):
        weight = rng.standard_normal((channels, channels)) / np.sqrt(channels)
        name = f"conv{number}"
        branch = x
        source = before
        x = add(name, "CONV_2D", (source,), x @ weight)
        before = name
        if rng.random() < 0.5:
            before, x = f"relu{number}", add(f"relu{number}", "RELU", (name,), np.maximum(x, 0) + 0.05 * x)
        if rng.random() < 0.3:
            x = add(f"add{number}", "ADD", (before, source), x + branch)
            before = f"add{number}"
    return layers


def _changed(make: Callable[[np.random.Generator], Change]) -> Plant:
    """The change at one layer, which all that follows inherits."""

    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        seed, format = int(rng.integers(1 << 31)), str(rng.choice(FORMATS))
        layers = _run(np.random.default_rng(seed))
        at = str(rng.choice(list(layers)))
        faulty = _run(np.random.default_rng(seed), at, make(rng))
        sample, benchmark = (save(records(run), folder, name, format) for run, name in ((faulty, "a"), (layers, "b")))
        return outcome(frozenset([at]), folder, sample, benchmark)

    return plant


def _permuted(rng: np.random.Generator) -> Change:
    return lambda value: np.roll(value, int(rng.integers(1, value.shape[-1])), axis=-1)


def _turned(rng: np.random.Generator) -> Change:
    return lambda value: value.transpose(0, 2, 1, 3).reshape(value.shape)


def _scaled(rng: np.random.Generator) -> Change:
    factor = float(rng.choice([0.5, 0.9, 1.2, 2.0, 1 / 255]))
    return lambda value: value * np.float32(factor)


def _lost(output: bool) -> Plant:
    """A layer's record is not in the sample: an inner one, or the net's last."""

    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        layers, format = _run(rng), str(rng.choice(FORMATS))
        names = list(layers)
        at = names[-1] if output else str(rng.choice(names[:-1]))
        sample = save(records(layers, lambda name: name != at), folder, "a", format)
        return outcome(frozenset([at]), folder, sample, save(records(layers), folder, "b", format))

    return plant


def _cut(rng: np.random.Generator, folder: Path) -> Outcome:
    """The sample's file ends after some records."""
    layers, format = _run(rng), str(rng.choice(["sigmastar_bin", "npz"]))
    kept = int(rng.integers(1, len(layers)))
    some = dict(list(layers.items())[:kept])
    sample = save(records(some), folder, "a", format)
    return outcome(frozenset(list(layers)[kept:]), folder, sample, save(records(layers), folder, "b", format))


def _dead(rng: np.random.Generator, folder: Path) -> Outcome:
    """Beside a loud channel one or all others are dead."""
    layers, format = _run(rng), str(rng.choice(FORMATS))
    at = str(rng.choice(list(layers)))
    operator, sources, value = layers[at]
    loud, dead = value.copy(), value.copy()
    loud[..., 0] *= 1e5
    dead[..., 0] *= 1e5
    dead[..., int(rng.integers(1, value.shape[-1])) if rng.random() < 0.5 else slice(1, None)] = 0
    runs = (layers | {at: (operator, sources, v)} for v in (dead, loud))
    sample, benchmark = (save(records(run), folder, name, format) for run, name in zip(runs, "ab"))
    return outcome(frozenset([at]), folder, sample, benchmark)


def _statistics(rng: np.random.Generator, folder: Path) -> Outcome:
    """Statistics only, of values that are permuted: it cannot be told, and has to be said."""
    layers = _run(rng)
    at = str(rng.choice(list(layers)))
    for name in "ab":
        tensors = {}
        for layer, (_, _, value) in layers.items():
            value = np.roll(value, 1, axis=-1) if name == "a" and layer == at else value
            tensors[f"Module.{layer}.Conv2d.forward.0"] = {
                "input_args": [],
                "input_kwargs": {},
                "output": [_facts(value)],
            }
        document = {"task": "statistics", "level": "L0", "dump_data_dir": None, "data": tensors}
        (folder / name).mkdir()
        (folder / name / "dump.json").write_text(json.dumps(document))
    findings, line = told(folder, "a", "b")
    said = any(f["kind"] == "not judged" and f["facts"].get("why") == "statistics only" for f in findings)
    return Outcome(frozenset([at]), (), line, unseen=True, told=said)


def _facts(value: np.ndarray) -> dict:
    # summed in one order, as a sum over all values does not depend on it but for rounding
    ordered = np.sort(value.astype(np.float64), axis=None)
    figures = {"Max": ordered[-1], "Min": ordered[0], "Mean": ordered.mean(), "Norm": np.sqrt(np.square(ordered).sum())}
    facts = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(value.shape), "requires_grad": False}
    return facts | {name: float(figure) for name, figure in figures.items()}


def _healthy(rng: np.random.Generator, folder: Path) -> Outcome:
    """Two runs of one net: equal, or by other rounding, in formats of their own."""
    layers = _run(rng)
    noise = float(rng.choice([0, 1e-7, 1e-6]))
    other = {
        name: (operator, sources, value * (1 + noise * rng.standard_normal(value.shape)).astype(np.float32))
        for name, (operator, sources, value) in layers.items()
    }
    formats = rng.choice(FORMATS, 2)
    sample = save(records(other), folder, "a", str(formats[0]))
    return outcome(frozenset(), folder, sample, save(records(layers), folder, "b", str(formats[1])))


def _healthy_eight_bits(rng: np.random.Generator, folder: Path) -> Outcome:
    """A run whose every tensor is rounded to 8 bits of its own range, as a fixed model's is."""
    layers = _run(rng)
    other = {name: (operator, sources, _rounded(value)) for name, (operator, sources, value) in layers.items()}
    formats = rng.choice(FORMATS, 2)
    sample = save(records(other), folder, "a", str(formats[0]))
    return outcome(frozenset(), folder, sample, save(records(layers), folder, "b", str(formats[1])))


def _rounded(value: np.ndarray) -> np.ndarray:
    step = (value.max() - value.min()) / 255
    return (np.round(value / step) * step).astype(np.float32)


def _healthy_fused(rng: np.random.Generator, folder: Path) -> Outcome:
    """The sample has no convolutions before a RELU, which it fuses."""
    layers = _run(rng)
    fused = {sources[0] for operator, sources, _ in layers.values() if operator == "RELU"}
    kept = []
    for record in records(layers):
        if record.name not in fused:
            kept.append(record)
        elif record.io == "in" and record.op_type == "RELU":  # the fused operator reads what the convolution read
            source = layers[record.name][1][0]
            if source in layers:
                kept.append(replace(record, tensor=Tensor.of(source, layers[source][2], layout="NHWC")))
    sample = save([r for r in kept if not (r.op_type == "CONV_2D" and r.io == "in" and _owner(r, layers) in fused)],
                   folder, "a", "sigmastar_bin")  # fmt: skip
    return outcome(frozenset(), folder, sample, save(records(layers), folder, "b", str(rng.choice(FORMATS))))


def _owner(record: Record, layers: Layers) -> str:
    return list(layers)[record.op_index]


PLANTS: dict[str, Plant] = {
    "permuted_channels": _changed(_permuted),
    "permuted_axes": _changed(_turned),
    "another_scale": _changed(_scaled),
    "missing_layer": _lost(False),
    "missing_output": _lost(True),
    "cut_file": _cut,
    "dead_channels": _dead,
    "statistics_only": _statistics,
    "healthy_pair": _healthy,
    "healthy_eight_bits": _healthy_eight_bits,
    "healthy_fused": _healthy_fused,
}
