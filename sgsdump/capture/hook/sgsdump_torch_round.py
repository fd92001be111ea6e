"""One round: a forward of the outermost module, its modules and operators numbered and named as they run.

Top-level modules and operators of a round count from 0 in the order in which they start; what runs inside operator 3
is ``3_0``, ``3_1`` …. A module is called by its path (``layer1.0.conv1``), an operator by the path of the module it
runs in and its own name (``layer1.0.conv1.convolution``); whatever runs again in a round has ``_1``, ``_2`` behind it.
"""

import re
import sys
from collections import Counter
from typing import Any

import torch
from sgsdump_records import Operator
from sgsdump_torch_tensors import plain

ROOT = "root"


class Frame:
    """A module that is running: its path below the outermost one ("" for that), and the folders of its operator."""

    __slots__ = ("children", "folders", "module", "nodes", "operator", "path")

    def __init__(self, module, path, folders, operator=None):
        self.module = module
        self.path = path
        self.folders = folders
        self.operator = operator
        self.children = 0
        self.nodes = None


class Round:
    """``step`` counts from 0; ``root`` is the outermost module (a compiled function has none, but a ``model`` name)."""

    def __init__(self, step, root, model):
        self.step = step
        self.root = root
        self.model = model
        self.paths: dict = {}
        self.owners: dict = {}
        self.kept: list = []
        if isinstance(root, torch.nn.Module):
            self._learn(root, "")
        self.frames = [Frame(root, "", ())]
        self.names: Counter = Counter()
        self.quiet = False

    def begin_module(self, module):
        """A module is called: its ``Operator``, whose inner ones come until ``end_module``."""
        outer = self.frames[-1]
        path = self.paths.get(id(module))
        if path is None:
            path = _below(outer.path, type(module).__name__)
            self._learn(module, path)
        short = path
        if outer.path and path.startswith(outer.path + "."):
            short = path[len(outer.path) + 1 :]
            if short.isdigit():
                short = outer.path.rpartition(".")[2] + "." + short
        operator = self._operator(outer, short, path, type(module).__name__, path)
        self.frames.append(Frame(module, path, operator.folders, operator))
        return operator

    def _learn(self, root, path):
        """Where a network's modules stand, and of their weights' memory {address: (path of the owner, name, shape)}."""
        self.kept.append(root)  # so that no other module gets its number
        for name, module in root.named_modules():
            place = self.paths.setdefault(id(module), _below(path, clean(name)))
            for word, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None and plain(tensor):
                    weight = (place, _below(_below(ROOT, place), word), tensor.shape)
                    self.owners.setdefault(tensor.untyped_storage()._cdata, weight)

    def weight(self, storage, tensor):
        """The name of a weight in the network, ``root.fc.weight``; "" for what is none. ``storage``: its number."""
        owner = self.owners.get(storage)
        return owner[1] if owner is not None and owner[2] == tensor.shape else ""

    def end_module(self):
        self.frames.pop()

    def begin_operator(self, kind, tensors):
        """The ``Operator`` of one of torch's own: ``kind`` is its name with namespace, ``aten.addmm``."""
        frame = self.frames[-1]
        path = frame.path
        if not isinstance(frame.module, torch.nn.Module) or isinstance(frame.module, _OPAQUE):
            path = self._path_inside(frame, tensors)
        short = kind.partition(".")[2]
        return self._operator(frame, short, _below(path, short), kind, path)

    def _operator(self, frame, short, name, kind, path):
        again = self.names[name]
        self.names[name] += 1
        if again:
            name = "{}_{}".format(name, again)
            short = "{}_{}".format(short, again)
        folder = "{}_{}".format(frame.children, short if short[:1].isalpha() else "op" + short)
        frame.children += 1
        return Operator(self.step, (*frame.folders, folder), kind, _below(ROOT, path), self.model, name)

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


def clean(path):
    """A module's path without what ``torch.compile`` puts into it."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


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
