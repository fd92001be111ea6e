"""A float model with its data and its input_config.ini, as users name them, and opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from sgsdump.errors import ConfigError, did_you_mean, listed

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.models.feeds.feeds import Feed, Feeds
    from sgsdump.models.input_spec import InputSpec
    from sgsdump.models.model import Model, Part
    from sgsdump.sidecars.input_config import InputConfig

    Run: TypeAlias = np.ndarray | Mapping[str, np.ndarray]
    Data: TypeAlias = str | Path | Run | Iterable[Run]


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
        None if isinstance(data, (str, Path)) else _runs(data),
    )


def beside_of(options: Mapping[str, object], cls: type) -> Beside:
    """What stands beside the model, of options of a class that extends ``Beside``; what neither knows is in it too."""
    own = cls.__annotations__.keys() - Beside.__annotations__.keys()
    return cast("Beside", {name: value for name, value in options.items() if name not in own})


def is_script(data: str) -> bool:
    """Whether data is named as ``FILE.py`` or ``FILE.py:NAME``: a data loader."""
    return data.endswith(".py") or data.rpartition(":")[0].endswith(".py")


def _runs(data: Run | Iterable[Run]) -> Iterable[Run]:
    if isinstance(data, Mapping) or hasattr(data, "__array__"):
        return [cast("Run", data)]
    return list(data) if isinstance(data, Iterator) else data  # what is gone through once is kept


def _path(path: str | Path | None) -> Path | None:
    return Path(path) if path else None


@dataclass(frozen=True)
class OpenNetwork:
    """A network that was opened: its configuration with all inputs raised that must be, the text of it, and what the
    user is told: sentences on what was assumed where there was none, and warnings."""

    model: Model
    config: InputConfig
    ini: bytes
    source: Source
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        from sgsdump.models.model import graph_inputs

        return tuple(graph_inputs(self.model.proto))

    def feeds(self, data: Data | None = None) -> Feeds:
        """The feeds of the network's source, or of this data in place of it, as ``named_network`` takes it, in the
        order of their content. Raises InputError for data that takes other branches of the model's Ifs."""
        from sgsdump.models.feeds.by_content import by_content

        if data is None:
            return by_content(self.files())
        given = str(data) if isinstance(data, (str, Path)) else ""
        if not isinstance(data, (str, Path)):
            source = Source(None, None, self.source.config, None, _runs(data))
        elif is_script(given):
            source = Source(None, None, self.source.config, given)
        else:
            source = replace(self.source, image=given, script=None, feeds=None)
        feeds = by_content(feeds_of(source, self.specs, as_camera=True))
        check_branches(self.model, feeds)
        return feeds

    def files(self) -> Feeds:
        """The feeds of the network's source in the order of the files."""
        return feeds_of(self.source, self.specs, as_camera=True)


def open_network(network: Network, level: str, guesses: bool = False, outside: bool = False) -> OpenNetwork:
    """The float model with its configuration; ``level``: of the calibration. Where no input_config.ini is given, one is
    assumed, of pictures only where ``guesses`` allows that. ``outside``: see ``open_float_model``.

    Raises what reading model and configuration raises, ConfigError for pictures without one, and ModelError for a model
    that the SDK refuses where the user wants that (``strict_sdk``).
    """
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.fixedpoint.quantisation.float_model import conversion_notes, open_float_model
    from sgsdump.fixedpoint.quantisation.tensor_arrays import with_raised_inputs
    from sgsdump.models.feeds.feeds import board_notes
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import input_config

    def feeds_before(specs: Sequence[InputSpec]) -> Iterable[tuple[str, Feed]]:
        if not network.data:
            return [("", {})]
        config = given or _assumed(network, specs, (), guesses)[0]
        return feeds_of(network.source(config), tuple(specs))

    given = input_config.read(network.input_config) if network.input_config else None
    none = input_config.InputConfig(())
    model = open_float_model(network.model, network.weight_file, given or none, network.part, feeds_before, outside)
    if given is not None and network.input_config is not None:
        config, ini, assumed = given, read_bytes(network.input_config), tuple[str, ...]()
    else:
        outputs = [output.name for output in model.proto.graph.output]
        config, ini, assumed = _assumed(network, graph_inputs(model.proto), outputs, guesses)
    refused = conversion_notes(model, given or _turned(model, config), network.strict_sdk, level)
    config, notes = with_raised_inputs(config, model.proto)
    quantised = _quantised_already(network, model)
    warnings = (*quantised, *board_notes(config, graph_inputs(model.proto)), *refused, *notes)
    return OpenNetwork(model, config, ini, network.source(config), assumed, warnings)


def _quantised_already(network: Network, model: Model) -> tuple[str, ...]:
    """That a network given as the float one has operators that quantise."""
    from sgsdump.dumps.quantised_graph import is_edge, on_integers

    kinds = dict.fromkeys(node.op_type for node in model.proto.graph.node)
    found = [kind for kind in kinds if is_edge(kind) or on_integers(kind)]
    if not found:
        return ()
    return (
        f"{network.model} is quantised already ({listed(found)}): its own rounding is taken as exact here, and what it "
        f"computes on integers stays as it is; to judge that: sgsdump diagnose -m FLOAT.onnx --fixed {network.model}",
    )


def assumed_source(network: Network, model: Model) -> tuple[Source, tuple[str, ...]]:
    """The feeds of a model that the SDK does not convert, and sentences on what was assumed of them.

    Raises what reading or assuming the configuration raises."""
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import input_config

    if network.input_config:
        return network.source(input_config.read(network.input_config)), ()
    outputs = [output.name for output in model.proto.graph.output]
    config, _, assumed = _assumed(network, graph_inputs(model.proto), outputs, True)
    return network.source(config), assumed


def _turned(model: Model, assumed: InputConfig) -> InputConfig:
    """Of what was assumed the pictures of shape N, H, W, C."""
    from sgsdump.fixedpoint.quantisation.float_model import channels_last

    last = channels_last(model, assumed)
    return replace(assumed, inputs=tuple(entry for entry in assumed.inputs if entry.name in last), outputs=())


def _assumed(
    network: Network, specs: Sequence[InputSpec], outputs: Sequence[str], guesses: bool
) -> tuple[InputConfig, bytes, tuple[str, ...]]:
    """The configuration that is assumed, its text, and sentences on it."""
    from sgsdump.fixedpoint.quantisation.assumed_config import assume_config, ini_text, takes_pictures
    from sgsdump.models.feeds.feeds import expand
    from sgsdump.models.feeds.preprocess_file import load_preprocess

    run = expand(network.image, len(specs))[0] if network.image else ()
    if not guesses and (takes_pictures(specs, run) or not network.data):
        preprocess = f" -n {network.preprocess}" if network.preprocess else ""
        for file in network.preprocess.split(",") if network.preprocess else ():
            load_preprocess(file.strip())  # the line below names it
        raise ConfigError(
            f"how the pictures of {network.model} are normalised is not known; give --input-config: sgsdump cfg "
            f"input_config.ini -m {network.model}{preprocess} writes one to check"
        )
    assumed = assume_config(specs, outputs, network.preprocess, run)
    return assumed.config, ini_text(assumed.config).encode(), assumed.sentences


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
    from sgsdump.fixedpoint.quantisation.assumed_config import assume_config
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


def check_apart(held_out: Feeds, seen: Feeds, option: str, what: str) -> None:
    """Raises ConfigError for a run that is held out and given with ``option`` too, whatever its files are called; every
    ``what`` is then judged on it."""
    from sgsdump.models.feeds.by_content import by_content

    held_out, known = by_content(held_out), {*by_content(seen).keys}
    same = next((index for index, key in enumerate(held_out.keys) if key in known), None)
    if same is not None:
        raise ConfigError(
            f"--validate has {held_out[same][0]}, which {option} has too: judged on what it is fitted to, every {what} "
            f"looks good; give other files"
        )


def check_branches(model: Model, feeds: Iterable[tuple[str, Feed]]) -> None:
    """Raises InputError for other data than the model's own that would take other branches of its Ifs."""
    from sgsdump.executors.onnx_runtime.observed_branches import BranchGuard

    guard = BranchGuard(model)
    if guard.taken:
        for label, feed in feeds:
            guard.check(feed, label)
