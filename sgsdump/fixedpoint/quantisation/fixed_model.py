"""Fixed models: decide the quant plan from ranges and input_config.ini, then write integer arithmetic as ONNX.

model = open_float_model("float.onnx", None, config)
ranges = measure_ranges(model, feeds)
fixed = make_fixed(model, ranges, config)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import ModelProto

from sgsdump.errors import ConfigError, ModelError, listed
from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.float_model import deployed, pictures_of, raw_bytes
from sgsdump.fixedpoint.quantisation.integer.walk import Substitute, write_integers
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, QuantPlan, as_read, decide
from sgsdump.fixedpoint.quantisation.ranges.masks import EXP_IS_ZERO, softmax_inputs
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import Feed, measure_ranges
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges, with_softmax
from sgsdump.fixedpoint.quantisation.sim_operators import Given, dumped_operators
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16, SOFTMAX_QUANT
from sgsdump.models import sim_facts
from sgsdump.models.external_data import WeightFile
from sgsdump.models.fixed_facts import Origin, read_facts
from sgsdump.models.graph import Graph, has_weights_outside
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

VISIBLE = 0.05


@dataclass(frozen=True)
class ClippedRange:
    """A tensor whose calibrated values ``low`` to ``high`` exceed what its type and scale hold."""

    name: str
    low: float
    high: float
    held_low: float
    held_high: float

    def __str__(self) -> str:
        return (
            f"{self.name}: the calibration range {self.low:g} to {self.high:g} is clipped to the "
            f"range {self.held_low:g} to {self.held_high:g}"
        )


@dataclass(frozen=True, eq=False)
class FixedModel:
    """A fixed model and what is known about it.

    proto        the ONNX model.
    plan         the decisions for each tensor and convolution.
    clipped      given ranges that the plan does not hold.
    approximate  outputs without an exact hardware rule, and the substitute.
    misread      by Softmax, the factor by which its readers scale its values.
    masks        ranges that were cut because of a mask.
    coarse       by input of a Softmax, a step too large to distinguish its values.
    outside      the weights of ``proto`` if they are stored outside it.
    """

    proto: ModelProto
    plan: QuantPlan
    clipped: tuple[ClippedRange, ...] = ()
    approximate: Mapping[str, Substitute] = field(default_factory=dict)
    misread: Mapping[str, float] = field(default_factory=dict)
    masks: Mapping[str, Range] = field(default_factory=dict)
    coarse: Mapping[str, float] = field(default_factory=dict)
    outside: WeightFile | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user.

        They list substitutes for hardware rules with the operators concerned, Softmax outputs that their readers scale,
        ranges cut for masks, and coarse Softmax inputs.
        """
        outputs: dict[str, dict[str, list[str]]] = {}
        for name, substitute in self.approximate.items():
            outputs.setdefault(substitute.done, {}).setdefault(substitute.op_type, []).append(name)
        told = {
            done: ", ".join(f"{kind} ({listed(names, 1)})" for kind, names in kinds.items())
            for done, kinds in outputs.items()
        }
        return (
            *(f"no exact integer rule for {kinds}: {done}" for done, kinds in told.items()),
            *(
                f"operators that read Softmax {name} scale its values by {factor:.2g}, as in the SDK's fixed model: "
                f"the Softmax has steps of 1/32768, but its readers use the step of its range"
                for name, factor in self.misread.items()
            ),
            *mask_notes(self.masks),
            *(
                f"the range of Softmax input {name} has steps of {step:.3g}, so values closer together become equal. "
                f"Remove {name} from the given ranges to let calibration choose"
                for name, step in self.coarse.items()
            ),
        )


def mask_notes(ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """Return one sentence on the ranges that were cut for a mask, if there are any."""
    cut = {name: measured for name, measured in ranges.items() if measured.uncut is not None}
    sides = (
        ("down", [(name, r.low, r.uncut[0]) for name, r in cut.items() if r.uncut and r.uncut[0] < r.low], min),
        ("up", [(name, r.high, r.uncut[1]) for name, r in cut.items() if r.uncut and r.uncut[1] > r.high], max),
    )
    return tuple(
        f"the values of {listed([name for name, *_ in ends], 3)} go {where} to "
        f"{furthest(seen for *_, seen in ends):.3g}, as in a mask; their ranges end at "
        f"{furthest(end for _, end, _ in ends):.3g}, because "
        f"values {EXP_IS_ZERO:g} below the row maximum are 0 after the Softmax"
        for where, ends, furthest in sides
        if ends
    )


def make_fixed(
    model: Model,
    ranges: Mapping[str, Range],
    config: InputConfig | None = None,
    fuse: bool = True,
    per_channel: bool = False,
    side: SideRanges = NOTHING_BESIDE,
) -> FixedModel:
    """Return the fixed model of a simplified float model.

    config       input_config.ini: image inputs, INT16 convolutions, and outputs that stay integer.
    fuse         False with disableDomainFuseOps: every layer stays visible except a convolution before its activation.
    per_channel  one weight scale per output channel (levels above L1).
    side         ranges of channels and of Softmax inputs; default: the ranges of the tensors.
    Raises ConfigError if the config or the ranges name nothing of this model.
    """
    config = config or InputConfig(())
    _check_names(model, config)
    float_inputs = {entry.name for entry in config.inputs if not entry.quantised}
    ranges = {name: measured for name, measured in ranges.items() if name not in float_inputs}
    ranges = with_softmax(ranges, side.softmax)
    pictures = pictures_of(model, config, ranges)
    analysis = analyse(deployed(model), pictures if config.inputs else None, fuse)
    graph = analysis.graph
    if not ranges.keys() & graph.producer.keys():
        raise ConfigError("the ranges name no layer of this model. Were they calibrated on another model?")
    by = config.by_level, config.by_quant_file
    choice = Choice(config.conv_format or "ALL_UINT8", config.tensor_arrays, per_channel, *by)
    decided = decide(analysis, ranges, choice)
    integer = frozenset(output.name for output in config.outputs if not output.dequantised)
    origin = Origin(config.inputs, _used(decided, ranges, graph), side.channels, decided.decided, decided.raised_by)
    facts = sim_facts.read_facts(model.proto)
    given = Given(operators=dumped_operators(facts, decided.operators)) if facts else None
    written = write_integers(graph, decided, ranges, pictures, integer, origin, given)
    return FixedModel(
        written.proto,
        decided,
        clipped_ranges(decided, ranges),
        written.approximate,
        _misread(graph, decided, written.in_float),
        {name: measured for name, measured in ranges.items() if measured.uncut is not None},
        _coarse(graph, decided),
        written.outside,
    )


def _coarse(graph: Graph, decided: QuantPlan) -> dict[str, float]:
    """Return the step of each Softmax input whose neighbouring values differ visibly after the exponential."""
    steps = {name: decided.tensors[name].scale for name in softmax_inputs(graph) if name in decided.tensors}
    return {name: float(step) for name, step in steps.items() if float(step) > VISIBLE}


def _misread(graph: Graph, decided: QuantPlan, in_float: Collection[str]) -> dict[str, float]:
    """Return, by Softmax with integer readers, the ratio of the readers' scale to its own, if visibly different.

    in_float  outputs that are computed from real values.
    """
    ratios = {
        name: float(as_read(decided, name).scale) / float(quant.scale)
        for name, quant in decided.tensors.items()
        if quant == SOFTMAX_QUANT
        and any(
            reader.output[0] in decided.tensors and reader.output[0] not in in_float
            for reader in graph.consumers.get(name, ())
        )
    }
    return {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > VISIBLE}


def rehearse(model: Model, feed: Feed, config: InputConfig, fuse: bool = True) -> None:
    """Make and run the fixed model on one image, to reject within seconds a model that cannot be quantised.

    A model with external weights is skipped. Raises what ``gather``, ``make_fixed`` and ``check_that_it_runs`` raise.
    """
    if has_weights_outside(model.proto):
        return  # loading its weights takes as long as an image, so calibration is not much longer
    fixed = make_fixed(model, measure_ranges(model, [feed], fuse), config, fuse)
    check_that_it_runs(model, fixed.proto, config, feed[1])


def check_that_it_runs(model: Model, fixed: ModelProto, config: InputConfig, feed: Mapping[str, np.ndarray]) -> None:
    """Run the fixed model of a float model once, on one feed of the float model (normalised images).

    Raises ModelError if onnxruntime cannot load or run the fixed model.
    """
    from sgsdump.executors.onnx_runtime.session import REFUSALS, message_of

    facts = read_facts(replace(model, proto=fixed))
    stored = facts.tensors if facts else {}
    pictures = pictures_of(model, config, {name for name, tensor in stored.items() if tensor.picture})
    raw = {name: raw_bytes(array, pictures[name]) if name in pictures else array for name, array in feed.items()}
    outputs = [output.name for output in fixed.graph.output]
    try:
        if has_weights_outside(fixed):
            for _ in SegmentRunner(replace(model, proto=fixed)).run(raw, only=outputs):
                pass
        else:
            WholeGraph(fixed, once=True).values(raw, outputs)
    except (ModelError, *REFUSALS) as error:
        raise ModelError(
            f"{model.path}: its fixed model does not run ({message_of(error)}). This is a bug in "
            "sgsdump; please report this line. To continue, cut the model before the operator that "
            "this error names"
        ) from None


def clipped_ranges(plan: QuantPlan, ranges: Mapping[str, Range]) -> tuple[ClippedRange, ...]:
    """Return the stored tensors whose range exceeds the plan by more than one step, in the plan's order.

    A range that a level narrowed for UINT8 counts with the values seen (``Range.wide``).
    """
    clipped = []
    for name, quant in plan.tensors.items():
        if name not in ranges or quant.dtype is None:
            continue
        calibrated, limits, step = ranges[name].at(INT16), np.iinfo(quant.dtype), float(quant.scale)
        low, high = (limits.min - quant.zero_point) * step, (limits.max - quant.zero_point) * step
        if calibrated.low < low - step or calibrated.high > high + step:
            clipped.append(ClippedRange(name, calibrated.low, calibrated.high, low, high))
    return tuple(clipped)


def _used(decided: QuantPlan, ranges: Mapping[str, Range], graph: Graph) -> dict[str, Range]:
    """Return the ranges that the plan was made from, so that the plan can be repeated."""
    weights = {graph.producer[name].input[1]: quant for name, quant in decided.weights.items()}
    quants = {**weights, **decided.tensors}
    used = {name: ranges[name].at(quant.dtype) for name, quant in quants.items() if name in ranges and quant.dtype}
    inner = [name for op in decided.operators for node in op.nodes for name in (*node.input, *node.output)]
    return {**{name: ranges[name].at(INT16) for name in inner if name in ranges}, **used}


def _check_names(model: Model, config: InputConfig) -> None:
    graph = Graph(model.proto)
    for kind, named, existing in (
        ("inputs", [e.name for e in config.inputs], graph.inputs),
        ("outputs", [e.name for e in config.outputs], graph.outputs),
    ):
        for name in named:
            if name not in existing:
                raise ConfigError(
                    f"input_config: {kind} names {name!r}, but the names in the model are {', '.join(existing)}"
                )
