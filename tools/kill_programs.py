#!/usr/bin/env python3
"""Kill programs that run under ``sgsdump exec``, fill their disk, and look at the dumps that are left.

    python tools/kill_programs.py                    96 kills, and 12 dumps that run out of room
    python tools/kill_programs.py --short            4 kills and 2
    python tools/kill_programs.py --kills 200 --seed 2

A small decoder with a cache that is written in place runs 24 rounds. It is dumped once to its end, the reference, and
then again and again: with statistics or with tensors, ``exec`` and program killed together (SIGKILL) or the program
alone, when a file of a round that is drawn has grown to a size that is drawn; at once when the dump's folder is there;
or when the program is done and ``exec`` still writes. Other dumps end by ``--max-size``, and on a disk that somebody
else fills (a tmpfs in a namespace of its own, where the system allows one).

Of each dump that is left: every round opens; its tensors are the reference's first ones, in their order and to the last
bit, as many as its whole frames tell of; all rounds but the last are whole; and a note says that the dump is not
complete. What is not so is printed as a finding, and the exit status is 1. Linux only; needs torch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROUNDS = 24
PROGRAM = f"""
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.k, self.out = nn.LayerNorm(32), *(nn.Linear(32, 32) for _ in range(3))
        self.register_buffer("past", torch.zeros(1, {ROUNDS}, 32))

    def forward(self, x, place):
        y = self.norm(x)
        self.past[:, place : place + 1] = self.k(y)
        past = self.past[:, : place + 1]
        return x + self.out(torch.softmax(self.q(y) @ past.transpose(1, 2), -1) @ past)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, ids, place):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, place)
        return self.head(x)

torch.manual_seed(0)
torch.set_num_threads(1)
net, ids = Decoder().eval(), torch.zeros(1, 1, dtype=torch.long)
with torch.no_grad():
    for place in range({ROUNDS}):
        ids = net(ids, place).argmax(-1)
"""
CONTENTS = {"stats": ["--type", "model", "tensor", "stats"], "tensor": ["--type", "model", "tensor"]}
SGSDUMP = "import sys; from sgsdump.cli import main; sys.exit(main(sys.argv[1:]))"
DISK = 2300 << 20  # exec leaves 2 GB of a disk free
FILL = """
mount -t tmpfs -o size={disk} tmpfs {mount} || exit 99
"$@" &
while [ ! -e {mount}/out/msit_dump_*/rounds/*/{step}.round ] && kill -0 $! 2>/dev/null; do sleep 0.01; done
head -c {disk} /dev/zero > {mount}/filler 2>/dev/null
wait $!
status=$?
rm -f {mount}/filler
cp -r {mount}/out {out}
exit $status
"""


@dataclass(frozen=True)
class Reference:
    """A whole dump: of each step its tensors in order, (name, values); and how large the file of each round is."""

    tensors: dict[int, list[tuple[str, Any]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=96, help="total number of kills (default: %(default)s)")
    parser.add_argument(
        "--full", type=int, default=12, help="number of dumps that run out of disk space (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of the kills (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="only 4 kills and 2 dumps that run out of disk space")
    args = parser.parse_args(argv)
    kills, full = (4, 2) if args.short else (args.kills, args.full)
    draw = random.Random(args.seed)
    outcomes: Counter[str] = Counter()
    findings = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        references = {content: reference(folder, content) for content in CONTENTS}
        trials = [(killed, number) for number in range(kills)] + [(out_of_room, number) for number in range(full)]
        for trial, number in trials:
            content = list(CONTENTS)[number // 2 % 2]
            out = folder / "out"
            how = trial(folder, content, number, references[content], draw)
            if how:
                found = list(looked_at(out, references[content], outcomes))
                findings += len(found)
                for line in found:
                    print(f"{content}, {how}: {line}", flush=True)
            else:
                outcomes["skipped: the system allows no tmpfs"] += 1
            shutil.rmtree(out, ignore_errors=True)
    print(f"{kills} kills, {full} dumps out of room; {findings} findings")
    for what, times in sorted(outcomes.items()):
        print(f"{times:5} {what}")
    return int(findings > 0)


def words(folder: Path, content: str, out: Path, *options: str) -> list[str]:
    exec_ = [sys.executable, "-c", SGSDUMP, "exec", "-o", str(out), "-er", "all", *CONTENTS[content], *options]
    return [*exec_, "--", sys.executable, str(folder / "program.py")]


def reference(folder: Path, content: str) -> Reference:
    out = folder / "reference"
    subprocess.run(words(folder, content, out), check=True, capture_output=True)
    (root,) = out.iterdir()
    found = Reference()
    for step, dump in opened(root):
        assert not dump.notes, dump.notes
        found.tensors[step] = tensors_of(dump)
    assert len(found.tensors) == ROUNDS
    for path in root.glob("rounds/*/*.*"):
        found.sizes[path.name] = path.stat().st_size
    shutil.rmtree(out)
    return found


def killed(folder: Path, content: str, number: int, whole: Reference, draw: random.Random) -> str:
    """Run the program and kill it; says how it was killed."""
    together, out = number % 2 == 0, folder / "out"
    name, part = draw.choice(sorted(whole.sizes)), draw.random()
    moments = {
        0: ("as the dump's folder is there", lambda: bool(list(out.glob("msit_dump_*")))),
        1: ("as exec writes", lambda: bool(list(out.glob("msit_dump_*/model*")))),
    }
    how, is_there = moments.get(
        number // 4 % 12, (f"at {part:.2f} of {name}", lambda: size_of(out, name) >= part * whole.sizes[name])
    )
    program = subprocess.Popen(
        words(folder, content, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while program.poll() is None and not is_there():
        time.sleep(0.0005)
    if together:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    else:
        for child in children(program.pid):
            os.kill(child, signal.SIGKILL)
    program.wait()
    return f"killed {'with exec' if together else 'alone'} {how}"


def children(process: int) -> list[int]:
    try:
        return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def size_of(out: Path, name: str) -> int:
    return max((path.stat().st_size for path in out.glob(f"msit_dump_*/rounds/*/{name}")), default=-1)


def out_of_room(folder: Path, content: str, number: int, whole: Reference, draw: random.Random) -> str:
    """Run the program with less room than its dump takes; says by what, "" where that cannot be done."""
    out = folder / "out"
    if number % 2 == 0:
        size = draw.randrange(40_000, max(80_000, sum(whole.sizes.values())))
        done = subprocess.run(words(folder, content, out, "--max-size", str(size)), capture_output=True, check=False)
        how = f"--max-size {size}"
    else:
        step, mount = draw.randrange(ROUNDS), folder / "mount"
        mount.mkdir(exist_ok=True)
        script = FILL.format(disk=DISK, mount=mount, step=step, out=out)
        command = ["unshare", "-rm", "sh", "-c", script, "sh", *words(folder, content, mount / "out")]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 99 or not out.exists():
            return ""
        how = f"disk filled in round {step}"
    assert done.returncode in (0, 2), done.stderr
    return f"{how}, status {done.returncode}"


def looked_at(out: Path, whole: Reference, outcomes: Counter[str]) -> Iterator[str]:
    """The findings about a dump; what became of it is counted."""
    from sgsdump.errors import SgsdumpError

    roots = list(out.glob("msit_dump_*"))
    if not roots:
        outcomes["nothing yet"] += 1
        return
    root = roots[0]
    is_said = not (root / "index.json").is_file()
    if not is_said:
        processes = json.loads((root / "index.json").read_text())["processes"]
        is_said = not all(process["complete"] and not process.get("stopped") for process in processes)
    try:
        rounds = list(opened(root))
    except SgsdumpError as error:
        if any(in_frames(path) for path in root.glob("rounds/*/*.round")):
            yield f"the dump does not open: {error}"
        outcomes["no tensor yet"] += 1
        return
    for index, (step, dump) in enumerate(rounds):
        found, expected = tensors_of(dump), whole.tensors[step]
        if found != expected[: len(found)]:
            yield f"round {step} has other tensors than the reference"
        if len(found) < len(expected) and index < len(rounds) - 1:
            yield f"round {step} has only {len(found)} of {len(expected)} tensors, although later rounds follow"
        if len(found) != in_frames(dump.path):
            yield f"round {step} opens with {len(found)} tensors of {in_frames(dump.path)} in whole frames"
        if is_said and not any("not complete" in note for note in dump.notes):
            yield f"round {step} does not report that the dump is incomplete"
    are_all = len(rounds) == ROUNDS and len(tensors_of(rounds[-1][1])) == len(whole.tensors[ROUNDS - 1])
    if not are_all and not is_said:
        yield "the dump reports that it is complete"
    if not rounds:
        outcomes["no tensor yet"] += 1
    elif len(tensors_of(rounds[-1][1])) < len(whole.tensors[rounds[-1][0]]):
        outcomes["opens up to an operator of a round"] += 1
    else:
        outcomes["all rounds" if are_all else "opens up to a whole round"] += 1


def opened(root: Path) -> Iterator[tuple[int, Any]]:
    """The rounds of a tree that have tensors. Raises SgsdumpError."""
    from sgsdump import list_runs, open_dump

    runs = list_runs(root)
    for index, run in enumerate(runs):
        path = root / run.place
        if index == len(runs) - 1 and not in_frames(path):
            return
        yield run.step, open_dump(path)


def tensors_of(dump: Any) -> list[tuple[str, Any]]:
    """Name and values, or statistics, of each tensor."""
    found: list[tuple[str, Any]] = []
    for record in dump.records:
        tensor = record.tensor
        if tensor.statistics is None:
            stored = tensor.stored()
            found.append((tensor.info.name, (stored.dtype.str, stored.shape, stored.tobytes())))
        else:
            found.append((tensor.info.name, repr(tensor.statistics)))
    return found


def in_frames(path: Path) -> int:
    """How many inputs and outputs the whole frames of an index tell of: by its description, without the reader."""
    data, offset, count = path.read_bytes(), 16, 0
    left_out: set[int] = set()  # values for which there was no room
    while offset + 8 <= len(data):
        size, checksum = (int.from_bytes(data[offset + at : offset + at + 4], "little") for at in (0, 4))
        text = data[offset + 8 : offset + 8 + size]
        if len(text) < size or zlib.crc32(text) != checksum:
            break
        lines = (json.loads(line) for line in text.splitlines())
        for value in (value for line in lines if "side" in line for value in line["values"]):
            if isinstance(value, dict) and "file" in value:
                left_out.add(value["value"])
            count += (value["value"] if isinstance(value, dict) else value) not in left_out
        offset += 8 + size
    return count


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed
    sys.exit(main())
