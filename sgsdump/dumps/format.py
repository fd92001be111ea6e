"""The contract of a dump format; ``formats/`` holds the family, whose docstrings are the formats' specifications.

To add one: write ``formats/VENDOR/NAME.py`` with a module-level ``FORMAT = Format(...)``, list it in
``formats/__init__.py``, and subclass the conformance test class in ``tests/dumps/formats/``. A format imports its own
vendor's folder only; what several formats share is in ``formats/shared/``.
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
    """A fact that a writer does not keep, as the end of the sentence "the tensor …" ("is float16, kept as float32").

    refused  the record is not written at all: ``write`` raises, and a partial save leaves it out.
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
    """One dump format: a file's, or a folder's.

    name          its name in ``--to`` and ``save_dump(format=...)``.
    recognises    (path, first HEAD_BYTES bytes, empty for a directory) -> whether ``read`` should be tried.
    read          path -> Dump, headers eager and values lazy; raises FormatError on damage.
    write         (records, path, variant) -> None, streaming, one record in memory at a time, atomic; ``variant`` is a
                  ``Dump.variant`` that ``read`` gave, or None for the format's usual one. None: read only.
                  A folder is written through ``replacing_folder``.
    loses         (records, variant) -> what ``write`` would lose or refuse, from facts alone, no values read. A record
                  that is not named comes back equal: name, slot, shape, dtype, layout, scale, values.
    looks_for     a folder's format: what ``recognises`` looks for in it, in words ("a dump_info.json"); "" for files.
    runs          (a tree's folder, notes to add to) -> the runs in it. None: the format has no trees.
    owns          whether a path is a run of such a tree whose dump is in another format, which ``read`` reads with
                  what the tree says of it.
    one_tensor    a file holds one tensor, which is named as the file is.
    own_inputs    each operator's inputs were dumped as tensors with names of their own, so a comparison is of them too.
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
    """The object that a line of JSON is, or a whole file; None for anything else."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def checked_shape(sizes: Iterable[int]) -> tuple[int, ...]:
    """A shape that numpy can hold. Raises FormatError."""
    shape = tuple(islice(sizes, MOST_RANK + 1))
    if len(shape) > MOST_RANK or math.prod(filter(None, shape)) > MOST_ELEMENTS:
        raise FormatError(f"a tensor of shape {str(list(shape))[:80]} cannot be")
    return shape
