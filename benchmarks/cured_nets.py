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
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sgsdump.curing.cure import Cured
from sgsdump.curing.fold import rewritten
from sgsdump.curing.steps import CureOptions
from sgsdump.models.model import Model
from sgsdump.progress import SILENT
from sgsdump.quantisation.calibration import calibrate
from sgsdump.quantisation.fixed_model import make_fixed
from sgsdump.quantisation.quant_file import import_params
from sgsdump.quantisation.ranges.statistics import side_ranges
from sgsdump.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.verbs.cure import cured
from sgsdump.verbs.network import OpenNetwork, named_network, open_network

SAMPLES, JUDGED, TRAINED, STEPS = 24, 1000, 2000, 250
LOST_ERROR, DEVIATIONS = 1.05, 2
Task = tuple[torch.Tensor, torch.Tensor]


def glyphs(count: int, random: np.random.Generator) -> Task:
    """[N, 1, 20, 20] pictures of digits as a font draws them, moved, dimmed and noisy."""
    from PIL import Image, ImageDraw, ImageFont

    font, pictures, labels = ImageFont.load_default(14), [], random.integers(0, 10, count)
    for label in labels:
        picture = Image.new("L", (20, 20))
        ImageDraw.Draw(picture).text(tuple(random.integers(0, 9, 2)), str(label), fill=255, font=font)
        pictures.append(np.asarray(picture, np.float32) / 255 * random.uniform(0.4, 1))
    noisy = np.stack(pictures)[:, None] + random.normal(0, 0.15, (count, 1, 20, 20))
    return torch.tensor(noisy, dtype=torch.float32), torch.tensor(labels)


def shapes(count: int, random: np.random.Generator) -> Task:
    """[N, 3, 32, 32] pictures of discs and boxes on a ground; the label of each pixel."""
    y, x = np.mgrid[:32, :32]
    pictures = random.uniform(-0.5, 0.5, (count, 3, 1, 1)) + random.normal(0, 0.2, (count, 3, 32, 32))
    labels = np.zeros((count, 32, 32), np.int64)
    for picture, label in zip(pictures, labels):
        for kind in random.integers(1, 3, 3):
            (a, b), size = random.integers(4, 28, 2), random.integers(3, 8)
            inside = (x - a) ** 2 + (y - b) ** 2 < size**2 if kind == 1 else np.maximum(abs(x - a), abs(y - b)) < size
            label[inside] = kind
            picture[:, inside] = random.uniform(-1, 1, (3, 1)) + random.normal(0, 0.1, (3, int(inside.sum())))
    return torch.tensor(pictures, dtype=torch.float32), torch.tensor(labels)


def tones(count: int, random: np.random.Generator) -> Task:
    """[N, 1, 400] sounds of 8 chords in noise."""
    labels, time = random.integers(0, 8, count), np.arange(400) / 400
    base = 8 + 4 * (labels % 4)[:, None]
    ratio = np.where(labels < 4, 1.25, 1.5)[:, None]
    phase = random.uniform(0, 6.28, (2, count, 1))
    sound = np.sin(6.28 * base * time + phase[0]) + np.sin(6.28 * base * ratio * time + phase[1])
    sound = sound * random.uniform(0.2, 1, (count, 1)) + random.normal(0, 0.3, (count, 400))
    return torch.tensor(sound[:, None], dtype=torch.float32), torch.tensor(labels)


def spectra(count: int, random: np.random.Generator) -> Task:
    """[N, 1, 32, 24] logarithms of the tones' spectra."""
    sounds, labels = tones(count, random)
    frames = sounds[:, 0].unfold(1, 64, 14)[:, :24] * torch.hann_window(64)
    power = torch.fft.rfft(frames).abs()[..., 1:] ** 2
    return torch.log(power + 1e-3).transpose(1, 2)[:, None].contiguous(), labels


def table(count: int, random: np.random.Generator) -> Task:
    """[N, 20] numbers of very different sizes, whose signs and products decide."""
    values = random.normal(size=(count, 20))
    label = (values[:, 0] * values[:, 1] > 0) + 2 * (values[:, 2] + values[:, 3] * values[:, 4] > 0)
    return torch.tensor(values * np.logspace(-1, 1, 20), dtype=torch.float32), torch.tensor(label)


def conv(i: int, o: int, k: int = 3, act: type[nn.Module] = nn.ReLU, **more: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, k, padding=k // 2, bias=False, **more), nn.BatchNorm2d(o), act())


def ending(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


class Sum(nn.Module):
    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.inner(x))


def separable(i: int, o: int, act: type[nn.Module]) -> nn.Sequential:
    return nn.Sequential(conv(i, i, act=act, groups=i), conv(i, o, 1, act))


class Excite(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.gate(x))


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


class Patches(nn.Module):
    """A transformer of two layers over 16 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(1, 32, 5, 5), nn.Parameter(torch.randn(1, 16, 32) * 0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.mixers = nn.ModuleList(nn.ModuleList(nn.Linear(32, 32) for _ in range(4)) for _ in range(2))
        self.inner = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(2))
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for i in range(2):
            q, k, v, o = self.mixers[i]
            y = self.norms[2 * i](x)
            x = x + o(torch.softmax(q(y) @ k(y).transpose(1, 2) / 32**0.5, -1) @ v(y))
            x = x + self.inner[i](self.norms[2 * i + 1](x))
        return self.last(x.mean(1))


def sound_net() -> nn.Module:
    layers: list[nn.Module] = []
    for i, o in ((1, 16), (16, 24), (24, 32)):
        layers += [nn.Conv1d(i, o, 9, 4, 4), nn.BatchNorm1d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 8))


def code_net() -> nn.Module:
    down = [nn.Conv2d(1, 12, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(12, 16, 3, 2, 1), nn.PReLU(16)]
    up = [nn.ConvTranspose2d(16, 12, 2, 2), nn.LeakyReLU(0.1), nn.ConvTranspose2d(12, 1, 2, 2)]
    return nn.Sequential(*down, *up)


@dataclass(frozen=True)
class Net:
    data: Callable[[int, np.random.Generator], Task]
    make: Callable[[], nn.Module]
    rebuilds: bool = False


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


def fewer(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether of these answers so many more are lost than won that chance is no reason."""
    lost, won = int((before & ~after).sum()), int((~before & after).sum())
    return lost - won > DEVIATIONS * (lost + won) ** 0.5


def train(net: Net, data: Task, steps: int) -> nn.Module:
    model, (x, y) = net.make(), data
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for step in range(steps):
        some = torch.arange(64) + 64 * (step % (len(x) // 64))
        made = model(x[some])
        loss = ((made - x[some]) ** 2).mean() if net.rebuilds else nn.functional.cross_entropy(made, y[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def exported(model: nn.Module, sample: torch.Tensor) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(model, (sample,), file, input_names=["data"], output_names=["result"], dynamo=False)
    return file.getvalue()


def run(model: nn.Module, sample: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model(sample[None]).numpy()


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
