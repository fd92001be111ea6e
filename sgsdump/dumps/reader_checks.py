"""Checks for authors of readers and writers; published as ``sgsdump.testing``.

::

    from sgsdump.testing import check_reader

    def test_my_reader(tmp_path):
        write_a_sample(tmp_path / "run.mine")
        check_reader("my_reader.py", tmp_path / "run.mine")
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.own_reader import OwnFunction, load_function, read_with, write_with
from sgsdump.errors import SgsdumpError
from sgsdump.tensors.dtypes import as_array, is_number, name_of
from sgsdump.tensors.tensor import Tensor

__all__ = ["check_reader", "check_writer"]


def check_reader(reader: str | Path | Callable[..., Any], path: str | Path) -> Dump:
    """Check a reader with a sample of its format.

    Parameters
    ----------
    reader : str, Path or callable
        ``FILE.py``, ``FILE.py:function``, or the function.
    path : str or Path
        Sample of the format. It is read several times and copied, so it should be small.

    Returns
    -------
    Dump
        The dump that the reader returns for the sample, for further checks.

    Raises
    ------
    AssertionError
        If values are not numbers, if a tensor has other values when it is loaded later, again or in a second reading,
        or if tensors share one buffer.
    SgsdumpError
        If the reader fails, or if it does not yield tensors with unique names. The message has file and line.

    Notes
    -----
    The reader also gets a missing path, and a copy of the sample whose files are cut to half their size. In both cases,
    the reader may raise any exception. For the copy, it may also yield any values. For the missing path, it must not
    yield tensors.

    Examples
    --------
    >>> def read(path):
    ...     yield "all", np.fromfile(path, np.float32), {"op_type": "Conv"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.ones(3, np.float32).tofile(f"{folder}/run.mine")
    ...     dump = check_reader(read, f"{folder}/run.mine")
    >>> list(dump)
    ['all']
    """
    path, own = Path(path), load_function(str(reader) if isinstance(reader, Path) else reader, "reader")
    at_once = _values_at_once(own, path)
    dump, again = read_with(own, path), read_with(own, path)
    facts = [[(record.io, record.tensor.info) for record in each.records] for each in (dump, again)]
    _require(
        [(io, _shown(info)) for io, info in facts[0]] == [(io, _shown(info)) for io, info in facts[1]],
        f"{own}: two readings of {path} give different tensors, or another order",
    )
    kept: list[tuple[str, np.ndarray, np.ndarray]] = []
    for number, (record, second) in enumerate(zip(dump.records, again.records)):
        name = record.name
        array = record.tensor.stored()
        _require(is_number(array.dtype), f"{own}: tensor {name!r} holds {name_of(array.dtype)}, not numbers")
        _require(record.tensor.real().dtype == np.float32, f"{own}: tensor {name!r} has no real values")
        for what, other in (("loaded again", record.tensor.stored()), ("of a second reading", second.tensor.stored())):
            _require(_equal(array, other), f"{own}: tensor {name!r} {what} has other values")
        if number < len(at_once):
            _require(
                _equal(array, at_once[number]),
                f"{own}: tensor {name!r} has other values when it is loaded after the reader has moved on. "
                f"Bind its file with functools.partial",
            )
        kept.append((name, array, array.copy()))
    for name, array, copy in kept:
        _require(
            _equal(array, copy), f"{own}: the values of {name!r} changed when another tensor was loaded. Copy them"
        )
    _check_failures(own, path)
    return dump


def check_writer(
    writer: str | Path | Callable[..., Any], reader: str | Path | Callable[..., Any] | None = None, name: str = "out"
) -> None:
    """Check that a writer writes a file or folder, and that a reader reads the same tensors from it.

    Parameters
    ----------
    writer : str, Path or callable
        ``FILE.py``, ``FILE.py:function``, or the function.
    reader : str, Path or callable, optional
        Reader of the same format; without one, only the writing is checked.
    name : str
        Name of the file or folder to write, with the ending of the format.

    Raises
    ------
    AssertionError
        If tensors or values differ after reading.
    SgsdumpError
        If the writer or the reader fails, or if the writer writes nothing.
    """
    own = load_function(str(writer) if isinstance(writer, Path) else writer, "writer")
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "conv1": rng.normal(size=(1, 2, 3, 4)).astype(np.float32),
        "ids": np.arange(6).reshape(2, 3),
    }
    records = [Record("out", 0, n, "", Tensor.of(name, array)) for n, (name, array) in enumerate(arrays.items())]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write_with(own, records, path)
        _require([each.name for each in path.parent.iterdir()] == [name], f"{own} wrote files beside its path")
        if reader is None:
            return
        dump = read_with(load_function(str(reader) if isinstance(reader, Path) else reader, "reader"), path)
        _require(list(dump) == list(arrays), f"{own}: the names {list(arrays)} come back as {list(dump)}")
        for key, array in arrays.items():
            stored = dump[key].stored()
            _require(_equal(stored, array.astype(stored.dtype)), f"{own}: tensor {key!r} comes back with other values")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _shown(info: Any) -> tuple[object, ...]:
    quant = info.quant and (info.quant.dtype, np.ravel(info.quant.scale).tolist(), info.quant.zero_point)
    return info.name, info.shape, info.dtype, info.layout, info.op_type, quant


def _values_at_once(own: OwnFunction, path: Path) -> list[np.ndarray]:
    """Return the values of each item at the moment in which the reader yields the item."""
    arrays: list[np.ndarray] = []
    items = own.function(path)
    for item in items.items() if isinstance(items, dict) else items:
        values = item[1] if isinstance(item, (tuple, list)) and len(item) > 1 else item
        if isinstance(values, Tensor):
            values = values.stored
        array = as_array(values() if callable(values) and not hasattr(values, "shape") else values)
        arrays.append(np.array(array, array.dtype.newbyteorder("=")))
    return arrays


def _check_failures(own: OwnFunction, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            dump = read_with(own, Path(folder, f"missing_{path.name}"))
        except SgsdumpError:
            pass
        else:
            raise AssertionError(f"{own} gives {len(dump)} tensors for a path that does not exist")
        copy = Path(folder, path.name)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
        for file in [copy] if copy.is_file() else [each for each in copy.rglob("*") if each.is_file()]:
            data = file.read_bytes()
            file.write_bytes(data[: len(data) // 2])
        try:
            for record in read_with(own, copy).records:
                record.tensor.stored()
        except SgsdumpError as error:
            _require("\n" not in str(error), f"{own}: the error about a damaged file has several lines")
