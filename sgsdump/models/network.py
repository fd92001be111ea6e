"""A model with its data and its input_config.ini, as users name them on the command line and in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from sgsdump.errors import did_you_mean
from sgsdump.models.feeds.source import Source, as_runs, is_script

if TYPE_CHECKING:
    from sgsdump.models.feeds.source import Data, Run
    from sgsdump.models.model import Part
    from sgsdump.sidecars.input_config import InputConfig


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
