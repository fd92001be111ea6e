"""What diagnose says, in its order: the outputs, where their error comes from, what to do, what was not judged; the
findings as JSON, and what was measured of each layer as columns of the table, CSV and JSON."""

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
from sgsdump.errors import listed
from sgsdump.files.json_yaml import json_text, strict
from sgsdump.fixedpoint.quantisation.diagnosis.share import IntegerShare, share_text
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.quantisation.tensor_arrays import wider
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
from sgsdump.fixedpoint.reports.cause_sentences import (
    conv_config,
    int16_is_not_enough,
    layers_text,
    output_text,
    source_lines,
)
from sgsdump.fixedpoint.reports.root_causes import A_SCALE_PER_CHANNEL, Righted, root_line, told_config, what_to_do
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
# Of an error that INT16 would be for; what follows a cure's own steps has it no more.
TRY_CURE = Step("Before 16 bits: the same command with --cure tries what a rewritten model wins in 8 (docs/cure.md).")
TUNE = "sgsdump tune -m float.onnx -i pictures --input-config input_config.ini -o tuned"
MEASURED = ("own", "inherited", "in_all", "brings", "gives_back")
# What is told of a layer besides the comparison's own figures.
COLUMNS = (
    *("bits", "raised_by", "advised_bits", *MEASURED, "reaches", "largest_error", "resolution"),
    *("advised_rmse", "advised_cos", "advised_mse"),
)


@dataclass(frozen=True)
class LayerReach:
    """A layer's ``largest_error`` beside what it ``reaches`` over all pictures seen, those of calibration too, and
    whether the error is ``resolution``: what 8 bits, or its own type, leave of that."""

    reaches: float
    largest_error: float
    resolution: bool


@dataclass(frozen=True)
class PastLayers:
    """names  layers past the limits, and not within what their type resolves; ``count`` were compared.
    after  layers that the input of the first cause feeds."""

    names: tuple[str, ...] = ()
    count: int = 0
    after: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Tried:
    """layers  with what is advised, and with the cause put right; None where neither is.
    worths  by the user's metric and on pictures held out, where these were asked for.
    unseen  on images that nothing was fitted to; None where there are none."""

    layers: Comparison | None = None
    worths: Worths | None = None
    unseen: Unseen | None = None


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found of a fixed model.

    outputs     on all pictures; ``labels`` of the outputs that are judged by another tensor.
    advice      None where nothing could be measured.
    bits        of the convolutions, by layer.
    left_out    outputs that are no objective, and why.
    layers      what they reach and how far off their values are, by name.
    misread     a finding for each Softmax that outputs come of and whose readers take its values for others.
    root        what is to be put right before any INT16, and what is left then.
    tried       what was run to know what the advice is worth.
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
        """The layers with what is advised, and with the cause put right."""
        return self.tried.layers

    @property
    def advises_change(self) -> bool:
        """Whether more is advised than room in INT16 ranges."""
        advice = self.advice if self.root is None else self.root.advice
        return self.root is not None or (advice is not None and (advice.promise or advice.per_channel) is not None)

    @property
    def advises_level(self) -> bool:
        """Whether a level with a weight scale for each output channel is advised."""
        if self.root is not None:
            return self.root.finding.facts["reason"] == WEIGHTS
        return self.advice is not None and self.advice.per_channel is not None

    @property
    def worths(self) -> Worths | None:
        return self.tried.worths

    @property
    def calibrated_here(self) -> bool:
        """Whether the ranges are those of a calibration of this diagnosis."""
        return self.advice is not None and self.advice.measured.subject.made is not None

    @property
    def worse_unseen(self) -> tuple[str, ...]:
        """The outputs that what was to be advised makes worse on images held out."""
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
        """Layers whose error is what their type leaves."""
        return frozenset(name for name, layer in self.layers.items() if layer.resolution)

    @property
    def passes(self) -> bool:
        """Whether no output and no other layer is past the limits, nor an output on pictures held out."""
        return (self.good or not self.outputs.outputs) and not self.past.names and self.holds

    @property
    def holds(self) -> bool:
        """Whether the outputs of the model as it is are within the limits on images that nothing was fitted to, too."""
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
        """The causes, or what else the outputs' error comes from; empty if the cause is outside the model."""
        return tuple(self.advice.sources) if self.advice is not None and (self.blames_layers or self.good) else ()

    @property
    def good(self) -> bool:
        return bool(self.outputs.outputs) and self.outputs.good(self.limits)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The outputs, the causes, what to do, and what was not judged."""
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
        """By layer what is known of it besides the comparison: its bits, what was measured, what it reaches, and its
        figures with what is advised."""
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
        """By layer what was measured of the convolution in it."""
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


def verdict(diagnosis: Diagnosis, comparison: Comparison) -> tuple[str, ...]:
    """The cause where there is one, the outputs, where, the layers, and what was not judged."""
    where, layers = _where(diagnosis, comparison), _on_layers(diagnosis, comparison)
    root = () if diagnosis.root is None else (root_line(diagnosis.root.finding),)
    worth = () if diagnosis.worths is None else worth_lines(diagnosis.worths)
    first = (*root, _on_outputs(diagnosis), *worth, *_on_unseen(diagnosis))
    return (*first, *where, *layers, *_on_metric(diagnosis), *_on_integers(diagnosis))


def _on_unseen(diagnosis: Diagnosis) -> Iterator[str]:
    """The error to expect on other images, or that the figures say nothing of them."""
    unseen = diagnosis.unseen
    if unseen is None:
        if diagnosis.calibrated_here and diagnosis.outputs.outputs:
            yield f"{OF_CALIBRATION[0].upper()}{OF_CALIBRATION[1:]}."
        return
    kind = PLAN if PLAN in unseen.ran else AS_IT_IS
    found, before = unseen.expected(kind), unseen.expected(AS_IT_IS)
    change = f"{before.expected:.3g}"
    if kind == PLAN:
        what = "what is advised" if diagnosis.advises_change else "room in INT16 ranges"
        change += f" as it is -> {found.expected:.3g} with {what}"
    yield f"Expected output error on unseen images: {change} ({unseen_text(found, unseen.folds)})."
    if unseen.folds and diagnosis.good and not diagnosis.holds:
        yield "As it is an output is past the limits on held-out images, though not on those it was calibrated on."


def _on_metric(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield a pointer to --metric if an output is bad: bad is a distance, not an accuracy."""
    if diagnosis.worths is None and diagnosis.outputs.outputs and not diagnosis.good:
        yield "A bad output exceeds a limit of COS or RMSE. Use --metric to measure the loss of accuracy."


def _on_outputs(diagnosis: Diagnosis) -> str:
    outputs, pictures = diagnosis.outputs.outputs, len(diagnosis.outputs.pictures)
    if not outputs:
        return "No output could be judged."
    found = output_findings(outputs, diagnosis.limits)
    bad = [finding for finding in found if finding.facts["verdict"] == "bad"]
    shown = [*bad, *(finding for finding in found if finding not in bad)]
    texts = [output_text(finding, diagnosis.labels) for finding in shown[:MOST_NAMED]]
    more = len(shown) - len(texts)
    further = f"; and {more} more, {'good' if len(bad) <= len(texts) else f'{len(bad) - len(texts)} of them bad'}"
    where = f"all {pictures} pictures" if pictures > 1 else "one picture"
    said = f"Outputs on {where}: {'; '.join(texts)}{further if more else ''}."
    if bad or diagnosis.worths is not None:
        return said
    wide = any(diagnosis.raised_by[who] for who in (YOU, QUANT_FILE, LEVEL, FIXED))
    return f"{said} {'The model' if wide else 'INT8'} is within the limits; nothing {'more ' if wide else ''}is raised."


def _where(diagnosis: Diagnosis, comparison: Comparison) -> Iterator[str]:
    found = diagnosis.sources
    if diagnosis.good:
        yield from source_lines(found)
    if diagnosis.good or diagnosis.root is not None or not diagnosis.outputs.outputs:
        return
    for softmax in diagnosis.misread:
        names, factor = [diagnosis.labels.get(name, name) for name in softmax.names], softmax.figures["factor"]
        yield (
            f"What reads the Softmax {softmax.layer} takes its values for {factor:.2g} times what they are, as in the "
            f"SDK's fixed model; {listed(names, MOST_NAMED)} {'comes' if len(names) == 1 else 'come'} of it, and no "
            f"bits repair that."
        )
    if diagnosis.advice is not None and diagnosis.advice.per_channel is not None:
        of, after = _error_before_channels(diagnosis.advice), output_error(diagnosis.advice.per_channel.sums)
        yield (
            f"The weights have one scale per tensor: with one for each output channel the outputs' error goes from "
            f"{of:.4f} to {after:.4f}{' (with what is advised below)' if diagnosis.advice.promise else ''}."
        )
    if found:
        yield from source_lines(found)
    elif diagnosis.misread:
        return
    elif diagnosis.advice is not None and comparison.jumps:
        row = comparison.jumps[0]
        yield (
            f"The error does not come from the 8 bits of convolutions: INT16 for all of them removes less than a fifth "
            f"of it. RMSE rises most at {row.name} ({row.op_type}), to {row.rmse:.4f}."
        )
    elif comparison.jumps:
        row = comparison.jumps[0]
        yield f"By figures alone, as nothing could be measured: RMSE rises most at {row.name} ({row.op_type})."


def _in_8_bits(advice: MeasuredAdvice, limits: Thresholds) -> bool:
    """Whether the outputs are within the limits with every convolution at 16 bits, as far as that is known."""
    if advice.all_16 is not None:
        return advice.all_16.outputs.good(limits)
    return bool(set(advice.measured.every) - set(advice.names))


def _on_layers(diagnosis: Diagnosis, comparison: Comparison) -> Iterator[str]:
    outputs = set(diagnosis.outputs.outputs)
    finding = next((finding for finding in diagnosis.findings if finding.kind == "layers"), None)
    if finding is None:
        yield f"None of {diagnosis.past.count} compared layers is bad ({diagnosis.limits})."
    else:
        yield layers_text(finding, diagnosis.limits, sum(name not in outputs for name in finding.names))
    within = sum(row.name in diagnosis.resolution for row in comparison.rows if _is_past(row, diagnosis.limits))
    if within:
        yield (
            f"{counted(within, 'layer')} past the thresholds by relative figures alone: the error is what 8 bits leave "
            f"of what the layer reaches over all pictures."
        )
    if comparison.failed:
        yield f"{counted(len(comparison.failed), 'pair')} could not be compared."


def _is_past(row: Row, limits: Thresholds) -> bool:
    """By the figures, whatever the type resolves."""
    return not row.equal and row.sums is not None and row.finite and not limits.hold(row.cos, row.rmse, row.mse)


def _on_integers(diagnosis: Diagnosis) -> Iterator[str]:
    share = diagnosis.share
    if text := share_text(share):
        yield f"{'Judged' if share.weights is not None and share.convolutions else 'Not judged'}: {text}."
    if share.convolutions:
        by = [f"{who}: {listed(list(names), MOST_NAMED)}" for who, names in diagnosis.raised_by.items() if names]
        run = "runs" if share.wide == 1 else "run"
        who = f" ({'; '.join(by)})" if by else ""
        yield f"{share.wide} of {share.convolutions} convolutions {run} in 16 bits{who}."
    for reason in dict.fromkeys(diagnosis.left_out.values()):
        names = [name for name, why in diagnosis.left_out.items() if why == reason]
        yield f"Not judged: {listed(names, MOST_NAMED)}, {reason}."


def steps(diagnosis: Diagnosis) -> Iterator[Step]:
    """What to do; each thing once, and nothing that is so already."""
    advice, limits, share = diagnosis.advice, diagnosis.limits, diagnosis.share
    if not share.convolutions:
        yield Step("Nothing can be said of INT16: the network has no convolution whose weights become integers.")
        return
    if diagnosis.worths is not None and (text := not_recommended(diagnosis.worths)):
        yield Step(text)
    elif worse := diagnosis.worse_unseen:
        outputs = [diagnosis.labels.get(name, name) for name in worse]
        yield Step(
            f"Not recommended: INT16 where it helps here makes {listed(outputs, MOST_NAMED)} worse when held out."
        )
    if diagnosis.root is not None:
        yield from _root_steps(diagnosis, diagnosis.root)
        return
    if diagnosis.good and not diagnosis.holds:
        yield Step(
            "Calibrate on more images (-i): on images held out of the calibration an output is past the limits. If it "
            "still is then, let sgsdump find the convolutions to raise.",
            TUNE,
        )
        return
    if diagnosis.good:
        names = advice.config_names if advice is not None else ()
        has = f"; the fixed model has {listed(names, MOST_NAMED)} at INT16 already" if names else ""
        of = "" if share.whole else " of what became integers"
        of_others = any(raised for who, raised in diagnosis.raised_by.items() if who not in (YOU, RULE))
        copy = conv_config(names) if names and of_others else ""  # what you wrote is there already
        more = " more" if names else ""
        yield Step(f"Nothing{more} has to be raised to INT16{of}: no output has {limits}{has}.", copy)
        return
    if advice is None:
        yield Step(f"An output has {limits}, and there is no convolution that could be raised to INT16.")
        return
    for finding in advice.causes:
        if finding.facts["reason"] == "clipped":
            yield Step(
                f"Calibrate the range of {finding.facts['input']} again, on pictures like these: its values go beyond "
                f"it, and 16 bits do not help."
            )
    still = [name for name, figures in diagnosis.outputs.outputs.items() if figures.hardly_moved]
    if still:
        yield Step(
            f"Give pictures that show what the network finds, prepared as in its training (-n): on these "
            f"{listed([diagnosis.labels.get(name, name) for name in still], MOST_NAMED)} hardly moves, and relative "
            f"figures say little of it."
        )
    for softmax in diagnosis.misread:
        yield Step(
            f"Cut the network before the Softmax {softmax.layer} and compute what follows on the processor: give "
            f"--model-outputs {softmax.facts['input']}, and the other outputs that you need."
        )
    if advice.per_channel is not None:
        beside = ", with what is advised below," if advice.promise is not None else ""
        state = "within the limits" if advice.per_channel.good(limits) else f"still {_past(advice.per_channel, limits)}"
        yield Step(
            f"Choose {A_SCALE_PER_CHANNEL}: the outputs' error{beside} is {output_error(advice.per_channel.sums):.4f} "
            f"then, {state}."
        )
    yield TRY_CURE
    yield from _promise(diagnosis, advice)


def unseen_step(diagnosis: Diagnosis, preprocessed: bool) -> Iterator[Step]:
    """Say what good outputs cannot show.

    preprocessed  whether the user's own preprocess file made the images.
    """
    if diagnosis.worths is not None or diagnosis.root is not None or not diagnosis.good:
        return
    assumed = "" if preprocessed else " No preprocess file was given (-n): the preprocessing was assumed, not checked."
    yield Step(
        "The fixed model answers like the float model on these images. If the device still fails, check mean and std, "
        f"colour order and post-processing: sgsdump cannot see those without labels (--metric).{assumed}"
    )


def _root_steps(diagnosis: Diagnosis, root: Righted) -> Iterator[Step]:
    """The cause first; then what is left to do with it put right, and no INT16 where that is not known."""
    yield Step(what_to_do(root.finding), told_config(root.finding))
    if root.outputs is None:
        return
    if root.outputs.good(diagnosis.limits):
        yield Step("Nothing has to be raised to INT16 then: no output has " + f"{diagnosis.limits}.")
    elif root.advice is not None:
        yield from _promise(diagnosis, root.advice)


def _error_before_channels(advice: MeasuredAdvice) -> float:
    """Of the plan that ``per_channel`` was measured with."""
    return advice.promise.error if advice.promise is not None else output_error(advice.outputs.sums)


def _promise(diagnosis: Diagnosis, advice: MeasuredAdvice) -> Iterator[Step]:
    limits, promise = diagnosis.limits, advice.promise
    always_8 = [conv.name for conv in advice.measured.convolutions if conv.reads_picture]
    look = advice.per_channel is None and not diagnosis.misread
    if promise is not None:
        more = "more " if advice.measured.raised else ""
        yield Step(
            f"Put this into input_config.ini and calibrate again: with {counted(len(advice.new), f'{more}input')} of "
            f"convolutions at INT16 {_promised(diagnosis, advice, promise)}; the float approximation that ranked them "
            f"foresaw {promise.foreseen:.4f} on {counted(len(advice.measured.pairs), 'picture')}, where the integers "
            f"give {promise.found:.4f}). {_costs(advice, promise)}",
            conv_config(advice.config_names),
        )
        for word, others in advice.beside.items():
            yield Step(f"Among these: {wider(word, others)}.")
        if promise.outputs.good(limits):
            return
    if advice.all_16 is not None and not advice.all_16.outputs.good(limits):
        yield Step(f"{int16_is_not_enough(limits, always_8, look)} It is {advice.all_16.error:.4f} then.")
    elif advice.all_16 is None and not _in_8_bits(advice, limits):
        yield Step(int16_is_not_enough(limits, always_8, look))
    elif advice.all_16 is not None:
        yield Step(
            f"Every convolution at INT16 would do ({advice.all_16.error:.4f}); let sgsdump find the fewest.",
            TUNE,
        )
    have = {entry.convolution.domain for entry in advice.advice if entry.convolution.input in advice.names}
    rest = [e.convolution.shown_input for e in advice.advice if e.verdict == MAYBE and e.convolution.domain not in have]
    if rest:
        after = " after that" if promise is not None else ""
        yield Step(f"What would help most{after}: {listed(list(dict.fromkeys(rest)), MOST_NAMED)}.")


def _promised(diagnosis: Diagnosis, advice: MeasuredAdvice, promise: Promise) -> str:
    """What the plan promises, of images that nothing was fitted to where there are any."""
    limits, unseen = diagnosis.limits, diagnosis.unseen
    told = unseen if unseen is not None and PLAN in unseen.ran else None
    outputs = promise.outputs if told is None else told.ran[PLAN]
    state = "within the limits" if outputs.good(limits) else f"still {_past(outputs, limits)}"
    if told is None:
        before, pictures = output_error(advice.outputs.sums), counted(len(advice.outputs.pictures), "picture")
        return (
            f"the outputs' error goes from {before:.4f} to {promise.error:.4f}, {state} (in the hardware's integers, "
            f"{pictures}"
        )
    before, after = told.expected(AS_IT_IS).expected, told.expected(PLAN)
    return (
        f"the expected output error on unseen images goes from {before:.3g} to {after.expected:.3g}, {state} (in the "
        f"hardware's integers; {unseen_text(after, told.folds)}"
    )


def _costs(advice: MeasuredAdvice, promise: Promise) -> str:
    """What the plan costs, and the smaller one that it was chosen over."""
    text = f"The weights take {percent(promise.rate)} of their bytes at 16 bits then"
    smaller = advice.smaller
    if smaller is None:
        return f"{text}."
    new = sum(name not in advice.measured.raised for name in smaller.names)
    which, leave = ("the surest alone takes", "leaves") if new == 1 else (f"the {new} surest alone take", "leave")
    return f"{text}; {which} {percent(smaller.rate)}, but {leave} an error of {smaller.error:.4f}."


def _past(outputs: PlanOutputs, limits: Thresholds) -> str:
    if any(figures.probabilities and not figures.good(limits) for figures in outputs.outputs.values()):
        return "past the limits on probabilities and answers"
    drowned = any(figures.drowned for figures in outputs.outputs.values())
    return "past the limits about the mean over the pictures" if drowned else str(limits)


def with_findings(text: str, diagnosis: Diagnosis) -> str:
    """The JSON of a comparison with the findings, and what was measured in its rows."""
    document: dict[str, Any] = json.loads(text)
    columns = diagnosis.columns
    for row in document["rows"]:
        row |= {name: strict(value) for name, value in columns.get(row["name"], {}).items()}
    document["findings"] = [finding_data(finding) for finding in diagnosis.findings]
    return json_text(document)


def with_columns(text: str, diagnosis: Diagnosis) -> str:
    """The CSV of a comparison with the further columns at its end."""
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    head = list(lines[0]) if lines else []
    columns = diagnosis.columns

    def beside(name: str) -> dict[str, Any]:
        return {key: _cell(value) for key, value in columns.get(name, {}).items()}

    return csv_text([*head, *COLUMNS], [line | beside(line["name"]) for line in lines])


def _cell(value: Any) -> Any:
    """Yes or nothing of what is so or not."""
    return ("yes" if value else "") if isinstance(value, bool) else value


def _bits_columns(bits: Bits) -> dict[str, Any]:
    return {"bits": bits.now, "raised_by": bits.raised_by, "advised_bits": 16 if bits.advised else bits.now}
