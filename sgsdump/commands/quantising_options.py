"""Options that the commands which quantise share: the level, the cluster, the limits."""

from __future__ import annotations

import argparse

from sgsdump.commands.option_values import threshold

QUANT_LEVELS = ("L1", "L2", "L3", "L4", "L5")
# What a level does where its bits are not wanted: a quant file or a search decides them.
WITHOUT_BITS = {"L1": "L1", "L2": "L2", "L3": "L3", "L4": "L2", "L5": "L3"}


def add_quant_level(parser: argparse.ArgumentParser, text: str = "see calibrate") -> None:
    """``--quant-level``."""
    parser.add_argument("--quant-level", choices=QUANT_LEVELS, default="L5", help=f"{text} (default: %(default)s)")


def add_scheduler(parser: argparse._ActionsContainer, what: str) -> None:
    """``--scheduler`` of a command that sends pictures and model to the workers; ``what`` these do."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help=f"{what} on the Dask cluster whose scheduler is here (tcp://host:8786); see above",
    )


def add_limits(parser: argparse.ArgumentParser, what: str) -> None:
    """``--min-cos`` and ``--max-rmse``; ``what`` must hold them."""
    for option, default in (("--min-cos", "COS 0.99"), ("--max-rmse", "RMSE 0.1")):
        parser.add_argument(option, type=threshold, metavar="X", help=f"what {what} must hold (default: {default})")
