"""What the commands of fixed point print of a network that they opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgsdump.commands.terminal import print_lines

if TYPE_CHECKING:
    from sgsdump.fixedpoint.verbs.network import OpenNetwork
    from sgsdump.models.feeds.feeds import Feeds


def print_warnings(opened: OpenNetwork, advised_by: Feeds | None = None) -> None:
    """Print what was assumed of a network, and what is to be known of it.

    advised_by  the images that advice rests on, with a warning where they speak for no others.
    """
    from sgsdump.models.feeds.by_content import coverage_warnings

    print_lines(opened.assumed, "assumed: ")
    print_lines(opened.warnings, "warning: ")
    print_lines(() if advised_by is None else coverage_warnings(advised_by), "warning: ")
