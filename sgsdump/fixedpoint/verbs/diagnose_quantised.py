"""``diagnose --fixed`` for an ONNX model quantised with another tool, without calibration ranges and hardware rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.verbs.diagnosed import Diagnosed

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.reports.quantised_diagnosis import QuantisedDiagnosis
    from sgsdump.fixedpoint.tuning.exclusions import ExclusionTrial
    from sgsdump.fixedpoint.tuning.kernel_loss import KernelLoss
    from sgsdump.models.feeds.feeds import LabelledFeed
    from sgsdump.models.model import Model
    from sgsdump.progress import Progress
    from sgsdump.reports.report import Context


MEASURED = 2  # inputs on which the effect of each quantised tensor on the outputs is measured


@dataclass(frozen=True)
class QuantisedTask:
    """The models to diagnose, their input data, and the maximum number of runs to compare layers on."""

    model: Path
    quantised: Path
    feeds: Sequence[LabelledFeed]
    most: int
    limits: Thresholds


def is_quantised_by_others(path: Path) -> bool:
    """Return whether a file is an ONNX model quantised with another tool. Raises errors of the file."""
    from sgsdump.models.fixed_facts import is_fixed
    from sgsdump.models.model import open_model
    from sgsdump.models.quantised_model import QuantisedModel

    model = open_model(path)
    return not is_fixed(model) and QuantisedModel(model.proto).is_quantised


def diagnosed_quantised(task: QuantisedTask, folder: Path, progress: Progress) -> Diagnosed:
    """Diagnose an ONNX model quantised with another tool."""
    from sgsdump.fixedpoint.quantisation.others.compared import compared_networks
    from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair, float_proto
    from sgsdump.fixedpoint.quantisation.others.quantisers import quantiser_of
    from sgsdump.fixedpoint.quantisation.others.trial import SwitchedNetwork
    from sgsdump.fixedpoint.reports.diagnosis_verdict import verdict_of_quantised
    from sgsdump.fixedpoint.reports.graph_files import NetworkGraph
    from sgsdump.fixedpoint.reports.quantised_diagnosis import (
        QuantisedDiagnosis,
        quantised_csv,
        report_of_quantised,
        with_findings,
    )
    from sgsdump.fixedpoint.tuning.exclusions import ExclusionTrial
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.models.model import open_model
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.worst_picture import worst_input

    limits = task.limits
    models = open_model(task.model), open_model(task.quantised)
    _check_inputs(models, task)
    pair = QuantisedPair(float_proto(models[0]), models[1].proto)
    indices = evenly(list(range(len(task.feeds))), task.most)
    chosen = [task.feeds[index] for index in indices]
    network = SwitchedNetwork(pair)
    networks = compared_networks(pair, models, chosen, folder, progress)
    worst = sorted(range(len(chosen)), key=lambda index: -networks.errors[index])[:MEASURED]
    trial = ExclusionTrial(network, [chosen[index][1] for index in sorted(worst)])
    kernels, not_run = _kernels(models[1], trial, limits)
    good = kernels.good if kernels else all(figures.good(limits) for figures in networks.outputs.values())
    measured = trial.measure(limits, good, progress)
    diagnosis = QuantisedDiagnosis(
        pair,
        networks,
        measured,
        limits,
        quantiser_of(models[1].proto),
        network.left_out,
        len(chosen),
        kernels,
        not_run,
    )
    comparison = networks.compared.comparison
    verdict = verdict_of_quantised(diagnosis, comparison)
    texts = {
        "layers.csv": REPORTS["csv"](comparison, limits),
        "layers.json": with_findings(REPORTS["json"](comparison, limits, verdict), diagnosis),
        "quantised.csv": quantised_csv(diagnosis),
    }
    report = report_of_quantised(diagnosis, _context_of_others(task, diagnosis), verdict)
    report = replace(report, view=replace(report.view, worst=worst_input(networks.worst, task.feeds, indices)))
    return Diagnosed(report, comparison, diagnosis.good, texts, verdict, graph=NetworkGraph(models[0].proto))


def _kernels(quantised: Model, trial: ExclusionTrial, limits: Thresholds) -> tuple[KernelLoss | None, str]:
    """Return the error that integer kernels add, or None and the reason why this error could not be measured."""
    from sgsdump.errors import ModelError, ValuesError
    from sgsdump.fixedpoint.tuning.kernel_loss import kernel_loss

    try:
        return kernel_loss(quantised, trial, limits), ""
    except (ModelError, ValuesError) as error:
        return None, str(error)


def _check_inputs(models: tuple[Model, Model], task: QuantisedTask) -> None:
    from sgsdump.errors import ModelError
    from sgsdump.models.model import graph_inputs

    own, others = ({spec.name for spec in graph_inputs(model.proto)} for model in models)
    if own != others:
        raise ModelError(
            f"{task.quantised} was made from another model: its inputs are "
            f"{', '.join(sorted(others))}, but the inputs of {task.model} are {', '.join(sorted(own))}"
        )


def _context_of_others(task: QuantisedTask, diagnosis: QuantisedDiagnosis) -> Context:
    from sgsdump.fixedpoint.reports.quantised_diagnosis import attributes_of_units
    from sgsdump.reports.made_by import versions
    from sgsdump.reports.report import Context
    from sgsdump.reports.tensors.views import BUDGET

    facts = [("float model", str(task.model)), ("quantised model", str(task.quantised))]
    facts.append(("quantised by", diagnosis.quantiser or "unknown"))
    facts.append(("compared on", f"{diagnosis.inputs} of {len(task.feeds)} inputs"))
    facts.append(versions())
    return Context(
        f"{task.quantised.name} quantised",
        facts=facts,
        attributes=attributes_of_units(diagnosis.pair),
        page_budget=BUDGET,
    )
