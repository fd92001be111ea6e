"""The calibration levels L1 to L5: what is done with the pictures' statistics beyond minimum and maximum.

level  weights per channel   activation ranges fitted   16 bits proposed
L1
L2     x
L3     x                     x
L4     x                                                x
L5     x                     x                          x

calibration = calibrate(model, feeds, config, "L5")
fixed = make_fixed(model, calibration.ranges, calibration.config)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sgsdump.errors import ConfigError
from sgsdump.executors.workers.task_pool import ALONE, Workers
from sgsdump.models.graph import Graph, attribute
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.domains import Analysis, analyse
from sgsdump.quantisation.fixed_model import check_that_it_runs, make_fixed
from sgsdump.quantisation.float_model import deployed
from sgsdump.quantisation.fusion import is_convolution
from sgsdump.quantisation.quant_plan import Choice, decide
from sgsdump.quantisation.ranges.measured_ranges import Feed, gather, plain_ranges
from sgsdump.quantisation.ranges.statistics import Statistics, Wanted
from sgsdump.quantisation.ranges.weight_fit import fit_weight
from sgsdump.quantisation.scales import UINT8
from sgsdump.quantisation.trials.output_trials import (
    THRESHOLD,
    RangeFit,
    Sensitivity,
    Trials,
    fit_ranges,
    sensitivities,
)
from sgsdump.registry import hint
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range


@dataclass(frozen=True)
class Level:
    """What a level does."""

    weights: bool = False
    activations: bool = False
    bits: bool = False


LEVELS = {
    "L1": Level(),
    "L2": Level(weights=True),
    "L3": Level(weights=True, activations=True),
    "L4": Level(weights=True, bits=True),
    "L5": Level(weights=True, activations=True, bits=True),
}
# Pictures that fits and sensitivities are measured on; more changed no decision on the nets tried.
TRIALS = 4


@dataclass(frozen=True, eq=False)
class Calibration:
    """What calibration found.

    ranges         every float tensor's range, in graph order: what ``make_fixed`` and ``PlanTrial`` take.
    config         the input_config with the convolutions that the level raised to INT16 in ``tensor_arrays``.
    statistics     of all pictures.
    fits           UINT8 domains for which something else than minimum and maximum was tried.
    sensitivities  of every domain that can be INT16, most sensitive first; empty below L4.
    """

    ranges: dict[str, Range]
    config: InputConfig
    statistics: Statistics
    fits: tuple[RangeFit, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()

    @property
    def seen(self) -> dict[str, Range]:
        """What every tensor's values filled on the pictures, before anything was narrowed or decided otherwise."""
        return {name: Range.of(each.low, each.high) for name, each in self.statistics.whole.items()}


def calibrate(
    model: Model,
    feeds: Sequence[Feed],
    config: InputConfig,
    level: str = "L5",
    fuse: bool = True,
    workers: Workers = ALONE,
    threshold: float = THRESHOLD,
    progress: Progress = SILENT,
) -> Calibration:
    """Calibrate a simplified float model on normalised pictures; with ALL_INT16 levels above L1 do what L2 does.

    feeds      for more than one process something that can be sent there: ``PictureFeeds``.
    workers    who runs the pictures; the result is the same.
    threshold  convolutions whose ``Sensitivity.effect`` is greater are raised to INT16 (L4, L5).
    progress   counts the pictures of the one pass over all, then the trial runs for ranges and bits (L3 to L5), and
               says when a worker was lost.
    The fixed model is made and run once, on the first picture, before all this is begun. Raises what ``gather``,
    ``make_fixed`` and ``check_that_it_runs`` raise.
    """
    does = level_named(level)
    if config.conv_format == "ALL_INT16" and does.weights:
        does = LEVELS["L2"]
    proto = deployed(model, fuse)
    names = {entry.name for entry in config.inputs if entry.is_picture and entry.quantised}
    analysis = analyse(proto, names & set(Graph(proto).inputs), fuse)
    if len(feeds):
        _rehearse(model, feeds[0], config, fuse, analysis.graph)
    statistics = gather(model, feeds, wanted(analysis, does), workers, progress)
    ranges = plain_ranges(model, statistics, analysis.graph)
    fits: tuple[RangeFit, ...] = ()
    measured: tuple[Sensitivity, ...] = ()
    if does.weights:
        ranges |= _fitted_weights(analysis, statistics, ranges)
        ranges = _with_zero(analysis, ranges, config)
    if does.activations or does.bits:
        chosen = [feeds[i] for i in sorted({*np.linspace(0, len(feeds) - 1, min(TRIALS, len(feeds))).astype(int)})]
        # Trials fold BatchNormalization, whose weights these are not when every layer stays visible.
        known = ranges if fuse else {n: each for n, each in ranges.items() if n not in analysis.graph.constants}
        with progress.bar("measure", "run") as advance:
            trials = Trials(model, known, config, chosen, advance)
            if does.activations:
                known, fits = fit_ranges(trials, statistics)
                ranges |= known
            if does.bits:
                measured = sensitivities(trials.with_ranges(known), threshold)
                raised = tuple(s.domain.name for s in measured if s.raised)
                config = replace(config, tensor_arrays=tuple(dict.fromkeys([*config.tensor_arrays, *raised])))
    return Calibration(ranges, config, statistics, fits, measured)


def _rehearse(model: Model, feed: Feed, config: InputConfig, fuse: bool, graph: Graph) -> None:
    """The whole way on one picture, so that a model that cannot go it is refused in seconds."""
    fixed = make_fixed(model, plain_ranges(model, gather(model, [feed]), graph), config, fuse)
    check_that_it_runs(model, fixed.proto, config, feed[1])


def level_named(name: str) -> Level:
    """Raises ConfigError for what is none of L1 to L5."""
    if name not in LEVELS:
        raise ConfigError(f"there is no quant level {name!r}{hint(name, LEVELS)}; the levels are {', '.join(LEVELS)}")
    return LEVELS[name]


def wanted(analysis: Analysis, level: Level) -> Wanted:
    """The statistics a level needs; those of the side files (tensor_chn, softmax_lut_range) always."""
    graph, domain = analysis.graph, analysis.domain
    narrow = {domain[name] for name in analysis.first_inputs} - analysis.picture_domains
    return Wanted(
        histograms=frozenset(n for n in analysis.stored if level.activations and domain[n] in narrow),
        moments={name: _channel_axis(nodes[0].op_type) for name, nodes in analysis.first_inputs.items()}
        if level.weights
        else {},
        channels={n.output[0]: _channel_axis(n.op_type) for n in graph.nodes if is_convolution(graph, n)},
        softmax={n.input[0]: attribute(n, "axis", -1) for n in graph.nodes if n.op_type == "Softmax"},
    )


def _channel_axis(op_type: str) -> int:
    return 1 if op_type in ("Conv", "ConvTranspose") else -1


def _fitted_weights(analysis: Analysis, statistics: Statistics, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Weights that several convolutions read keep one choice: the first reader's."""
    fitted: dict[str, Range] = {}
    for name, nodes in analysis.first_inputs.items():
        for node in nodes:
            if name in ranges and node.input[1] not in fitted:
                fitted[node.input[1]] = fit_weight(analysis.graph, node, statistics.moments.get(name))
    return fitted


def _with_zero(analysis: Analysis, ranges: Mapping[str, Range], config: InputConfig) -> dict[str, Range]:
    """The ranges with 0 in those of UINT8 tensors, as they are stored (and as the SDK writes them above L1)."""
    choice = Choice(config.conv_format or "ALL_UINT8", config.tensor_arrays)
    narrow = {name for name, quant in decide(analysis, ranges, choice).tensors.items() if quant.dtype == UINT8}
    return {
        name: Range.of(min(measured.low, 0.0), max(measured.high, 0.0)) if name in narrow else measured
        for name, measured in ranges.items()
    }
