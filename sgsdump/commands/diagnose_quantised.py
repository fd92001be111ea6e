"""``diagnose --fixed`` of a network that others quantised (QDQ, QOperator, dynamic ONNX). Apart: no ranges, no chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.terminal import print_folder, print_verdict

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.models.feeds.feeds import LabelledFeed
    from sgsdump.models.model import Model
    from sgsdump.reports.quantised_diagnosis import QuantisedDiagnosis
    from sgsdump.reports.report import Context, Report

# What each quantised tensor does to the outputs is measured on this many inputs.
MEASURED = 2


@dataclass(frozen=True)
class QuantisedTask:
    """What to diagnose: the models' paths, the inputs, the folder to write and how many inputs layers are compared on.

    limits  None where the user gave none.
    """

    model: Path
    quantised: Path
    feeds: Sequence[LabelledFeed]
    output: Path
    most: int
    limits: Thresholds | None


def is_quantised_by_others(path: Path) -> bool:
    """Whether a file is an ONNX model with operators that quantise, and not made by ``sgsdump calibrate``. Raises what
    opening the model raises."""
    from sgsdump.models.model import open_model
    from sgsdump.models.quantised_model import QuantisedModel
    from sgsdump.quantisation.fixed_facts import is_fixed

    model = open_model(path)
    return not is_fixed(model) and QuantisedModel(model.proto).is_quantised


def diagnose_quantised(task: QuantisedTask) -> int:
    """Write the folder, print the verdict; the exit status."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.files.atomic_write import replacing_folder
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.models.model import open_model
    from sgsdump.quantisation.others.compared import compared_networks
    from sgsdump.quantisation.others.link import QuantisedPair, float_proto
    from sgsdump.quantisation.others.quantisers import quantiser_of
    from sgsdump.quantisation.others.trial import SwitchedNetwork
    from sgsdump.reports.quantised_diagnosis import QuantisedDiagnosis, report_of_quantised
    from sgsdump.tuning.exclusions import ExclusionTrial

    progress, limits = Terminal("stderr"), task.limits or DOCUMENTED
    models = open_model(task.model), open_model(task.quantised)
    _check_inputs(models, task)
    pair = QuantisedPair(float_proto(models[0]), models[1].proto)
    chosen = [task.feeds[index] for index in evenly(list(range(len(task.feeds))), task.most)]
    asides: list[Path] = []
    with replacing_folder(task.output, asides.append) as folder:
        network = SwitchedNetwork(pair)
        networks = compared_networks(pair, models, chosen, folder, progress)
        worst = sorted(range(len(chosen)), key=lambda index: -networks.errors[index])[:MEASURED]
        trial = ExclusionTrial(network, [chosen[index][1] for index in sorted(worst)])
        good = all(figures.good(limits) for figures in networks.outputs.values())
        measured = trial.measure(limits, good, progress)
        quantiser = quantiser_of(models[1].proto)
        diagnosis = QuantisedDiagnosis(
            pair, networks, measured, limits, quantiser, network.left_out, inputs=len(chosen)
        )
        report = report_of_quantised(diagnosis, _context(task, diagnosis))
        _write(folder, report, diagnosis)
    print_verdict(report)
    print_folder(task.output, asides)
    return 1 if task.limits and not diagnosis.good else 0


def _check_inputs(models: tuple[Model, Model], task: QuantisedTask) -> None:
    from sgsdump.errors import ModelError
    from sgsdump.models.model import graph_inputs

    own, others = ({spec.name for spec in graph_inputs(model.proto)} for model in models)
    if own != others:
        raise ModelError(
            f"{task.quantised} was made of another net: its inputs are {', '.join(sorted(others))}, those of "
            f"{task.model} {', '.join(sorted(own))}"
        )


def _context(task: QuantisedTask, diagnosis: QuantisedDiagnosis) -> Context:
    from sgsdump.reports.quantised_diagnosis import attributes_of_units
    from sgsdump.reports.report import Context

    facts = [("float model", str(task.model)), ("quantised model", str(task.quantised))]
    facts.append(("quantised by", diagnosis.quantiser or "unknown"))
    facts.append(("compared on", f"{diagnosis.inputs} of {len(task.feeds)} inputs"))
    return Context(f"{task.quantised.name} quantised", facts=facts, attributes=attributes_of_units(diagnosis.pair))


def _write(folder: Path, report: Report, diagnosis: QuantisedDiagnosis) -> None:
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.html.document import render
    from sgsdump.reports.quantised_diagnosis import quantised_csv, with_findings

    comparison = diagnosis.networks.compared.comparison
    replace_text(folder / "report.html", render(report))
    replace_text(folder / "layers.csv", REPORTS["csv"](comparison, diagnosis.limits))
    replace_text(folder / "layers.json", with_findings(REPORTS["json"](comparison, diagnosis.limits), diagnosis))
    replace_text(folder / "quantised.csv", quantised_csv(diagnosis))
