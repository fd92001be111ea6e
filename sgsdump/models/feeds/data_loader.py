"""A data loader script, apart as it runs the user's own Python: a file that yields feed after feed, as Polygraphy's.

    def load_data():
        for path in sorted(Path("pictures").iterdir()):
            yield {"input": prepare(path)}

``FILE.py`` calls its ``load_data``, ``FILE.py:NAME`` the function NAME. What it gives is a dictionary of an array for
each input of the model; feeds are called 0, 1, 2 ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import InputError, hint
from sgsdump.files.user_module import blaming, import_file
from sgsdump.models.feeds.feeds import Feed, config_entries, given_array
from sgsdump.models.input_spec import InputSpec
from sgsdump.sidecars.input_config import InputConfig

FUNCTION = "load_data"
_END = object()


def raw_feeds(script: str, inputs: Sequence[str]) -> Iterator[tuple[str, Feed]]:
    """(number, feed) for each feed of a script, one at a time, arrays as they are; ``inputs`` are the model's.

    Raises InputError at once for a file that is not there, cannot be imported or has no such function; while iterating
    for what the function raises, for a feed that lacks an input or has one too many, and for a script without feeds.
    """
    file, function = _function(script)
    return _feeds(file, function, inputs)


def loaded_feeds(
    script: str, specs: Sequence[InputSpec], config: InputConfig | None = None, normalised: bool = True
) -> Iterator[tuple[str, Feed]]:
    """The same, each array in its input's shape and dtype as of an .npy file; arguments as of ``feeds.feeds``."""
    entries = config_entries(specs, config)
    feeds = raw_feeds(script, [spec.name for spec in specs])

    def fitted(number: str, feed: Feed) -> Feed:
        arrays = {}
        for spec, entry in zip(specs, entries):
            raw = not normalised and entry is not None and entry.is_picture
            what = f"{script}: feed {number}, input {spec.name!r},"
            arrays[spec.name] = given_array(feed[spec.name], spec, raw, what)
        return arrays

    return ((number, fitted(number, feed)) for number, feed in feeds)


def _function(script: str) -> tuple[Path, Any]:
    path, colon, name = script.rpartition(":")
    if not (colon and name.isidentifier()):
        path, name = script, FUNCTION
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no data loader script {file}; give the path of a Python file, or FILE.py:FUNCTION")
    function = getattr(import_file(file, "data loader"), name, None)
    if not callable(function):
        raise InputError(f"{file} has no function {name}(), which gives the feeds")
    return file, function


def _feeds(file: Path, function: Any, inputs: Sequence[str]) -> Iterator[tuple[str, Feed]]:
    with blaming(file, "data loader"):
        feeds = function()
    if isinstance(feeds, Mapping) or not isinstance(feeds, Iterable):
        raise InputError(
            f"{file}: {function.__name__}() gave a {type(feeds).__name__}; it is to yield a dictionary of arrays for "
            f"each run"
        )
    iterator, number = iter(feeds), 0
    while True:
        with blaming(file, "data loader", f" on feed {number}"):
            feed = next(iterator, _END)
        if feed is _END:
            break
        yield str(number), _checked(feed, f"{file}: feed {number}", inputs)
        number += 1
    if not number:
        raise InputError(f"{file}: {function.__name__}() gives no feeds")


def _checked(feed: Any, what: str, inputs: Sequence[str]) -> Feed:
    if not isinstance(feed, Mapping):
        raise InputError(f"{what} is a {type(feed).__name__}, not a dictionary of arrays by input name")
    for name in feed:
        if name not in inputs:
            raise InputError(f"{what} has {name!r}, which is not an input of the model{hint(str(name), list(inputs))}")
    for name in inputs:
        if name not in feed:
            raise InputError(f"{what} has nothing for the model's input {name!r}")
    arrays = {name: np.asarray(feed[name]) for name in inputs}
    for name, array in arrays.items():
        if array.dtype.kind in "OSU":
            raise InputError(f"{what} has no array of numbers for the input {name!r}")
    return arrays
