"""Faults in torch programs of low precision, found among rounding: dumped by ``sgsdump exec`` and compared.

The program is ``program.py``. Each kind is a way in which the pair computes: both sides in one narrow type, a narrow
one compared with a float32 golden, weights of 8 bits, autocast, compiled code, writes in place; or one of the two nets
of ``nets.py``, in one of these ways. ``healthy`` pairs of each plant nothing. Named are the units of its net, by the
module of the layer that a finding is of. All plants of a kind run together: each is one round of two programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plants.outcome import Outcome, Plant
from plants.programs import compared_together

Spec = dict[str, Any]
_CONVOLUTIONAL = ("batch_norm", "group_norm", "gelu", "scale", "slope", "turn", "conv")
_OF_TOKENS = ("linear", "layer_norm", "gelu", "scale", "slope", "softmax", "turn", "root", "attention")
_WEIGHTED = {"conv", "linear", "batch_norm", "group_norm", "layer_norm", "root", "int8"}
_IN_PLACE = ("cache", "part", "grow")
_SCALARS: Mapping[str, list[tuple[str, Any]]] = {
    "batch_norm": [("eps", 1e-2)],
    "group_norm": [("eps", 1e-2)],
    "layer_norm": [("eps", 1e-2)],
    "root": [("eps", 1e-3)],
    "attention": [("theta", 500.0), ("scale", 0.25)],
    "scale": [("factor", 0.49), ("factor", -0.5)],
    "slope": [("slope", 0.02), ("slope", 0.2)],
    "softmax": [("dim", 1)],
    "gelu": [("approximate", "tanh")],
    "cache": [("skips", True), ("at", 1)],
    "part": [("factor", 1.4), ("more", 2.0), ("more", None)],
    "grow": [("factor", 1.4)],
}
# How the sample and the benchmark compute.
WAYS: Mapping[str, tuple[Spec, Spec]] = {
    "bf16": ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    "fp16": ({"dtype": "float16"}, {"dtype": "float16"}),
    "bf16_f32": ({"dtype": "bfloat16"}, {}),
    "fp16_f32": ({"dtype": "float16"}, {}),
    "int8": ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    "int8_f32": ({}, {"wide": True}),
    "int8_dynamic": ({"dynamic": True}, {}),
    "autocast": ({"autocast": True}, {}),
    "in_place": ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    "in_place_f32": ({"dtype": "bfloat16"}, {}),
    "in_place_both_f32": ({}, {}),
    "compiled": ({"dtype": "bfloat16", "compiled": True}, {"dtype": "bfloat16"}),
}
NETS = {"decoder": ("is_one_operator", "is_fused", "is_joined"), "unet": ("is_one_operator", "is_parts")}
# What rewritten.py has of the units, and in which ways.
_REWRITTEN = {
    "linear": "Linear",
    "conv": "Conv2d",
    "layer_norm": "LayerNorm",
    "group_norm": "GroupNorm",
    "batch_norm": "BatchNorm2d",
    "gelu": "GELU",
    "slope": "Slope",
    "softmax": "Softmax",
    "root": "Root",
    "attention": "Attention",
    "cache": "Cache",
    "part": "Part",
}
_OF_REWRITTEN = ("bf16", "fp16", "bf16_f32", "autocast", "in_place", "in_place_both_f32")
_OF_NETS = ("bf16", "fp16", "bf16_f32", "autocast", "in_place_both_f32", "compiled")


def drawn_pair(way: str, rng: np.random.Generator, healthy: bool = False) -> Spec:
    """``sample`` and ``benchmark``, the specifications of both sides, and the ``culprit``, None for a healthy pair."""
    if way in NETS:
        return _drawn_net(way, rng, healthy)
    is_rewritten = way == "rewritten"
    way = str(rng.choice(_OF_REWRITTEN)) if is_rewritten else way
    kinds = _kinds(rng, way)
    spec = {"seed": int(rng.integers(1 << 20)), "kinds": kinds}
    fault = None if healthy else _fault(rng, kinds, way)
    sample, benchmark = WAYS[way]
    differs: Spec = {}
    if is_rewritten:
        differs = {"rewritten": _some_rewritten(rng, kinds)}
    elif healthy:
        differs = [{}, {"threads": 1}, {"channels_last": True}][rng.integers(3)]
    sides = {"sample": {**spec, **sample, **differs, "fault": fault}, "benchmark": {**spec, **benchmark, "fault": None}}
    return {**sides, "culprit": None if fault is None else f"units.{fault['unit']}"}


def _some_rewritten(rng: np.random.Generator, kinds: list[str]) -> list[str]:
    """One to three of a net's kinds, by the names of their classes."""
    those = sorted({_REWRITTEN[kind] for kind in kinds if kind in _REWRITTEN})
    chosen = rng.permutation(len(those))[: int(rng.integers(1, 4))]
    return [those[place] for place in sorted(chosen)]


def _drawn_net(net: str, rng: np.random.Generator, healthy: bool) -> Spec:
    sample, benchmark = WAYS[_OF_NETS[rng.integers(len(_OF_NETS))]]
    spec = {"net": net, "seed": int(rng.integers(1 << 20))}
    fault: Spec | None = None
    differs: Spec = {}
    if healthy:
        written = NETS[net][rng.integers(len(NETS[net]))]
        others = [{"threads": 1}, {"channels_last": True}, {"written": [written]}, {"written": [written]}]
        differs = others[rng.integers(len(others))]
    else:
        element = None if rng.random() < 0.6 else int(rng.integers(1 << 20))
        kind = "weight" if rng.random() < 0.4 else "attribute"
        number, factor = int(rng.integers(1 << 20)), float(rng.choice([0.9, 1.2, -1.0]))
        fault = {"kind": kind, "number": number, "element": element, "factor": factor}
    sides = {"sample": {**spec, **sample, **differs, "fault": fault}, "benchmark": {**spec, **benchmark, "fault": None}}
    return {**sides, "culprit": None if fault is None else _module(sides["sample"])}


def _module(spec: Spec) -> str:
    """Where a net's fault is."""
    from plants import nets  # needs torch

    return str(nets.made(spec)[2])


def _kinds(rng: np.random.Generator, way: str) -> list[str]:
    of_pictures = rng.random() < 0.4 and not way.startswith("int8")
    of, first = (_CONVOLUTIONAL, "conv") if of_pictures else (_OF_TOKENS, "linear")
    of = ("int8", *of) if way.startswith("int8") else of
    kinds = [str(kind) for kind in rng.choice(of, size=int(rng.integers(4, 9)))]
    kinds += [kind for kind in ("turn", "scale") if kind not in kinds]
    if way.startswith("int8"):
        kinds.insert(int(rng.integers(len(kinds))), "int8")
    if way.startswith("in_place"):
        kinds.insert(int(rng.integers(len(kinds))), str(rng.choice(_IN_PLACE)))
    # what follows a turn has another shape: the units of a last axis of 16 stand before the first
    turns = kinds.index("turn")
    late = [kind for kind in kinds[turns:] if kind in ("root", "attention")]
    kinds = [*kinds[:turns], *late, *(kind for kind in kinds[turns:] if kind not in ("root", "attention"))]
    return [first, *kinds, first]


def _fault(rng: np.random.Generator, kinds: list[str], way: str) -> Spec:
    """A weight, an element of one, a scalar, or a transposition."""
    among = set(kinds)
    if way.startswith("in_place"):
        unit = _one_of(rng, kinds, set(_IN_PLACE))
        return {"unit": unit, "kind": "scalar", "value": _scalar(rng, kinds[unit])}
    if way.startswith("int8") and rng.random() < 0.5:
        among = {"int8"}
    what = rng.random()
    if what < 0.5 or among == {"int8"}:
        unit = _one_of(rng, kinds, _WEIGHTED & among)
        element = None if rng.random() < 0.6 else int(rng.integers(1 << 20))
        value = {"name": "weight", "element": element, "factor": float(rng.choice([0.9, 1.2, -1.0]))}
        return {"unit": unit, "kind": "weight", "value": value}
    if what < 0.9:
        unit = _one_of(rng, kinds, set(_SCALARS) & among)
        return {"unit": unit, "kind": "scalar", "value": _scalar(rng, kinds[unit])}
    unit = _one_of(rng, kinds, {"turn"})
    axes = [None, (2, 3), (1, 3)] if "conv" not in kinds else [None, (1, 3), (2, 3)]
    return {"unit": unit, "kind": "transpose", "value": axes[rng.integers(len(axes))]}


def _scalar(rng: np.random.Generator, kind: str) -> Spec:
    choices = _SCALARS[kind]
    name, value = choices[rng.integers(len(choices))]
    return {"name": name, "value": value}


def _one_of(rng: np.random.Generator, kinds: list[str], of: set[str]) -> int:
    units = [index for index, kind in enumerate(kinds) if kind in of]
    return int(units[rng.integers(len(units))])


def _outcome(rng: np.random.Generator, folder: Path, way: str, healthy: bool) -> Outcome:
    return _outcomes([rng], folder, way, healthy)[0]


def _outcomes(rngs: Sequence[np.random.Generator], folder: Path, way: str, healthy: bool) -> list[Outcome]:
    pairs = [drawn_pair(way, rng, healthy) for rng in rngs]
    culprits = [frozenset() if pair["culprit"] is None else frozenset({pair["culprit"]}) for pair in pairs]
    return compared_together(folder, pairs, culprits)


def _plants(healthy: bool) -> dict[str, Callable[..., Outcome]]:
    begins = "healthy_" if healthy else ""
    return {f"{begins}{way}": partial(_outcome, way=way, healthy=healthy) for way in (*WAYS, *NETS, "rewritten")}


PLANTS: dict[str, Plant] = {**_plants(False), **_plants(True)}


def together(kind: str, rngs: Sequence[np.random.Generator], folder: Path) -> list[Outcome]:
    """The outcomes of several plants of one kind, which two programs run and one process compares."""
    return _outcomes(rngs, folder, kind.removeprefix("healthy_"), kind.startswith("healthy_"))
