"""Python's collector of cyclic garbage, paused while many small objects are made: a dump's, or a comparison's rows.

All of them live on, and each pass of the collector looks at them again: a third of the time of opening 100,000 tensors,
a tenth of comparing 8,000.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No pass of the collector begins in the block, and what was made there counts as old afterwards: else the next
    pass would begin with all of it. Where threads overlap the collector may run again early, which is only slow."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what a program has frozen itself stays so
            gc.freeze()
            gc.unfreeze()
        gc.enable()
