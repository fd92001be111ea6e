"""The reports of ``diagnose``, ``repair`` and ``tune``: a comparison's report with what the command found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sgsdump.comparison.compare import compare
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import listed
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model, read_stages
from sgsdump.quantisation.diagnosis.compared_pictures import Compared
from sgsdump.quantisation.diagnosis.subject import Subject
from sgsdump.reports.advice_reports import conv_config, int16_is_not_enough, maybes
from sgsdump.reports.report import BLOB, PLAIN, Context, Layer, Plan, Report, Tradeoff, report_of
from sgsdump.reports.sentences import Step
from sgsdump.reports.text import counted
from sgsdump.tuning.advice import MeasuredAdvice, holds
from sgsdump.tuning.pareto import Pareto, Row
from sgsdump.tuning.repair import Repair, Round
from sgsdump.tuning.sensitivity_analysis import output_error

MOST_NAMED = 4
LONGEST_ATTRIBUTE = 60


def report_of_diagnosis(
    subject: Subject,
    compared: Compared,
    advice: MeasuredAdvice | None,
    limits: Thresholds = DOCUMENTED,
    context: Context = PLAIN,
) -> Report:
    """advice  None where none could be measured."""
    context = _with_model(replace(context, ranges=subject.ranges), subject.float_model, compared)
    if advice is None:
        return report_of(compared.comparison, limits, context)
    report = report_of(compared.comparison, limits, context, _advised_steps(advice))
    return replace(report, layers=_with_measured(report.layers, advice))


def report_of_repair(
    repair: Repair,
    rounds: Sequence[Round],
    model: Model,
    limits: Thresholds = DOCUMENTED,
    context: Context = PLAIN,
) -> Report:
    """How it ended, what to write into input_config.ini, and every layer as it is now.

    context  its sample is the dump of the repaired fixed model, its benchmark the float one's, ``model``.
    """
    if context.sample is None or context.benchmark is None:
        raise ValueError("the report of a repair compares two dumps")
    comparison = compare(context.sample, context.benchmark, details=True)
    context = replace(context, ranges=repair.ranges, attributes=attributes_of(model))
    report = report_of(comparison, limits, context, [_repair_step(repair)])
    return replace(report, verdict=(_repair_verdict(repair, rounds), *report.verdict))


def report_of_tuning(result: Pareto, compared: Compared, model: Model, context: Context = PLAIN) -> Report:
    """The trade-off of the plans, and the plan to take, layer by layer.

    compared  the fixed model of the plan to take against the float one, ``model``.
    """
    context = _with_model(context, model, compared)
    report = report_of(compared.comparison, context=context, steps=[_tuning_step(result.taken)])
    return replace(report, verdict=(*_tuning_verdict(result), *report.verdict), tradeoff=tradeoff_of(result))


def tradeoff_of(result: Pareto) -> Tradeoff:
    """Every plan tried, those of the table, and the one to take, with its [CONV_CONFIG] to copy."""
    plans = tuple(
        Plan(row.label, row.rate, row.error, row.asked, conv_config(row.tensors) if row.tensors else "")
        for row in result.rows
    )
    taken = next(plan for plan, row in zip(plans, result.rows) if row is result.taken)
    return Tradeoff(result.cloud, plans, taken, f"error, {result.objective}")


def attributes_of(model: Model) -> dict[str, dict[str, str]]:
    """By each output's name: the operator's attributes, the node's name and its weights' shapes, as text; of a Caffe
    network the blob that the tensor is a stage of, and the layer that made it."""
    graph = Graph(model.proto)
    stages = {stage.name: {BLOB: stage.blob, "layer": stage.layer} for stage in read_stages(model.proto)}
    attributes: dict[str, dict[str, str]] = {}
    for node in graph.nodes:
        texts = {"node": node.name} if node.name else {}
        texts |= {
            f"constant {name}": _shape(graph.constants[name].dims) for name in node.input if name in graph.constants
        }
        texts |= {attribute.name: _attribute_text(attribute) for attribute in node.attribute}
        attributes |= {name: stages.get(name, {}) | texts for name in node.output if name}
    return attributes


def _with_model(context: Context, model: Model, compared: Compared) -> Context:
    return replace(context, sample=compared.sample, benchmark=compared.benchmark, attributes=attributes_of(model))


def _advised_steps(advice: MeasuredAdvice) -> Iterator[Step]:
    """The steps of a measured advice; the text to copy is the [CONV_CONFIG] to put into input_config.ini."""
    measured, measurement, limits = advice.measured, advice.measured.measurement, advice.measured.limits
    tried = measured.tried
    if advice.good:
        names = advice.config_names
        has = f"; the fixed model has {listed(names, MOST_NAMED)} at INT16 already" if names else ""
        copy = conv_config(names) if names else ""
        yield Step(f"Nothing more has to be raised to INT16: no output has {limits}{has}.", copy)
        return
    if tried is not None:
        errors = [output_error(totals) for totals in (measurement.all_8, tried, measurement.all_16)]
        state = "within the limits" if holds(tried, limits) else f"still {limits}"
        yield Step(
            f"Put this into input_config.ini and calibrate again: with {counted(len(measured.names), 'input')} of "
            f"convolutions at INT16 the outputs' error goes to {errors[1]:.4f}, {state} ({errors[0]:.4f} with all at 8 "
            f"bits, {errors[2]:.4f} with all at 16; measured on {counted(measurement.pictures, 'picture')}).",
            conv_config(advice.config_names),
        )
    if not holds(measurement.all_16, limits):
        yield Step(int16_is_not_enough(limits))
    maybe = maybes(advice.advice)
    if maybe and not (tried is not None and holds(tried, limits)):
        yield Step(f"What would help most{' after that' if tried is not None else ''}: {listed(maybe, MOST_NAMED)}.")


def _with_measured(layers: Sequence[Layer], advice: MeasuredAdvice) -> tuple[Layer, ...]:
    """The layers, with their own and their inherited error measured where a convolution ends in them."""
    own_errors: dict[str, float] = {}
    inherited: dict[str, float] = {}
    for sensitivity in advice.measured.measurement.sensitivities:
        own_errors |= {advice.measured.layers[name]: error for name, error in sensitivity.own.items()}
        inherited |= {advice.measured.layers[name]: error for name, error in sensitivity.inherited.items()}

    def measured(layer: Layer) -> Layer:
        if layer.name not in own_errors:
            return layer
        figures = replace(layer.figures, own_error=own_errors[layer.name], inherited=inherited[layer.name])
        return replace(layer, figures=figures)

    return tuple(map(measured, layers))


def _repair_verdict(repair: Repair, rounds: Sequence[Round]) -> str:
    first, best = rounds[0], repair.best
    if best is first:
        return f"Nothing was raised: {repair.ended}; the outputs' error is {best.error:.4f}."
    return (
        f"With {len(best.tensor_arrays)} of the convolutions' inputs at INT16 the outputs' error is {best.error:.4f}, "
        f"{first.error:.4f} before; {repair.ended}."
    )


def _repair_step(repair: Repair) -> Step:
    if not repair.best.tensor_arrays:
        return Step("input_config.ini stays as it is.")
    text = "The input_config.ini beside this report has it; this is to put into your own."
    return Step(text, conv_config(repair.config_names(repair.best.tensor_arrays)))


def _tuning_verdict(result: Pareto) -> Iterator[str]:
    taken, low, high = result.taken, result.rows[0], result.rows[-1]
    yield (
        f"With {counted(len(taken.raised), 'convolution')} at INT16 the weights take {100 * taken.rate:.0f} % of "
        f"their bytes at 16 bits, and the outputs' error is {taken.error:.3g}: {low.error:.3g} with all at INT8, "
        f"{high.error:.3g} with all at INT16 ({result.effort.plans_tried} plans tried)."
    )
    if result.verified is not None:
        yield f"In the hardware's integers it is {result.verified.error:.3g}."


def _tuning_step(taken: Row) -> Step:
    if not taken.tensors:
        return Step("Nothing has to be raised to INT16.")
    return Step("Put this into input_config.ini and calibrate again.", conv_config(taken.tensors))


def _shape(dims: Any) -> str:
    return "×".join(map(str, dims)) or "one number"


def _attribute_text(attribute: Any) -> str:
    from onnx import AttributeProto, helper

    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return "a graph"
    if attribute.type in (AttributeProto.TENSOR, AttributeProto.SPARSE_TENSOR):
        return f"a tensor {_shape(attribute.t.dims)}"
    value = helper.get_attribute_value(attribute)
    values = value if isinstance(value, list) else [value]
    text = ", ".join(item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in values)
    return text if len(text) <= LONGEST_ATTRIBUTE else f"{text[:LONGEST_ATTRIBUTE]}…"
