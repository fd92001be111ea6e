"""Messages on a model that was cut before its post-processing, and lines for input_config.ini."""

from __future__ import annotations

from collections.abc import Iterator

from sgsdump.errors import listed
from sgsdump.models.model import PostProcessingCut
from sgsdump.sidecars.input_config import InputConfig, ModelOutput, output_section

MOST_LAYERS = 12


def cut_sentence(cut: PostProcessingCut) -> str:
    name, kind = cut.first
    others = [layer for layer in cut.layers if layer != name]
    also = f"; also left out: {listed(others, MOST_LAYERS)}" if others else ""
    ends = ", ".join(cut.outputs)
    return f"the model is cut before its post-processing {name!r} ({kind}); its outputs are now {ends}{also}"


def to_paste(cut: PostProcessingCut, config: InputConfig | None = None) -> Iterator[str]:
    """Yield the section [OUTPUT_CONFIG] for the outputs of the cut model, unless ``config`` names them all."""
    if config is not None and {output.name for output in config.outputs} >= set(cut.outputs):
        return
    yield "for input_config.ini:"
    yield from output_section([ModelOutput(name, dequantised=True) for name in cut.outputs]).splitlines()
