"""What the index says of an operator, and of the values of a tensor: text that is made once and used in every step."""

import functools
import json
import marshal
import re

MOST_NAME = 100
MOST_PARAMS = 5000
INFINITE = float("inf")
STATISTICS = ("max", "min", "mean", "l2norm")

encode = json.JSONEncoder(default=str).encode


class Operator:
    """One operator at its place in a network, in whichever step it runs there.

    folders   ``{id}_{name}`` of the layer, of its child …; the operator itself is the last one.
    op_type   what ``-opname`` looks at, with and without what stands before its first dot (``aten.addmm``); the name
              of the last folder when it is not given.
    module    where in the program's network it stands, ``root.layer1.0``.
    model     the graph's or outermost module's name.
    wanted    the ``Choice`` that was asked last whether it is dumped, and its answer.
    number    what stands for it in the lines of ``index``; None so far.
    """

    __slots__ = ("folders", "ids", "index", "model", "module", "name", "number", "op_type", "wanted")

    def __init__(self, folders, op_type="", module="", model="", name=""):
        self.folders = tuple(map(folder_name, folders))
        self.ids = "_".join([folder.partition("_")[0] for folder in self.folders])
        self.name = name or self.folders[-1].partition("_")[2]
        self.op_type = op_type or self.name
        self.module = module
        self.model = model
        self.wanted = None, False
        self.number = self.index = None

    def line(self):
        """The line that tells what its number stands for."""
        facts = {"id": self.ids, "module": self.module, "op": self.name, "type": self.op_type, "folders": self.folders}
        return encode({"place": self.number, "model": self.model, **facts}) + "\n"


@functools.lru_cache(maxsize=10000)
def folder_name(text):
    """A name as a folder may have it: letters, digits, ``_``, ``-`` and ``.``, at most 100 of them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:MOST_NAME]


class Values:
    """The values of a tensor as they are now, of however many inputs and outputs.

    dtype    the type's usual name, ``float32``, ``bfloat16``.
    number   stands for these values: what reads a tensor and what made it have one number.
    device   the number of the device that holds them; the process's own without it.
    weight   where they are a weight's, its name in the program's network, ``root.fc.weight``.
    stored   the file that has them, below ``processes/``; None until there is one. ``first``: where in the tree they
             were dumped first.
    unwritten  nothing has written to their memory yet, or not to all of it.
    why      why they cannot be had, "" where they can.
    stats    their statistics in JSON, "" where there are none; beyond: their sum of squares is beyond a double.
    text     what the session says of them, None where it has to look again; it holds in an ``era`` of the session, and
             was written in the step ``told``.
    """

    __slots__ = (
        *("beyond", "device", "dtype", "era", "first", "number", "shape", "stats", "stored"),
        *("text", "told", "unwritten", "weight", "why", "word"),
    )

    def __init__(self, dtype, shape, number=None, device=None, stats=None, weight="", why=""):
        self.dtype = dtype
        self.shape = shape
        self.number = number
        self.word = "null" if number is None else str(number)
        self.device = device
        self.weight = weight
        self.why = why
        self.unwritten = False
        self.stored = self.first = self.era = self.text = self.told = None
        self.stats, self.beyond = "", False
        if stats:
            self.tell(stats)

    def tell(self, stats):
        """Statistics, {"max":, "min":, "mean":, "l2norm":, …}; None for what has none."""
        self.stats = statistics_text(stats) if stats else ""
        finite = bool(stats) and all(abs(stats.get(name) or 0) < INFINITE for name in ("max", "min"))
        self.beyond = finite and stats.get("l2norm") == INFINITE
        self.text = self.told = None

    def belong(self, weight):
        """They are a weight's of this name; "" for those of none."""
        if weight != self.weight:
            self.weight = weight
            self.text = self.told = None

    def facts(self):
        """Number, type and shape in JSON, without the brackets."""
        return f'"value": {self.word}, {_described(self.dtype, tuple(self.shape))}'


def statistics_text(stats):
    """In JSON; "" where there is none of the four."""
    if len(stats) == 4 and stats.get("l2norm", INFINITE) < INFINITE:  # so all four are finite
        return (
            f'{{"max": {stats["max"]!r}, "min": {stats["min"]!r}, "mean": {stats["mean"]!r}, '
            f'"l2norm": {stats["l2norm"]!r}}}'
        )
    return encode(stats) if any(stats.get(name) is not None for name in STATISTICS) else ""


@functools.lru_cache(maxsize=10000)
def _described(dtype, shape):
    return f'"dtype": "{dtype}", "shape": {[int(size) for size in shape]}'


_params: dict = {}


def param_text(param):
    """The arguments of an operator in JSON; most operators have the same ones in every step."""
    try:
        key = marshal.dumps(param, 2)  # tells 1, 1.0 and True apart
    except ValueError:
        return encode(param)
    text = _params.get(key)
    if text is None:
        if len(_params) >= MOST_PARAMS:
            _params.clear()
        text = _params[key] = encode(param)
    return text
