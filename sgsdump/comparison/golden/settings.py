"""What both golden comparisons ask of their settings, and how they say that nothing is in common."""

from __future__ import annotations

from collections.abc import Mapping

from sgsdump.errors import ConfigError


def counts(titles: tuple[str, str, str | None], *sides: Mapping | None) -> str:
    """``a has 3, b has 4``: how many names each side has."""
    return ", ".join(f"{title} has {len(side)}" for title, side in zip(titles, sides) if side is not None)


def check_settings(tag: float, th1: float, th2: float) -> None:
    """Raises ConfigError for one that is negative or NaN."""
    for name, value in (("input tag", tag), ("th1", th1), ("th2", th2)):
        if not value >= 0:
            raise ConfigError(f"the {name} is 0 or more, so {value:g} cannot be one")
