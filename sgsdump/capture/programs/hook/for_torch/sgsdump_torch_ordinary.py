"""Start of the compiled kernel, which records ordinary operators (``ordinary_of``).

``sgsdump_operators.c`` does the work of ``sgsdump_torch_taking.py`` and ``sgsdump_torch_round.py`` on the same objects
and writes the same bytes. Unusual operators are left to these modules, and all operators if the kernel is not built.
"""

import torch
from sgsdump_torch_memories import ValueRecord
from sgsdump_torch_statistics import KINDS, kernel, statistics
from sgsdump_torch_tensors import CONSTANTS, type_word

_FUNCTION_MODES = getattr(torch._C, "_len_torch_function_stack", None)
_TRANSFORMS = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_KINDS = {dtype: (kind, type_word(dtype)) for dtype, kind in KINDS.items()}


def ordinary_of(round, taking, facts):
    """Return the kernel's ``Ordinary`` for a round; None if it is not built, or more than statistics is dumped.

    ``facts`` holds ``Facts.ordinary`` by the id of each operator.
    """
    if not hasattr(kernel, "Ordinary") or _FUNCTION_MODES is None or _TRANSFORMS is None:
        return None
    told = taking.session.statistics_of(round.step)
    if told is None:
        return None
    control, era, index, device = told
    taking.look_up(round, control.now["content"])
    memories = taking.memories
    types = facts, torch.Tensor, torch.nn.Parameter, torch.strided, _KINDS, ValueRecord
    memory = memories.numbers, memories.storages, memories.unwritten.storages, memories.pending
    calls = memories.register, memories.flush, statistics, _FUNCTION_MODES, _TRANSFORMS, (str, *CONSTANTS)
    frames = control, round, round.frames, type(round.frames[0]), round.network.paths, round.names, round.operators
    here = round.network.owners, round.mark, round.model, round.step, era, index, device
    return kernel.Ordinary(*types, *memory, *calls, *frames, *here)
