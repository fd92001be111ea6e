"""The files of statistics and descriptions, which are no more than an ATB header: written when the program has ended.

Making files takes longer than computing what is in them, so a hook may leave it at the line in its index.
"""

from __future__ import annotations

from pathlib import Path

from sgsdump.capture.hook.sgsdump_spool import header_alone
from sgsdump.capture.process_index import Process, lines_of
from sgsdump.errors import OutputError
from sgsdump.files.folder import leads_out_of

TENSORS = "tensors"


def write_headers(root: Path, process: Process) -> None:
    """Write the files that a process's index leaves for later. Raises OutputError."""
    made: set[Path] = set()
    part = process.folder / ".header"
    for line in lines_of(process.folder):
        name = line.get("file")
        if line.get("later") is not True or not (isinstance(name, str) and name.startswith(f"{TENSORS}/")):
            continue
        if leads_out_of(root / TENSORS, name.removeprefix(f"{TENSORS}/")):
            continue
        path = root / name
        try:
            if path.parent not in made:
                path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                made.add(path.parent)
            part.write_bytes(header_alone(line["dtype"], line["shape"], line.get("stats")))
            part.replace(path)
        except (LookupError, TypeError, ValueError):
            continue
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
