"""The result of ``diagnose``: further sentences and next steps, the findings, and measured figures of each layer.

``diagnosis_verdict.py`` and ``reports/three_lines.py`` make the first lines of the verdict.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.row import Row
from sgsdump.comparison.rules import of_changed_models
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.comparison.verdict import TUNE
from sgsdump.errors import listed
from sgsdump.files.json_yaml import json_text, strict
from sgsdump.fixedpoint.quantisation.diagnosis.share import IntegerShare, share_text
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.quantisation.tensor_arrays import wider
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
from sgsdump.fixedpoint.reports.cause_sentences import (
    conv_config,
    further_lines,
    int16_is_not_enough,
    layers_text,
    output_text,
)
from sgsdump.fixedpoint.reports.measured_cause import cause_text, remedy_text
from sgsdump.fixedpoint.reports.root_causes import A_SCALE_PER_CHANNEL, Righted, told_config, what_to_do
from sgsdump.fixedpoint.reports.unseen import OF_CALIBRATION, unseen_findings, unseen_text
from sgsdump.fixedpoint.reports.worth import not_recommended, worth_findings, worth_lines
from sgsdump.fixedpoint.tuning.advice import MAYBE
from sgsdump.fixedpoint.tuning.causes import layers_finding, output_findings
from sgsdump.fixedpoint.tuning.examined import IN_NETWORK, WEIGHTS
from sgsdump.fixedpoint.tuning.measured_advice import MeasuredAdvice, Promise
from sgsdump.fixedpoint.tuning.unseen import Unseen
from sgsdump.fixedpoint.tuning.worth import AS_IT_IS, PLAN, Worths
from sgsdump.reports.report import Bits
from sgsdump.reports.text import counted, csv_text, percent
from sgsdump.reports.verdict import Step
from sgsdump.reports.verdict_data import finding_data

MOST_NAMED = 4
# Who raised an input.
YOU, QUANT_FILE, LEVEL = "you", "the quant file", "the calibration level"
FIXED, RULE = "the fixed model", "rules of the SDK"
# A step before INT16; not repeated after the steps of a cure.
TRY_CURE = Step("Before INT16, add --cure: rewriting the model may recover the loss in INT8 (docs/cure.md).")
MEASURED = ("own", "inherited", "in_all", "brings", "gives_back")
# Columns of a layer beside the figures of the comparison.
COLUMNS = (
    *("bits", "raised_by", "advised_bits", *MEASURED, "reaches", "largest_error", "resolution"),
    *("advised_rmse", "advised_cos", "advised_mse"),
)


@dataclass(frozen=True)
class LayerReach:
    """The reach and the error of a layer over all images.

    reaches        width of its range.
    largest_error  largest error.
    resolution     whether the error is within the resolution of 8 bits or of the layer's own type.
    """

    reaches: float
    largest_error: float
    resolution: bool


@dataclass(frozen=True)
class PastLayers:
    """The layers that exceed the limits.

    names  layers beyond the limits and beyond the resolution of their type.
    count  number of compared layers.
    after  layers that the input of the first cause feeds.
    """

    names: tuple[str, ...] = ()
    count: int = 0
    after: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Tried:
    """Runs that show the effect of the recommendation.

    layers  comparison with the recommendation applied; None without a recommendation.
    worths  results by the user's metric and on held-out images, if requested.
    unseen  results on held-out images; None without held-out images.
    """

    layers: Comparison | None = None
    worths: Worths | None = None
    unseen: Unseen | None = None


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The results of a diagnosis of a fixed model.

    outputs     outputs on all images; ``labels`` of outputs that are judged by another tensor.
    advice      measured plan; None if nothing could be measured.
    bits        bits of the convolutions, by layer.
    left_out    outputs that were not judged, and why.
    layers      reach and largest error of each layer, by name.
    misread     a finding for each Softmax whose readers misinterpret its values.
    root        cause that must be corrected before any INT16, and the results after the correction.
    tried       runs that show the effect of the recommendation.
    """

    outputs: PlanOutputs
    advice: MeasuredAdvice | None
    limits: Thresholds
    share: IntegerShare
    bits: Mapping[str, Bits]
    labels: Mapping[str, str]
    left_out: Mapping[str, str]
    layers: Mapping[str, LayerReach] = field(default_factory=dict)
    past: PastLayers = PastLayers()
    misread: tuple[Finding, ...] = ()
    root: Righted | None = None
    tried: Tried = Tried()

    @property
    def with_advice(self) -> Comparison | None:
        """The layers with the recommendation applied."""
        return self.tried.layers

    @property
    def advises_change(self) -> bool:
        """Whether the recommendation is more than wider INT16 ranges."""
        advice = self.advice if self.root is None else self.root.advice
        return self.root is not None or (advice is not None and (advice.promise or advice.per_channel) is not None)

    @property
    def advises_level(self) -> bool:
        """Whether a level with one weight scale per output channel is recommended."""
        if self.root is not None:
            return self.root.finding.facts["reason"] == WEIGHTS
        return self.advice is not None and self.advice.per_channel is not None

    @property
    def worths(self) -> Worths | None:
        return self.tried.worths

    @property
    def calibrated_here(self) -> bool:
        """Whether this diagnosis calibrated the ranges."""
        return self.advice is not None and self.advice.measured.subject.made is not None

    @property
    def worse_unseen(self) -> tuple[str, ...]:
        """The outputs that the plan makes worse on held-out images."""
        if self.unseen is None or not self.unseen.folds or PLAN not in self.unseen.ran:
            return ()
        return self.unseen.ran[PLAN].worse_than(self.unseen.ran[AS_IT_IS])

    @property
    def raised_by(self) -> dict[str, list[str]]:
        """The inputs of convolutions at INT16, by who raised them."""
        by: dict[str, dict[str, None]] = {who: {} for who in (YOU, QUANT_FILE, LEVEL, FIXED, RULE)}
        for bits in self.bits.values():
            if bits.now == 16:
                by[bits.raised_by][bits.input] = None
        return {who: list(names) for who, names in by.items()}

    @property
    def resolution(self) -> frozenset[str]:
        """The layers whose error is within the resolution of their type."""
        return frozenset(name for name, layer in self.layers.items() if layer.resolution)

    @property
    def passes(self) -> bool:
        """Whether no layer exceeds the limits, and no output does on held-out images."""
        return (self.good or not self.outputs.outputs) and not self.past.names and self.holds

    @property
    def holds(self) -> bool:
        """Whether the outputs of the unchanged model are within the limits on held-out images too."""
        return self.unseen is None or self.unseen.ran[AS_IT_IS].good(self.limits)

    @property
    def unseen(self) -> Unseen | None:
        return self.tried.unseen

    @property
    def blames_layers(self) -> bool:
        """False if the cause is outside the model: in the images, their normalisation or the calibration data."""
        return self.root is None or self.root.finding.facts["reason"] in IN_NETWORK

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The convolutions where the error arises; empty if the cause is outside the model."""
        return tuple(self.advice.causes) if self.advice is not None and self.blames_layers else ()

    @property
    def sources(self) -> tuple[Finding, ...]:
        """The findings on where the output error comes from; empty if the cause is outside the model."""
        return tuple(self.advice.sources) if self.advice is not None and (self.blames_layers or self.good) else ()

    @property
    def good(self) -> bool:
        return bool(self.outputs.outputs) and self.outputs.good(self.limits)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: outputs, causes, recommendation, and what was not judged."""
        found = [*output_findings(self.outputs.outputs, self.limits)]
        root, advice = self.root, self.advice
        found += [] if root is None else [root.finding]
        found += self.sources
        found += () if self.good else self.misread
        layers = layers_finding(self.past.names, self.past.count, self.causes, self.past.after, self.good)
        found += [layers] if layers is not None else []
        found += worth_findings(self.worths) if self.worths is not None else ()
        found += unseen_findings(self.unseen, self.limits) if self.unseen is not None else ()
        advised = advice if root is None else root.advice
        if advised is not None and advised.promise is not None:
            advice, promise = advised, advised.promise
            errors = {"error": output_error(advice.outputs.sums), "error_after": promise.error}
            errors |= {"foreseen": promise.foreseen, "found_where_foreseen": promise.found, "rate": promise.rate}
            if advice.smaller is not None:
                errors |= {"smaller_error": advice.smaller.error, "smaller_rate": advice.smaller.rate}
            facts = {"within": "yes" if promise.outputs.good(self.limits) else "no"}
            names = advice.config_names
            found.append(Finding("advice", "", "", errors, "measured", names, facts))
        if root is None and advice is not None and advice.per_channel is not None:
            errors = {"error": _error_before_channels(advice), "error_after": output_error(advice.per_channel.sums)}
            facts = {"within": "yes" if advice.per_channel.good(self.limits) else "no", "reason": "weights per channel"}
            found.append(Finding("advice", "", "", errors, "measured", (), facts))
        for name, reason in self.left_out.items():
            found.append(Finding("not judged", name, facts={"reason": reason}))
        if not self.share.whole or self.share.weights is None:
            figures = {"weights": self.share.weights or 0.0}
            figures |= {"macs": self.share.macs} if self.share.macs is not None else {}
            kinds = tuple(self.share.floats)
            found.append(Finding("not judged", figures=figures, names=kinds, facts={"reason": "stayed in float"}))
        return of_changed_models(found)

    @property
    def columns(self) -> dict[str, dict[str, Any]]:
        """Further columns by layer: bits, measured figures, reach, and the figures with the recommendation applied."""
        columns = {name: _bits_columns(bits) for name, bits in self.bits.items()}
        after = () if self.with_advice is None else self.with_advice.rows
        found = (
            self.measured.items(),
            ((name, asdict(reach)) for name, reach in self.layers.items()),
            ((row.name, {"advised_rmse": row.rmse, "advised_cos": row.cos, "advised_mse": row.mse}) for row in after),
        )
        for name, further in itertools.chain(*found):
            columns[name] = columns.get(name, {}) | further
        return columns

    @property
    def measured(self) -> dict[str, dict[str, float]]:
        """Measured figures of the convolution in each layer, by layer."""
        if self.advice is None:
            return {}
        layers = self.advice.measured.layers
        by_name = {entry.convolution.name: entry.measured for entry in self.advice.advice}
        columns: dict[str, dict[str, float]] = {}
        for sensitivity in self.advice.measured.measurement.sensitivities:
            for name in sensitivity.own:
                entry = by_name.get(name)
                values = (sensitivity.own[name], sensitivity.inherited[name], sensitivity.in_all.get(name))
                shares = (entry.brings_share, entry.gives_back) if entry is not None else (None, None)
                pairs = zip(MEASURED, (*values, *shares))
                columns[layers[name]] = {key: value for key, value in pairs if value is not None}
        return columns


def details(diagnosis: Diagnosis, comparison: Comparison) -> tuple[str, ...]:
    """Return the sentences below the first lines: outputs, held-out images, causes, layers, and what was not judged."""
    outputs = _on_outputs(diagnosis)
    worth = () if diagnosis.worths is None else worth_lines(diagnosis.worths)
    where, layers = _where(diagnosis, comparison), _on_layers(diagnosis, comparison)
    return (*outputs, *worth, *_on_unseen(diagnosis), *where, *layers, *_on_metric(diagnosis), *_on_integers(diagnosis))


def _on_unseen(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the expected error on new images, or that the figures apply to the calibration images only."""
    unseen = diagnosis.unseen
    if unseen is None:
        if diagnosis.calibrated_here and diagnosis.outputs.outputs:
            yield f"{OF_CALIBRATION[0].upper()}{OF_CALIBRATION[1:]}."
        return
    kind = PLAN if PLAN in unseen.ran else AS_IT_IS
    found, before = unseen.expected(kind), unseen.expected(AS_IT_IS)
    change = f"{before.expected:.3g}"
    if kind == PLAN:
        what = "with the recommendation" if diagnosis.advises_change else "with wider INT16 ranges"
        change += f" for the unchanged model → {found.expected:.3g} {what}"
    yield f"Expected output error on new images: {change} ({unseen_text(found, unseen.folds)})."
    if unseen.folds and diagnosis.good and not diagnosis.holds:
        yield "On held-out images an output exceeds the limits; on the calibration images no output does."


def _on_metric(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield a pointer to --metric if an output is bad: bad is a distance, not an accuracy."""
    if diagnosis.worths is None and diagnosis.outputs.outputs and not diagnosis.good:
        yield "A bad output has a COS or RMSE outside its limit. To measure the loss of accuracy, add --metric."


def _on_outputs(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield all outputs, if there are several or if one was judged by another figure than COS and RMSE."""
    outputs, images = diagnosis.outputs.outputs, len(diagnosis.outputs.pictures)
    if not outputs:
        yield "No output could be judged."
        return
    found = output_findings(outputs, diagnosis.limits)
    if len(found) == 1 and "reason" not in found[0].facts:
        return
    bad = [finding for finding in found if finding.facts["verdict"] == "bad"]
    shown = [*bad, *(finding for finding in found if finding not in bad)]
    texts = [output_text(finding, diagnosis.labels) for finding in shown[:MOST_NAMED]]
    more = len(shown) - len(texts)
    further = f"; and {more} more, {'good' if len(bad) <= len(texts) else f'{len(bad) - len(texts)} of them bad'}"
    yield f"Outputs on {counted(images, 'image')}: {'; '.join(texts)}{further if more else ''}."


def _where(diagnosis: Diagnosis, comparison: Comparison) -> Iterator[str]:
    """Yield what is known of the cause beyond the first lines."""
    found = diagnosis.sources
    if not diagnosis.good and diagnosis.root is None and diagnosis.outputs.outputs:
        for softmax in diagnosis.misread[1:] if not found else diagnosis.misread:
            yield f"Also: {cause_text(softmax)}."
        if diagnosis.advice is not None and diagnosis.advice.per_channel is not None:
            of, after = _error_before_channels(diagnosis.advice), output_error(diagnosis.advice.per_channel.sums)
            with_plan = ", together with the plan" if diagnosis.advice.promise else ""
            yield (
                f"The weights have one scale per tensor. One scale per output channel changes the output error "
                f"from {of:.3g} to {after:.3g}{with_plan}."
            )
    if diagnosis.good and found:
        text = cause_text(found[0])
        yield f"{text[0].upper()}{text[1:]}."
    yield from further_lines(found)
    if diagnosis.good or diagnosis.root is not None or found or diagnosis.misread or not comparison.jumps:
        return
    row = comparison.jumps[0]
    if diagnosis.advice is not None:
        yield (
            "INT8 convolutions are not the cause: INT16 for all convolutions removes less than a fifth of the error. "
            f"RMSE rises most at {row.name} ({row.op_type}), to {row.rmse:.3g}."
        )
    else:
        yield (
            "Inferred from error metrics only, because no modified model could be measured: RMSE "
            f"rises most at {row.name} ({row.op_type})."
        )


def _in_8_bits(advice: MeasuredAdvice, limits: Thresholds) -> bool:
    """Return whether the outputs are within the limits with every convolution at INT16, as far as known."""
    if advice.all_16 is not None:
        return advice.all_16.outputs.good(limits)
    return bool(set(advice.measured.every) - set(advice.names))


def _on_layers(diagnosis: Diagnosis, comparison: Comparison) -> Iterator[str]:
    outputs = set(diagnosis.outputs.outputs)
    finding = next((finding for finding in diagnosis.findings if finding.kind == "layers"), None)
    if finding is not None:
        yield layers_text(finding, diagnosis.limits, sum(name not in outputs for name in finding.names))
    within = sum(row.name in diagnosis.resolution for row in comparison.rows if _is_past(row, diagnosis.limits))
    if within:
        yield (
            f"{counted(within, 'layer')} {'exceeds' if within == 1 else 'exceed'} the limits only in relative metrics: "
            f"the error is within the 8-bit resolution of the layer's range."
        )
    if comparison.failed:
        yield f"Not comparable: {counted(len(comparison.failed), 'layer')}."


def _is_past(row: Row, limits: Thresholds) -> bool:
    """Return whether the figures exceed the limits, whatever the type resolves."""
    return not row.equal and row.sums is not None and row.finite and not limits.hold(row.cos, row.rmse, row.mse)


def _on_integers(diagnosis: Diagnosis) -> Iterator[str]:
    share = diagnosis.share
    if text := share_text(share):
        yield f"{'Judged' if share.weights is not None and share.convolutions else 'Not judged'}: {text}."
    if share.convolutions:
        by = [
            f"raised by {who}: {listed(list(names), MOST_NAMED)}" for who, names in diagnosis.raised_by.items() if names
        ]
        who = f" ({'; '.join(by)})" if by else ""
        yield f"INT16 convolutions: {share.wide} of {share.convolutions}{who}."
    for reason in dict.fromkeys(diagnosis.left_out.values()):
        names = [name for name, why in diagnosis.left_out.items() if why == reason]
        yield f"Not judged: {listed(names, MOST_NAMED)}, {reason}."


def steps(diagnosis: Diagnosis) -> Iterator[Step]:
    """Yield the next steps, each once, without those that are already done."""
    advice, limits, share = diagnosis.advice, diagnosis.limits, diagnosis.share
    if not share.convolutions:
        yield Step("INT16 does not apply: the model has no convolution whose weights become integers.")
        return
    if diagnosis.worths is not None and (text := not_recommended(diagnosis.worths)):
        yield Step(text)
    elif worse := diagnosis.worse_unseen:
        outputs = [diagnosis.labels.get(name, name) for name in worse]
        yield Step(
            f"INT16 is not recommended: the plan that helps on the given images makes {listed(outputs, MOST_NAMED)} "
            f"worse on held-out images."
        )
    if diagnosis.root is not None:
        yield from _root_steps(diagnosis, diagnosis.root)
        return
    if diagnosis.good and not diagnosis.holds:
        yield Step(
            "Calibrate on more images (-i): on held-out images an output exceeds the limits. If an output still "
            "exceeds the limits, find the convolutions to raise.",
            TUNE,
        )
        return
    if diagnosis.good:
        names = advice.config_names if advice is not None else ()
        has = f" The fixed model already has {listed(names, MOST_NAMED)} at INT16." if names else ""
        of_others = any(raised for who, raised in diagnosis.raised_by.items() if who not in (YOU, RULE))
        copy = conv_config(names) if names and of_others else ""  # the user's own lines are already there
        more = " more" if names else ""
        part = "" if share.whole else " for the operators that became integers"
        yield Step(f"No{more} INT16 needed{part}: no output has {limits}.{has}", copy)
        return
    if advice is None:
        yield Step(f"An output has {limits}, and no convolution can be raised to INT16.")
        return
    for finding in advice.causes:
        if finding.facts["reason"] == "clipped":
            yield Step(
                f"Calibrate again on images that resemble the given images: the values of {finding.facts['input']} "
                "exceed its "
                f"range, and INT16 does not help."
            )
    still = [name for name, figures in diagnosis.outputs.outputs.items() if figures.hardly_moved]
    if still:
        yield Step(
            f"Use images that contain what the model detects, prepared as in training (-n): the given images barely "
            f"affect {listed([diagnosis.labels.get(name, name) for name in still], MOST_NAMED)}."
        )
    for softmax in diagnosis.misread:
        text = remedy_text(softmax)
        yield Step(f"{text[0].upper()}{text[1:]}.")
    if advice.per_channel is not None:
        beside = ", with the plan below," if advice.promise is not None else ""
        state = "within the limits" if advice.per_channel.good(limits) else f"still {_past(advice.per_channel, limits)}"
        yield Step(
            f"Use {A_SCALE_PER_CHANNEL}. The output error{beside} is then "
            f"{output_error(advice.per_channel.sums):.3g}, {state}."
        )
    yield TRY_CURE
    yield from _promise(diagnosis, advice)


def unseen_step(diagnosis: Diagnosis, preprocessed: bool) -> Iterator[Step]:
    """Yield what good outputs cannot show; ``preprocessed``: whether the user's preprocess file made the images."""
    if diagnosis.worths is not None or diagnosis.root is not None or not diagnosis.good:
        return
    assumed = "" if preprocessed else " No preprocess file was given (-n); the preprocessing was assumed."
    yield Step(
        "The fixed model agrees with the float model on the given images. If the device still fails, check mean, std, "
        "colour order and post-processing. Without labels (--metric) sgsdump cannot check these settings "
        f"(docs/troubleshooting.md).{assumed}"
    )


def _root_steps(diagnosis: Diagnosis, root: Righted) -> Iterator[Step]:
    """Yield the correction of the cause, then the remaining steps; no INT16 if the correction was not tried."""
    yield Step(what_to_do(root.finding), told_config(root.finding))
    if root.outputs is None:
        return
    if root.outputs.good(diagnosis.limits):
        yield Step(f"No INT16 needed after that: no output has {diagnosis.limits}.")
    elif root.advice is not None:
        yield from _promise(diagnosis, root.advice)


def _error_before_channels(advice: MeasuredAdvice) -> float:
    """Return the error of the plan that ``per_channel`` was measured with."""
    return advice.promise.error if advice.promise is not None else output_error(advice.outputs.sums)


def _promise(diagnosis: Diagnosis, advice: MeasuredAdvice) -> Iterator[Step]:
    limits, promise = diagnosis.limits, advice.promise
    always_8 = [conv.name for conv in advice.measured.convolutions if conv.reads_picture]
    look = advice.per_channel is None and not diagnosis.misread
    if promise is not None:
        more = "more " if advice.measured.raised else ""
        yield Step(
            f"Copy these lines into input_config.ini and calibrate again. They raise "
            f"{counted(len(advice.new), f'{more}convolution input')} "
            f"to INT16. {_promised(diagnosis, advice, promise)} {_costs(advice, promise)}",
            conv_config(advice.config_names),
        )
        for word, others in advice.beside.items():
            yield Step(f"Note: {wider(word, others)}.")
        if promise.outputs.good(limits):
            return
    if advice.all_16 is not None and not advice.all_16.outputs.good(limits):
        yield Step(f"{int16_is_not_enough(limits, always_8, look)} The output error is then {advice.all_16.error:.3g}.")
    elif advice.all_16 is None and not _in_8_bits(advice, limits):
        yield Step(int16_is_not_enough(limits, always_8, look))
    elif advice.all_16 is not None:
        yield Step(
            f"With all convolutions at INT16, the outputs are within the limits (output error "
            f"{advice.all_16.error:.3g}). Find the smallest set of INT16 convolutions.",
            TUNE,
        )
    have = {entry.convolution.domain for entry in advice.advice if entry.convolution.input in advice.names}
    rest = [e.convolution.shown_input for e in advice.advice if e.verdict == MAYBE and e.convolution.domain not in have]
    if rest:
        after = "Next candidates for INT16" if promise is not None else "Best candidates for INT16"
        yield Step(f"{after}: {listed(list(dict.fromkeys(rest)), MOST_NAMED)}.")


def _promised(diagnosis: Diagnosis, advice: MeasuredAdvice, promise: Promise) -> str:
    """Return the measured effect of the plan, and the expected effect on new images if it is known."""
    limits, unseen = diagnosis.limits, diagnosis.unseen
    held_out = unseen if unseen is not None and PLAN in unseen.ran else None
    outputs = promise.outputs if held_out is None else held_out.ran[PLAN]
    state = "within the limits" if outputs.good(limits) else f"still {_past(outputs, limits)}"
    if held_out is None:
        before, images = output_error(advice.outputs.sums), counted(len(advice.outputs.pictures), "image")
        return (
            f"Output error: {before:.3g} → {promise.error:.3g}, {state} (measured with the chip's integer arithmetic "
            f"on {images})."
        )
    before, after = held_out.expected(AS_IT_IS).expected, held_out.expected(PLAN)
    return (
        f"Expected output error on new images: {before:.3g} → {after.expected:.3g}, {state} (measured "
        "with the chip's integer arithmetic)."
    )


def _costs(advice: MeasuredAdvice, promise: Promise) -> str:
    """Return the cost of the plan, and the smaller plan that it was preferred to."""
    text = f"The weights take {percent(promise.rate)} of their INT16 size"
    smaller = advice.smaller
    if smaller is None:
        return f"{text}."
    new = sum(name not in advice.measured.raised for name in smaller.names)
    which = "only the most certain input" if new == 1 else f"only the {new} most certain inputs"
    return (
        f"{text}. With {which} at INT16, the weights take {percent(smaller.rate)} of their INT16 "
        f"size, and the output error is {smaller.error:.3g}."
    )


def _past(outputs: PlanOutputs, limits: Thresholds) -> str:
    if any(figures.probabilities and not figures.good(limits) for figures in outputs.outputs.values()):
        return "beyond the limits of probabilities and answers"
    drowned = any(figures.drowned for figures in outputs.outputs.values())
    return "beyond the limits after subtracting the mean over the images" if drowned else str(limits)


def with_findings(text: str, diagnosis: Diagnosis) -> str:
    """Add the findings, and the measured figures of the rows, to the JSON of a comparison."""
    document: dict[str, Any] = json.loads(text)
    columns = diagnosis.columns
    for row in document["rows"]:
        row |= {name: strict(value) for name, value in columns.get(row["name"], {}).items()}
    document["findings"] = [finding_data(finding) for finding in diagnosis.findings]
    return json_text(document)


def with_columns(text: str, diagnosis: Diagnosis) -> str:
    """Add the measured columns to the CSV of a comparison."""
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    head = list(lines[0]) if lines else []
    columns = diagnosis.columns

    def beside(name: str) -> dict[str, Any]:
        return {key: _cell(value) for key, value in columns.get(name, {}).items()}

    return csv_text([*head, *COLUMNS], [line | beside(line["name"]) for line in lines])


def _cell(value: Any) -> Any:
    """Return "yes" or "" for a bool, other values unchanged."""
    return ("yes" if value else "") if isinstance(value, bool) else value


def _bits_columns(bits: Bits) -> dict[str, Any]:
    return {"bits": bits.now, "raised_by": bits.raised_by, "advised_bits": 16 if bits.advised else bits.now}
