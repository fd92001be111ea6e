#!/usr/bin/env python3
"""Measure the structure of the package: the modules that a command runs through, chains of imports, sizes.

    python tools/structure.py [--modules] [NAME ...]

Each measure has a target. A walk counts the files of ``sgsdump`` whose functions run between a call and its return, in
any thread. It is the second call in a process, so that imports and caches of the first do not count. NAME picks
measures; --modules lists what was walked. ``tests/test_house.py`` holds the targets that are reached.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sgsdump"
PLUGINS = ("fixedpoint", "capture", "pipeline")

# What runs in a process of its own, in an empty folder: ``call`` is defined, called, and called again while it is seen.
WALK = """
import contextlib, io, json, sys, threading
from pathlib import Path
root = Path({root!r})
package = str(root / "sgsdump") + "/"
entered, carried, seeing = {{}}, {{}}, False

def profile(frame, event, argument):
    code = frame.f_code
    if seeing and event == "call" and code.co_name != "<module>" and code.co_filename.startswith(package):
        entered[code.co_filename] = True
        if "sample" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            carried.setdefault(threading.get_ident(), []).append(code.co_filename)

# From the first call on, because threads of a pool live on.
threading.setprofile(profile)
sys.setprofile(profile)
{setup}
for seeing in (False, True):
    with contextlib.redirect_stdout(io.StringIO()):
        call()
seeing = False
sys.setprofile(None)
short = lambda path: Path(path).relative_to(package).as_posix()
print(json.dumps([list(map(short, entered)), [list(map(short, calls)) for calls in carried.values()]]))
"""
DUMPS = """
folder = root / "tests/golden/sigmastar/dumps"
sample, benchmark = (
    str(folder / name / "sigma_outtensor_dump.bin")
    for name in ("tiny_fixed_a_elim_dequant", "tiny_fixed_h_elim_dequant_nofuse")
)
"""
COMPARE = f"""{DUMPS}
import sgsdump
call = lambda: sgsdump.compare(sample, benchmark)
"""
COMPARE_COMMAND = f"""{DUMPS}
from sgsdump.cli import main
call = lambda: main(["compare", sample, benchmark])
"""
NETWORK = """
sys.path.insert(0, str(root / "tests"))
import numpy as np, onnx, sgsdump
from small_nets import residual_net
onnx.save(residual_net().proto, "net.onnx")
arrays = [np.random.default_rng(i).integers(0, 256, (1, 3, 8, 8)).astype(np.float32) for i in range(2)]
"""
CALIBRATE = f"{NETWORK}\ncall = lambda: sgsdump.calibrate('net.onnx', arrays, quant_level='L5')\n"
DIAGNOSE = f"{NETWORK}\ncall = lambda: sgsdump.diagnose('net.onnx', arrays, quant_level='L5')\n"


@dataclass(frozen=True)
class Measure:
    """target  the most that it should be; ``of`` returns what is there, and the names that were counted."""

    target: int
    of: Callable[[], tuple[int, Sequence[str]]]


@functools.cache
def walked(setup: str) -> tuple[list[str], list[list[str]]]:
    """Return the files that ``call`` enters, and by thread those of the functions with a parameter ``sample``."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", WALK.format(root=str(ROOT), setup=setup)]
        environment = {**os.environ, "PYTHONPATH": path}
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    entered, carried = json.loads(ran.stdout.splitlines()[-1])
    return entered, carried


def modules_of(setup: str) -> tuple[int, Sequence[str]]:
    entered, _ = walked(setup)
    return len(entered), entered


def returns_of(setup: str) -> tuple[int, Sequence[str]]:
    """Return how often a parameter ``sample`` comes to a module again that it had left."""
    _, carried = walked(setup)
    legs = [[name for place, name in enumerate(calls) if not place or calls[place - 1] != name] for calls in carried]
    return sum(len(own) - len(set(own)) for own in legs), [name for own in legs for name in own]


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, in functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & set(module_files()) - {"sgsdump", name_of(path)}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def module_files() -> dict[str, Path]:
    return {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def longest_chain(plugin: str = "") -> tuple[int, Sequence[str]]:
    """Return the longest chain of imports within a plug-in, or within the core; the root of the package is left out."""
    within = {name for name in module_files() if name != "sgsdump" and plugin_of(name) == plugin}
    below = {name: sorted(imported(module_files()[name]) & within) for name in within}

    @functools.cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain, below[name]), key=len, default=()))

    longest = max(map(chain, below), key=len)
    return len(longest), longest


def plugin_of(name: str) -> str:
    """Return the plug-in that a module stands in; "" for the core."""
    folder = name.split(".")[1]
    return folder if folder in PLUGINS else ""


def entries() -> tuple[int, Sequence[str]]:
    names = sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__")
    return len(names), names


def largest_module() -> tuple[int, Sequence[str]]:
    sizes = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in module_files().items()}
    largest = max(sizes, key=lambda name: sizes[name])
    return sizes[largest], [largest]


MEASURES = {
    "modules of `sgsdump compare A B`": Measure(44, functools.partial(modules_of, COMPARE_COMMAND)),
    "modules of `sgsdump.compare(path, path)`": Measure(24, functools.partial(modules_of, COMPARE)),
    "returns of `sample` in `sgsdump.compare`": Measure(30, functools.partial(returns_of, COMPARE)),
    "modules of `sgsdump.diagnose`": Measure(110, functools.partial(modules_of, DIAGNOSE)),
    "modules of `sgsdump.calibrate` at L5": Measure(32, functools.partial(modules_of, CALIBRATE)),
    "longest chain of imports in the core": Measure(16, longest_chain),
    **{
        f"longest chain of imports in {name}, below it the core": Measure(14, functools.partial(longest_chain, name))
        for name in PLUGINS
    },
    "entries of sgsdump/": Measure(22, entries),
    "lines of the largest module": Measure(600, largest_module),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="take only measures whose name has these words (default: all)")
    parser.add_argument("--modules", action="store_true", help="list the counted modules")
    args = parser.parse_args()
    print("| measure | measured | target |\n|---|---|---|")
    for name, measure in MEASURES.items():
        if not args.name or any(word in name for word in args.name):
            value, counted = measure.of()
            print(f"| {name} | {value} | {measure.target} |")
            for line in counted if args.modules else ():
                print(f"    {line}")


if __name__ == "__main__":
    main()
