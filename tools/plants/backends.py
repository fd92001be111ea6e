"""Two float back-ends of one model, found by ``compare``: from some layer on one of them computes less precisely.

A deep net runs twice in numpy. Each back-end rounds after every layer as its type does, in an order of its own. A fault
is a layer from which on one side computes with more noise, which grows as it goes on; a layer further down often has
the largest rise. Healthy pairs differ by the rounding of their types alone, which the layers hand on and magnify.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plants.layer_dumps import FORMATS, Layers, outcome, records, save
from plants.outcome import Outcome, Plant

FLOAT32, TF32, FLOAT16, BFLOAT16 = 1e-7, 2e-4, 3e-4, 2e-3  # relative noise of a layer that computes in this type
LEAST, MOST = 15, 60  # times the error that the two back-ends have at a layer without the fault, what the fault brings
SMALLEST = 3e-3  # which no rounding of float32 explains


def _net(rng: np.random.Generator) -> list[tuple[str, str, tuple[str, ...], object]]:
    """The layers of a net of depth 15 to 45: name, operator, sources, and what the operator computes."""
    channels = int(rng.choice([8, 16]))
    layers: list = []
    before = "data"

    def add(name: str, operator: str, sources: tuple[str, ...], function: object) -> str:
        layers.append((name, operator, sources, function))
        return name

    for number in range(int(rng.integers(8, 18))):
        weight = rng.standard_normal((channels, channels)) / np.sqrt(channels)
        entry = before
        before = add(f"conv{number}", "CONV_2D", (before,), lambda x, w=weight: x @ w * 1.3)
        draw = rng.random()
        if draw < 0.4:
            before = add(f"relu{number}", "RELU", (before,), lambda x: np.maximum(x, 0) + 0.1 * x)
        elif draw < 0.55:
            before = add(f"norm{number}", "MUL", (before,), lambda x: x / np.sqrt(np.square(x).mean() + 1e-6))
        elif draw < 0.65:
            before = add(f"tanh{number}", "TANH", (before,), np.tanh)
        if rng.random() < 0.35 and entry != "data":
            before = add(f"add{number}", "ADD", (before, entry), lambda x, y: x + y)
        if rng.random() < 0.1:
            before = add(f"reshape{number}", "RESHAPE", (before,), lambda x: x)
    if rng.random() < 0.4:
        add("prob", "SOFTMAX", (before,), _softmax)
    return layers


def _softmax(x: np.ndarray) -> np.ndarray:
    logits = 3 * x / np.sqrt(np.square(x).mean())
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _run(seed: int, rounding: float, order: int, at: str = "", noise: float = 0.0) -> Layers:
    """The tensors of one back-end, which rounds by ``rounding``, and from layer ``at`` on disturbs by ``noise`` too."""
    rng = np.random.default_rng(seed)
    layers = _net(rng)
    values = {"data": rng.standard_normal((1, 12, 10, layers and layers[0][3].__defaults__[0].shape[0]))}  # type: ignore[attr-defined]
    own = np.random.default_rng((seed, order))
    ran: Layers = {}
    disturbed = False
    for name, operator, sources, function in layers:
        value = function(*(values[source] for source in sources))  # type: ignore[operator]
        disturbed = disturbed or name == at
        if operator != "RESHAPE":
            level = np.hypot(rounding, noise if disturbed else 0.0)
            # a sum is off by what its terms are rounded by, another operator's output by a share of itself
            size = np.sqrt(np.square(value).mean()) if operator == "CONV_2D" else value
            value = value + level * size * own.standard_normal(value.shape)
        values[name] = value
        ran[name] = operator, sources, value.astype(np.float32)
    return ran


def _noisier(rounding: float) -> Plant:
    """From one layer on every layer of the sample has a noise of its own, far above the rounding of both."""

    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        seed = int(rng.integers(1 << 31))
        benchmark, sound = _run(seed, rounding, 0), _run(seed, rounding, 1)
        computing = [name for name, (operator, _, _) in benchmark.items() if operator != "RESHAPE"]
        # a quarter of the net shows how far the two agree, and some layers follow
        at = computing[int(rng.integers(len(computing) // 4 + 1, len(computing) - 1))]
        values = benchmark[at][2]
        floor = float(np.abs(sound[at][2] - values).sum() / np.abs(values).sum())
        noise = max(SMALLEST, floor * float(rng.uniform(LEAST, MOST)))
        return _compared(rng, folder, _run(seed, rounding, 1, at, noise), benchmark, frozenset([at]))

    return plant


def _healthy(*types: float) -> Plant:
    """Two runs that round by the first and by the last of these."""

    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        seed = int(rng.integers(1 << 31))
        return _compared(rng, folder, _run(seed, types[0], 1), _run(seed, types[-1], 0), frozenset())

    return plant


def _compared(
    rng: np.random.Generator, folder: Path, sample: Layers, benchmark: Layers, culprits: frozenset[str]
) -> Outcome:
    format = str(rng.choice(FORMATS))
    return outcome(
        culprits, folder, *(save(records(run), folder, n, format) for run, n in ((sample, "a"), (benchmark, "b")))
    )


PLANTS: dict[str, Plant] = {
    "noise_float32": _noisier(FLOAT32),
    "noise_tf32": _noisier(TF32),
    "noise_float16": _noisier(FLOAT16),
    "healthy_float32": _healthy(FLOAT32),
    "healthy_tf32": _healthy(TF32, FLOAT32),
    "healthy_float16": _healthy(FLOAT16, FLOAT32),
    "healthy_bfloat16": _healthy(BFLOAT16, FLOAT32),
}
