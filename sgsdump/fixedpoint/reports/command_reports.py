"""The report of ``diagnose``, and facts of a model that the reports of ``tune`` show too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.merge import Compared
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.comparison.verdict import Verdict
from sgsdump.fixedpoint.quantisation import quant_plan
from sgsdump.fixedpoint.quantisation.analysis import Analysis
from sgsdump.fixedpoint.quantisation.diagnosis.share import ConvolutionBits, bits_by_layer, float_layers, integer_share
from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.objective import left_out_outputs, watched_by_output
from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs, within_a_step
from sgsdump.fixedpoint.reports.diagnosis import (
    FIXED,
    LEVEL,
    QUANT_FILE,
    RULE,
    YOU,
    Diagnosis,
    LayerReach,
    PastLayers,
    details,
    steps,
)
from sgsdump.fixedpoint.reports.root_causes import Righted
from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice
from sgsdump.models.fixed_facts import FixedFacts, read_facts
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model, read_stages
from sgsdump.reports.report import (
    BLOB,
    IN_FLOAT,
    PLAIN,
    Bits,
    Context,
    Layer,
    Report,
    other_run,
    report_of,
    with_tensors,
)

LONGEST_ATTRIBUTE = 60
WITHIN = "the error is within the 8-bit resolution of its range"


def report_of_diagnosis(
    subject: Subject,
    compared: Compared,
    diagnosis: Diagnosis,
    context: Context = PLAIN,
    conclusion: Verdict | None = None,
) -> Report:
    """Return the page: the verdict, further sentences, the next steps, and every layer with its measured figures."""
    context = replace(context, ranges=subject.ranges, bits=diagnosis.bits)
    context = _with_model(context, subject.float_model, compared)
    comparison = compared.comparison
    plain = replace(context, page_budget=0)  # values are read once the layers have their measured figures
    report = report_of(comparison, diagnosis.limits, plain, steps(diagnosis), conclusion)
    layers = _with_measured(report.layers, diagnosis)
    good = (
        diagnosis.good and bool(diagnosis.share.convolutions) and (conclusion is None or conclusion.outcome != "FAIL")
    )
    other = None if diagnosis.with_advice is None else other_run(_with_what(diagnosis), diagnosis.with_advice)
    view = replace(report.view, first="", other=other)
    report = replace(report, details=details(diagnosis, comparison), layers=layers, good=good, view=view)
    return with_tensors(report, comparison, context)


def _with_what(diagnosis: Diagnosis) -> str:
    """Return how the second run of the page differs from the first."""
    root = diagnosis.root
    if root is None:
        return "with the recommendation"
    advised = root.advice is not None and root.advice.promise is not None
    return "with the cause corrected" + (" and the plan" if advised else "")


def diagnosed(
    subject: Subject,
    outputs: PlanOutputs,
    advice: MeasuredAdvice | None,
    compared: Compared,
    limits: Thresholds,
    root: Righted | None = None,
) -> Diagnosis:
    """Return the results of a diagnosis."""
    facts = read_facts(subject.fixed_model)
    proto = deployed(subject.float_model)
    stored = facts.tensors if facts else {}
    comparison, layers = compared.comparison, {}
    for row in comparison.rows:
        tensor, reach = stored.get(row.name), subject.ranges.get(row.name)
        if tensor is not None and row.sums is not None and row.details is not None and reach is not None:
            wide = reach.at(INT16)
            span = max(wide.high - wide.low, *(float(end) for end in np.diff(row.details.edges)))
            largest = row.details.largest_error
            within = within_a_step(row.sums, largest, float(tensor.quant.scale), span)
            layers[row.name] = LayerReach(span, largest, within)
    left_out = left_out_outputs(proto, outputs.outputs)
    masks = {name for name, measured in subject.ranges.items() if measured.uncut is not None}
    # The Softmax after these tensors decides, and its probabilities are good.
    masks |= {name for name, judged in outputs.outputs.items() if judged.probabilities and judged.good(limits)}
    past = tuple(
        row.name
        for row in comparison.past(limits)
        if row.name not in {*left_out, *masks} and (row.name not in layers or not layers[row.name].resolution)
    )
    found = advice.causes if advice is not None else ()
    labels = {name: f"{name} (for {output})" for output, name in watched_by_output(proto).items() if name != output}
    return Diagnosis(
        outputs,
        advice,
        limits,
        integer_share(subject.float_model, facts),
        _bits(subject, advice, advice if root is None else root.advice),
        labels,
        left_out,
        layers,
        PastLayers(
            past,
            sum(row.name not in {*left_out, *masks} for row in comparison.rows),
            _fed_by(Graph(proto), found[0].facts["input"]) if found else frozenset(),
        ),
        tuple(_misread(subject, Graph(proto), [*outputs.outputs])),
        root,
    )


def _misread(subject: Subject, graph: Graph, outputs: Sequence[str]) -> Iterator[Finding]:
    """Yield the Softmaxes whose readers misinterpret their values, if an output depends on them."""
    for name, factor in subject.misread.items():
        fed = _fed_by(graph, name) - {name}
        names = tuple(output for output in outputs if output in fed)
        if names:
            facts = {"input": graph.producer[name].input[0], "reason": "misread"}
            yield Finding("cause", name, "SOFTMAX", {"factor": factor}, names=names, facts=facts)


def _fed_by(graph: Graph, name: str) -> frozenset[str]:
    """Return the tensors that depend on this tensor, including itself."""
    fed = {name}
    for node in graph.nodes:
        if fed & set(node.input):
            fed.update(node.output)
    return frozenset(fed)


def _bits(subject: Subject, advice: MeasuredAdvice | None, advised: MeasuredAdvice | None) -> dict[str, Bits]:
    """Return, by layer, the bits of each convolution, who raised it, and whether the recommendation raises it."""
    own = subject.config.tensor_arrays
    by_file, analysis = {*subject.config.by_quant_file}, advice.measured.analysis if advice is not None else None
    words = RaisedInputs(analysis).inputs_of(own) if analysis is not None and own else own
    users = {_switch(analysis, name) for name in words}
    everything = (subject.config.conv_format or "") not in ("", "ALL_UINT8")
    names = advised.promise.names if advised is not None and advised.promise is not None else ()
    raised = {_switch(analysis, name) for name in names}

    def who(of: ConvolutionBits) -> str:
        of_user = (everything or _switch(analysis, of.input) in users) and of.input not in by_file
        words = {quant_plan.RULE: RULE, quant_plan.LEVEL: LEVEL, quant_plan.QUANT_FILE: QUANT_FILE}
        return words.get(of.raised_by) or (YOU if of_user else FIXED)

    facts = read_facts(subject.fixed_model)
    return _float_bits(subject.float_model, facts) | {
        layer: Bits(
            of.input,
            of.bits,
            who(of) if of.bits == 16 else "",
            of.rule,
            of.bits == 8 and _switch(analysis, of.input) in raised,
        )
        for layer, of in bits_by_layer(facts).items()
    }


def _float_bits(model: Model, facts: FixedFacts | None) -> dict[str, Bits]:
    return {layer: Bits(read, IN_FLOAT) for layer, read in float_layers(model, facts).items()}


def bits_by(model: Model, fixed: Model, who: str, yours: Sequence[str] = ()) -> dict[str, Bits]:
    """Return, by layer, the bits of each convolution of a fixed model, and who raised it.

    ``who`` chose the plan, except for the inputs in ``yours``.
    """
    words = {quant_plan.RULE: RULE, quant_plan.LEVEL: LEVEL, quant_plan.QUANT_FILE: QUANT_FILE}

    def raised_by(of: ConvolutionBits) -> str:
        return words.get(of.raised_by) or (YOU if of.input in yours else who)

    facts = read_facts(fixed)
    return _float_bits(model, facts) | {
        layer: Bits(of.input, of.bits, raised_by(of) if of.bits == 16 else "", of.rule)
        for layer, of in bits_by_layer(facts).items()
    }


def _switch(analysis: Analysis | None, name: str) -> str:
    return name if analysis is None else analysis.switch(name)


def attributes_of(model: Model) -> dict[str, dict[str, str]]:
    """Return, by name of each tensor, its node's name, attributes and shapes of weights as text.

    For a Caffe model, also the blob that the tensor is a stage of, and the layer that made it.
    """
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
    context = replace(context, sample=compared.sample, benchmark=compared.benchmark, picture=compared.label)
    return replace(context, attributes=attributes_of(model))


def _with_measured(layers: Sequence[Layer], diagnosis: Diagnosis) -> tuple[Layer, ...]:
    """Return the layers with the measured figures of their convolutions; causes are marked in place of rises."""
    columns = diagnosis.measured
    if diagnosis.advice is None:
        return tuple(replace(layer, rises=layer.rises and diagnosis.blames_layers) for layer in layers)
    stored = diagnosis.advice.measured.layers
    named = {stored[name] for finding in diagnosis.causes for name in finding.names if name in stored}

    def measured(layer: Layer) -> Layer:
        own = columns.get(layer.name, {})
        figures = replace(
            layer.figures,
            own_error=own.get("own"),
            inherited=own.get("inherited"),
            in_all=own.get("in_all"),
            brings=own.get("brings"),
            gives_back=own.get("gives_back"),
        )
        within = layer.name in diagnosis.resolution and layer.verdict == "fail"
        return replace(
            layer,
            figures=figures,
            rises=layer.name in named,
            verdict="pass" if within else layer.verdict,
            note="; ".join(filter(None, [layer.note, WITHIN if within else ""])),
        )

    return tuple(map(measured, layers))


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
