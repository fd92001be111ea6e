"""Outputs of fixed models in the hardware's integers against the float model's, over all images.

The figures of an output are also taken about its mean over the images. The information of an output is what differs
between images; a large constant part hides any error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from onnx import ModelProto
from threadpoolctl import threadpool_limits

from sgsdump.comparison.metrics import Sums, cos, merged_sums, mse, rmse
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.executors.onnx_runtime.session import release_unused
from sgsdump.executors.workers.task_pool import in_threads
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.objective import error_of, probabilities, softmax_axes, sums_of
from sgsdump.models.fixed_facts import FixedFacts, read_facts
from sgsdump.models.graph import REARRANGING, Graph
from sgsdump.models.model import Model
from sgsdump.models.passes.extract import extract
from sgsdump.models.passes.rewrites import mark_outputs
from sgsdump.progress import Advance, unwatched
from sgsdump.tensors.tensor import Quant

Arrays = Mapping[str, np.ndarray]
ByPicture: TypeAlias = "Callable[[str], ModelProto]"
# Limit for the outputs that the mean is taken over.
HELD_BYTES = 64 << 20
# Below this, more than four tenths of the variation between images is error.
LEAST_COS_ABOUT_MEAN = 0.9
# Minimum number of levels for a type to resolve a tensor.
LEVELS = 100
# 8 bits resolve a tensor in this many steps; no single value may be off by more than MOST_STEPS of them.
STEPS, MOST_STEPS = 255, 2
# An output that stays below this part of its span saw images without anything for the model to find.
LITTLE = 0.05
FEWEST_FOR_MEAN = 3
# A candidate is worse if an output's error grows by this much and is larger on this share of the images.
WORSE, MOST = 0.05, 0.9
# The float model is sure of an answer with this probability.
SURE = 0.9


@dataclass(frozen=True)
class Probabilities:
    """Change of the Softmax probabilities of an output's logits, fixed against float.

    largest  largest change of a probability.
    mean     largest change at each position, averaged over the positions of one image; of the worst image.
    changed  share of answers (the largest probability of a position) that change.
    sure     share of changed answers among those that the float model is SURE of.
    """

    largest: float
    mean: float
    changed: float
    sure: float

    def good(self, limits: Thresholds) -> bool:
        """Return whether ``mean`` is within the RMSE limit and ``sure`` within 1 minus the COS limit."""
        most = limits.max_rmse if limits.max_rmse is not None else DOCUMENTED.max_rmse or 0.0
        least = limits.min_cos if limits.min_cos is not None else DOCUMENTED.min_cos or 0.0
        return self.mean <= most and self.sure <= 1 - least


class _Changes(NamedTuple):
    """The changes on one image: largest, mean over the positions, and counts of answers.

    The counts are changed answers, all answers, changed sure answers, all sure answers.
    """

    largest: float
    mean: float
    changed: int
    answers: int
    changed_sure: int
    sure: int


def _changes(values: np.ndarray, real: np.ndarray, axis: int) -> _Changes:
    ours, theirs = (np.moveaxis(probabilities(side, axis), axis, -1) for side in (values, real))
    changes = np.abs(ours - theirs).max(axis=-1)
    other, sure = ours.argmax(axis=-1) != theirs.argmax(axis=-1), theirs.max(axis=-1) >= SURE
    counts = (int(each.sum()) for each in (other, np.ones_like(other), other & sure, sure))
    return _Changes(float(changes.max()), float(changes.mean()), *counts)


def _together(images: Sequence[_Changes]) -> Probabilities | None:
    """Return the probabilities over all images; NaN propagates."""
    if not images:
        return None
    largest, mean, changed, answers, changed_sure, sure = zip(*images)
    return Probabilities(
        float(np.max(largest)),
        float(np.max(mean)),
        sum(changed) / sum(answers),
        sum(changed_sure) / max(sum(sure), 1),
    )


@dataclass(frozen=True)
class OutputFigures:
    """The figures of one output over all images.

    centred  sums of both sides about the float model's mean over the images; None for few images or without variation.
    step     of the stored type, 0 if stored as float.
    span     range over all images, including those of calibration.
    largest  error of the worst value.
    seen     range over these images, if ``span`` includes others.
    probabilities  for logits that replace a Softmax; ``sums`` are then weighted (``objective.by_probability``).
    """

    sums: Sums
    centred: Sums | None = None
    step: float = 0.0
    span: float = 0.0
    largest: float = 0.0
    seen: float | None = None
    probabilities: Probabilities | None = None

    @property
    def cos(self) -> float:
        return cos(self.sums)

    @property
    def rmse(self) -> float:
        return 0.0 if self.sums.d1 == 0 else rmse(self.sums)

    @property
    def is_resolution(self) -> bool:
        """Whether the error is within the resolution of 8 bits, or of the stored type, over the output's span."""
        return within_a_step(self.sums, self.largest, self.step, self.span)

    @property
    def hardly_moved(self) -> bool:
        """Whether these images barely affect the output, so that relative figures mean little."""
        return self.probabilities is None and self.seen is not None and self.seen < LITTLE * self.span

    @property
    def drowned(self) -> bool:
        """Whether the variation between images is lost, however small the error is relative to the values."""
        return self.centred is not None and not self.is_resolution and not cos(self.centred) >= LEAST_COS_ABOUT_MEAN

    def good(self, limits: Thresholds) -> bool:
        if self.probabilities is not None and not self.probabilities.good(limits):
            return False
        plain = limits.hold(self.cos, self.rmse, mse(self.sums)) or self.is_resolution
        return plain and not self.drowned


def within_a_step(sums: Sums, largest: float, step: float, span: float) -> bool:
    """Return whether an error is within the resolution.

    Its mean must be within half a step of 8 bits over ``span``, or of the stored type if that is coarser but has enough
    levels. ``largest`` must be within a few steps.
    """
    if not (0 < step <= span / LEVELS and sums.count):
        return False
    resolved = max(step, span / STEPS)
    return bool(np.sqrt(sums.dd / sums.count) <= resolved / 2 and largest <= MOST_STEPS * resolved)


@dataclass(frozen=True)
class PlanOutputs:
    """The outputs of one fixed model.

    outputs     by the tensors that judge the outputs.
    pictures    mean error of the outputs on each image, by label.
    by_picture  sums of each image, by label.
    """

    outputs: Mapping[str, OutputFigures]
    pictures: Mapping[str, float]
    by_picture: Mapping[str, Mapping[str, Sums]] = field(default_factory=dict)

    @property
    def sums(self) -> dict[str, Sums]:
        return {name: figures.sums for name, figures in self.outputs.items()}

    def sums_on(self, labels: Iterable[str]) -> dict[str, Sums]:
        """Return the sums over these images."""
        parts = [self.by_picture[label] for label in labels]
        return {name: merged_sums([part[name] for part in parts if name in part]) for name in self.outputs}

    def worse_than(self, before: PlanOutputs) -> tuple[str, ...]:
        """Return the outputs whose error is more than WORSE above ``before``, and larger on MOST of the images."""
        names = []
        for name, sums in self.sums.items():
            if name not in before.outputs or error_of(sums) <= (1 + WORSE) * error_of(before.sums[name]):
                continue
            both = [
                (pairs[name], before.by_picture[label][name])
                for label, pairs in self.by_picture.items()
                if name in pairs and name in before.by_picture.get(label, {})
            ]
            if sum(error_of(ours) > error_of(theirs) for ours, theirs in both) >= MOST * len(both):
                names.append(name)
        return tuple(names)

    def good(self, limits: Thresholds) -> bool:
        return all(figures.good(limits) for figures in self.outputs.values())


class FixedOutputs:
    """A fixed model that returns real values of chosen tensors.

    Raises ModelError if onnxruntime cannot load it.
    """

    def __init__(self, model: Model, fixed: ModelProto, names: Iterable[str]):
        facts = read_facts(replace(model, proto=fixed))
        assert facts is not None, "a fixed model has its facts"
        self.facts: FixedFacts = facts
        outputs = {output.name for output in fixed.graph.output}
        self._sources = {
            name: facts.tensors[name].stored if name in facts.tensors else name
            for name in names
            if name in facts.tensors or name in outputs or any(name in node.output for node in fixed.graph.node)
        }
        needed = extract(fixed, None, list(self._sources.values())) if self._sources else fixed
        self._inputs = {info.name for info in needed.graph.input}
        # Its operators are small: one thread is faster than several that wait for each other.
        self._graph = WholeGraph(needed, threads=1)
        self.pictures = {name for name, tensor in facts.tensors.items() if tensor.picture}

    def run(self, feed: Arrays, raw: Arrays) -> dict[str, np.ndarray]:
        """Run one feed; ``raw``: the feed with images as bytes 0 to 255."""
        fed = {name: raw[name] if name in self.pictures else feed[name] for name in feed if name in self._inputs}
        ran = self._graph.run(fed, list(dict.fromkeys(self._sources.values())))
        return {name: self._real(ran[source], name) for name, source in self._sources.items()}

    def _real(self, array: np.ndarray, name: str) -> np.ndarray:
        if name not in self.facts.tensors:
            return array
        quant: Quant = self.facts.tensors[name].quant
        return (array.astype(np.float32) - np.float32(quant.zero_point)) * np.float32(quant.scale)


class _Runs:
    """Runs of one or several fixed models, each for some of the images; one is open at a time.

    steps  by stored tensor, the largest step of its type.
    """

    def __init__(self, model: Model, names: Sequence[str], fixed: ModelProto | ByPicture):
        self.steps: dict[str, float] = {}
        self._model, self._names, self._fixed = model, names, fixed
        self._open: tuple[ModelProto, FixedOutputs] | None = None
        self._opening = Lock()

    def run(self, label: str, feed: Arrays, raw: Arrays) -> dict[str, np.ndarray]:
        proto = self._fixed(label) if callable(self._fixed) else self._fixed
        with self._opening:
            graph = self._opened(proto)
        return graph.run(feed, raw)

    def _opened(self, proto: ModelProto) -> FixedOutputs:
        if self._open is None or self._open[0] is not proto:
            graph = FixedOutputs(self._model, proto, self._names)
            self._open = proto, graph
            for name, stored in graph.facts.tensors.items():
                self.steps[name] = max(self.steps.get(name, 0.0), float(stored.quant.scale))
        return self._open[1]


class Floats(Protocol):
    """The tensors of a float model on one image after another.

    run      returns the tensors. If ``outputs_of`` has several threads, they call it, ahead of ``compare``.
    compare  receives the values of each fixed model on the same image, in the order of the images.
    """

    def run(self, label: str, feed: Arrays, /) -> Arrays: ...

    def compare(self, label: str, values: Sequence[Arrays], /) -> None: ...


class FloatOutputs:
    """The float model's tensors ``names`` on one image after another; results are cached within HELD_BYTES."""

    def __init__(self, model: Model, names: Sequence[str]):
        self.names = list(names)
        self._graph = WholeGraph(mark_outputs(deployed(model), names), threads=1)
        self._held: dict[str, Arrays] = {}
        self._room, self._counting = HELD_BYTES, Lock()

    def run(self, label: str, feed: Arrays) -> Arrays:
        """Run one feed; ``label`` is unique per image."""
        if label in self._held:
            return self._held[label]
        real = self._graph.run(feed, self.names)
        with self._counting:
            self._room -= sum(array.nbytes for array in real.values())
            if self._room >= 0:
                self._held[label] = real
        return real

    def compare(self, label: str, values: Sequence[Arrays]) -> None:
        """Do nothing: ``outputs_of`` sums the values of the fixed models."""


@dataclass
class _Sums:
    """The sums of one model: each output image by image; ``held`` until the mean is known."""

    centred: dict[str, list[Sums]] = field(default_factory=dict)
    held: list[Arrays] = field(default_factory=list)
    pictures: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    by_picture: dict[str, dict[str, Sums]] = field(default_factory=dict)
    probabilities: dict[str, list[_Changes]] = field(default_factory=lambda: defaultdict(list))


def outputs_of(
    model: Model,
    fixed: Sequence[ModelProto | ByPicture],
    pictures: Iterable[tuple[str, Arrays, Arrays]],
    names: Sequence[str],
    spans: Mapping[str, float] = {},
    floats: Floats | None = None,
    threads: int = 1,
    advance: Advance = unwatched,
) -> list[PlanOutputs]:
    """Compare the tensors ``names`` of fixed models of ``model`` over all images (label, feed, raw feed).

    fixed    each a model, or a function that returns the model for an image label.
    spans    ranges seen during calibration. A Sigmoid's output always spans 0 to 1, because the hardware computes it
             that way: nothing below about 0.002. An output whose shape depends on the values is left out.
    floats   float outputs of ``model``, if they were computed on these images before.
    threads  number of images that run at the same time; each needs the memory of a run. Above 1, these threads read
             ``pictures``, one at a time. Ignored if a model depends on the image.
    advance  receives the number of images that are done.
    """
    floats = floats or FloatOutputs(model, names)
    graphs = [_Runs(model, names, each) for each in fixed]
    axes = softmax_axes(deployed(model))
    sums = [_Sums() for _ in graphs]
    held: list[Arrays] = []
    reach: dict[str, list[float]] = {}
    means: dict[str, np.ndarray] | None = None
    room, odd, uneven = HELD_BYTES, set[str](), set[str]()
    shapes: dict[str, tuple[int, ...]] = {}

    def ran(numbered: tuple[int, tuple[str, Arrays, Arrays]]) -> tuple[str, Arrays, list[dict[str, np.ndarray]]]:
        number, (label, feed, raw) = numbered
        label = label or str(number)
        return label, floats.run(label, feed), [graph.run(label, feed, raw) for graph in graphs]

    threads = 1 if any(map(callable, fixed)) else threads
    with threadpool_limits(limits=1, user_api="blas"):
        for done, (label, real, ours) in enumerate(in_threads(ran, enumerate(pictures), threads), 1):
            for name, array in real.items():
                if array.size:
                    reach.setdefault(name, []).extend((float(array.min()), float(array.max())))
            floats.compare(label, ours)
            odd |= {n for n in names for values in ours if n not in values or values[n].shape != real[n].shape}
            # Images of several sizes have no common mean.
            uneven |= {name for name, array in real.items() if shapes.setdefault(name, array.shape) != array.shape}
            for values, each in zip(ours, sums):
                pairs = {n: sums_of(values[n], real[n], axes.get(n)) for n in names if n not in odd}
                errors = [rmse(pair) if pair.b1 and pair.d1 else 0.0 for pair in pairs.values()]
                each.pictures[label] = float(np.mean(errors)) if errors else 0.0
                each.by_picture[label] = pairs
                for name in pairs:
                    if name in axes and values[name].size:
                        each.probabilities[name].append(_changes(values[name], real[name], axes[name]))
                    each.largest[name] = max(each.largest.get(name, 0.0), _largest(values[name], real[name]))
            if means is None:
                held.append(real)
                for values, each in zip(ours, sums):
                    each.held.append(values)
                room -= sum(array.nbytes for array in real.values()) * (1 + len(graphs))
                if room < 0:
                    means = _settle(held, sums, names, odd | uneven, axes)
            else:
                _centre(means, [(values, real) for values in ours], sums, odd | uneven, axes)
            advance(done)
        if means is None:
            _settle(held, sums, names, odd | uneven, axes)
    release_unused()
    by_nature = dict.fromkeys(_probabilities(deployed(model), names), 1.0)
    seen = {name: max(ends := reach.get(name, [0.0])) - min(ends) for name in names}
    return [
        PlanOutputs(
            {
                name: OutputFigures(
                    merged_sums([pairs[name] for pairs in each.by_picture.values()]),
                    _worth([] if name in uneven else each.centred.get(name, [])),
                    graph.steps.get(name, 0.0),
                    max(by_nature.get(name, 0.0), spans.get(name, 0.0), seen[name]),
                    each.largest[name],
                    seen[name],
                    _together(each.probabilities.get(name, [])),
                )
                for name in names
                if name not in odd and each.by_picture
            },
            each.pictures,
            each.by_picture,
        )
        for graph, each in zip(graphs, sums)
    ]


def _largest(values: np.ndarray, real: np.ndarray) -> float:
    return float(np.abs(values.astype(np.float64) - real).max()) if real.size else 0.0


def _settle(
    held: list[Arrays], sums: list[_Sums], names: Sequence[str], odd: set[str], axes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return the means of the held values, and release these."""
    means: dict[str, np.ndarray] = {}
    for name in names:
        if name not in odd and held and held[0][name].dtype.kind == "f":
            means[name] = np.asarray(np.mean([real[name] for real in held], axis=0, dtype=np.float64))
    for each in sums:
        for values, real in zip(each.held, held):
            _centre(means, [(values, real)], [each], odd, axes)
        each.held.clear()
    held.clear()
    return means


def _centre(
    means: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[Arrays, Arrays]],
    sums: Sequence[_Sums],
    odd: set[str],
    axes: Mapping[str, int],
) -> None:
    for (values, real), each in zip(pairs, sums):
        for name, mean in means.items():
            if name not in odd:
                pair = sums_of(values[name], real[name], axes.get(name), mean)
                each.centred.setdefault(name, []).append(pair)


def _worth(centred: Sequence[Sums]) -> Sums | None:
    if len(centred) < FEWEST_FOR_MEAN:
        return None
    merged = merged_sums(centred)
    return merged if merged.bb > 0 else None


def _probabilities(proto: ModelProto, names: Iterable[str]) -> list[str]:
    """Return the tensors that a Sigmoid makes, also rearranged."""
    graph, found = Graph(proto), []
    for name in names:
        node = graph.producer.get(name)
        while node is not None and node.op_type in REARRANGING:
            node = graph.producer.get(node.input[0])
        if node is not None and node.op_type == "Sigmoid":
            found.append(name)
    return found
