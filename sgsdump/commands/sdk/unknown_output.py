"""The text to which the SDK's simulator writes a network's outputs for ``-c Unknown``.

::

    NAME Tensor:
    {
    tensor dim:4,<TAB>Original shape:[1 5 6 24]
    tensor data:
    -1.528718  4.492547  1.551402           12 values to a row
    }

The file is ``output/unknown_MODEL_IMAGE.txt``; outputs stand one after another, 4-D ones as NHWC. The SDK's fixed
simulator adds the padded shape and prints padded values unless --skip_garbage is given; ours are never padded.
Source: docs/formats/sigmastar.md#simulator-text-output.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sgsdump.commands.sdk.value_table import CHUNK, rows
from sgsdump.files.atomic_write import make_folder, replacing
from sgsdump.files.names import fitting, safe
from sgsdump.tensors.types import to_nhwc

PER_ROW = 12


def write_outputs(outputs: Mapping[str, np.ndarray], model: Path, image: str, folder: Path = Path("output")) -> Path:
    """Write the outputs of one run; ``image`` names the input, several by commas. Returns the file."""
    inputs = "_".join(Path(name).name for name in image.split(","))
    path = make_folder(folder) / fitting(safe(f"unknown_{model.name}_{inputs}"), ".txt")
    with replacing(path) as file:
        for name, array in outputs.items():
            values = to_nhwc(array)
            shape = " ".join(map(str, values.shape))
            head = f"{name} Tensor:\n{{\ntensor dim:{values.ndim},\tOriginal shape:[{shape}]\ntensor data:\n"
            file.write(head.encode("utf-8", "surrogateescape"))
            flat = values.reshape(-1)
            step = CHUNK - CHUNK % PER_ROW
            for start in range(0, flat.size, step):
                file.write(rows(flat[start : start + step], PER_ROW).encode())
            file.write(b"}\n")
    return path
