"""The SDK's model files of this project's networks, of tests/golden and, where there are any, of the genuine files."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

from fuzzing.seeds.seed import Seed

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"
_MOST_BYTES = 24_000
_SLOWER = 10


def sim_files(genuine: Path | None) -> Iterator[Seed]:
    """Return .sim files and images, each of a few kilobytes."""
    for root in filter(None, (GOLDEN, genuine)):
        for path in sorted(root.glob("sigmastar/sim/*/*.sim.xz")):
            data = lzma.decompress(path.read_bytes())
            if len(data) <= _MOST_BYTES:
                yield Seed("sim", f"{path.parent.name}_{path.stem}", {"": data}, slower=_SLOWER)
        for path in sorted(root.glob("sigmastar/sim/*.img")):
            yield Seed("img", path.name, {"": path.read_bytes()}, slower=_SLOWER)
