"""The interface of a dump format (``Format``), which readers, writers and plug-ins implement.

The modules in ``formats/`` implement the formats; their docstrings specify the files. To add a format:

1. Write ``formats/VENDOR/NAME.py`` with a module-level ``FORMAT = Format(...)``.
2. List the format in ``formats/__init__.py``.
3. Subclass the conformance test class in ``tests/dumps/formats/``.

Within ``formats/``, the module of a format imports only from its vendor's folder and from ``formats/shared/``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sgsdump.errors import FormatError

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.dumps.runs import Run

HEAD_BYTES = 4096
MOST_RANK, MOST_ELEMENTS = 32, 2**48


class Lost(NamedTuple):
    """Loss of one record: the metadata or values that a format cannot store.

    Attributes
    ----------
    record : Record
        The record that loses metadata or values.
    what : str
        Predicate that completes the sentence "the tensor …", such as "is float16, kept as float32".
    refused : bool
        True if the record cannot be written at all. ``write`` then raises an error, and a partial save skips the
        record.
    """

    record: Record
    what: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.what}: writing is refused" if self.refused else self.what


def _nothing(records: Sequence[Record], variant: Any) -> Iterable[Lost]:
    return ()


@dataclass(frozen=True)
class Format:
    """Interface of one dump format, which stores a dump as a file or as a folder.

    Attributes
    ----------
    name : str
        Format name in ``--to`` and ``save_dump(format=...)``.
    recognises : callable
        ``(path, head) -> bool``. Return True if ``read`` should try to read ``path``. ``head`` holds the first
        ``HEAD_BYTES`` bytes of the file; it is empty for a folder.
    read : callable
        ``(path) -> Dump``. Read the headers immediately, and read values only on request. Raise FormatError if the file
        is damaged.
    write : callable or None
        ``(records, path, variant) -> None``. Write the records atomically, with one record in memory at a time.
        ``variant`` is a ``Dump.variant`` that ``read`` returned, or None for the format's default variant. For a folder
        format, use ``replacing_folder`` to write the folder. None if the format is read-only.
    loses : callable
        ``(records, variant) -> iterable of Lost``. Return the metadata and values that ``write`` would lose or refuse,
        without reading values. Records that are not listed must be equal after writing and reading: name, slot, shape,
        dtype, layout, scale and values.
    looks_for : str
        For folder formats, a description of the files that ``recognises`` needs, such as "a dump_info.json"; "" for
        file formats.
    runs : callable or None
        ``(folder, notes) -> sequence of Run``. Return the runs of a tree and append messages to ``notes``. None if the
        format has no trees.
    own_inputs : bool
        True if the inputs of each operator were dumped as separate tensors with separate names. If True, comparisons
        include these inputs.
    owns : callable
        ``(path) -> bool``. Return whether the path is a run inside a tree of this format. The run itself is stored in
        another format. ``read`` then combines the dump of the run with the metadata in the tree.
    one_tensor : bool
        True if a file holds a single tensor, named after the file.
    """

    name: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path], Dump]
    write: Callable[[Iterable[Record], Path, Any], None] | None = None
    loses: Callable[[Sequence[Record], Any], Iterable[Lost]] = _nothing
    looks_for: str = ""
    runs: Callable[[Path, list[str]], Sequence[Run]] | None = None
    own_inputs: bool = False
    owns: Callable[[Path], bool] = lambda path: False
    one_tensor: bool = False


def json_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line or file; None if the text is not a JSON object."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def checked_shape(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return the sizes as a tuple; raise FormatError if numpy cannot represent this shape."""
    shape = tuple(islice(sizes, MOST_RANK + 1))
    if len(shape) > MOST_RANK or math.prod(filter(None, shape)) > MOST_ELEMENTS:
        raise FormatError(f"tensor shape {str(list(shape))[:80]} is invalid: numpy cannot make an array of this shape")
    return shape
