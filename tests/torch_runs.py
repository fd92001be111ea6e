"""Programs that use torch, run with the hooks, and what they left: for the tests of the torch hook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from in_process import Done, script

from sgsdump import open_dump
from sgsdump.capture.programs.control import dump_control
from sgsdump.capture.programs.process_index import Process, lines_of
from sgsdump.capture.programs.program import Captured, run_program

NETS = '''
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu_(self.norm(self.conv(x))) + x


class Net(nn.Module):
    """A convolutional net; every random number comes from its seed."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(), Block())
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return torch.softmax(self.fc(x.mean((2, 3))), 1)


def image():
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, past):
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        if past:
            k, v = torch.cat([past["k"], k], 1), torch.cat([past["v"], v], 1)
        past["k"], past["v"] = k, v
        weights = torch.softmax(q @ k.transpose(1, 2) / 4.0, -1)
        return x + self.out(weights @ v)


class Decoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, width)
        self.layers = nn.ModuleList([Layer(width), Layer(width)])
        self.head = nn.Linear(width, 20)

    def forward(self, tokens, past):
        x = self.embed(tokens)
        for layer, kept in zip(self.layers, past):
            x = layer(x, kept)
        return self.head(x)
'''


@dataclass(frozen=True)
class Run:
    """``text``: what the program printed; ``root``: its dump."""

    captured: Captured
    root: Path
    text: str
    errors: str

    @property
    def process(self) -> Process:
        (process,) = self.captured.processes
        return process

    def lines(self, **fields: object) -> list[dict]:
        """The index's lines of tensors that have these fields."""
        return [line for line in self.every() if "side" in line and fields.items() <= line.items()]

    def every(self) -> list[dict]:
        return [dict(line) for process in self.captured.processes for line in lines_of(process.folder)]

    def values(self, **fields: object) -> np.ndarray:
        """The values of the one tensor whose line has these fields."""
        (line,) = self.lines(**fields)
        return values_of(self.root / line["file"])


def values_of(path: Path) -> np.ndarray:
    (record,) = open_dump(path).records
    return np.asarray(record.tensor.stored())


def write_program(folder: Path, source: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nets.py").write_text(NETS)
    program = folder / "program.py"
    program.write_text("import torch\ntorch.set_num_threads(1)\nfrom nets import *\n" + source)
    return program


def plain(program: Path) -> Done:
    """The program as it is without the hooks, with the torch that is imported here."""
    return script(program, [], program.parent, os.environ)


def runner(folder: Path, capfd) -> Callable[..., Run]:
    """``run(source, **control)``: a program of this source below ``folder``, started from another folder."""

    def run(source: str | Path, *words: str, argv: tuple[str, ...] = (), **control: object) -> Run:
        place = folder / f"run{len(list(folder.iterdir()))}"
        program = source if isinstance(source, Path) else write_program(place / "program", source)
        elsewhere = place / "elsewhere"
        elsewhere.mkdir(parents=True)
        root = place / "dump"
        root.mkdir()
        before = Path.cwd()
        os.chdir(elsewhere)
        capfd.readouterr()
        try:
            captured = run_program(
                argv or (sys.executable, str(program), *words), dump_control(**{"layout": "files", **control}), root
            )
        finally:
            os.chdir(before)
        out, errors = capfd.readouterr()
        return Run(captured, root, out, errors)

    return run
