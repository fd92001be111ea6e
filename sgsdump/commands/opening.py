"""Functions that open the dumps given to a command: trees, raw files, selected files of a folder, own readers."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import Reading
from sgsdump.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.own_reader import ReaderFunction
    from sgsdump.dumps.raw_files import RawFacts

# Ways of reading that options select. The third way is a user's reader, given as FILE.py[:FUNCTION].
RAW, FILES = "raw files", "chosen files"


def described(reading: Reading, *paths: Path) -> list[Dump]:
    """Return the dumps at paths, unpadded and dequantised by the side files."""
    from sgsdump.dumps.formats.sigmastar.side_files import with_side_files

    dumps = opened(reading, *paths)
    if not (reading.ranges or reading.parse_net):
        return [with_side_files(dump) for dump in dumps]
    from sgsdump.models.model import net_of, ranges_of

    ranges = ranges_of(reading.ranges) if reading.ranges else None
    net = net_of(reading.parse_net) if reading.parse_net else None
    return [with_side_files(dump, ranges, net) for dump in dumps]


def opened(reading: Reading, *paths: Path) -> list[Dump]:
    """Return the dumps at paths; ``step`` and ``rank`` select runs of trees. Raises ConfigError if none is a tree."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.trees import list_runs

    step, rank = reading.step, reading.rank
    ways = {path: _way(reading, path) for path in paths}
    _check_readers(reading, ways)
    facts = _raw_facts(reading) if RAW in ways.values() else None
    others = [path for path in paths if not ways[path]]
    is_tree = {path: bool(list_runs(path)) for path in others if (step, rank) != (None, None)}
    choosing = [path for path in is_tree if is_tree[path] or not (facts or any(is_tree.values()))]

    def dump_at(path: Path) -> Dump:
        way = ways[path]
        if way == RAW and facts is not None:
            from sgsdump.dumps.raw_files import open_raw

            return open_raw(path, facts, step, reading.files)
        if way == FILES:
            return open_dump(path, files=reading.files)
        if way:
            return open_dump(path, reader=_own_function(way))
        return open_dump(path, step, rank) if path in choosing else open_dump(path)

    return [dump_at(path) for path in paths]


def has_no_runs(reading: Reading, path: Path) -> bool:
    """Return whether a user's reader, ``--files`` or ``--raw-dtype`` reads a path, so that it has no runs."""
    return bool(_way(reading, path))


def _way(reading: Reading, path: Path) -> str:
    """Return ``FILE.py[:FUNCTION]`` of the user's reader of a path, ``FILES`` or ``RAW``; "" for sgsdump's formats."""
    if reading.reader and (reader := _reader_of(reading, path)):
        return reader
    if reading.raw_dtype:
        from sgsdump.dumps.raw_files import is_raw

        if is_raw(path):
            return RAW
    return FILES if reading.files and path.is_dir() and not _has_runs(path) else ""


def _has_runs(path: Path) -> bool:
    from sgsdump.dumps.trees import list_runs

    try:
        return bool(list_runs(path))
    except FormatError:
        return False


def _reader_of(reading: Reading, path: Path) -> str:
    """Return the last reader whose pattern matches a path, or whose pattern is empty and whose format is unknown."""
    from sgsdump.dumps.trees import is_known

    for pattern, reader in reversed(reading.reader):
        if pattern and (fnmatchcase(str(path), pattern) or fnmatchcase(path.name, pattern)):
            return reader
        if not pattern and path.exists() and not is_known(path):
            return reader
    return ""


def _check_readers(reading: Reading, ways: Mapping[Path, str]) -> None:
    """Raise ConfigError if the user's reader reads no path, or if a run is selected but no path can have runs."""
    from sgsdump.dumps.trees import known_format

    used = [path for path, way in ways.items() if way not in ("", RAW, FILES)]
    there = [path for path in ways if path.exists()]
    if reading.reader and not used and there:
        known = ", ".join(f"{path} ({known_format(path) or 'unknown'})" for path in there)
        reader = reading.reader[-1][1]
        raise ConfigError(
            f"--reader {reader} applies to none of the dumps: {known}. To use the reader for these dumps, add a "
            f"pattern: --reader '*={reader}'"
        )
    if (reading.step, reading.rank) != (None, None) and all(way not in ("", RAW) for way in ways.values()):
        raise ConfigError(
            "--step and --rank select a run of a tree, but --reader and --files read a single dump. Omit --step and "
            "--rank"
        )


def _own_function(text: str) -> ReaderFunction:
    """Return the user's function. Its file is imported only once."""
    from sgsdump.dumps.own_reader import READ, split_text

    file = split_text(text, READ)[0]
    return _imported(text, file.stat().st_mtime_ns if file.is_file() else 0, Path.cwd())


@cache
def _imported(text: str, changed: int, folder: Path) -> ReaderFunction:
    """Return the function; ``changed`` and ``folder`` only serve as keys of the cache."""
    from sgsdump.dumps.own_reader import load_function

    return load_function(text, "reader").function


def _raw_facts(reading: Reading) -> RawFacts:
    """Return types and shapes of raw files. Raises ConfigError and ModelError if a model cannot be read."""
    from sgsdump.dumps.raw_files import RawFacts
    from sgsdump.models.graph import Graph
    from sgsdump.models.model import open_model

    shapes = [shape for shape in reading.raw_shape if not isinstance(shape, Path)]
    model: dict[str, tuple[int, ...]] = {}
    for path in reading.raw_shape:
        if isinstance(path, Path):
            of_model = Graph(open_model(path).proto).shapes
            model |= {name: tuple(filter(None, sizes)) for name, sizes in of_model.items() if None not in sizes}
    return RawFacts(reading.raw_dtype, shapes, model)
