"""What SDK 1.1.5 refuses of a model, and what it computes otherwise: the records that travel with the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sgsdump.errors import listed

SDK = "SDK 1.1.5"
STAGES = {
    "convert": "its converter ends with",
    "calibrate": "its calibrator ends with",
    "simulate": "its simulator ends with",
}


@dataclass(frozen=True)
class Refused:
    """The layers of a model that one row refuses; ``above_l1``: at level L1 it does not."""

    what: str
    layers: tuple[str, ...]
    stage: str
    said: str
    probe: str
    above_l1: bool = False

    def __str__(self) -> str:
        seen = f" (seen on {self.probe})" if self.probe else ""
        return f"{SDK} refuses {self.what} ({_named(self.layers)}): {STAGES[self.stage]} {self.said!r}{seen}"


@dataclass(frozen=True)
class Changed:
    """The layers of a model that one row of the table of changes is of."""

    what: str
    layers: tuple[str, ...]
    becomes: str
    probe: str
    followed: bool = False

    def __str__(self) -> str:
        ours = (
            "this fixed model does so too, and differs from the float model there, as the chip does"
            if self.followed
            else "this fixed model keeps to ONNX, so a float dump of the SDK differs from the model there"
        )
        return f"{SDK} makes of {self.what} ({_named(self.layers)}) {self.becomes}; {ours} (docs/sdk_converter.md)"


@dataclass(frozen=True)
class ConverterFacts:
    """What the SDK refuses of a model, and what it changes; ``lone_channels``: inputs that ``ONE_CHANNEL`` is of."""

    refused: tuple[Refused, ...] = ()
    changed: tuple[Changed, ...] = ()
    lone_channels: tuple[str, ...] = ()


def _named(layers: Sequence[str]) -> str:
    return listed(layers, 3)
