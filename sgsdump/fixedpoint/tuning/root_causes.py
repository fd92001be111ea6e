"""Causes to correct before any INT16: calibration data (``causes_of_data``), operators, and weights with one scale.

A cause must be proved by correcting it: the new fixed model must remove much of the output error, or need fewer
convolutions at INT16. A suspicion is no cause, so a sound model has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto

from sgsdump.comparison.finding import Finding
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.fixedpoint.quantisation.analysis import Analysis, output_axis, output_rows
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.objective import output_error, score, total, watched_tensors
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FloatOutputs
from sgsdump.fixedpoint.tuning.advice import holds
from sgsdump.fixedpoint.tuning.causes_of_data import (
    flat_pictures,
    hardly_moved,
    normalisation,
    odd_picture,
    of_given_ranges,
    unlike_training,
)
from sgsdump.fixedpoint.tuning.examined import (
    FEW_STEPS,
    LEFT,
    LEFT_AT_NO_COST,
    MOST_OPERATORS,
    OPERATOR,
    WEIGHTS,
    Examined,
    RootCause,
    float_feeds,
    rounded_at,
)
from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice, fixed_with
from sgsdump.fixedpoint.tuning.sensitivity_analysis import loud_channel
from sgsdump.models.feeds.feeds import LabelledFeed
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.types import Range


def root_cause(examined: Examined, progress: Progress = SILENT) -> RootCause | None:
    """Return the first proved cause, or None. Raises what calibrating and running the models raise."""
    if not examined.outputs.outputs:
        return None
    shown = normalisation(examined) or unlike_training(examined)
    if shown is not None:
        return shown
    reach = examined.reach()
    if reach is None:
        return None
    if examined.subject.made is None or examined.others:
        found = of_given_ranges(examined, reach, progress)
    else:
        found = flat_pictures(examined, reach) or odd_picture(examined, reach, progress)
    if found is not None or examined.good or examined.advice is None:
        return found
    if all(figures.hardly_moved for figures in examined.outputs.outputs.values() if not figures.good(examined.limits)):
        return hardly_moved(examined)
    return _operator(examined, examined.advice) or _weights(examined, examined.advice)


def _operator(examined: Examined, advice: MeasuredAdvice) -> RootCause | None:
    """Return a tensor whose rounding to INT16 alone causes most of the error with every convolution at INT16.

    Only if that error is most of the whole error, or exceeds the limits. Tensors within an operator count too.
    """
    best = advice.all_16 or advice.promise
    left = best.error if best is not None else examined.error
    if not left >= LEFT * examined.error and (best is None or best.outputs.good(examined.limits)):
        return None
    subject, graph = examined.subject, Graph(deployed(examined.subject.float_model))
    facts = read_facts(subject.fixed_model)
    stored = facts.tensors if facts else {}
    steps = {
        name: max(abs(bounds.at(INT16).low), abs(bounds.at(INT16).high)) / np.iinfo(INT16).max
        for name, bounds in subject.ranges.items()
        if name in graph.producer and bounds.uncut is None and (name not in stored or stored[name].dtype == INT16)
    }
    model = replace(subject.float_model, proto=deployed(subject.float_model))
    feeds = float_feeds(examined.few)
    coarse = _coarse(model, feeds, steps)
    judged = [name for name in watched_tensors(model.proto) if name in graph.producer]
    real = FloatOutputs(model, judged)
    for name in coarse[:MOST_OPERATORS]:
        rounded = FloatOutputs(rounded_at(model, name, steps[name]), judged)
        scores = [score(rounded.run(label, feed), dict(real.run(label, feed))) for label, feed in feeds]
        sums = total(scores).sums
        alone = output_error(sums)
        if alone >= LEFT * left or not holds(sums, examined.limits):
            figures = {"error": examined.error, "left": left, "alone": alone, "step": steps[name]}
            if name in subject.ranges:
                figures |= {"low": subject.ranges[name].low, "high": subject.ranges[name].high}
            cause = {"reason": OPERATOR, "input": name}
            return RootCause(Finding("cause", name, examined.operator_of(name), figures, "measured", (name,), cause))
    return None


def _coarse(model: Model, feeds: Sequence[LabelledFeed], steps: Mapping[str, float]) -> list[str]:
    """Return, in execution order, the tensors with a step that is large for the values of half of the channels."""
    least: dict[str, float] = {}
    runner = SegmentRunner(model, keep_sessions=True)
    for _, feed in feeds:
        for layer in runner.run(feed, only=set(steps)):
            values = layer.array
            table = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1) if values.ndim > 2 else values.reshape(1, -1)
            spread = float(np.median(table.std(axis=1, dtype=np.float64)))
            least[layer.name] = max(least.get(layer.name, 0.0), spread)
    return [name for name in least if 0 < least[name] < FEW_STEPS * steps[name]]


def _weights(examined: Examined, advice: MeasuredAdvice) -> RootCause | None:
    """Return the weights with one scale as a cause, if one scale per output channel is enough or removes much error.

    Such scales cost no bits, so they come before any INT16.
    """
    subject = examined.subject
    if subject.per_channel:
        return None
    measured = advice.measured
    proto = fixed_with(measured, measured.raised, per_channel=True)
    cured = replace(
        subject,
        fixed_model=replace(subject.fixed_model, proto=proto),
        per_channel=True,
        weights_per_channel=True,
    )
    outputs = examined.judged(cured, examined.pairs)
    after = output_error(outputs.sums)
    helps = after <= LEFT_AT_NO_COST * examined.error or outputs.good(examined.limits)
    if not helps or outputs.worse_than(examined.outputs):
        return None
    figures = {"error": examined.error, "error_after": after}
    layer, kind, names = _whose_weights(examined, advice, after, figures)
    facts = {"reason": WEIGHTS, "input": layer}
    return RootCause(Finding("cause", layer, kind, figures, "measured", names, facts), cured, examined.pairs)


def _whose_weights(
    examined: Examined, advice: MeasuredAdvice, after: float, figures: dict[str, float]
) -> tuple[str, str, tuple[str, ...]]:
    """Return the convolution whose weights alone, with one scale per channel, give half of the gain; "" for none."""
    analysis, subject = advice.measured.analysis, examined.subject
    nodes = {node.output[0]: node for nodes in analysis.first_inputs.values() for node in nodes}
    convs = [conv for conv in advice.measured.convolutions if conv.name in nodes]
    rows = {conv.name: np.abs(output_rows(analysis.graph, nodes[conv.name])) for conv in convs}
    reaches = {name: table.max(axis=1) for name, table in rows.items()}
    order = sorted(convs, key=lambda conv: (not conv.reads_picture, -_uneven(reaches[conv.name])))
    pairs = examined.few
    before = output_error(examined.outputs.sums_on(pairs.labels_in(examined.pairs)))
    for conv in order[:3]:
        node = nodes[conv.name]
        own = _per_channel(analysis, node)
        fixed = make_fixed(
            subject.float_model, {**subject.ranges, node.input[1]: own}, subject.config, side=subject.side
        )
        trial = replace(subject, fixed_model=replace(subject.fixed_model, proto=fixed.proto))
        error = output_error(examined.judged(trial, pairs).sums)
        if before - error >= LEFT * (before - after):
            loud = loud_channel(reaches[conv.name])
            if loud is not None:
                figures |= {"row": float(loud.index), "rows": float(loud.count)}
                figures |= {"row_reaches": loud.reach, "row_others": loud.others}
            figures["error_alone"] = error
            return conv.name, conv.op_type, (conv.name,)
    return "", "", ()


def _uneven(reaches: np.ndarray) -> float:
    median = float(np.median(reaches))
    return float(reaches.max() / median) if median > 0 else 0.0


def _per_channel(analysis: Analysis, node: NodeProto) -> Range:
    values, axis = analysis.graph.value(node.input[1]), output_axis(analysis.graph, node)
    others = tuple(index for index in range(values.ndim) if index != axis)
    return Range(values.min(axis=others).astype(np.float64), values.max(axis=others).astype(np.float64))
