"""Forms of ``-i``, and the files that they denote: one tuple per run, one file per model input.

``cat.jpg`` an image · ``x.npy`` an array · ``x.npz`` one array per input, by input name · ``in.txt`` the SDK's
``Input_shape=`` text · ``folder`` its images, .npy and .npz files, sorted · ``list.txt`` one path per line ·
``folder:list.txt`` the same, each line inside folder · ``random`` or ``random:SEED`` random values. A model with
several inputs takes a list of lines ``a,b``, or ``a,b`` itself: files, or one folder per input whose sorted files are
combined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from sgsdump.errors import InputError
from sgsdump.files.bounded_read import is_file, open_file, read_start
from sgsdump.files.escaping import quoted
from sgsdump.files.folder import leads_out_of
from sgsdump.sidecars.input_text import is_input_text

PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm", ".pnm"}
NAMED = ".npz"
FILES = PICTURES | {".npy", NAMED}
LIST_LIMIT = 64 << 20
Item = TypeVar("Item")


def expand(images: str, inputs: int = 1) -> list[tuple[str, ...]]:
    """Return the files of each run, ``inputs`` at a time.

    A single .npz file holds all inputs. Random values are ``("random:SEED",)``. Raises InputError for a path that does
    not exist, an empty folder or list, and a line with too few or too many files.
    """
    seed = random_seed(images)
    if seed is not None:
        return [(f"random:{seed}",)]
    path = Path(images)
    if path.is_dir():
        return [_fit((file,), inputs, str(path)) for file in _folder(path)]
    if not path.exists():
        return _not_a_path(images, inputs)
    if path.suffix.lower() in FILES or is_input_text(path) or not _is_text(path):
        return [_fit((images,), inputs, images)]
    return _lines(path, Path(), inputs)


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` evenly spaced items, including the first and last."""
    indices = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[index] for index in indices]


def is_named(files: Sequence[str]) -> bool:
    """Return whether a run has one file that holds all inputs by name."""
    return len(files) == 1 and Path(files[0]).suffix.lower() == NAMED


def are_arrays(files: Sequence[str]) -> bool:
    """Return whether all files of a run hold numbers instead of images."""
    return all(Path(file).suffix.lower() in (".npy", NAMED) for file in files)


def places(images: str) -> list[Path]:
    """Return the files and folders that ``images`` names in any of its forms; [] for random values."""
    return [] if random_seed(images) is not None else [Path(images), *map(Path, re.split("[,:]", images))]


def random_seed(images: str) -> int | None:
    """Return the seed of ``random`` (0) or ``random:SEED``; None for other text."""
    match = re.fullmatch(r"random(?::(\d{1,18}))?", images)
    return int(match[1] or 0) if match else None


def _not_a_path(images: str, inputs: int) -> list[tuple[str, ...]]:
    folder, colon, listed = images.rpartition(":")
    if colon and Path(folder).is_dir() and Path(listed).is_file():
        return _lines(Path(listed), Path(folder), inputs)
    if colon and Path(listed).is_file():
        raise InputError(f"{images} was read as FOLDER:LIST, but there is no folder {quoted(folder)}")
    if inputs > 1 and "," in images:
        folders = [Path(name.strip()) for name in images.split(",")]
        if all(folder.is_dir() for folder in folders):
            return _side_by_side(folders, inputs, images)
        return [_fit(tuple(_file(name.strip(), Path(), None, "-i") for name in images.split(",")), inputs, images)]
    raise InputError(f"there is no image, folder or list {quoted(images)}")


def _side_by_side(folders: Sequence[Path], inputs: int, images: str) -> list[tuple[str, ...]]:
    files = [_folder(folder) for folder in folders]
    if len({len(names) for names in files}) > 1:
        counts = ", ".join(f"{folder} {len(names)}" for names, folder in zip(files, folders))
        raise InputError(f"-i {images}: the folders have different numbers of files ({counts})")
    return [_fit(run, inputs, images) for run in zip(*files)]


def _folder(path: Path) -> list[str]:
    files = sorted(str(file) for file in path.iterdir() if file.suffix.lower() in FILES and file.is_file())
    if not files:
        raise InputError(
            f"there are no images and no .npy or .npz files in the folder {path}; use a data loader for other "
            f"files (--data-loader-script, docs/any_data.md)"
        )
    return files


def _lines(path: Path, folder: Path, inputs: int) -> list[tuple[str, ...]]:
    try:
        text = read_start(path, LIST_LIMIT).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"cannot read the list {path}: {error.strerror}") from error
    runs = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}:{number}"
            # With one input, a comma is part of the name.
            names = line.split(",") if inputs > 1 else [line]
            runs.append(_fit(tuple(_file(name.strip(), folder, path.parent, where) for name in names), inputs, where))
    if not runs:
        raise InputError(f"the list {path} is empty; write one image per line")
    return runs


def _file(name: str, folder: Path, beside: Path | None, where: str) -> str:
    """Return the file inside ``folder``; a list may also name files relative to itself.

    A list of files in a folder must not lead out of the folder.
    """
    if folder != Path() and leads_out_of(folder, name) and (beside is None or leads_out_of(beside, name)):
        raise InputError(f"{where}: {quoted(name)} is outside the folder {quoted(str(folder))}")
    for base in (folder, beside):
        if base is not None and name and is_file(base / name):
            return str(base / name)
    raise InputError(f"{where}: there is no file {quoted(str(folder / name) if name else name)}")


def _fit(files: tuple[str, ...], inputs: int, where: str) -> tuple[str, ...]:
    if len(files) == inputs or is_named(files):
        return files
    raise InputError(
        f"{where}: {len(files)} file{'s' if len(files) > 1 else ''} for a model of {inputs} inputs; give a list with "
        f"one file per input on each line, separated by commas"
    )


def _is_text(path: Path) -> bool:
    try:
        with open_file(path) as file:
            start = file.read(4096)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return not re.search(rb"[\x00-\x08\x0e-\x1f]", start)
