#!/usr/bin/env python3
"""Ten small networks, trained here in seconds each, as they are and cured: no cure may lose accuracy.

    python benchmarks/cured_nets.py [--levels L1,L2] [--nets digits,unet] [--short]

Each learns a task of made data (glyphs, shapes, tones, tables), is calibrated and cured on SAMPLES of it and judged on
JUDGED that neither has seen: the task's accuracy, how many answers are the float model's (of segmentation both by
pixel; the autoencoder has none), and the squared error of the output relative to the float model. Printed as a table of
Markdown, with what was taken; the exit status is 1 where a cure loses 5 % of error, or more answers, right ones or the
float model's, than by chance: where lost - won > 2 √(lost + won) of those that change (McNemar's test). Needs torch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from trained_nets import (
    Excite,
    Net,
    Patches,
    Sum,
    conv,
    ending,
    exported,
    fewer,
    glyphs,
    run,
    separable,
    shapes,
    spectra,
    table,
    tones,
    train,
)

from sgsdump.fixedpoint.curing.cure import Cured
from sgsdump.fixedpoint.curing.fold import rewritten
from sgsdump.fixedpoint.curing.steps import CureOptions
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.quant_file import import_params
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.fixedpoint.verbs.cure import cured
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.model import Model
from sgsdump.models.network import named_network
from sgsdump.progress import SILENT

SAMPLES, JUDGED, TRAINED, STEPS = 24, 1000, 2000, 250
LOST_ERROR = 1.05


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 12), nn.Sequential(nn.MaxPool2d(2), conv(12, 24))
        self.c = nn.Sequential(nn.MaxPool2d(2), conv(24, 32), nn.ConvTranspose2d(32, 24, 2, 2))
        self.d, self.e = nn.Sequential(conv(48, 24), nn.ConvTranspose2d(24, 12, 4, 2, 1)), conv(24, 12)
        self.last = nn.Conv2d(12, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = self.b(a)
        d = self.d(torch.cat([b, self.c(b)], 1))
        return self.last(self.e(torch.cat([a, d], 1)))


def sound_net() -> nn.Module:
    layers: list[nn.Module] = []
    for i, o in ((1, 16), (16, 24), (24, 32)):
        layers += [nn.Conv1d(i, o, 9, 4, 4), nn.BatchNorm1d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 8))


def code_net() -> nn.Module:
    down = [nn.Conv2d(1, 12, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(12, 16, 3, 2, 1), nn.PReLU(16)]
    up = [nn.ConvTranspose2d(16, 12, 2, 2), nn.LeakyReLU(0.1), nn.ConvTranspose2d(12, 1, 2, 2)]
    return nn.Sequential(*down, *up)


pool = nn.MaxPool2d
NETS = {
    "digits": Net(glyphs, lambda: nn.Sequential(conv(1, 12), pool(2), conv(12, 24), pool(2), *ending(24, 10))),
    "residual": Net(glyphs, lambda: nn.Sequential(
        conv(1, 16), Sum(conv(16, 16), conv(16, 16)), pool(2), Sum(conv(16, 16), conv(16, 16)), *ending(16, 10))),
    "ReLU6": Net(glyphs, lambda: nn.Sequential(
        conv(1, 16, act=nn.ReLU6), *(separable(16, 16, nn.ReLU6) for _ in range(3)), *ending(16, 10))),
    "squeeze and excite": Net(glyphs, lambda: nn.Sequential(
        conv(1, 16, act=nn.SiLU), Excite(16), pool(2), conv(16, 24, act=nn.SiLU), Excite(24), *ending(24, 10))),
    "transformer": Net(glyphs, Patches),
    "segmentation": Net(shapes, UNet),
    "sounds": Net(tones, sound_net),
    "spectra": Net(spectra, lambda: nn.Sequential(
        conv(1, 16), separable(16, 16, nn.ReLU), pool(2), separable(16, 24, nn.ReLU), *ending(24, 8))),
    "table": Net(table, lambda: nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))),
    "autoencoder": Net(glyphs, code_net, rebuilds=True),
}  # fmt: skip
SHORT = ("residual", "table")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="L1,L2")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--short", action="store_true", help="two networks at L2, trained for a few steps")
    args = parser.parse_args()
    names, levels = (SHORT, ["L2"]) if args.short else (args.nets.split(","), args.levels.split(","))
    print("| network | level | right: float | as it is | cured | as float: as it is | cured | error | taken |")
    print("|---|---|---|---|---|---|---|---|---|")
    lost = [row for name in names for row in rows(name, levels, 20 if args.short else STEPS) if row]
    sys.exit(1 if lost else 0)


def rows(name: str, levels: list[str], steps: int) -> Iterator[bool]:
    """Prints a row for each level; gives whether it is one of a cure that loses."""
    net, random = NETS[name], np.random.default_rng(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trained = train(net, net.data(TRAINED, random), steps)
    samples, (judged, truth) = net.data(SAMPLES, random)[0], net.data(JUDGED, random)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(exported(trained, samples[:1]))
        for level in levels:
            network = named_network(path, [each[None].numpy() for each in samples], {})
            opened = open_network(network, level)
            feeds = opened.feeds()
            found = cured(network, opened, CureOptions(level), (feeds, None), SILENT)
            inputs = [{opened.specs[0].name: each[None].numpy()} for each in judged]
            exact = np.concatenate([run(trained, each) for each in judged])
            results = [outputs(opened, level, inputs, each) for each in (None, found)]
            errors = [float(((y - exact) ** 2).sum() / (exact**2).sum()) for y in results]
            answers = (exact.argmax(1),) * 2 if net.rebuilds else (truth.numpy(), exact.argmax(1))
            hits = [[y.argmax(1) == each for y in (exact, *results)] for each in answers]
            right, same = ([float(hit.mean()) for hit in each] for each in hits)
            taken = ", ".join(step.cure for step in found.steps if step.taken) or "nothing helps"
            shares = " | " * 4 if net.rebuilds else " | ".join(f"{each:.3f}" for each in (*right, *same[1:]))
            ratio = errors[1] / errors[0] if errors[0] else 1.0
            shown = f"{errors[0]:.2e} → {errors[1]:.2e} ({ratio:.2f})"
            print(f"| {name} | {level} | {shares} | {shown} | {taken} |", flush=True)
            yield ratio > LOST_ERROR or (not net.rebuilds and any(fewer(each[1], each[2]) for each in hits))


def outputs(opened: OpenNetwork, level: str, inputs: list[dict[str, np.ndarray]], found: Cured | None) -> np.ndarray:
    """[N, ...] of the network as ``calibrate`` makes it, or cured with its quant file, in integers."""
    model: Model = opened.model if found is None else rewritten(opened.model, found.proto)
    calibration = calibrate(model, opened.feeds(), opened.config, level)
    ranges = dict(calibration.ranges)
    if found is not None and found.params:
        ranges |= import_params(model, found.params, opened.config).ranges
    fixed = make_fixed(model, ranges, calibration.config, side=side_ranges(calibration.statistics))
    graph = FixedOutputs(replace(model), fixed.proto, ["result"])
    return np.concatenate([graph.run(each, each)["result"] for each in inputs])


if __name__ == "__main__":
    main()
