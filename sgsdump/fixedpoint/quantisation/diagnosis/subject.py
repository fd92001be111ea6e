"""The subject of a diagnosis: a float and a fixed model, their ranges, and the normalisation of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sgsdump.errors import ConfigError, ModelError
from sgsdump.executors.onnx_runtime.observed_branches import BranchGuard
from sgsdump.executors.workers.task_pool import ALONE, Workers
from sgsdump.fixedpoint.quantisation.calibration import Calibration, calibrate
from sgsdump.fixedpoint.quantisation.calibration_log import read_log
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed, mask_notes
from sgsdump.fixedpoint.quantisation.quant_file import import_params, read_quant_file
from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import Feed
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges, side_ranges
from sgsdump.models.fixed_facts import FixedFacts, read_facts, replace_facts
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.models.passes.branches import Choice
from sgsdump.models.quantised_model import QuantisedModel
from sgsdump.progress import SILENT, Progress
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range


@dataclass(frozen=True, eq=False)
class Subject:
    """A float and a fixed model to diagnose.

    config   normalisation of images; its [CONV_CONFIG] is the user's.
    ranges   of the float model's tensors, {} if unknown.
    made     calibration and quant plan, if the fixed model was made here.
    notes    of the fixed model, if it was made here.
    side     side ranges that the fixed model was made from.
    weights_per_channel  weights have one scale per channel although ``ranges`` has no weights.
    misread  see ``FixedModel``; set if the fixed model was made here.
    """

    float_model: Model
    fixed_model: Model
    config: InputConfig
    ranges: Mapping[str, Range]
    per_channel: bool
    made: tuple[Calibration, QuantPlan] | None = None
    notes: tuple[str, ...] = ()
    side: SideRanges = NOTHING_BESIDE
    weights_per_channel: bool = False
    misread: Mapping[str, float] = field(default_factory=dict)


def calibrated(
    model: Model,
    feeds: Sequence[Feed],
    config: InputConfig,
    level: str,
    progress: Progress = SILENT,
    workers: Workers = ALONE,
) -> Subject:
    """Make the fixed model like ``sgsdump calibrate``; call ``rehearse`` first."""
    calibration = calibrate(model, feeds, config, level, workers=workers, progress=progress)
    side = side_ranges(calibration.statistics)
    fixed = make_fixed(model, calibration.ranges, calibration.config, side=side)
    fixed_model = replace(model, proto=fixed.proto)
    made = calibration, fixed.plan
    per_channel, ranges = level != "L1", calibration.ranges
    return Subject(model, fixed_model, config, ranges, per_channel, made, fixed.notes, side, misread=fixed.misread)


def of_ranges(model: Model, path: Path, config: InputConfig) -> Subject:
    """Make the fixed model from existing ranges: a quant file, or a log's tensor_min_max.txt with its side files.

    Raises what reading these and ``make_fixed`` raise.
    """
    beside, side = read_log(path, model, weights=True)
    params = [*read_quant_file(path), *beside]
    given = import_params(model, params, config, where=str(path), one_per_tensor=not beside)
    fixed = make_fixed(given.model, given.ranges, given.config, per_channel=bool(beside), side=side)
    fixed_model = replace(model, proto=fixed.proto)
    per_channel = bool(beside)
    subject = Subject(given.model, fixed_model, config, given.ranges, per_channel, None, fixed.notes, side, per_channel)
    return replace(subject, misread=fixed.misread)


def given_fixed(model: Model, path: Path, config: InputConfig | None) -> Subject:
    """Open an existing fixed model, which stores its own configuration. Raises ModelError, ConfigError."""
    fixed = open_model(path)
    facts = read_facts(fixed)
    if facts is None and QuantisedModel(fixed.proto).is_quantised:
        raise ModelError(f"{path}: quantised with another tool. Only sgsdump diagnose --fixed accepts such a model")
    if facts is None:
        raise ModelError(
            f"{path} is a float model. Pass fixed.sim or a model from calibrate to --fixed, or omit "
            "--fixed to make a fixed model"
        )
    if facts.origin is None or not facts.origin.inputs:
        if config is None:
            raise ConfigError(f"{path}: the normalisation of images is not stored in the model. Pass --input-config")
    else:
        own = InputConfig(facts.origin.inputs)
        config = own if config is None else replace(config, inputs=own.inputs)
    _check_inputs(model, fixed, path)
    fixed, facts = _named_as(model, fixed, facts)
    ranges = facts.origin.ranges if facts.origin else {}
    per_channel = any(isinstance(weights.scale, tuple) for weights in facts.weights.values())
    side = SideRanges(facts.origin.channels) if facts.origin else NOTHING_BESIDE
    return Subject(model, fixed, config, ranges, per_channel, notes=mask_notes(ranges), side=side)


def _named_as(model: Model, fixed: Model, facts: FixedFacts) -> tuple[Model, FixedFacts]:
    """Return the fixed model with its convolutions under the float model's names.

    In a fixed.sim, a convolution with a fused Relu loses its own name; only the name of its weights remains, possibly
    with a number appended.
    """
    outputs = {node.input[1]: node.output[0] for node in model.proto.graph.node if len(node.input) > 1}
    names = {}
    for name, stored in facts.convolutions.items():
        weights = facts.weights[stored].name
        names[name] = outputs.get(weights) or outputs.get(weights.rpartition("#")[0]) or name
    if all(name == other for name, other in names.items()):
        return fixed, facts
    renamed = replace(facts, convolutions={names[name]: stored for name, stored in facts.convolutions.items()})
    proto = type(fixed.proto)()
    proto.CopyFrom(fixed.proto)
    replace_facts(renamed, proto)
    return replace(fixed, proto=proto), renamed


def _check_inputs(model: Model, fixed: Model, path: Path) -> None:
    own, others = ({spec.name for spec in graph_inputs(each.proto)} for each in (model, fixed))
    if own != others:
        raise ModelError(
            f"{path}: made from another model. Its inputs are {', '.join(sorted(others))}, but "
            f"{model.path} has the inputs {', '.join(sorted(own))}"
        )
    ours, theirs = (BranchGuard(each).taken for each in (model, fixed))
    if theirs and ours != theirs:
        raise ModelError(
            f"{path}: created for the If branches {_branches(theirs)}, but these inputs take the "
            f"branches {_branches(ours)}. Use inputs that take the same branches"
        )


def _branches(taken: Mapping[Choice, str]) -> str:
    return ", ".join(f"{choice.node} {branch}" for choice, branch in taken.items()) or "none"
