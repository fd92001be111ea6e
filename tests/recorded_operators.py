"""Torch's operators as they run, each as the ``Call`` that would be recorded of it."""

import json

import ml_dtypes
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sgsdump.replay.torch_operators import Call

NARROW = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


def array(tensor):
    tensor = tensor.detach().clone().contiguous()
    if tensor.dtype in NARROW:
        stored, kind = NARROW[tensor.dtype]
        return tensor.view(stored).numpy().view(kind)
    return tensor.numpy()


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = {**dict(zip([a.name for a in func._schema.arguments], args)), **kwargs}
        tensors, arguments = {}, {}
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                tensors[name] = array(value)
            elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
                tensors |= {f"{name}.{i}": array(v) for i, v in enumerate(value) if v is not None}
            else:
                try:
                    arguments[name] = json.loads(json.dumps(value))
                except TypeError:
                    continue
        result = func(*args, **kwargs)
        results = result if isinstance(result, (list, tuple)) else [result]
        outputs = [array(r) for r in results if isinstance(r, torch.Tensor)]
        kind = func._schema.name.replace("::", ".")
        if kind not in ("aten.detach", "aten.alias", "aten.empty"):
            self.calls.append(Call(kind, func._schema.overload_name, tensors, arguments, outputs))
        return result


def recorded(function, *args):
    """The calls that ``function(*args)`` makes."""
    with torch.no_grad(), Recorder() as recorder:
        function(*args)
    return recorder.calls


def worst(calls):
    """The judgement of each judged output: (operator, slot, judgement)."""
    from sgsdump.replay.bounds import TORCH
    from sgsdump.replay.judgement import judge
    from sgsdump.replay.torch_operators import references

    found = []
    for call in calls:
        if call.name not in TORCH:
            found.append((call.kind, None, None))
            continue
        for slot, references_of in enumerate(references(call, TORCH[call.name])):
            if references_of is not None:
                found.append((call.kind, slot, judge(call.outputs[slot], references_of)))
    return found


__all__ = ["array", "np", "recorded", "worst"]
