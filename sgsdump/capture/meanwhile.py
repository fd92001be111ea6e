"""The tree is made while the program runs, by a thread that leaves the processors to the program."""

from __future__ import annotations

import os
import sys
import threading

from sgsdump.capture.tensor_tree import TensorTree
from sgsdump.errors import SgsdumpError

MAKE_EVERY = 0.1
NICE = 10


class Meanwhile(threading.Thread):
    """Within a with-block: makes the tree as the program goes on, and ends with what it has in hand."""

    def __init__(self, tree: TensorTree) -> None:
        super().__init__(daemon=True)
        self._tree = tree
        self._ended = threading.Event()
        self._failed: SgsdumpError | None = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        if self._failed is not None:
            raise self._failed

    def run(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        try:
            while not self._ended.is_set():
                if not self._tree.advance():
                    self._ended.wait(MAKE_EVERY)
        except SgsdumpError as error:
            self._failed = error
