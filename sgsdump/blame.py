"""How much each convolution's 8 bits cost, measured: its own error, the error it inherits, what it does to the output.

What one convolution does alone is held against the model with every convolution at INT16 (its inputs are then as good
as float); what is left of the error when one is raised is held against the float model. The error of a tensor is
Σ|a-b| / Σ|b| over all pictures (the SDK's RMSE); the output error is its mean over the outputs. A Softmax is judged by
its input, the logits: near one-hot probabilities hide an error until it is too late.

Plans are tried on one session (``PlanTrial``): 2 + 2 runs a domain for each picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.calibration import deployed, pictures_of
from sgsdump.errors import InputError, ValuesError
from sgsdump.executor import executors
from sgsdump.fusion import is_convolution
from sgsdump.graph import Graph
from sgsdump.metric import Sums
from sgsdump.metrics.rmse import rmse
from sgsdump.model import Model
from sgsdump.passes.mark_outputs import mark_outputs
from sgsdump.plan_trial import Domain, PlanTrial
from sgsdump.quant_plan import MOVERS, Analysis, analyse
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sums import Values, pair_sums
from sgsdump.tensor_range import Range

Arrays = Mapping[str, np.ndarray]
Totals = dict[str, Sums]
PictureFeed = tuple[str, Arrays, Arrays]
"""(label, feed of the float model, the same with pictures as raw bytes)"""


@dataclass(frozen=True)
class Blame:
    """What one domain's convolutions do to the error.

    own        convolution -> error of what it stores, this domain alone at 8 bits and every other at 16, against all
               at 16 bits.
    inherited  convolution -> error of what it stores, this domain alone at 16 bits and every other at 8, against float.
    brings     output error with this domain alone at 8 bits, against all at 16 bits.
    left       output error with this domain alone at 16 bits, against float.
    """

    domain: Domain
    own: Mapping[str, float]
    inherited: Mapping[str, float]
    brings: float
    left: float


@dataclass(frozen=True)
class Measurement:
    """``blames`` in execution order; ``all_8`` and ``all_16`` are the judged tensors' sums against float.

    judged  output of the model -> the tensor it is judged by.
    """

    pictures: int
    runs: int
    judged: Mapping[str, str]
    all_8: Totals
    all_16: Totals
    blames: tuple[Blame, ...]


class BlameTrial:
    """One float model on which blame is measured.

    judged  output of the model -> the tensor it is judged by.
    layers  convolution -> the tensor its operator stores (behind a fused Relu or Add).
    """

    def __init__(self, model: Model, ranges: Mapping[str, Range], config: InputConfig, per_channel: bool = False):
        self._pictures = pictures_of(model, config, ranges)
        analysis = analyse(deployed(model), self._pictures)
        self.judged = judged_tensors(analysis.graph)
        self.layers = stored_layers(analysis)
        self._outputs = list(dict.fromkeys(self.judged.values()))
        self._watched = list(dict.fromkeys([*self._outputs, *self.layers.values()]))
        # Only what operators store is marked, so that the fusing stays as it is.
        marked = replace(model, proto=mark_outputs(model.proto, self._watched))
        self.trial = PlanTrial(marked, ranges, config, per_channel)
        self._float = executors()["onnxruntime"](model, keep_sessions=True)

    @property
    def runs(self) -> int:
        """Evaluations for each picture."""
        return 2 * len(self.trial.domains) + 2

    def measure(self, feeds: Iterable[PictureFeed], progress: Callable[[int], None] | None = None) -> Measurement:
        """The blame of every domain; ``progress`` is called with the number of evaluations done.

        Raises InputError when there is no picture, ValuesError when the outputs cannot be compared.
        """
        domains = self.trial.domains
        every = frozenset(domain.name for domain in domains)
        narrow: Totals = {}
        wide: Totals = {}
        lowered: dict[str, Totals] = {name: {} for name in every}
        raised: dict[str, Totals] = {name: {} for name in every}
        pictures = 0

        def run(plan: frozenset[str], feed: Arrays, layers: Iterable[str] = ()) -> dict[str, np.ndarray]:
            values = self.trial.run(plan, feed, dict.fromkeys([*self._outputs, *layers]))
            if progress:
                progress(self.trial.evaluations)
            return values

        with threadpool_limits(limits=1, user_api="blas"):
            for _, feed, raw in feeds:
                pictures += 1
                raw = self._fixed_feed(feed, raw)
                real = self._float_values(feed)
                best = run(every, raw, self._watched)
                _add(wide, {name: best[name] for name in self._outputs}, real)
                _add(narrow, run(frozenset(), raw), real)
                for domain in domains:
                    alone = frozenset([domain.name])
                    layers = [self.layers[name] for name in domain.convolutions]
                    _add(lowered[domain.name], run(every - alone, raw, layers), best)
                    _add(raised[domain.name], run(alone, raw, layers), real)
        if not pictures:
            raise InputError("there is no picture to measure on")
        blames = tuple(self._blame(domain, lowered[domain.name], raised[domain.name]) for domain in domains)
        return Measurement(pictures, self.runs * pictures, self.judged, narrow, wide, blames)

    def try_plan(self, raised: Iterable[str], feeds: Iterable[PictureFeed]) -> Totals:
        """The judged tensors' sums against float with these domains at INT16 and every other at 8 bits."""
        totals: Totals = {}
        plan = frozenset(raised)
        with threadpool_limits(limits=1, user_api="blas"):
            for _, feed, raw in feeds:
                values = self.trial.run(plan, self._fixed_feed(feed, raw), self._outputs)
                _add(totals, values, self._float_values(feed))
        return totals

    def _fixed_feed(self, feed: Arrays, raw: Arrays) -> Arrays:
        """Raw bytes for pictures that are quantised; what stays float is fed as the float model is."""
        return {name: raw[name] if name in self._pictures else feed[name] for name in feed}

    def _float_values(self, feed: Arrays) -> dict[str, np.ndarray]:
        return {layer.name: layer.array for layer in self._float.run(feed, only=set(self._watched))}

    def _of_outputs(self, totals: Totals) -> Totals:
        return {name: totals[name] for name in self._outputs}

    def _blame(self, domain: Domain, lowered: Totals, raised: Totals) -> Blame:
        own = {name: error_of(lowered[self.layers[name]]) for name in domain.convolutions}
        inherited = {name: error_of(raised[self.layers[name]]) for name in domain.convolutions}
        brings, left = (output_error(self._of_outputs(totals)) for totals in (lowered, raised))
        return Blame(domain, own, inherited, brings, left)


def judged_tensors(graph: Graph) -> dict[str, str]:
    """Output -> the tensor it is judged by: a Softmax's input where only movers lie between, else the output itself."""
    found = {}
    for output in graph.outputs:
        name = output
        while (
            (node := graph.producer.get(name)) and node.op_type in MOVERS and graph.variables(node) == [node.input[0]]
        ):
            name = node.input[0]
        softmax = node is not None and node.op_type in ("Softmax", "LogSoftmax")
        if node is not None and softmax and node.input[0] in graph.producer:
            found[output] = node.input[0]
        elif output in graph.producer:
            found[output] = output
    return found


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
    errors = [error_of(sums) for sums in totals.values() if sums.b1 != 0]
    if not errors:
        raise ValuesError("the model's outputs are zero on every picture, so no error can be measured on them")
    if not all(map(math.isfinite, errors)):
        name = next(name for name, sums in totals.items() if not math.isfinite(error_of(sums)))
        raise ValuesError(f"tensor {name!r} holds NaN or infinity, so no error can be measured on it")
    return math.fsum(errors) / len(errors)


def _add(totals: Totals, values: Arrays, against: Arrays) -> None:
    for name, array in values.items():
        if array.shape != against[name].shape:
            raise ValuesError(
                f"output {name!r} changes its shape with the values (post-processing in the model?): "
                f"{list(array.shape)} and {list(against[name].shape)}; advise on the model without that part"
            )
        sums = pair_sums(Values(array), Values(against[name]))
        before = totals.get(name)
        totals[name] = sums if before is None else _sum(before, sums)


def _sum(a: Sums, b: Sums) -> Sums:
    return Sums(*(getattr(a, field.name) + getattr(b, field.name) for field in fields(Sums)))
