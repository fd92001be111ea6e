"""The contract of a dump format; ``formats/`` holds the family, one file each whose docstring is its specification.

To add one: write ``formats/NAME.py`` with a module-level ``FORMAT = Format(...)``, list it in ``formats/__init__.py``,
and subclass the conformance test class in ``tests/dumps/formats/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.dumps.runs.run import Run

HEAD_BYTES = 4096


Lost = tuple["Record", str]


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
    loses         (records, variant) -> what ``write`` would lose or refuse, from facts alone, no values read: each
                  record with the end of the sentence "the tensor …" ("is float16, kept as float32"). A record that
                  is not named comes back equal: name, place, shape, dtype, layout, scale, values. See ``losses.py``.
    looks_for     a folder's format: what ``recognises`` looks for in it, in words ("a dump_info.json"); "" for files.
    runs          (a tree's folder, notes to add to) -> the runs in it. None: it is no tree of runs.
    owns          whether a path is a run of such a tree whose dump is in another format, which ``read`` reads with
                  what the tree says of it.
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
