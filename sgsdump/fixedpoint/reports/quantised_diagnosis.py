"""What diagnose says of a network that others quantised.

The outputs, what their error comes from, and what to leave float in the words of the quantiser: as sentences, as
findings, and as a table of every quantised tensor and weight.
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
from sgsdump.errors import listed
from sgsdump.files.json_yaml import json_text
from sgsdump.fixedpoint.quantisation.others.compared import ComparedNetworks
from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair
from sgsdump.fixedpoint.quantisation.others.quantisers import SEVEN_BITS, LeftFloat, words
from sgsdump.fixedpoint.reports.cause_sentences import output_text
from sgsdump.fixedpoint.tuning.causes import output_findings
from sgsdump.fixedpoint.tuning.exclusions import MeasuredExclusions, QuantisedError
from sgsdump.fixedpoint.tuning.kernel_loss import KernelLoss
from sgsdump.reports.report import Context, Layer, Report, report_of
from sgsdump.reports.text import counted, csv_text, percent
from sgsdump.reports.verdict import Step
from sgsdump.reports.verdict_data import finding_data
from sgsdump.tensors.dtypes import name_of

CAUSES = 3
MOST_NAMED = 4
SOME = 0.05  # of the outputs' error, what a cause brings or gives back
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
    """quantiser   who made the model, a key of ``quantisers.WORDS`` or "".
    left_out    quantised tensors that could not be measured, by name.
    inputs      on how many inputs outputs and layers were compared.
    kernels     what onnxruntime loses besides as it runs the model by default; None for nothing.
    not_run     why onnxruntime does not run the model's file as it is; "" where it does.
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
        """As the model's operators say, whatever kernels run it."""
        if self.kernels is not None:
            return self.kernels.good
        outputs = self.networks.outputs
        return bool(outputs) and all(figures.good(self.limits) for figures in outputs.values())

    @property
    def causes(self) -> tuple[QuantisedError, ...]:
        """The tensors and weights that bring or give back some of the outputs' error, the worst first."""
        if self.good_as_defined:
            return ()
        measured = self.measured
        return tuple(
            error for error in measured.errors if max(measured.gives_back(error) or 0.0, measured.brings(error)) >= SOME
        )

    @property
    def left_float(self) -> LeftFloat | None:
        """What is proposed to stay float; None where nothing is, or where no node has a name."""
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
            reason = "weight" if error.is_weight else "tensor"
            figures |= {} if error.factor == 1 else {"factor": error.factor}
            found.append(Finding("cause", error.name, "", figures, "measured", names, {"reason": reason}))
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


def report_of_quantised(diagnosis: QuantisedDiagnosis, context: Context) -> Report:
    """The outputs first, then what their error comes from, what to leave float, and every layer."""
    compared = diagnosis.networks.compared
    context = replace(context, sample=compared.sample, benchmark=compared.benchmark)
    report = report_of(compared.comparison, diagnosis.limits, context, steps(diagnosis))
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
    return replace(report, verdict=tuple(verdict(diagnosis)), layers=layers, good=diagnosis.good, view=view)


def verdict(diagnosis: QuantisedDiagnosis) -> Iterator[str]:
    """The outputs, what their error comes from, and what was not judged."""
    outputs = diagnosis.networks.outputs
    if not outputs:
        yield "No output of floats could be compared."
    else:
        found = output_findings(outputs, diagnosis.limits)
        texts = [output_text(finding) for finding in found[:MOST_NAMED]]
        more = f"; and {len(found) - len(texts)} more" if len(found) > len(texts) else ""
        yield f"Outputs on {counted(diagnosis.inputs, 'input')}: {'; '.join(texts)}{more}."
    if diagnosis.kernels is not None:
        yield _kernel_text(diagnosis.kernels)
    pair, causes = diagnosis.pair, diagnosis.causes
    weights = sum(1 for weight in pair.weights if weight.real.ndim > 1)
    yield f"Quantised: {counted(len(pair.tensors), 'tensor')} and {counted(weights, 'weight')} of the float network."
    if causes:
        yield f"{_cause(causes[0], diagnosis)}."
        if causes[1:]:
            yield f"Then come {'; '.join(_cause(error, diagnosis, short=True) for error in causes[1:CAUSES])}."
    elif outputs and not diagnosis.good_as_defined:
        yield "No tensor or weight by itself brings a twentieth of the outputs' error: it adds up from many."
    if pair.unlinked:
        yield (
            f"Not judged: {counted(len(pair.unlinked), 'weight')} whose float original is not in the float network, as "
            f"where it was folded before quantising ({listed(list(pair.unlinked), MOST_NAMED)}); give the network that "
            f"was quantised."
        )
    if diagnosis.left_out:
        yield f"Not measured by themselves, for their type: {listed(list(diagnosis.left_out), MOST_NAMED)}."
    if diagnosis.not_run:
        yield f"Not judged, how onnxruntime runs the file by default: {diagnosis.not_run}."


def _kernel_text(kernels: KernelLoss) -> str:
    text = (
        f"As onnxruntime runs the model by default, the outputs' error on this processor is {kernels.as_run:.4f}, "
        f"where the model's operators make it {kernels.least:.4f}"
    )
    if kernels.saturating:
        return (
            f"{text}: the kernels of 8-bit products add two of them in 16 bits, which saturate, as on processors "
            f"without VNNI."
        )
    return f"{text}: operators that were fused compute other values."


def _kernel_steps(kernels: KernelLoss, quantiser: str) -> Iterator[Step]:
    session = "onnxruntime.InferenceSession(..., options)"
    if kernels.saturating:
        yield Step(
            "For processors without VNNI quantise with weights of 7 bits, or of uint8.", SEVEN_BITS.get(quantiser, "")
        )
        yield Step(
            f"Or let onnxruntime take kernels that do not saturate, at some speed: the outputs' error is "
            f"{kernels.precise:.4f} with them.",
            "options = onnxruntime.SessionOptions()\n"
            f'options.add_session_config_entry("session.x64quantprecision", "1")\n{session}',
        )
        return
    yield Step(
        f"Run the model without fusing to have what its operators say: the outputs' error is {kernels.defined:.4f} "
        f"then.",
        "options = onnxruntime.SessionOptions()\n"
        f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL\n{session}",
    )


def _cause(error: QuantisedError, diagnosis: QuantisedDiagnosis, short: bool = False) -> str:
    what = f"the weight {error.name}" if error.is_weight else error.name
    if error.is_weight and error.sqnr is not None:
        scale = "" if error.factor == 1 else f"; its integers mean {error.factor:.3g} times its floats: a wrong scale"
        what += f" (signal to noise {error.sqnr:.1f} dB{scale})"
    if error.with_it:
        what += f" with its bias {error.with_it[0]}"
    back, brings = diagnosis.measured.gives_back(error), percent(diagnosis.measured.brings(error))
    if short:
        return f"{what} ({brings} alone{'' if back is None else f', {percent(max(back, 0.0))} back'})"
    text = f"Most of the outputs' error comes with {what}: quantised alone it makes {brings} of it"
    return text if back is None else f"{text}, left float it takes {percent(max(back, 0.0))} away"


def steps(diagnosis: QuantisedDiagnosis) -> Iterator[Step]:
    """What to do, ready to paste."""
    measured, exclusion = diagnosis.measured, diagnosis.measured.exclusion
    if diagnosis.kernels is not None:
        yield from _kernel_steps(diagnosis.kernels, diagnosis.quantiser)
    if diagnosis.good_as_defined:
        so = "run so, " if diagnosis.kernels is not None else ""
        yield Step(f"Nothing has to stay float: {so}no output has {diagnosis.limits}.")
        return
    if exclusion is None:
        yield Step(
            "No few operators left float would help: look at the ranges (more or other calibration data, another "
            "method), at weights per channel, or at 16 bits for activations."
        )
        return
    if exclusion.unnamed:
        yield Step(
            f"Nodes without a name cannot be excluded ({listed(list(exclusion.unnamed), MOST_NAMED)}): name them, "
            f"quantise the named model, and diagnose that.",
            NAMING,
        )
    left = diagnosis.left_float
    if left is None:
        return
    state = "within the limits" if exclusion.good else f"still {diagnosis.limits}"
    who = diagnosis.quantiser or "onnxruntime, as the model does not say who made it"
    yield Step(
        f"Leave {counted(len(left.nodes), 'node')} float and quantise again ({who}): the outputs' error is to go "
        f"from {measured.all_on:.4f} to {exclusion.error:.4f}, {state} (measured on "
        f"{counted(measured.inputs, 'input')}, with the quantised tensors put into the float network).",
        words(diagnosis.quantiser, left),
    )
    yield Step(
        "See whether it took effect: names that match nothing are ignored without a word.",
        "sgsdump compare AFTER.bin BEFORE.bin",
    )


def quantised_csv(diagnosis: QuantisedDiagnosis) -> str:
    """A line for each quantised tensor and weight, the worst first; decibels as onnxruntime's qdq_loss_debug."""
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
    """The JSON of a comparison with the findings, and every quantised tensor and weight."""
    document: dict[str, Any] = json.loads(text)
    document["findings"] = [finding_data(finding) for finding in diagnosis.findings]
    document["quantised"] = [{k: None if v == "" else v for k, v in line.items()} for line in _lines(diagnosis)]
    return json_text(document)


def attributes_of_units(pair: QuantisedPair) -> Mapping[str, Mapping[str, str]]:
    """For the page: which nodes of the float model keep a tensor quantised."""
    return {
        tensor.name: {"excluded with": ", ".join(sorted({n or u.output for u in tensor.units for n in u.names}))}
        for tensor in pair.tensors
        if tensor.units
    }
