"""The pictures of ``sgsdump tune``: calibrated on all, judged on some."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgsdump.commands.quantising_options import WITHOUT_BITS

if TYPE_CHECKING:
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.models.model import Model
    from sgsdump.quantisation.ranges.statistics import SideRanges
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range
    from sgsdump.tuning.setup import PictureFeed


def calibrated(
    args: argparse.Namespace, model: Model, config: InputConfig, workers: Workers
) -> tuple[dict[str, Range], SideRanges, Iterator[PictureFeed]]:
    """The ranges of the model's tensors, what was seen besides, and the pictures that judge plans."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.models.feeds.feeds import PictureFeeds, feeds
    from sgsdump.models.feeds.image_list import evenly
    from sgsdump.models.model import graph_inputs
    from sgsdump.quantisation.calibration import calibrate
    from sgsdump.quantisation.ranges.statistics import side_ranges
    from sgsdump.tuning.setup import PICTURES

    specs = tuple(graph_inputs(model.proto))
    pictures = PictureFeeds(args.image, args.preprocess, specs, config)
    judges = PictureFeeds(args.evaluate, args.preprocess, specs, config) if args.evaluate else pictures
    calibration = calibrate(
        model, pictures, config, WITHOUT_BITS[args.quant_level], workers=workers, progress=Terminal("stderr")
    )
    chosen = set(range(len(judges))) if args.evaluate else set(evenly(range(len(judges)), PICTURES))
    raws = feeds(args.evaluate or args.image, args.preprocess, specs, config, normalised=False)
    pairs = ((judges[i][1], raw) for i, (_, raw) in enumerate(raws) if i in chosen)
    return calibration.ranges, side_ranges(calibration.statistics), pairs
