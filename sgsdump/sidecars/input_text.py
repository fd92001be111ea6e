"""Preprocessed inputs of the SDK as text (``--skip-preprocess``): ``Input_shape=H, W``, then ``v, `` sixteen per row.

H and W are the size of the original image, not of the values. Values are in the model's NHWC order: floats for the
float model (every digit of the float32 value, as Python prints it), integers for the fixed model.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import open_file, read_bytes

HEAD = b"Input_shape="
PER_ROW = 16
# Bytes of a 4096 x 4096 RGB image with all float digits.
LIMIT = 1 << 30


@dataclass(frozen=True, eq=False)
class InputText:
    """Size of the original image, and flat ``values``: float32, or int32 if the file has only integers."""

    height: int
    width: int
    values: np.ndarray


def is_input_text(path: Path) -> bool:
    """Return whether the file begins like a preprocessed input."""
    try:
        with open_file(path) as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def read(path: Path | str) -> InputText:
    """Read a preprocessed input.

    Raises FormatError if the file has another form, and ConfigError if it cannot be read.
    """
    path = Path(path)
    head, _, body = read_bytes(path, LIMIT).partition(b"\n")
    match = re.fullmatch(rb"Input_shape=\s*(\d{1,9})\s*,\s*(\d{1,9})\s*,?\s*", head)
    if not match:
        raise FormatError(f"{path}:1: {head[:60]!r} is not 'Input_shape=H, W', so this is no preprocessed input")
    return InputText(int(match[1]), int(match[2]), _values(body, path))


def write(path: Path | str, values: np.ndarray, height: int, width: int) -> None:
    """Write the values in C order: integers unchanged, others as float32. Raises OutputError."""
    flat = np.asarray(values).reshape(-1)
    numbers = flat if flat.dtype.kind in "iu" else flat.astype(np.float32).astype(np.float64)
    with replacing(Path(path)) as file:
        file.write(b"Input_shape=%d, %d\n" % (height, width))
        for start in range(0, numbers.size, PER_ROW):
            row = "".join(f"{value}, " for value in numbers[start : start + PER_ROW].tolist())
            file.write(row.encode() + b"\n")


def _values(body: bytes, path: Path) -> np.ndarray:
    if re.search(rb"[^0-9eEaAnNiIfF+\-., \r\n]", body):
        raise FormatError(f"{path}: text other than numbers and commas after the first line")
    body = body.strip()
    if re.search(rb"(?:^|,)\s*,", body):  # numpy would read -1
        raise FormatError(f"{path}: a value is missing before a comma, below the first line")
    whole = re.search(rb"[.eEnN]", body) is None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns about invalid text, and stops reading there
            values = np.fromstring(body, np.float64, sep=",")
    except (ValueError, DeprecationWarning) as error:
        raise FormatError(f"{path}: the values after the first line are not numbers separated by commas") from error
    if not body:
        raise FormatError(f"{path}: no values after the first line")
    if not whole:
        with np.errstate(over="ignore"):  # overflow becomes inf, which the feed check reports
            return values.astype(np.float32)
    if np.abs(values).max() > 2**31 - 1:
        raise FormatError(f"{path} contains an integer with an absolute value of 2^31 or more")
    return values.astype(np.int32)
