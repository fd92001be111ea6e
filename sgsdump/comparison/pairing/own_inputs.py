"""Dumps that have each operator's inputs as tensors of their own, which are then compared too."""

from __future__ import annotations

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.formats import FORMATS


def has_own_inputs(dump: Dump) -> bool:
    """Whether operators' inputs have names of their own: the format does so (``Format.own_inputs``), or the records
    came from such a format into another one.

    The latter is recognised by inputs of several operators none of which has the name of an output. Dumps that record
    the data flow repeat the outputs' names as inputs; others have the network's inputs only.
    """
    if dump.format and FORMATS[dump.format].own_inputs:
        return True
    fed = [record for record in dump.records if record.io == "in" and not record.constant]
    several = len({record.op_index for record in fed}) > 1
    return several and not any(record.name in dump.outputs for record in fed)
