"""Readers and writers of dumps in a user's Python file.

    from functools import partial
    import numpy as np

    def read(path):
        for file in sorted(path.glob("*.f32")):
            yield file.stem, partial(np.fromfile, file, np.float32), {"op_type": "Conv"}

    def write(path, tensors):
        np.savez(path, **{name: array for name, array, attributes in tensors})

A reader yields (name, array) or (name, array, attributes) for each tensor, in the order of the model. Instead of an
array, a reader can yield a function, which sgsdump calls whenever it reads the values. If the attributes lack ``shape``
or ``dtype``, sgsdump also calls the function when it opens the dump. A writer gets the path to write and an iterator of
(name, array, attributes).

The file is imported only if the user names it: ``--reader FILE.py``, ``open_dump(path, reader=...)``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import READER, Dump, Record
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.dumps.formats.shared.raw_facts import type_of
from sgsdump.errors import FormatError, InputError, OutputError, SgsdumpError, did_you_mean
from sgsdump.files.atomic_write import check_file, remove, set_aside
from sgsdump.files.escaping import quoted
from sgsdump.files.user_module import blaming, import_file
from sgsdump.tensors.dtypes import as_array, is_integer, name_of
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

READ, WRITE = "read", "write"
ATTRIBUTES = ("op_type", "layout", "scale", "zero_point", "axis", "shape", "dtype", "io")
# A reader with more tensors is reported as endless.
MOST_TENSORS = 1_000_000
_END = object()
ReaderFunction = Callable[[Path], Iterable[Any]]
WriterFunction = Callable[[Path, Iterable[tuple[str, np.ndarray, dict[str, Any]]]], object]


class OwnFunction(NamedTuple):
    """A reader or writer of the user; ``file`` and ``name`` are for messages."""

    file: Path
    name: str
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}()"


def split_text(text: str, default: str) -> tuple[Path, str]:
    """Split ``FILE.py:function`` into the file and the name of the function; ``default`` names it in ``FILE.py``."""
    path, colon, name = text.rpartition(":")
    return (Path(path), name) if colon and name.isidentifier() else (Path(text), default)


def load_function(text: str | Callable[..., Any], what: str) -> OwnFunction:
    """Return the function in ``FILE.py`` or ``FILE.py:function``; also accept a function.

    what  "reader" or "writer". Raises InputError if the file or the function does not exist, or if the file fails.
    """
    if callable(text):
        code = getattr(text, "__code__", None)
        file = Path(code.co_filename) if code is not None else Path(what)
        return OwnFunction(file, getattr(text, "__name__", what), text)
    file, name = split_text(str(text), READ if what == "reader" else WRITE)
    if not file.is_file():
        raise InputError(f"there is no {what} file {file}. Give an existing FILE.py or FILE.py:FUNCTION")
    function = getattr(import_file(file, what), name, None)
    if not callable(function):
        parameters = "path" if what == "reader" else "path, tensors"
        raise InputError(
            f"{file} has no function {name}({parameters}). If the function has another name, give "
            f"--{what} {file}:FUNCTION"
        )
    return OwnFunction(file, name, function)


def read_with(reader: OwnFunction, path: Path) -> Dump:
    """Return the dump that a reader returns for a path.

    Raises InputError, with file and line, if the reader fails or yields items that are not tensors.
    """
    records: list[Record] = []
    calls: dict[str, FunctionType] = {}
    names: set[tuple[str, str]] = set()
    iterator = _started(reader, path)
    for number in range(MOST_TENSORS + 1):
        with blaming(reader.file, "reader", f" on {path}"):
            item = next(iterator, _END)
        if item is _END:
            break
        if number == MOST_TENSORS:
            raise InputError(f"{reader} yields more than {MOST_TENSORS} tensors for {path}. Check that the reader ends")
        record, function = _record(reader, item, number)
        if (record.io, record.name) in names:
            raise InputError(f"{reader} yields the name {quoted(record.name)} twice. Make the names unique")
        names.add((record.io, record.name))
        if isinstance(function, FunctionType):
            calls[record.name] = function
        records.append(record)
    if not records:
        raise InputError(f"{reader} yields no tensor for {path}. Yield (name, array) for each tensor")
    _check_calls(reader, calls)
    return Dump(records, READER, None, path)


def reader_format(name: str, recognises: Callable[[Path, bytes], bool], read: ReaderFunction) -> Format:
    """Return a dump format that uses your own reader, for the table ``formats`` of a plug-in.

    Parameters
    ----------
    name : str
        Name of the format.
    recognises : callable
        ``(path, head) -> bool``, as in ``Format``.
    read : callable
        ``(path) -> iterable of (name, array or callable[, attributes])``.

    Returns
    -------
    Format
        A read-only format.
    """

    def opened(path: Path) -> Dump:
        dump = read_with(load_function(read, "reader"), path)
        return Dump(dump.records, name, None, path)

    return Format(name, recognises, opened)


def write_with(writer: OwnFunction, records: Iterable[Record], path: Path) -> int:
    """Pass records to the writer function of a user, and return the number of written records.

    The writer writes beside ``path``; if it succeeds, its file or folder is moved to ``path``. An existing folder is
    set aside.
    Raises InputError if the writer fails, OutputError if it writes nothing or the result cannot be moved.
    """
    written: list[str] = []
    failures: list[SgsdumpError] = []

    def tensors() -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
        try:
            for record in records:
                written.append(record.name)
                yield _triple(record)
        except SgsdumpError as error:
            failures.append(error)
            raise

    try:
        place = Path(tempfile.mkdtemp(prefix=".sgsdump_", dir=path.parent))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        made = place / path.name
        try:
            with blaming(writer.file, "writer"):
                writer.function(made, tensors())
        except InputError:
            if failures:  # The input failed, not the writer.
                raise failures[0] from None
            raise
        if not made.exists():
            there = [each.name for each in islice(place.iterdir(), 1)]
            beside = f" It wrote {there[0]} instead. Use this name for the output." if there else ""
            raise OutputError(f"cannot write {path}: {writer} wrote nothing to the path that it received.{beside}")
        if path.is_dir():
            set_aside(path)
        elif not made.is_dir():
            check_file(path)
        made.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        remove(place)
    return len(written)


def _started(reader: OwnFunction, path: Path) -> Iterator[Any]:
    with blaming(reader.file, "reader", f" on {path}"):
        items = reader.function(path)
        if isinstance(items, Mapping):
            items = items.items()
        if not isinstance(items, Iterable) or isinstance(items, (str, bytes, np.ndarray)):
            items = None
    if items is None:
        raise InputError(f"{reader} must yield (name, array) for each tensor of {path}, or return a list of such pairs")
    return iter(items)


def _record(reader: OwnFunction, item: Any, number: int) -> tuple[Record, Any]:
    """Return the record of an item, and the function that loads its values, if the item has one."""
    if isinstance(item, Tensor):
        return Record("out", 0, number, item.info.op_type, item), None
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
        raise InputError(
            f"{reader}: item {number + 1} is {quoted(repr(item))}. Yield (name, array) or (name, array, attributes)"
        )
    name, values, attributes = (*item, {})[:3]
    if not isinstance(name, str) or not name:
        raise InputError(f"{reader}: the name of item {number + 1} is {quoted(repr(name))}. Use a non-empty string")
    attributes = _checked(reader, name, attributes)
    is_lazy = callable(values) and not hasattr(values, "shape")
    shape, dtype, array = attributes.get("shape"), attributes.get("dtype"), None
    if not is_lazy or shape is None or dtype is None:
        array = _array(reader, name, values, is_lazy)
        announced = TensorInfo(name, array.shape if shape is None else shape, array.dtype if dtype is None else dtype)
        _check_array(reader, announced, array)
        shape, dtype = announced.shape, announced.dtype
    quant = None
    if "scale" in attributes:
        scale, axis = attributes["scale"], attributes.get("axis")
        quant = Quant(dtype, scale, attributes.get("zero_point", 0), axis, exact=True)
        if not is_integer(dtype):
            raise InputError(
                f"{reader}: tensor {quoted(name)} has a scale, but its type {name_of(dtype)} is not an integer type"
            )
    info = TensorInfo(name, shape, dtype, attributes.get("layout"), quant, attributes.get("op_type", ""))
    load = partial(_load, reader, info, values) if is_lazy or array is None else partial(np.asarray, array)
    record = Record(attributes.get("io", "out"), 0, number, info.op_type, Tensor(info, load))
    return record, values if is_lazy else None


def _load(reader: OwnFunction, info: TensorInfo, function: Callable[[], Any]) -> np.ndarray:
    try:
        array = _array(reader, info.name, function, True)
        _check_array(reader, info, array)
    except InputError as error:
        # As with every format, the other tensors can still be compared.
        raise FormatError(str(error)) from error
    return array


def _array(reader: OwnFunction, name: str, values: Any, is_lazy: bool) -> np.ndarray:
    """Return the values of an item as an array in memory or mapped."""
    with blaming(reader.file, "reader", f" on tensor {quoted(name)}"):
        array = as_array(values() if is_lazy else values)
    if array.dtype.hasobject or (array.dtype.kind in "USMmV" and array.dtype.names):
        raise InputError(f"{reader}: tensor {quoted(name)} holds {array.dtype}, not numbers")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _check_array(reader: OwnFunction, info: TensorInfo, array: np.ndarray) -> None:
    if array.shape != info.shape or array.dtype != info.dtype:
        raise InputError(
            f"{reader}: tensor {quoted(info.name)} is announced as {name_of(info.dtype)} {list(info.shape or ())}, but "
            f"its values are {name_of(array.dtype)} {list(array.shape)}. Correct the attributes, or omit them"
        )


def _checked(reader: OwnFunction, name: str, attributes: Any) -> dict[str, Any]:
    """Return the attributes with checked types. Raises InputError."""
    where = f"{reader}: tensor {quoted(name)}"
    if not isinstance(attributes, Mapping):
        raise InputError(f"{where} has attributes of type {type(attributes).__name__}. Give a dictionary")
    checked: dict[str, Any] = {}
    for key, value in attributes.items():
        if key not in ATTRIBUTES:
            near = did_you_mean(str(key), list(ATTRIBUTES)) or f"; choose one of: {', '.join(ATTRIBUTES)}"
            raise InputError(f"{where} has the unknown attribute {quoted(str(key))}{near}")
        if value is None:
            continue
        try:
            checked[key] = _CHECKS[key](value)
        except (TypeError, ValueError, FormatError):
            raise InputError(f"{where} has {key} {quoted(repr(value))}, which is not {_EXPECTED[key]}") from None
    return checked


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _io(value: Any) -> str:
    if value not in ("in", "out"):
        raise ValueError
    return str(value)


def _scale(value: Any) -> float | np.ndarray:
    return float(value) if np.ndim(value) == 0 else np.asarray(value, np.float64)


def _shape(value: Any) -> tuple[int, ...]:
    sizes = [int(size) for size in value]
    if any(size < 0 for size in sizes):
        raise ValueError
    return checked_shape(sizes)


def _dtype(value: Any) -> np.dtype:
    named = type_of(value) if isinstance(value, str) else None
    return np.dtype(value) if named is None else named


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **{"op_type": _text, "layout": _text, "io": _io},
    **{"scale": _scale, "zero_point": int, "axis": int, "shape": _shape, "dtype": _dtype},
}
_EXPECTED = {
    **{"op_type": "a string", "layout": "a string such as NHWC", "io": "'in' or 'out'"},
    **{"scale": "a number, or one number per channel", "zero_point": "an integer", "axis": "an integer"},
    **{"shape": "a list of sizes", "dtype": "a type such as float32"},
}


def _check_calls(reader: OwnFunction, calls: Mapping[str, FunctionType]) -> None:
    """Raise InputError if two functions share their variables; both would load the last tensor."""
    seen: dict[tuple[Any, ...], str] = {}
    for name, function in calls.items():
        cells = tuple(map(id, function.__closure__ or ()))
        key = (function.__code__, cells, function.__defaults__ and tuple(map(id, function.__defaults__)))
        if cells and key in seen:
            raise InputError(
                f"{reader}: the functions of {quoted(seen[key])} and {quoted(name)} share their variables, so both "
                f"load the last tensor. Use functools.partial, or lambda file=file: ..."
            )
        seen[key] = name


def _triple(record: Record) -> tuple[str, np.ndarray, dict[str, Any]]:
    """Return name, array and attributes of a tensor, for a writer."""
    info, quant = record.tensor.info, record.tensor.info.quant
    attributes: dict[str, Any] = {"io": record.io, "op_type": info.op_type or record.op_type}
    attributes |= {"layout": info.layout} if info.layout else {}
    if quant is not None and quant.exact:
        attributes |= {"scale": quant.scale, "zero_point": quant.zero_point}
        attributes |= {} if quant.axis is None else {"axis": quant.axis}
    return info.name, record.tensor.stored(), attributes
