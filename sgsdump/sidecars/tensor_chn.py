"""tensor_chn.txt: the range of every output channel of the convolutions, as calibration saw it. Two lines a tensor:

Name:conv1, 10
min_chn: -2.913756, ..., max_chn: 2.414397, ...;
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sgsdump.files.atomic_write import replacing
from sgsdump.tensors.value_range import Range


def write(channels: Mapping[str, Range], path: Path) -> None:
    """``channels``: tensor name -> Range of C values. Raises OutputError."""
    with replacing(path) as file:
        for name, bounds in channels.items():
            lines = f"Name:{name}, {bounds.min.size}\nmin_chn: {_text(bounds.min)}, max_chn: {_text(bounds.max)};\n"
            file.write(lines.encode("utf-8", "surrogateescape"))


def _text(values: np.ndarray) -> str:
    return ", ".join(f"{value:f}" for value in values.tolist())
