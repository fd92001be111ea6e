"""The search for the cures that help: each tried on what was taken before, and judged in the hardware's integers.
Apart: ``cure.py`` says what it is for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.curing.absorption import absorbed, absorbing
from sgsdump.curing.channels import channel_figures
from sgsdump.curing.equalisation import equalising_factors
from sgsdump.curing.folding import folded
from sgsdump.curing.noise import Layer, Noise, full_steps, layers_of, weighted
from sgsdump.curing.ranges import SHARE, headrooms, margins, params_of, widened
from sgsdump.curing.reconstruction import Wanted, reconstructed
from sgsdump.curing.scaling import Scaling, scaled, scaling_of
from sgsdump.curing.sensitivity import Sensitivity, of_rounding
from sgsdump.curing.steps import ABSORB, BIAS, CURES, EQUALISE, FOLD, KEPT, RANGES, ROUND, CureOptions, Step
from sgsdump.curing.weight_room import weight_room
from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.models.feeds.image_list import evenly
from sgsdump.models.graph import Graph
from sgsdump.models.passes.lift import lift
from sgsdump.progress import Progress, each
from sgsdump.quantisation.calibration import Calibration, calibrate
from sgsdump.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.quantisation.float_model import deployed, simplify
from sgsdump.quantisation.objective import watched_by_output
from sgsdump.quantisation.ranges.statistics import side_ranges
from sgsdump.quantisation.trials.integer_outputs import FloatOutputs, outputs_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.model import Model
    from sgsdump.quantisation.diagnosis.picture_pairs import PicturePairs
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.sidecars.quant_param_entries import QuantParam
    from sgsdump.tensors.types import Range

# A step is taken where it takes so much off the error, and no output gets worse than it was by more than WORSE.
WORTH, WORSE = 0.02, 0.05
# Folding changes the network's layers for good, so before equalising it has to bring so much.
FOLDING = 0.05
# Room is for pictures unlike those that it is judged on, where no others are given: it may cost so much on these, but
# no more than the cures before it have brought (and WORSE).
TOLERATED = 1.6
# What room may cost where other pictures judge it, who can tell.
SHARES = (2 * SHARE, SHARE, 0.0)
# Weights and biases are rebuilt on so many pictures; on fewer where each wave of layers runs the network once more.
REBUILT, INHERITED = 24, 12
SENSED = 2
# How the cures that were taken are made once more.
ORDER = (FOLD, EQUALISE, ABSORB, RANGES, BIAS, ROUND)
# So many models' calibrations are kept: rooms of several sizes, and what is rebuilt, start from the same.
CALIBRATED = 4
# So many states are kept opened: the one that is tried and the one before it.
OPENED = 2


@dataclass(frozen=True, eq=False)
class State:
    """A model on the way. ``factors``: of the basis' classes, None where it is not equalised; ``room``: the share that
    room in UINT8 ranges may cost, 0 for room in INT16 alone, None without any; ``plain``: the model before its weights
    and biases were rebuilt, where they were; ``inherited``: whether these make up for what the layers before add;
    ``folded``: which basis it has."""

    proto: ModelProto
    factors: np.ndarray | None = None
    room: float | None = None
    plain: ModelProto | None = None
    inherited: bool = False
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Tried:
    """``judged``: what ``_Search.judge`` says of the state."""

    step: Step
    state: State
    judged: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Basis:
    """What equalising starts from: the folded model, where folding is tried, and the noise of its layers."""

    proto: ModelProto
    folded: tuple[str, ...]
    scaling: Scaling
    layers: list[Layer]
    noise: Noise


def rewritten(source: Model, proto: ModelProto) -> Model:
    """A rewritten model as quantisation works on it."""
    simple = simplify(replace(source, proto=proto))
    return replace(simple, proto=lift(simple.proto))


class Search:
    """Fits on ``pairs`` and judges on ``judges``."""

    def __init__(
        self,
        source: Model,
        config: InputConfig,
        options: CureOptions,
        pairs: PicturePairs,
        judges: PicturePairs,
        progress: Progress,
    ):
        self.source, self.config, self.options = source, config, options
        self.pairs, self.judges, self.progress = pairs, judges, progress
        self.original = self.opened(source.proto)
        self.watched = watched_by_output(deployed(self.original))
        self.names = list(self.watched) or [o.name for o in source.proto.graph.output]
        self.floats = FloatOutputs(self.original, list(dict.fromkeys([*self.names, *self.watched.values()])))
        self.taken: list[str] = []
        self._bases: dict[bool, Basis] = {}
        self._calibrated: deque[tuple[ModelProto, list[int], Calibration]] = deque(maxlen=CALIBRATED)
        self._models: deque[tuple[ModelProto, Model]] = deque(maxlen=OPENED)
        self.share = SHARE
        self.trusting = judges.feeds is pairs.feeds

    @cached_property
    def before(self) -> Mapping[str, float]:
        """What ``judge`` says of the model as it is."""
        return self.judge(State(self.source.proto))

    def _shown(self, judged: Mapping[str, float]) -> dict[str, float]:
        """Those of the outputs."""
        return {name: judged[name] for name in self.names if name in judged}

    def errors(self) -> tuple[dict[str, float], dict[str, float]]:
        """Of the outputs: as it is, and of what was reached."""
        return self._shown(self.before), self._shown(self.now)

    def opened(self, proto: ModelProto) -> Model:
        return rewritten(self.source, proto)

    def _opened(self, proto: ModelProto) -> Model:
        """Of a state, whose model is not changed any more: made once for all that follows one another."""
        for known, model in self._models:
            if known is proto:
                return model
        self._models.append((proto, self.opened(proto)))
        return self._models[-1][1]

    def run(self) -> tuple[State, list[Step]]:
        """The state that was reached, and every step. Folding that costs something by itself is tried together with
        equalising, which it makes way for; room that did not help is tried again after that."""
        steps: list[Step] = []
        self.now = self.before
        state = State(self.source.proto)
        wide = (RANGES, BIAS, ROUND)  # the convolution that reads a picture has weights of 8 bits all the same
        cures = [cure for cure in (wide if self._wide else CURES) if cure in self.options.cures]
        if RANGES in cures and EQUALISE in cures and not self._wide:
            if self.trusting:  # room costs on these pictures, so those that keep the function are judged without
                cures.remove(RANGES)
            cures.insert(1 + max(cures.index(each) for each in (EQUALISE, ABSORB) if each in cures), RANGES)
        for name in cures if self.names else ():
            if name in self.taken or (name == EQUALISE and any(step.cure == EQUALISE for step in steps)):
                continue
            tried = self._try(name, state)
            if tried is None:
                continue
            found = self._with_biases(tried) if name == EQUALISE else [tried]
            if name == FOLD and EQUALISE in cures:
                found = self._with_equalising(tried, state)
            for one in found:
                steps = [*(s for s in steps if s.cure != one.step.cure), one.step]
                if one.step.taken:
                    state, self.now = one.state, one.judged
                    self.taken.append(one.step.cure)
        return state, steps

    def _with_biases(self, equalised: Tried) -> list[Tried]:
        """Equalising leaves what rounding weights adds in the mean to the biases: where it does not help alone, it is
        judged with them."""
        step = equalised.step
        if step.taken or not _keeps(step) or BIAS not in self.options.cures:
            return [equalised]
        biases = self._try(BIAS, equalised.state)
        if biases is None or not biases.step.taken:
            return [equalised]
        return [replace(equalised, step=replace(step, taken=True)), biases]

    def _with_equalising(self, fold: Tried, state: State) -> list[Tried]:
        """Folding that costs something by itself makes way for equalising, or is in its way: the better; folded where
        that takes FOLDING off."""
        starts = [state, fold.state] if _keeps(fold.step) else [state]
        ways = [way for start in starts if (way := self._try(EQUALISE, start)) is not None]
        if not ways:
            return [fold]

        def rank(way: Tried) -> tuple[bool, float]:
            return not way.step.taken, self._ratio(way.judged) / (1 - FOLDING if way.state.folded else 1)

        best = [min(ways, key=rank)]
        for way in [] if best[0].step.taken else ways:  # as the network is first
            best = self._with_biases(way)
            if best[-1].step.taken:
                break
        folded = best[-1].state.folded
        better = fold.step.taken and not folded and self._ratio(fold.judged) <= self._ratio(best[-1].judged)
        if better or not best[-1].step.taken:
            return [fold, replace(best[0], step=replace(best[0].step, taken=False))]
        return [replace(fold, step=replace(fold.step, taken=folded)), *best]

    def _try(self, name: str, state: State) -> Tried | None:
        """None where the cure has nothing to change. Room of several sizes: the best, where others judge it; else the
        first that does not cost too much. Biases and weights: what the layers before add is made up for too, where
        others judge whether that is better; on pictures of the kind that is fitted to it always seems so."""
        if name == ABSORB and state.plain is not None:
            return None  # the biases are made already
        if name in (BIAS, ROUND) and not self.trusting:
            return self._rebuilt(name, state)
        if name != RANGES:
            return self._tried(name, state)
        found: dict[float, Tried] = {}
        for share in SHARES[1:] if self.trusting else SHARES:
            self.share = share
            tried = self._tried(name, state)
            if tried is None:
                return None
            found[share] = tried
            if self._wide or (self.trusting and tried.step.taken):
                break
        if not self.trusting:
            self.share = min(found, key=lambda share: self._ratio(found[share].judged))
        return found[self.share]

    def _rebuilt(self, name: str, state: State) -> Tried | None:
        """The better of both ways; what is rebuilt after biases goes the way that they took."""
        ways = (False, True) if state.plain is None else (state.inherited,)
        found = [self._tried(name, replace(state, inherited=inherited)) for inherited in ways]
        return min(filter(None, found), key=lambda way: (not way.step.taken, self._ratio(way.judged)), default=None)

    def _tried(self, name: str, state: State) -> Tried | None:
        candidate, count = self.with_cure(name, state)
        if not count:
            return None
        kept = self._kept(candidate.proto) if name in (FOLD, EQUALISE, ABSORB) else None
        judged = self.judge(candidate, f"judge {name}")
        if name == RANGES:
            taken = self._ratio(judged) <= (TOLERATED if self.trusting else 1.0)
            taken = taken and self._ratio(judged, self.before) <= 1 + WORSE
        else:
            taken = self._better(judged)
        step = Step(name, taken, self._shown(self.now), self._shown(judged), count, kept)
        return Tried(replace(step, taken=taken and _keeps(step)), candidate, judged)

    def again(self, taken: Sequence[str]) -> State:
        """The cures that were taken, fitted to all pictures."""
        state = State(self.source.proto)
        for name in sorted(taken, key=ORDER.index):
            if not (name == BIAS and ROUND in taken):
                state, _ = self.with_cure(name, state)
        return state

    def with_cure(self, name: str, state: State) -> tuple[State, int]:
        """The state with a cure, and how much it changed."""
        if name == RANGES:
            return replace(state, room=self.share), max(len(self._wider(replace(state, room=self.share))), 1)
        if name == FOLD:
            basis = self.basis(True)
            return replace(state, proto=basis.proto, folded=True), len(basis.folded)
        if name == EQUALISE:
            basis = self.basis(state.folded)
            factors = equalising_factors(basis.scaling, basis.layers, basis.noise)
            proto = scaled(basis.proto, basis.scaling, factors)
            return replace(state, proto=proto, factors=factors), int((factors != 1).sum())
        if name == ABSORB:
            return self._absorbed(state)
        most = INHERITED if state.inherited else REBUILT
        pictures = replace(self.pairs, chosen=tuple(evenly(self.pairs.indices, most)))
        plain = state.plain or state.proto
        calibration = self._calibration(plain)
        made = reconstructed(
            plain,
            self.opened,
            lambda model: self._fixed(model, state, calibration),
            [pictures.make(i) for i in range(len(pictures))],
            Wanted(name == ROUND, name == BIAS or BIAS in self.options.cures, state.inherited),
        )
        count = len(made.rounded if name == ROUND else made.corrected)
        return replace(state, proto=made.proto, plain=plain), count

    def _absorbed(self, state: State) -> tuple[State, int]:
        names = absorbing(state.proto)
        if not names:
            return state, 0
        figures = channel_figures(self._opened(state.proto), _Fed(self.pairs), names)
        proto, count = absorbed(state.proto, {name: each.low for name, each in figures.items()})
        return replace(state, proto=proto), count

    def basis(self, fold: bool) -> Basis:
        if fold not in self._bases:
            self._bases[fold] = self._basis(fold)
        return self._bases[fold]

    def _basis(self, fold: bool) -> Basis:
        source = self.source.proto
        proto, names = folded(source) if fold else (source, ())
        model, feeds = self._opened(proto), _Fed(self.pairs)
        graph = Graph(proto)
        wanted = {name for node in graph.nodes for name in node.output if name}
        figures = channel_figures(model, feeds, wanted.union(graph.inputs))
        scaling = scaling_of(proto, {name: each.top for name, each in figures.items()})
        layers = layers_of(proto, scaling, figures)
        noise = Noise(figures, self.options.level != "L1", BIAS in self.options.cures, frozenset(graph.inputs))
        watched = list(dict.fromkeys(watched_by_output(deployed(model)).values()))
        some = [feeds[i][1] for i in evenly(range(len(feeds)), SENSED)]
        if layers and watched:
            read = {layer.node.input[0] for layer in layers} & set(graph.producer)
            steps = {name: full_steps(figures[name]) for name in graph.producer if name in read}
            alone = Sensitivity(deployed(model), some, watched).of_layers()
            layers = weighted(layers, noise, alone, of_rounding(deployed(model), some, watched, steps))
        release_unused()
        return Basis(proto, names, scaling, layers, noise)

    def _wider(self, state: State) -> Mapping[str, float]:
        if self._wide or not state.room:
            return {}
        basis = self.basis(state.folded)
        factors = np.ones(basis.scaling.size) if state.factors is None else state.factors
        return margins(basis.layers, basis.noise, factors, state.room)

    def judge(self, state: State, what: str = "judge") -> dict[str, float]:
        """The error of a state, fitted here, against the original model: of each output, and of what it is watched by
        (a Softmax by its input, which tells where the Softmax is nearly one-hot)."""
        fixed = self.fixed(state, self.pairs)
        release_unused()
        made = each(self.progress, map(self.judges.make, range(len(self.judges))), what, "picture", len(self.judges))
        pictures = ((p.label, p.feed, p.raw) for p in made)
        (outputs,) = outputs_of(self.original, [fixed.proto], pictures, self.floats.names, floats=self.floats)
        return {name: figures.rmse**2 for name, figures in outputs.outputs.items()}

    def fixed(self, state: State, pairs: PicturePairs) -> FixedModel:
        return self._fixed(self._opened(state.proto), state, self._calibration(state.proto, pairs))

    def params(self, state: State, pairs: PicturePairs) -> list[QuantParam]:
        """The entries of a state's quant file."""
        model, calibration = self._opened(state.proto), self._calibration(state.proto, pairs)
        made = replace(model, proto=self._fixed(model, state, calibration).proto)
        return params_of(made, model, self._ranges(model, state, calibration))

    def difference(self, proto: ModelProto) -> dict[str, float]:
        """By output how far a float model is from the original one, on the judges' pictures."""
        floats = FloatOutputs(self._opened(proto), self.names)
        away, whole = dict.fromkeys(self.names, 0.0), dict.fromkeys(self.names, 0.0)
        for index in range(len(self.judges)):
            picture = self.judges.make(index)
            label = picture.label or str(index)
            ours, theirs = floats.run(label, picture.feed), self.floats.run(label, picture.feed)
            for name in self.names:
                away[name] += float(np.sum((ours[name].astype(np.float64) - theirs[name]) ** 2))
                whole[name] += float(np.sum(theirs[name].astype(np.float64) ** 2))
        return {name: away[name] / whole[name] if whole[name] else away[name] for name in self.names}

    @property
    def _wide(self) -> bool:
        """Whether every convolution is at 16 bits already."""
        return self.config.conv_format == "ALL_INT16"

    def _ratio(self, judged: Mapping[str, float], against: Mapping[str, float] | None = None) -> float:
        """Of what the outputs are watched by, the mean of the errors over those ``against``: of what was reached."""
        against = self.now if against is None else against
        watched = list(dict.fromkeys(self.watched.values())) or self.names
        return mean_ratio(*({n: errors[n] for n in watched if n in errors} for errors in (judged, against)))

    def _better(self, judged: Mapping[str, float]) -> bool:
        before = self.before
        return self._ratio(judged) <= 1 - WORTH and all(
            judged[n] <= (1 + WORSE) * before[n] for n in judged if n in before
        )

    def _kept(self, proto: ModelProto) -> float:
        return math.sqrt(max(self.difference(proto).values(), default=0.0))

    def _calibration(self, proto: ModelProto, pairs: PicturePairs | None = None) -> Calibration:
        feeds = _Fed(pairs or self.pairs)
        for known, indices, calibration in self._calibrated:
            if known is proto and indices == feeds.indices:
                return calibration
        calibration = calibrate(self._opened(proto), feeds, self.config, self.options.level, progress=self.progress)
        self._calibrated.append((proto, feeds.indices, calibration))
        return calibration

    def _fixed(self, model: Model, state: State, calibration: Calibration) -> FixedModel:
        ranges = self._ranges(model, state, calibration)
        return make_fixed(model, ranges, calibration.config, side=side_ranges(calibration.statistics))

    def _ranges(self, model: Model, state: State, calibration: Calibration) -> Mapping[str, Range]:
        if state.room is None:
            return calibration.ranges
        sums, ranges = side_ranges(calibration.statistics).channels, dict(calibration.ranges)
        if self.options.level != "L1":
            ranges |= weight_room(model, ranges, sums)
        headroom = headrooms(model, ranges, sums, self.options.level != "L1")
        return widened(model, ranges, self._wider(state), headroom)


class _Fed(Sequence):
    """The float model's feeds of some pictures."""

    def __init__(self, pairs: PicturePairs):
        self._pairs, self.indices = pairs, pairs.indices

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        picture = self._pairs.make(range(len(self))[index])
        return picture.label, picture.feed


def _keeps(step: Step) -> bool:
    return step.kept is None or step.kept <= KEPT


def mean_ratio(errors: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Geometric mean; an output without error before counts as one where it has none now."""
    logs = []
    for name, error in errors.items():
        first = before.get(name, 0.0)
        if not math.isfinite(error) or (first == 0 and error > 0):
            return math.inf
        if first > 0:
            logs.append(math.log(max(error, first * 1e-9) / first))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
