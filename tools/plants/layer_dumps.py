"""Dumps of small nets for the plants that ``compare`` has to find: layers become files, and findings become names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from plants.outcome import Outcome, sgsdump
from sgsdump import Dump, Record, Tensor, save_dump

FORMATS = ("sigmastar_bin", "npz", "npy_dir", "safetensors")
ENDINGS = {"sigmastar_bin": ".bin", "npz": ".npz", "npy_dir": "", "safetensors": ".safetensors"}
Layers = dict[str, tuple[str, tuple[str, ...], np.ndarray]]


def records(layers: Layers, own: Callable[[str], bool] = lambda name: True) -> list[Record]:
    made = []
    for index, (name, (operator, sources, value)) in enumerate(layers.items()):
        for slot, source in enumerate(sources):
            if source in layers:
                tensor = Tensor.of(source, layers[source][2], layout="NHWC")
                made.append(Record("in", slot, index, operator, tensor))
        if own(name):
            made.append(Record("out", 0, index, operator, Tensor.of(name, value, layout="NHWC", op_type=operator)))
    return made


def save(dumped: list[Record], folder: Path, name: str, format: str) -> str:
    path = folder / f"{name}{ENDINGS[format]}"
    save_dump(Dump(dumped), path, format, on_loss="ignore")
    return path.name


def told(folder: Path, *arguments: str) -> tuple[list[dict], str]:
    done = sgsdump("compare", *arguments, "--json", "c.json", folder=folder)
    document = json.loads((folder / "c.json").read_text(encoding="utf-8"))
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if not line), -1) + 1
    return document["findings"], " / ".join(lines[start : start + 4])


def outcome(culprits: frozenset[str], folder: Path, *arguments: str) -> Outcome:
    findings, line = told(folder, *arguments)
    named = []
    for finding in findings:
        if finding["kind"] in ("missing", "another tensor", "not finite", "cause", "channel"):
            named += finding["names"][:3] if finding["kind"] == "missing" and finding["names"] else [finding["layer"]]
    return Outcome(culprits, tuple(named), line)
