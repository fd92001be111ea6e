"""Compiled graphs of programs with ``torch.compile``, as they run (``Graphs``).

A dumped step keeps the program's compiled code. Each graph that a back-end compiled is an operator ``graph_N`` of type
``compiled.graph``, with its inputs and outputs. Beside it is ``graph_N_eager``, of type ``eager.graph``: the same graph
run by torch operator by operator, with the same inputs and the same state of the random generators. Their difference is
a line of the index::

    {"event": "graph", "step": 0, "graph": "graph_0", "backend": "inductor", "module": "root", "operators": 12,
     "output": 0, "dtype": "float32", "relative": 1.5e-07, "differing": 812, "elements": 4096, "line": "net.py:12"}

The line describes the output that differs most: ``relative`` is the norm of the difference over the norm of the eager
output (null if one side is infinite or NaN and the other is not), ``differing`` the number of unequal elements. Python
code between the graphs runs as without the hook, and is not dumped.
"""

import contextlib
import copy
import itertools
import re

import torch
from sgsdump_torch_devices import random_states, set_random_states
from sgsdump_torch_round import Dispatch
from sgsdump_torch_tensors import plain, tensors_in
from torch.utils._python_dispatch import _get_current_dispatch_mode

COMPILED, EAGER = "compiled.graph", "eager.graph"
# Both wrap back-ends for Dynamo, in every release of torch 2 so far.
WRAPPERS = ("_TorchCompileInductorWrapper", "_TorchCompileWrapper")
SLICE = 1 << 20
_PROGRAM_LINE = re.compile(r'File "([^"]+)", line (\d+)')


class Graphs:
    """Dump of compiled graphs.

    ``steps`` belongs to the hook (``sgsdump_hook_torch``); ``installed``: whether this torch makes graphs visible.
    """

    def __init__(self, steps):
        self.steps = steps
        self._numbers = itertools.count()
        wrappers = [getattr(torch, name) for name in WRAPPERS if hasattr(torch, name)]
        self.installed = len(wrappers) == len(WRAPPERS)
        self._originals = [(wrapper, wrapper.__call__) for wrapper in wrappers if self.installed]
        for wrapper, original in self._originals:
            wrapper.__call__ = self._compiling(original)

    def take_off(self):
        """Restore the back-ends; graphs that they compiled meanwhile stay unchanged."""
        for wrapper, original in self._originals:
            wrapper.__call__ = original

    def _compiling(self, original):
        """Wrap a back-end's ``(graph, inputs)``, whose result runs the compiled graph."""
        graphs = self

        def compiling(wrapper, graph_module, inputs, **kwargs):
            graph = None
            with contextlib.suppress(Exception):
                graph = Graph(next(graphs._numbers), wrapper.compiler_name, graph_module)
            run = original(wrapper, graph_module, inputs, **kwargs)
            return run if graph is None else graphs._running(graph, run)

        return compiling

    def _running(self, graph, run):
        thread = self.steps.thread

        def compiled_graph(*args):
            round = thread.round
            if round is None or not round.compiled or round.quiet or self.steps.taking.devices.are_capturing():
                return run(*args)
            return self._dumped(round, graph, run, args)

        return compiled_graph

    def _dumped(self, round, graph, run, args):
        taking = self.steps.taking
        round.graphs += 1
        running = taking.guard(round, self._begin, graph, COMPILED, args)
        before = taking.guard(round, _copied, args) if running is not None else None
        result = run(*args)
        if running is not None:
            taking.guard(round, self._end, running, args, result)
        if before is not None:
            taking.guard(round, self._run_eagerly, graph, before, result)
        return result

    def _begin(self, round, graph, kind, args):
        inputs = [tensor for tensor in tensors_in(args) if plain(tensor)]
        suffix = "" if kind == COMPILED else "_eager"
        running = self.steps.taking.before(round, round.begin_graph(graph.name + suffix, kind), inputs)
        self.steps.taking.say(round)
        return running

    def _end(self, round, running, args, result):
        written = [
            tensor for tensor in tensors_in(args) if plain(tensor) and not isinstance(tensor, torch.nn.Parameter)
        ]
        self.steps.taking.after(round, running, result, (None, None), None, written)

    def _run_eagerly(self, round, graph, before, result):
        """Run the graph operator by operator, and write how far its outputs differ from the compiled one's."""
        args, states = before
        running = self._begin(round, graph, EAGER, args)
        now = random_states(tensors_in(args))
        set_random_states(states)
        try:
            with torch.no_grad():
                eager = graph.module.forward(*args)
            after = random_states(tensors_in(args))
            is_random = any(not torch.equal(after[device], state) for device, state in states.items())
        finally:
            set_random_states(now)
        self.steps.taking.after(round, running, eager, (None, None), None, ())
        worst = None if is_random else _worst(tensors_in(result), tensors_in(eager))
        self.steps.session.line(
            event="graph",
            step=round.step,
            graph=graph.name,
            module=running.operator.module,
            **graph.facts,
            **(worst or {}),
        )


class Graph:
    """A graph that Dynamo passed to a back-end: a copy that the back-end cannot modify."""

    def __init__(self, number, backend, module):
        self.name = f"graph_{number}"
        self.module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        nodes = [node for node in module.graph.nodes if node.op.startswith("call_")]
        self.facts = {"backend": str(backend), "operators": len(nodes), "line": _line_of(nodes)}


@contextlib.contextmanager
def unseen(round):
    """Hide everything that runs inside, so that compiled code stays compiled: Dynamo compiles nothing under a mode."""
    modes = []
    while isinstance(mode := _get_current_dispatch_mode(), Dispatch):
        mode.__exit__(None, None, None)
        modes.append(mode)
    round.compiled += 1
    try:
        yield
    finally:
        round.compiled -= 1
        for mode in reversed(modes):
            mode.__enter__()


def _copied(round, args):
    """Return copies of the arguments, except weights, which the graph does not write; and the random states."""
    copies = [
        arg.detach().clone() if isinstance(arg, torch.Tensor) and not isinstance(arg, torch.nn.Parameter) else arg
        for arg in args
    ]
    return copies, random_states(tensors_in(args))


def _worst(sample, benchmark):
    """Return the facts of the output that differs most from the eager one, or None without tensors."""
    found = [
        {"output": slot, "dtype": str(a.dtype).partition(".")[2], **_difference(a.detach(), b.detach())}
        for slot, (a, b) in enumerate(zip(sample, benchmark))
        if plain(a) and plain(b) and a.shape == b.shape and a.numel() and not a.is_complex()
    ]
    return max(found, key=lambda facts: float("inf") if facts["relative"] is None else facts["relative"], default=None)


def _difference(a, b):
    squares = reference = 0.0
    differing = 0
    for x, y in zip(a.reshape(-1).split(SLICE), b.reshape(-1).split(SLICE)):
        same = (x == y) | ((x != x) & (y != y))
        differing += int((~same).sum())
        x, y = x.double(), y.double()
        difference = (x - y).masked_fill_(same, 0.0)
        squares += float(difference.square().sum())
        reference += float(torch.nan_to_num(y, 0.0, 0.0, 0.0).square().sum())
    relative = 0.0 if not squares else (squares / reference) ** 0.5 if reference else float("inf")
    finite = relative == relative and relative != float("inf")
    return {"relative": relative if finite else None, "differing": differing, "elements": a.numel()}


def _line_of(nodes):
    """Return the program's line of the first operator, ``net.py:28``, or ""."""
    for node in nodes:
        lines = _PROGRAM_LINE.findall(node.meta.get("stack_trace") or "")
        if lines:
            file, line = lines[-1]
            return "{}:{}".format(file.replace("\\", "/").rpartition("/")[2], line)
    return ""
