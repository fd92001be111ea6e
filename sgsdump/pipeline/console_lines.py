"""The lines a run prints as it goes on; those of inputs and outputs are the SDAA dump tool's, to the letter.

A name with line breaks or control characters is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from sgsdump.files.escaping import shown


def input_line(name: str, shape: Sequence[int], dtype: object) -> str:
    """``input "x", shape [1, 3, 48, 192], dtype float32``"""
    return f'input "{shown(name)}", shape {list(shape)}, dtype {dtype}'


def output_line(index: int | None, name: str, shape: Sequence[int], dtype: object) -> str:
    """``topology index 12, output relu_1.tmp_0, shape (1, 8, 12, 96), dtype float16``; without an index from
    ``output`` on."""
    line = f"output {shown(name)}, shape {tuple(shape)}, dtype {dtype}"
    return line if index is None else f"topology index {index}, {line}"


def tried_line(name: str, difference: float | None, missing: Sequence[str] = ()) -> str:
    """``tried relu_1: 1.2e-07``, the worst difference against the tensor's largest value; ``not given by tvm`` where
    only the other executor gives it."""
    if len(missing) == 1:
        result = f"not given by {missing[0]}"
    else:
        result = "given by neither" if difference is None else f"{difference:.3g}"
    return f"tried {shown(name)}: {result}"
