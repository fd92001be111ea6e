"""The start of every door in this folder: with sgsdump, installed or from the checkout around the folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def enter(main: Callable[[], int]) -> NoReturn:
    """Run a door's ``main``; where sgsdump is missing, one line says how to install it, with status 2."""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "sgsdump" / "cli.py").is_file():
        sys.path.append(str(checkout))  # at the end: an installed package goes first
    try:
        import sgsdump.cli  # noqa: F401
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sgsdump"):
            raise
        print(
            f"{Path(sys.argv[0]).name}: error: sgsdump is not installed for {sys.executable}; install it from its "
            f"checkout, the folder with pyproject.toml: {shlex.quote(sys.executable)} -m pip install FOLDER",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(main())
