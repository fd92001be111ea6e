"""``advise`` and ``repair``, which are now ``tune --explain`` and ``tune --first``. To be removed in version 0.4."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.fixedpoint.verbs.explained import Explained as Advised
from sgsdump.fixedpoint.verbs.first_plan import FirstPlan as Repaired
from sgsdump.fixedpoint.verbs.tune import tune

if TYPE_CHECKING:
    from sgsdump.fixedpoint.verbs.calibrate import FixedModel
    from sgsdump.models.network import Data


def advise_words(words: Sequence[str]) -> list[str]:
    """Return the arguments of ``tune`` for those of ``advise``, whose ranges were a positional argument."""
    from sgsdump.commands.parser import Parser
    from sgsdump.fixedpoint.commands.tune import add_arguments

    parser = Parser("sgsdump tune", add_help=False)
    add_arguments(parser)
    parser.add_argument("positional", nargs="?")
    known, _ = parser.parse_known_args(words)
    options = vars(known) | {"positional": None}
    for place in [place for place, word in enumerate(words) if word == known.positional]:
        others = [*words[:place], *words[place + 1 :]]
        if vars(parser.parse_known_args(others)[0]) == options:
            return ["tune", "--explain", "--ranges", words[place], *others]
    return ["tune", "--explain", *words]


def repair_words(words: Sequence[str]) -> list[str]:
    """Return the arguments of ``tune`` for those of ``repair``."""
    return ["tune", "--first", *(re.sub("^--debug[-_]image", "--evaluate", word) for word in words)]


def advise(model: str | Path, ranges: str | Path | FixedModel, **options: Any) -> Advised:
    """Call ``sgsdump.tune(model, explain=True, ranges=ranges, ...)``, the new name of this function."""
    _warn("advise(model, ranges, ...)", "tune(model, explain=True, ranges=ranges, ...)")
    return tune(model, explain=True, ranges=ranges, **options)


def repair(model: str | Path, data: Data, **options: Any) -> Repaired:
    """Call ``sgsdump.tune(model, data, first=True, ...)``, the new name of this function."""
    _warn("repair(model, data, ...)", "tune(model, data, first=True, ...)")
    return tune(model, data, first=True, **options)


def _warn(old: str, new: str) -> None:
    warnings.warn(f"sgsdump.{old} is now sgsdump.{new}", FutureWarning, stacklevel=3)
