"""How commands say that a network was cut before its post-processing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.models.model import Model, PostProcessingCut
    from sgsdump.sidecars.input_config import InputConfig

MOST_LAYERS = 12


def cut_sentence(cut: PostProcessingCut) -> str:
    from sgsdump.registry import listed

    name, kind = cut.first
    others = [layer for layer in cut.layers if layer != name]
    also = f"; also left out: {listed(others, MOST_LAYERS)}" if others else ""
    ends = ", ".join(cut.outputs)
    return f"the network is cut before its post-processing, {name!r} ({kind}), and ends in {ends}{also}"


def print_cut(model: Model, config: InputConfig | None = None) -> None:
    """What was cut off and, unless the user's ``config`` names the outputs that the network has now, what to write."""
    from sgsdump.files.escaping import for_terminal

    if model.cut is None:
        return
    print(for_terminal(f"note: {cut_sentence(model.cut)}"))
    for line in to_paste(model.cut, config):
        print(for_terminal(line))


def to_paste(cut: PostProcessingCut, config: InputConfig | None = None) -> Iterator[str]:
    """[OUTPUT_CONFIG] for the outputs that the network has now, unless ``config`` names them."""
    from sgsdump.sidecars.input_config import ModelOutput, output_section

    if config is not None and {output.name for output in config.outputs} >= set(cut.outputs):
        return
    yield "for input_config.ini:"
    yield from output_section([ModelOutput(name, dequantised=True) for name in cut.outputs]).splitlines()
