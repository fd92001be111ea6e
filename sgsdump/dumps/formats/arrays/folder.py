"""Reader of a folder with one tensor per file, in any mixture of formats and with subfolders.

::

    conv1.npy, all.npz, conv1.safetensors, conv1.pt     arrays of numpy, safetensors and torch
    conv1.txt, conv1.csv                                numbers as text (``number_text.py``)
    conv1_1x8x6x6_float32.bin, conv1.raw                values without a header; type and shape are in the name
                                                        (``shared/raw_facts.py``) or a list (``shared/shape_lists.py``)
    output/Result_0/conv1.raw                           of qnn-net-run and snpe-net-run; several results are runs

Each tensor is an output. Its name is the path of its file below the folder, without ending, shape and type. If a file
has several tensors, their own names follow. If a list names all tensors, it gives the order; otherwise, tensors are
ordered by name (``conv2`` before ``conv10``). If two files have the same tensor name, the folder is refused.

Other files are ignored. A file that sgsdump wrote (with a manifest) is a complete dump, so it is skipped with a note.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.dumps.dump import FOLDER, Damage, Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import manifest, npy_file, zip_member
from sgsdump.dumps.runs import Run
from sgsdump.errors import ConfigError, FormatError, listed
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.files.folder import files_below, has_file, in_order
from sgsdump.files.mapped import Source, source_of, view
from sgsdump.tensors.tensor import Tensor, TensorInfo

if TYPE_CHECKING:
    from sgsdump.dumps.formats.shared.raw_facts import Facts
    from sgsdump.dumps.formats.shared.shape_lists import ShapeLists

NPY, TORCH, RAW, TEXT = (".npy",), (".pt", ".pth"), (".bin", ".raw", ".dat"), (".txt", ".csv", ".tsv")
ARCHIVES = (".npz", ".safetensors")
ENDINGS = (*NPY, *ARCHIVES, *TORCH, *TEXT, *RAW)
RESULT = re.compile(r"Result_([0-9]{1,9})")
_HEAD = 4096
_OURS = manifest.NAME.encode()
_READ_BYTES = 1 << 20
RawReader = Callable[[Path, str], Tensor | None]


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_dir():
        return False
    if has_file(path, ENDINGS[: -len(RAW)], is_tensor_file):
        return True
    if not has_file(path, RAW):
        return False
    if has_file(path, RAW, _is_named):
        return True
    from sgsdump.dumps.formats.shared.shape_lists import read_lists

    folder = next(iter(_results(path).values()), path)
    lists = read_lists(folder)
    return bool(lists) and has_file(folder, RAW, partial(_is_listed, lists, folder))


def is_tensor_file(path: Path) -> bool:
    """Return whether a file with one of ``ENDINGS`` holds tensors, by its name and its first bytes."""
    ending = path.suffix
    if ending in TEXT:
        return _holds_numbers(path)
    if ending in RAW:
        return _is_named(path)
    if ending in NPY:
        return True
    try:
        with open_file(path) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if ending == ".safetensors":
        from sgsdump.dumps.formats.arrays import safetensors

        return safetensors.recognises(path, head) and _OURS not in head[:80]
    if ending == ".npz":
        return head.startswith(zip_member.MAGIC) and not _is_own_archive(path)
    return head.startswith((zip_member.MAGIC, b"\x80"))


def recognises_file(path: Path, head: bytes) -> bool:
    """Return whether a file holds numbers as text, or has the type and shape of its values in its name."""
    if path.suffix in TEXT:
        return bool(head) and _holds_numbers(path)
    if path.suffix not in RAW or not path.is_file():
        return False
    from sgsdump.dumps.formats.shared.raw_facts import fitting

    return fitting(path.stem, path.stat().st_size) is not None


def read_file(path: Path) -> Dump:
    """Read a single file with one tensor. Raises FormatError."""
    if path.suffix in TEXT:
        tensor = _read_text(path, path.stem, lambda: None)
    else:
        from sgsdump.dumps.formats.shared.raw_facts import fitting

        facts = fitting(path.stem, path.stat().st_size)
        if facts is None:
            raise FormatError(f"{path}: the file size does not match the type and shape in the name. Check the name")
        tensor = raw_tensor(path, facts)
    return Dump([Record("out", 0, 0, "", tensor)], FILE.name, None, path)


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the folders ``Result_N`` as runs."""
    return [Run(place.name, None, number) for number, place in sorted(_results(path).items())]


def read(path: Path) -> Dump:
    """Read a folder; values are loaded on request. Raises FormatError, and ConfigError for repeated tensor names."""
    return read_files(path)


def read_files(path: Path, patterns: Sequence[str] = (), raw: RawReader | None = None) -> Dump:
    """Read the files of a folder whose path or name matches one of the patterns; without patterns, all files.

    raw  reads a file without a header, given its path and its name below the folder.
    """
    notes: list[str] = []
    results = _results(path)
    folder = next(iter(results.values())) if len(results) == 1 else path
    names = files_below(folder, ENDINGS, notes)
    chosen = [name for name in names if not patterns or any(matches(name, pattern) for pattern in patterns)]
    if patterns and not chosen:
        raise ConfigError(f"{path}: --files {' '.join(patterns)} matches none of {len(names)} tensor files")
    files = _Files(folder, chosen, notes, raw)
    tensors = files.tensors()
    _check_share(folder, files.read)
    _check_names(path, tensors)
    if not tensors:
        raise FormatError(f"{_no_tensor(path, chosen)} ({notes[-1] if notes else 'there is none'})")
    ordered = _ordered([tensor for _, tensor in tensors], files.lists)
    format = "npy_dir" if all(name.endswith(NPY) for name, _ in tensors) else FOLDER
    return Dump([Record("out", 0, n, "", tensor) for n, tensor in enumerate(ordered)], format, None, path, notes)


class _Files:
    """Reader of tensor files in a folder; ``read`` lists the files that were read."""

    def __init__(self, folder: Path, names: Sequence[str], notes: list[str], raw: RawReader | None):
        self.folder, self.names, self.notes, self._raw = folder, sorted(names, key=in_order), notes, raw
        self.read: list[str] = []
        self._lists: ShapeLists | None = None

    @property
    def lists(self) -> ShapeLists | None:
        """The lists beside the files; None if no file needed them."""
        return self._lists

    def tensors(self) -> list[tuple[str, Tensor]]:
        """Return the tensors with the names of their files. Files without tensors are left out with a note."""
        found: list[tuple[str, Tensor]] = []
        unknown: list[str] = []
        for name in self.names:
            path = self.folder / name
            is_tensor = name.endswith((*NPY, *RAW)) or is_tensor_file(path)
            if not is_tensor:
                if name.endswith(ARCHIVES) and _is_own(path):
                    self.notes.append(f"{name} is a complete dump; open it separately")
                continue
            try:
                tensors = self._read(path, name)
            except FormatError as error:
                self.read.append(name)
                self.notes.append(Damage.left_out(error))
                continue
            if tensors is None:
                unknown.append(name)
                continue
            self.read.append(name)
            found += [(name, tensor) for tensor in tensors]
        if unknown:
            self._tell_unknown(unknown, bool(found))
        return found

    def _tell_unknown(self, unknown: Sequence[str], beside_others: bool) -> None:
        text = (
            f"{listed(unknown)}: neither the name nor a list gives type and shape. Give the type: --raw-dtype float32"
        )
        if not beside_others:
            raise FormatError(f"{self.folder}: {text}")
        self.notes.append(f"left out: {text}")

    def _read(self, path: Path, name: str) -> list[Tensor] | None:
        """Return the tensors of a file; None if its type or shape is unknown."""
        stem = name.rpartition(".")[0]
        if name.endswith(RAW):
            tensor = self._raw(path, name) if self._raw is not None else self._described(path, name, stem)
            return None if tensor is None else [tensor]
        if name.endswith(NPY):
            return [npy_file.plain_tensor(path, stem, self.notes)]
        if name.endswith(TEXT):
            return [_read_text(path, stem, lambda: self._listed(name, 0))]
        if name.endswith(TORCH):
            from sgsdump.dumps.formats.shared.torch_tensors import read_tensors

            tensors = read_tensors(path, stem, self.notes)
            return tensors if len(tensors) == 1 else [_renamed(each, f"{stem}.{each.name}") for each in tensors]
        from sgsdump.dumps.formats.arrays import npz, safetensors

        dump = (npz if name.endswith(".npz") else safetensors).read(path)
        self.notes += dump.notes
        alone = len(dump.records) == 1
        return [_renamed(each.tensor, stem if alone else f"{stem}/{each.name}") for each in dump.records]

    def _described(self, path: Path, name: str, stem: str) -> Tensor | None:
        from sgsdump.dumps.formats.shared.raw_facts import fitting, named

        # The values are read later; a file that cannot be read is reported now, as for files with a header.
        with reading(path), open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
        facts = fitting(stem, size)
        if facts is None:
            facts = self._listed(name, size) or next((each for each in named(stem) if each.dtype is not None), None)
            if facts is None or facts.dtype is None:
                return None
            facts = facts._replace(name=next((each.name for each in named(stem) if each.shape == facts.shape), stem))
        if not facts.fits(size):
            raise FormatError(
                f"{path} has {size} bytes, which do not fit {facts}, the type and shape in the file name or in a list "
                "of shapes"
            )
        return raw_tensor(path, facts)

    def _listed(self, name: str, size: int) -> Facts | None:
        if self._lists is None:
            from sgsdump.dumps.formats.shared.shape_lists import read_lists

            self._lists = read_lists(self.folder)
        return self._lists.of(name, size)


def _holds_numbers(path: Path) -> bool:
    from sgsdump.dumps.formats.arrays import number_text

    return number_text.holds_numbers(path)


def _read_text(path: Path, stem: str, facts_of_list: Callable[[], Facts | None]) -> Tensor:
    from sgsdump.dumps.formats.arrays import number_text

    return number_text.read_tensor(path, stem, facts_of_list)


def raw_tensor(path: Path, facts: Facts) -> Tensor:
    """Return the tensor of a file without a header. The size of the file must fit the facts."""
    assert facts.dtype is not None and facts.shape is not None
    info = TensorInfo(
        facts.name, facts.shape, facts.dtype.newbyteorder("<") if facts.dtype.kind in "iuf" else facts.dtype
    )
    return Tensor(info, partial(_load, source_of(path), info.dtype, facts.shape))


def _load(source: Source, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    small = count * dtype.itemsize < _READ_BYTES
    flat = source.read(0, count * dtype.itemsize).view(dtype) if small else view(source, dtype, count, 0)
    return flat.reshape(shape)


def _renamed(tensor: Tensor, name: str) -> Tensor:
    return Tensor(replace(tensor.info, name=name), tensor.raw, tensor.statistics)


def _results(path: Path) -> dict[int, Path]:
    """Return the folders ``Result_N`` directly in a folder, by number."""
    try:
        return {int(match[1]): below for below in path.iterdir() if (match := RESULT.fullmatch(below.name))}
    except OSError:
        return {}


def _is_named(path: Path) -> bool:
    from sgsdump.dumps.formats.shared.raw_facts import named

    return any(facts.dtype is not None for facts in named(path.stem))


def _is_listed(lists: ShapeLists, root: Path, path: Path) -> bool:
    facts = lists.of(path.relative_to(root).as_posix(), path.stat().st_size)
    return facts is not None and facts.dtype is not None


def _is_own(path: Path) -> bool:
    if path.suffix == ".npz":
        return _is_own_archive(path)
    try:
        with open_file(path) as file:
            return _OURS in file.read(_HEAD)
    except OSError:
        return False


def _is_own_archive(path: Path) -> bool:
    import zipfile

    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            return not {manifest.NAME, f"{manifest.NAME}.npy"}.isdisjoint(archive.namelist())
    except Exception:
        # For a hostile directory, zipfile may raise any exception; reading the file reports it.
        return False


def matches(name: str, pattern: str) -> bool:
    """Return whether the path of a file below its folder, or its name, matches a pattern."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("/")[2], pattern)


def _check_names(path: Path, tensors: Sequence[tuple[str, Tensor]]) -> None:
    """Raise ConfigError if two files have a tensor of the same name."""
    counts = Counter(tensor.name for _, tensor in tensors)
    name, count = next(((name, count) for name, count in counts.items() if count > 1), ("", 0))
    if not count:
        return
    files = [file for file, tensor in tensors if tensor.name == name]
    endings = Counter(Path(file).suffix for file, _ in tensors)
    usual = max((Path(file).suffix for file in files), key=lambda ending: endings[ending])
    raise ConfigError(
        f"{path}: {count} files hold the tensor {name!r}: {listed(files)}. Select files by name: --files '*{usual}'"
    )


def _check_share(folder: Path, files: Sequence[str]) -> None:
    """Raise FormatError for a folder of other files with only a few arrays deep below."""
    if any("/" not in name for name in files):
        return
    others = len(files_below(folder, "", [])) - len(files)
    if files and others > len(files):
        first = min(files, key=in_order).rpartition("/")[0]
        endings = " or ".join(sorted({Path(name).suffix for name in files}))
        raise FormatError(
            f"{folder} is not a dump: only {len(files)} of the {len(files) + others} files in this folder and "
            f"its subfolders are {endings} files. Give the folder that contains the arrays ({first})"
        )


def _ordered(tensors: Sequence[Tensor], lists: ShapeLists | None) -> list[Tensor]:
    """Return the tensors in the order of the lists if these name all tensors, else in natural order of their names."""
    places: dict[str, int] = {}
    for place, name in enumerate(lists.order if lists else ()):
        places.setdefault(name, place)
        if name.endswith(ENDINGS):
            places.setdefault(name.rpartition(".")[0], place)
    if all(tensor.name in places for tensor in tensors):
        return sorted(tensors, key=lambda tensor: places[tensor.name])
    return list(tensors)


def _no_tensor(path: Path, names: Sequence[str]) -> str:
    endings = sorted({Path(name).suffix for name in names})
    return f"no {' or '.join(endings) or 'tensor'} file in {path} contains a tensor"


def tensors_beside(path: Path, patterns: Sequence[str], notes: list[str]) -> Iterator[Tensor]:
    """Yield the tensors of a folder's files that have a header or are text, for a folder that also has raw files."""
    names = [name for name in files_below(path, ENDINGS[: -len(RAW)], []) if is_tensor_file(path / name)]
    chosen = [name for name in names if not patterns or any(matches(name, pattern) for pattern in patterns)]
    yield from (tensor for _, tensor in _Files(path, chosen, notes, None).tensors())


FILE = Format("tensor_file", recognises_file, read_file, one_tensor=True)
FORMAT = Format(FOLDER, recognises, read, looks_for="tensor files", runs=runs)
