"""Names of results that one command writes several of: the name that was asked for, with each input's name put in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def output_paths(output: Path, files: Sequence[str]) -> list[Path]:
    """Where each input's dump goes: ``output`` for one; with the input's name put in for several, all different."""
    if len(files) == 1:
        return [output]
    paths: list[Path] = []
    for file in files:
        path, number = named(output, Path(file).stem), 1
        while path in paths:
            number += 1
            path = named(output, f"{Path(file).stem}_{number}")
        paths.append(path)
    return paths


def named(output: Path, name: str) -> Path:
    """``out.bin`` with a name put in: ``out_cat.bin``."""
    return output.with_name(f"{output.stem}_{name}{output.suffix}")
