"""Small networks trained in seconds on made data: their tasks, their layers, how they are trained and exported."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

DEVIATIONS = 2
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


@dataclass(frozen=True)
class Net:
    data: Callable[[int, np.random.Generator], Task]
    make: Callable[[], nn.Module]
    rebuilds: bool = False


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


def exported(model: nn.Module, sample: torch.Tensor, folded: bool = True) -> bytes:
    """``folded``: whether each BatchNormalization goes into the convolution before it."""
    file, mode = io.BytesIO(), torch.onnx.TrainingMode
    names = {"input_names": ["data"], "output_names": ["result"]}
    training = mode.EVAL if folded else mode.PRESERVE
    torch.onnx.export(model, (sample,), file, **names, training=training, dynamo=False)
    return file.getvalue()


def run(model: nn.Module, sample: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model(sample[None]).numpy()
