"""What it costs a program that uses onnxruntime to have its model, feeds and outputs captured.

    python benchmarks/capture_onnxruntime.py            ResNet-50-like, 12 loads of it each way and 60 runs
    python benchmarks/capture_onnxruntime.py --short    a quarter of the width, 2 loads and 10 runs

In one process with the hooks, sessions are made by turns by the library's own method and by the patched one; of each
run the time within the library is taken, and the whole time of the call. A line tells the least and the median of both,
and the ratios, which other work on the machine disturbs far less than whole processes one after the other. ``idle`` is
with the hooks installed and switched off. Last come whole runs of a program by turns, plain and captured, by the
clock and by the processor.
"""

from __future__ import annotations

import argparse
import compileall
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import Row, show

from sgsdump.capture.programs.control import DumpControl
from sgsdump.capture.programs.program import HOOK, run_program

TURNS = """
import json, sys, time
import numpy as np
import onnxruntime as ort

model, loads, runs, result = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
kind = ort.InferenceSession
patched = kind.__init__
figures = {"load": [[], []], "run": [[], []]}


def timed(what, way, call):
    start = time.perf_counter()
    made = call()
    figures[what][way].append(time.perf_counter() - start)
    return made


def load():
    return kind(model, providers=["CPUExecutionProvider"])


for turn in range(loads):
    for way in (0, 1) if turn % 2 else (1, 0):
        kind.__init__ = patched if way else patched.__wrapped__
        session = timed("load", way, load)
kind.__init__ = patched
session = load()
data = np.random.default_rng(1).standard_normal((1, 3, 224, 224), np.float32)


class Timed:  # the binding's session
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def run(self, *args):
        return timed("run", 0, lambda: self.inner.run(*args))


session._sess = Timed(session._sess)
for turn in range(runs):
    timed("run", 1, lambda: session.run(None, {"data": data}))
json.dump(figures, open(result, "w"))
"""
PLAIN = """
import sys
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the processor's time is work then
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
for number in range(int(sys.argv[2])):
    session.run(None, {"data": np.full((1, 3, 224, 224), number, np.float32)})
"""


def turns(model: Path, loads: int, runs: int, folder: Path) -> list[Row]:
    rows = []
    print("               library: least  median   hooked: least  median   ratio: least  median")
    for enabled in (True, False):
        result = folder / "figures.json"
        _captured([TURNS, str(model), str(loads), str(runs), str(result)], enabled, folder)
        for what, (plain, patched) in json.loads(result.read_text()).items():
            cells = [min(plain), statistics.median(plain), min(patched), statistics.median(patched)]
            ratios = (cells[2] / cells[0], statistics.median(b / a for a, b in zip(plain, patched)))
            way = "captured" if enabled else "idle"
            print(
                f"{way:9}{what:5}{cells[0]:15.4f}{cells[1]:8.4f}{cells[2]:16.4f}{cells[3]:8.4f}"
                f"{ratios[0]:15.3f}{ratios[1]:8.3f}"
            )
            rows.append(Row(f"onnxruntime {way}: {what}", cells[2], cells[0], 1.05 if enabled else 1.01))
    return rows


def whole(model: Path, runs: int, rounds: int, folder: Path) -> list[Row]:
    compileall.compile_dir(HOOK, quiet=1)  # as installing does
    words = [PLAIN, str(model), str(runs)]
    turns: list[list[tuple[float, float]]] = []
    for number in range(rounds):
        taken = [(0.0, 0.0), (0.0, 0.0)]
        for captured in (False, True) if number % 2 else (True, False):
            began = time.perf_counter(), processor()
            if captured:
                _captured(words, True, folder)
            else:
                subprocess.run([sys.executable, "-c", *words], check=True)
            taken[captured] = time.perf_counter() - began[0], processor() - began[1]
        turns.append(taken)
    rows = []
    for index, by in ((0, ""), (1, ", processor")):
        ratio = statistics.median(captured[index] / plain[index] for plain, captured in turns)
        plain, captured = (min(taken[side][index] for taken in turns) for side in (0, 1))
        print(f"a program of {runs} runs{by}: plain {plain:.2f} s, captured {captured:.2f} s, median ratio {ratio:.3f}")
        rows.append(Row(f"onnxruntime captured: a program of {runs} runs{by}", captured, plain, 1.05))
    return rows


def processor() -> float:
    """Seconds of the processor that this process and the ended ones that it started took."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def _captured(words: list[str], enabled: bool, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        done = run_program([sys.executable, "-c", *words], DumpControl(enabled=enabled), Path(out))
        assert done.status == 0 and done.caught == enabled, done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a small model and few turns: shows that it works")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "resnet_like.onnx"
        maker = Path(__file__).with_name("resnet_like.py")
        subprocess.run([sys.executable, str(maker), str(model), "16" if args.short else "64"], check=True)
        rows = turns(model, *(2, 10) if args.short else (12, 60), folder)
        rows += whole(model, *(5, 1) if args.short else (20, 7), folder)
    show(rows)


if __name__ == "__main__":
    main()
