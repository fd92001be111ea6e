"""With-blocks whose operators are dumped.

::

    with torchair.scope.data_dump():
        y = torch.sub(a, b)
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

KEY, DATA_DUMP = "sgsdump", "data_dump"


def data_dump() -> AbstractContextManager[Any]:
    """Mark the operators of a with-block for the dump, in addition to those that dump_layer names.

    Outside compiled code the block has no effect.

    Returns
    -------
    context manager
        The block whose operators are dumped.

    Notes
    -----
    The mark needs torch 2.9, whose compiler records such blocks. Older versions compile the block without the mark.
    """
    import torch.fx.traceback

    annotate = getattr(torch.fx.traceback, "annotate", None)
    return nullcontext() if annotate is None else annotate({KEY: DATA_DUMP})


def is_marked(meta: Any) -> bool:
    """Return whether a graph node with this ``meta`` comes from such a block."""
    custom = meta.get("custom")
    return isinstance(custom, dict) and custom.get(KEY) == DATA_DUMP
