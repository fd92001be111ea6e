"""What is known of tensors by the tensors themselves: the quick way to what ``Memories`` knows.

A tensor is known as long as it is the same object, at the same place and of the same version (torch counts what writes
to it), and no operator has written to its memory by another way.
"""

import weakref

from sgsdump_torch_tensors import version


class Known:
    """Of a round. ``content``: what is dumped of the tensors; ``last``: what was known in the round before this one, of
    which the weights count."""

    def __init__(self, content="", last=None):
        self.content = content
        self._of_id: dict = {}
        self._weights: dict = {}
        self._last: dict = {} if last is None or last.content != content else last._weights

    def add(self, tensor, seen):
        counted = version(tensor)
        if counted is not None:
            known = weakref.ref(tensor), counted, tensor.data_ptr(), tensor.shape, seen
            self._of_id[id(tensor)] = known
            if seen.weight:
                self._weights[id(tensor)] = known, tensor.stride(), tensor.dtype

    def get(self, tensor):
        """The ``Seen`` of a tensor; None where it has to be found."""
        known = self._of_id.get(id(tensor))
        if known is None:
            return None
        return known[-1] if _holds(known, tensor) else None

    def of_last(self, tensor):
        """The ``Seen`` of a weight in the last round; as ``get``. Its values may be others, by ``.data``."""
        known, stride, dtype = self._last.get(id(tensor), _NOTHING)
        if known is None or not _holds(known, tensor) or stride != tensor.stride() or dtype is not tensor.dtype:
            return None
        return known[-1]


_NOTHING = None, None, None


def _holds(known, tensor):
    reference, counted, address, shape, seen = known
    return (
        seen.current
        and reference() is tensor
        and counted == tensor._version
        and address == tensor.data_ptr()
        and shape == tensor.shape
    )
