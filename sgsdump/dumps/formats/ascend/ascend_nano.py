"""The dump file of one operator on an Ascend nano device, ``{op_type}.{op_name}.{task}.{stream}.{counter}``; read only.

::

    uint64 LE   length of the header
    header      uint32 magic 0x5A5A5A5A, uint32 version, then tags: uint32 tag, uint32 length, value
      tag 4     inputs: uint32 count, for each
                int32 type, int32 format, int32 address type, uint64 address, uint64 offset, uint64 size,
                uint32 length of the tags behind: 0 dims (uint64 each), 1 dims of the original
      tag 5     outputs: uint32 count, for each
                int32 type, format, address type, original index, original type, original format, then as an input;
                tag 2 of the tags behind: name of the original
    payload     the inputs' bytes, then the outputs', ``size`` each

Types bear ACL's numbers (``acl_types.py``), formats those of ``ge_types``. Other tags are skipped. The
operator's name is only in the file's. All else is as in an operator dump.
"""

from __future__ import annotations

from pathlib import Path

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.ascend import nano_header
from sgsdump.dumps.formats.ascend.operator_dump import LENGTH, open_operator


def recognises(path: Path, head: bytes) -> bool:
    return nano_header.recognises(head[LENGTH.size :])


def read(path: Path) -> Dump:
    """The tensors of one operator. Raises FormatError."""
    return open_operator(path, FORMAT.name)


FORMAT = Format("ascend_nano", recognises, read, own_inputs=True)
