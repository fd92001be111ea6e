"""Opening and saving dumps of any format, recognised by their content."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

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


def open_dump(path: str | Path, step: int | None = None, rank: int | None = None) -> Dump:
    """Read a dump of any known format, recognised by its content. Headers are read now, values when asked for.

    path  a file or a folder. A tree of several runs needs a choice: ``step`` and ``rank``, or after the path,
          ``tree@step=3,rank=0,graph=NAME`` (``list_runs`` has what there is). The graph that ``sgsdump dump`` and
          ``pipeline`` keep beside a dump is found (``dumps/graph_file.py``).

    Raises FormatError when the file is missing, empty, damaged or of no known format, ConfigError when several runs fit
    the choice, or none.
    """
    format, folder = located(Path(path), Choice(step, rank))
    with collector_paused():
        dump = _read(format, folder)
    return with_graph(dump)


def _read(format: Any, path: Path) -> Dump:
    """Read a dump; what a plug-in's reader raises by mistake is one line."""
    try:
        dump: Dump = format.read(path)
    except SgsdumpError:
        raise
    except Exception as error:
        if format.name in FORMATS.own:
            raise
        raise FormatError(f"{path}: the plug-in's reader {format.name} failed: {error}") from error
    return dump


def save_dump(
    dump: Dump | Mapping[str, Any] | Iterable[Tensor | Record],
    path: str | Path,
    format: str | None = None,
    on_loss: Literal["warn", "raise", "ignore"] = "warn",
) -> None:
    """Write a dump, arrays by name, or tensors and records (an iterator's one in memory at a time); whole or not at
    all.

    format   None: the dump's own when ``path`` ends as its files do, else by the ending: .bin, .txt, .npz,
             .safetensors, without one a folder of .npy files. A dump in its own format keeps its variant, byte for
             byte.
    on_loss  when the format cannot hold everything: "warn" writes and gives a LossWarning, "raise" writes nothing and
             raises ValuesError, "ignore" writes.

    Raises ConfigError for an ending or a format that cannot be written, OutputError when the disk refuses, and
    ValuesError for a tensor that the format cannot hold at all.

    >>> import tempfile
    >>> import numpy as np
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_dump({"conv1": np.ones((1, 2), np.float16)}, f"{folder.name}/x.npz")
    >>> dump = open_dump(f"{folder.name}/x.npz")
    >>> dump["conv1"]
    Tensor('conv1', shape=(1, 2), dtype=float16)
    >>> save_dump(dump, f"{folder.name}/x.bin", on_loss="raise")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sgsdump.errors.ValuesError: nothing is written: sigmastar_bin loses something: 1 tensor is float16, kept as ...
    """
    if on_loss not in ("warn", "raise", "ignore"):
        raise ConfigError(f"unknown on_loss {on_loss!r}; choose one of: warn, raise, ignore")
    path = Path(path)
    target = _target(dump, path, format)
    writer = FORMATS[target.format].write
    if writer is None:
        raise ConfigError(f"format {target.format} can be read but not written")
    if on_loss == "ignore" or _is_kept(dump, target):
        writer(_records(dump), path, target.variant)
        return
    facts: list[Record] = []
    records = _records(dump)
    if isinstance(records, Sequence):
        facts.extend(records)
        _refuse(facts, target, on_loss)
        writer(records, path, target.variant)
    else:
        writer(_watched(records, facts, target, on_loss), path, target.variant)
    lost = losses(facts, *target)
    if lost:
        warnings.warn(one_line(f"{target.format} loses something: {'; '.join(lost)}"), LossWarning, stacklevel=2)


def as_records(tensors: Iterable[Tensor | Record]) -> Iterator[Record]:
    """Number plain tensors as the single outputs of operators 0, 1, 2 …; records pass unchanged."""
    for index, item in enumerate(tensors):
        if not isinstance(item, Tensor | Record):
            raise ConfigError(f"tensors or records can be saved, not a {type(item).__name__}; or give {{name: array}}")
        yield item if isinstance(item, Record) else Record("out", 0, index, item.info.op_type, item)


def _records(dump: Dump | Mapping[str, Any] | Iterable[Tensor | Record]) -> Sequence[Record] | Iterator[Record]:
    """The records to write: a sequence unless ``dump`` is an iterator."""
    if isinstance(dump, Dump):
        return dump.records
    if isinstance(dump, Mapping):
        return list(as_records(_named(name, values) for name, values in dump.items()))
    if isinstance(dump, Tensor | Record):
        return list(as_records([dump]))
    if isinstance(dump, str | bytes | Path) or not isinstance(dump, Iterable):
        raise ConfigError(f"a dump, tensors or {{name: array}} can be saved, not a {type(dump).__name__}")
    return as_records(dump) if isinstance(dump, Iterator) else list(as_records(dump))


def _named(name: object, values: Any) -> Tensor:
    if not isinstance(name, str):
        raise ConfigError(f"the name of a tensor is text, not {name!r}")
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
    """Whether a dump goes back into the form it was read from, byte for byte."""
    if not isinstance(dump, Dump) or dump.path is None:
        return False
    return target.format == dump.format and target.variant is dump.variant


def _watched(records: Iterable[Record], facts: list[Record], target: Target, on_loss: str) -> Iterator[Record]:
    """The records, their facts kept without the values. What they lose is known when all have passed: an error then
    keeps the writer from giving the file its name."""
    for record in records:
        tensor = record.tensor
        facts.append(replace(record, tensor=Tensor(tensor.info, _no_values, tensor.statistics)))
        yield record
        del record, tensor
    _refuse(facts, target, on_loss)


def _no_values() -> np.ndarray:
    raise ValuesError("only the facts of a tensor that was written are kept")


def _refuse(records: Sequence[Record], target: Target, on_loss: str) -> None:
    lost = losses(records, *target) if on_loss == "raise" else []
    if lost:
        raise ValuesError(f"nothing is written: {target.format} loses something: {'; '.join(lost)}")
