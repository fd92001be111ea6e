#!/usr/bin/env python3
"""Networks of any kind through every command: a table network x command; nothing ends in a traceback, and nothing is
refused without a reason.

    python tools/any_network.py                       all networks: an hour or two
    python tools/any_network.py --short               an audio net, a token net, a net of three inputs
    python tools/any_network.py --only bert,lstm      some of them
    python tools/any_network.py --commands dump,calibrate   some of the commands
    python tools/any_network.py --models FOLDER       every .onnx file of a folder instead
    python tools/any_network.py --records cells.jsonl a line of JSON for each cell; what is in it is not run again

Networks: eight written here, the trained one of ``sgsdump demo``, nine of the onnx package with drawn weights, and
twenty of torch, torchvision and transformers with random weights by both of torch's exporters, where these are
installed (what cannot be exported is named). Pictures are small (32 to 96 pixels a side), and the widest networks are
narrower than published: what counts here are operators and wirings. Each is fed by one data loader of drawn arrays, the
same in every command, and each command runs in a process of its own. A cell is ``ok`` and the seconds, or the number of
a line below the table: why the command refused. A traceback, a status beyond 2, a refusal without a line or with
several, and a command that takes longer than --timeout are findings; with one the exit status is 1. The records say
the most memory that each command took, too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import onnx
from architectures import built, drawn, exported, written

ROOT = Path(__file__).resolve().parents[1]
Build = Callable[[Path], None]
LOADER = """
import numpy as np
import onnx
from sgsdump.models.model import graph_inputs
from sgsdump.models.feeds.drawn import table_lengths

def load_data():
    proto = onnx.load({model!r}, load_external_data=False)
    tables = table_lengths(proto.graph)
    for seed in range({runs}):
        draw = np.random.default_rng(seed)
        feed = {{}}
        for spec in graph_inputs(proto):
            shape = [size or 1 for size in spec.shape]
            if spec.dtype.kind == "f":
                feed[spec.name] = draw.normal(0, 1, shape).astype(spec.dtype)
            elif spec.dtype.kind == "b":
                feed[spec.name] = np.ones(shape, bool)
            else:
                high = 2 if "mask" in spec.name else tables.get(spec.name, 2)
                feed[spec.name] = draw.integers(1 if "mask" in spec.name else 0, high, shape).astype(spec.dtype)
        yield feed
"""
RUNS = 2
CELL = "cell: "
DATA = ["--data-loader-script", "feeds.py"]
FAST = ["--quant-level", "L2"]
COMMANDS: dict[str, list[str]] = {
    "dump": ["dump", "-m", "net.onnx", *DATA, "-o", "float.bin"],
    "pipeline": ["pipeline", "full", "-m", "net.onnx", *DATA, "-o", "pipe"],
    "calibrate": ["calibrate", "-m", "net.onnx", *DATA, *FAST, "-o", "fixed.onnx"],
    "simulate": ["simulate", "-m", "net.onnx", "-t", "Float", *DATA],
    "simulate fixed": ["simulate", "-m", "fixed.onnx", "-t", "Fixed", *DATA],
    "compare": ["compare", "sigma_outtensor_dump_0.bin", "float_0.bin"],
    "report": ["report", "sigma_outtensor_dump_0.bin", "float_0.bin", "-o", "page.html"],
    "histogram": ["histogram", "float_0.bin", "log/tensor_min_max.txt"],
    "diagnose": ["diagnose", "-m", "net.onnx", *DATA, *FAST],
    "tune --explain": ["tune", "--explain", "--ranges", "log/tensor_min_max.txt", "-m", "net.onnx", *DATA, *FAST],
    "tune --first": ["tune", "--first", "-m", "net.onnx", *DATA, *FAST, "--rounds", "2", "-o", "first"],
    "tune": ["tune", "-m", "net.onnx", *DATA, *FAST, "--rates", "0.8", "--budget", "8s", "-o", "tuned"],
}
# What these work on is made by others.
FIXED = ("calibrate", "simulate", "simulate fixed")
NEEDS = {
    "simulate fixed": ("calibrate",),
    "compare": FIXED,
    "report": FIXED,
    "histogram": ("calibrate", "simulate"),
    "tune --explain": ("calibrate",),
}


@dataclass(frozen=True)
class Cell:
    """What a command made of a network. ``reason``: of a refusal; ``finding``: what must not be."""

    seconds: float = 0.0
    reason: str = ""
    finding: str = ""
    peak_mb: float = 0.0


Row = dict[str, Cell]


class Records:
    """A file of cells, a line of JSON each. Without a file they are kept in memory."""

    def __init__(self, path: Path | None):
        self._path = path
        self.rows: dict[str, Row] = {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                network, command = entry.pop("network"), entry.pop("command")
                self.rows.setdefault(network, {})[command] = Cell(**entry)

    def add(self, network: str, command: str, cell: Cell) -> None:
        self.rows.setdefault(network, {})[command] = cell
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps({"network": network, "command": command, **asdict(cell)}) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="run only three small networks")
    parser.add_argument("--only", metavar="NAME,NAME", help="run only these networks")
    parser.add_argument("--commands", metavar="NAME,NAME", default=",".join(COMMANDS), help="run only these commands")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="run the .onnx files of this folder instead")
    parser.add_argument(
        "--timeout",
        type=float,
        default=300,
        metavar="S",
        help="time limit of a command in seconds (default: %(default)g)",
    )
    parser.add_argument(
        "--records", type=Path, metavar="FILE", help="write each result to this file, and skip results already in it"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    commands = args.commands.split(",")
    if args.inside:
        return _inside(args.inside, commands, args.timeout)
    records = Records(args.records)
    nets = _files(args.models) if args.models else dict(_networks())
    names = ["audio", "tokens", "three_inputs"] if args.short else args.only.split(",") if args.only else list(nets)
    table, reasons = {}, dict[str, None]()
    for name in names:
        matching = {full: build for full, build in nets.items() if name in (full, full.partition("/")[0])}
        for full, build in matching.items():
            _row(full, build, records, args.timeout, commands)
            row = records.rows[full]
            table[full] = {name: row[name] for name in (["export"] if "export" in row else commands)}
            new = [cell.reason for cell in table[full].values() if cell.reason and cell.reason not in reasons]
            reasons |= dict.fromkeys(new)
            print(_line(full, table[full], list(reasons)), *(f"    {reason}" for reason in new), sep="\n", flush=True)
    print("\n" + "  ".join(f"{name}" for name in ["network", *commands]))
    for name, row in table.items():
        print(_line(name, row, list(reasons)))
    for number, reason in enumerate(reasons, 1):
        print(f"[{number}] {reason}")
    findings = [
        f"{name}: {command}: {cell.finding}"
        for name, row in table.items()
        for command, cell in row.items()
        if cell.finding
    ]
    print("\n".join(f"FINDING {finding}" for finding in findings) or "no findings")
    return 1 if findings else 0


def _networks() -> Iterator[tuple[str, Build]]:
    made: dict[str, Callable[[], onnx.ModelProto]] = {
        "audio": written.audio,
        "tokens": written.tokens,
        "three_inputs": written.three_inputs,
        "lstm_cell": partial(written.recurrent, "LSTM"),
        "gru_cell": partial(written.recurrent, "GRU"),
        "branches": written.branches,
        "digits": partial(onnx.load, ROOT / "sgsdump" / "samples" / "digits.onnx"),
        "mobilenet": partial(built.mobilenet, 64, 3),
        "unet": partial(built.unet, 32, 8, 2),
    }
    made |= {f"light_{name}": partial(drawn.light, name, size=96) for name in LIGHT}
    made["light_shufflenet"] = partial(drawn.light, "shufflenet")  # its Reshapes name sizes
    for name, build in made.items():
        yield name, lambda path, build=build: onnx.save(build(), str(path))
    for name in exported.MODULES:
        for exporter in exported.EXPORTERS:
            yield f"{name}/{exporter}", partial(exported.export, name, exporter)


LIGHT = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
         "zfnet512")  # fmt: skip


def _files(folder: Path) -> dict[str, Build]:
    def copy(source: Path, path: Path) -> None:
        onnx.save(onnx.load(source), str(path))

    return {file.stem: partial(copy, file) for file in sorted(folder.glob("*.onnx"))}


def _row(network: str, build: Build, records: Records, timeout: float, commands: list[str]) -> None:
    """A process of its own for each network, in which its commands run one after another."""
    row = records.rows.get(network, {})
    missing = [name for name in commands if name not in row]
    if not missing or "export" in row:
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(Path(folder) / "net.onnx")
        except Exception as error:  # an exporter may raise anything
            said = str(error).strip().splitlines() or [""]
            records.add(network, "export", Cell(reason=f"not exported: {type(error).__name__}: {said[0][:150]}"))
            return
        (Path(folder) / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
        (Path(folder) / "feeds.py").write_text(LOADER.format(model="net.onnx", runs=RUNS))
        (Path(folder) / "cells.json").write_text(json.dumps({name: asdict(cell) for name, cell in row.items()}))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": folder}
        words = [sys.executable, str(Path(__file__).resolve()), "--inside", folder, "--commands", ",".join(missing)]
        words += ["--timeout", str(timeout)]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(CELL):
                    command, cell = json.loads(line.removeprefix(CELL))
                    records.add(network, command, Cell(**cell))
        for command in missing:  # where the process died
            if command not in records.rows.get(network, {}):
                records.add(network, command, Cell(finding=f"the process ended with {process.returncode}"))


def _inside(folder: Path, commands: list[str], timeout: float) -> int:
    """Run every command in ``folder``, and print a line of JSON for each; what they need and is not there, first."""
    os.chdir(folder)
    row = {name: Cell(**cell) for name, cell in json.loads(Path("cells.json").read_text()).items()}
    needed = {name for command in commands for name in NEEDS.get(command, ()) if name not in commands}
    for command in COMMANDS:
        needs = [row[name] for name in NEEDS.get(command, ()) if name in row]
        failed = [cell for cell in needs if cell.reason or cell.finding]
        if command in needed and not failed:
            _apart(command, timeout)
        if command in commands:
            row[command] = failed[0] if failed else _apart(command, timeout)
            print(CELL + json.dumps([command, asdict(row[command])]), flush=True)
    return 0


def _apart(command: str, timeout: float) -> Cell:
    """Run a command in a child of this process, which has read the modules already."""
    import onnxruntime  # noqa: F401

    import sgsdump.cli  # noqa: F401

    begun, path = time.monotonic(), Path("cell.json")
    path.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()  # its workers end with it
        path.write_text(json.dumps(asdict(_run(COMMANDS[command]))))
        os._exit(0)
    timer = threading.Timer(timeout, os.killpg, (child, signal.SIGKILL))
    timer.start()
    _, status, used = os.wait4(child, 0)
    timer.cancel()
    seconds = round(time.monotonic() - begun, 1)
    if not path.exists():
        finding = f"longer than {timeout:g} s" if seconds > timeout else f"the process ended with {status}"
        return Cell(seconds, finding=finding, peak_mb=round(used.ru_maxrss / 1024))
    cell = Cell(**json.loads(path.read_text()))
    return replace(cell, seconds=round(cell.seconds, 1), peak_mb=round(used.ru_maxrss / 1024))


def _run(words: Sequence[str]) -> Cell:
    from sgsdump.cli import main as sgsdump

    begun, out, err = time.monotonic(), io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = sgsdump(list(words))
    except BaseException as error:  # what a user would see as a traceback
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:150]
        at = f"{Path(where.filename).name}:{where.lineno}"
        return Cell(time.monotonic() - begun, finding=f"{type(error).__name__} at {at}: {said}")
    seconds = time.monotonic() - begun
    errors = [line for line in err.getvalue().splitlines() if line.startswith("sgsdump: error: ")]
    if status not in (0, 1, 2) or (status == 2 and len(errors) != 1):
        return Cell(seconds, finding=f"status {status} with {len(errors)} lines")
    return Cell(seconds, reason=errors[0].removeprefix("sgsdump: error: ") if status == 2 else "")


def _line(name: str, row: Row, reasons: list[str]) -> str:
    def text(cell: Cell) -> str:
        if cell.finding:
            return "FINDING"
        return f"[{reasons.index(cell.reason) + 1}]" if cell.reason else f"ok {cell.seconds:.1f}"

    return f"{name:22}" + "".join(f"{text(cell):>9}" for cell in row.values())


if __name__ == "__main__":
    sys.exit(main())
