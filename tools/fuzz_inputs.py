#!/usr/bin/env python3
"""Damage what is not a dump and give it to the commands: models, fixed models' metadata, side files, pictures, arrays.

    python tools/fuzz_inputs.py --files 10000 --seed 7
    python tools/fuzz_inputs.py --kind picture --only 4711

Each command must end with a status and at most one line of error; a traceback or a warning of Python's is a finding,
and ends the run with status 1. A file is made from --seed, its kind and its number alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CONFIG = "--input-config input_config.ini"


@dataclass(frozen=True)
class Kind:
    """A file of the demo that is damaged, and the commands that read it."""

    file: str
    commands: tuple[str, ...]


KINDS = {
    "model": Kind(
        "digits.onnx",
        (
            f"calibrate -m digits.onnx -i few {CONFIG} --quant-level L1 -o out.onnx",
            "pipeline once -m digits.onnx --name conv0 --print-ir --save-test-case case -o out",
            "pipeline full -m digits.onnx -o out",
        ),
    ),
    "fixed model": Kind("fixed.onnx", ("simulate -m fixed.onnx -t Fixed -i digit.png",)),
    "metadata": Kind("fixed.onnx", ("simulate -m fixed.onnx -t Fixed -i digit.png",)),
    "picture": Kind("digit.png", (f"dump -m digits.onnx -i digit.png {CONFIG} -o out.bin",)),
    "array": Kind("x.npy", ("pipeline full -m digits.onnx -i image:x.npy -o out",)),
    "fed array": Kind("x.npy", ("dump -m digits.onnx -i x.npy -o out.bin",)),
    "input config": Kind(
        "input_config.ini", (f"calibrate -m digits.onnx -i few {CONFIG} --quant-level L1 -o out.onnx",)
    ),
    "ranges": Kind("log/tensor_min_max.txt", (f"advise log/tensor_min_max.txt -m digits.onnx {CONFIG}",)),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="other damage (%(default)s)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this (may be repeated)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this one file of --kind")
    args = parser.parse_args(argv)
    kinds = args.kind or list(KINDS)
    findings = tried = 0
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            prepare()
            for name in kinds:
                for number in [args.only] if args.only is not None else range(-(-args.files // len(kinds))):
                    tried += 1
                    for line in trial(name, args.seed, number):
                        findings += 1
                        print(f"{name} {number}: {line}", flush=True)
        finally:
            os.chdir(before)
    print(f"{tried} files, {findings} findings")
    return int(findings > 0)


def prepare() -> None:
    """The demo, few of its pictures, and an array."""
    import shutil

    import numpy as np

    from sgsdump.cli import main as sgsdump

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert sgsdump(["demo", "-o", "demo"]) in (0, 1)
    for path in Path("demo").iterdir():
        path.rename(path.name)
    Path("few").mkdir()
    for picture in sorted(Path("pictures").iterdir())[:1]:
        shutil.copy(picture, "few")
    np.save("x.npy", np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32))


def trial(name: str, seed: int, number: int) -> list[str]:
    """Damage one file and run its commands; returns the findings. The file is whole again afterwards."""
    kind = KINDS[name]
    draw = random.Random(f"{seed} {name} {number}")
    path = Path(kind.file)
    whole = path.read_bytes()
    damage: Callable[[bytes, random.Random], bytes] = damaged_metadata if name == "metadata" else damaged
    path.write_bytes(damage(whole, draw))
    try:
        return [finding for words in kind.commands if (finding := finding_of(words))]
    finally:
        path.write_bytes(whole)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, size = draw.randrange(len(changed) + 1), draw.choice((1, 1, 4, 30))
        how = draw.randrange(5)
        if how == 0:
            changed[at : at + size] = draw.randbytes(size)
        elif how == 1:
            del changed[at : at + size]
        elif how == 2:
            changed[at:at] = changed[at : at + size]
        elif how == 3:
            changed[at : at + 1] = draw.choice((b"\0", b"\xff", b"-", b"(", b"1e999", b"nan", b"9" * 30, b"{", b'"'))
        else:
            del changed[at:]
        if not changed:
            break
    return bytes(changed)


def damaged_metadata(data: bytes, draw: random.Random) -> bytes:
    """The model whole, but for the text that says how it was made."""
    import onnx

    proto = onnx.ModelProto.FromString(data)
    for entry in proto.metadata_props:
        if entry.key.startswith("sgsdump"):
            entry.value = damaged(entry.value.encode(), draw).decode("utf-8", "replace")
    return proto.SerializeToString()


def finding_of(words: str) -> str | None:
    """What a command did that it must not."""
    from sgsdump.cli import main as sgsdump

    error = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        warnings.simplefilter("default")
        try:
            sgsdump(words.split())
        except SystemExit as refused:
            return f"{words.split()[0]}: the options are refused: {error.getvalue()[-150:]}" if refused.code else None
        except Exception as failure:
            frame = traceback.extract_tb(failure.__traceback__)[-1]
            text = " ".join(str(failure).split())[:150]
            return f"{words.split()[0]}: {type(failure).__name__}: {text} ({Path(frame.filename).name}:{frame.lineno})"
    lines = [line for line in error.getvalue().splitlines() if "Warning" in line or "Traceback" in line]
    return f"{words.split()[0]}: {lines[0][:200]}" if lines else None


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed
    sys.exit(main())
