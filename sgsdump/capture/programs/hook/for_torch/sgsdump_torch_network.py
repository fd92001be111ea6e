"""Names of a network's modules and of the memory of its weights (``Network``), as of a round's begin.

A program may change both between rounds. ``Layout`` detects changes from the objects alone, in a tenth of the time that
naming takes.
"""

import torch
from sgsdump_torch_tensors import plain
from torch.nn.parameter import is_lazy

ROOT = "root"
COMPILED = "_orig_mod"


class Network:
    """Names in a network.

    ``root`` is the outermost module (a compiled function has none); ``last`` the layout of the previous round.

    paths   path of each module, by its id; "" for the outermost one.
    owners  memory of each weight, by its id: (path of the module, name of the weight, shape).
    layout  layout for the next round.
    """

    def __init__(self, root, last=None):
        self._kept: list = []  # keeps modules alive, so that their ids are not reused
        self._weights: list = []
        self.paths: dict = {}
        self.owners: dict = {}
        self.layout = None
        if not isinstance(root, torch.nn.Module):
            return
        layout = Layout(root)
        self._kept, self._weights = layout.modules, layout.weights
        if last is not None and layout.is_same_as(last):
            layout = last
            self.paths, self.owners = dict(last.paths), dict(last.owners)
        else:
            self.learn(root, "")
            layout.know(self.paths, self.owners)
        layout.release()
        self.layout = layout

    def learn(self, module, path):
        """Add a module at this path, and all modules inside."""
        if id(module) in self.paths:
            return
        self._kept.append(module)
        self.paths[id(module)] = path
        prefix = below(ROOT, path) + "."
        for stored in (module._parameters, module._buffers):
            for word, tensor in stored.items():
                if tensor is not None and not is_lazy(tensor) and plain(tensor):
                    self.owners.setdefault(tensor.untyped_storage()._cdata, (path, prefix + word, tensor.shape))
        for word, inner in module._modules.items():
            if inner is not None:
                self.learn(inner, path if word == COMPILED else below(path, word))

    def weight(self, storage, tensor):
        """Return the name of a weight, ``root.fc.weight``, or "" for other tensors; ``storage`` is the memory's id."""
        owner = self.owners.get(storage)
        return owner[1] if owner is not None and owner[2] == tensor.shape else ""

    def is_graded(self):
        """Return whether a weight has a gradient."""
        return have_gradient(self._weights)


class Layout:
    """The objects of a network, by their ids, and the names that it gave them (``know``).

    An object with the id of a freed one has taken its place, under the same name.
    """

    def __init__(self, root):
        self.modules = modules = [root]
        self.weights: list = []
        self._tensors: list = []
        self._names: list = []
        self._numbers: list = [id(root)]
        seen = {id(root)}
        for module in modules:
            inner, weights, buffers = module._modules, module._parameters, module._buffers
            self._names.append(None)
            if inner:
                self._names += inner.keys()
                self._numbers += map(id, inner.values())
                for child in inner.values():
                    if child is not None and id(child) not in seen:
                        seen.add(id(child))
                        modules.append(child)
            if weights:
                self._names += weights.keys()
                self._tensors += weights.values()
                self.weights += (weight for weight in weights.values() if weight is not None)
            if buffers:
                self._names += buffers.keys()
                self._tensors += buffers.values()
        self._numbers += map(id, self._tensors)
        self._kinds = [*map(type, self._tensors)]

    def know(self, paths, owners):
        self.paths, self.owners = dict(paths), dict(owners)
        self._plain = [
            index
            for index, tensor in enumerate(self._tensors)
            if tensor is not None and not is_lazy(tensor) and plain(tensor)
        ]
        self._memory = self._memory_of(self._plain)

    def is_same_as(self, last):
        """Return whether a known layout has the same names for the same objects, in the same memory."""
        if self._numbers != last._numbers or self._names != last._names or self._kinds != last._kinds:
            return False
        try:
            return self._memory_of(last._plain) == last._memory
        except (RuntimeError, NotImplementedError):  # a tensor without memory
            return False

    def release(self):
        """Drop all references to objects."""
        self.modules, self.weights, self._tensors = [], [], []

    def _memory_of(self, indices):
        tensors = [self._tensors[index] for index in indices]
        return [tensor.untyped_storage()._cdata for tensor in tensors], [tensor.shape for tensor in tensors]


def have_gradient(weights):
    return any(weight.grad is not None for weight in weights if not is_lazy(weight))


def below(path, name):
    return path + "." + name if path and name else path or name
