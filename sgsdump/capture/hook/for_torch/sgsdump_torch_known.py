"""What is known of the tensors of a round, by the tensors themselves: the quick way to what ``Memories`` knows.

A tensor is known as long as it is the same object, at the same place and of the same version (torch counts what writes
to it), and no operator has written to its memory by another way.
"""

import weakref

from sgsdump_torch_tensors import version


class Known:
    """``content``: what is dumped of the tensors."""

    def __init__(self, content=""):
        self.content = content
        self._of_id: dict = {}

    def add(self, tensor, seen):
        counted = version(tensor)
        if counted is not None:
            self._of_id[id(tensor)] = weakref.ref(tensor), counted, tensor.data_ptr(), tensor.shape, seen

    def get(self, tensor):
        """The ``Seen`` of a tensor; None where it has to be found."""
        known = self._of_id.get(id(tensor))
        if known is None:
            return None
        reference, counted, address, shape, seen = known
        if (
            seen.current
            and reference() is tensor
            and counted == tensor._version
            and address == tensor.data_ptr()
            and shape == tensor.shape
        ):
            return seen
        return None
