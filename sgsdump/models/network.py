"""A model with its data and its input_config.ini, as users name them, and the feeds that are made of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from sgsdump.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import InputSpec, Part
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


@dataclass(frozen=True)
class Network:
    """A float model, its feeds (``image`` and ``preprocess``, or a data loader) and its input_config.ini, as users name
    them."""

    model: Path
    weight_file: Path | None
    image: str | None
    data_loader_script: str | None
    preprocess: str | None
    input_config: Path | None
    part: Part
    strict_sdk: bool = False
    feeds: Iterable[Run] | None = None

    @property
    def files(self) -> list[Path | None]:
        """What is read, and so must not be written over."""
        from sgsdump.models.feeds.image_list import places

        script = Path(self.data_loader_script) if self.data_loader_script else None
        preprocess = map(Path, (self.preprocess or "").split(",")) if self.preprocess else ()
        pictures = places(self.image) if self.image else []
        return [self.model, self.weight_file, self.input_config, *pictures, *preprocess, script]

    @property
    def data(self) -> str:
        """What the feeds come from, as the user wrote it."""
        return self.image or self.data_loader_script or ("the feeds" if self.feeds is not None else "")

    def source(self, config: InputConfig | None) -> Source:
        return Source(self.image, self.preprocess, config, self.data_loader_script, self.feeds)


class Beside(TypedDict, total=False):
    """What stands beside a model and its data.

    preprocess     your preprocess file, of several inputs one for each, separated by commas.
    input_config   input_config.ini; pictures need one, but for ``diagnose``, which assumes it.
    weight_file    of a Caffe model.
    model_inputs   the tensors to begin with, ``model_outputs`` those to end with: the part of the model between them.
    strict_sdk     end where SDK 1.1.5 refuses the model.
    """

    preprocess: str | Path | None
    input_config: str | Path | None
    weight_file: str | Path | None
    model_inputs: Sequence[str]
    model_outputs: Sequence[str]
    strict_sdk: bool


def named_network(model: str | Path, data: Data, beside: Beside) -> Network:
    """The network that a caller in Python names.

    data  pictures, a folder, a list file, ``.npy`` or ``.npz``, or ``random``, as ``-i`` takes them; a data loader
          ``FILE.py[:NAME]``; an array, or a dictionary of arrays by input name; or any iterable of these.

    Raises TypeError for a keyword that is not one of ``Beside``.
    """
    from sgsdump.models.model import Part

    if unknown := beside.keys() - Beside.__annotations__.keys():
        name = min(unknown)
        raise TypeError(f"unexpected keyword argument {name!r}{did_you_mean(name, list(Beside.__annotations__))}")
    given = str(data) if isinstance(data, (str, Path)) else ""
    script = is_script(given)
    return Network(
        Path(model),
        _path(beside.get("weight_file")),
        given if given and not script else None,
        given if script else None,
        str(beside.get("preprocess") or "") or None,
        _path(beside.get("input_config")),
        Part(tuple(beside.get("model_inputs", ())), tuple(beside.get("model_outputs", ()))),
        beside.get("strict_sdk", False),
        None if isinstance(data, (str, Path)) else as_runs(data),
    )


def beside_of(options: Mapping[str, object], cls: type) -> Beside:
    """What stands beside the model, of options of a class that extends ``Beside``; what neither knows is in it too."""
    own = cls.__annotations__.keys() - Beside.__annotations__.keys()
    return cast("Beside", {name: value for name, value in options.items() if name not in own})


def _path(path: str | Path | None) -> Path | None:
    return Path(path) if path else None
