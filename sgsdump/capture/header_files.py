"""The files of statistics and descriptions, which are no more than an ATB header: written when the program has ended.

Making files takes longer than computing what is in them, so a hook may leave it at the text in its index.
"""

from __future__ import annotations

from pathlib import Path

from sgsdump.capture.process_index import Process, lines_of
from sgsdump.errors import OutputError
from sgsdump.files.folder import leads_out_of

TENSORS = "tensors"


def write_headers(root: Path, process: Process) -> None:
    """Write what a process's index has as headers to the files that it names. Raises OutputError."""
    made: set[Path] = set()
    part = process.folder / ".header"
    for line in lines_of(process.folder):
        name, header = line.get("file"), line.get("header")
        if not (isinstance(name, str) and isinstance(header, str) and name.startswith(f"{TENSORS}/")):
            continue
        if leads_out_of(root / TENSORS, name.removeprefix(f"{TENSORS}/")):
            continue
        path = root / name
        try:
            if path.parent not in made:
                path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                made.add(path.parent)
            part.write_bytes(header.encode("ascii", "replace"))
            part.replace(path)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
