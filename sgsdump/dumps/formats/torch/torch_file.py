"""Reader of .pt and .pth files of ``torch.save`` and TorchScript; no code in a file is executed.

Since torch 1.6, the file is a zip archive; all its members lie below one folder of any name::

    NAME/data.pkl             a pickle of the saved object (``torch_pickle.py`` lists the accepted calls)
    NAME/byteorder            little or big
    NAME/data/KEY             the bytes of each storage, uncompressed, at a multiple of 64

Older files (and files of ``_use_new_zipfile_serialization=False``) hold five consecutive pickles: a magic number, the
protocol 1001, facts about the machine, the saved object, and the keys of the storages. For each key, the number of
elements (uint64) and their bytes follow.

``torch_pickle.py`` defines the tensor names. Values are views of the mapped file, strided if the tensor is strided;
tensors with a common storage share its bytes. Quantised tensors keep their scales.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import zip_member
from sgsdump.dumps.formats.shared.torch_tensors import MAGIC, PICKLE, read_tensors
from sgsdump.files.bounded_read import open_file

_MAGIC_BYTES = MAGIC.to_bytes(10, "little")


def recognises(path: Path, head: bytes) -> bool:
    if head.startswith(zip_member.MAGIC):
        return _is_archive(path)
    return head[:1] == b"\x80" and _MAGIC_BYTES in head[:32]


def _is_archive(path: Path) -> bool:
    """Return whether the directory of a zip archive lists the pickle of a torch file."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            return any(name.rpartition("/")[2] == PICKLE and name.count("/") <= 1 for name in archive.namelist())
    except Exception:
        # For a hostile directory, zipfile may raise any exception.
        return False


def read(path: Path) -> Dump:
    """Read a torch file; values are views of the mapped file. Raises FormatError."""
    notes: list[str] = []
    records = [Record("out", 0, index, "", tensor) for index, tensor in enumerate(read_tensors(path, path.stem, notes))]
    return Dump(records, FORMAT.name, None, path, notes)


FORMAT = Format("torch", recognises, read)
