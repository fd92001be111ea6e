"""A model with its data and its input_config.ini, as users name them, and the feeds made from the data."""

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
    """Source of the feeds: ``image`` and ``preprocess``, a data loader ``script``, or (in Python) ``feeds`` themselves.

    Raises ConfigError for a preprocess file with a data loader.
    """

    image: str | None
    preprocess: str | None = None
    config: InputConfig | None = None
    script: str | None = None
    feeds: Iterable[Run] | None = None

    def __post_init__(self) -> None:
        if (self.script or self.feeds is not None) and self.preprocess:
            raise ConfigError("-n preprocesses images, but a data loader gives finished arrays; use only one of them")


def feeds_of(source: Source, specs: Sequence[InputSpec], as_camera: bool = False) -> Feeds:
    """Return the feeds for commands that take feeds by index; raise errors of the data as early as possible.

    as_camera  True: the fixed model gets pixels in the order of input_config.ini, as on the board, also if a preprocess
               file gives raw images in another order. The SDK's simulator uses the images unchanged.
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
    """Return the normalisation of preprocess files that give no raw image; None if one gives the pixels itself."""
    from sgsdump.models.feeds.preprocess_file import load_preprocess

    files = source.preprocess.split(",") if source.preprocess else ()
    return None if any(load_preprocess(file.strip()).takes_norm for file in files) else measured(source, specs)


def measured(source: Source, specs: Sequence[InputSpec]) -> InputConfig | None:
    """Return the normalisation that the user's preprocess file applies, measured next to an input_config.ini.

    Returns None if it cannot be measured: there is no file, or the file accepts only the user's images.
    """
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
    """Return a run as a dictionary of arrays, or as a pair of such a dictionary and its label."""
    if isinstance(run, tuple) and len(run) == 2:
        return _fed(run[0], name), run[1]
    return run if isinstance(run, Mapping) else {name: run}


def is_script(data: str) -> bool:
    """Return whether data are named as ``FILE.py`` or ``FILE.py:NAME``: a data loader."""
    return data.endswith(".py") or data.rpartition(":")[0].endswith(".py")


def as_runs(data: Run | Iterable[Run]) -> Iterable[Run]:
    if isinstance(data, Mapping) or hasattr(data, "__array__"):
        return [cast("Run", data)]
    return list(data) if isinstance(data, Iterator) else data  # an iterator can be consumed only once


@dataclass(frozen=True)
class Network:
    """A float model, its feeds (``image`` and ``preprocess``, or a data loader) and its input_config.ini."""

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
        """Files that are read, and must not be overwritten."""
        from sgsdump.models.feeds.image_list import places

        script = Path(self.data_loader_script) if self.data_loader_script else None
        preprocess = map(Path, (self.preprocess or "").split(",")) if self.preprocess else ()
        pictures = places(self.image) if self.image else []
        return [self.model, self.weight_file, self.input_config, *pictures, *preprocess, script]

    @property
    def data(self) -> str:
        """User-supplied data source."""
        return self.image or self.data_loader_script or ("the feeds" if self.feeds is not None else "")

    def source(self, config: InputConfig | None) -> Source:
        return Source(self.image, self.preprocess, config, self.data_loader_script, self.feeds)


class Beside(TypedDict, total=False):
    """Options that accompany a model and its data.

    preprocess     your preprocess file; for several inputs one per input, separated by commas
    input_config   input_config.ini; required for images, except by ``diagnose``, which infers one
    weight_file    weights of a Caffe model
    model_inputs   first tensors of the part of the model to use
    model_outputs  last tensors of the part of the model to use
    strict_sdk     stop if SDK 1.1.5 refuses the model
    """

    preprocess: str | Path | None
    input_config: str | Path | None
    weight_file: str | Path | None
    model_inputs: Sequence[str]
    model_outputs: Sequence[str]
    strict_sdk: bool


def named_network(model: str | Path, data: Data, beside: Beside) -> Network:
    """Return the network that a Python caller describes.

    data  images, a folder, a list file, ``.npy`` or ``.npz``, or ``random``, as for ``-i``; a data loader
          ``FILE.py[:NAME]``; an array, or a dictionary of arrays by input name; or any iterable of these

    Raises TypeError for a keyword that is not in ``Beside``.
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
    """Return the ``Beside`` options among the options of ``cls``, which extends ``Beside``, with unknown options."""
    own = cls.__annotations__.keys() - Beside.__annotations__.keys()
    return cast("Beside", {name: value for name, value in options.items() if name not in own})


def _path(path: str | Path | None) -> Path | None:
    return Path(path) if path else None
