"""Completion of collectives (``finish``): torch returns from a collective before its values have arrived.

All ranks run collectives in the same order, so waiting for one always ends. A message between two ranks may be posted
before its partner: received data count as unwritten until they arrive.
"""

import torch
from sgsdump_torch_tensors import plain, tensors_in

MESSAGES = {"c10d.recv_", "c10d.recv_any_source_"}
NOTHING_COMES = {
    *("c10d.send", "c10d.barrier", "c10d.monitored_barrier_"),
    *("_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd"),
}
NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")


def brings(kind):
    """Return whether an operator, ``c10d.allreduce_``, receives values of other ranks."""
    return kind.partition(".")[0] in NAMESPACES and kind not in NOTHING_COMES


def finish(kind, args, result):
    """Wait for the values; return the tensors that were written, and whether they may still be missing.

    The schemas of these operators do not state which tensors they write.
    """
    if not kind.startswith("c10d."):
        for tensor in tensors_in(result):
            torch.ops._c10d_functional.wait_tensor(tensor)
        return [], False
    if kind not in MESSAGES:
        for item in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(item, torch.ScriptObject):
                torch._C._distributed_c10d.Work.unbox(item).wait()
    written = tensors_in(result) or tensors_in(args[:1])
    return [tensor for tensor in written if plain(tensor)], kind in MESSAGES
