"""Compare our fixed models with the integers of SigmaStar's SDK, tensor by tensor: score.py FOLDER... [-k WORD] [-v]

A FOLDER is a network with what the SDK's tools made of it (see README.md here), or holds such folders. Ours is made of
the SDK's own ranges (tensor_min_max.txt and the files beside it; the level from the name) and run on the same picture,
chained from it. Printed: a line for each network, sorted by kind, and the sum; with -v every tensor of each operator.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.dumps.io import open_dump
from sgsdump.errors import SgsdumpError
from sgsdump.fixedpoint.quantisation.calibration_log import read_log
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.fixedpoint.quantisation.quant_file import import_params, read_quant_file
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.sidecars import input_config

CLOSE = 2e-6  # the SDK's dumps print scales with nine digits, cut
# Removed at the end.
UNPACKED = tempfile.TemporaryDirectory(prefix="sdk_probe_")


@dataclass(frozen=True)
class TensorScore:
    """One tensor that both dumps have. Types and scales are (SDK's, ours); ``wrong``: integers that differ, ``steps``:
    by how much at most; all of them where shapes or types differ."""

    name: str
    operator: str
    size: int
    wrong: int
    steps: float
    types: tuple[str, str]
    scales: tuple[float, float]

    @property
    def equal(self) -> bool:
        return not self.wrong

    @property
    def same_plan(self) -> bool:
        """Whether type and scale are the SDK's."""
        theirs, ours = self.scales
        return self.types[0] == self.types[1] and (not theirs or abs(ours / theirs - 1) < CLOSE)


@dataclass(frozen=True)
class Score:
    """One network. ``absent``: the SDK's tensors of the network's own names that ours has not; ``refused``: why nothing
    is compared, else ""; ``notes``: what ours says of its own rules."""

    name: str
    tensors: tuple[TensorScore, ...] = ()
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def equal(self) -> bool:
        return bool(self.tensors) and all(tensor.equal for tensor in self.tensors)

    def __str__(self) -> str:
        if self.refused:
            return f"{self.name:24} REFUSED {self.refused}"
        wrong = [tensor for tensor in self.tensors if not tensor.equal]
        head = (
            f"{self.name:24} {len(self.tensors) - len(wrong):2}/{len(self.tensors):2} {'equal' if self.equal else ''}"
        )
        for tensor in wrong[:4]:
            types = "" if tensor.types[0] == tensor.types[1] else f" {tensor.types[1]} for {tensor.types[0]}"
            scales = "" if types or tensor.same_plan else f" scale {tensor.scales[1]:.6g} for {tensor.scales[0]:.6g}"
            head += (
                f" | {tensor.name}[{tensor.operator}] {tensor.wrong}/{tensor.size} by {tensor.steps:g}{types}{scales}"
            )
        return head + (f" | absent {','.join(self.absent[:4])}" if self.absent else "")


def folders_in(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if (path / "tensor_min_max.txt").exists() or (path / "input_config.ini").exists():
            yield path
        else:
            yield from sorted(each for each in path.iterdir() if (each / "input_config.ini").exists())


def score(folder: Path) -> Score | None:
    """None where the SDK did not simulate the network."""
    if not any((folder / name).exists() for name in ("fixed.bin", "fixed.bin.xz")):
        return None
    try:
        ours, fixed = our_records(folder)
        vendor = open_vendor(folder)
    except SgsdumpError as error:
        return Score(folder.name, refused=str(error).splitlines()[0][:200])
    except Exception as error:
        return Score(folder.name, refused=f"{type(error).__name__} {str(error).splitlines()[0][:300]}")
    return compared(folder, ours, vendor, fixed)


def compared(folder: Path, ours: list[Record], vendor: list[Record], fixed: FixedModel) -> Score:
    own = {record.name: record for record in ours if not record.constant}
    own |= {record.name: record for record in ours if record.io == "out"}
    scales = vendor_scales(folder)
    tensors, absent, seen = [], [], set()
    for record in vendor:
        if record.constant or record.io != "out" or record.name in seen:
            continue
        seen.add(record.name)
        if record.name in own:
            tensors.append(_tensor_score(record, own[record.name], scales))
        elif "#" not in record.name:
            absent.append(record.name)
    return Score(folder.name, tuple(tensors), tuple(absent), fixed.notes)


def _tensor_score(record: Record, own: Record, scales: dict[str, float]) -> TensorScore:
    theirs, mine = (each.tensor.stored().reshape(-1) for each in (record, own))
    quant = own.tensor.info.quant
    if theirs.size != mine.size or theirs.dtype != mine.dtype:
        wrong, steps = max(theirs.size, 1), np.inf
    else:
        apart = np.abs(theirs.astype(np.float64) - mine)
        wrong, steps = int(np.count_nonzero(apart)), float(apart.max(initial=0))
    scale = float(quant.scale) if quant is not None else 0.0
    types = (str(theirs.dtype), str(mine.dtype))
    return TensorScore(
        record.name, record.op_type, theirs.size, wrong, steps, types, (scales.get(record.name, 0.0), scale)
    )


def our_records(folder: Path) -> tuple[list[Record], FixedModel]:
    config = input_config.read(folder / "input_config.ini")
    model = open_float_model(*network_files(folder), config)
    level = (re.search(r"_(L[1-5])$", folder.name) or [None, "L1"])[1]
    fuse = "nofuse" not in folder.name
    path = folder / "tensor_min_max.txt"
    beside, side = read_log(path, model, weights=level != "L1")
    params = [*read_quant_file(path), *beside]
    given = import_params(model, params, config, fuse, str(path), level == "L1")
    fixed = make_fixed(given.model, given.ranges, given.config, fuse=fuse, per_channel=level != "L1", side=side)
    proto = replace(model, proto=fixed.proto)
    return list(simulate(proto, feed_of(folder, config), dequantise=False).records), fixed


def network_files(folder: Path) -> tuple[Path, Path | None]:
    if (folder / "net.prototxt").exists():
        return folder / "net.prototxt", folder / "net.caffemodel"
    if (folder / "net.onnx").exists():
        return folder / "net.onnx", None
    unpacked = Path(tempfile.mkdtemp(dir=UNPACKED.name), "net.onnx")
    unpacked.write_bytes(lzma.decompress((folder / "net.onnx.xz").read_bytes()))
    return unpacked, None


def feed_of(folder: Path, config: input_config.InputConfig) -> dict[str, np.ndarray]:
    """What the fixed model takes: a picture's bytes, or another input's values, both as N, C, H, W."""
    norm = json.loads((folder / "meta.json").read_text())["norm"]
    feed = {}
    for index, entry in enumerate(config.inputs):
        values = np.load(folder / ("input.npy" if len(config.inputs) == 1 else f"input_{index}.npy"))
        if norm[entry.name]:
            values = np.round(values)
        if values.ndim == 3 and norm[entry.name]:
            values = values[None]
        if values.ndim == 4:
            values = values.transpose(0, 3, 1, 2)
        feed[entry.name] = np.ascontiguousarray(values, np.float32)
    return feed


def open_vendor(folder: Path) -> list[Record]:
    if (folder / "fixed.bin").exists():
        return list(open_dump(folder / "fixed.bin").records)
    unpacked = Path(tempfile.mkdtemp(dir=UNPACKED.name), "fixed.bin")
    unpacked.write_bytes(lzma.decompress((folder / "fixed.bin.xz").read_bytes()))
    return list(open_dump(unpacked).records)


def vendor_scales(folder: Path) -> dict[str, float]:
    """From scales.tsv, or off the dequantised dump."""
    if (folder / "scales.tsv").exists():
        lines = [line.split("\t") for line in (folder / "scales.tsv").read_text().splitlines()[1:]]
        return {name: float(scale) for name, scale, *_ in lines}
    if not (folder / "fixed_dequant.bin").exists():
        return {}
    found = re.findall(
        rb"s: ([\d.e+-]+) z: \S+ type: \S+ name: (.*?) bConstant:", (folder / "fixed_dequant.bin").read_bytes()
    )
    return {name.decode(): float(scale) for scale, name in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-k", default="", help="only networks whose name matches this regular expression")
    parser.add_argument("-v", action="store_true", help="list every tensor")
    parser.add_argument("-w", action="store_true", help="only networks that are not equal")
    options = parser.parse_args()
    scores = []
    for folder in folders_in(options.folders):
        if not re.search(options.k, folder.name) or (outcome := score(folder)) is None:
            continue
        scores.append(outcome)
        if options.w and outcome.equal:
            continue
        print(outcome, flush=True)
        if options.v:
            for tensor in outcome.tensors:
                mark = "" if tensor.equal else f"{tensor.wrong} by {tensor.steps:g}"
                print(f"    {tensor.operator:18} {tensor.name:24} {'/'.join(tensor.types)} {tensor.scales} {mark}")
            print("   ", *outcome.notes, sep="\n      ")
    equal = sum(outcome.equal for outcome in scores)
    size, wrong = (sum(getattr(t, what) for s in scores for t in s.tensors) for what in ("size", "wrong"))
    print(f"{equal} of {len(scores)} networks equal in every integer; {size - wrong} of {size} integers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
