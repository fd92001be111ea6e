"""The graph that torch's compiler captured, as aten operators in the order in which the program runs them.

Traced above autograd and not made functional: gradients flow through the operators as through the program's own, and
writes in place stay writes in place, through views too. The trace runs on fake tensors, so it computes nothing. Where a
graph cannot be traced so (autocast blocks, autograd functions of the user, checkpoints, conditions), the captured graph
itself is run: its operators are then torch's functions instead of aten's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from sgsdump.torchair.log import logger

_NOT_TRACED = ("_enter_autocast", "_exit_autocast")


def lowered(captured: Any, examples: Sequence[Any]) -> Any:
    """A GraphModule with the captured one's inputs and results; the captured one where that cannot be had."""
    import torch

    targets = [node.target for node in captured.graph.nodes if node.op == "call_function"]
    calls = torch._ops.HigherOrderOperator
    if any(isinstance(one, calls) or getattr(one, "__name__", "") in _NOT_TRACED for one in targets):
        return captured
    try:
        module = _traced(captured, examples)
    except Exception as error:  # whatever the tracer meets, the program runs on
        logger.info("the graph is run as it was captured, it cannot be lowered: %s", str(error).splitlines()[:1])
        return captured
    same = len(_inputs(module)) == len(_inputs(captured))
    return module if same and isinstance(module, torch.fx.GraphModule) else captured


def _inputs(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _traced(captured: Any, examples: Sequence[Any]) -> Any:
    import torch
    from torch._guards import TracingContext, detect_fake_mode
    from torch._subclasses import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    context = TracingContext.try_get()
    mode = (context.fake_mode if context else None) or detect_fake_mode(examples)
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        return mode.from_tensor(value, static_shapes=True)

    with ExitStack() as stack:
        stack.enter_context(preserve_node_meta())
        stack.enter_context(mode)
        stack.enter_context(patch.object(mode, "allow_scalar_outputs", True))
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        return make_fx(torch.fx.Interpreter(captured).run, pre_dispatch=True)(*map(fake, examples))
