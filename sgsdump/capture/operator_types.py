"""Operator types that are known before a program runs: ATen's and those of torch's modules, as torch's files have them
(torch is not imported, that takes seconds), and those of onnxruntime.

A program may have more: the classes of its own modules are types, and libraries register operators.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from sgsdump.errors import SgsdumpError
from sgsdump.files.bounded_read import decode, read_bytes

OPERATORS, MODULES = Path("torchgen/packaged/ATen/native/native_functions.yaml"), Path("torch/nn/modules/__init__.py")
_OPERATOR = re.compile(r"^- func: (\w+)", re.MULTILINE)
_MODULE = re.compile(r"^    (\w+),$", re.MULTILINE)
_MOST_BYTES = 16 << 20


def types_before(program: str) -> frozenset[str]:
    """What operators are called by type, ``aten.addmm``, ``Linear``, ``Conv``, wherever ``program`` is started; nothing
    where its torch is not found, as no type could be checked then."""
    for folder in _packages(program):
        try:
            operators, modules = (_text(folder / file) for file in (OPERATORS, MODULES))
        except SgsdumpError:
            continue
        from sgsdump.executors.onnx_runtime.session import operator_types

        aten = {f"aten.{name}" for name in _OPERATOR.findall(operators)}
        return frozenset(aten | set(_MODULE.findall(modules))) | operator_types()
    return frozenset()


def _packages(program: str) -> Iterator[Path]:
    """Folders of installed packages: of the Python that is the program, else of this one."""
    yield from map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    python = shutil.which(program)
    if python is not None and Path(python).name.startswith("python"):
        yield from Path(python).absolute().parents[1].glob("lib/python3*/*-packages")
    yield from map(Path, sys.path)


def _text(path: Path) -> str:
    return decode(read_bytes(path, _MOST_BYTES), path)
