"""``diagnose --cure``: the network cured into the folder, and the ways that it has onto the chip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.verbs.network import Network, open_network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.curing.cure import Cured
    from sgsdump.progress import Progress
    from sgsdump.reports.sentences import Step
    from sgsdump.verbs.network import OpenNetwork

CURED, PLANNED = "cured.onnx", "planned.onnx"


def next_steps(
    network: Network, quant_level: str, limits: Thresholds, folder: tuple[Path, Path], progress: Progress
) -> tuple[Step, ...]:
    """Cures the network and writes cured.onnx, and with a plan planned.onnx, with their quant files; what there is to
    do with them. ``folder``: where they are written, and what it will be called."""
    from sgsdump.reports.cured import cured_steps
    from sgsdump.tuning.ways import Task, ways_of

    level = "L1" if quant_level == "L1" else "L2"
    opened = open_network(network, level, guesses=True)
    cured = cure_opened(network, opened, level, progress=progress)
    if not cured.helps:
        return cured_steps(cured, None, level, str(folder[1]))
    cured.save(folder[0] / CURED)
    task = Task(opened.model, opened.feeds(), opened.config, level, limits)
    found = ways_of(task, cured, progress)
    if found.planned is not None:
        proto, params = found.planned
        replace(cured, proto=proto, params=params).save(folder[0] / PLANNED)
    return cured_steps(cured, found, level, str(folder[1]))


def cure_opened(
    network: Network, opened: OpenNetwork, level: str, cures: tuple[str, ...] = (), progress: Progress | None = None
) -> Cured:
    """Of a network that is open, judged on every third of its pictures; ``cures``: all without it."""
    from sgsdump.curing.cure import cure
    from sgsdump.curing.steps import CURES, CureOptions
    from sgsdump.models.model import open_model
    from sgsdump.progress import SILENT

    outputs = [entry.name for entry in opened.config.outputs]
    model = network.part.of(open_model(network.model, network.weight_file, staged_outputs=outputs))
    options = CureOptions(level, cures or CURES)
    return cure(model, opened.feeds(), opened.config, options, progress=progress or SILENT)
