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
    """Dump the operators of the block, beside those that dump_layer names. Outside of compiled code it does nothing.

    Needs torch 2.9, whose compiler remembers such blocks; an older one compiles the block without the mark.
    """
    import torch.fx.traceback

    annotate = getattr(torch.fx.traceback, "annotate", None)
    return nullcontext() if annotate is None else annotate({KEY: DATA_DUMP})


def is_marked(meta: Any) -> bool:
    """Whether a graph node of this ``meta`` comes from such a block."""
    custom = meta.get("custom")
    return isinstance(custom, dict) and custom.get(KEY) == DATA_DUMP
