"""Small whole files of every format, to be damaged: made by our writers, by hand where we only read, and the genuine
ones beside the checkout where there are any."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

from fuzzing.seeds.genuine import MOST_GENUINE, genuine_files
from fuzzing.seeds.made import made
from fuzzing.seeds.models import sim_files
from fuzzing.seeds.seed import Seed
from fuzzing.seeds.side_files import side_files
from fuzzing.seeds.vendors import vendors
from fuzzing.seeds.written import written

__all__ = ["Seed", "all_seeds"]


def all_seeds(genuine: Path | None) -> dict[str, list[Seed]]:
    """The seeds of each format. ``genuine`` is the folder to look for genuine files in."""
    found: defaultdict[str, list[Seed]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for seed in (*written(Path(folder)), *made(), *vendors(), *side_files()):
            found[seed.format].append(seed)
    for seed in sim_files(genuine if genuine is not None and genuine.is_dir() else None):
        found[seed.format].append(seed)
    if genuine is not None and genuine.is_dir():
        for seed in genuine_files(genuine):
            if len(found[seed.format]) < 2 * MOST_GENUINE:
                found[seed.format].append(seed)
    return dict(found)
