"""Feeds from the user's own Python data loader.

    def load_data():
        for path in sorted(Path("recordings").iterdir()):
            yield {"input": prepare(path)}

``FILE.py`` uses its ``load_data`` (Polygraphy's name), ``FILE.py:NAME`` uses NAME: a function, a class, any other
iterable, or an object with onnxruntime's ``get_next``. Each item is a dictionary with one array per model input, or a
pair of such a dictionary and a label. Arrays are inputs of the float model; ``feeds.py`` describes the fixed model's
input. The label is any data that a user's own metric needs for the run.

Commands that run a feed once read one after another (``loaded_feeds``). Commands that run feeds repeatedly, or in
several processes, keep them in a temporary file of the command (``LoadedFeeds``); only feeds that are run are in
memory.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import InputError, OutputError
from sgsdump.files.user_module import blaming, import_file
from sgsdump.models.feeds.feeds import Feed, Feeds, LabelledFeed, check_inputs, config_entries, fitted_feed
from sgsdump.models.model import InputSpec
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.dtypes import as_array

FUNCTION = "load_data"
# A loader with more feeds is reported as endless.
MOST_FEEDS = 20_000
# Fraction of a file system's free space that kept feeds may take.
ROOM = 0.5
_END = object()
Arrays = Mapping[str, Any]


def raw_feeds(script: str, inputs: Sequence[str]) -> Iterator[tuple[str, Feed]]:
    """Return an iterator over (number, feed) of a script, with arrays unchanged; ``inputs`` are the model's.

    Raises InputError immediately if the file does not exist, cannot be imported or lacks the name. During iteration,
    InputError reports errors of the user's Python and items that are not feeds of these inputs. A script without feeds,
    or with more than MOST_FEEDS, is an error too.
    """
    loaded = labelled_feeds(script, inputs)
    return ((number, feed) for number, feed, _ in loaded)


def labelled_feeds(script: str, inputs: Sequence[str]) -> Iterator[tuple[str, Feed, Any]]:
    """Return the items of ``raw_feeds``, each with its label, or None."""
    path, colon, name = script.rpartition(":")
    if not (colon and name.isidentifier()):
        path, name = script, FUNCTION
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no data loader script {file}; give the path of a Python file, or FILE.py:FUNCTION")
    given = getattr(import_file(file, "data loader"), name, None)
    if given is None:
        raise InputError(f"{file} has no function {name}() that returns the model inputs")
    return _numbered(_iterator(given, file, name), f"{file}: {name}()", file, inputs)


def loaded_feeds(
    script: str, specs: Sequence[InputSpec], config: InputConfig | None = None, normalised: bool = True
) -> Iterator[tuple[str, Feed]]:
    """Return the items of ``raw_feeds`` as the model takes them; arguments as in ``feeds.feeds``."""
    entries, file = config_entries(specs, config), _file_of(script)
    return (
        (number, fitted_feed(feed, specs, entries, normalised, f"{file}: feed {number}"))
        for number, feed in raw_feeds(script, [spec.name for spec in specs])
    )


@dataclass(frozen=True)
class _Kept:
    """Position, type and shape of an array in the file."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LoadedFeeds(Feeds):
    """Feeds of a loader, kept in a temporary file and read when they are run, in any process of this machine.

    The file is removed when the LoadedFeeds that created it is gone, or Python ends.
    """

    path: Path
    source: str
    kept: tuple[Mapping[str, _Kept], ...]
    specs: tuple[InputSpec, ...]
    config: InputConfig | None = None
    labelled: tuple[Any, ...] = ()
    by_threads = True

    @staticmethod
    def of_script(script: str, specs: Sequence[InputSpec], config: InputConfig | None = None) -> LoadedFeeds:
        """Return the feeds of a script. Raises the errors of ``raw_feeds`` and ``of``."""
        loaded = labelled_feeds(script, [spec.name for spec in specs])
        return LoadedFeeds.of(((feed, label) for _, feed, label in loaded), specs, config, str(_file_of(script)))

    @staticmethod
    def of(
        feeds: Iterable[Arrays | tuple[Arrays, Any]],
        specs: Sequence[InputSpec],
        config: InputConfig | None = None,
        source: str = "the feeds",
    ) -> LoadedFeeds:
        """Return feeds of an iterable of {input: array}, or of pairs of such a dictionary and a label.

        The iterable is consumed once; ``source`` is its name in messages. Raises InputError for a feed that does not
        fit the model, and OutputError if the feeds do not fit on the disk.
        """
        entries = config_entries(specs, config)
        descriptor, name = tempfile.mkstemp(prefix="sgsdump_feeds_")
        path = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                pairs = tuple(_keep(feeds, specs, entries, file, source))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OutputError(f"cannot store the model inputs in {path.parent}: {error.strerror or error}") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        if not pairs:
            path.unlink(missing_ok=True)
            raise InputError(f"{source}: no feeds")
        kept, labels = zip(*pairs)
        result = LoadedFeeds(path, source, kept, tuple(specs), config, labels)
        weakref.finalize(result, path.unlink, missing_ok=True)
        return result

    @property
    def labels(self) -> list[str]:
        return [f"feed {number}" for number in range(len(self))]

    def both(self, index: int) -> tuple[str, Feed, Feed]:
        return f"feed {index}", self._fitted(index, True), self._fitted(index, False)

    def truth(self, index: int) -> Any:
        return self.labelled[index]

    def __len__(self) -> int:
        return len(self.kept)

    def _run(self, index: int) -> LabelledFeed:
        return f"feed {index}", self._fitted(index, True)

    def _fitted(self, index: int, normalised: bool) -> Feed:
        entries = config_entries(self.specs, self.config)
        with self.path.open("rb") as file:
            arrays = {name: _taken(file, kept) for name, kept in self.kept[index].items()}
        return fitted_feed(arrays, self.specs, entries, normalised, f"{self.source}: feed {index}")


def _file_of(script: str) -> Path:
    path, colon, name = script.rpartition(":")
    return Path(path if colon and name.isidentifier() else script)


def _iterator(given: Any, file: Path, name: str) -> Iterator[Any]:
    """Return an iterator over the items of a user's function, class or list."""
    with blaming(file, "data loader"):
        feeds = given() if callable(given) else given
    if isinstance(feeds, (Mapping, str, bytes, np.ndarray)):
        raise InputError(f"{file}: {name}() returned a {_kind(feeds)}; yield a dictionary of arrays for each run")
    with blaming(file, "data loader"):
        if callable(get_next := getattr(feeds, "get_next", None)):
            return iter(get_next, None)
        if hasattr(feeds, "__getitem__") and hasattr(feeds, "__len__") and not hasattr(feeds, "__iter__"):
            return (feeds[index] for index in range(len(feeds)))
        if isinstance(feeds, Iterable):
            return iter(feeds)
    raise InputError(f"{file}: {name}() returned a {_kind(feeds)}; yield a dictionary of arrays for each run")


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _parted(given: Any) -> tuple[Any, Any]:
    """Return a feed and its label, or None for the label."""
    pair = isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], Mapping)
    return (given[0], given[1]) if pair else (given, None)


def _numbered(
    iterator: Iterator[Any], loader: str, file: Path, inputs: Sequence[str]
) -> Iterator[tuple[str, Feed, Any]]:
    number = 0
    while True:
        with blaming(file, "data loader", f" on feed {number}"):
            feed = next(iterator, _END)
        if feed is _END:
            break
        if number == MOST_FEEDS:
            raise InputError(
                f"{loader} returned {MOST_FEEDS:,} sets of inputs without ending; limit the loader, "
                "for example with itertools.islice(feeds, 100)"
            )
        what = f"{file}: feed {number}"
        feed, label = _parted(feed)
        arrays = _arrays(feed, what, blaming(file, "data loader", f" on feed {number}"))
        check_inputs(arrays, inputs, what)
        yield str(number), arrays, label
        number += 1
    if not number:
        raise InputError(f"{loader} gives no feeds")


def _arrays(feed: Any, what: str, blamed: AbstractContextManager[None] | None = None) -> Feed:
    """Return the arrays of a feed; ``blamed`` reports errors during conversion to arrays."""
    if not isinstance(feed, Mapping):
        raise InputError(f"{what} is a {_kind(feed)}, not a dictionary of arrays by input name")
    with blamed or nullcontext():
        arrays = {str(name): as_array(value) for name, value in feed.items()}
    for name, array in arrays.items():
        if array.dtype.kind in "OSUMm":
            raise InputError(f"{what} has no array of numbers for the input {name!r}")
    return arrays


def _keep(
    feeds: Iterable[Arrays | tuple[Arrays, Any]],
    specs: Sequence[InputSpec],
    entries: Sequence[ModelInput | None],
    file: Any,
    source: str,
) -> Iterator[tuple[Mapping[str, _Kept], Any]]:
    """Write each feed after checking it for both models; yield its position in the file and its label."""
    offset = 0
    for number, (feed, label) in enumerate(map(_parted, feeds)):
        what = f"{source}: feed {number}"
        arrays = _arrays(feed, what)
        for normalised in (True, False):
            fitted_feed(arrays, specs, entries, normalised, what)
        size = sum(array.nbytes for array in arrays.values())
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if size > free * ROOM:
            raise OutputError(
                f"{what}: the inputs take {offset + size:,} bytes so far, too many for "
                f"{tempfile.gettempdir()} (free: {free:,}). Give fewer inputs, or set TMPDIR to a "
                "folder with more space"
            )
        kept = {}
        for name, array in arrays.items():
            file.write(np.ascontiguousarray(array).tobytes())
            kept[name] = _Kept(offset, array.dtype, array.shape)
            offset += array.nbytes
        yield kept, label


def _taken(file: Any, kept: _Kept) -> np.ndarray:
    file.seek(kept.offset)
    count = math.prod(kept.shape)
    return np.frombuffer(file.read(count * kept.dtype.itemsize), kept.dtype, count).reshape(kept.shape)
