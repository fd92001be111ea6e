"""A .pt or .pth file, as ``torch.save`` and TorchScript write them; read only, and nothing in it is run.

Since torch 1.6 it is a zip archive, all its members below one folder of any name::

    NAME/data.pkl             a pickle of whatever was saved (``torch_pickle.py`` says what it may say)
    NAME/byteorder            little or big
    NAME/data/KEY             the bytes of each storage, stored as they are, from a multiple of 64 on

before it (and with ``_use_new_zipfile_serialization=False``) five pickles one after the other: a magic number, the
protocol 1001, facts of the machine, what was saved, and the keys of its storages; then for each key the number of
elements as uint64 and their bytes.

Names are those of ``torch_pickle.py``. Values are views of the mapped file; strided tensors are strided views, tensors
that share a storage share its bytes. Quantised ones keep their scales.
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
    """Whether a zip archive has the pickle of a torch file; the directory at its end says so."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            return any(name.rpartition("/")[2] == PICKLE and name.count("/") <= 1 for name in archive.namelist())
    except Exception:
        # What zipfile raises for a hostile directory is open-ended.
        return False


def read(path: Path) -> Dump:
    """A dump whose values are views of the mapped file. Raises FormatError."""
    notes: list[str] = []
    records = [Record("out", 0, index, "", tensor) for index, tensor in enumerate(read_tensors(path, path.stem, notes))]
    return Dump(records, FORMAT.name, None, path, notes)


FORMAT = Format("torch", recognises, read)
