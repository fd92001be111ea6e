"""Pickles read as data: what they describe is built, and nothing that they name is looked up or called.

A pickle is a program for a machine with a stack. This one knows numbers, texts, bytes, lists, dicts and tuples; a name
(``Global``) stays a name, an object of any class (``Object``) a record of what the file says of it. What a call gives
is up to the caller of ``load``; ``loads`` takes plain data and numpy's arrays of numbers, and refuses every other name.

Memory is that of the file's own bytes a small number of times: lengths are read before room is made for them, and the
memo is a dict, so an index of two thousand million takes one entry. Keys of dicts are plain (no tuple in a tuple …,
whose hash would take the C stack).
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
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES "
    "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8".split()
)
_SETS = ("EMPTY_LIST", "EMPTY_SET", "LIST", "FROZENSET")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Readable(Protocol):
    """What a pickle is read from: a file, BytesIO or a mapped file, at its first byte."""

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
    """An object of a class, as the pickle describes it: what it is made with, its state, and what is put into it."""

    of: Any
    arguments: Any = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    elements: list[Any] = field(default_factory=list)


class PlainArray:
    """An array of numbers in a pickle that ``loads`` reads; ``array`` is read-only."""

    array: np.ndarray = np.zeros(0)

    def set_state(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _array(data, dtype, shape, "F" if fortran else "C")


def loads(data: bytes, where: str) -> Any:
    """The plain data of a pickle: None, bool, int, float, str, bytes, list, tuple, dict, OrderedDict, numpy's scalars,
    and arrays as ``PlainArray``; a set is a list.

    Raises FormatError, beginning with ``where``, for a damaged pickle and for one that names anything else.
    """
    return load(io.BytesIO(data), where, _called, _refuse_reference, _allow_plain)


def load(file: Readable, where: str, call: Call, refer: Refer, allow: Allow = lambda name: None) -> Any:
    """What the next pickle of a file describes; the file stands after it then. Sets are lists.

    call   gives what stands for the result of calling a name with arguments.
    refer  gives what stands for an object outside of the pickle, by its id.
    allow  is asked of every name.

    Raises FormatError, beginning with ``where``, for a damaged pickle; so may the three, without it.
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
        # what a damaged pickle raises is open-ended: too short a stack, text that is none, a name without end
        reason = " ".join(str(error).split())[:100]
        raise FormatError(f"{where}: damaged pickle ({type(error).__name__}: {reason})") from None


def refused(name: object) -> FormatError:
    """The error for a pickle that wants to call ``name``."""
    return FormatError(f"refused: the file wants {str(name)[:160]!r} to be called, which is not plain data")


class _Machine:
    """The stack, the stacks below marks, and the memo."""

    def __init__(self, call: Call, refer: Refer, allow: Allow):
        self.stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._call, self._refer, self._allow = call, refer, allow

    def take(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "MEMOIZE", "LONG_BINPUT", "PUT"):
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[int(argument)])
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            self._below.append(stack)
            self.stack = []
        elif name in _TUPLES:
            items = [stack.pop() for _ in range(_TUPLES[name])]
            stack.append(tuple(reversed(items)))
        elif name == "TUPLE":
            self.stack = self._below.pop()
            self.stack.append(tuple(stack))
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name in _SETS:
            self.stack = self.stack if name.startswith("EMPTY") else self._below.pop()
            self.stack.append([] if name.startswith("EMPTY") else stack)
        elif name in ("PROTO", "FRAME"):
            return
        else:
            getattr(self, f"_{name.lower()}", self._unknown)(argument)

    def _unknown(self, argument: Any) -> None:
        raise FormatError("the pickle uses an instruction that no tensor needs")

    def _marked(self) -> list[Any]:
        """What was put on the stack since the last mark."""
        items, self.stack = self.stack, self._below.pop()
        return items

    def _pop(self, argument: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self._marked()

    def _pop_mark(self, argument: Any) -> None:
        self._marked()

    def _dup(self, argument: Any) -> None:
        self.stack.append(self.stack[-1])

    def _append(self, argument: Any) -> None:
        item = self.stack.pop()
        self._extend([item])

    def _appends(self, argument: Any) -> None:
        self._extend(self._marked())

    _additems = _appends

    def _extend(self, items: list[Any]) -> None:
        into = self.stack[-1]
        if isinstance(into, Object):
            into = into.elements
        if not isinstance(into, list):
            raise FormatError("damaged pickle (it puts items into what is not a list)")
        into.extend(items)

    def _setitem(self, argument: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def _setitems(self, argument: Any) -> None:
        self._update(self._marked())

    def _update(self, items: list[Any]) -> None:
        into = self.stack[-1]
        if isinstance(into, Object):
            into = into.items
        if not isinstance(into, dict):
            raise FormatError("damaged pickle (it puts keys into what is not a dict)")
        into.update(_paired(items))

    def _dict(self, argument: Any) -> None:
        items = self._marked()
        self.stack.append(_paired(items))

    def _global(self, argument: Any) -> None:
        self.stack.append(self._named(*argument.split(" ", 1)))

    def _named(self, module: Any, name: Any) -> Global:
        if not isinstance(name, str) or not isinstance(module, str):
            raise FormatError("damaged pickle (a name that is not text)")
        named = Global(module, name)
        self._allow(named)
        return named

    def _stack_global(self, argument: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._named(module, name))

    def _reduce(self, argument: Any) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, Global) or not isinstance(arguments, tuple):
            raise FormatError("damaged pickle (it calls what is not a name)")
        self.stack.append(self._call(name, arguments))

    def _newobj(self, argument: Any) -> None:
        arguments, of = self.stack.pop(), self.stack.pop()
        self.stack.append(Object(of, arguments))

    def _newobj_ex(self, argument: Any) -> None:
        keywords, arguments, of = (self.stack.pop() for _ in range(3))
        self.stack.append(Object(of, (arguments, keywords)))

    def _inst(self, argument: Any) -> None:
        arguments = tuple(self._marked())
        self.stack.append(Object(self._named(*argument.split(" ", 1)), arguments))

    def _obj(self, argument: Any) -> None:
        of, *arguments = self._marked()
        self.stack.append(Object(of, tuple(arguments)))

    def _build(self, argument: Any) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Object):
            target.state = state
        elif isinstance(target, (PlainArray, _PlainDtype)):
            target.set_state(state)
        elif isinstance(target, Global):
            raise FormatError("refused: the pickle wants to change a class or a function")

    def _persid(self, argument: Any) -> None:
        self.stack.append(self._refer(argument))

    def _binpersid(self, argument: Any) -> None:
        self.stack.append(self._refer(self.stack.pop()))


def _paired(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise FormatError("damaged pickle (a key without a value)")
    return {_key(key): value for key, value in zip(items[::2], items[1::2])}


def _key(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    if any(not isinstance(part, (*_PLAIN, Global)) for part in parts):
        raise FormatError("the pickle has a dict whose keys are neither texts nor numbers")
    if any(isinstance(part, int) and abs(part) >= _LARGEST for part in parts):
        raise FormatError("the pickle has a dict with a key of more than 64 bits")
    return key


class _PlainDtype:
    """What stands for numpy.dtype: a kind and size as ``f8``, and the byte order that its state brings."""

    def __init__(self, code: Any, *_flags: Any):
        self.dtype = np.dtype(code) if isinstance(code, str) and len(code) <= 4 else np.dtype(object)
        if self.dtype.kind not in "biuf":
            raise FormatError(f"the pickle holds an array of {str(code)[:40]!r}, only arrays of numbers are read")

    def set_state(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _PlainDtype) or not isinstance(data, (bytes, bytearray)):
        raise FormatError("the pickle holds an array that is not of plain numbers")
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(type(size) is not int or size < 0 for size in sizes) or order not in ("C", "F"):
        raise FormatError("the pickle holds an array without a proper shape")
    if math.prod(sizes) * dtype.dtype.itemsize != len(data):
        raise FormatError(f"the pickle holds an array of shape {list(sizes)} but {len(data)} bytes for it")
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
        raise FormatError(f"refused: the pickle wants {str(name)[:160]}, which is not plain data")


def _refuse_reference(_id: Any) -> Any:
    raise FormatError("refused: the pickle points at objects outside of itself")
