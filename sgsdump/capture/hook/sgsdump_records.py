"""What the index says of an operator, and of the values of a tensor."""

import functools
import json
import re
from json.encoder import encode_basestring_ascii as quoted

MOST_NAME = 100
INFINITE = float("inf")
STATISTICS = ("max", "min", "mean", "l2norm")

encode = json.JSONEncoder(default=str).encode


class Operator:
    """One operator as it runs in one step.

    step      the outermost forward's number, from 0.
    folders   ``{id}_{name}`` of the layer, of its child …; the operator itself is the last one.
    op_type   what ``-opname`` looks at, with and without what stands before its first dot (``aten.addmm``); the name
              of the last folder when it is not given.
    module    where in the program's network it stands, ``root.layer1.0``.
    model     the graph's or outermost module's name.
    """

    __slots__ = ("_head", "folders", "ids", "model", "module", "name", "op_type", "place", "step")

    def __init__(self, step, folders, op_type="", module="", model="", name=""):
        self.step = step
        self.folders = tuple(map(folder_name, folders))
        self.ids = "_".join([folder.partition("_")[0] for folder in self.folders])
        self.name = name or self.folders[-1].partition("_")[2]
        self.op_type = op_type or self.name
        self.module = module
        self.model = model
        self.place = "{}/{}".format(step, "/".join(self.folders))
        self._head = ""

    def head(self):
        """What all its lines begin with, in JSON without the brackets."""
        if not self._head:
            folders = '", "'.join(self.folders)
            self._head = (
                f'"step": {self.step}, "model": {quoted(self.model)}, "id": "{self.ids}", '
                f'"module": {quoted(self.module)}, "op": {quoted(self.name)}, "type": {quoted(self.op_type)}, '
                f'"folders": ["{folders}"]'
            )
        return self._head


@functools.lru_cache(maxsize=10000)
def folder_name(text):
    """A name as a folder may have it: letters, digits, ``_``, ``-`` and ``.``, at most 100 of them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:MOST_NAME]


class Values:
    """The values of a tensor as they are now, of however many inputs and outputs.

    dtype    the type's usual name, ``float32``, ``bfloat16``.
    number   stands for these values: what reads a tensor and what made it have one number.
    device   the number of the device that holds them; the process's own without it.
    stored   the file that has them, below ``processes/``; None until there is one. ``first``: where in the tree they
             were dumped first.
    """

    __slots__ = ("_stats", "beyond", "device", "dtype", "first", "number", "shape", "stored", "text")

    def __init__(self, dtype, shape, number=None, device=None, stats=None):
        self.dtype = dtype
        self.shape = tuple(shape)
        self.number = number
        self.device = device
        self.stored = self.first = None
        self.text = (
            f'"dtype": "{dtype}", "shape": {[int(size) for size in self.shape]}, '
            f'"value": {"null" if number is None else number}'
        )
        self.tell(stats)

    def tell(self, stats):
        """Statistics, {"max":, "min":, "mean":, "l2norm":, …}; None for what has none."""
        self._stats = encode(stats) if stats and any(stats.get(name) is not None for name in STATISTICS) else ""
        self.beyond = bool(stats) and stats.get("l2norm") == INFINITE and abs(stats.get("max") or 0) < INFINITE

    @property
    def stats(self):
        """In JSON; "" where there are none."""
        return self._stats
