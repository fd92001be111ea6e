"""The assumptions and warnings on a model that a command of fixed point opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgsdump.commands.terminal import print_early

if TYPE_CHECKING:
    from sgsdump.fixedpoint.verbs.network import OpenNetwork
    from sgsdump.models.feeds.feeds import Feeds


def print_warnings(opened: OpenNetwork, advised_by: Feeds | None = None) -> None:
    """Print the assumptions and warnings on standard error; standard output begins with the result.

    advised_by  images that the recommendation is based on; a warning says if they are too few or no real images.
    """
    from sgsdump.models.feeds.by_content import coverage_warnings

    warnings = (*opened.warnings, *(() if advised_by is None else coverage_warnings(advised_by)))
    print_early(f"assumed: {sentence}" for sentence in opened.assumed)
    print_early(f"warning: {sentence}" for sentence in warnings)
