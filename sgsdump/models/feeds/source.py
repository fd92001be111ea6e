"""Where feeds come from, as users name it, and the feeds that are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sgsdump.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.input_spec import InputSpec
    from sgsdump.sidecars.input_config import InputConfig

    Run: TypeAlias = np.ndarray | Mapping[str, np.ndarray]
    Data: TypeAlias = str | Path | Run | Iterable[Run]


@dataclass(frozen=True)
class Source:
    """Where the feeds come from: ``image`` and ``preprocess``, or the data loader ``script``, as users write them, or
    (in Python) the ``feeds`` themselves.

    Raises ConfigError for a preprocess file with a data loader.
    """

    image: str | None
    preprocess: str | None = None
    config: InputConfig | None = None
    script: str | None = None
    feeds: Iterable[Run] | None = None

    def __post_init__(self) -> None:
        if (self.script or self.feeds is not None) and self.preprocess:
            raise ConfigError("-n prepares pictures, and a data loader gives arrays as they are; leave one of them out")


def feeds_of(source: Source, specs: Sequence[InputSpec], as_camera: bool = False) -> Feeds:
    """The feeds of a command that takes them by index. Raises what making them raises, as soon as it can be known.

    as_camera  the fixed model gets the pixels in the order that input_config.ini says, as on the board, also of a
               preprocess file that gives raw pictures of another order. The SDK's simulator takes them as they are.
    """
    from sgsdump.models.feeds.data_loader import LoadedFeeds
    from sgsdump.models.feeds.feeds import PictureFeeds

    if source.script:
        return LoadedFeeds.of_script(source.script, specs, source.config)
    if source.feeds is not None:
        runs = (_fed(run, specs[0].name) for run in source.feeds)
        return LoadedFeeds.of(runs, specs, source.config)
    made = (measured if as_camera else _pixels_by)(source, specs)
    return PictureFeeds(source.image or "", source.preprocess, tuple(specs), source.config, made)


def _pixels_by(source: Source, specs: Sequence[InputSpec]) -> InputConfig | None:
    """Return how preprocess files that give no raw picture normalise; None if one gives the pixels itself."""
    from sgsdump.models.feeds.preprocess_file import load_preprocess

    files = source.preprocess.split(",") if source.preprocess else ()
    return None if any(load_preprocess(file.strip()).takes_norm for file in files) else measured(source, specs)


def measured(source: Source, specs: Sequence[InputSpec]) -> InputConfig | None:
    """Return how the user's preprocess file normalises pictures beside an input_config.ini; None if it cannot be
    measured: the file takes the user's pictures only, or there is none."""
    from sgsdump.errors import SgsdumpError
    from sgsdump.models.feeds.assumed_config import assume_config
    from sgsdump.models.feeds.feeds import expand

    if not (source.preprocess and source.config and source.image):
        return None
    try:
        return assume_config(specs, (), source.preprocess, expand(source.image, len(specs))[0], source.config).config
    except SgsdumpError:
        return None


def _fed(run: Any, name: str) -> Any:
    """A run as a dictionary of arrays, or a pair of that and its label."""
    if isinstance(run, tuple) and len(run) == 2:
        return _fed(run[0], name), run[1]
    return run if isinstance(run, Mapping) else {name: run}


def is_script(data: str) -> bool:
    """Whether data is named as ``FILE.py`` or ``FILE.py:NAME``: a data loader."""
    return data.endswith(".py") or data.rpartition(":")[0].endswith(".py")


def as_runs(data: Run | Iterable[Run]) -> Iterable[Run]:
    if isinstance(data, Mapping) or hasattr(data, "__array__"):
        return [cast("Run", data)]
    return list(data) if isinstance(data, Iterator) else data  # what is gone through once is kept
