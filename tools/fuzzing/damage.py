"""Trying damaged copies of a format's seeds, each made from the run's seed, the format and a number alone."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzzing.readers import reader
from fuzzing.seeds import Seed
from fuzzing.trial import Finding, tried

TRACED_EVERY = 50
_NAMES = (
    "x.npy",
    "-1.npy",
    "..npy",
    "x" * 250,
    "Größe.bin",
    "sgsdump.json",
    "dump_info.json",
    "mapping.csv",
    "\udcff.bin",
)


@dataclass
class Result:
    """How the files of a format fared. ``findings`` has the first few of each kind with the file's number."""

    tried: int = 0
    opened: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, Finding]] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.tried, self.opened = self.tried + other.tried, self.opened + other.opened
        for number, finding in other.findings:
            if self.kinds[finding.what] < 3:
                self.findings.append((number, finding))
        self.kinds += other.kinds


def damaged(seeds: Sequence[Seed], run: int, number: int) -> tuple[Seed, dict[str, bytes | None]]:
    """File ``number`` of a format: the seed it is made of, and what of its files is another (None: gone)."""
    rng = Random(f"{run}:{seeds[0].format}:{number}")
    seed, other = rng.choice(seeds), rng.choice(seeds)
    donor = other.files[rng.choice(sorted(other.files))]
    names, what = sorted(seed.files), rng.random()
    name = rng.choice(names)
    if not seed.is_folder or what < 0.85:
        return seed, {name: seed.edit(seed.files[name], donor, rng)}
    if what < 0.9:
        return seed, {name: None}
    if what < 0.95:
        return seed, {name: None, _beside(name, rng): seed.files[name]}
    return seed, {_beside(name, rng): donor, name: seed.edit(seed.files[name], donor, rng)}


def _beside(name: str, rng: Random) -> str:
    folder, slash, _ = name.rpartition("/")
    return folder + slash + rng.choice(_NAMES)


def try_numbers(
    seeds: Sequence[Seed],
    run: int,
    numbers: Iterable[int],
    folder: Path,
    starting: Callable[[int], None] = lambda number: None,
) -> Result:
    """Make and read the files of these numbers below ``folder``; ``starting`` hears of each before it is read."""
    format, result = seeds[0].format, Result()
    read = reader(format)
    places = {id(seed): seed.put(folder / str(at)) for at, seed in enumerate(seeds)}
    for number in numbers:
        starting(number)
        seed, changes = damaged(seeds, run, number)
        path = places[id(seed)]
        put(path, changes)
        size = sum(len(data) for data in {**seed.files, **changes}.values() if data is not None)
        opened, finding = tried(read, path, size, number % TRACED_EVERY == 0, seed.slower)
        put(path, {name: seed.files.get(name) for name in changes})
        one = Result(1, opened)
        if finding is not None:
            one.kinds[finding.what] += 1
            one.findings.append((number, finding))
        result.add(one)
    return result


def put(path: Path, changes: dict[str, bytes | None]) -> None:
    """Write or remove these files of the file or folder at ``path``."""
    for name, data in changes.items():
        file = path / name if name else path
        file.unlink(missing_ok=True)  # a file that is written over waits for the disk
        if data is not None:
            file.write_bytes(data)


def save(seeds: Sequence[Seed], run: int, number: int, folder: Path) -> Path:
    """Write file ``number`` to ``folder``, to look at it; gives its path."""
    shutil.rmtree(folder, ignore_errors=True)
    seed, changes = damaged(seeds, run, number)
    path = seed.put(folder)
    put(path, changes)
    return path
