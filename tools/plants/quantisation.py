"""Faults of quantisation: a channel far above or below the others of its tensor, a wide activation, a range clipped or
too wide. What diagnose, tune --explain and compare name is held against the intervention in the integer model: the
domain that alone at 16 bits, with the range that calibration finds, gives back the largest part of the outputs' error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from plants.outcome import Outcome, sgsdump
from plants.small_quantised import (
    Interventions,
    Net,
    healthy_net,
    intervene,
    pictures,
    run,
    scale_channel,
    shift_tensor,
    write,
)

LEVELS = ("L1", "L3", "L5")
# A plant counts where its domain gives back this part of the error, and the outputs are this far off.
LEAST_REGAINED, LEAST_ERROR = 0.3, 0.12
TRIES, TRIES_AT_L5 = 8, 24
# Beside the largest part, parts so near to it are as right.
AS_GOOD = 0.95
# A scale for each output channel that takes this part of the error away is as right, of the weights before the tensor.
LEAST_OF_SCALES = 0.25
Ends = Mapping[str, tuple[float, float]]
# Changes the net, by a strength that begins at 1 and doubles, or gives ranges to make the fixed model with.
Fault = Callable[[Net, str, np.random.Generator, np.ndarray, float], Ends]


def outlier_channel(net: Net, tensor: str, rng: np.random.Generator, data: np.ndarray, strength: float) -> Ends:
    channels = len(net.constants[f"{net.links[tensor][0]}.b"])
    scale_channel(net, tensor, int(rng.integers(channels)), 24 * strength)
    return {}


def wide_activation(net: Net, tensor: str, rng: np.random.Generator, data: np.ndarray, strength: float) -> Ends:
    channels = len(net.constants[f"{net.links[tensor][0]}.b"])
    shift_tensor(net, tensor, int(rng.integers(channels)), 60 * strength)
    return {}


def zero_channel(net: Net, tensor: str, rng: np.random.Generator, data: np.ndarray, strength: float) -> Ends:
    """Channels so small that they are all zero at 8 bits."""
    channels = len(net.constants[f"{net.links[tensor][0]}.b"])
    for channel in rng.choice(channels, max(1, channels // 3), replace=False):
        scale_channel(net, tensor, int(channel), 1 / (300 * strength))
    return {}


def clipped_range(net: Net, tensor: str, rng: np.random.Generator, data: np.ndarray, strength: float) -> Ends:
    values = run(net, data, [tensor])[tensor]
    part = 0.5 / (1 + strength)
    return {tensor: (float(values.min() * part), float(values.max() * part))}


def wide_range(net: Net, tensor: str, rng: np.random.Generator, data: np.ndarray, strength: float) -> Ends:
    values = run(net, data, [tensor])[tensor]
    return {tensor: (float(values.min()), float(values.max() * 24 * strength))}


def _planted(fault: Fault) -> Callable[[np.random.Generator, Path], Outcome]:
    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        level, way = str(rng.choice(LEVELS)), int(rng.integers(len(WAYS)))
        for attempt in range(TRIES_AT_L5 if level == "L5" else TRIES):
            data = pictures(rng, folder)
            net = healthy_net(rng, data)
            tensor = str(rng.choice(sorted(net.links)))
            wrong = fault(net, tensor, rng, data, 2.0 ** (attempt % TRIES // 2))
            write(net, folder)
            # diagnose and tune --explain begin with all at 8 bits, compare has what the level made.
            truth = intervene(folder, data, level, wrong, raised=WAYS[way] is _compared)
            best = max(truth.regained.values(), default=0.0)
            right = truth.regained.get(tensor, 0.0) >= max(AS_GOOD * best, LEAST_REGAINED)
            if right and truth.worst >= LEAST_ERROR:
                break
        names = {n for name, part in truth.regained.items() if part >= AS_GOOD * best for n in _names(truth, name)}
        if level == "L1" and truth.above_l1 >= LEAST_OF_SCALES:  # at no cost, so it may be named before any INT16
            names |= {net.links[tensor][0]}
        outcome = WAYS[way](folder, level, wrong, frozenset(names), truth.picture)
        if level != "L5" or outcome.named or not _good(intervene(folder, data, level, wrong)):
            return outcome
        # Level L5 itself has raised what is at fault: nothing is left to name.
        return replace(outcome, unseen=True, told=True)

    return plant


def _names(truth: Interventions, tensor: str) -> set[str]:
    """The tensor at fault, and the convolutions that read it, by all the names that they have."""
    return {tensor, *truth.domains[tensor], *(f"{name}/relu" for name in truth.domains[tensor])}


def healthy(rng: np.random.Generator, folder: Path) -> Outcome:
    """Nothing is planted; some have a channel that is zero in float too."""
    level, way = str(rng.choice(LEVELS)), int(rng.integers(len(WAYS)))
    for _ in range(TRIES):
        data = pictures(rng, folder)
        net = healthy_net(rng, data)
        if rng.random() < 0.3:
            before, _readers = net.links[str(rng.choice(sorted(net.links)))]
            net.constants[f"{before}.w"][0] = 0
            net.constants[f"{before}.b"][0] = 0
        write(net, folder)
        truth = intervene(folder, data, level, {})
        if _good(truth):
            break
    return WAYS[way](folder, level, {}, frozenset(), truth.picture)


def _good(truth: Interventions) -> bool:
    return truth.worst <= 0.08 and truth.cos >= 0.995


def _diagnosed(folder: Path, level: str, wrong: Ends, culprits: frozenset[str], picture: int) -> Outcome:
    common = ["-m", "net.onnx", "-i", "pictures", "--input-config", "input_config.ini", "--quant-level", level]
    given = ["--ranges", _calibrated(folder, level, wrong)] if wrong else []
    done = sgsdump("diagnose", *common, *given, "-o", "diagnosis", folder=folder)
    document = json.loads((folder / "diagnosis" / "layers.json").read_text())
    named = _blamed(document["findings"])
    return Outcome(culprits, _with_headline(named, done.stdout), done.stdout[:300])


def _explained(folder: Path, level: str, wrong: Ends, culprits: frozenset[str], picture: int) -> Outcome:
    ranges = _calibrated(folder, level, wrong)
    done = sgsdump(
        "tune", "--explain", "--ranges", ranges, "-m", "net.onnx", "-i", "pictures",
        "--input-config", "input_config.ini", "--quant-level", level, "--json", "advice.json", folder=folder,
    )  # fmt: skip
    document = json.loads((folder / "advice.json").read_text())
    return Outcome(culprits, _with_headline(_blamed(document["findings"]), done.stdout), done.stdout[:300])


def _compared(folder: Path, level: str, wrong: Ends, culprits: frozenset[str], picture: int) -> Outcome:
    """By figures alone: compare and report of the dumps of the picture that goes wrong most."""
    _calibrated(folder, level, wrong)
    (folder / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    for kind, model, name in (("Float", "net.onnx", "float.bin"), ("Fixed", "fixed.onnx", "fixed.bin")):
        config = ["--input-config", "input_config.ini"] if kind == "Float" else []
        sgsdump("simulate", "-m", model, "-t", kind, "-i", f"pictures/{picture}.png", *config, folder=folder)
        (folder / "sigma_outtensor_dump.bin").rename(folder / name)
    done = sgsdump("compare", "fixed.bin", "float.bin", "--json", "layers.json", folder=folder)
    document = json.loads((folder / "layers.json").read_text())
    past = document["verdict"]["past_thresholds"]
    named = tuple(document["verdict"]["rises_most"]) if past else ()
    return Outcome(culprits, named, done.stdout[-300:])


# diagnose and tune --explain measure, and are asked twice as often as compare, which has the dumps of one picture.
WAYS = (_diagnosed, _diagnosed, _explained, _explained, _compared)


def _calibrated(folder: Path, level: str, wrong: Ends) -> str:
    """The ranges of a calibration, with those that are wrong, and the fixed model made of them."""
    common = ["-m", "net.onnx", "-i", "pictures", "--input-config", "input_config.ini", "--quant-level", level]
    sgsdump("calibrate", *common, "-o", "fixed.onnx", folder=folder)
    path = folder / "log" / "tensor_min_max.txt"
    if wrong:
        text = with_ends(path.read_text(), wrong)
        (folder / "wrong.txt").write_text(text)
        path.write_text(text)
        sgsdump("calibrate", *common, "--quant-file", path, "-o", "fixed.onnx", folder=folder)
        path.write_text(text)
    return str(path)


def with_ends(text: str, wrong: Ends) -> str:
    """A tensor_min_max.txt with other ends of some tensors."""
    for name, (low, high) in wrong.items():
        line = f"Name:{name}, min: {low:.6f}, max: {high:.6f};"
        text, count = re.subn(rf"(?m)^\s*Name:\s*{re.escape(name)},.*$", line, text)
        assert count, f"{name} has no range"
    return text


def _blamed(findings: list[dict]) -> tuple[str, ...]:
    """By each cause the input at fault."""
    return tuple(
        f["facts"].get("input", f["layer"]) for f in findings if f["kind"] in ("cause", "advice") and f["layer"]
    )


def _with_headline(named: tuple[str, ...], printed: str) -> tuple[str, ...]:
    """Return what the line on the cause names, then the causes of the JSON; the two have to agree.

    A cause in the data or the settings, such as a wrong colour order, names no tensor of the JSON.
    """
    lines = (line for line in printed.splitlines()[:4] if line.startswith(("Cause: ", "No single cause: ")))
    cause = next(lines, "")
    if cause.startswith(("Cause: the ", "Cause: calibration ")) and "Cause: the output of operator " not in cause:
        return named
    words = re.split(r"[\s,;]+", cause)
    said = sorted((name for name in named if name in words), key=words.index)[:1]
    return tuple(dict.fromkeys([*(said or (["nothing in the first lines"] if named else [])), *named]))


PLANTS = {
    "outlier_channel": _planted(outlier_channel),
    "wide_activation": _planted(wide_activation),
    "zero_channel": _planted(zero_channel),
    "clipped_range": _planted(clipped_range),
    "wide_range": _planted(wide_range),
    "healthy": healthy,
}
