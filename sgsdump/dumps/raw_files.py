"""Files of bare values without a header, whose type only the user knows.

::

    output/Result_0/prob.raw                  QNN and SNPE: qnn-net-run, snpe-net-run; a folder for each input
    output/Result_0/Predictions/Reshape_1.raw the name of a tensor may have folders
    prob.bin                                  any file, or a folder of .bin files, that no format recognises

Values are little-endian, in C order. A tensor is an output named as its file without the ending, with the folders below
the one that was named. A folder of several ``Result_N`` needs a choice of ``step`` N. Without a shape a tensor is flat,
and a comparison takes the shape from the other side (``comparison/layout_match.py``): these tools put out NHWC where
the model was NCHW, which it finds. It pairs names that these tools wrote with ``_`` for all that is no letter or digit,
too. A shape is given by a pattern of names, or by the model: a tensor of it has the
file's name, or has it with ``_`` for all that is no letter or digit, and is named as the model names it then.

Source: the documentation of qnn-net-run (--output_dir, --use_native_output_files) and snpe-net-run (--output_dir).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import RAW, Dump, Record
from sgsdump.dumps.trees import format_of
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.folder import files_below, has_file, in_order
from sgsdump.files.mapped import Source, source_of, view
from sgsdump.files.names import word
from sgsdump.tensors.dtypes import bits, name_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDING, BIN = ".raw", ".bin"
_RESULT = re.compile(r"Result_(\d{1,9})", re.ASCII)
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class RawFacts:
    """What the user knows of raw files.

    dtypes  patterns of names and the element type of those they fit; the last that fits counts.
    shapes  the same with shapes. model  the tensors of the model, by name, and their shapes.
    """

    dtypes: Sequence[tuple[str, np.dtype]]
    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    model: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)


def is_raw(path: Path) -> bool:
    """Whether a path is raw files: ``.raw`` ones, or any that no format recognises."""
    if path.is_dir():
        if has_file(path, ENDING):
            return True
        return has_file(path, BIN) and not _is_known(path)
    return path.is_file() and (path.suffix == ENDING or not _is_known(path))


def open_raw(path: Path, facts: RawFacts, step: int | None = None) -> Dump:
    """The dump of a raw file, or of those in a folder; ``step`` N is for the folder ``Result_N``.

    Raises ConfigError for a choice that is to be made, for a type that no whole byte holds and a pattern that fits no
    name, FormatError for a file that is no whole number of elements or of another size than its shape.
    """
    notes: list[str] = []
    if path.is_dir():
        folder = _result(path, step)
        names = files_below(folder, ENDING, notes) or files_below(folder, BIN, notes)
        files = {name.rpartition(".")[0]: folder / name for name in sorted(names, key=in_order)}
    else:
        files = {path.stem: path}
    if not files:
        raise FormatError(f"{path} holds no {ENDING} or {BIN} file")
    _check_patterns([pattern for pattern, _ in (*facts.dtypes, *facts.shapes)], list(files))
    by_word = {word(name): name for name in facts.model}
    tensors = [_tensor(file, name, facts, by_word, notes) for name, file in files.items()]
    ordered = [tensor.info.name for tensor in tensors if _is_ordered(facts.model.get(tensor.info.name, ()))]
    if ordered:
        notes.append(
            f"tensors have the model's shapes ({len(ordered)}), as if they lay as in the model: "
            f"{', '.join(ordered[:3])}; where the tool put out NHWC, give --raw-shape PATTERN=SHAPE"
        )
    return Dump([Record("out", 0, index, "", tensor) for index, tensor in enumerate(tensors)], RAW, None, path, notes)


def _tensor(file: Path, name: str, facts: RawFacts, by_word: Mapping[str, str], notes: list[str]) -> Tensor:
    dtype = next((dtype for pattern, dtype in reversed(facts.dtypes) if fnmatchcase(name, pattern)), None)
    if dtype is None:
        raise ConfigError(f"no element type fits the raw file {name!r}; give one for all others: --raw-dtype float32")
    if bits(dtype) != 8 * dtype.itemsize:
        raise ConfigError(f"raw values of {name_of(dtype)} are not read; unpack them to int8 or uint8")
    size = file.stat().st_size
    if size % dtype.itemsize or not size:
        raise FormatError(f"{file} has {size} bytes, which are no whole number of {name_of(dtype)}")
    count = size // dtype.itemsize
    info = TensorInfo(name, None, dtype)
    shape = next((shape for pattern, shape in reversed(facts.shapes) if fnmatchcase(name, pattern)), None)
    if shape is not None and math.prod(shape) != count:
        raise FormatError(f"{file} has {count} values of {name_of(dtype)}, not those of the shape {list(shape)}")
    meant = name if name in facts.model else by_word.get(word(name))
    if meant is not None:
        info = replace(info, name=meant)
        if math.prod(facts.model[meant]) != count:
            notes.append(f"{name!r} has {count} values, not those of the model's shape {list(facts.model[meant])}")
        elif shape is None:
            shape = facts.model[meant]
    return Tensor(replace(info, shape=shape), partial(_load, source_of(file), dtype, shape, count))


def _load(source: Source, dtype: np.dtype, shape: tuple[int, ...] | None, count: int) -> np.ndarray:
    small = count * dtype.itemsize < _READ_BYTES
    flat = source.read(0, count * dtype.itemsize).view(dtype) if small else view(source, dtype, count, 0)
    return flat if shape is None else flat.reshape(shape)


def _is_ordered(shape: tuple[int, ...]) -> bool:
    """Whether a model's shape has channels that a tool may have put last."""
    return len(shape) > 2 and shape[1] > 1 and math.prod(shape[2:]) > 1


def _result(path: Path, step: int | None) -> Path:
    results = {int(match[1]): below for below in path.iterdir() if (match := _RESULT.fullmatch(below.name))}
    if not results:
        return path
    if step is None and len(results) > 1:
        raise ConfigError(f"{path} holds {len(results)} results; choose one with --step N, or name its folder")
    chosen = next(iter(results)) if step is None else step
    if chosen not in results:
        raise ConfigError(f"{path} has no Result_{chosen}; it has {', '.join(map(str, sorted(results)[:5]))}")
    return results[chosen]


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"no raw file fits {pattern!r}; there are: {', '.join(names[:5])}")


def _is_known(path: Path) -> bool:
    try:
        format_of(path)
    except FormatError:
        return False
    return True
