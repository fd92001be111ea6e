"""``diagnose --fixed`` for a model that only its own framework can run (TFLite, OpenVINO)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sgsdump.progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.comparison.verdict import Recommendation, Verdict
    from sgsdump.fixedpoint.quantisation.diagnosis.native import ComparedModels
    from sgsdump.models.model import Model
    from sgsdump.reports.report import Report
    from sgsdump.reports.verdict import Step

    Found: TypeAlias = tuple[Report, Comparison, bool, dict[str, str], Verdict]

_DEBUGGER = """options = tf.lite.experimental.QuantizationDebugOptions(denylisted_nodes={})
debugger = tf.lite.experimental.QuantizationDebugger(
    converter=converter, debug_dataset=representative_dataset, debug_options=options)
open('net_int8.tflite', 'wb').write(debugger.get_nondebug_quantized_model())"""


@dataclass(frozen=True, eq=False)
class NativeTask:
    """The models to diagnose, the data for the float model, and the maximum number of runs to compare."""

    model: Model
    quantised: Model
    feeds: Sequence[tuple[str, Mapping[str, np.ndarray]]]
    most: int
    limits: Thresholds
    assumptions: tuple[str, ...] = ()


def diagnose_native(task: NativeTask, folder: Path, progress: Progress) -> Found:
    """Return the parts of a ``Diagnosed``; ``folder`` holds temporary dumps of layers."""
    from sgsdump.errors import ValuesError
    from sgsdump.fixedpoint.quantisation.diagnosis.native import compared_models
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.report import Context, report_of
    from sgsdump.reports.tensors.views import BUDGET
    from sgsdump.reports.worst_picture import worst_input

    limits = task.limits
    indices = evenly(list(range(len(task.feeds))), task.most)
    feeds = [task.feeds[index] for index in indices]
    found = compared_models((task.model, task.quantised), feeds, folder, progress)
    comparison = found.compared.comparison
    if not comparison.rows:
        raise ValuesError(
            f"no layer of {task.model.path} could be compared; check that {task.quantised.path} was made "
            "from this model"
        )
    facts = [("float model", str(task.model.path)), ("quantised model", str(task.quantised.path))]
    facts.append(("compared on", f"{len(feeds)} of {len(task.feeds)} inputs"))
    context = Context(
        f"{task.quantised.path.name} quantised",
        facts=facts,
        assumptions=[*task.assumptions],
        sample=found.compared.sample,
        benchmark=found.compared.benchmark,
        page_budget=BUDGET,
        picture=found.compared.label,
    )
    data = replace(
        comparison.verdict(limits),
        assumptions=tuple(context.assumptions),
        recommendation=_recommendation(task.quantised, found, limits),
    )
    report = report_of(comparison, limits, context, _steps(task.quantised, found, limits), data)
    worst = worst_input(found.worst, task.feeds, indices)
    further = (*report.details, *_not_measured(task.quantised, found))
    report = replace(report, details=further, view=replace(report.view, worst=worst))
    texts = {
        "layers.csv": REPORTS["csv"](comparison, limits),
        "layers.json": REPORTS["json"](comparison, limits, data),
    }
    return report, comparison, comparison.passes(limits), texts, data


def _recommendation(quantised: Model, found: ComparedModels, limits: Thresholds) -> Recommendation:
    """Return the next action. Its effect is not measured, because the model can only run as a whole."""
    from sgsdump.comparison.verdict import Recommendation

    comparison = found.compared.comparison
    if found.weights:
        return Recommendation("convert again")
    if comparison.passes(limits):
        return Recommendation("nothing")
    return Recommendation("keep operators in float", layers=_own_names(comparison, limits))


def _own_names(comparison: Comparison, limits: Thresholds) -> tuple[str, ...]:
    """Return the layers in which the error arises, under their names in the quantised model."""
    layers = (finding.layer for finding in comparison.findings(limits) if finding.kind == "cause")
    return tuple(name for name in (comparison[layer].sample_name for layer in layers) if name)


def _steps(quantised: Model, found: ComparedModels, limits: Thresholds) -> list[Step]:
    """Return the next steps, with the lines to copy."""
    from sgsdump.reports.verdict import Step

    assert quantised.native is not None
    comparison = found.compared.comparison
    if found.weights:
        return [Step("Convert the model again: its weights are not those of the float model.")]
    if comparison.passes(limits):
        return [Step("No operator needs to stay in float: every layer is within the limits.")]
    own = list(_own_names(comparison, limits))
    steps = [
        Step(
            "Check the calibration ranges: calibrate on more inputs, and on inputs like these. One weight scale per "
            "channel, or 16-bit activations, cost little."
        )
    ]
    if own and quantised.native.runtime == "tflite":
        own = _made_by_operators(quantised, own)
        steps.append(Step("Keep the operators of these layers in float and measure again.", _DEBUGGER.format(own)))
    if own and quantised.native.runtime == "openvino":
        makers = {name: node.name for node in quantised.proto.graph.node for name in node.output}
        scope = f"nncf.quantize(model, dataset, ignored_scope=nncf.IgnoredScope(names={[makers[n] for n in own]}))"
        steps.append(Step("Keep the operators of these layers in float and measure again.", scope))
    return steps


def _made_by_operators(quantised: Model, names: Iterable[str]) -> list[str]:
    """Return the tensors under the names that TFLite's debugger knows: those before a QUANTIZE that only rescales."""
    from sgsdump.dumps.quantised_graph import QuantisedGraph

    nodes: Iterable[Any] = (
        (node.name, node.op_type, [*node.input], [*node.output], "", {}) for node in quantised.proto.graph.node
    )
    return list(dict.fromkeys(map(QuantisedGraph(nodes).root, names)))


def _not_measured(quantised: Model, found: ComparedModels) -> list[str]:
    """Return sentences on measurements that were skipped, with the reason."""
    assert quantised.native is not None
    kind = quantised.native.kind
    lines = [
        f"Not measured: the contribution of each tensor, because {kind} runs its model as a whole. All results compare "
        f"the values of layers."
    ]
    if found.weights:
        wrong = ", ".join(f"{name} ({share:.1%} of it)" for name, share in [*found.weights.items()][:3])
        lines.append(f"Weights that differ from the rounded float weights: {wrong}.")
    elif found.unknown:
        lines.append(f"Weights not judged: {found.unknown}.")
    else:
        lines.append("All weights equal the rounded float weights.")
    return lines
