"""Cure a float model: rewritten, and its ranges with room, so that 8 bits lose less. ``cure`` is the whole of it.

    cured = cure(open_model("net.onnx"), pictures, config)
    print(cured.gain)                     # the outputs' error over that of the model as it is

The steps, each judged by itself in the hardware's integers on pictures that it was not fitted to, each left out where
it does not help:

    ranges     room for what the calibration pictures do not show     ranges.py
    fold       BatchNormalization into the convolutions before it     folding.py
    equalise   channels scaled so that 8 bits suit all of them        equalisation.py
    bias       what quantising adds in the mean, taken off            biases.py
    round      weights on their grid so that outputs are kept         rounding.py

Every error is against the float model as it was given: sum((y - r)^2) / sum(r^2) of each output. What does not keep the
function (round, bias) so pays for its change; what should keep it (fold, equalise) is refused where it does not, to
KEPT.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.curing.channels import channel_figures
from sgsdump.curing.equalisation import Layer, Noise, equalising_factors, layers_of, weighted
from sgsdump.curing.folding import folded
from sgsdump.curing.ranges import SHARE, headrooms, margins, params_of, widened
from sgsdump.curing.reconstruction import Wanted, reconstructed
from sgsdump.curing.scaling import Scaling, scaled, scaling_of
from sgsdump.curing.sensitivity import Sensitivity
from sgsdump.errors import ConfigError, hint
from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.models.graph import Graph, sorted_nodes
from sgsdump.models.passes.fold import fold_constants
from sgsdump.models.passes.lift import lift
from sgsdump.models.passes.rewrites import single_precision
from sgsdump.progress import SILENT, Progress, each
from sgsdump.quantisation.calibration import Calibration, calibrate
from sgsdump.quantisation.diagnosis.compared_pictures import PicturePairs
from sgsdump.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.quantisation.float_model import deployed, simplify
from sgsdump.quantisation.objective import watched_by_output
from sgsdump.quantisation.ranges.statistics import side_ranges
from sgsdump.quantisation.trials.integer_outputs import FloatOutputs, outputs_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.sidecars.quant_param_entries import QuantParam
    from sgsdump.tensors.types import Range

RANGES, FOLD, EQUALISE, BIAS, ROUND = CURES = ("ranges", "fold", "equalise", "bias", "round")
# What keeps the function differs by so much of an output's size at most.
KEPT = 1e-5
# A step is taken where it takes so much off the error, and no output gets worse than it was by more than WORSE.
WORTH, WORSE = 0.02, 0.05
# Room is for pictures unlike those that it is judged on, where no others are given: it may cost so much on these.
TOLERATED = 1.3
# What room may cost where other pictures judge it, who can tell.
SHARES = (3 * SHARE, SHARE, 0.0)
# Of the pictures every HELD_OUT-th is judged on, where no others are given; of fewer than FEWEST, all.
HELD_OUT, FEWEST = 3, 6
JUDGED, REBUILT = 16, 16
SENSED = 2


@dataclass(frozen=True)
class CureOptions:
    """level  of the calibration, whose weight scales are cured for; its fits and bits are not searched again.
    cures  which of CURES are tried.
    """

    level: str = "L2"
    cures: tuple[str, ...] = CURES

    def __post_init__(self) -> None:
        for name in self.cures:
            if name not in CURES:
                raise ConfigError(
                    f"there is no cure {name!r}{hint(name, list(CURES))}; the cures are {', '.join(CURES)}"
                )


@dataclass(frozen=True)
class Step:
    """A cure that was tried. ``errors``: by output, of the model with what was taken before and with this cure;
    ``count``: of what it changed (layers, channels, tensors); ``kept``: the largest change of an output where the cure
    should keep it, in parts of the output."""

    cure: str
    taken: bool
    before: Mapping[str, float]
    errors: Mapping[str, float]
    count: int
    kept: float | None = None


@dataclass(frozen=True, eq=False)
class Cured:
    """proto      the cured float model, to be converted, or ``calibrate``d with the same options.
    params     the entries of its quant file: ranges with room, where that was taken. None without ``ranges``.
    as_it_is   by output the error of the model as it is, ``errors`` of the cured one, both on ``judged`` pictures that
               nothing was fitted to (or, of a few pictures, all of them: ``held_out`` False).
    changed    by output how far the cured float model is from the original one: sum((y - r)^2) / sum(r^2).
    """

    proto: ModelProto
    params: tuple[QuantParam, ...] | None
    steps: tuple[Step, ...]
    as_it_is: Mapping[str, float]
    errors: Mapping[str, float]
    judged: int
    held_out: bool
    changed: Mapping[str, float]

    @property
    def gain(self) -> float:
        """The geometric mean over the outputs of the error over that of the model as it is."""
        return _mean_ratio(self.errors, self.as_it_is)

    @property
    def helps(self) -> bool:
        return any(step.taken for step in self.steps)

    def save(self, path: str | Path) -> Path:
        """Write the model, and its ranges beside it where there are any. Raises ModelError, OutputError."""
        from sgsdump.files.atomic_write import replacing, together
        from sgsdump.quantisation.float_model import save_model
        from sgsdump.sidecars import quant_param

        path, beside = Path(path), ranges_beside(Path(path))
        with together(), replacing(path) as file:
            save_model(self.proto, path, file)
            if self.params is not None:
                for target, form in zip(beside, ("json", "pickle")):
                    quant_param.write(self.params, target, form)
        if self.params is None:  # an older one would be taken for this model's
            for target in beside:
                target.unlink(missing_ok=True)
        return path


def ranges_beside(model: Path) -> tuple[Path, Path]:
    """The quant files of a cured model: for ``calibrate`` and for the SDK."""
    return model.with_name(f"{model.stem}.quant.json"), model.with_name(f"{model.stem}.quant.pkl")


@dataclass(frozen=True, eq=False)
class _State:
    """A model on the way. ``factors``: of the basis' classes, None where it is not equalised; ``room``: the share that
    room in UINT8 ranges may cost, 0 for room in INT16 alone, None without any; ``plain``: the model before its weights
    and biases were rebuilt, where they were."""

    proto: ModelProto
    factors: np.ndarray | None = None
    room: float | None = None
    plain: ModelProto | None = None


@dataclass(frozen=True, eq=False)
class _Tried:
    """``judged``: what ``_Search.judge`` says of the state."""

    step: Step
    state: _State
    judged: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class _Basis:
    """What equalising starts from: the folded model, where folding is tried, and the noise of its layers."""

    proto: ModelProto
    folded: tuple[str, ...]
    scaling: Scaling
    layers: list[Layer]
    noise: Noise


def cure(
    model: Model,
    feeds: Feeds,
    config: InputConfig,
    options: CureOptions = CureOptions(),
    validate: Feeds | None = None,
    progress: Progress = SILENT,
) -> Cured:
    """Cure an opened float model (``models.model.open_model``, not simplified: names and opset stay as they are).

    feeds     the calibration pictures, with their configuration.
    validate  pictures of the kind that the network is for, to judge by; without them every third of ``feeds`` is judged
              on and not fitted to, and the result is fitted to all.
    Raises what calibrating raises, and ConfigError for a cure that does not exist.
    """
    source = prepared(model, feeds)
    every = PicturePairs(feeds)
    indices = list(range(len(feeds)))
    held_out = validate is not None or len(feeds) >= FEWEST
    judged = [i for i in indices if i % HELD_OUT == HELD_OUT - 1] if held_out else indices
    fitted = [i for i in indices if i not in judged] if held_out else indices
    if validate is not None:
        fitted, judges = indices, PicturePairs(validate, most=JUDGED)
    else:
        judges = replace(every, chosen=tuple(_evenly(judged, JUDGED)))
    search = _Search(source, config, options, replace(every, chosen=tuple(fitted)), judges, progress)
    state, steps = search.run()
    final = search
    if validate is None and held_out and search.taken:
        final = _Search(source, config, options, every, judges, progress)
        final.share = search.share
        state = final.again(search.taken)
    proto, params = state.proto, None
    if RANGES in options.cures:
        params = tuple(final.params(state, every))
    return Cured(proto, params, tuple(steps), *search.errors(), len(judges), held_out, search.difference(proto))


def prepared(model: Model, feeds: Feeds) -> Model:
    """The model as it is rewritten: nodes in an order they can run in, shape arithmetic folded away, in float32, of its
    own opset and names. Weights in files beside it are loaded. Raises what ``simplify`` raises."""
    simple = simplify(model, lambda: feeds)  # raises for what cannot be quantised
    if simple.branches is not None or model.folder is not None or model.blobs is not None:
        return simple
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    nodes = sorted_nodes(model.proto.graph)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return replace(model, proto=single_precision(fold_constants(proto)))


class _Search:
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
        self.share = SHARE
        self.trusting = judges.feeds is pairs.feeds

    @cached_property
    def before(self) -> Mapping[str, float]:
        """What ``judge`` says of the model as it is."""
        return self.judge(_State(self.source.proto))

    def _shown(self, judged: Mapping[str, float]) -> dict[str, float]:
        """Those of the outputs."""
        return {name: judged[name] for name in self.names if name in judged}

    def errors(self) -> tuple[dict[str, float], dict[str, float]]:
        """Of the outputs: as it is, and of what was reached."""
        return self._shown(self.before), self._shown(self.now)

    def opened(self, proto: ModelProto) -> Model:
        """A rewritten model as quantisation works on it."""
        simple = simplify(replace(self.source, proto=proto))
        return replace(simple, proto=lift(simple.proto))

    def run(self) -> tuple[_State, list[Step]]:
        """The state that was reached, and every step. Folding that costs something by itself is tried together with
        equalising, which it makes way for; room that did not help is tried again after that."""
        steps: list[Step] = []
        self.now = self.before
        state = _State(self.source.proto)
        wide = (RANGES, BIAS, ROUND)  # the convolution that reads a picture has weights of 8 bits all the same
        cures = [cure for cure in (wide if self._wide else CURES) if cure in self.options.cures]
        if RANGES in cures and EQUALISE in cures:
            cures.insert(cures.index(EQUALISE) + 1, RANGES)
        for name in cures if self.names else ():
            if name in self.taken:
                continue
            tried = self._try(name, state)
            if tried is None:
                continue
            found = [tried]
            if name == FOLD and not tried.step.taken and EQUALISE in cures and (tried.step.kept or 0.0) <= KEPT:
                both = self._try(EQUALISE, tried.state)
                if both is not None and both.step.taken:
                    found = [replace(tried, step=replace(tried.step, taken=True)), both]
            for one in found:
                steps = [*(s for s in steps if s.cure != one.step.cure), one.step]
                if one.step.taken:
                    state, self.now = one.state, one.judged
                    self.taken.append(one.step.cure)
        return state, steps

    def _try(self, name: str, state: _State) -> _Tried | None:
        """None where the cure has nothing to change. Room of several sizes: the best, where others judge it; else the
        first that does not cost too much."""
        if name != RANGES:
            return self._tried(name, state)
        found: dict[float, _Tried] = {}
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

    def _tried(self, name: str, state: _State) -> _Tried | None:
        candidate, count = self.with_cure(name, state)
        if not count:
            return None
        kept = self._kept(candidate.proto) if name in (FOLD, EQUALISE) else None
        judged = self.judge(candidate, f"judge {name}")
        if name == RANGES:
            taken = self._ratio(judged) <= (TOLERATED if self.trusting else 1.0)
        else:
            taken = (kept is None or kept <= KEPT) and self._better(judged)
        step = Step(name, taken, self._shown(self.now), self._shown(judged), count, kept)
        return _Tried(step, candidate, judged)

    def again(self, taken: Sequence[str]) -> _State:
        """The cures that were taken, fitted to all pictures."""
        state = _State(self.source.proto)
        for name in taken:
            if not (name == BIAS and ROUND in taken):
                state, _ = self.with_cure(name, state)
        return state

    def with_cure(self, name: str, state: _State) -> tuple[_State, int]:
        """The state with a cure, and how much it changed."""
        if name == RANGES:
            return replace(state, room=self.share), max(len(self._wider(replace(state, room=self.share))), 1)
        if name == FOLD:
            basis = self.basis
            return replace(state, proto=basis.proto), len(basis.folded)
        if name == EQUALISE:
            basis = self.basis
            factors = equalising_factors(basis.scaling, basis.layers, basis.noise)
            proto = scaled(basis.proto, basis.scaling, factors)
            return replace(state, proto=proto, factors=factors), int((factors != 1).sum())
        pictures = replace(self.pairs, chosen=tuple(_evenly(self.pairs.indices, REBUILT)))
        plain = state.plain or state.proto
        calibration = self._calibration(plain)
        made = reconstructed(
            plain,
            self.opened,
            lambda model: self._fixed(model, state, calibration),
            [(p.label, p.feed, p.raw) for p in map(pictures.make, range(len(pictures)))],
            Wanted(name == ROUND, name == BIAS or BIAS in self.options.cures),
        )
        count = len(made.rounded if name == ROUND else made.corrected)
        return replace(state, proto=made.proto, plain=plain), count

    @cached_property
    def basis(self) -> _Basis:
        source = self.source.proto
        proto, names = folded(source) if FOLD in self.options.cures else (source, ())
        model, feeds = self.opened(proto), _Fed(self.pairs)
        graph = Graph(proto)
        wanted = {name for node in graph.nodes for name in node.output if name}
        figures = channel_figures(model, feeds, wanted.union(graph.inputs))
        scaling = scaling_of(proto, {name: each.top for name, each in figures.items()})
        layers = layers_of(proto, scaling, figures)
        noise = Noise(figures, self.options.level != "L1", BIAS in self.options.cures, frozenset(graph.inputs))
        watched = list(dict.fromkeys(watched_by_output(deployed(model)).values()))
        some = [feeds[i][1] for i in _evenly(range(len(feeds)), SENSED)]
        if layers and watched:
            layers = weighted(layers, noise, Sensitivity(deployed(model), some, watched).of_layers())
        release_unused()
        return _Basis(proto, names, scaling, layers, noise)

    def _wider(self, state: _State) -> Mapping[str, float]:
        if self._wide or not state.room:
            return {}
        factors = np.ones(self.basis.scaling.size) if state.factors is None else state.factors
        return margins(self.basis.layers, self.basis.noise, factors, state.room)

    def judge(self, state: _State, what: str = "judge") -> dict[str, float]:
        """The error of a state, fitted here, against the original model: of each output, and of what it is watched by
        (a Softmax by its input, which tells where the Softmax is nearly one-hot)."""
        fixed = self.fixed(state, self.pairs)
        release_unused()
        made = each(self.progress, map(self.judges.make, range(len(self.judges))), what, "picture", len(self.judges))
        pictures = ((p.label, p.feed, p.raw) for p in made)
        (outputs,) = outputs_of(self.original, [fixed.proto], pictures, self.floats.names, floats=self.floats)
        return {name: figures.rmse**2 for name, figures in outputs.outputs.items()}

    def fixed(self, state: _State, pairs: PicturePairs) -> FixedModel:
        return self._fixed(self.opened(state.proto), state, self._calibration(state.proto, pairs))

    def params(self, state: _State, pairs: PicturePairs) -> list[QuantParam]:
        """The entries of a state's quant file."""
        model, calibration = self.opened(state.proto), self._calibration(state.proto, pairs)
        made = replace(model, proto=self._fixed(model, state, calibration).proto)
        return params_of(made, model, self._ranges(model, state, calibration))

    def difference(self, proto: ModelProto) -> dict[str, float]:
        """By output how far a float model is from the original one, on the judges' pictures."""
        floats = FloatOutputs(self.opened(proto), self.names)
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

    def _ratio(self, judged: Mapping[str, float]) -> float:
        """Of what the outputs are watched by, the mean of the errors over those of what was reached."""
        watched = list(dict.fromkeys(self.watched.values())) or self.names
        return _mean_ratio(*({n: errors[n] for n in watched if n in errors} for errors in (judged, self.now)))

    def _better(self, judged: Mapping[str, float]) -> bool:
        before = self.before
        return self._ratio(judged) <= 1 - WORTH and all(
            judged[n] <= (1 + WORSE) * before[n] for n in judged if n in before
        )

    def _kept(self, proto: ModelProto) -> float:
        return math.sqrt(max(self.difference(proto).values(), default=0.0))

    def _calibration(self, proto: ModelProto, pairs: PicturePairs | None = None) -> Calibration:
        feeds = _Fed(pairs or self.pairs)
        return calibrate(self.opened(proto), feeds, self.config, self.options.level, progress=self.progress)

    def _fixed(self, model: Model, state: _State, calibration: Calibration) -> FixedModel:
        ranges = self._ranges(model, state, calibration)
        return make_fixed(model, ranges, calibration.config, side=side_ranges(calibration.statistics))

    def _ranges(self, model: Model, state: _State, calibration: Calibration) -> Mapping[str, Range]:
        if state.room is None:
            return calibration.ranges
        sums = side_ranges(calibration.statistics).channels
        headroom = headrooms(model, calibration.ranges, sums, self.options.level != "L1")
        return widened(model, calibration.ranges, self._wider(state), headroom)


class _Fed(Sequence):
    """The float model's feeds of some pictures."""

    def __init__(self, pairs: PicturePairs):
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        picture = self._pairs.make(range(len(self))[index])
        return picture.label, picture.feed


def _evenly(values: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly chosen."""
    values = list(values)
    if len(values) <= most:
        return values
    return [values[i] for i in np.linspace(0, len(values) - 1, most).astype(int)]


def _mean_ratio(errors: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Geometric mean; an output without error before counts as one where it has none now."""
    logs = []
    for name, error in errors.items():
        first = before.get(name, 0.0)
        if not math.isfinite(error) or (first == 0 and error > 0):
            return math.inf
        if first > 0:
            logs.append(math.log(max(error, first * 1e-9) / first))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
