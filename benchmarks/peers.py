#!/usr/bin/env python3
"""Compare time and memory of sgsdump with the tools that a user would use instead.

    python benchmarks/peers.py [--python nncf=ENV/bin/python ppq=… …] [--data FOLDER] [--rounds N] [--short]

Every tool gets the same model and the same images (24 files .npy, float32, NCHW, normalised) and runs in a process of
its own. Seconds include the start of the process. The rounds alternate between the tools, and the least of each figure
counts. Memory is the largest resident memory of one process. A line with several commands adds their seconds. A line
that takes longer than 5 minutes runs once.

The model is the face detector of FOLDER (``ultraface/version-RFB-320_without_postprocessing.onnx`` and ``images/``; by
default ../shared/data beside the checkout) or, without this file, the model of ``resnet_like.py`` with random images.
An older opset is converted to 13 first, because some tools need it.

ranges      the calibration range of every tensor: minimum and maximum over all images
errors      which layers lose accuracy: the error of each layer of the quantised model. Lines start from the float
            model, unless they say otherwise
compare     two dumps of every tensor of four images: the float values, and the same values rounded to 8 bits

``--python`` gives the Python of an environment with a tool: aimet (pip install aimet-onnx), nncf, polygraphy (with
onnx), ppq (esp-ppq), rknn (rknn-toolkit2). onnxruntime and numpy run in this environment unless given. Tools without
an environment are left out. The last column says how the work of a line differs. ``peers_work.py`` has the code that
the tools run. ``--short``: four images (one for compare), a small ResNet-like model, one round. In full, the temporary
folder needs 5 GB.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# This process imports nothing large: Linux counts the memory of the process that starts another one as the other's.
WORKER = Path(__file__).with_name("peers_work.py")
PACKAGES = {
    "sgsdump": "sgsdump",
    "onnxruntime": "onnxruntime",
    "nncf": "nncf",
    "ppq": "esp-ppq",
    "aimet": "aimet-onnx",
    "rknn": "rknn-toolkit2",
    "polygraphy": "polygraphy",
    "numpy": "numpy",
}
HERE = "sgsdump", "onnxruntime", "numpy"
BESIDE = "numpy", "onnxruntime", "torch"  # packages that decide how fast a tool is
DEBUG_CONFIG = "dumpTensor\neliminateGarbage\ndequantFixed\npath=runs\n"
IMAGES, DUMPS, WIDTH = 24, 4, 64
SHORT_IMAGES, SHORT_DUMPS, SHORT_WIDTH = 4, 1, 16
ONCE = 300  # seconds; longer lines are not repeated
PATIENCE = 3600


@dataclass(frozen=True)
class Step:
    """One process: the arguments of Python, with FILES for the prepared files, and the folder that it runs in."""

    arguments: tuple[str, ...]
    folder: str = "."
    statuses: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Way:
    """One line of the table, and with ``given`` a second one without the first ``given`` steps.

    ``counts``: the pattern that finds the number of results in the output.
    """

    work: str
    name: str
    tool: str
    steps: tuple[Step, ...]
    did: str = ""
    counts: str = r"(.+)\s*\Z"
    unit: str = ""
    given: int = 0


@dataclass(frozen=True)
class Cost:
    """Cost of a line: ``wall`` and ``processor`` time in seconds, and the largest resident ``memory`` in MB."""

    wall: float
    processor: float
    memory: float


class NotRun(Exception):
    """Raised if a process failed or took too long; the text is the reason."""


def sgsdump(*arguments: str, folder: str = ".") -> Step:
    return Step(("-m", "sgsdump", *arguments), folder)


def work(name: str) -> Step:
    return Step((str(WORKER), name, "FILES"))


def polygraphy(*arguments: str) -> Step:
    """Its command line; status 1 says that the dumps differ, which they do."""
    command = "import sys; from polygraphy.tools import main; sys.exit(main())"
    sides = "FILES/sample_polygraphy", "FILES/benchmark_polygraphy"
    return Step(("-c", command, "run", "--load-outputs", *sides, *arguments), statuses=(0, 1))


MODEL = "-m", "FILES/net.onnx", "-i", "FILES/samples"
CALIBRATE = sgsdump("calibrate", *MODEL, "--quant-level", "L1", "-o", "fixed.onnx")
RANGES, COMPARED = r"the ranges of (\d+) tensors", r"Compared: (\d+) of"
ALONE = "error of the outputs with one layer quantised"
WAYS = (
    Way(
        "ranges",
        "sgsdump calibrate --quant-level L1",
        "sgsdump",
        (CALIBRATE,),
        "weights too; writes and checks the fixed model",
        RANGES,
        "ranges",
    ),
    Way("ranges", "onnxruntime, MinMax calibrator", "onnxruntime", (work("onnxruntime-minmax"),), "writes no model"),
    Way(
        "ranges",
        "onnxruntime, pre-process and quantize_static",
        "onnxruntime",
        (work("onnxruntime-static"),),
        "folds BatchNormalization first; writes the QDQ model",
    ),
    Way(
        "ranges", "esp-ppq, quantize_onnx_model", "ppq", (work("ppq-ranges"),), "tensors it quantises; writes no model"
    ),
    Way(
        "ranges", "AIMET, compute_encodings", "aimet", (work("aimet-ranges"),), "tensors it quantises; writes no model"
    ),
    Way(
        "ranges",
        "NNCF, quantize",
        "nncf",
        (work("nncf-ranges"),),
        "tensors it quantises; MinMax instead of its default, which clips; writes the QDQ model",
    ),
    Way(
        "errors",
        "sgsdump diagnose",
        "sgsdump",
        (sgsdump("diagnose", *MODEL, "--max-images", str(IMAGES)),),
        "level L5; integers of the chip; also measures causes, INT16 and held-out images, and writes a report",
        r"of (\d+) layers",
        "layers",
    ),
    Way(
        "errors",
        "sgsdump calibrate, simulate twice, compare",
        "sgsdump",
        (
            CALIBRATE,
            sgsdump("simulate", *MODEL, "-t", "Float", folder="float"),
            sgsdump("simulate", "-m", "../fixed.onnx", "-i", "FILES/samples", "-t", "Fixed", folder="fixed"),
            sgsdump("compare", "fixed/runs", "float/runs", "--runs"),
        ),
        "integers of the chip; writes every tensor of both models",
        COMPARED,
        "layers",
        given=1,
    ),
    Way(
        "errors",
        "onnxruntime, quantize_static and qdq_loss_debug",
        "onnxruntime",
        (work("onnxruntime-static"), work("onnxruntime-loss")),
        "no integers of the chip; activations and weights; all tensors in memory",
        given=1,
    ),
    Way(
        "errors",
        "esp-ppq, graphwise_error_analyse",
        "ppq",
        (work("ppq-graphwise"),),
        "no integers of the chip; outputs of convolutions and matrix products, at most 4096 values of each",
    ),
    Way("errors", "esp-ppq, layerwise_error_analyse", "ppq", (work("ppq-layerwise"),), ALONE),
    Way("errors", "AIMET, analyze_per_layer_sensitivity", "aimet", (work("aimet-sensitivity"),), ALONE),
    Way(
        "errors",
        "NNCF, quantize_with_accuracy_control",
        "nncf",
        (work("nncf-ranking"),),
        "error of the outputs with one group of layers in float; corrects biases; returns one group to float",
    ),
    Way(
        "errors",
        "RKNN-Toolkit2, accuracy_analysis",
        "rknn",
        (work("rknn-errors"),),
        "simulator of the RK3588; calibrates on all images, measures one; writes every tensor as text",
    ),
    Way(
        "compare",
        "sgsdump compare, .npz",
        "sgsdump",
        (sgsdump("compare", "FILES/sample", "FILES/benchmark", "--runs"),),
        "MSE, COS, RMSE and causes",
        COMPARED,
        "layers",
    ),
    Way(
        "compare",
        "sgsdump compare, files of Polygraphy",
        "sgsdump",
        (sgsdump("compare", "FILES/sample_polygraphy", "FILES/benchmark_polygraphy", "--runs"),),
        "MSE, COS, RMSE and causes",
        COMPARED,
        "layers",
    ),
    Way(
        "compare",
        "polygraphy run --load-outputs",
        "polygraphy",
        (polygraphy(),),
        "its own files; absolute and relative errors with histograms",
        r"\bComparing Output\b",
        "comparisons",
    ),
    Way(
        "compare",
        "polygraphy run --load-outputs --compare distance_metrics",
        "polygraphy",
        (polygraphy("--compare", "distance_metrics"),),
        "its own files; L2 norm, and cosine similarity",
        r"\bComparing Output\b",
        "comparisons",
    ),
    Way("compare", "numpy, the floor", "numpy", (work("numpy-compare"),), "np.load of .npz, MSE only, in float64"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[], metavar="TOOL=PYTHON", help="the environment of each tool")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--work", nargs="+", choices=["ranges", "errors", "compare"], help="only these lines")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="four images and one round: shows that it works")
    args = parser.parse_args()
    pythons = dict.fromkeys(HERE, sys.executable) | dict(each.split("=", 1) for each in args.python)
    if unknown := [name for name in pythons if name not in PACKAGES]:
        parser.error(f"argument --python: unknown tool {unknown[0]!r} (choose from {', '.join(PACKAGES)})")
    # Links are not followed: the Python of an environment is a link.
    present = dict(available({name: str(Path(python).absolute()) for name, python in pythons.items()}))
    works = args.work or ["ranges", "errors", "compare"]
    ways = [way for way in WAYS if way.work in works and way.tool in present]
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "files")
        prepare(files, args.data.resolve(), args.short, present)
        if not (files / "sample_polygraphy").is_dir():
            ways = [way for way in ways if "sample_polygraphy" not in str(way.steps)]
        return measure(ways, present, files, 1 if args.short else args.rounds)


def available(pythons: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the tools that can run, with their Python, and print their versions."""
    for tool, package in PACKAGES.items():
        if tool not in pythons:
            print(f"{package}: left out, no --python {tool}=PYTHON")
            continue
        names = [package, *(name for name in BESIDE if name != package)]
        code = (
            "import sys, importlib.metadata as m\n"
            "have = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}\n"
            f"print(*[n + ' ' + have[n] for n in {names} if n in have], 'Python ' + sys.version.split()[0], sep=', ')"
        )
        try:
            told = subprocess.run([pythons[tool], "-c", code], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            told = ""
        if told.startswith(f"{package} "):
            print(told.strip())
            yield tool, pythons[tool]
        else:
            print(f"{package}: left out, {pythons[tool]} does not have this package")


def prepare(files: Path, data: Path, short: bool, pythons: dict[str, str]) -> None:
    files.mkdir()
    images, dumps, width = (SHORT_IMAGES, SHORT_DUMPS, SHORT_WIDTH) if short else (IMAGES, DUMPS, WIDTH)
    sizes = ["--images", str(images), "--dumps", str(dumps), "--width", str(width)]
    subprocess.run([sys.executable, str(WORKER), "prepare", str(files), "--data", str(data), *sizes], check=True)
    if "polygraphy" in pythons:
        command = [pythons["polygraphy"], str(WORKER), "polygraphy-save", str(files)]
        subprocess.run(command, check=True, capture_output=True)


def measure(ways: list[Way], pythons: dict[str, str], files: Path, rounds: int) -> int:
    """Run all lines, alternating, and print the table; the exit status is 1 if a line did not run."""
    costs: dict[Way, list[list[Cost]]] = {way: [] for way in ways}
    results: dict[Way, str] = {}
    failed: dict[Way, str] = {}
    for number in range(rounds):
        for way in ways:
            if way in failed or (number and sum(cost.wall for cost in costs[way][0]) > ONCE):
                continue
            try:
                each, output = run(way, pythons[way.tool], files)
            except NotRun as reason:
                failed[way] = str(reason)
                print(f"{way.name}: not run: {reason}", file=sys.stderr, flush=True)
                continue
            costs[way].append(each)
            results[way] = counted(way, output)
            seconds = sum(cost.wall for cost in each)
            print(f"round {number + 1}: {way.name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    print(f"\n{os.cpu_count()} cores; the least of {rounds} rounds\n")
    print("| work | tool | wall s | of first line | processor s | memory MB | results | how the work differs |")
    print("|---|---|---:|---:|---:|---:|---|---|")
    first: dict[str, float] = {}
    for way in ways:
        if way in failed:
            print(f"| {way.work} | {way.name} | | | | | not run: {failed[way]} | |")
            continue
        for name, begin in [(way.name, 0)] + [(f"{way.name}; quantised model given", way.given)] * bool(way.given):
            cost = least(each[begin:] for each in costs[way])
            ratio = cost.wall / first.setdefault(way.work, cost.wall)
            figures = f"{cost.wall:.2f} | {ratio:.2f} | {cost.processor:.2f} | {cost.memory:.0f}"
            once = "" if len(costs[way]) == rounds else "; ran once"
            print(f"| {way.work} | {name} | {figures} | {results[way]} | {way.did}{once} |")
    return 1 if failed else 0


def least(rounds: Iterator[list[Cost]]) -> Cost:
    """Sum the seconds of the steps of a round, and take the least of the rounds."""
    sums = [(sum(c.wall for c in each), sum(c.processor for c in each), max(c.memory for c in each)) for each in rounds]
    return Cost(*map(min, zip(*sums, strict=True)))


def run(way: Way, python: str, files: Path) -> tuple[list[Cost], str]:
    """Return the costs of the steps of a line in a new folder, and the standard output of the last step."""
    with tempfile.TemporaryDirectory() as folder:
        for side in ("float", "fixed"):
            Path(folder, side, "runs").mkdir(parents=True)
            Path(folder, side, "DebugConfig.txt").write_text(DEBUG_CONFIG)
        costs, output = [], ""
        for step in way.steps:
            command = [python, *(each.replace("FILES", str(files)) for each in step.arguments)]
            cost, output = cost_of(command, Path(folder, step.folder), step.statuses)
            costs.append(cost)
        return costs, output


def cost_of(command: list[str], folder: Path, statuses: tuple[int, ...]) -> tuple[Cost, str]:
    environment = {**os.environ, "NNCF_CI": "1"}  # no telemetry
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=errors)
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode not in statuses:
            if wall > PATIENCE:
                raise NotRun(f"longer than {PATIENCE} s")
            lines = [line.strip() for line in errors if line.strip()] or [f"exit status {process.returncode}"]
            raise NotRun(lines[-1].replace("|", "/")[:200])
        return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), output.read()


def counted(way: Way, output: str) -> str:
    """Return how many ranges, errors or layers a tool gave, or an empty text if its output does not say so."""
    matches = re.findall(way.counts, output)
    if not matches:
        return ""
    number = matches[-1] if "(" in way.counts else len(matches)
    return f"{number} {way.unit}".strip()


if __name__ == "__main__":
    sys.exit(main())
