"""A network that was judged, as the causes of its error look at it: how far its tensors reach on each picture, what
lies outside of given ranges, how it is judged anew, and the thresholds and words of all causes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.analysis import SDK_NAMES, Analysis
from sgsdump.fixedpoint.quantisation.calibration import selection
from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
from sgsdump.fixedpoint.quantisation.float_model import Picture, deployed
from sgsdump.fixedpoint.quantisation.levels import LEVELS
from sgsdump.fixedpoint.quantisation.objective import output_error, watched_tensors
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import OnePicture, with_followers
from sgsdump.fixedpoint.quantisation.ranges.statistics import Selection
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs, outputs_of
from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.feeds import Feeds, LabelledFeed
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

# What can be at fault before any INT16, by the word that stands in a finding's facts.
WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED = "weights per tensor", "odd picture", "unlike pictures", "wide ranges", "clipped"
FLAT, OPERATOR, NORMALISATION, ORDER = "flat pictures", "operator", "normalisation", "channel order"
STILL, UNTRAINED = "hardly moved", "unlike training"
# What shows that input_config.ini is wrong: the preprocess file, or the fixed model, says otherwise.
BY_PREPROCESS, BY_FIXED = "preprocess", "fixed"
CONTRADICTED = (BY_PREPROCESS, BY_FIXED)
# Causes located at layers of the model. With any other cause, no layer is blamed.
IN_NETWORK = (WEIGHTS, CLIPPED, WIDE, OPERATOR)
REASONS = (WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED, FLAT, OPERATOR, NORMALISATION, ORDER, STILL, UNTRAINED)

# A range is taken to clip where values go beyond it by this part of its width.
BEYOND = 0.1
# Putting the cause right leaves at most this part of the outputs' error.
LEFT = 0.5
# Of a level with a scale for each output channel, which costs no bits.
LEFT_AT_NO_COST = 0.75
# An odd picture's tensors are so many times as wide as the others' in the median, and at most this part is odd.
ODD_TIMES, MOST_ODD = 3.0, 0.1
FEWEST_PICTURES = 4
# Calibration pictures that use at most this part of the grey levels of a byte.
FLAT_PART = 0.25
# Ranges are of other pictures where this part of the tensors goes beyond them, or is WIDE_TIMES narrower.
MANY = 0.25
# Of one explanation of given ranges, beside the pictures as they are: it leaves this part of the distance.
EXPLAINS = 0.5
# Data unlike those of training: of so many first BatchNormalizations, as logarithms of how many times. From FAR on, of
# pictures of another brightness or contrast than most from FARTHER on, a normalisation is looked for that is at most
# NEAR; from VERY_FAR on it is said without one.
FIRST_FEW, FAR, FARTHER, NEAR, VERY_FAR = 3, 0.7, 2.0, 1.5, 4.0
# Of most pictures, in grey levels: the mean, and the standard deviation.
BRIGHTNESS, CONTRAST = (70.0, 180.0), (35.0, 90.0)
# An INT16 tensor of fewer steps to the spread of its values than UINT8 has to a range of its own is looked at.
FEW_STEPS = 40.0
MOST_OPERATORS = 8
GREYS = 255.0
# What networks are trained with, in grey levels; ranges of dark or dull pictures look like others.
MEANS, STDS = (-1.0, 160.0), (0.5, 280.0)


@dataclass(frozen=True, eq=False)
class Reach:
    """``low`` and ``high``, float64 [pictures, tensors]: the ends of ``names`` on each picture of ``labels``."""

    labels: tuple[str, ...]
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """What all pictures together need."""
        return self.ranges_of(range(len(self.labels)))

    def ranges_of(self, pictures: Iterable[int]) -> dict[str, Range]:
        rows = list(pictures)
        ends = zip(self.names, self.low[rows].min(axis=0), self.high[rows].max(axis=0))
        return {name: Range.of(float(low), float(high)) for name, low, high in ends}

    def beyond(self, ranges: Mapping[str, Range]) -> list[str]:
        """The tensors that go beyond these ranges by more than BEYOND of their width."""
        return [name for name, need in self.ranges.items() if name in ranges and _goes_beyond(need, ranges[name])]


def _goes_beyond(need: Range, given: Range) -> bool:
    room = BEYOND * max(given.high - given.low, 0.0)
    return need.low < given.low - room or need.high > given.high + room


def measure_reach(model: Model, feeds: Iterable[LabelledFeed], names: Collection[str], selected: Selection) -> Reach:
    """The reach of the float model's tensors ``names``, each picture run once; ``selected``: as of its calibration.
    Raises what ``OnePicture`` raises."""
    see, graph = OnePicture(model, selected), Graph(model.proto)
    labels, rows = [], []
    kept: list[str] = []
    for label, feed in feeds:
        ends = with_followers(graph, see((label, feed)).statistics.whole)
        kept = kept or [name for name in ends if name in names]
        labels.append(label)
        rows.append([(ends[name].low, ends[name].high) for name in kept])
    table = np.array(rows, np.float64).reshape(len(rows), len(kept), 2)
    return Reach(tuple(labels), tuple(kept), table[:, :, 0], table[:, :, 1])


def share_outside(
    model: Model, feeds: Iterable[LabelledFeed], ranges: Mapping[str, Range], names: Sequence[str]
) -> float:
    """The part of the values of ``names``, over these feeds, that lies outside their ranges."""
    runner, outside, count = SegmentRunner(model, keep_sessions=True), 0, 0
    for _, feed in feeds:
        fed = {name: array for name, array in feed.items() if name in names}
        layers = ((layer.name, layer.array) for layer in runner.run(feed, only=set(names)))
        for name, values in [*fed.items(), *layers]:
            bounds = ranges[name]
            outside += int(np.count_nonzero((values < bounds.low) | (values > bounds.high)))
            count += values.size
    return outside / count if count else 0.0


def with_swapped_channels(feed: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The feed with the channels of its pictures in the opposite order; ``axes``: of these, by picture."""
    return {name: np.flip(array, axes[name]).copy() if name in axes else array for name, array in feed.items()}


def rounded_at(model: Model, name: str, step: float) -> Model:
    """The model with one tensor rounded to steps of this size, for all that read it."""
    from onnx import ModelProto, helper, numpy_helper

    proto = ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    at = 1 + max(index for index, node in enumerate(graph.node) if name in node.output)
    rounded = f"{name}/rounded"
    for node in graph.node[at:]:
        for slot, source in enumerate(node.input):
            if source == name:
                node.input[slot] = rounded
    constants = {"inverse": 1 / step, "half": 0.5, "step": step}
    for word, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.float32(value).reshape(1)[0], f"{rounded}/{word}"))
    made = [
        helper.make_node("Mul", [name, f"{rounded}/inverse"], [f"{rounded}/scaled"]),
        helper.make_node("Add", [f"{rounded}/scaled", f"{rounded}/half"], [f"{rounded}/raised"]),
        helper.make_node("Floor", [f"{rounded}/raised"], [f"{rounded}/whole"]),
        helper.make_node("Mul", [f"{rounded}/whole", f"{rounded}/step"], [rounded]),
    ]
    nodes = [*graph.node[:at], *made, *graph.node[at:]]
    del graph.node[:]
    graph.node.extend(nodes)
    return replace(model, proto=proto)


@dataclass(frozen=True, eq=False)
class Examined:
    """A subject that was judged.

    level   a calibration of it has, or would have.
    told    the input_config.ini that the user gave; ``preprocessed``: as the preprocess file has it, where that is
            known.
    others  whether the pictures are others than those it was calibrated on.
    """

    subject: Subject
    feeds: Feeds
    pairs: PicturePairs
    few: PicturePairs
    outputs: PlanOutputs
    advice: MeasuredAdvice | None
    limits: Thresholds
    level: str
    preprocessed: InputConfig | None
    told: InputConfig | None = None
    others: bool = False

    @property
    def good(self) -> bool:
        return self.outputs.good(self.limits)

    @property
    def error(self) -> float:
        return output_error(self.outputs.sums)

    @property
    def stored(self) -> set[str]:
        """The tensors that the fixed model keeps as integers."""
        facts = read_facts(self.subject.fixed_model)
        return set(facts.tensors) if facts else set()

    @property
    def analysis(self) -> Analysis | None:
        return None if self.advice is None else self.advice.measured.analysis

    @property
    def given(self) -> dict[str, Range]:
        """The ranges of what is stored, as wide as they were seen."""
        ranges = self.subject.ranges
        return {name: ranges[name].at(INT16) for name in self.stored if name in ranges}

    def reach(self, feeds: Sequence[LabelledFeed] | None = None) -> Reach | None:
        """How far the stored tensors reach on these feeds, on all pictures without; None where nothing was measured."""
        if self.analysis is None:
            return None
        selected = selection(self.analysis, LEVELS["L1"])
        names = self.stored - set(selected.masks)
        every = (self.feeds[index] for index in self.pairs.indices) if feeds is None else feeds
        reach = measure_reach(self.subject.float_model, every, names, selected)
        return reach if reach.names else None

    def judged(self, other: Subject, pairs: PicturePairs) -> PlanOutputs:
        """The outputs of another fixed model of this network."""
        model = self.subject.float_model
        pictures = ((p.label, p.feed, p.raw) for p in (pairs.make(index) for index in range(len(pairs))))
        return outputs_of(model, [other.fixed_model.proto], pictures, watched_tensors(deployed(model)))[0]

    def operator_of(self, name: str) -> str:
        """What makes a tensor, as the SDK calls it; "" for an input."""
        node = Graph(self.subject.float_model.proto).producer.get(name)
        return "" if node is None else SDK_NAMES.get(node.op_type, node.op_type.upper())


@dataclass(frozen=True, eq=False)
class RootCause:
    """cured  the subject with it put right, to be judged on ``pairs``; None where that is not done here."""

    finding: Finding
    cured: Subject | None = None
    pairs: PicturePairs | None = None


def float_feeds(pairs: PicturePairs) -> list[LabelledFeed]:
    pictures = (pairs.make(index) for index in range(len(pairs)))
    return [(picture.label, dict(picture.feed)) for picture in pictures]


def normalised_as(word: str, picture: Picture) -> dict[str, float]:
    """Figures of a finding: mean and std of each channel; ``word`` says whose."""
    means = {f"mean_{word}_{index}": float(value) for index, value in enumerate(picture.mean)}
    return means | {f"std_{word}_{index}": float(value) for index, value in enumerate(picture.std)}
