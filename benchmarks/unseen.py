#!/usr/bin/env python3
"""What ``cure``, ``tune`` and ``diagnose`` promise, held against unseen data: eight networks, trained here in seconds.

    python benchmarks/unseen.py [--commands cure,tune] [--draws 60] [--seed 1] [--nets-in FOLDER] [--short]

Two networks each with ReLU6 or PReLU, with HardSwish or SiLU, with LayerNormalization, and with BatchNormalization kept
in the ONNX. A draw is a network, a level, a number of calibration images, a plant, a command, and which images; all of
these are drawn at random from the grid that the options give, so any number of draws shows all of it. Judged are
JUDGED samples that the command does not get, in integers, of the files that it writes, as ``calibrate`` reads them.

A plant makes one channel so many times louder and divides the weights that read it: the float function stays. Behind a
ReLU6 a louder channel would be cut, so there all other channels become so many times quieter, but those that the ReLU6
cuts on any sample; that is the same to UINT8, as the range is of the loudest.

cure      error          sum((y - r)^2) / sum(r^2), as it is and cured with its quant file; ``alone`` without that file
          promise        ``Cured.expected`` over the true error;
                         ``part``: ``Cured.expected_gain`` over the true part of the error that is left
          labels         right, and as the float model answers: lost - won > 2 sqrt(lost + won) is beyond chance
          reference      of a plant the part that ``cures="fold,equalise"`` leaves, of REFERENCE images and with ReLU in
                         place of ReLU6
tune, diagnose           sum(|y - r|) / sum(|r|), the error that they tell, of the plan that they recommend

Exit status 1 where a target of the summary at the end is missed. Needs torch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from trained_nets import (
    Excite,
    Net,
    Patches,
    conv,
    ending,
    exported,
    fewer,
    glyphs,
    run,
    separable,
    spectra,
    train,
)

import sgsdump
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.fixedpoint.tuning.worth import AS_IT_IS, PLAN
from sgsdump.models.feeds.by_content import FEWEST_HELD_OUT

LEVELS, IMAGES, PLANTS = "L1,L2,L5", "1,2,3,5,10,12,20", "1,20,80,400,900"
COMMANDS = "cure", "tune", "diagnose"
POOL, JUDGED, TRAINED, STEPS, REFERENCE = 400, 400, 2000, 250, 24
CUT = 6.0
BUDGET = "30s"
# Targets: an error may grow by WORSE; a promise is near within NEAR, and optimistic beyond OPTIMISTIC; of draws so many
# have to be near, so many may be optimistic; of what the reference gains GAINED has to be gained.
WORSE, NEAR, OPTIMISTIC = 0.05, 0.2, 0.1
MOST_NEAR, FEW_OPTIMISTIC, GAINED = 0.9, 0.05, 2 / 3


class Bottleneck(nn.Module):
    """As of MobileNetV3: wide, depthwise, Squeeze-and-Excitation, and narrow again without an activation."""

    def __init__(self, i: int, wide: int, o: int, act: type[nn.Module]):
        super().__init__()
        self.wide, self.apart = conv(i, wide, 1, act), conv(wide, wide, act=act, groups=wide)
        self.excite, self.narrow = Excite(wide), conv(wide, o, 1, nn.Identity)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.excite(self.apart(self.wide(x))))


class Stages(nn.Module):
    """As of a YOLO: halves of the channels, one of them through convolutions, put together again."""

    def __init__(self, channels: int, act: type[nn.Module]):
        super().__init__()
        half = channels // 2
        self.a, self.b = conv(channels, half, 1, act), conv(channels, half, 1, act)
        self.inner = nn.Sequential(conv(half, half, act=act), conv(half, half, act=act))
        self.last = conv(channels, channels, 1, nn.Identity)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.inner(self.a(x)), self.b(x)], 1))


class Mixer(nn.Module):
    """An MLP mixer of two layers over 12 patches of spectra."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norms = nn.Conv2d(1, 24, 8, 8), nn.ModuleList(nn.LayerNorm(24) for _ in range(4))
        self.along = nn.ModuleList(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12)) for _ in range(2))
        self.across = nn.ModuleList(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24)) for _ in range(2))
        self.last = nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for i in range(2):
            x = x + self.along[i](self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.across[i](self.norms[2 * i + 1](x))
        return self.last(x.mean(1))


class Before(nn.Module):
    """A residual block whose BatchNormalization and ReLU come before the convolution."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(torch.relu(self.norm(x)))


@dataclass(frozen=True)
class Place:
    """Where a channel can be made louder: the module that puts it out, those that read it, and the ReLU6 between."""

    maker: nn.Module
    readers: Sequence[nn.Module]
    cut: nn.Module | None = None


@dataclass(frozen=True)
class Tested:
    """``place``: of the trained module; ``folded``: whether BatchNormalization is folded in the ONNX; ``longer``: so
    many times the steps of the others."""

    net: Net
    place: Callable[[Any], Place]
    folded: bool = True
    longer: int = 1


def prelu(channels: int) -> nn.Module:
    return nn.PReLU(channels, 0.2)


def with_prelu(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), prelu(o))


pool, relu6, hard, silu = nn.MaxPool2d, nn.ReLU6, nn.Hardswish, nn.SiLU
NETS = {
    "ReLU6": Tested(
        Net(glyphs, lambda: nn.Sequential(
            conv(1, 16, act=relu6), *(separable(16, 16, relu6) for _ in range(3)), *ending(16, 10))),
        lambda m: Place(m[1][1][1], [m[2][0][0]], m[1][1][2])),
    "PReLU": Tested(
        Net(glyphs, lambda: nn.Sequential(
            with_prelu(1, 12), pool(2), with_prelu(12, 24), pool(2), with_prelu(24, 24), *ending(24, 10))),
        lambda m: Place(m[2][1], [m[4][0]])),
    "HardSwish": Tested(
        Net(glyphs, lambda: nn.Sequential(
            conv(1, 16, act=hard), pool(2), Bottleneck(16, 32, 12, hard), Bottleneck(12, 32, 12, hard),
            conv(12, 24, 1, hard), *ending(24, 10))),
        lambda m: Place(m[2].narrow[1], [m[3].wide[0]])),
    "SiLU": Tested(
        Net(spectra, lambda: nn.Sequential(
            conv(1, 16, act=silu), pool(2), Stages(16, silu), Stages(16, silu), conv(16, 24, act=silu),
            *ending(24, 8))),
        lambda m: Place(m[2].last[1], [m[3].a[0], m[3].b[0]])),
    "transformer": Tested(
        Net(glyphs, Patches), lambda m: Place(m.norms[1], [m.inner[0][0]]), longer=4),
    "mixer": Tested(
        Net(spectra, Mixer), lambda m: Place(m.norms[1], [m.across[0][0]])),
    "BatchNorm after": Tested(
        Net(spectra, lambda: nn.Sequential(
            conv(1, 16), separable(16, 16, nn.ReLU), pool(2), separable(16, 24, nn.ReLU), *ending(24, 8))),
        lambda m: Place(m[1][1][1], [m[3][0][0]]), folded=False),
    "BatchNorm before": Tested(
        Net(glyphs, lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), *(Before(16) for _ in range(3)), nn.BatchNorm2d(16), nn.ReLU(),
            *ending(16, 10))),
        lambda m: Place(m[2].norm, [m[2].conv]), folded=False),
}  # fmt: skip


@dataclass(frozen=True)
class Draw:
    net: str
    level: str
    images: int
    plant: int
    command: str
    seed: int


@dataclass(frozen=True)
class Seen:
    """What came of a draw.

    before, after   the error as it is and after; ``alone``: of the model without its quant file.
    promise, part   the promised error over the true one, and the promised part of the error over the true part.
    right, same     answers that are right (float, as it is, after), and that are the float model's (as it is, after).
    lost            whether more of them were lost than by chance.
    reference       of a plant the part of the error that the reference leaves.
    """

    draw: Draw
    taken: str
    before: float
    after: float
    alone: float | None = None
    promise: float | None = None
    part: float | None = None
    right: tuple[float, float, float] = (0.0, 0.0, 0.0)
    same: tuple[float, float] = (0.0, 0.0)
    lost: bool = False
    reference: float | None = None

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else 1.0

    @property
    def worse(self) -> bool:
        return self.ratio > 1 + WORSE or (self.alone is not None and self.alone > (1 + WORSE) * self.before)


@dataclass
class Trained:
    """A network with its samples, as it is planted."""

    name: str
    module: nn.Module
    samples: torch.Tensor
    judged: torch.Tensor
    truth: np.ndarray
    folder: Path
    exact: dict[int, np.ndarray] = field(default_factory=dict)

    @cached_property
    def cut_tops(self) -> np.ndarray | None:
        """[C] how far each channel reaches behind the ReLU6 at the place, on every sample."""
        cut = NETS[self.name].place(self.module).cut
        if cut is None:
            return None
        tops: list[torch.Tensor] = []
        hook = cut.register_forward_hook(lambda module, given, made: tops.append(made.amax((0, 2, 3))))
        with torch.no_grad():
            self.module(torch.cat([self.samples, self.judged]))
        hook.remove()
        return tops[0].numpy()

    def planted(self, plant: int, uncut: bool = False) -> nn.Module:
        """The network with one channel louder; ``uncut``: with ReLU in place of ReLU6."""
        module = deepcopy(self.module)
        place = NETS[self.name].place(module)
        scale(place, torch.tensor(self.factors(place, plant), dtype=torch.float32))
        return without_cuts(module) if uncut else module

    def factors(self, place: Place, plant: int) -> np.ndarray:
        size = len(place.maker.weight)
        loud = np.random.default_rng(plant).integers(size)
        if self.cut_tops is None:
            return np.where(np.arange(size) == loud, float(plant), 1.0)
        tops = self.cut_tops
        loud = int(tops.argmax())
        return np.where((tops >= CUT) | (np.arange(size) == loud), 1.0, 1 / plant)

    def path(self, plant: int, uncut: bool = False) -> Path:
        path = self.folder / f"{self.name.replace(' ', '_')}_{plant}{'_uncut' * uncut}.onnx"
        if not path.exists():
            path.write_bytes(exported(self.planted(plant, uncut), self.samples[:1], NETS[self.name].folded))
        return path

    def images(self, draw: Draw) -> list[np.ndarray]:
        chosen = np.random.default_rng(draw.seed).choice(len(self.samples), draw.images, replace=False)
        return [self.samples[i][None].numpy() for i in chosen]

    def outputs(self, made: Any) -> np.ndarray:
        """[N, ...] of a fixed model of ``calibrate`` on the judged samples."""
        graph = FixedOutputs(made.imported.model, made.fixed.proto, ["result"])
        feeds = [{"data": each[None].numpy()} for each in self.judged]
        return np.concatenate([graph.run(feed, feed)["result"] for feed in feeds])


def scale(place: Place, factors: torch.Tensor) -> None:
    with torch.no_grad():
        for each in (place.maker.weight, place.maker.bias):
            each *= factors.reshape(-1, *[1] * (each.dim() - 1))
        for reader in place.readers:
            weight = reader.weight
            depthwise = isinstance(reader, nn.Conv2d) and reader.groups > 1
            axis = 0 if depthwise else 1
            weight /= factors.reshape([-1 if i == axis else 1 for i in range(weight.dim())])


def without_cuts(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU6):
            setattr(module, name, nn.ReLU())
        else:
            without_cuts(child)
    return module


def trained(name: str, folder: Path, steps: int) -> Trained:
    """From the folder, where it has been trained before."""
    net, random = NETS[name].net, np.random.default_rng(0)
    torch.manual_seed(0)
    data, (samples, _), (judged, truth) = (net.data(count, random) for count in (TRAINED, POOL, JUDGED))
    folder = folder / str(steps)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name.replace(' ', '_')}.pt"
    if file.exists():
        module = net.make()
        module.load_state_dict(torch.load(file))
    else:
        module = train(net, data, NETS[name].longer * steps)
        torch.save(module.state_dict(), file)
    return Trained(name, module.eval(), samples, judged, truth.numpy(), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--levels", default=LEVELS)
    parser.add_argument("--images", default=IMAGES)
    parser.add_argument("--plants", default=PLANTS)
    parser.add_argument("--commands", default="cure")
    parser.add_argument("--draws", type=int, help="so many of the grid, at random (default: the whole grid)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets-in", type=Path, metavar="FOLDER", help="keep the trained networks here")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append each row as a line of JSON")
    parser.add_argument("--short", action="store_true", help="four draws of two networks, trained for a few steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.short:
        args.nets, args.levels, args.images, args.plants, args.draws = "PReLU,mixer", "L2", "2,12", "1,80", 4
    draws = drawn(args)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.nets_in or Path(temporary)
        seen = list(shown(seen_of(draws, folder, 20 if args.short else STEPS), args.rows))
    missed = summary(seen)
    sys.exit(1 if missed and not args.short else 0)


def drawn(args: argparse.Namespace) -> list[Draw]:
    """The whole grid in a random order, or the first of it; the images of each are drawn too."""
    lists = [each.split(",") for each in (args.nets, args.levels, args.images, args.plants, args.commands)]
    random = np.random.default_rng(args.seed)
    grid = list(itertools.product(*lists))
    chosen = [grid[i] for i in random.permutation(len(grid))][: args.draws]
    seeds = random.integers(1 << 31, size=len(chosen))
    return [Draw(*each[:2], int(each[2]), int(each[3]), each[4], int(seed)) for each, seed in zip(chosen, seeds)]


def seen_of(draws: Iterable[Draw], folder: Path, steps: int) -> Iterator[Seen]:
    nets: dict[str, Trained] = {}
    for draw in draws:
        if draw.net not in nets:
            nets[draw.net] = trained(draw.net, folder, steps)
        with tempfile.TemporaryDirectory() as temporary:
            yield (seen_of_cure if draw.command == "cure" else seen_of_plan)(nets[draw.net], draw, Path(temporary))


def exact(net: Trained, draw: Draw) -> np.ndarray:
    if draw.plant not in net.exact:
        module = net.planted(draw.plant)
        net.exact[draw.plant] = np.concatenate([run(module, each) for each in net.judged])
    return net.exact[draw.plant]


def seen_of_cure(net: Trained, draw: Draw, folder: Path) -> Seen:
    images, source, path = net.images(draw), net.path(draw.plant), folder / "cured.onnx"
    found = sgsdump.cure(source, images, quant_level=draw.level)
    found.save(path)
    beside = folder / "cured.quant.json"
    real = exact(net, draw)
    made = [sgsdump.calibrate(source, images, quant_level=draw.level)]
    if found.params is not None:
        made.append(sgsdump.calibrate(path, images, quant_level=draw.level, quant_file=beside))
    made.append(sgsdump.calibrate(path, images, quant_level=draw.level))
    before, after, *alone = map(net.outputs, made)
    errors = [squared(each, real) for each in (before, after, *alone)]
    promised = found.expected.get("result")
    taken = ",".join(step.cure for step in found.steps if step.taken)
    return Seen(
        draw,
        taken or "-",
        errors[0],
        errors[1],
        errors[2] if alone else None,
        promised / errors[1] if promised is not None and taken else None,
        found.expected_gain * errors[0] / errors[1] if found.expected_gain is not None and taken else None,
        *answers(net, real, before, after),
        reference=reference(net, draw) if draw.plant > 1 and draw.images >= FEWEST_HELD_OUT else None,
    )


def reference(net: Trained, draw: Draw) -> float:
    """The part of the error that equalising alone leaves, where nothing stands in its way; kept in the folder."""
    file = net.folder / "references.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    key = f"{net.name} {draw.level} {draw.plant}"
    if key not in known:
        images = [each[None].numpy() for each in net.samples[:REFERENCE]]
        source, level = net.path(draw.plant, uncut=True), draw.level
        module = net.planted(draw.plant, uncut=True)
        real = np.concatenate([run(module, each) for each in net.judged])
        with tempfile.TemporaryDirectory() as folder:
            path = sgsdump.cure(source, images, quant_level=level, cures=("fold", "equalise")).save(
                Path(folder) / "cured.onnx"
            )
            made = [sgsdump.calibrate(each, images, quant_level=level) for each in (source, path)]
        before, after = (squared(net.outputs(each), real) for each in made)
        known[key] = after / before
        file.write_text(json.dumps(known, indent=1))
    return float(known[key])


def seen_of_plan(net: Trained, draw: Draw, folder: Path) -> Seen:
    """Of the plan that ``tune`` or ``diagnose`` recommends, made of the files that it writes."""
    images, source, plan = net.images(draw), net.path(draw.plant), folder / "plan"
    taken, promise, files = (tuned if draw.command == "tune" else diagnosed)(source, images, draw.level, plan)
    real = exact(net, draw)
    made = [sgsdump.calibrate(source, images, quant_level=draw.level, **more) for more in ({}, files)]
    before, after = map(net.outputs, made)
    error = squared if draw.command == "tune" else relative
    errors = [error(each, real) for each in (before, after)]
    right, same, lost = answers(net, real, before, after)
    return Seen(draw, taken, *errors, promise=promise / errors[1], right=right, same=same, lost=lost)


def tuned(source: Path, images: list[np.ndarray], level: str, plan: Path) -> tuple[str, float, dict[str, Path]]:
    """What ``tune`` takes, the error that it promises, and the files of it for ``calibrate``."""
    found = sgsdump.tune(source, images, quant_level=level, budget=BUDGET)
    found.save(plan)
    taken = found.taken
    row = next(row for row in json.loads((plan / "pareto.json").read_text())["rows"] if row["taken"])
    files = {"quant_file": plan / "optimized_quant_info.json", "input_config": plan / "input_config.ini"}
    return f"{len(taken.raised)} at INT16", row.get("expected_error") or row["error"], files


def diagnosed(source: Path, images: list[np.ndarray], level: str, plan: Path) -> tuple[str, float, dict[str, Path]]:
    """The same of ``diagnose``."""
    sgsdump.diagnose(source, images, quant_level=level).save(plan)
    findings = json.loads((plan / "layers.json").read_text())["findings"]
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        by_kind.setdefault(finding["kind"], []).append(finding)
    expected = {each["facts"]["model"]: each["figures"]["expected_error"] for each in by_kind.get("unseen", [])}
    file = plan / "advised.quant.json"
    if not file.exists():
        told = expected.get(AS_IT_IS, np.mean([each["figures"]["rmse"] for each in by_kind["output"]]))
        return "-", float(told), {}
    (advice,) = by_kind.get("advice") or [{"names": [], "figures": {}}]  # without one the file gives room alone
    told = expected.get(PLAN, advice["figures"].get("error_after", expected.get(AS_IT_IS)))
    return f"{len(advice['names'])} inputs at INT16", float(told), {"quant_file": file}


def relative(values: np.ndarray, real: np.ndarray) -> float:
    return float(np.abs(values.astype(np.float64) - real).sum() / np.abs(real.astype(np.float64)).sum())


def squared(values: np.ndarray, real: np.ndarray) -> float:
    return float(((values.astype(np.float64) - real) ** 2).sum() / (real.astype(np.float64) ** 2).sum())


def answers(
    net: Trained, real: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[tuple[float, float, float], tuple[float, float], bool]:
    """Shares that are right, shares that are the float model's, and whether more of either are lost than by chance."""
    hits = [[each.argmax(1) == wanted for each in (real, before, after)] for wanted in (net.truth, real.argmax(1))]
    right, same = ([float(hit.mean()) for hit in each] for each in hits)
    return (right[0], right[1], right[2]), (same[1], same[2]), any(fewer(each[1], each[2]) for each in hits)


def shown(rows: Iterable[Seen], file: Path | None) -> Iterator[Seen]:
    print("| network | level | images | plant | command | taken | error | ratio | alone | promise / truth", end="")
    print(": error | part | right: float, as it is, after | as float | reference | |")
    print("|---" * 15 + "|")
    for row in rows:
        draw, numbers = row.draw, "{:.3f} {:.3f} {:.3f}".format(*row.right)
        alone = "-" if row.alone is None else f"{row.alone / row.before:.2f}"
        figures = (row.promise, row.part, row.reference)
        near, part, reference = ("-" if each is None else f"{each:.3g}" for each in figures)
        said = "WORSE " * row.worse + "LABELS LOST" * row.lost
        print(
            f"| {draw.net} | {draw.level} | {draw.images} | {draw.plant} | {draw.command} | {row.taken} | "
            f"{row.before:.2e} → {row.after:.2e} | {row.ratio:.3g} | {alone} | {near} | {part} | {numbers} | "
            f"{row.same[0]:.3f} {row.same[1]:.3f} | {reference} | {said} |",
            flush=True,
        )
        if file is not None:
            with file.open("a") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")
        yield row


def summary(seen: Sequence[Seen]) -> bool:
    """Prints each target; whether one is missed."""
    missed = False

    def told(what: str, some: Sequence[object], count: int, good: bool) -> None:
        nonlocal missed
        missed |= not good
        print(f"{what}: {count} of {len(some)}{'' if good else '  MISSED'}")

    for command in COMMANDS:
        some = [row for row in seen if row.draw.command == command]
        if not some:
            continue
        print(f"\n{command}, {len(some)} draws")
        worse, lost = ([row for row in some if hurt(row)] for hurt in (lambda r: r.worse, lambda r: r.lost))
        told(f"unseen error raised by more than {WORSE:.0%}", some, len(worse), not worse)
        told("labels lost beyond chance", some, len(lost), not lost)
        planted = [row for row in some if row.reference is not None and row.reference < 0.9]
        if planted:
            gained = sum(gain(row) >= GAINED for row in planted)
            told("plants: two thirds of what equalising gains with ReLU", planted, gained, gained == len(planted))
        for name in ("promise", "part"):
            told_of = [value for row in some if (value := getattr(row, name)) is not None]
            near = sum(1 - NEAR <= value <= 1 + NEAR for value in told_of)
            low = sum(value < 1 - OPTIMISTIC for value in told_of)
            what = "promised errors" if name == "promise" else "promised parts"
            if told_of:
                told(f"{what} within {NEAR:.0%} of the truth", told_of, near, near >= MOST_NEAR * len(told_of))
                most = FEW_OPTIMISTIC * len(told_of)
                told(f"{what} too good by more than {OPTIMISTIC:.0%}", told_of, low, low <= most)
    return missed


def gain(row: Seen) -> float:
    """What was gained, over what the reference gains, in logarithms of the error."""
    assert row.reference is not None
    return math.log(max(row.ratio, 1e-300)) / math.log(row.reference)


if __name__ == "__main__":
    main()
