"""One round: a forward of the outermost module, its modules and operators numbered and named as they run.

Top-level modules and operators of a round count from 0 in the order in which they start; what runs inside operator 3
is ``3_0``, ``3_1`` …. A module is called by its path (``layer1.0.conv1``), an operator by the path of the module it
runs in and its own name (``layer1.0.conv1.convolution``); whatever runs again in a round has ``_1``, ``_2`` behind it.
"""

import re
import sys
from typing import Any

import torch
from sgsdump_records import Operator
from sgsdump_torch_known import Known
from sgsdump_torch_tensors import plain
from torch.nn.parameter import is_lazy

ROOT = "root"
MOST_KNOWN = 20000
_COMPILED = "_orig_mod"


class Frame:
    """A module that is running: its path below the outermost one ("" for that), and its ``Operator``, None for that.

    asks      its program asks whether tensors are equal; None where that is not known yet.
    children  how many ran in it so far; opaque: which of its modules an operator is of its calls do not tell.
    """

    __slots__ = ("asks", "children", "module", "nodes", "opaque", "operator", "path")

    def __init__(self, module, path, operator=None):
        self.module = module
        self.path = path
        self.operator = operator
        self.opaque = not isinstance(module, torch.nn.Module) or isinstance(module, _OPAQUE)
        self.asks = None
        self.children = 0
        self.nodes = None


class Round:
    """``step`` counts from 0; ``root`` is the outermost module (a compiled function has none, but a ``model`` name).

    known      what is known of its tensors; lines: of the index, that are still to be written.
    mark       stands for this round, for what outlives it.
    graded     whether a weight has a gradient as it begins.
    operators  those of earlier rounds, by where they stood.
    """

    def __init__(self, step, root, model, operators):
        self.step = step
        self.root = root
        self.model = model
        self.paths: dict = {}
        self.owners: dict = {}
        self.kept: list = []
        self.graded = False
        if isinstance(root, torch.nn.Module):
            self._learn(root, "")
        self.frames = [Frame(root, "")]
        self.names: dict = {}
        self.quiet = False
        self.known = Known()
        self.mark = object()
        self.lines: list = []
        self._operators = operators

    def begin_module(self, module):
        """A module is called: its ``Operator``, whose inner ones come until ``end_module``."""
        outer = self.frames[-1]
        path = self.paths.get(id(module))
        if path is None:
            path = _below(outer.path, type(module).__name__)
            self._learn(module, path)
        operator = self._operator(outer, path, type(module).__name__, path)
        self.frames.append(Frame(module, path, operator))
        return operator

    def _learn(self, module, path):
        """Where a network's modules stand, and of their weights' memory {its number: (path of the owner, name, shape)}.
        A program may change both between its steps."""
        if id(module) in self.paths:
            return
        self.kept.append(module)  # so that no other module gets its number
        self.paths[id(module)] = path
        prefix = _below(ROOT, path) + "."
        for stored in (module._parameters, module._buffers):
            for word, tensor in stored.items():
                if tensor is not None and not is_lazy(tensor) and plain(tensor):
                    self.owners.setdefault(tensor.untyped_storage()._cdata, (path, prefix + word, tensor.shape))
        self.graded = self.graded or any(
            weight is not None and not is_lazy(weight) and weight.grad is not None
            for weight in module._parameters.values()
        )
        for word, inner in module._modules.items():
            if inner is not None:
                self._learn(inner, path if word == _COMPILED else _below(path, word))

    def weight(self, storage, tensor):
        """The name of a weight in the network, ``root.fc.weight``; "" for what is none. ``storage``: its number."""
        owner = self.owners.get(storage)
        return owner[1] if owner is not None and owner[2] == tensor.shape else ""

    def end_module(self):
        self.frames.pop()

    def begin_operator(self, kind, tensors):
        """The ``Operator`` of one of torch's own: ``kind`` is its name with namespace, ``aten.addmm``."""
        frame = self.frames[-1]
        path = self._path_inside(frame, tensors) if frame.opaque else frame.path
        return self._operator(frame, _below(path, kind.partition(".")[2]), kind, path)

    def _operator(self, frame, name, kind, path):
        again = self.names.get(name, 0)
        self.names[name] = again + 1
        place = (frame.operator or self.model, frame.children, name, again, kind, path)
        frame.children += 1
        operator = self._operators.get(place)
        if operator is None:
            if len(self._operators) >= MOST_KNOWN:
                self._operators.clear()
            operator = self._operators[place] = self._new_operator(frame, *place[1:])
        return operator

    def _new_operator(self, frame, number, name, again, kind, path):
        short = _short(path, frame.path) if name == path else kind.partition(".")[2]
        suffix = f"_{again}" if again else ""
        folder = f"{number}_{short if short[:1].isalpha() else 'op' + short}{suffix}"
        outer = frame.operator.folders if frame.operator else ()
        return Operator((*outer, folder), kind, _below(ROOT, path), self.model, name + suffix)

    def is_of_optimiser(self, kind):
        """Whether TorchScript's optimiser runs an operator for itself: it looks for equal constants, in a program that
        asks for no such thing."""
        frame = self.frames[-1]
        if kind != "aten.equal" or not isinstance(frame.module, torch.jit.ScriptModule):
            return False
        if frame.asks is None:
            graph = getattr(frame.module, "inlined_graph", None)
            frame.asks = graph is None or bool(graph.findAllNodes("aten::equal", recurse=True))
        return not frame.asks

    def _path_inside(self, frame, tensors):
        """Where an operator of a scripted, traced or FX graph stands: by its node, else by whose weights it reads."""
        if isinstance(frame.module, torch.fx.GraphModule):
            path = _path_of_node(frame)
            if path is not None:
                return _below(frame.path, path)
        for tensor in tensors:
            owner = self.owners.get(tensor.untyped_storage()._cdata)
            if owner is not None and (not frame.path or (owner[0] + ".").startswith(frame.path + ".")):
                return owner[0]
        return frame.path


_OPAQUE = (torch.jit.ScriptModule, torch.fx.GraphModule)


def _below(path, name):
    return path + "." + name if path and name else path or name


def _short(path, outer):
    """A module's path as its folder has it, in that of the ``outer`` module; of a list's modules with the list's."""
    if not outer or not path.startswith(outer + "."):
        return path
    short = path[len(outer) + 1 :]
    return outer.rpartition(".")[2] + "." + short if short.isdigit() else short


def clean(path):
    """A module's path without what ``torch.compile`` puts into it."""
    return ".".join(part for part in path.split(".") if part != _COMPILED)


def _path_of_node(frame):
    """The path, in the graph's own network, of the module that the running node comes from; None where that is unknown.

    FX keeps a table from the lines of the code it generates to the graph's nodes, for its error messages.
    """
    graph_module = frame.module
    code = getattr(getattr(type(graph_module), "forward", None), "__code__", None)
    lines = getattr(graph_module, "_lineno_map", None)
    if code is None or not lines:
        return None
    running: Any = sys._getframe(1)
    while running is not None and running.f_code is not code:
        running = running.f_back
    if running is None:
        return None
    if frame.nodes is None:
        frame.nodes = list(graph_module.graph.nodes)
    index = lines.get(running.f_lineno - getattr(graph_module, "_prologue_start", 0))
    if index is None or index >= len(frame.nodes):
        return None
    stack = frame.nodes[index].meta.get("nn_module_stack")
    if not stack:
        return None
    last = list(stack.values())[-1]
    name = last[0] if isinstance(last, tuple) else last
    return clean(name) if isinstance(name, str) and re.fullmatch(r"[\w.]*", name) else None
