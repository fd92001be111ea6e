"""The results of diagnosing a model that another tool quantised: findings, sentences, next steps and a table.

Next steps are written in the words of the quantiser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sgsdump.comparison.finding import Finding
from sgsdump.comparison.metrics import sqnr
from sgsdump.comparison.rules import of_changed_models
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.comparison.verdict import Verdict
from sgsdump.errors import listed
from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.quantisation.others.compared import ComparedNetworks
from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair
from sgsdump.fixedpoint.quantisation.others.quantisers import SEVEN_BITS, LeftFloat, words
from sgsdump.fixedpoint.reports.cause_sentences import output_text
from sgsdump.fixedpoint.tuning.causes import output_findings
from sgsdump.fixedpoint.tuning.exclusions import MeasuredExclusions, QuantisedError
from sgsdump.fixedpoint.tuning.kernel_loss import KernelLoss
from sgsdump.reports.report import Context, Layer, Report, report_of, with_tensors
from sgsdump.reports.text import counted, csv_text, percent
from sgsdump.reports.verdict import Step
from sgsdump.reports.verdict_data import finding_data
from sgsdump.tensors.dtypes import name_of

CAUSES = 3
MOST_NAMED = 4
SOME = 0.05  # least part of the output error that a cause causes or removes
COLUMNS = (
    *("name", "kind", "type", "alone", "left", "brings", "gives_back"),
    *("qdq_err_db", "xmodel_err_db", "weight_err_db", "nodes"),
)
NAMING = """import onnx
model = onnx.load('float.onnx')
for node in model.graph.node:
    node.name = node.name or f'node_{node.output[0]}'
onnx.save(model, 'named.onnx')"""


@dataclass(frozen=True, eq=False)
class QuantisedDiagnosis:
    """The results of a diagnosis of a model that another tool quantised.

    quantiser   tool that made the model, a key of ``quantisers.WORDS`` or "".
    left_out    names of the quantised tensors that could not be measured.
    inputs      number of inputs that outputs and layers were compared on.
    kernels     additional error of onnxruntime's default kernels; None for none.
    not_run     why onnxruntime does not run the model file; "" if it does.
    """

    pair: QuantisedPair
    networks: ComparedNetworks
    measured: MeasuredExclusions
    limits: Thresholds
    quantiser: str
    left_out: tuple[str, ...] = ()
    inputs: int = 1
    kernels: KernelLoss | None = None
    not_run: str = ""

    @property
    def good(self) -> bool:
        return self.kernels is None and self.good_as_defined

    @property
    def good_as_defined(self) -> bool:
        """Whether the outputs are good with exact kernels."""
        if self.kernels is not None:
            return self.kernels.good
        outputs = self.networks.outputs
        return bool(outputs) and all(figures.good(self.limits) for figures in outputs.values())

    @property
    def causes(self) -> tuple[QuantisedError, ...]:
        """The tensors and weights that cause a part of the output error, the largest first."""
        if self.good_as_defined:
            return ()
        measured = self.measured
        return tuple(
            error for error in measured.errors if max(measured.gives_back(error) or 0.0, measured.brings(error)) >= SOME
        )

    @property
    def left_float(self) -> LeftFloat | None:
        """The operators to keep in float; None if there are none, or if no node has a name."""
        exclusion = self.measured.exclusion
        if exclusion is None or not exclusion.names:
            return None
        names, units = set(exclusion.names), set(self.pair.units.values())
        kinds = {unit.op_type for unit in exclusion.units}
        whole = [kind for kind in sorted(kinds) if all({*u.names} <= names for u in units if u.op_type == kind)]
        tensors = [e.name for e in self.measured.errors if e.units and e.units <= set(exclusion.units)]
        return LeftFloat(exclusion.names, tuple(whole), tuple(tensors))

    @property
    def findings(self) -> tuple[Finding, ...]:
        found = [*output_findings(self.networks.outputs, self.limits)]
        if self.kernels is not None:
            figures = {"as_run": self.kernels.as_run, "precise": self.kernels.precise, "defined": self.kernels.defined}
            facts = {"reason": "kernels", "kernels": "saturating" if self.kernels.saturating else "fused"}
            found.append(Finding("cause", figures=figures, evidence="measured", facts=facts))
        for error in self.causes:
            figures = {"brings": self.measured.brings(error), "alone": error.alone}
            gives_back = self.measured.gives_back(error)
            figures |= {} if gives_back is None else {"gives_back": gives_back, "left": error.left or 0.0}
            names = tuple(unit.output for unit in error.units)
            facts = {"reason": "weight" if error.is_weight else "tensor"}
            facts |= {"bias": error.with_it[0]} if error.with_it else {}
            figures |= {} if error.factor == 1 else {"factor": error.factor}
            found.append(Finding("cause", error.name, "", figures, "measured", names, facts))
        exclusion = self.measured.exclusion
        if exclusion is not None and not self.good_as_defined:
            figures = {"error": self.measured.all_on, "error_after": exclusion.error}
            facts = {"within": "yes" if exclusion.good else "no", "quantiser": self.quantiser}
            found.append(Finding("advice", "", "", figures, "measured", exclusion.names, facts))
        for names, reason in ((self.pair.unlinked, "no float original"), (self.left_out, "its type")):
            if names:
                found.append(Finding("not judged", names[0], names=names, facts={"reason": reason}))
        if self.not_run:
            found.append(Finding("not judged", facts={"reason": "not run as it is", "error": self.not_run}))
        return of_changed_models(found)


def report_of_quantised(diagnosis: QuantisedDiagnosis, context: Context, conclusion: Verdict) -> Report:
    """Return the page: the verdict, further sentences, the operators to keep in float, and every layer."""
    compared = diagnosis.networks.compared
    context = replace(context, sample=compared.sample, benchmark=compared.benchmark, picture=compared.label)
    plain = replace(context, page_budget=0)  # values are read once the layers have their measured figures
    report = report_of(compared.comparison, diagnosis.limits, plain, steps(diagnosis), conclusion)
    causes = {error.name for error in diagnosis.causes[:CAUSES]}
    by_name = {error.name: error for error in diagnosis.measured.errors}

    def measured(layer: Layer) -> Layer:
        error = by_name.get(layer.name)
        if error is None:
            return replace(layer, rises=layer.name in causes)
        brings, gives_back = diagnosis.measured.brings(error), diagnosis.measured.gives_back(error)
        figures = replace(layer.figures, brings=brings, gives_back=gives_back)
        return replace(layer, figures=figures, rises=layer.name in causes)

    layers = tuple(map(measured, report.layers))
    view = replace(report.view, first="")
    report = replace(report, details=tuple(details(diagnosis)), layers=layers, good=diagnosis.good, view=view)
    return with_tensors(report, compared.comparison, context)


def details(diagnosis: QuantisedDiagnosis) -> Iterator[str]:
    """Yield the sentences below the first lines: outputs, further causes, and what was not judged."""
    outputs = diagnosis.networks.outputs
    if not outputs:
        yield "No float output could be compared."
    elif len(outputs) > 1 or any(finding.facts.get("reason") for finding in output_findings(outputs, diagnosis.limits)):
        found = output_findings(outputs, diagnosis.limits)
        texts = [output_text(finding) for finding in found[:MOST_NAMED]]
        more = f"; and {len(found) - len(texts)} more" if len(found) > len(texts) else ""
        yield f"Outputs on {counted(diagnosis.inputs, 'input')}: {'; '.join(texts)}{more}."
    pair, causes = diagnosis.pair, diagnosis.causes
    weights = sum(1 for weight in pair.weights if weight.real.ndim > 1)
    yield f"Quantised: {counted(len(pair.tensors), 'tensor')} and {counted(weights, 'weight')} of the float model."
    first = 0 if diagnosis.kernels is not None else 1
    if causes[first:]:
        yield f"Further causes: {'; '.join(_cause(error, diagnosis) for error in causes[first:CAUSES])}."
    elif not causes and outputs and not diagnosis.good_as_defined:
        yield "No single tensor or weight causes 5 % or more of the output error; many contribute to it."
    if pair.unlinked:
        yield (
            f"Not judged: {counted(len(pair.unlinked), 'weight')} without a counterpart of the same "
            f"shape in the float model ({listed(list(pair.unlinked), MOST_NAMED)}), for example "
            "because the quantiser merged these weights with others. Use the float model from which "
            "the quantised model was made."
        )
    if diagnosis.left_out:
        yield (
            "The contributions of these tensors were not measured, because sgsdump cannot round to their types: "
            f"{listed(list(diagnosis.left_out), MOST_NAMED)}."
        )
    if diagnosis.not_run:
        yield (f"The error that onnxruntime's default kernels add could not be measured: {diagnosis.not_run}.")


def _kernel_steps(kernels: KernelLoss, quantiser: str) -> Iterator[Step]:
    session = "onnxruntime.InferenceSession(..., options)"
    if kernels.saturating:
        yield Step(
            f"Use kernels of onnxruntime that do not saturate, which are slower. The output error is then "
            f"{kernels.precise:.3g}.",
            "options = onnxruntime.SessionOptions()\n"
            f'options.add_session_config_entry("session.x64quantprecision", "1")\n{session}',
        )
        yield Step(
            "Or quantise with uint8 or 7-bit weights, for processors without VNNI. The effect was not measured; 7 bits "
            "increase the quantisation error.",
            SEVEN_BITS.get(quantiser, ""),
        )
        return
    yield Step(
        f"Run the model without graph optimisation to compute its operators as defined. The output error is then "
        f"{kernels.defined:.3g}.",
        "options = onnxruntime.SessionOptions()\n"
        f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL\n{session}",
    )


def _cause(error: QuantisedError, diagnosis: QuantisedDiagnosis) -> str:
    what = f"weight {error.name}" if error.is_weight else f"tensor {error.name}"
    if error.is_weight and error.sqnr is not None:
        what += f" (SQNR {error.sqnr:.1f} dB)"
    if error.with_it:
        what += f" with its bias {error.with_it[0]}"
    back, brings = diagnosis.measured.gives_back(error), percent(diagnosis.measured.brings(error))
    text = f"{what} causes {brings}"
    return text if back is None else f"{text}; keeping it in float removes {percent(max(back, 0.0))}"


def steps(diagnosis: QuantisedDiagnosis) -> Iterator[Step]:
    """Yield the next steps, with the lines to copy."""
    measured, exclusion = diagnosis.measured, diagnosis.measured.exclusion
    if diagnosis.kernels is not None:
        yield from _kernel_steps(diagnosis.kernels, diagnosis.quantiser)
    if diagnosis.good_as_defined:
        after = "With these kernels, no" if diagnosis.kernels is not None else "No"
        yield Step(f"{after} operator needs to stay in float: no output has {diagnosis.limits}.")
        return
    if exclusion is None:
        yield Step(
            "Keeping a few operators in float does not help. Try more or other calibration data, another calibration "
            "method, one weight scale per channel, or 16-bit activations."
        )
        return
    if exclusion.unnamed:
        yield Step(
            f"Nodes without a name cannot be excluded ({listed(list(exclusion.unnamed), MOST_NAMED)}). Name them, "
            f"quantise the named model, and diagnose that model.",
            NAMING,
        )
    left = diagnosis.left_float
    if left is None:
        return
    state = "within the limits" if exclusion.good else f"still {diagnosis.limits}"
    who = diagnosis.quantiser or "onnxruntime; the model does not name its quantiser"
    yield Step(
        f"Keep {counted(len(left.nodes), 'node')} in float and quantise again ({who}). Expected output error "
        f"{measured.all_on:.3g} → {exclusion.error:.3g}, {state} (measured on {counted(measured.inputs, 'input')} by "
        f"inserting the quantised tensors into the float model).",
        words(diagnosis.quantiser, left),
    )
    yield Step(
        "Diagnose the new model. If its number of quantised tensors is unchanged, the names matched no node; "
        "quantisers ignore unknown names.",
        "sgsdump diagnose -m float.onnx -i inputs --fixed quantised_again.onnx",
    )


def quantised_csv(diagnosis: QuantisedDiagnosis) -> str:
    """Return one line per quantised tensor and weight, worst first; decibels as in onnxruntime's qdq_loss_debug."""
    return csv_text(COLUMNS, list(_lines(diagnosis)))


def _lines(diagnosis: QuantisedDiagnosis) -> Iterator[dict[str, Any]]:
    measured = diagnosis.measured
    rows = {row.name: row for row in diagnosis.networks.compared.comparison}
    tensors = {tensor.name: tensor for tensor in diagnosis.pair.tensors}
    by_name = {error.name: error for error in measured.errors}
    weights = {weight.name: weight for weight in diagnosis.pair.weights}
    for name in [*by_name, *(name for name in (*tensors, *weights) if name not in by_name)]:
        error, line = by_name.get(name), dict[str, Any]()
        if error is not None:
            line = {"alone": error.alone, "left": error.left, "brings": measured.brings(error)}
            line["gives_back"] = measured.gives_back(error)
        units = (tensors[name] if name in tensors else weights[name]).units
        line |= {"name": name, "nodes": " ".join(sorted({n for unit in units for n in unit.names if n}))}
        if name in weights:
            line |= {"kind": "weight", "weight_err_db": weights[name].sqnr}
        else:
            quant = tensors[name].quant
            row = rows.get(name)
            line |= {"kind": "tensor", "type": name_of(quant.dtype) if quant and quant.dtype else "dynamic"}
            line["qdq_err_db"] = diagnosis.networks.before_after.get(name)
            is_input = name in diagnosis.pair.float.graph.inputs  # the same for both networks
            line["xmodel_err_db"] = line["qdq_err_db"] if is_input else None
            if row is not None and row.sums is not None:
                line["xmodel_err_db"] = sqnr(row.sums)
        yield {column: "" if line.get(column) is None else line[column] for column in COLUMNS}


def with_findings(text: str, diagnosis: QuantisedDiagnosis) -> str:
    """Add the findings, and every quantised tensor and weight, to the JSON of a comparison."""
    document: dict[str, Any] = json.loads(text)
    document["findings"] = [finding_data(finding) for finding in diagnosis.findings]
    document["quantised"] = [{k: None if v == "" else v for k, v in line.items()} for line in _lines(diagnosis)]
    return json_text(document)


def attributes_of_units(pair: QuantisedPair) -> Mapping[str, Mapping[str, str]]:
    """Return, for the page, the nodes of the float model that keep each tensor quantised."""
    return {
        tensor.name: {"excluded with": ", ".join(sorted({n or u.output for u in tensor.units for n in u.names}))}
        for tensor in pair.tensors
        if tensor.units
    }
