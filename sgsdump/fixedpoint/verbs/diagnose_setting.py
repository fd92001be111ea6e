"""The starting point of a diagnosis: models, configuration, images and the fixed model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import Network, measured

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
    from sgsdump.fixedpoint.verbs.judges import Judges, JudgingFeeds
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import InputSpec, Model
    from sgsdump.progress import Progress
    from sgsdump.sidecars.input_config import InputConfig


@dataclass(frozen=True)
class Task:
    """A model to diagnose.

    fixed       fixed model, or a model quantised with another tool; None: the fixed model is made
    ranges      ranges to use instead of calibrating
    max_images  maximum number of images to compare layers on; images with the largest output error are used
    judges      the user's metric, images to judge by, and held-out images
    scheduler   address of a Dask cluster that calibrates and compares
    cure        folder that the report names for the cured models; if set, also report the effect of curing at INT8
    """

    network: Network
    fixed: Path | None
    ranges: Path | None
    quant_level: str
    max_images: int
    limits: Thresholds
    judges: Judges
    scheduler: str | None = None
    cure: Path | None = None


@dataclass(frozen=True, eq=False)
class Setting:
    """Facts known before any image runs.

    fixed  fixed model of --fixed
    told   configuration of input_config.ini, before the configuration of --fixed replaces it
    """

    model: Model
    config: InputConfig
    ini: bytes
    assumed: tuple[str, ...] = ()
    fixed: Subject | None = None
    warnings: tuple[str, ...] = ()
    told: InputConfig | None = None

    def opened(self, network: Network) -> OpenNetwork:
        source = network.source(self.config)
        return OpenNetwork(self.model, self.config, self.ini, source, self.assumed, self.warnings)

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        from sgsdump.models.model import graph_inputs

        return tuple(graph_inputs(self.model.proto))

    @property
    def cut_note(self) -> tuple[str, ...]:
        """Notes on a model that was cut before its post-processing, and on its branches."""
        from sgsdump.reports.post_processing import cut_sentence

        cut = () if self.model.cut is None else (cut_sentence(self.model.cut),)
        return (*cut, *(self.model.branches.sentences() if self.model.branches else ()))


def setting_of(task: Task) -> Setting:
    """Read the model and its side files. Raises errors of the files."""
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import given_fixed
    from sgsdump.models.feeds.assumed_config import ini_text
    from sgsdump.sidecars.input_config import ModelOutput

    network, path = task.network, task.fixed
    opened = open_network(network, task.quant_level, guesses=True)
    config, ini, assumed = opened.config, opened.ini, opened.assumed
    fixed = given_fixed(opened.model, path, config if network.input_config else None) if path else None
    if fixed is not None:
        config = fixed.config
        if not network.input_config:
            outputs = tuple(ModelOutput(output.name, True) for output in opened.model.proto.graph.output)
            ini, assumed = ini_text(replace(config, outputs=config.outputs or outputs)).encode(), ()
    return Setting(opened.model, config, ini, assumed, fixed, opened.warnings, opened.config)


def subject_of(task: Task, setting: Setting, feeds: Feeds, progress: Progress) -> Subject:
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.quantisation.diagnosis.subject import calibrated, of_ranges

    if setting.fixed is not None:
        return setting.fixed
    if task.ranges:
        return of_ranges(setting.model, task.ranges, setting.config)
    workers = Workers(scheduler=task.scheduler)
    return calibrated(setting.model, feeds, setting.config, task.quant_level, progress, workers)


def preprocessed(task: Task, setting: Setting) -> InputConfig | None:
    """Return the normalisation of the user's preprocess file, if given next to an input_config.ini."""
    network = task.network
    return measured(network.source(setting.config), setting.specs) if network.input_config else None


def facts_of(task: Task, given: JudgingFeeds, pairs: PicturePairs) -> list[tuple[str, str]]:
    from sgsdump.reports.made_by import versions

    feeds, judging = given.calibrated, given.judges
    facts = [("float model", str(task.network.model))]
    if task.fixed:
        facts.append(("fixed model", str(task.fixed)))
    elif task.ranges:
        facts.append(("ranges", str(task.ranges)))
    else:
        facts.append(("calibrated on", f"{len(feeds)} of {task.network.data}, level {task.quant_level}"))
    if given.evaluated is not None:
        facts.append(("judged on", f"{len(judging)} of {task.judges.texts[0]}"))
    if given.held_out is not None:
        facts.append(("held out", f"{len(given.held_out)} of {task.judges.texts[1]}"))
    which = "" if len(pairs) == len(judging) else ", those with the largest output error"
    facts.append(("layers compared on", f"{len(pairs)}{which}: {', '.join(pairs.labels)}"))
    if task.network.input_config:
        facts.append(("input_config", str(task.network.input_config)))
    return [*facts, versions()]
