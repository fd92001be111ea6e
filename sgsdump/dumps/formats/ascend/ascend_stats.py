"""Statistics of one operator's tensors on an Ascend device (``dump_data: stats``), ``{dump file name}.csv``; read only.

::

    Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,…
    Output,0,640000,DT_FLOAT,NHWC,4x50x50x16,1.99999,1,1.50004,160000,0,0,0

Tensors have statistics and no values: asking for them raises ValuesError. What the writers do, and this reader knows:

* Which statistics there are, and their order, is chosen by the user: columns go by name, ``l2norm`` may be there.
* A header line may come again in the middle; each row goes by the last above it.
* A row may lack Count though its header has it: one cell less than the header means just that.
* Empty and ``NA`` cells are statistics that are not known, ``-`` a shape, ``UNKNOW`` a type or format.
* Max and min of float64, uint64 and complex types are printed from half of their bits; they are left out, with a note.
  Those of uint32 are printed as int32 and taken back. Extremes printed with a point are no device's: they are taken.
"""

from __future__ import annotations

from pathlib import Path

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.ascend.file_names import parse
from sgsdump.dumps.formats.ascend.statistics_csv import ENDING, HEAD, records_of


def recognises(path: Path, head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").startswith(HEAD.encode())


def read(path: Path) -> Dump:
    """The statistics of one operator's tensors. Raises FormatError."""
    called, notes = parse(path.name.removesuffix(ENDING)), []  # type: ignore[var-annotated]
    name = called.name_of(called.op_name) if called else path.name.removesuffix(ENDING)
    return Dump(records_of(path, called, 0, name, notes), FORMAT.name, None, path, notes)


FORMAT = Format("ascend_stats", recognises, read, own_inputs=True)
