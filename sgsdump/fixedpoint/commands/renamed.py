"""``advise`` and ``repair``, which are now ``tune --explain`` and ``tune --first``. To be removed in version 0.4."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.verbs.explained import Explained as Advised
from sgsdump.fixedpoint.verbs.first_plan import FirstPlan as Repaired
from sgsdump.fixedpoint.verbs.tune import tune

if TYPE_CHECKING:
    from sgsdump.fixedpoint.verbs.calibrate import FixedModel
    from sgsdump.models.network import Data


def advise_words(words: Sequence[str]) -> list[str]:
    """Return the arguments of ``tune`` for those of ``advise``, whose ranges were a positional argument."""
    found = _parsed(words)
    ranges = found.get("positional")
    for place in [place for place, word in enumerate(words) if word == ranges]:
        others = [*words[:place], *words[place + 1 :]]
        if _parsed(others) == found | {"positional": None}:
            return ["tune", "--explain", "--ranges", words[place], *others]
    return ["tune", "--explain", *words]


def _parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of ``advise`` by name; {} for invalid words, which ``tune`` reports."""
    from sgsdump.commands.parser import Parser
    from sgsdump.fixedpoint.commands.tune import add_arguments

    class Quiet(Parser):
        def error(self, message: str) -> NoReturn:
            raise ConfigError(message)

    parser = Quiet(add_help=False)
    add_arguments(parser)
    parser.add_argument("positional", nargs="?")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    try:
        return vars(parser.parse_known_args(words)[0])
    except ConfigError:
        return {}


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
