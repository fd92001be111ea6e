r"""The dump file of one operator on an Ascend device, ``{op_type}.{op_name}.{task}.{stream}.{time}``; read only.

::

    uint64 LE   length of the header
    header      protobuf message DumpData (``dump_proto.py``): type, format, shape and size of each tensor
    payload     the inputs' bytes, then the outputs', L1 buffers', work spaces', without padding, little-endian

* Element types and formats bear the numbers of ``ge_types.py``, not those of ACL's files. Values stay in
  the device's layout, which ``info.layout`` names; ``info.origin`` is the logical tensor, where the header tells it.
* ``size`` may be more than the shape needs (devices align): the first elements are the tensor.
* A header without a shape means one dimension, as long as the payload.
* General input buffers of an exception dump stand among the inputs but are written last (``proto_header``).
* What follows the last tensor is ignored and noted: a file opened twice for appending holds two dumps.
* Overflow detection writes its status as an output of bytes; ``sgsdump.dumps.formats.ascend.overflow`` reads it.
* Types whose encoding is not documented (string, int2, hifloat4 …) are kept as bytes, with a note.
"""

from __future__ import annotations

from pathlib import Path

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.ascend import dump_proto
from sgsdump.dumps.formats.ascend.file_names import parse
from sgsdump.dumps.formats.ascend.nano_header import recognises as is_nano
from sgsdump.dumps.formats.ascend.operator_dump import LENGTH, header_length, open_operator


def recognises(path: Path, head: bytes) -> bool:
    """By the header's first fields, or by a name that only operator dumps have, so that damage is reported."""
    length, header = header_length(head), head[LENGTH.size :]
    if is_nano(header):
        return False
    if 0 < length <= dump_proto.MOST_BYTES and dump_proto.begins_like_one(header[:length]):
        return True
    return bool(head) and parse(path.name) is not None


def read(path: Path) -> Dump:
    """The tensors of one operator. Raises FormatError."""
    return open_operator(path, FORMAT.name)


FORMAT = Format("ascend_dump", recognises, read, own_inputs=True)
