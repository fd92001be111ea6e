"""The error for a path that no format recognises: what the path looks like, and how to open it.

The error has one line. Its ``hints`` are a few further lines: the first values, at most three likely formats with the
option that opens each of them, and an example of your own reader.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.format import HEAD_BYTES
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import FormatError, UnknownFormat
from sgsdump.files.bounded_read import open_file
from sgsdump.files.escaping import quoted
from sgsdump.files.folder import files_below, in_order
from sgsdump.plugins import SWITCH, are_left_out
from sgsdump.sidecars.tensor_min_max import holds_ranges

MODELS = (".tflite", ".onnx", ".xml", ".prototxt", ".caffemodel")
_RAW = (".raw", ".bin", ".dat", "")
_TEXT = (".txt", ".csv", ".tsv", ".log", ".md")
_MOST_LIKELY, _SHOWN, _LISTED, _TRIED = 3, 4, 3, 20
_PLAUSIBLE, _SHARE = 0.9, 0.2
# onnxruntime's profile, and traces of the same format that torch and other tools write.
_PROFILE = re.compile(rb'\A\s*(?:\[\s*\{\s*"cat"\s*:\s*"|\{.{0,4000}?"traceEvents"\s*:)', re.DOTALL)


class Kind(NamedTuple):
    """Files that are not dumps: a description, and how to read their tensors."""

    endings: tuple[str, ...]
    signature: bytes
    what: str
    how: str


_KINDS = (
    Kind((".h5", ".hdf5"), b"\x89HDF\r\n", "HDF5", "read it with h5py in your own reader"),
    Kind(
        (".pkl", ".pickle"),
        b"\x80",
        "pickled Python objects, which sgsdump never loads",
        "save the arrays with numpy.savez",
    ),
    Kind((".zip",), b"PK\x03\x04", "a zip archive", "unpack it and name the folder"),
    Kind((".gz", ".tgz"), b"\x1f\x8b", "a compressed file", "unpack it first"),
    Kind((".tar",), b"", "a tar archive", "unpack it and name the folder"),
    Kind((".mat",), b"MATLAB", "a MATLAB file", "read it with scipy.io in your own reader"),
    Kind((".pb", ".pbtxt"), b"", "protobuf", "read it with the onnx package in your own reader"),
    Kind((".json", ".yaml", ".yml"), b"", "a document of another tool", "read its arrays in your own reader"),
    Kind((".png", ".jpg", ".jpeg", ".bmp"), b"", "images", "give them to sgsdump dump or diagnose with -i"),
    Kind(MODELS, b"", "models", "dump a model first: sgsdump dump -m MODEL -i INPUT"),
)


def refusal(path: Path, head: bytes) -> FormatError:
    """Return the error for a file or folder that no format recognises. ``head`` holds the first bytes of a file."""
    return _of_folder(path) if path.is_dir() else _of_file(path, head)


def _of_folder(path: Path) -> FormatError:
    try:
        files = sorted(files_below(path, "", []), key=in_order)
    except FormatError as error:
        return error
    if not files:
        return UnknownFormat(f"{path} is a folder, not a dump: it has no files. Give the folder of the dump")
    counts = Counter(Path(name).suffix.lower() for name in files)
    looks = ", ".join(f"{count} {ending or 'without ending'}" for ending, count in counts.most_common(_SHOWN))
    more = f" and {len(counts) - _SHOWN} other endings" if len(counts) > _SHOWN else ""
    usual = _usual(counts)
    first = next(name for name in files if Path(name).suffix.lower() == usual)
    head = _head(path / first)
    ways = list(islice(_ways_of_folder(path, files, counts, head), _MOST_LIKELY))
    likely = (
        f"It looks like {ways[0][0]}. {ways[0][1]}" if ways else "Read its files with your own reader: --reader FILE.py"
    )
    hints = [f"first {usual or 'such'} file: {first}, {_size(path / first)} bytes, begins with {_begins(head, usual)}"]
    hints += [f"or {what}: {how}" for what, how in ways[1:]]
    return UnknownFormat(
        f"{path} is a folder, not a dump: {looks}{more}. {likely}",
        [*hints, *_reader_lines(f'path.rglob("*{usual}")', _is_text(head))],
    )


def _ways_of_folder(path: Path, files: Sequence[str], counts: Counter[str], head: bytes) -> Iterator[tuple[str, str]]:
    """Yield descriptions of the folder, and how to open it; the most likely description comes first."""
    inner = [(place, name) for place in _entries(path) if (name := _format_at(place))]
    typed = shlex.quote(str(path))
    if len(inner) > 1:
        yield (
            f"{len(inner)} dumps, the first of format {inner[0][1]}",
            f"Name one, such as {inner[0][0]}; or compare all dumps of two such folders with --runs",
        )
    elif inner:
        yield f"a folder with a dump of format {inner[0][1]} below it", f"Name it: {inner[0][0]}"
    if inner:
        return
    raw = [name for name in files if Path(name).suffix.lower() in _RAW]
    if raw:
        dtype = _guess(head) if Path(raw[0]).suffix.lower() in _RAW else "float32"
        yield (
            "values without a header; neither file names nor lists give their type and shape",
            f"Give the type: --raw-dtype {dtype}",
        )
        yield (
            "values without a header that you can rename or list",
            f"Put type and shape in each name (conv1_1x64x56x56_{dtype}.bin), or in a list {typed}/shapes.json",
        )
    if any(counts[ending] for ending in _TEXT if ending in (".txt", ".csv", ".tsv")):
        yield "text that is not only numbers", "Mark other lines with #, or remove them"
    for kind in _KINDS:
        if sum(counts[ending] for ending in kind.endings) >= _SHARE * len(files):
            yield kind.what, f"{kind.how[0].upper()}{kind.how[1:]}"
    yield from _near_formats(counts)


def _near_formats(counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the formats of folders that need files with one of the endings."""
    for name, format in FORMATS.items():
        endings = set(re.findall(r"\.[a-z]+\b", format.looks_for))
        if endings & counts.keys():
            yield f"the format {name}", f"It needs {format.looks_for}; copy the complete folder"


def _of_file(path: Path, head: bytes) -> FormatError:
    typed, ending = shlex.quote(str(path)), path.suffix.lower()
    if ending in MODELS or head[4:8] == b"TFL3":
        made = shlex.quote(str(Path(path.name).with_suffix(".bin")))
        return FormatError(
            f"{path} is a model, not a dump; dump it first: sgsdump dump -m {typed} -i INPUT -o {made} (see sgsdump "
            f"dump --help)"
        )
    if ending == ".sim":
        return FormatError(
            f"{path} is a model, not a dump; dump it first: sgsdump simulate -m {typed} -t Float|Fixed -i INPUT "
            f"(see sgsdump simulate --help)"
        )
    if holds_ranges(path, head):
        return FormatError(
            f"{path} is not a dump: it holds calibration ranges. Draw a dump against the ranges: sgsdump histogram "
            f"DUMP {typed}; or compare them with other ranges: sgsdump compare {typed} OTHER"
        )
    if _PROFILE.search(head):
        return FormatError(
            f"{path} is a profile, not a dump: it holds times and shapes, but no values of tensors. Dump the values of "
            "the model: sgsdump dump -m MODEL -i INPUT"
        )
    ways: list[tuple[str, str]] = []
    kind = next((kind for kind in _KINDS if kind.signature and head.startswith(kind.signature)), None)
    kind = kind or next((kind for kind in _KINDS if ending in kind.endings), None)
    if kind is not None:
        ways.append((kind.what, f"{kind.how[0].upper()}{kind.how[1:]}"))
    elif _is_text(head):
        ways.append(("text that is not only numbers", "Mark other lines with #, and name the file .txt or .csv"))
    else:
        ways.append(("values without a header", f"Give the type: --raw-dtype {_guess(head)}"))
        ways.append(
            (
                "values without a header, if you can rename the file",
                f"Rename it: {path.stem}_1x64x56x56_{_guess(head)}.bin",
            )
        )
    left_out = f" Plug-ins are disabled ({SWITCH})." if are_left_out() else ""
    hints = [f"{_size(path)} bytes, begins with {_begins(head, ending)}"]
    hints += [f"or {what}: {how}" for what, how in ways[1:]]
    return UnknownFormat(
        f"{path} is not a dump of a known format; it looks like {ways[0][0]}.{left_out} {ways[0][1]}",
        [*hints, *_reader_lines("[path]", _is_text(head))],
    )


def _reader_lines(files: str, is_text: bool) -> list[str]:
    """Return the lines of an example of a user's reader."""
    values = "np.loadtxt(file)" if is_text else "np.fromfile(file, np.float32)"
    return [
        "or another format: save these lines as my_reader.py, and add --reader my_reader.py",
        "    import numpy as np",
        "    def read(path):",
        f"        for file in {files}:",
        f"            yield file.stem, {values}  # name and array of a tensor",
    ]


def _entries(path: Path) -> list[Path]:
    """Return the first few files and folders directly in a folder."""
    try:
        entries = (entry for entry in path.iterdir() if not entry.is_symlink() and entry.name[0] != ".")
        return sorted(islice(entries, _TRIED), key=lambda entry: in_order(entry.name))
    except OSError:
        return []


def _format_at(path: Path) -> str:
    """Return the name of sgsdump's format that recognises a path directly in the folder; "" if there is none."""
    if not (path.is_dir() or path.is_file()):
        return ""
    head = b"" if path.is_dir() else _head(path)
    try:
        return next((name for name, format in FORMATS.own.items() if format.recognises(path, head)), "")
    except FormatError:
        return ""


def _usual(counts: Counter[str]) -> str:
    """Return the most frequent ending of files with values or text, else of all files."""
    of_values = [ending for ending in (*_RAW[:-1], *_TEXT[:3]) if counts[ending]]
    return max(of_values or counts, key=lambda ending: counts[ending])


def _head(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _begins(head: bytes, ending: str) -> str:
    """Return the beginning of a file: its first line of text, or its first values and bytes."""
    if _is_text(head):
        line = next((line for line in head.decode("utf-8", "replace").splitlines() if line.strip()), "")
        return quoted(line)
    shown = head[: 4 * _LISTED].hex(" ", 4)
    dtype = np.dtype(_guess(head))
    values = np.frombuffer(head[: _LISTED * dtype.itemsize], dtype) if len(head) >= _LISTED * dtype.itemsize else ()
    return f"bytes {shown}" + (
        f", as {dtype.name} {', '.join(f'{value:.3g}' for value in values)}" if len(values) else ""
    )


def _is_text(head: bytes) -> bool:
    return bool(head) and b"\0" not in head and sum(byte < 9 for byte in head) == 0 and _decodes(head)


def _decodes(head: bytes) -> bool:
    try:
        head[: max(1, len(head) - 3)].decode()
    except UnicodeDecodeError:
        return False
    return True


def _guess(head: bytes) -> str:
    """Return the element type that the first values of a file suggest: float32, float16, int32 or int8."""
    for name, low, high in (("float32", 1e-9, 1e9), ("float16", 1e-3, 1e3)):
        values = _plausible(head, name)
        size = np.abs(values)
        if values.size and np.count_nonzero((values == 0) | ((size > low) & (size < high))) >= _PLAUSIBLE * values.size:
            return name
    whole = np.abs(_plausible(head, "int32"))
    return "int32" if whole.size and np.count_nonzero(whole < 2**24) >= _PLAUSIBLE * whole.size else "int8"


def _plausible(head: bytes, name: str) -> np.ndarray:
    dtype = np.dtype(name)
    values = np.frombuffer(head[: len(head) // dtype.itemsize * dtype.itemsize], dtype)
    with np.errstate(all="ignore"):
        return values.astype(np.float64)
