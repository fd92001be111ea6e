"""Footer of a report: versions of the software, and the command that reproduces the result."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence

from sgsdump import __version__

PACKAGES = ("onnx", "onnxruntime", "numpy")


def versions() -> tuple[str, str]:
    """Return the versions of this package, of the packages that compute, and of Python, with a label."""
    computing = filter(None, map(_version, PACKAGES))
    return "made by", ", ".join([f"sgsdump {__version__}", *computing, f"Python {platform.python_version()}"])


def _version(name: str) -> str:
    """Return the name and version of a package; "" if it is not installed."""
    from importlib import metadata

    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return ""


def typed(args: object) -> tuple[tuple[str, str], ...]:
    """Return the command line, which ``cli.main`` stores in the parsed arguments, with a label; () if unknown."""
    words: Sequence[str] | None = getattr(args, "typed", None)
    return () if words is None else (("to reproduce", shlex.join(["sgsdump", *words])),)
