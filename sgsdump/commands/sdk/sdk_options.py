"""Options of the SDK's tools that have no effect here: they are accepted, and a note says why they are not needed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class NoEffect:
    """``flags`` as the SDK's tool spells them, and why they do nothing; ``value`` False for a switch."""

    flags: tuple[str, ...]
    why: str
    value: bool = True

    @property
    def name(self) -> str:
        return self.flags[-1].lstrip("-")


def accept(parser: argparse.ArgumentParser, options: Sequence[NoEffect]) -> None:
    """Let ``parser`` take the options."""
    for option in options:
        action = {} if option.value else {"action": "store_true"}
        parser.add_argument(*option.flags, dest=option.name, help=f"accepted; {option.why}", **action)  # type: ignore[arg-type]


def notes(args: argparse.Namespace, options: Sequence[NoEffect]) -> list[str]:
    """One line for each of the options that was given."""
    return [f"{o.flags[-1]} has no effect: {o.why}" for o in options if getattr(args, o.name)]
