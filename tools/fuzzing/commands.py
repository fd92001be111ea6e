"""Running a command in a folder of the demo's files, and what it must not do.

A command ends with 0 or 1, or with 2 and its error in one line on standard error. An exception, another status, a
Python warning as Python prints it and a half-written file that stays are findings. Standard error is taken at its file
descriptor, so that what libraries of C print is seen too.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fuzzing.trial import Contradiction, check_lines
from sgsdump import __version__

PICTURES = 2
RAW = re.compile(r"\w+Warning: |Traceback \(|^\[[EWF]:|terminate called|Segmentation", re.MULTILINE)
# What may stand on standard error: lines of ours, warnings and notes, how a command is used, a bar's last state.
OURS = re.compile(r"sgsdump|(?:warning|assumed|note): |usage: |\s|$|.*\d+%\||.*\d+(?:it|pictures|files)")
# What -v shows of an error on purpose, before the line on it.
VERBOSE = f"sgsdump: {__version__}, "
SHOWN = re.compile(r"^Traceback \(.*?(?=^sgsdump)", re.MULTILINE | re.DOTALL)
# Where the folder stands in its parent, so that `..` and `../..` of a command are its own.
DEPTH = Path("a/b/c")


class Ended(NamedTuple):
    status: int
    usage: bool  # the options were refused
    error: str


def run(words: Sequence[str], folder: Path) -> Ended:
    """Run a command in ``folder``, which is whole again afterwards. Raises Contradiction for what it must not do."""
    from sgsdump.cli import main as sgsdump

    before, usage = Path.cwd(), False
    made = _state(folder)
    os.chdir(folder)
    try:
        with _standard_error() as error, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.resetwarnings()
            # As Python does where nobody, such as pytest, catches them.
            warnings.showwarning = lambda *facts: print(warnings.formatwarning(*facts[:4]), end="", file=sys.stderr)
            try:
                status = sgsdump(list(words))
            except SystemExit as refused:
                status, usage = int(refused.code or 0), True
        left = [name for name in _state(folder) if name.endswith(".partial")]
    finally:
        os.chdir(before)
        _restore(folder, made)
    ended = Ended(status, usage, error[0])
    _check(ended, left)
    return ended


def _check(ended: Ended, left: Sequence[str]) -> None:
    if left:
        raise Contradiction(f"leaves {left[0]}")
    if ended.status not in (0, 1, 2):
        raise Contradiction(f"ends with {ended.status}: {ended.error[-300:]}")
    told = SHOWN.sub("", ended.error, 1) if ended.error.startswith(VERBOSE) else ended.error
    raw = RAW.search(told)
    if raw:
        raise Contradiction(f"prints {told[raw.start() :][:300]}")
    lines = told.splitlines()
    check_lines(*lines)
    foreign = [line for line in lines if not OURS.match(line)]
    if foreign:
        raise Contradiction(f"prints {foreign[0][:300]}")
    errors = [line for line in lines if re.match(r"sgsdump[a-z ]*: error: ", line)]
    if len(errors) != (ended.status == 2) or (errors and lines[-1] != errors[0]):
        raise Contradiction(f"ends with {ended.status} and {len(errors)} lines of error: {ended.error[-600:]!r}")


@contextlib.contextmanager
def _standard_error() -> Iterator[list[str]]:
    """What is written to standard error in the block, as the list's only item once the block is left."""
    caught: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile(dir=_fast()) as file:
        os.dup2(file.fileno(), 2)
        try:
            with (
                open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as text,
                contextlib.redirect_stderr(text),
            ):
                yield caught
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        caught.append(file.read().decode("utf-8", "replace"))


def _fast() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@cache
def project() -> dict[str, bytes]:
    """The demo's files: a model, its fixed model, ranges, a few pictures and dumps, arrays."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "demo"
        command = "import sys; from sgsdump.cli import main; sys.exit(main(['demo', '-o', sys.argv[1]]))"
        # A process of its own: onnxruntime's threads do not outlive a fork.
        subprocess.run([sys.executable, "-c", command, folder], check=True, capture_output=True)
        for path in sorted((folder / "pictures").iterdir())[PICTURES:]:
            path.unlink()
        files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    wanted = re.compile(
        r"(digits|fixed)\.onnx|(fixed|float)\.bin|.*\.ini|DebugConfig\.txt|digit\.png|(pictures|log)/.*"
    )
    kept = {name: data for name, data in files.items() if wanted.fullmatch(name)}
    array = io.BytesIO()
    np.save(array, np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32))
    return {**kept, "x.npy": array.getvalue()}


def place(beside: Path) -> Path:
    """A folder with the project's files, made once, below the parent of the folder of a damaged file."""
    folder = beside.parent.parent / "project" / DEPTH
    if not folder.is_dir():
        _restore(folder, {})
    return folder


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time and number of each file below the folder's topmost own parent."""
    top = folder.parents[len(DEPTH.parts) - 1]
    facts = ((path, path.lstat()) for path in top.rglob("*")) if top.is_dir() else ()
    return {str(path): (stat.st_size, stat.st_mtime_ns, stat.st_ino) for path, stat in facts if not path.is_dir()}


def _restore(folder: Path, before: dict[str, tuple[int, int, int]]) -> None:
    """Make the folder as it was, if it is another."""
    if before and _state(folder) == before:
        return
    shutil.rmtree(folder.parents[len(DEPTH.parts) - 1], ignore_errors=True)
    for name, data in project().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
