"""What a plant gives: the culprit that was planted, and what a command said of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Outcome:
    """culprits  the names that are right (a tensor, its layer, its module …); empty for a healthy pair.
    named     what the command blamed, the headline's first; empty when it blamed nothing.
    line      the headline, for a person.
    restored  whether what the command advised was found to be enough, and not too much; None where that is not tried.
    unseen    the fault cannot be seen in the data given; then ``told`` says whether the command said so.
    """

    culprits: frozenset[str]
    named: tuple[str, ...]
    line: str
    unseen: bool = False
    told: bool = False
    restored: bool | None = None

    @property
    def first(self) -> bool:
        """Whether the culprit is named first; of a healthy pair, whether nothing is."""
        return self._within(1)

    @property
    def among_three(self) -> bool:
        return self._within(3)

    def _within(self, most: int) -> bool:
        if self.unseen:
            return self.told
        if not self.culprits:
            return not self.named
        return any(name in self.culprits for name in self.named[:most])


Plant = Callable[[np.random.Generator, Path], Outcome]


def sgsdump(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user would run it, in ``folder``. Raises RuntimeError when it ends in trouble."""
    done = subprocess.run(
        [sys.executable, "-m", "sgsdump", *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr.strip()[-500:]}")
    return done


def drawn(plants: Sequence[str], rng: np.random.Generator, count: int) -> list[str]:
    """``count`` kinds, each as often as the others."""
    kinds = [kind for _ in range(-(-count // len(plants))) for kind in plants][:count]
    return [kinds[i] for i in rng.permutation(count)]
