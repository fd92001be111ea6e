"""How a result was made, for its footer: versions, and the command to type again."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from importlib import metadata

from sgsdump import __version__

PACKAGES = ("onnx", "onnxruntime", "numpy")


def versions() -> tuple[str, str]:
    """Of this package and of what computes."""
    computing = filter(None, map(_version, PACKAGES))
    return "made by", ", ".join([f"sgsdump {__version__}", *computing, f"Python {platform.python_version()}"])


def _version(name: str) -> str:
    """With its name; "" where it is not installed."""
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return ""


def typed(args: object) -> tuple[tuple[str, str], ...]:
    """The command line that was typed, where ``cli.main`` keeps it among its parsed arguments."""
    words: Sequence[str] | None = getattr(args, "typed", None)
    return () if words is None else (("to reproduce", shlex.join(["sgsdump", *words])),)
