#!/usr/bin/env python3
"""Compare ``cure`` with other quantisers on four networks of ``unseen.py``, on samples that none of them gets.

    python benchmarks/unseen_peers.py [--python nncf=ENV/bin/python ppq=… aimet=…] [--nets-in FOLDER] [--short]

Each tool quantises weights and activations to 8 bits, calibrated on the same 20 images, drawn at random. ``--python``
gives the environment of each tool, as ``cure_peers.py`` lists them; onnxruntime runs in this one. A tool without an
environment, or one that fails or takes longer than 10 minutes, is printed as not run.

error       sum((y - r)^2) / sum(r^2) over the judged samples. r is the output of the float model. Our models run in the
            integers of the hardware; the models of the tools run as their operators are defined, not by onnxruntime's
            8-bit kernels, which saturate on some processors.
right       share of right answers (float model: in the line of the network)
as float    share of answers equal to the float model's
not 8 bits  tools: convolutions and matrix products with an input that was left in float, of all of them. Ours:
            convolutions at INT16 (rules of the SDK). A model with such layers is a mixture.

A plant multiplies one channel and divides the weights that read it (``unseen.py``). Needs torch.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cure as of_onnxruntime
import numpy as np
import onnx
import torch
import unseen

import sgsdump
from sgsdump.models.model import open_model

NETS, PLANTS, IMAGES, LEVEL = "ReLU6,SiLU,transformer,BatchNorm after", "1,80", 20, "L2"
PEERS = {
    "onnxruntime, a scale per channel": "onnxruntime",
    "NNCF": "nncf",
    "NNCF, MinMax, no bias correction": "nncf-minmax",
    "NNCF, accuracy control": "nncf-controlled",
    "esp-ppq": "ppq",
    "esp-ppq, MinMax": "ppq-minmax",
    "esp-ppq, equalised": "ppq-equalised",
    "AIMET": "aimet",
    "AIMET, equalised": "aimet-equalised",
}
PATIENCE = 600
# Operators that compute sums of products, and those that pass quantised values on as they are.
PRODUCTS = "Conv", "ConvTranspose", "Gemm", "MatMul"
PASSED_ON = "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "MaxPool", "Identity"


class NotRun(Exception):
    """Raised if a tool made no model; the text is the reason."""


@dataclass(frozen=True)
class Judged:
    """One line of the table."""

    how: str
    error: float = 0.0
    right: float = 0.0
    same: float = 0.0
    mixed: str = ""
    not_run: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=NETS)
    parser.add_argument("--plants", default=PLANTS)
    parser.add_argument("--seed", type=int, default=1, help="selects the calibration images (default: 1)")
    parser.add_argument("--python", nargs="+", default=[], metavar="TOOL=PYTHON", help="the environment of each tool")
    parser.add_argument("--nets-in", type=Path, metavar="FOLDER", help="keep the trained networks here")
    parser.add_argument("--short", action="store_true", help="one network, trained for a few steps, without a plant")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.short:
        args.nets, args.plants = "ReLU6", "1"
    pythons = dict(each.split("=", 1) for each in args.python)
    print("| network | plant | quantiser | error | of ours as it is | right | as float | not 8 bits |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.nets.split(","):
            net = unseen.trained(name, args.nets_in or Path(temporary), 20 if args.short else unseen.STEPS)
            for plant in map(int, args.plants.split(",")):
                shown(net, unseen.Draw(name, LEVEL, IMAGES, plant, "cure", args.seed), pythons)


def shown(net: unseen.Trained, draw: unseen.Draw, pythons: dict[str, str]) -> None:
    """Print the lines of one network."""
    real = unseen.exact(net, draw)
    place = f"| {draw.net} | {draw.plant} |"
    print(f"{place} float | 0 | | {(real.argmax(1) == net.truth).mean():.3f} | 1.000 | |", flush=True)
    first = None
    with tempfile.TemporaryDirectory() as folder:
        ours = of_ours(net, draw, real, Path(folder))
        peers = (of_peer(net, draw, peer, Path(folder), pythons) for peer in PEERS.items())
        for line in itertools.chain(ours, peers):
            first = first or line.error
            print(f"{place} {line.how} | {figures(line, first)} |", flush=True)


def figures(line: Judged, first: float) -> str:
    if line.not_run:
        return f"not run: {line.not_run} | | | | "
    return f"{line.error:.2e} | {line.error / first:.3g} | {line.right:.3f} | {line.same:.3f} | {line.mixed}"


def judged(net: unseen.Trained, how: str, values: np.ndarray, real: np.ndarray, mixed: str = "") -> Judged:
    answers = values.argmax(1)
    right, same = (float((answers == wanted).mean()) for wanted in (net.truth, real.argmax(1)))
    return Judged(how, unseen.squared(values, real), right, same, mixed)


def of_ours(net: unseen.Trained, draw: unseen.Draw, real: np.ndarray, folder: Path) -> Iterator[Judged]:
    """As it is and cured, in the integers of the hardware."""
    images, source, path = net.images(draw), net.path(draw.plant), folder / "cured.onnx"
    made = sgsdump.calibrate(source, images, quant_level=draw.level)
    yield judged(net, f"`calibrate` at {draw.level}", net.outputs(made), real, at_int16(made))
    found = sgsdump.cure(source, images, quant_level=draw.level)
    found.save(path)
    more = {} if found.params is None else {"quant_file": folder / "cured.quant.json"}
    taken = ", ".join(step.cure for step in found.steps if step.taken) or "nothing"
    made = sgsdump.calibrate(path, images, quant_level=draw.level, **more)
    yield judged(net, f"`calibrate` at {draw.level}, cured ({taken})", net.outputs(made), real, at_int16(made))


def at_int16(made: Any) -> str:
    bits = list(made.convolutions.values())
    return f"{bits.count(16)} of {len(bits)}"


def of_peer(
    net: unseen.Trained, draw: unseen.Draw, named: tuple[str, str], folder: Path, pythons: dict[str, str]
) -> Judged:
    how, peer = named
    images, source = net.images(draw), net.path(draw.plant)
    if peer == "onnxruntime":
        feeds = [(str(i), {"data": each}) for i, each in enumerate(images)]
        of_onnxruntime.peer(open_model(source), feeds, folder, {"per_channel": True})  # type: ignore[arg-type]
        made = folder / "quantised.onnx"
    else:
        try:
            made = quantised(peer, source, images, folder, pythons)
        except NotRun as reason:
            return Judged(how, not_run=str(reason))
    model = onnx.load(made)
    session = of_onnxruntime.onnx_session(model)
    values = [session.run(["result"], {"data": each[None].numpy()})[0] for each in net.judged]  # type: ignore[attr-defined]
    return judged(net, how, np.concatenate(values), unseen.exact(net, draw), left_in_float(model))


def quantised(peer: str, source: Path, images: list[np.ndarray], folder: Path, pythons: dict[str, str]) -> Path:
    """Return the model that a tool makes in its own environment."""
    python = pythons.get(peer.partition("-")[0])
    if python is None:
        raise NotRun("no environment given")
    feeds, made = folder / "feeds.npz", folder / f"{peer}.onnx"
    np.savez(feeds, feeds=np.stack(images))
    command = [python, str(Path(__file__).with_name("cure_peers.py")), peer, str(source), str(feeds), str(made)]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise NotRun(f"longer than {PATIENCE} s") from None
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        print(*lines, sep="\n", file=sys.stderr)
        raise NotRun(lines[-1].replace("|", "/")[:100] if lines else f"exit status {error.returncode}") from None
    return made


def left_in_float(model: onnx.ModelProto) -> str:
    """Return how many products have an input that is not quantised, of how many products."""
    makers = {output: node for node in model.graph.node for output in node.output}

    def is_quantised(tensor: str) -> bool:
        node = makers.get(tensor)
        if node is None or node.op_type == "DequantizeLinear":
            return node is not None
        given = node.input if node.op_type == "Concat" else node.input[: node.op_type in PASSED_ON]
        return bool(given) and all(map(is_quantised, given))

    products = [node for node in model.graph.node if node.op_type in PRODUCTS]
    plain = sum(not all(map(is_quantised, node.input[:2])) for node in products)
    return f"{plain} of {len(products)}"


if __name__ == "__main__":
    main()
