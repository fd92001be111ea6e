"""What starts from a cured model: ``diagnose --cure`` with ways onto the chip, ``tune --cure``, ``repair --cure``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.verbs.network import Network, OpenNetwork, open_network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.curing.cure import Cured
    from sgsdump.progress import Progress
    from sgsdump.reports.sentences import Step
    from sgsdump.tensors.types import Range

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


@dataclass(frozen=True, eq=False)
class Start:
    """A network whose model is cured, for what raises convolutions: ``opened`` with the cured model in it."""

    opened: OpenNetwork
    cured: Cured

    def with_room(self, ranges: Mapping[str, Range]) -> dict[str, Range]:
        """The calibrated ranges of the cured model with those of its quant file."""
        from sgsdump.tuning.ways import with_room

        return with_room(self.opened.model, ranges, self.cured.params, self.opened.config)

    def lines(self) -> list[str]:
        """What the cures brought in 8 bits."""
        from sgsdump.reports.cured import lines, summary

        return [*lines(self.cured), f"before anything is raised: {summary(self.cured)}"]


def start_cured(network: Network, opened: OpenNetwork, level: str, progress: Progress) -> Start:
    """Cured with what keeps the float model's function: biases and weights that make up for 8 bits are wrong where
    there are 16."""
    from sgsdump.curing.search import rewritten
    from sgsdump.curing.steps import KEEPING

    cured = cure_opened(network, opened, "L1" if level == "L1" else "L2", KEEPING, progress)
    return Start(replace(opened, model=rewritten(opened.model, cured.proto)), cured)
