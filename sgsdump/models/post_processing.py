"""What of a network is not computed here: the post-processing that it ends in, and all that is computed from that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PostProcessingCut:
    """Where a network was cut.

    first    name and type of its first layer of post-processing.
    layers   the names of all layers that went, in the network's order: also those that only served them.
    blobs    what those made, and the inputs that nothing else reads.
    outputs  what the network ends in now, in its order.
    """

    first: tuple[str, str]
    layers: tuple[str, ...]
    blobs: frozenset[str]
    outputs: tuple[str, ...]
