"""Shared tools for finding causes of error: a judged model, the reach of its tensors, and constants of all causes.

The constants are the limits that decide on each cause, and the words for causes in findings.
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

# Causes to correct before any INT16, by their word in the facts of a finding.
WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED = "weights per tensor", "odd picture", "unlike pictures", "wide ranges", "clipped"
FLAT, OPERATOR, NORMALISATION, ORDER = "flat pictures", "operator", "normalisation", "channel order"
STILL, UNTRAINED = "hardly moved", "unlike training"
# The preprocess file, or the fixed model, contradicts input_config.ini.
BY_PREPROCESS, BY_FIXED = "preprocess", "fixed"
CONTRADICTED = (BY_PREPROCESS, BY_FIXED)
# Causes located at layers of the model. With any other cause, no layer is blamed.
IN_NETWORK = (WEIGHTS, CLIPPED, WIDE, OPERATOR)
REASONS = (WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED, FLAT, OPERATOR, NORMALISATION, ORDER, STILL, UNTRAINED)

# A range clips if values exceed it by this share of its width.
BEYOND = 0.1
# Correcting a cause leaves at most this share of the output error.
LEFT = 0.5
# The same for one weight scale per output channel, which costs no bits.
LEFT_AT_NO_COST = 0.75
# Tensors of an odd image are this many times as wide as the median over images; at most this share of images is odd.
ODD_TIMES, MOST_ODD = 3.0, 0.1
FEWEST_PICTURES = 4
# Flat calibration images use at most this share of the 256 grey levels.
FLAT_PART = 0.25
# Ranges belong to other images if this share of the tensors exceeds them, or is WIDE_TIMES narrower.
MANY = 0.25
# An explanation of given ranges leaves at most this share of the distance to the images' own ranges.
EXPLAINS = 0.5
# Distance from the training data, measured at the first FIRST_FEW BatchNormalizations as logarithms of ratios. From FAR
# on (from FARTHER on for images of unusual brightness or contrast) a normalisation within NEAR is searched. From
# VERY_FAR on the cause is reported without one.
FIRST_FEW, FAR, FARTHER, NEAR, VERY_FAR = 3, 0.7, 2.0, 1.5, 4.0
# Typical images, in grey levels: the mean, and the standard deviation.
BRIGHTNESS, CONTRAST = (70.0, 180.0), (35.0, 90.0)
# INT16 tensors with fewer steps per standard deviation of their values are examined; UINT8 would resolve them better.
FEW_STEPS = 40.0
MOST_OPERATORS = 8
GREYS = 255.0
# Plausible means and stds of training, in grey levels; ranges of dark or dull images look like other values.
MEANS, STDS = (-1.0, 160.0), (0.5, 280.0)


@dataclass(frozen=True, eq=False)
class Reach:
    """The ranges of tensors ``names`` on each image of ``labels``: ``low`` and ``high``, float64 [images, tensors]."""

    labels: tuple[str, ...]
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """The ranges over all images."""
        return self.ranges_of(range(len(self.labels)))

    def ranges_of(self, pictures: Iterable[int]) -> dict[str, Range]:
        rows = list(pictures)
        ends = zip(self.names, self.low[rows].min(axis=0), self.high[rows].max(axis=0))
        return {name: Range.of(float(low), float(high)) for name, low, high in ends}

    def beyond(self, ranges: Mapping[str, Range]) -> list[str]:
        """Return the tensors that exceed these ranges by more than BEYOND of their width."""
        return [name for name, need in self.ranges.items() if name in ranges and _goes_beyond(need, ranges[name])]


def _goes_beyond(need: Range, given: Range) -> bool:
    room = BEYOND * max(given.high - given.low, 0.0)
    return need.low < given.low - room or need.high > given.high + room


def measure_reach(model: Model, feeds: Iterable[LabelledFeed], names: Collection[str], selected: Selection) -> Reach:
    """Return the reach of the float model's tensors ``names``; each image runs once.

    ``selected``: as in calibration. Raises what ``OnePicture`` raises.
    """
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
    """Return the share of the values of ``names`` outside their ranges, over these feeds."""
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
    """Return the feed with swapped channels; ``axes``: image input -> channel axis."""
    return {name: np.flip(array, axes[name]).copy() if name in axes else array for name, array in feed.items()}


def rounded_at(model: Model, name: str, step: float) -> Model:
    """Return the model with one tensor rounded to steps of this size for all readers."""
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
    """A judged subject.

    level         level of its calibration.
    told          input_config.ini of the user.
    preprocessed  input_config.ini that agrees with the preprocess file, if known.
    others        whether the images differ from the calibration images.
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
        """The tensors that the fixed model stores as integers."""
        facts = read_facts(self.subject.fixed_model)
        return set(facts.tensors) if facts else set()

    @property
    def analysis(self) -> Analysis | None:
        return None if self.advice is None else self.advice.measured.analysis

    @property
    def given(self) -> dict[str, Range]:
        """The ranges of the stored tensors, uncut."""
        ranges = self.subject.ranges
        return {name: ranges[name].at(INT16) for name in self.stored if name in ranges}

    def reach(self, feeds: Sequence[LabelledFeed] | None = None) -> Reach | None:
        """Return the reach of the stored tensors on these feeds, or on all images; None if nothing was measured."""
        if self.analysis is None:
            return None
        selected = selection(self.analysis, LEVELS["L1"])
        names = self.stored - set(selected.masks)
        every = (self.feeds[index] for index in self.pairs.indices) if feeds is None else feeds
        reach = measure_reach(self.subject.float_model, every, names, selected)
        return reach if reach.names else None

    def judged(self, other: Subject, pairs: PicturePairs) -> PlanOutputs:
        """Return the outputs of another fixed model of this network."""
        model = self.subject.float_model
        pictures = ((p.label, p.feed, p.raw) for p in (pairs.make(index) for index in range(len(pairs))))
        return outputs_of(model, [other.fixed_model.proto], pictures, watched_tensors(deployed(model)))[0]

    def operator_of(self, name: str) -> str:
        """Return the operator that computes a tensor, by its name in the SDK; "" for an input."""
        node = Graph(self.subject.float_model.proto).producer.get(name)
        return "" if node is None else SDK_NAMES.get(node.op_type, node.op_type.upper())


@dataclass(frozen=True, eq=False)
class RootCause:
    """A cause; ``cured``: the subject with the cause corrected, to be judged on ``pairs``, or None."""

    finding: Finding
    cured: Subject | None = None
    pairs: PicturePairs | None = None


def float_feeds(pairs: PicturePairs) -> list[LabelledFeed]:
    pictures = (pairs.make(index) for index in range(len(pairs)))
    return [(picture.label, dict(picture.feed)) for picture in pictures]


def normalised_as(word: str, picture: Picture) -> dict[str, float]:
    """Return mean and std of each channel as figures of a finding; ``word`` says whose."""
    means = {f"mean_{word}_{index}": float(value) for index, value in enumerate(picture.mean)}
    return means | {f"std_{word}_{index}": float(value) for index, value in enumerate(picture.std)}
