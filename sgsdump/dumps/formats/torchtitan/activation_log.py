"""Reader of ``rank_N_activations.log``, which torchtitan's ``ActivationCaptureProfiler`` writes in one training step.

::

    Total captured activations: 2
    Excluded ops dispatched: t, view                                                   optional
    ================================================================================

    [layers.0.attention.wq/op_0_mm]
      Shape: torch.Size([8, 256]), Dtype: torch.bfloat16
      L1 norm: 1.234560e+03                                                            not in newer versions
      L2 norm: 4.512300e+01
      Min: -3.250000e+00
      Max: 3.109375e+00
      Mean: 1.234500e-03
      Output hash: 1.234560e+03
      Input hashes: 9.876500e+02, 4.567800e+02
      Input producers: <none>/op_0_embedding;
      Location: common/attention.py:534
      Phase: backward                                                                  forward if missing

A block is an operator: ``MODULE/op_N_NAME``, with ``<none>`` for no module. Every line of a block is optional. Hashes
are ``DebugMode``'s, of the kind ``norm``: the L1 norm in float64; in operators with several results, one for each. The
other statistics describe the first result of a float type that is large enough; the reader assigns them to the first
result whose L1 norm they allow (L2 ≤ L1 ≤ √n · L2). Producers are separated by semicolons, one for each input; empty
for weights and for operators that were not captured. Numbers have seven digits.

The output is ``layers.0.attention.wq/op_0_mm``, or ``…/output.1`` for further results. Inputs are ``…/input.0``; they
have a hash only, neither shape nor type. A folder with logs of several ranks is a tree of runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record, Value
from sgsdump.dumps.format import HEAD_BYTES, Format, checked_shape
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, read_text
from sgsdump.files.folder import leads_out
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_BYTES, MOST_FILES = 256 << 20, 100_000
DIGITS = 7
UNKNOWN = np.dtype("V1")
NO_MODULE = "<none>"
_BEGIN = b"Total captured activations: "
_KEY = re.compile(r"\[(?:(.*)/)?(op_\d{1,9}_(\w+))\]")
_LINE = re.compile(r"  ([A-Z][A-Za-z0-9 ]{1,20}): (.*)")
_SHAPE = re.compile(r"torch\.Size\(\[([\d, ]{0,400})\]\), Dtype: torch\.(\w+)")
_RANK = re.compile(r"rank_(\d{1,9})_activations\.log", re.ASCII)
_SLACK = 1e-5  # of the rounded numbers

Block = Mapping[str, str]


def recognises(path: Path, head: bytes) -> bool:
    return any(_logs(path)) if path.is_dir() else head.startswith(_BEGIN)


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the ranks in a folder."""
    return [Run(file.name, rank) for rank, file in sorted(_logs(path))]


def read(path: Path) -> Dump:
    """Read the log of a rank. Raises FormatError if it has no block."""
    if path.is_dir():
        logs = [file for _, file in _logs(path)]
        if len(logs) != 1:
            raise FormatError(f"{path} holds the logs of {len(logs)} ranks. Name the log of one rank")
        path = logs[0]
    text = read_text(path, MOST_BYTES, "a log of activations")
    notes: list[str] = []
    blocks = dict(_blocks(text, notes))
    first = text.partition("\n")[0].removeprefix(_BEGIN.decode())
    if not text.endswith("\n") or not first.isdecimal() or int(first[:18]) != len(blocks):
        notes.append(
            Damage(f"the log is cut off or damaged: it announces {first[:18]} operators and has {len(blocks)}")
        )
    records = [
        record for index, (key, block) in enumerate(blocks.items()) for record in _records(index, key, block, notes)
    ]
    if not records:
        raise FormatError(f"{path} has no activation{f' ({notes[0]})' if notes else ''}")
    return Dump(records, FORMAT.name, None, path, notes, partial(_network, blocks, records))


def _logs(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the rank and path of each log directly in a folder; links out of the folder are skipped."""
    for file in islice(folder.glob("rank_*_activations.log"), MOST_FILES):
        match = _RANK.fullmatch(file.name)
        if match and file.is_file() and not leads_out(file, folder) and _begins(file):
            yield int(match[1]), file


def _begins(file: Path) -> bool:
    try:
        with open_file(file) as opened:
            return opened.read(HEAD_BYTES).startswith(_BEGIN)
    except OSError:
        return False


def _blocks(text: str, notes: list[str]) -> Iterator[tuple[str, Block]]:
    """Yield the key and lines of each block; the lines are complete when the next block is yielded."""
    block: dict[str, str] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if (match := _KEY.fullmatch(line)) is not None:
            block = {}
            yield line[1:-1], block
        elif block is not None and (match := _LINE.fullmatch(line)) is not None:
            block[match[1]] = match[2]
        elif block is not None and line:
            notes.append(Damage(f"line {number} is left out: {line[:60]!r} is not a line of an operator"))


def _type_of(key: str, block: Block) -> str:
    match = _KEY.fullmatch(f"[{key}]")
    backward = "_backward" if block.get("Phase", "forward") != "forward" else ""
    return f"aten.{match[3] if match else ''}{backward}"


def _records(index: int, key: str, block: Block, notes: list[str]) -> Iterator[Record]:
    """Yield the inputs and outputs of an operator."""
    op_type, name = _type_of(key, block), key.removeprefix(f"{NO_MODULE}/")
    for slot, text in enumerate(_hashes(block.get("Input hashes", ""))):
        info = TensorInfo(f"{name}/input.{slot}", None, UNKNOWN, op_type=op_type)
        yield Record("in", slot, index, op_type, Tensor.of_statistics(info, _of_hash(text)))
    hashes = _hashes(block.get("Output hash", "")) or ([block["L1 norm"]] if "L1 norm" in block else [])
    shape, dtype = _described(key, block.get("Shape", ""), notes)
    low, high, mean, l2norm = (_number(block.get(line)) for line in ("Min", "Max", "Mean", "L2 norm"))
    described = _place(hashes, l2norm, shape) if "Shape" in block else None
    if described is not None and not hashes:
        hashes = [""]
    for slot, text in enumerate(hashes):
        of_hash = _of_hash(text)
        info = TensorInfo(f"{name}/output.{slot}" if slot else name, None, UNKNOWN, op_type=op_type)
        if slot == described:
            info = TensorInfo(info.name, shape, dtype, op_type=op_type)
            count = None if shape is None else math.prod(shape)
            of_hash = replace(of_hash, min=low, max=high, mean=mean, l2norm=l2norm, count=count, digits=DIGITS)
        yield Record("out", slot, index, op_type, Tensor.of_statistics(info, of_hash))


def _hashes(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _of_hash(text: str) -> Statistics:
    """Return the statistics that a hash gives: an L1 norm, or a checksum for an integer or another text."""
    if text.lstrip("-").isdecimal():
        return Statistics(checksum=f"hash_tensor:{text}")
    number = _number(text)
    if number is None and text:
        return Statistics(checksum=f"hash:{text}")
    return Statistics(l1norm=number, digits=DIGITS)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _described(key: str, text: str, notes: list[str]) -> tuple[tuple[int, ...] | None, np.dtype]:
    """Return shape and element type of the line ``Shape``; None and an unknown type if there is none."""
    if not text:
        return None, UNKNOWN
    match = _SHAPE.fullmatch(text)
    sizes = [size for part in match[1].split(",") if (size := part.strip())] if match else [""]
    try:
        if match and all(size.isdecimal() and len(size) < 16 for size in sizes):
            return checked_shape(map(int, sizes)), KNOWN.get(match[2], UNKNOWN)
    except FormatError:
        pass
    notes.append(Damage(f"{key[:80]}: {text[:60]!r} is not a shape"))
    return None, UNKNOWN


def _place(hashes: list[str], l2norm: float | None, shape: tuple[int, ...] | None) -> int:
    """Return the result that the statistics describe: the first whose L1 norm lies between L2 and √n · L2."""
    if l2norm is None or shape is None or not math.isfinite(l2norm):
        return 0
    most = math.sqrt(math.prod(shape)) * l2norm * (1 + _SLACK)
    norms = [_number(text) for text in hashes]
    fitting = (i for i, norm in enumerate(norms) if norm is not None and l2norm * (1 - _SLACK) <= norm <= most)
    return next(fitting, 0)


def _network(blocks: Mapping[str, Block], records: list[Record]) -> dict[int, Operator]:
    """Return the operators with module, source line and the producers of their inputs."""
    values: dict[int, dict[Value, Hashable]] = {index: {} for index in range(len(blocks))}
    keys = list(blocks)
    producers = {key: block.get("Input producers", "").split(";") for key, block in blocks.items()}
    single = {keys[record.op_index] for record in records if record.io == "out"}
    single -= {keys[record.op_index] for record in records if record.io == "out" and record.slot}
    for record in records:
        key = keys[record.op_index]
        if record.io == "out":
            values[record.op_index]["out", record.slot] = (key, record.slot)
        elif record.slot < len(producers[key]) and producers[key][record.slot] in single:
            values[record.op_index]["in", record.slot] = (producers[key][record.slot], 0)
    return {
        index: Operator(
            "" if (module := key.rpartition("/")[0]) == NO_MODULE else module,
            _type_of(key, block),
            values=values[index],
            source=block.get("Location", "").rpartition("/")[2],
        )
        for index, (key, block) in enumerate(blocks.items())
    }


FORMAT = Format(
    "torchtitan_log", recognises, read, looks_for="rank_N_activations.log of torchtitan", runs=runs, own_inputs=True
)
