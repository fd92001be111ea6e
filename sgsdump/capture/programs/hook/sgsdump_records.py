"""Lines of the index for operators and tensors (``Lines``), and headers of tensor files.

Everything is written once: an operator's facts in the first line of its number (``place``), the facts of a tensor's
values at their first use in a step. All later lines hold numbers::

    {"place": 7, "model": "Net", "id": "3_1", "module": "root.fc", "op": …, "type": …, "folders": […]}
    {"step": 0, "at": 7, "side": "in", "moment": "before", "values": [12, {"value": 13, "dtype": …, "shape": …}, …]}
    {"step": 0, "at": 7, "event": "operator", "param": {…}, "nanoseconds": null}

"unwritten" marks values whose memory nothing has written to yet. Such values are arbitrary and are not dumped. Values
that are described have::

    "file": null     if there is no file (perhaps with "why"); else its name follows from step, operator and slot
    "unreadable"     with "file": null, if values exist but could not be read
    "stored"         the file below ``processes/`` that holds them; without it the file is a header alone
    "link"           the earlier file that a symbolic link is to point to;  "same": the file that replaces this one

``sgsdump/dumps/formats/shared/hooked.py`` reads this as one line per input and output. The parent imports this module
too, because it writes the files that are a header alone.
"""

import functools
import json
import marshal
import re
import threading
from json.encoder import encode_basestring_ascii as quoted

MOST_NAME = 100
MOST_PARAMS = 5000
MOST_IN_LINE = 1000
FILE_OF_TREE = 8192  # bytes on disk of a file that is a header alone, with its folder
INFINITE = float("inf")
STATISTICS = ("max", "min", "mean", "l2norm")
# ATB's numbers of the element types.
ATB_TYPES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
    "complex32": 33, "float8_e5m2": 35, "float8_e4m3fn": 36, "float8_e8m0fnu": 37,
}  # fmt: skip
FORMAT_ND = 2

encode = json.JSONEncoder(default=str).encode


class Operator:
    """One operator at its place in a network, in every step in which it runs there.

    folders   ``{id}_{name}`` of the layer, its child …; the operator itself is last.
    op_type   type that ``-opname`` matches, with and without the part before its first dot (``aten.addmm``); default:
    the
              name in the last folder.
    module    path in the program's network, ``root.layer1.0``.
    model     name of the graph or outermost module.
    source    line of the program that called it first, ``net.py:28``; "" if unknown.
    chosen    the last ``Choice`` that was asked, and its answer.
    number    number in the lines of ``index``; None until it has one.
    """

    __slots__ = ("_told", "chosen", "folders", "ids", "index", "model", "module", "name", "number", "op_type", "source")

    def __init__(self, folders, op_type="", module="", model="", name="", source=""):
        self.folders = tuple(map(folder_name, folders))
        self.ids = "_".join([folder.partition("_")[0] for folder in self.folders])
        self.name = name or self.folders[-1].partition("_")[2]
        self.op_type = op_type or self.name
        self.module = module
        self.model = model
        self.source = source
        self.chosen = None, False
        self.number = self.index = self._told = None

    def line(self):
        """Return the line that declares the operator's number."""
        if self._told is None:
            self._told = self._facts()
        return f'{{"place": {self.number}, {self._told}'

    def _facts(self):
        facts = {"id": self.ids, "module": self.module, "op": self.name, "type": self.op_type, "folders": self.folders}
        source = {"source": self.source} if self.source else {}
        return encode({"model": self.model, **facts, **source})[1:] + "\n"


@functools.lru_cache(maxsize=10000)
def folder_name(text):
    """Return a name that is valid for a folder: letters, digits, ``_``, ``-`` and ``.``, at most 100 of them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:MOST_NAME]


class Values:
    """Current values of a tensor, shared by any number of inputs and outputs.

    dtype    usual name of the type, ``float32``, ``bfloat16``.
    number   number of these values; the writer and all readers of a tensor use the same number.
    device   number of the device that holds them; default: the process's own.
    weight   name of the weight in the program's network, ``root.fc.weight``; "" otherwise.
    stored   file that holds them, below ``processes/``, or None; ``first``: first place in the tree.
    unwritten  True if nothing has written to their memory, or to part of it.
    parts    numbers of the values written to their memory before, of which they hold parts.
    why      reason why they are not available, or "".
    stats    their statistics as JSON, or ""; beyond: the sum of squares exceeds a double.
    text     their text in the index, or None; valid in an ``era`` of the session, written in the step ``told``.
    """

    __slots__ = (
        *("beyond", "device", "dtype", "era", "first", "number", "parts", "shape", "stats", "stored"),
        *("text", "told", "unwritten", "weight", "why", "word"),
    )

    def __init__(self, dtype, shape, number=None, device=None, stats=None, why=""):
        self.dtype = dtype
        self.shape = shape
        self.number = number
        self.word = "null" if number is None else str(number)
        self.device = device
        self.weight = ""
        self.why = why
        self.unwritten = False
        self.parts = ()
        self.stored = self.first = self.era = self.text = self.told = None
        self.stats, self.beyond = "", False
        if stats:
            self.tell(stats)

    def tell(self, stats):
        """Set the statistics, {"max":, "min":, "mean":, "l2norm":, …}; None if there are none."""
        self.stats = statistics_text(stats) if stats else ""
        finite = bool(stats) and all(abs(stats.get(name) or 0) < INFINITE for name in ("max", "min"))
        self.beyond = finite and stats.get("l2norm") == INFINITE
        self.text = self.told = None

    def belong(self, weight):
        """Set the name of the weight that the values belong to; "" for none."""
        if weight != self.weight:
            self.weight = weight
            self.text = self.told = None

    def facts(self):
        """Return number, type and shape as JSON, without the brackets."""
        return f'"value": {self.word}, {_described(self.dtype, tuple(self.shape))}'


def statistics_text(stats):
    """Return the statistics as JSON; "" if none of the four is present."""
    if len(stats) == 4 and stats.get("l2norm", INFINITE) < INFINITE:  # a finite norm: all four are finite
        return (
            f'{{"max": {stats["max"]!r}, "min": {stats["min"]!r}, "mean": {stats["mean"]!r}, '
            f'"l2norm": {stats["l2norm"]!r}}}'
        )
    return encode(stats) if any(stats.get(name) is not None for name in STATISTICS) else ""


def figures_text(figures):
    """Return the same text as ``statistics_text`` from maximum, minimum, mean and norm."""
    most, least, mean, norm = figures
    if norm < INFINITE:
        return f'{{"max": {most!r}, "min": {least!r}, "mean": {mean!r}, "l2norm": {norm!r}}}'
    return statistics_text(dict(zip(STATISTICS, figures)))


def is_beyond(figures):
    """Return whether the sum of squares of finite values exceeds a double."""
    most, least, _, norm = figures
    return norm == INFINITE and least > -INFINITE and most < INFINITE


@functools.lru_cache(maxsize=10000)
def _described(dtype, shape):
    return f'"dtype": "{dtype}", "shape": {[int(size) for size in shape]}'


_params: dict = {}


def param_text(param):
    """Return an operator's arguments as JSON; cached, because most operators have the same arguments in every step."""
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


def called_text(text, call):
    """Return the text of an operator's arguments, extended by that of ``Facts.call``."""
    return f'{text}, "call": {param_text(call)}'


class Lines:
    """Writer of lines under the current ``control``; values go to ``store``, reports to ``trouble(text)``."""

    def __init__(self, control, store, device, trouble):
        self._control = control
        self._store = store
        self._device = device
        self._trouble = trouble

    def begin(self, pid, index, index_of, take_room):
        """Set number and index of the process; called again in a forked process.

        ``index_of(step)`` returns the index for a step's lines; ``take_room(size)`` counts disk space of files of the
        tree.
        """
        self._pid = pid
        self._index = index
        self._index_of = index_of
        self._take_room = take_room
        self._lock = threading.Lock()
        self._is_beyond_told = False
        self._era: tuple = (None, None)  # control and index for which texts were created

    def move(self, device):
        """Set the process's own device, if it was not known before."""
        self._device = device
        self._era = None, None

    def era(self):
        """Return a key: cached texts stay valid while it is the same object."""
        if self._era[0] is not self._control.now:
            self._era = self._control.now, self._index
        return self._era

    def tensor(self, port, values, data=None):
        """Return one input's or output's part of a line: its number if described in this step, else all facts.

        Values without a file are stored.

        port     (step, operator, side, slot, moment).
        data     elements in C order (bytes, or any object for memoryview), or a function that returns them; it is
        called only
                 if they are written.
        """
        era = self.era()
        if values.unwritten and self._control.now["layout"] == "rounds":
            self._index_of(port[0]).unwritten += 1
        if values.told == port[0] and values.era is era:
            return values.word
        if values.text is None or values.era is not era:
            values.era = era
            values.text = self._described(port, values, data)
        if values.number is not None:
            values.told = port[0]
        return values.text

    def tensors(self, step, operator, side, moment, told):
        """Return the line of an operator's inputs or outputs from the results of ``tensor``."""
        index = self._index_of(step)
        place = "" if operator.index is index else self._place(operator, index)
        number = operator.number
        index.tensors += len(told) - told.count("null")
        start = f'{{"step": {step}, "at": {number}, "side": "{side}", "moment": "{moment}", '
        if len(told) <= MOST_IN_LINE:
            return f'{place}{start}"values": [{", ".join(told)}]}}\n'
        parts = range(0, len(told), MOST_IN_LINE)
        return place + "".join(
            f'{start}"slot": {first}, "values": [{", ".join(told[first : first + MOST_IN_LINE])}]}}\n'
            for first in parts
        )

    def operator(self, step, operator, param=None, nanoseconds=None, call=None):
        """Return the line of an operator that ran.

        ``call`` is its overload and the names of the tensors that it read; ``param`` may be the text of both.
        """
        text = "null" if param is None else param if type(param) is str else param_text(param)
        taken = "null" if nanoseconds is None or not self._control.now.get("timing") else nanoseconds
        text = text if call is None else called_text(text, call)
        index = self._index_of(step)
        place = "" if operator.index is index else self._place(operator, index)
        index.operators += 1
        return (
            f'{place}{{"step": {step}, "at": {operator.number}, "event": "operator", "param": {text}, '
            f'"nanoseconds": {taken}}}\n'
        )

    def _place(self, operator, index):
        """Give an operator its number in an index; return the text that must precede its first use there."""
        with self._lock:
            if operator.index is index:
                return ""
            operator.number, index.numbers = index.numbers, index.numbers + 1
            text = index.place(operator.line())
            operator.index = index
        return text

    def _described(self, port, values, data):
        step, operator, side, slot, moment = port
        control, device = self._control.now, self._device if values.device is None else values.device
        if control["devices"] and device not in control["devices"]:
            return "null"
        content, stats = control["content"], "null"
        is_round = control["layout"] == "rounds"
        if is_round and values.why:
            self._index_of(step).left_out(values.why, f"{operator.name}, {side}put {slot}")
        if content == "stats":
            stats = values.stats or "null"
            if values.beyond and not self._is_beyond_told:
                self._is_beyond_told = True
                self._trouble(f"{operator.name}: the sum of squares of a tensor exceeds a double; its l2norm is inf")
        if content == "structure" or self._control.stopped:
            file = _without("")
        elif values.why:
            file = f'{_without(values.why)}, "unreadable": true'
        elif not is_round and values.dtype not in ATB_TYPES:
            file = _without(f"ATB has no number for {values.dtype}")
        elif values.unwritten:
            file = ""
        elif content == "stats" and not values.stats:
            file = _without("it has no statistics")
        elif content == "tensor" and is_round:
            file = self._in_round(control, self._index_of(step), values, data)
        elif content == "tensor":
            path = f"{step}/{'/'.join(operator.folders)}/{moment}/{side}tensor{slot}.bin"
            file = self._stored(control, f"tensors/{device}_{self._pid}/{path}", values, data)
        else:
            file = ""
        if not is_round and content in ("stats", "description") and file == "":
            self._take_room(FILE_OF_TREE)
        named = f', "weight": {quoted(values.weight)}' if values.weight else ""
        named += ', "unwritten": true' if values.unwritten else ""
        named += f', "parts": {[*values.parts]}' if values.parts else ""
        return f'{{{values.facts()}, "stats": {stats}, "device": {device}{named}{file}}}'

    def _in_round(self, control, round, values, data):
        """Return the text for a payload of a round."""
        if values.stored is None:
            why = self._store.keep(control, "", values, data, round)
            if why is not None:
                return _without(why)
        return f', "payload": {values.stored}'

    def _stored(self, control, path, values, data):
        """Return the text for the file of values; ``path`` is its place in the tree."""
        if values.stored is None:
            why = self._store.keep(control, path, values, data)
            if why is not None:
                return _without(why)
        kind = {"index": "same", "symlink": "link"}.get(control["links"])
        first = "" if kind is None else f', "{kind}": "{values.first}"'
        return f', "stored": "{values.stored}"{first}'


def _without(why):
    """Return the text for values without a file."""
    return f', "file": null, "why": {quoted(why)}' if why else ', "file": null'


def header_of(dtype, shape, size):
    """Return the header of a payload of ``size`` bytes. Raises KeyError for a type without an ATB number."""
    return _header(dtype, shape, size, (), [f"$Object.data=0,{size}"])


def header_alone(dtype, shape, stats):
    """Return the file of a tensor with description or statistics only. Raises KeyError as ``header_of``."""
    figures = [f"{name}={stats[name]!r}" for name in STATISTICS if stats and stats.get(name) is not None]
    return _header(dtype, shape, 0, figures, ())


def _header(dtype, shape, size, statistics, data):
    lines = ["$Version=1.0", f"$Object.Count={int(bool(size))}", f"$Object.Length={size}"]
    lines += [
        f"format={FORMAT_ND}",
        f"dtype={ATB_TYPES[dtype]}",
        f"dims={','.join(str(int(length)) for length in shape)}",
    ]
    return "\n".join([*lines, *statistics, *data, "$End=1\n"]).encode("ascii")
