"""The hook of torch: what modules and torch's own operators read and give in a forward of the outermost module."""

import atexit
import os
import random
import sys

import torch
from sgsdump_torch_steps import Steps


def install(torch_module, session):
    """Hook torch for a process; called once, right after the program's own import of it."""
    steps = Steps(session)
    if session.control.get("seed") is not None:
        start_from(session.control["seed"])
    torch.nn.Module.__call__ = steps.calling(torch.nn.Module.__call__)
    torch.compile = steps.compiling(torch.compile)
    for name in ("trace", "trace_module", "_get_trace_graph"):  # the last is torch.onnx.export's
        if hasattr(torch.jit, name):
            setattr(torch.jit, name, steps.aside(getattr(torch.jit, name)))
    atexit.register(steps.tell_training)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=steps.after_fork)


def start_from(seed):
    """Every random generator from one number, and deterministic algorithms wherever torch has them."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if hasattr(torch.backends, "cudnn"):
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
