"""Functions that open and save dumps; the format of a file is recognised by its content."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sgsdump.dumps.collector import collector_paused
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.graph_file import with_graph
from sgsdump.dumps.runs import Choice
from sgsdump.dumps.targets import Target, by_ending, fits_own, losses, target_of
from sgsdump.dumps.trees import located
from sgsdump.errors import ConfigError, FormatError, LossWarning, SgsdumpError, ValuesError, one_line
from sgsdump.tensors.tensor import Tensor

if TYPE_CHECKING:
    from sgsdump.dumps.own_reader import ReaderFunction, WriterFunction


def open_dump(
    path: str | Path,
    step: int | None = None,
    rank: int | None = None,
    *,
    reader: str | Path | ReaderFunction | None = None,
    files: Sequence[str] = (),
) -> Dump:
    """Open a dump of any known format. Headers are read immediately; tensor values are read on request.

    Parameters
    ----------
    path : str or Path
        A file or folder. If the path is a tree with several runs, a suffix of the path can select the run:
        ``tree@step=3,rank=0,graph=NAME``. ``list_runs`` lists the runs of a tree.
    step : int, optional
        Step (iteration, token) of the run to open.
    rank : int, optional
        Rank of the run to open.
    reader : str, Path or callable, optional
        Your own reader, for a format that sgsdump does not know: ``FILE.py``, ``FILE.py:function``, or a function
        ``(path) -> iterable of (name, array or callable[, attributes])``.
    files : sequence of str
        Patterns (``*``, ``?``, ``[ab]``) for a folder with one tensor per file. Only the files whose path or name
        matches a pattern are read.

    Returns
    -------
    Dump
        The tensors of the run. If the graph of the model is stored beside the dump, ``Dump.network`` returns its
        operators.

    Raises
    ------
    FormatError
        If the file is missing, empty or damaged, or if its format is unknown.
    ConfigError
        If no run, or more than one run, matches the selection, or if two files of a folder have the same tensor.
    InputError
        If the reader fails, or if it does not yield tensors.
    MissingExtra
        If the format needs a library that is not installed (safetensors).

    Notes
    -----
    The format is recognised by the content, not by the file extension.
    """
    path = Path(path)
    if reader is not None or (files and path.is_dir()):
        return _opened_otherwise(path, (step, rank), reader, files)
    format, folder = located(path, Choice(step, rank))
    with collector_paused():
        dump = _read(format, folder)
    return with_graph(dump)


def _opened_otherwise(
    path: Path, run: tuple[int | None, int | None], reader: str | Path | ReaderFunction | None, files: Sequence[str]
) -> Dump:
    """Read a path with the user's reader; without a reader, read the selected files of a folder as a dump."""
    if run != (None, None):
        raise ConfigError(
            "the arguments step and rank cannot be combined with reader or files, because only a tree has runs. "
            "Omit step and rank"
        )
    if reader is None:
        from sgsdump.dumps.formats.arrays.folder import read_files

        return read_files(path, files)
    if files:
        raise ConfigError(
            "the arguments 'files' and 'reader' cannot be given together, because the reader itself selects the files "
            "to read. Omit the argument 'files'"
        )
    if not path.exists():
        raise FormatError(f"no such file: {path}")
    from sgsdump.dumps.own_reader import load_function, read_with

    return read_with(load_function(str(reader) if isinstance(reader, Path) else reader, "reader"), path)


def _read(format: Any, path: Path) -> Dump:
    """Read a dump. An unexpected exception of a plug-in's reader becomes a one-line FormatError."""
    try:
        dump: Dump = format.read(path)
    except SgsdumpError:
        raise
    except Exception as error:
        if format.name in FORMATS.own:
            raise
        raise FormatError(f"{path}: reader {format.name!r} of a plug-in failed: {error}") from error
    return dump


def save_dump(
    dump: Dump | Mapping[str, Any] | Iterable[Tensor | Record],
    path: str | Path,
    format: str | None = None,
    on_loss: Literal["warn", "raise", "ignore"] = "warn",
    *,
    writer: str | Path | WriterFunction | None = None,
) -> None:
    """Write a dump atomically: either the complete file or folder, or nothing.

    Parameters
    ----------
    dump : Dump, mapping or iterable
        A dump, arrays by name (``{name: array}``), or an iterable of tensors or records. An iterator needs memory for
        only one tensor, because its items are written one by one.
    path : str or Path
        File or folder to write. An existing file or folder is replaced.
    format : str, optional
        Format name, such as ``"npz"``. Default: the format of ``dump`` if the extension of ``path`` fits this format.
        Otherwise the extension selects the format: .bin, .txt, .npz or .safetensors. A path without extension becomes
        a folder of .npy files.
    on_loss : {"warn", "raise", "ignore"}
        Action if the format cannot hold all metadata or values. ``"warn"`` writes the dump and issues a LossWarning.
        ``"raise"`` writes nothing and raises ValuesError. ``"ignore"`` writes the dump without a warning.
    writer : str, Path or callable, optional
        Writer of your own: ``FILE.py``, ``FILE.py:function``, or a function ``(path, tensors)``, where ``tensors``
        yields (name, array, attributes). Replaces ``format`` and ``on_loss``.

    Raises
    ------
    ConfigError
        If the extension or format is unknown, if the format is read-only, or if the type of ``dump`` is not supported.
    ValuesError
        If the format cannot hold a tensor at all, or if ``on_loss="raise"`` and metadata or values would be lost.
    OutputError
        If the file cannot be written (missing folder, full disk, no permission).

    Warns
    -----
    LossWarning
        If ``on_loss="warn"`` and the format cannot hold everything.

    Notes
    -----
    If a dump is saved in the format that it was read from, the new file is equal byte for byte.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_dump({"conv1": np.ones((1, 2), np.float16)}, f"{folder.name}/x.npz")
    >>> dump = open_dump(f"{folder.name}/x.npz")
    >>> dump["conv1"]
    Tensor('conv1', shape=(1, 2), dtype=float16)
    >>> save_dump(dump, f"{folder.name}/x.bin", on_loss="raise")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sgsdump.errors.ValuesError: nothing is written: sigmastar_bin cannot hold everything: 1 tensor is float16, ...
    """
    if on_loss not in ("warn", "raise", "ignore"):
        raise ConfigError(f"unknown on_loss {on_loss!r}; choose one of: warn, raise, ignore")
    path = Path(path)
    if writer is not None:
        if format is not None:
            raise ConfigError(
                "the arguments 'format' and 'writer' cannot be given together, because your writer itself defines the "
                "file format. Omit 'format' or 'writer'"
            )
        from sgsdump.dumps.own_reader import load_function, write_with

        write_with(load_function(str(writer) if isinstance(writer, Path) else writer, "writer"), _records(dump), path)
        return
    target = _target(dump, path, format)
    write = FORMATS[target.format].write
    if write is None:
        raise ConfigError(f"format {target.format} can be read but not written")
    if on_loss == "ignore" or _is_kept(dump, target):
        write(_records(dump), path, target.variant)
        return
    facts: list[Record] = []
    records = _records(dump)
    if isinstance(records, Sequence):
        facts.extend(records)
        _refuse(facts, target, on_loss)
        write(records, path, target.variant)
    else:
        write(_watched(records, facts, target, on_loss), path, target.variant)
    lost = losses(facts, *target)
    if lost:
        warnings.warn(one_line(f"{target.format} cannot hold everything: {'; '.join(lost)}"), LossWarning, stacklevel=2)


def as_records(tensors: Iterable[Tensor | Record]) -> Iterator[Record]:
    """Yield each tensor as a record, and each record unchanged.

    A tensor at position i becomes the only output of operator i.
    """
    for index, item in enumerate(tensors):
        if not isinstance(item, Tensor | Record):
            raise ConfigError(f"cannot save a {type(item).__name__}. Pass tensors, records or {{name: array}}")
        yield item if isinstance(item, Record) else Record("out", 0, index, item.info.op_type, item)


def _records(dump: Dump | Mapping[str, Any] | Iterable[Tensor | Record]) -> Sequence[Record] | Iterator[Record]:
    """Return the records to write: an iterator if ``dump`` is an iterator, else a sequence."""
    if isinstance(dump, Dump):
        return dump.records
    if isinstance(dump, Mapping):
        return list(as_records(_named(name, values) for name, values in dump.items()))
    if isinstance(dump, Tensor | Record):
        return list(as_records([dump]))
    if isinstance(dump, str | bytes | Path) or not isinstance(dump, Iterable):
        raise ConfigError(f"cannot save a {type(dump).__name__}. Pass a Dump, tensors, records or {{name: array}}")
    return as_records(dump) if isinstance(dump, Iterator) else list(as_records(dump))


def _named(name: object, values: Any) -> Tensor:
    if not isinstance(name, str):
        raise ConfigError(f"tensor names must be strings, not {name!r}")
    if isinstance(values, Tensor):
        return Tensor(replace(values.info, name=name), values.raw, values.statistics)
    return Tensor.of(name, values)


def _target(dump: object, path: Path, format: str | None) -> Target:
    if isinstance(dump, Dump) and dump.format:
        keeps_form = format == dump.format or (format is None and (path == dump.path or fits_own(dump.format, path)))
        if keeps_form:
            return Target(dump.format, dump.variant)
    if format is not None:
        return Target(format)
    return target_of(path, None, dump) if isinstance(dump, Dump) else Target(by_ending(path))


def _is_kept(dump: object, target: Target) -> bool:
    """Return whether the dump is written in the format and variant that it was read from."""
    if not isinstance(dump, Dump) or dump.path is None:
        return False
    return target.format == dump.format and target.variant is dump.variant


def _watched(records: Iterable[Record], facts: list[Record], target: Target, on_loss: str) -> Iterator[Record]:
    """Yield the records and append their metadata to ``facts``.

    After the last record, the function checks whether the format would lose metadata or values. If this check raises an
    error, the writer stops before renaming the temporary file.
    """
    for record in records:
        tensor = record.tensor
        facts.append(replace(record, tensor=Tensor(tensor.info, _no_values, tensor.statistics)))
        yield record
        del record, tensor
    _refuse(facts, target, on_loss)


def _no_values() -> np.ndarray:
    raise ValuesError("values were released after writing; only name, shape and type of the tensor are kept")


def _refuse(records: Sequence[Record], target: Target, on_loss: str) -> None:
    lost = losses(records, *target) if on_loss == "raise" else []
    if lost:
        raise ValuesError(f"nothing is written: {target.format} cannot hold everything: {'; '.join(lost)}")
