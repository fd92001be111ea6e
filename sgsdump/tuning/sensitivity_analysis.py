"""Sensitivity analysis: what each convolution's 8 bits cost: its own error, the one it inherits, the outputs' error.

What one convolution does alone is compared with the model with every convolution at INT16 (its inputs are then as good
as float); what is left of the error when one is raised is compared with the float model. The error of a tensor is
Σ|a-b| / Σ|b| over all pictures (the SDK's RMSE); the output error is its mean over the outputs, where a Softmax is
judged by its input (``objective.watched_tensors``). Two plans a domain and two more are tried on each picture.

A range that does not hold its tensor's values spoils them at 16 bits too: where the float model's values on a picture
go beyond it, the domain is also tried with a range that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.comparison.metrics import Sums, rmse
from sgsdump.errors import InputError, ValuesError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.model import Model
from sgsdump.progress import Advance, unwatched
from sgsdump.quantisation.analysis import Analysis, is_convolution
from sgsdump.quantisation.objective import Score, score, total, watched_tensors
from sgsdump.quantisation.pictures import pictures_of
from sgsdump.quantisation.scales import INT16
from sgsdump.quantisation.trials.plan_trial import Domain, PlanTrial, PlanWalk
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# A range is taken to clip where values go beyond it by this part of its width.
BEYOND = 0.1
Arrays = Mapping[str, np.ndarray]
Totals = Mapping[str, Sums]
LabelledPictureFeed = tuple[str, Arrays, Arrays]
"""(label, feed of the float model, the same with pictures as raw bytes)"""


@dataclass(frozen=True)
class LayerSensitivity:
    """The effect of one domain's convolutions on the error.

    own        convolution -> error of what it stores, this domain alone at 8 bits and every other at 16, against all
               at 16 bits.
    inherited  convolution -> error of what it stores, this domain alone at 16 bits and every other at 8, against float.
    brings     output error with this domain alone at 8 bits, against all at 16 bits.
    left       output error with this domain alone at 16 bits, against float.
    in_all     convolution -> error of what it stores with every domain as in the base plan, against float.
    held       as ``left``, with a range that holds the float model's values; None where the range does.
    """

    domain: Domain
    own: Mapping[str, float]
    inherited: Mapping[str, float]
    brings: float
    left: float
    in_all: Mapping[str, float] = field(default_factory=dict)
    held: float | None = None


@dataclass(frozen=True)
class Measurement:
    """``sensitivities`` in execution order; ``all_8`` and ``all_16`` are the judged tensors' sums against float.

    all_8   of the base plan: every convolution at 8 bits, but for those that it has at 16.

    runs    plans tried, on all pictures together.
    logits  judged tensors that replace the Softmax they feed.
    """

    pictures: int
    runs: int
    logits: frozenset[str]
    all_8: Totals
    all_16: Totals
    sensitivities: tuple[LayerSensitivity, ...]


class SensitivityAnalysis:
    """Measures how sensitive one float model's outputs are to each convolution's 8 bits.

    base    first inputs that have 16 bits already: what is raised is raised above these.
    judged  the tensors that the outputs are judged by.
    layers  convolution -> the tensor its operator stores (after a fused Relu or Add).
    runs    plans tried on each picture.
    """

    def __init__(
        self,
        model: Model,
        ranges: Mapping[str, Range],
        config: InputConfig,
        per_channel: bool = False,
        base: Iterable[str] = (),
    ):
        self._pictures = pictures_of(model, config, ranges)
        self.trial = PlanTrial(model, ranges, config, per_channel)
        graph = self.trial.analysis.graph
        self.judged = [name for name in watched_tensors(graph.proto) if name in graph.producer]
        self.layers = stored_layers(self.trial.analysis)
        self._watched = list(dict.fromkeys([*self.judged, *self.layers.values()]))
        self._inputs = [name for domain in self.trial.domains for name in domain.inputs if name in graph.producer]
        self._walk = PlanWalk(self.trial, self._watched)
        self._float = SegmentRunner(model, keep_sessions=True)
        every = frozenset(domain.name for domain in self.trial.domains)
        self._lowered = {every - {name}: name for name in every}
        roots = self.trial.analysis.domain
        wide = {roots[name] for name in base if name in roots}
        self._base = frozenset(domain.name for domain in self.trial.domains if roots[domain.name] in wide)
        self._raised = {self._base | {name}: name for name in every - self._base}
        self._every, self._none = every, self._base
        self.runs = 1 + len({self._none, *self._lowered, *self._raised})

    def measure(self, feeds: Iterable[LabelledPictureFeed], advance: Advance = unwatched) -> Measurement:
        """The sensitivity of every domain; ``advance`` is called with the number of plans tried.

        Raises InputError when there is no picture, ValuesError when the outputs cannot be compared.
        """
        domains = {domain.name: domain for domain in self.trial.domains}
        widest = self._walk.ordered([self._every])
        others = self._walk.ordered([self._none, *self._lowered, *self._raised])
        wide: list[Score] = []
        narrow: list[Score] = []
        down: dict[str, list[Score]] = {name: [] for name in domains}
        up: dict[str, list[Score]] = {name: [] for name in domains}
        held: dict[str, list[Score]] = {name: [] for name in domains}
        layers = list(dict.fromkeys(self.layers.values()))
        as_is: list[Score] = []
        any_clipped: set[str] = set()
        done = 0
        with threadpool_limits(limits=1, user_api="blas"):
            for _, feed, raw in feeds:
                real = self._float_values(feed)
                fixed_feed = self._fixed_feed(feed, raw)
                visit = self._walk.visit(fixed_feed)
                ((_, best),) = visit.run(widest)
                wide.append(_score(best, real, self.judged))
                clipped = self._clipped(real)
                for number, (plan, values) in enumerate(visit.run(others), done + 2):
                    # With one or two domains a plan is several of these at once.
                    if plan == self._none:
                        narrow.append(_score(values, real, self.judged))
                        as_is.append(_score(values, real, layers))
                        for name in self._base:
                            up[name].append(_score(values, real, [*self.judged, *self._stored(domains[name])]))
                    if plan in self._lowered:
                        name = self._lowered[plan]
                        down[name].append(_score(values, best, [*self.judged, *self._stored(domains[name])]))
                    if plan in self._raised:
                        name = self._raised[plan]
                        up[name].append(_score(values, real, [*self.judged, *self._stored(domains[name])]))
                    advance(number)
                for name, ranges in clipped.items():
                    values = visit.outputs(self._walk.prepared(self._base | {name}, ranges))
                    held[name].append(_score(values, real, self.judged))
                for name in domains.keys() - clipped.keys():
                    held[name].append(Score(1, {n: up[name][-1].sums[n] for n in self.judged}))
                any_clipped |= clipped.keys()
                done += self.runs
        if not wide:
            raise InputError("there is no picture to measure on")
        in_all = total(as_is).sums if as_is else {}
        return Measurement(
            len(wide),
            done,
            frozenset(self.judged) - set(self.trial.analysis.graph.outputs),
            total(narrow).sums,
            total(wide).sums,
            tuple(
                self._sensitivity(
                    domain,
                    total(down[name]).sums,
                    total(up[name]).sums,
                    in_all,
                    total(held[name]).sums if name in any_clipped else None,
                )
                for name, domain in domains.items()
            ),
        )

    def _clipped(self, real: Arrays) -> dict[str, dict[str, Range]]:
        """Domain -> ranges that hold the values of one picture, where those of the trial do not."""
        trial, clipped = self.trial, {}
        for domain in trial.domains:
            root = trial.analysis.domain[domain.name]
            known = [name for name in domain.inputs if name in real and name in trial.ranges and real[name].size]
            for name in known:
                measured = trial.ranges[name].at(INT16)
                low, high = float(real[name].min()), float(real[name].max())
                room = BEYOND * max(measured.high - measured.low, 0.0)
                if math.isfinite(low - high) and (low < measured.low - room or high > measured.high + room):
                    ends = Range.of(min(low, measured.low), max(high, measured.high))
                    members = [n for n in trial.analysis.stored if trial.analysis.domain[n] == root]
                    clipped[domain.name] = {**trial.ranges, **dict.fromkeys(members, ends)}
        return clipped

    def try_plan(self, raised: Iterable[str], feeds: Iterable[LabelledPictureFeed]) -> Totals:
        """The judged tensors' sums against float with these domains at INT16 and every other at 8 bits."""
        plan = self._walk.ordered([frozenset(raised)])
        scores = []
        with threadpool_limits(limits=1, user_api="blas"):
            for _, feed, raw in feeds:
                ((_, values),) = self._walk.run(plan, self._fixed_feed(feed, raw))
                scores.append(_score(values, self._float_values(feed), self.judged))
        return total(scores).sums

    def _stored(self, domain: Domain) -> list[str]:
        return [self.layers[name] for name in domain.convolutions]

    def _fixed_feed(self, feed: Arrays, raw: Arrays) -> Arrays:
        """Raw bytes for pictures that are quantised; what stays float is fed as the float model is."""
        return {name: raw[name] if name in self._pictures else feed[name] for name in feed}

    def _float_values(self, feed: Arrays) -> dict[str, np.ndarray]:
        return {layer.name: layer.array for layer in self._float.run(feed, only={*self._watched, *self._inputs})}

    def _sensitivity(
        self, domain: Domain, lowered: Totals, raised: Totals, as_is: Totals, held: Totals | None
    ) -> LayerSensitivity:
        own = {name: error_of(lowered[self.layers[name]]) for name in domain.convolutions}
        inherited = {name: error_of(raised[self.layers[name]]) for name in domain.convolutions}
        brings, left = (output_error({n: sums[n] for n in self.judged}) for sums in (lowered, raised))
        in_all = {name: error_of(as_is[self.layers[name]]) for name in domain.convolutions if as_is}
        return LayerSensitivity(
            domain, own, inherited, brings, left, in_all, None if held is None else output_error(held)
        )


def stored_layers(analysis: Analysis) -> dict[str, str]:
    """Convolution's output -> the output of the operator it is computed in."""
    return {
        node.output[0]: op.outputs[0]
        for op in analysis.operators
        for node in op.nodes
        if is_convolution(analysis.graph, node)
    }


def error_of(sums: Sums) -> float:
    """Σ|a-b| / Σ|b|, 0 for equal values even when they are all zero."""
    return 0.0 if sums.d1 == 0 else rmse(sums)


def output_error(totals: Totals) -> float:
    """The mean error of the tensors that are not zero throughout. Raises ValuesError when there is none, or NaN."""
    if not totals:
        raise ValuesError("the model has no output of numbers that its operators compute, so no error can be measured")
    errors = [error_of(sums) for sums in totals.values() if sums.b1 != 0]
    if not errors:
        raise ValuesError("the model's outputs are zero or empty on every picture, so no error can be measured on them")
    if not all(map(math.isfinite, errors)):
        name = next(name for name, sums in totals.items() if not math.isfinite(error_of(sums)))
        raise ValuesError(f"tensor {name!r} holds NaN or infinity, so no error can be measured on it")
    return math.fsum(errors) / len(errors)


def _score(values: Arrays, against: Arrays, names: Collection[str]) -> Score:
    for name in names:
        if values[name].shape != against[name].shape:
            raise ValuesError(
                f"output {name!r} changes its shape with the values (post-processing in the model?): "
                f"{list(values[name].shape)} and {list(against[name].shape)}; advise on the model without that part"
            )
    return score(values, {name: against[name] for name in names})
