"""The search for cures that help.

Each cure is tried on top of those taken before, with the same settings in all folds. It is judged in the hardware's
integer arithmetic on images that its fold was not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.executors.workers.task_pool import in_threads
from sgsdump.fixedpoint.curing.errors import Errors, ratio, ratios_by_image, totals
from sgsdump.fixedpoint.curing.fold import AS_IT_IS, Fold, Made, Settings
from sgsdump.fixedpoint.curing.parallel import threads_for
from sgsdump.fixedpoint.curing.ranges import SHARE
from sgsdump.fixedpoint.curing.steps import ABSORB, BIAS, CURES, EQUALISE, FOLD, KEPT, RANGES, ROUND, Step
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.objective import watched_by_output
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import MOST, WORSE, Arrays, FloatOutputs, outputs_of
from sgsdump.models.feeds.by_content import PicturePair, PicturePairs
from sgsdump.models.feeds.image_list import evenly
from sgsdump.progress import Progress

# A step is taken if the error falls by WORTH (geometric mean over the images), more images improve than chance explains
# (at the level CHANCE), and no output gets worse by more than WORSE on MOST of the images.
WORTH, CHANCE = 0.02, 0.05
# Folding changes the layers of the model, so it must lower the error by this part before equalising. The same holds for
# scaling the channels that a Clip bounds, because other images may reach the bound.
FOLDING = 0.05
# Factor by which a step that is better on most images may raise the error over all: a few images that the narrower
# ranges of a fold clip outweigh the others. It also limits room after equalising, which is for images of another kind.
TOLERATED = 1.6
# The shares of noise that room may add. The last one gives room to INT16 ranges only.
SHARES = (2 * SHARE, SHARE, 0.0)
# Cures that keep the float function may change it by this part of the remaining squared error.
KEPT_PART = 0.1


@dataclass(frozen=True, eq=False)
class State:
    """The models of all folds, made with the same settings."""

    made: tuple[Made, ...]
    settings: Settings = AS_IT_IS

    @property
    def rebuilt(self) -> bool:
        return any(made.plain is not None for made in self.made)


@dataclass(frozen=True, eq=False)
class Tried:
    """A step with the state it leads to.

    judged   result of ``Search.judge`` for the state.
    changed  result of ``Search.difference`` for the state.
    """

    step: Step
    state: State
    judged: Errors
    changed: Mapping[str, float]


def gain_on_most(gained: np.ndarray) -> bool:
    """Return whether all images improve, or more than chance explains by a sign test: 9 of 10, 15 of 20."""
    count, won = gained.size, int(gained.sum())
    chance = sum(math.comb(count, k) for k in range(won, count + 1)) / 2**count
    return won == count or chance <= CHANCE


class Search:
    """A search over folds.

    folds       each fold with the images that judge it.
    own_judges  whether the user's own images judge (--validate); these may be of another kind.
    few         whether the fitted images also judge, because none can be held out: only INT16 ranges get room.
    """

    def __init__(
        self,
        folds: Sequence[tuple[Fold, PicturePairs]],
        progress: Progress,
        own_judges: bool = False,
        few: bool = False,
    ):
        self.folds, self.judges = [fold for fold, _ in folds], [judges for _, judges in folds]
        self.progress, self.own_judges, self.few = progress, own_judges, few
        first = self.folds[0]
        self.source, self.options = first.source, first.options
        self.original = first.opened(first.source.proto)
        self.watched = watched_by_output(deployed(self.original))
        self.names = list(self.watched) or [o.name for o in first.source.proto.graph.output]
        self.floats = FloatOutputs(self.original, list(dict.fromkeys([*self.names, *self.watched.values()])))
        self.taken: list[str] = []

    @cached_property
    def start(self) -> State:
        return State(tuple(Made(self.source.proto) for _ in self.folds))

    @cached_property
    def threads(self) -> int:
        """Number of images that run in parallel (``threads_for``)."""
        return threads_for(self.original.proto, self.judges[0].make(0).feed)

    @cached_property
    def before(self) -> Errors:
        """The errors of the original model."""
        return self.judge(self.start)

    @property
    def judging(self) -> list[str]:
        """The judging tensors: outputs, or the input of a Softmax, which shows errors if the Softmax is one-hot."""
        return list(dict.fromkeys(self.watched.values())) or self.names

    def errors(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the errors of the outputs, of the original model and of the state reached."""
        return totals(self.before, self.names), totals(self.now, self.names)

    def run(self) -> tuple[State, list[Step]]:
        """Return the final state and every step.

        Folding that worsens the error by itself is tried together with equalising, which it enables. Room that did not
        help is tried again after that.
        """
        steps: list[Step] = []
        self.now = self.before
        state = self.start
        reached = [(state, self.now)]
        for name in self._cures() if self.names else ():
            if name in self.taken or (name == EQUALISE and any(step.cure == EQUALISE for step in steps)):
                continue
            tried = self._try(name, state)
            if tried is None:
                continue
            found = self._with_help(tried) if name == EQUALISE else [tried]
            if name == FOLD and EQUALISE in self.options.cures:
                found = self._with_equalising(tried, state)
            for one in found:
                steps = [*(s for s in steps if s.cure != one.step.cure), one.step]
                if one.step.taken:
                    state, self.now = one.state, one.judged
                    self.taken.append(one.step.cure)
                    reached.append((state, self.now))
        state = self._as_a_model_alone(reached, steps)
        return state, self._settled(steps)

    def _settled(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps with the final decision on each."""
        kept = [step.cure in self.taken for step in steps]
        return [replace(s, taken=each, undone=s.taken and not each) for s, each in zip(steps, kept)]

    def _cures(self) -> list[str]:
        """Return the cures to try, in order."""
        wide = self.folds[0].wide
        kinds = (RANGES,) if self.few else (RANGES, BIAS, ROUND) if wide else CURES
        # bias and round apply with ALL_INT16 too: the convolution that reads an image always has weights of 8 bits
        cures = [cure for cure in kinds if cure in self.options.cures]
        if RANGES in cures and EQUALISE in cures and not wide:
            if not self.own_judges:  # room costs accuracy on images of the same kind, so judge other cures first
                cures.remove(RANGES)
            cures.insert(1 + max(cures.index(each) for each in (EQUALISE, ABSORB) if each in cures), RANGES)
        return cures

    def _as_a_model_alone(self, reached: list[tuple[State, Errors]], steps: Sequence[Step]) -> State:
        """Return the last state whose model, without its quant file, is not worse than the original model."""
        while RANGES in self.taken and len(reached) > 1 and not self.few:
            state = reached[-1][0]
            changed = any(made.proto is not self.source.proto for made in state.made)
            plain = replace(state, settings=replace(state.settings, room=None))
            if not changed or not self._harms(self.judge(plain, "judge without the quant file")):
                break
            last = next(name for name in reversed(self.taken) if name != RANGES)
            place = len(self.taken) - 1 - self.taken[::-1].index(last)
            del self.taken[place:], reached[place + 1 :]
            self.now = reached[-1][1]
        return reached[-1][0]

    def _with_help(self, equalised: Tried) -> list[Tried]:
        """Return equalising alone, or with room or biases if only the combination helps.

        Equalising fills the range of every channel, so that held-out values clip. It also leaves the mean error of
        rounding weights to the biases.
        """
        step, state = equalised.step, equalised.state
        if step.taken or not self._keeps(equalised):
            return [equalised]
        helped = []
        if RANGES in self.options.cures and RANGES not in self.taken:
            for way in self._rooms(state):
                narrow = self.own_judges or not way.state.settings.room
                taken = self._better(way.judged) and (narrow or self._gains_without_clips(way.state))
                helped.append(replace(way, step=replace(way.step, taken=taken)))
        if BIAS in self.options.cures:
            helped += filter(None, [self._try(BIAS, state)])
        best = min((way for way in helped if way.step.taken), key=lambda way: self._ratio(way.judged), default=None)
        return [equalised] if best is None else [replace(equalised, step=replace(step, taken=True)), best]

    def _with_equalising(self, fold: Tried, state: State) -> list[Tried]:
        """Return folding, equalising or both, whichever is best.

        Folding that worsens the error by itself may enable equalising or hinder it. Folding needs a gain of FOLDING.
        Equalising must be better than folding alone.
        """
        starts = [state, fold.state] if self._keeps(fold) else [state]
        ways = [way for start in starts if (way := self._try(EQUALISE, start)) is not None]
        if not ways:
            return [fold]

        def rank(way: Tried) -> tuple[bool, float]:
            return not way.step.taken, self._ratio(way.judged) / (1 - FOLDING if way.state.settings.folded else 1)

        best = [min(ways, key=rank)]
        for way in [] if best[0].step.taken else ways:  # the model without folding first
            best = self._with_help(way)
            if best[-1].step.taken:
                break
        alone = fold.step.taken and self._ratio(fold.judged) <= self._ratio(best[-1].judged)
        if alone or not best[-1].step.taken:
            return [fold, replace(best[0], step=replace(best[0].step, taken=False))]
        return [replace(fold, step=replace(fold.step, taken=best[-1].state.settings.folded)), *best]

    def _try(self, name: str, state: State) -> Tried | None:
        """Return the state with a cure, or None if the cure has nothing to change.

        The user's own images choose the size of the room, and whether biases and weights also correct the error of
        earlier layers. Held-out images of the fitted kind cannot choose: ``_worth_room`` decides, and each layer
        corrects itself.
        """
        if name == ABSORB and state.rebuilt:
            return None  # the biases are already final
        if name in (BIAS, ROUND) and self.own_judges:
            return self._rebuilt(name, state)
        if name == EQUALISE:
            return self._equalised(state)
        if name != RANGES:
            return self._tried(name, state)
        found = self._rooms(state)
        if not found:
            return None
        if self.own_judges:
            return min(found, key=lambda way: self._ratio(way.judged))
        narrow = found[-1]
        wide = (way for way in found[:-1] if way.step.taken and self._worth_room(narrow.judged, way))
        return next(wide, narrow)

    def _rooms(self, state: State) -> list[Tried]:
        """Return the state with room of each size; INT16 only comes last."""
        sized = [replace(state, settings=replace(state.settings, room=share)) for share in self._shares]
        return [way for way in (self._tried(RANGES, one) for one in sized) if way is not None]

    def _worth_room(self, narrow: Errors, wide: Tried) -> bool:
        """Return whether UINT8 ranges get room too, at the price of coarser steps: only for a gain on most images.

        Equalising fills the range of every channel, so that all of them clip on images of another kind. Room may then
        cost part of the gain, up to TOLERATED.
        """
        ratios = ratios_by_image(wide.judged, narrow, self.judging)
        cost = ratio(wide.judged, narrow, self.judging)
        if EQUALISE not in self.taken:
            return gain_on_most(ratios < 1) and cost <= 1 + WORSE
        return max(float(np.median(ratios)), cost) <= TOLERATED and self._gains_without_clips(wide.state)

    def _gains_without_clips(self, state: State) -> bool:
        """Return whether the state beats the original model on most images that the folds were fitted to.

        The ranges of a fold clip more than those of all images, so held-out images make room look cheaper than it is.
        """
        return gain_on_most(ratios_by_image(self._judge_fitted(state), self._fitted_before, self.judging) < 1)

    @cached_property
    def _fitted_before(self) -> Errors:
        return self._judge_fitted(self.start)

    def _judge_fitted(self, state: State) -> Errors:
        """Return the errors like ``judge``, on as many images that each fold was fitted to."""
        fitted = [
            replace(fold.pairs, chosen=tuple(evenly(fold.pairs.indices, len(judges))))
            for fold, judges in zip(self.folds, self.judges)
        ]
        return self._errors(zip(self.folds, state.made, fitted), state.settings, "judge room")

    def _affordable(self, judged: Errors) -> bool:
        """Return whether room costs little: in total, and on the median image, which no clipped image decides."""
        in_all, of_image = TOLERATED, TOLERATED if EQUALISE in self.taken else 1 + WORSE
        if self.own_judges:
            in_all = of_image = 1.0
        median = float(np.median(ratios_by_image(judged, self.now, self.judging)))
        return self._ratio(judged) <= in_all and median <= of_image and not self._harms(judged)

    @property
    def _shares(self) -> tuple[float, ...]:
        """The sizes of room to try.

        A few images do not show what UINT8 ranges need, so only INT16 gets room. If all convolutions are at INT16,
        every size is the same.
        """
        if self.few:
            return SHARES[-1:]
        shares = SHARES if self.own_judges else SHARES[1:]
        return shares[:1] if self.folds[0].wide else shares

    def _equalised(self, state: State) -> Tried | None:
        """Equalise; include channels that a Clip bounds only if that lowers the error by FOLDING more."""
        safe = self._tried(EQUALISE, replace(state, settings=replace(state.settings, clips=False)))
        bold = None
        if any(fold.basis(state.settings.folded).scaling.limits for fold in self.folds):
            bold = self._tried(EQUALISE, replace(state, settings=replace(state.settings, clips=True)))
        if safe is None or bold is None:
            return safe or bold
        better = self._ratio(bold.judged) <= (1 - FOLDING) * self._ratio(safe.judged)
        return bold if bold.step.taken and (better or not safe.step.taken) else safe

    def _rebuilt(self, name: str, state: State) -> Tried | None:
        """Return the better of both variants; after biases were rebuilt, use their variant."""
        ways = (state.settings.inherited,) if state.rebuilt else (False, True)
        found = [
            self._tried(name, replace(state, settings=replace(state.settings, inherited=inherited)))
            for inherited in ways
        ]
        return min(filter(None, found), key=lambda way: (not way.step.taken, self._ratio(way.judged)), default=None)

    def _tried(self, name: str, state: State) -> Tried | None:
        candidate, count = self.with_cure(name, state)
        if not count:
            return None
        changed = {} if name == RANGES else self.difference(candidate)
        kept = math.sqrt(max(changed.values(), default=0.0)) if name in (FOLD, EQUALISE, ABSORB) else None
        judged = self.judge(candidate, f"judge {name}")
        taken = self._affordable(judged) if name == RANGES else self._better(judged)
        step = Step(name, taken, totals(self.now, self.names), totals(judged, self.names), count, kept)
        tried = Tried(step, candidate, judged, changed)
        keeps = self._keeps(tried)
        return replace(tried, step=replace(step, taken=taken and keeps, spoiled=taken and not keeps))

    def with_cure(self, name: str, state: State) -> tuple[State, int]:
        """Return the state with a cure, and the largest number of changes in a fold."""
        settings = replace(state.settings, folded=True) if name == FOLD else state.settings
        made = [fold.with_cure(name, one, settings) for fold, one in zip(self.folds, state.made)]
        return State(tuple(one for one, _ in made), settings), max(count for _, count in made)

    def judge(self, state: State, what: str = "judge") -> Errors:
        """Return the errors of each output, and of the tensor that replaces it, against the original model.

        Each fold is judged on its own held-out images.
        """
        return self._errors(zip(self.folds, state.made, self.judges), state.settings, what)

    def judge_whole(self, fold: Fold, made: Made, settings: Settings) -> Errors:
        """Return the errors of a model fitted to all images, on the judging images of every fold."""
        return self._errors(((fold, made, judges) for judges in self.judges), settings, "judge the result")

    def _errors(self, parts: Iterable[tuple[Fold, Made, PicturePairs]], settings: Settings, what: str) -> Errors:
        apart: dict[str, list[float]] = {}
        energy: dict[str, list[float]] = {}
        for fold, made, judges in parts:
            fixed = fold.fixed(made, settings)
            release_unused()
            with self.progress.bar(what, "image", len(judges)) as advance:
                pictures = map(judges.make, range(len(judges)))
                (outputs,) = outputs_of(
                    self.original,
                    [fixed.proto],
                    ((p.label, p.feed, p.raw) for p in pictures),
                    self.floats.names,
                    floats=self.floats,
                    threads=self.threads,
                    advance=advance,
                )
            for sums in outputs.by_picture.values():
                for name, of_output in sums.items():
                    apart.setdefault(name, []).append(of_output.dd)
                    energy.setdefault(name, []).append(of_output.bb)
        whole = {name: float(np.mean(values)) for name, values in energy.items()}
        return {name: np.array(values) / (whole[name] or 1.0) for name, values in apart.items()}

    def difference(self, state: State) -> dict[str, float]:
        """Return the relative squared change of each output of the float model, on the judging images."""
        away, whole = dict.fromkeys(self.names, 0.0), dict.fromkeys(self.names, 0.0)
        for fold, made, judges in zip(self.folds, state.made, self.judges):
            both = FloatOutputs(fold.opened(made.proto), self.names), self.floats

            def run(picture: PicturePair, both: tuple[FloatOutputs, FloatOutputs] = both) -> list[Arrays]:
                return [floats.run(picture.label, picture.feed) for floats in both]

            for ours, theirs in in_threads(run, map(judges.make, range(len(judges))), self.threads):
                for name in self.names:
                    away[name] += float(np.sum((ours[name].astype(np.float64) - theirs[name]) ** 2))
                    whole[name] += float(np.sum(theirs[name].astype(np.float64) ** 2))
        release_unused()
        return {name: away[name] / whole[name] if whole[name] else away[name] for name in self.names}

    def _ratio(self, judged: Errors) -> float:
        """Return the error of the judging tensors relative to the state reached."""
        return ratio(judged, self.now, self.judging)

    def _better(self, judged: Errors) -> bool:
        """Return whether a step is worth it.

        Images count equally, so that one that a fold clips cannot outweigh the others.
        """
        ratios = ratios_by_image(judged, self.now, self.judging)
        gain = float(np.exp(np.mean(np.log(ratios))))
        bounded = self._ratio(judged) <= TOLERATED and not self._harms(judged)
        return gain <= 1 - WORTH and gain_on_most(ratios < 1) and bounded

    def _harms(self, judged: Errors) -> bool:
        """Return whether an output gets worse than in the original model: by more than WORSE, on MOST of the images."""
        for name, after in judged.items():
            if name in self.before:
                grown = not np.mean(after) <= (1 + WORSE) * np.mean(self.before[name])
                if grown and np.mean(~(after <= self.before[name])) >= MOST:
                    return True
        return False

    def _keeps(self, tried: Tried) -> bool:
        """Return whether the float model is close enough to the original one.

        A step that must keep the function may change it by a part of the remaining error; all steps together by no more
        than the error of 8 bits.
        """
        left, before = totals(tried.judged), totals(self.before)
        if tried.step.kept is None:
            return all(part <= max(before.get(name, 0.0), KEPT**2) for name, part in tried.changed.items())
        return all(part <= max(KEPT_PART * left.get(name, 0.0), KEPT**2) for name, part in tried.changed.items())
