"""Records of the parts of a model that SDK 1.1.5 refuses, or computes differently."""

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
    """Layers of a model that one rule refuses; ``above_l1``: not refused at level L1."""

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
    """Layers of a model that one rule of the table of changes applies to."""

    what: str
    layers: tuple[str, ...]
    becomes: str
    probe: str
    followed: bool = False

    def __str__(self) -> str:
        ours = (
            "this fixed model computes the same as the chip and therefore differs from the float model"
            if self.followed
            else "this fixed model follows ONNX, so float dumps of the SDK differ from the model there"
        )
        return f"{SDK} converts {self.what} ({_named(self.layers)}) to {self.becomes}; {ours} (docs/sdk_converter.md)"


@dataclass(frozen=True)
class ConverterFacts:
    """Layers that the SDK refuses or changes; ``lone_channels`` are the inputs that ``ONE_CHANNEL`` applies to."""

    refused: tuple[Refused, ...] = ()
    changed: tuple[Changed, ...] = ()
    lone_channels: tuple[str, ...] = ()


def _named(layers: Sequence[str]) -> str:
    return listed(layers, 3)
