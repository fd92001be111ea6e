"""A board's raw output buffers against the simulator's fixed dump of the same picture.
Apart: a mode of its own, which shares nothing with the comparison of dumps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgsdump.comparison.board import BoardResult, Output, fits, judged
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import read_bytes
from sgsdump.files.escaping import for_terminal

MOST_BYTES = 1 << 30


def is_board(paths: Sequence[Path]) -> bool:
    """Return whether the first, a file of no known format, is a board's: of two, an output of the other fits it."""
    board, reference = paths[0], paths[-1]
    if len(paths) > 2:
        return True
    try:
        outputs = outputs_of(reference)
    except (ConfigError, FormatError):
        return False
    data = read_bytes(board, MOST_BYTES)
    return any(fits(data, output) for output in outputs.values())


def compare_board(files: Sequence[Path], reference: Path) -> int:
    """Print a line for each file; 0 where all are identical, else 1. Raises ConfigError, FormatError."""
    outputs = outputs_of(reference)
    remaining, status = dict(outputs), 0
    for path in files:
        data = read_bytes(path, MOST_BYTES)
        output = _meant(path, data, remaining or outputs)
        remaining.pop(output.name, None)
        result = judged(data, output, outputs)
        status |= not result.identical
        print(for_terminal(f"{path}: {sentence(result)}"))
    if remaining:
        print(for_terminal(f"not compared: {', '.join(remaining)}"))
    return int(status)


def sentence(result: BoardResult) -> str:
    if result.identical:
        return f"{result.output}: identical, {result.count} integers ({result.as_written})"
    text = f"{result.output}: {result.differing} of {result.count} integers differ"
    if result.first is not None:
        index, board, simulator = result.first
        text += f", first at {list(index)}: board {board:g}, simulator {simulator:g}"
    return f"{text}; {result.cause}"


def outputs_of(reference: Path) -> dict[str, Output]:
    """The network's outputs in a dump of stored integers: what no operator reads. Raises ConfigError."""
    from sgsdump.dumps.io import open_dump

    dump = open_dump(reference)
    read = {record.name for record in dump.records if record.io == "in"}
    outputs = {}
    for record in dump.records:
        info = record.tensor.info
        if record.io != "out" or record.name in read:
            continue
        stored = np.asarray(record.tensor.stored())
        if stored.dtype.kind not in "iu":
            raise ConfigError(
                f"{reference} holds dequantised values of {record.name}, but the board's outputs are "
                "integers; dump again without dequantFixed in DebugConfig.txt"
            )
        known = info.quant is not None and np.ndim(info.quant.scale) == 0
        scale = float(info.quant.scale) if known and info.quant else None
        shape = info.shape if info.shape and int(np.prod(info.shape)) == stored.size else stored.shape
        zero_point = info.quant.zero_point if info.quant else 0
        outputs[record.name] = Output(record.name, stored.reshape(shape), scale, zero_point)
    if not outputs:
        raise ConfigError(f"{reference} contains no model outputs")
    return outputs


def _meant(path: Path, data: bytes, outputs: dict[str, Output]) -> Output:
    """The output that the file's name has, else the first whose buffer has its size."""
    named = [output for name, output in outputs.items() if name in path.name]
    fitting = [output for output in outputs.values() if fits(data, output)]
    equal = [output for output in fitting if judged(data, output, {}).identical]
    return (named or equal or fitting or list(outputs.values()))[0]
