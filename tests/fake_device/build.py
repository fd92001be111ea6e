"""The library of the fake device: compiled once for each torch and each state of its source."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "fake_device.cpp"


def library() -> Path:
    """The compiled library; needs torch and g++. Several processes may compile it at the same time."""
    import torch

    state = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"sgsdump_fake_device_{os.getuid()}" / f"{state}.so"
    if not made.exists():
        made.parent.mkdir(mode=0o700, exist_ok=True)
        own = made.with_suffix(f".{os.getpid()}")
        root = Path(torch.__file__).parent
        headers = [root / "include", root / "include/torch/csrc/api/include"]
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
        words = ["g++", "-O1", "-std=c++20", "-shared", "-fPIC", "-w", abi, *(f"-I{path}" for path in headers)]
        words += [str(SOURCE), "-o", str(own), f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run(words, check=True)
        own.rename(made)
    return made


def why_not() -> str:
    """Why the device cannot be built here, or ""."""
    return "" if shutil.which("g++") else "g++ is not installed"
