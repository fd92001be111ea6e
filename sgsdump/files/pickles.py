"""Safe pickle reader: builds plain data, and never looks up or calls the names in a pickle.

A pickle is a program for a stack machine. This machine supports numbers, texts, bytes, lists, dicts and tuples. A name
(``Global``) stays a name; an object of any class becomes a record (``Object``) of its description in the file. The
caller of ``load`` decides the result of a call. ``loads`` accepts plain data and numpy arrays of numbers, and refuses
every other name.

Memory use is a small multiple of the file size. Lengths are read before memory is allocated. The memo is a dict, so a
huge index takes one entry. Dict keys are plain: hashing nested tuples would exhaust the C stack.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sgsdump.errors import FormatError

Call = Callable[["Global", tuple[Any, ...]], Any]
Refer = Callable[[Any], Any]
Allow = Callable[["Global"], None]
_PLAIN = (str, int, float, bool, bytes, type(None))
_LARGEST = 1 << 64


class Readable(Protocol):
    """Source of a pickle, positioned at its first byte: a file, BytesIO or a mapped file."""

    def read(self, size: int, /) -> bytes: ...

    def readline(self) -> bytes: ...


@dataclass(frozen=True)
class Global:
    """A class or function that the pickle names."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Object:
    """An object of a class as described in the pickle: constructor arguments, state, items and elements."""

    of: Any
    arguments: Any = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    elements: list[Any] = field(default_factory=list)


class PlainArray:
    """An array of numbers read by ``loads``; ``array`` is read-only."""

    array: np.ndarray = np.zeros(0)

    def set_state(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _array(data, dtype, shape, "F" if fortran else "C")


def loads(data: bytes, where: str) -> Any:
    """Return the plain data of a pickle.

    Supported: None, bool, int, float, str, bytes, list, tuple, dict, OrderedDict, numpy scalars, and arrays as
    ``PlainArray``; a set becomes a list. Raises FormatError, beginning with ``where``, for a damaged pickle and for any
    other name.
    """
    return load(io.BytesIO(data), where, _called, _refuse_reference, _allow_plain)


def load(file: Readable, where: str, call: Call, refer: Refer, allow: Allow = lambda name: None) -> Any:
    """Read the next pickle of a file, and leave the file after it. Sets become lists.

    call   returns the substitute for the result of calling a name with arguments
    refer  returns the substitute for an object outside the pickle, by its id
    allow  is called with every name, and raises FormatError for a refused name

    Raises FormatError, beginning with ``where``, for a damaged pickle. The three functions may raise it without
    ``where``.
    """
    machine = _Machine(call, refer, allow)
    try:
        for opcode, argument, _ in pickletools.genops(file):  # type: ignore[arg-type]
            if opcode.name == "STOP":
                break
            machine.take(opcode.name, argument)
        return machine.stack.pop()
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
    except Exception as error:
        # A damaged pickle can raise anything: stack too short, invalid text, endless name.
        reason = " ".join(str(error).split())[:100]
        raise FormatError(f"{where}: damaged pickle ({type(error).__name__}: {reason})") from None


def refused(name: object) -> FormatError:
    """Return the error for a pickle that calls ``name``."""
    return FormatError(f"refused: the file calls {str(name)[:160]!r}, which is not plain data")


class _Machine:
    """Stack, stacks below marks, and memo."""

    def __init__(self, call: Call, refer: Refer, allow: Allow):
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.call, self.refer, self.allow = call, refer, allow

    def take(self, opcode: str, argument: Any) -> None:
        if opcode in _RESULTS:
            result = _RESULTS[opcode](self, argument)
            self.stack.append(result)
        elif opcode in _EFFECTS:
            _EFFECTS[opcode](self, argument)
        else:
            raise FormatError("the pickle uses an unsupported instruction")

    def popped(self, count: int) -> list[Any]:
        """Pop the last items of the stack, in order."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def marked(self) -> list[Any]:
        """Pop the items since the last mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def remember(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def named(self, module: Any, name: Any) -> Global:
        if not isinstance(name, str) or not isinstance(module, str):
            raise FormatError("damaged pickle (a name that is not text)")
        named = Global(module, name)
        self.allow(named)
        return named

    def called(self, name: Any, arguments: Any) -> Any:
        if not isinstance(name, Global) or not isinstance(arguments, tuple):
            raise FormatError("damaged pickle (it contains an invalid function call)")
        return self.call(name, arguments)

    def extend(self, items: list[Any]) -> None:
        into = self.stack[-1]
        into = into.elements if isinstance(into, Object) else into
        if not isinstance(into, list):
            raise FormatError("damaged pickle (it adds items to a value that is not a list)")
        into.extend(items)

    def update(self, items: list[Any]) -> None:
        into = self.stack[-1]
        into = into.items if isinstance(into, Object) else into
        if not isinstance(into, dict):
            raise FormatError("damaged pickle (it adds keys to a value that is not a dict)")
        into.update(_paired(items))

    def build(self, state: Any) -> None:
        target = self.stack[-1]
        if isinstance(target, Object):
            target.state = state
        elif isinstance(target, (PlainArray, _PlainDtype)):
            target.set_state(state)
        elif isinstance(target, Global):
            raise FormatError("refused: the pickle modifies a class or a function")


Opcode = Callable[[_Machine, Any], Any]
_VALUES = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES "
    "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8"
)
# Instructions that push a result; ``argument`` is the instruction's own argument.
_RESULTS: dict[str, Opcode] = {
    **dict.fromkeys(_VALUES.split(), lambda machine, argument: argument),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, argument: machine.memo[int(argument)]),
    "NONE": lambda machine, _: None,
    "NEWTRUE": lambda machine, _: True,
    "NEWFALSE": lambda machine, _: False,
    "DUP": lambda machine, _: machine.stack[-1],
    "EMPTY_TUPLE": lambda machine, _: (),
    "EMPTY_LIST": lambda machine, _: [],
    "EMPTY_SET": lambda machine, _: [],
    "EMPTY_DICT": lambda machine, _: {},
    "TUPLE1": lambda machine, _: tuple(machine.popped(1)),
    "TUPLE2": lambda machine, _: tuple(machine.popped(2)),
    "TUPLE3": lambda machine, _: tuple(machine.popped(3)),
    "TUPLE": lambda machine, _: tuple(machine.marked()),
    "LIST": lambda machine, _: machine.marked(),
    "FROZENSET": lambda machine, _: machine.marked(),
    "DICT": lambda machine, _: _paired(machine.marked()),
    "GLOBAL": lambda machine, argument: machine.named(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.named(*machine.popped(2)),
    "REDUCE": lambda machine, _: machine.called(*machine.popped(2)),
    "NEWOBJ": lambda machine, _: Object(*machine.popped(2)),
    "NEWOBJ_EX": lambda machine, _: Object(machine.stack.pop(-3), tuple(machine.popped(2))),
    "INST": lambda machine, argument: Object(machine.named(*argument.split(" ", 1)), tuple(machine.marked())),
    "OBJ": lambda machine, _: Object((items := machine.marked())[0], tuple(items[1:])),
    "PERSID": lambda machine, argument: machine.refer(argument),
    "BINPERSID": lambda machine, _: machine.refer(machine.stack.pop()),
}
_EFFECTS: dict[str, Opcode] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, _: None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda machine, argument: machine.remember(int(argument))),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.stack.pop() if machine.stack else machine.marked(),
    "POP_MARK": lambda machine, _: machine.marked(),
    "APPEND": lambda machine, _: machine.extend(machine.popped(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.marked()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.marked()),
    "SETITEM": lambda machine, _: machine.update(machine.popped(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.marked()),
    "BUILD": lambda machine, _: machine.build(machine.stack.pop()),
}


def _paired(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise FormatError("damaged pickle (a key without a value)")
    return {_key(key): value for key, value in zip(items[::2], items[1::2])}


def _key(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    if any(not isinstance(part, (*_PLAIN, Global)) for part in parts):
        raise FormatError("the pickle has a dict with keys that are neither text nor numbers")
    if any(isinstance(part, int) and abs(part) >= _LARGEST for part in parts):
        raise FormatError("the pickle has a dict whose key is an integer of more than 64 bits")
    return key


class _PlainDtype:
    """Substitute for numpy.dtype: kind and size such as ``f8``, and the byte order from its state."""

    def __init__(self, code: Any, *_flags: Any):
        self.dtype = np.dtype(code) if isinstance(code, str) and len(code) <= 4 else np.dtype(object)
        if self.dtype.kind not in "biuf":
            raise FormatError(f"the pickle holds an array of {str(code)[:40]!r}; only arrays of numbers are supported")

    def set_state(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _PlainDtype) or not isinstance(data, (bytes, bytearray)):
        raise FormatError("the pickle holds an array whose elements are not plain numbers")
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(type(size) is not int or size < 0 for size in sizes) or order not in ("C", "F"):
        raise FormatError("the pickle holds an array with an invalid shape")
    if math.prod(sizes) * dtype.dtype.itemsize != len(data):
        raise FormatError(
            f"the pickle holds an array of shape {list(sizes)}, but its data of {len(data)} bytes do not "
            "match this shape"
        )
    return np.frombuffer(bytes(data), dtype.dtype).reshape(sizes, order=order)  # type: ignore[call-overload]


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> PlainArray:
    plain = PlainArray()
    plain.array = _array(data, dtype, shape, order)
    return plain


def _encode(text: Any, encoding: Any) -> bytes:
    if encoding != "latin1" or not isinstance(text, str):
        raise FormatError("the pickle holds bytes in an unknown encoding")
    return text.encode("latin1")


_CORES = ("numpy.core", "numpy._core")
_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("numpy", "dtype"): _PlainDtype,
    ("_codecs", "encode"): _encode,
    **{(f"{core}.multiarray", "_reconstruct"): lambda _class, _shape, _code: PlainArray() for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): lambda dtype, data: _array(data, dtype, (), "C").item() for core in _CORES},
    **{(f"{core}.numeric", "_frombuffer"): _frombuffer for core in _CORES},
}
_PLAIN_NAMES = {*_CALLS, ("numpy", "ndarray")}


def _called(name: Global, arguments: tuple[Any, ...]) -> Any:
    if (name.module, name.name) not in _CALLS:
        raise refused(name)
    return _CALLS[name.module, name.name](*arguments)


def _allow_plain(name: Global) -> None:
    if (name.module, name.name) not in _PLAIN_NAMES:
        raise FormatError(f"refused: the pickle refers to {str(name)[:160]}, which is not plain data")


def _refuse_reference(_id: Any) -> Any:
    raise FormatError("refused: the pickle refers to objects outside itself")
