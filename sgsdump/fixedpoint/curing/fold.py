"""One fold of a cure: the model, its ranges and its fixed model, fitted to some of the images."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto

from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.fixedpoint.curing.absorption import absorbed, absorbing
from sgsdump.fixedpoint.curing.channel_axes import channel_axes
from sgsdump.fixedpoint.curing.channels import channel_figures
from sgsdump.fixedpoint.curing.equalisation import equalising_factors
from sgsdump.fixedpoint.curing.folding import folded
from sgsdump.fixedpoint.curing.noise import Layer, Noise, full_steps, layers_of, weighted
from sgsdump.fixedpoint.curing.ranges import headrooms, margins, params_of, weight_room, widened
from sgsdump.fixedpoint.curing.reconstruction import Wanted, reconstructed
from sgsdump.fixedpoint.curing.scaling import Scaling, scaled, scaling_of, without_clips
from sgsdump.fixedpoint.curing.sensitivity import Sensitivity, of_rounding
from sgsdump.fixedpoint.curing.steps import ABSORB, BIAS, EQUALISE, FOLD, RANGES, ROUND, CureOptions
from sgsdump.fixedpoint.quantisation.calibration import Calibration, calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed, simplify
from sgsdump.fixedpoint.quantisation.objective import watched_by_output
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.image_list import evenly
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.models.passes.lift import lift
from sgsdump.progress import SILENT, Progress
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range

# Number of images for rebuilding weights and biases; fewer if every wave of layers runs the model again.
REBUILT, INHERITED = 24, 12
SENSED = 2
# The order in which the chosen cures are repeated on all images.
ORDER = (FOLD, EQUALISE, ABSORB, RANGES, BIAS, ROUND)
# Number of cached calibrations and margins: rooms of several sizes and rebuilt weights start from the same ones.
CALIBRATED = 4
# Number of models kept open: the current one and the one before.
OPENED = 2


@dataclass(frozen=True)
class Settings:
    """Settings of cures, chosen by the search once for all folds.

    room       share of noise that room in UINT8 ranges may add; 0: room in INT16 only; None: no room.
    clips      scale channels that a Clip bounds.
    inherited  rebuilt weights and biases also correct the error of earlier layers.
    folded     fold BatchNormalizations.
    """

    room: float | None = None
    clips: bool = False
    inherited: bool = False
    folded: bool = False


AS_IT_IS = Settings()


@dataclass(frozen=True, eq=False)
class Made:
    """A model after some cures.

    factors  factors by class of the basis; None if not equalised.
    plain    the model before its weights and biases were rebuilt, or None.
    """

    proto: ModelProto
    factors: np.ndarray | None = None
    plain: ModelProto | None = None


@dataclass(frozen=True, eq=False)
class Basis:
    """The basis of equalising: the model, folded if requested, and the noise of its layers."""

    proto: ModelProto
    folded: tuple[str, ...]
    scaling: Scaling
    layers: list[Layer]
    noise: Noise


def rewritten(source: Model, proto: ModelProto) -> Model:
    """Return a rewritten model in the form that quantisation uses."""
    simple = simplify(replace(source, proto=proto))
    return replace(simple, proto=lift(simple.proto))


class Fold:
    """The cures fitted to the images ``pairs``."""

    def __init__(
        self,
        source: Model,
        config: InputConfig,
        options: CureOptions,
        pairs: PicturePairs,
        progress: Progress = SILENT,
    ):
        self.source, self.config, self.options = source, config, options
        self.pairs, self.progress = pairs, progress
        self._bases: dict[bool, Basis] = {}
        self._calibrated: deque[tuple[ModelProto, Calibration]] = deque(maxlen=CALIBRATED)
        self._models: deque[tuple[ModelProto, Model]] = deque(maxlen=OPENED)
        self._margins: deque[tuple[Basis, np.ndarray | None, float, Mapping[str, float]]] = deque(maxlen=CALIBRATED)

    @property
    def wide(self) -> bool:
        """Whether every convolution is at 16 bits already."""
        return self.config.conv_format == "ALL_INT16"

    def opened(self, proto: ModelProto) -> Model:
        """Return a simplified model that will not be edited again, from a cache."""
        for known, model in self._models:
            if known is proto:
                return model
        self._models.append((proto, rewritten(self.source, proto)))
        return self._models[-1][1]

    def again(self, taken: Sequence[str], settings: Settings) -> Made:
        """Return the model with the chosen cures, repeated with the chosen settings."""
        made = Made(self.source.proto)
        for name in sorted(taken, key=ORDER.index):
            if not (name == BIAS and ROUND in taken):
                made, _ = self.with_cure(name, made, settings)
        return made

    def with_cure(self, name: str, made: Made, settings: Settings) -> tuple[Made, int]:
        """Return the model with a cure, and the number of changes."""
        if name == RANGES:
            return made, max(len(self._wider(made, settings)), 1)
        if name == FOLD:
            basis = self.basis(True)
            return replace(made, proto=basis.proto), len(basis.folded)
        if name == EQUALISE:
            basis = self.basis(settings.folded)
            scaling = basis.scaling if settings.clips else without_clips(basis.scaling)
            factors = equalising_factors(scaling, basis.layers, basis.noise)
            proto = scaled(basis.proto, scaling, factors)
            return replace(made, proto=proto, factors=factors), int((factors != 1).sum())
        if name == ABSORB:
            return self._absorbed(made)
        most = INHERITED if settings.inherited else REBUILT
        pictures = replace(self.pairs, chosen=tuple(evenly(self.pairs.indices, most)))
        plain = made.plain or made.proto
        calibration = self._calibration(plain)
        rebuilt = reconstructed(
            plain,
            lambda edited: rewritten(self.source, edited),  # not cached, because it is edited layer by layer
            lambda model: self._fixed(model, made, settings, calibration),
            [pictures.make(i) for i in range(len(pictures))],
            Wanted(name == ROUND, name == BIAS or BIAS in self.options.cures, settings.inherited),
        )
        count = len(rebuilt.rounded if name == ROUND else rebuilt.corrected)
        return replace(made, proto=rebuilt.proto, plain=plain), count

    def _absorbed(self, made: Made) -> tuple[Made, int]:
        names = absorbing(made.proto)
        if not names:
            return made, 0
        figures = channel_figures(self.opened(made.proto), Fed(self.pairs), dict.fromkeys(names, 1))
        proto, count = absorbed(made.proto, {name: each.low for name, each in figures.items()})
        return replace(made, proto=proto), count

    def basis(self, fold: bool) -> Basis:
        if fold not in self._bases:
            proto, names = folded(self.source.proto) if fold else (self.source.proto, ())
            same = fold and not names
            self._bases[fold] = self.basis(False) if same else self._basis(proto, names)
        return self._bases[fold]

    def _basis(self, proto: ModelProto, names: tuple[str, ...]) -> Basis:
        model, feeds = self.opened(proto), Fed(self.pairs)
        graph = Graph(proto)
        axes = channel_axes(graph)
        figures = channel_figures(model, feeds, axes)
        scaling = scaling_of(proto, {name: each.top for name, each in figures.items()})
        layers = layers_of(proto, scaling, figures)
        noise = Noise(figures, self.options.level != "L1", BIAS in self.options.cures, frozenset(graph.inputs))
        watched = list(dict.fromkeys(watched_by_output(deployed(model)).values()))
        some = [feeds[i][1] for i in evenly(range(len(feeds)), SENSED)]
        if layers and watched:
            read = {layer.node.input[0] for layer in layers} & set(graph.producer)
            steps = {name: full_steps(figures[name]) for name in graph.producer if name in read}
            alone = Sensitivity(deployed(model), some, watched).of_layers()
            layers = weighted(layers, noise, alone, of_rounding(deployed(model), some, watched, steps, axes))
        release_unused()
        return Basis(proto, names, scaling, layers, noise)

    def _wider(self, made: Made, settings: Settings) -> Mapping[str, float]:
        if self.wide or not settings.room:
            return {}
        basis = self.basis(settings.folded)
        for known, factors, room, wider in self._margins:
            if known is basis and factors is made.factors and room == settings.room:
                return wider
        factors = np.ones(basis.scaling.size) if made.factors is None else made.factors
        wider = margins(basis.layers, basis.noise, factors, settings.room)
        self._margins.append((basis, made.factors, settings.room, wider))
        return wider

    def fixed(self, made: Made, settings: Settings) -> FixedModel:
        return self._fixed(self.opened(made.proto), made, settings, self._calibration(made.proto))

    def params(self, made: Made, settings: Settings) -> list[QuantParam]:
        """Return the entries of a model's quant file."""
        model, calibration = self.opened(made.proto), self._calibration(made.proto)
        fixed = replace(model, proto=self._fixed(model, made, settings, calibration).proto)
        return params_of(fixed, model, self._ranges(model, made, settings, calibration))

    def _calibration(self, proto: ModelProto) -> Calibration:
        for known, calibration in self._calibrated:
            if known is proto:
                return calibration
        feeds, level = Fed(self.pairs), self.options.level
        calibration = calibrate(self.opened(proto), feeds, self.config, level, progress=self.progress)
        self._calibrated.append((proto, calibration))
        return calibration

    def _fixed(self, model: Model, made: Made, settings: Settings, calibration: Calibration) -> FixedModel:
        ranges = self._ranges(model, made, settings, calibration)
        return make_fixed(model, ranges, calibration.config, side=side_ranges(calibration.statistics))

    def _ranges(self, model: Model, made: Made, settings: Settings, calibration: Calibration) -> Mapping[str, Range]:
        if settings.room is None:
            return calibration.ranges
        sums, ranges = side_ranges(calibration.statistics).channels, dict(calibration.ranges)
        if self.options.level != "L1":
            ranges |= weight_room(model, ranges, sums)
        headroom = headrooms(model, ranges, sums, self.options.level != "L1")
        return widened(model, ranges, self._wider(made, settings), headroom)


class Fed(Sequence):
    """The float model's feeds of some images."""

    def __init__(self, pairs: PicturePairs):
        self._pairs, self.indices = pairs, pairs.indices

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        picture = self._pairs.make(range(len(self))[index])
        return picture.label, picture.feed
