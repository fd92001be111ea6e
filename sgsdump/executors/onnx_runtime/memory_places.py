"""Where the tensors of a run lie in one piece of memory: each has its place until the last step that reads it is over.

What one step makes and one step reads last lies together, in the first gap that is large enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

# Of every tensor: what processors read fastest, and what onnxruntime gives its own.
ALIGNMENT = 64


def places(made: Sequence[Mapping[str, int]], read: Sequence[Collection[str]]) -> tuple[dict[str, int], int]:
    """The first byte of each tensor, and the bytes of all the memory.

    made  bytes by name of what each step makes; the first one's are the inputs.
    read  names of what each step reads, of what is made before it.
    """
    last = {name: step for step, names in enumerate(read) for name in names}
    found: dict[str, int] = {}
    # Of those in use, by place: first byte, the byte behind, the last step that reads.
    blocks: list[tuple[int, int, int]] = []
    top = 0
    for step, sizes in enumerate(made):
        blocks = [block for block in blocks if block[2] >= step]
        together: dict[int, list[str]] = {}
        for name in sizes:
            together.setdefault(last.get(name, step), []).append(name)
        for until, names in together.items():
            start = place = _gap(blocks, sum(_aligned(sizes[name]) for name in names))
            for name in names:
                found[name] = place
                place += _aligned(sizes[name])
            blocks = sorted([*blocks, (start, place, until)])
            top = max(top, place)
    return found, top


def _gap(blocks: Sequence[tuple[int, int, int]], size: int) -> int:
    """The first byte of the first gap between the blocks that is large enough, or that behind them."""
    place = 0
    for start, stop, _ in blocks:
        if place + size <= start:
            break
        place = stop
    return place


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
