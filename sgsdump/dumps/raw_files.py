"""Reader of raw files: values without a header, whose element type the user supplies.

::

    output/Result_0/prob.raw                  QNN and SNPE (qnn-net-run, snpe-net-run); one folder per input
    output/Result_0/Predictions/Reshape_1.raw tensor names may contain folders
    prob.bin                                  any file, or a folder of .bin files, that no format recognises

Values are little-endian, in C order. Each file is one output tensor. Its name is the path below the given folder,
without the ending. If a folder has several ``Result_N``, ``step`` N selects one.

A tensor without a shape is flat, and a comparison takes the shape from the other dump (``comparison/layout_match.py``).
These tools write NHWC for models in NCHW; the comparison detects this. They also replace each character other than a
letter or digit by ``_``; the comparison pairs such names too.

The user gives shapes by name pattern or by a model. A model's tensor matches a file of the same name, also after this
replacement; the tensor then gets the name and the shape from the model. If the user
gives no shape, the shape comes from the file name or from a list beside the file (``formats/shared/raw_facts.py``,
``shape_lists.py``). If the name or list also has a type, this type replaces the user's default type.

Source: the documentation of qnn-net-run (--output_dir, --use_native_output_files) and snpe-net-run (--output_dir).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import FOLDER, RAW, Dump, Record
from sgsdump.dumps.formats.arrays.folder import FILE, RESULT, matches, tensors_beside
from sgsdump.dumps.formats.shared.raw_facts import Facts, fitting, named
from sgsdump.dumps.formats.shared.shape_lists import ShapeLists, read_lists
from sgsdump.dumps.trees import known_format
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.folder import files_below, has_file, in_order
from sgsdump.files.mapped import Source, source_of, view
from sgsdump.files.names import word
from sgsdump.tensors.dtypes import bits, name_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDING, BIN = ".raw", ".bin"
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class RawFacts:
    """User-supplied facts about raw files.

    dtypes  (name pattern, element type); the last matching pattern counts.
    shapes  (name pattern, shape); the last matching pattern counts.
    model   shapes of the model's tensors by name.
    """

    dtypes: Sequence[tuple[str, np.dtype]]
    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    model: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)


def is_raw(path: Path) -> bool:
    """Return whether a path holds raw files: ``.raw`` files, or files that no format recognises."""
    if path.is_dir():
        if has_file(path, ENDING):
            return True
        return has_file(path, BIN) and known_format(path) in ("", FOLDER)
    return path.is_file() and (path.suffix == ENDING or known_format(path) in ("", FILE.name))


def open_raw(path: Path, facts: RawFacts, step: int | None = None, patterns: Sequence[str] = ()) -> Dump:
    """Return the dump of a raw file or of a folder with raw files; ``step`` N selects the folder ``Result_N``.

    patterns  only the files of a folder whose path or name matches a pattern are read.

    Raises ConfigError if several results exist and none is selected, for an element type smaller than a byte, and for a
    pattern without a match. Raises FormatError if a file's size does not fit its element type or shape.
    """
    notes: list[str] = []
    lists, beside = ShapeLists({}), list[Tensor]()
    if path.is_dir():
        folder = _result(path, step)
        names = files_below(folder, ENDING, notes) or files_below(folder, BIN, notes)
        names = [name for name in names if not patterns or any(matches(name, pattern) for pattern in patterns)]
        files = {name.rpartition(".")[0]: folder / name for name in sorted(names, key=in_order)}
        lists, beside = read_lists(folder), list(tensors_beside(folder, patterns, notes))
    else:
        files = {path.stem: path}
    if not files:
        raise FormatError(f"{path} holds no {ENDING} or {BIN} file")
    _check_patterns([pattern for pattern, _ in (*facts.dtypes, *facts.shapes)], list(files))
    by_word = {word(name): name for name in facts.model}
    tensors = [_tensor(file, name, facts, lists, by_word, notes) for name, file in files.items()] + beside
    ordered = [tensor.info.name for tensor in tensors if _is_ordered(facts.model.get(tensor.info.name, ()))]
    if ordered:
        notes.append(
            f"{len(ordered)} tensors take their shapes from the model and are assumed to have its layout: "
            f"{', '.join(ordered[:3])}; if the tool wrote NHWC, give --raw-shape PATTERN=SHAPE"
        )
    return Dump([Record("out", 0, index, "", tensor) for index, tensor in enumerate(tensors)], RAW, None, path, notes)


def _tensor(
    file: Path, name: str, facts: RawFacts, lists: ShapeLists, by_word: Mapping[str, str], notes: list[str]
) -> Tensor:
    pattern, dtype = next(
        ((each, dtype) for each, dtype in reversed(facts.dtypes) if fnmatchcase(name, each)), ("", None)
    )
    told = _told(file, name, lists)
    if pattern == "*" and told is not None and told.dtype is not None:
        dtype = told.dtype
    if dtype is None:
        raise ConfigError(f"no element type given for raw file {name!r}. Add a default: --raw-dtype float32")
    if bits(dtype) != 8 * dtype.itemsize:
        raise ConfigError(f"raw files of {name_of(dtype)} are not supported. Unpack the values to int8 or uint8")
    size = file.stat().st_size
    if size % dtype.itemsize or not size:
        raise FormatError(f"{file} has {size} bytes, not a whole number of {name_of(dtype)} values")
    count = size // dtype.itemsize
    info = TensorInfo(name, None, dtype)
    shape = next((shape for pattern, shape in reversed(facts.shapes) if fnmatchcase(name, pattern)), None)
    if shape is not None and math.prod(shape) != count:
        raise FormatError(f"{file} has {count} values of {name_of(dtype)}, which do not fit the shape {list(shape)}")
    meant = name if name in facts.model else by_word.get(word(name))
    if meant is not None:
        info = replace(info, name=meant)
        if math.prod(facts.model[meant]) != count:
            notes.append(f"{name!r} has {count} values, which do not fit the model's shape {list(facts.model[meant])}")
        elif shape is None:
            shape = facts.model[meant]
    elif shape is None and told is not None and math.prod(told.shape or ()) == count:
        info, shape = replace(info, name=told.name), told.shape
    return Tensor(replace(info, shape=shape), partial(_load, source_of(file), dtype, shape, count))


def _told(file: Path, name: str, lists: ShapeLists) -> Facts | None:
    """Return name, shape and type from the file name or a list. The type is None if it does not fit the file size."""
    size = file.stat().st_size
    if facts := fitting(name, size):
        return facts
    facts = lists.of(f"{name}{file.suffix}", size) or next(named(name), None)
    if facts is None or facts.shape is None:
        return None
    by_name = next((each.name for each in named(name) if each.shape == facts.shape), name)
    return Facts(by_name, facts.shape, facts.dtype if facts.fits(size) else None)


def _load(source: Source, dtype: np.dtype, shape: tuple[int, ...] | None, count: int) -> np.ndarray:
    small = count * dtype.itemsize < _READ_BYTES
    flat = source.read(0, count * dtype.itemsize).view(dtype) if small else view(source, dtype, count, 0)
    return flat if shape is None else flat.reshape(shape)


def _is_ordered(shape: tuple[int, ...]) -> bool:
    """Return whether NCHW and NHWC order the values of this shape differently."""
    return len(shape) > 2 and shape[1] > 1 and math.prod(shape[2:]) > 1


def _result(path: Path, step: int | None) -> Path:
    results = {int(match[1]): below for below in path.iterdir() if (match := RESULT.fullmatch(below.name))}
    if not results:
        return path
    if step is None and len(results) > 1:
        raise ConfigError(
            f"{path} holds {len(results)} results; choose one with --step N, or name the folder of one result"
        )
    chosen = next(iter(results)) if step is None else step
    if chosen not in results:
        raise ConfigError(f"{path} has no Result_{chosen}; it has {', '.join(map(str, sorted(results)[:5]))}")
    return results[chosen]


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"no raw file matches {pattern!r}; found: {', '.join(names[:5])}")
