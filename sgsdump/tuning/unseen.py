"""The error to expect on images that nothing was fitted to, in the hardware's integers. ``Folds`` hold images out.

The images are divided into folds by their content: 3, or 2 from MANY images on. For each fold the model is calibrated on
the images of the others, with the same options and the same room in its ranges, and every plan's fixed model of that is
run on the images of the fold, against the float model. Fewer than ``coverage.FEWEST_HELD_OUT`` different images are not
divided.

The expected error is the pessimistic end: the error over all held-out images, one standard error above it. The standard
error is that of the logarithm, by leaving out each image (jackknife).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.metrics import Sums, merged_sums
from sgsdump.executors.workers.task_pool import ALONE, Workers
from sgsdump.models.feeds.by_content import by_content
from sgsdump.models.feeds.coverage import FEWEST_HELD_OUT, different
from sgsdump.models.feeds.feeds import ChosenFeeds
from sgsdump.models.feeds.folds import folds_of
from sgsdump.models.feeds.image_list import evenly
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.calibration import calibrate
from sgsdump.quantisation.fixed_model import make_fixed
from sgsdump.quantisation.objective import error_of
from sgsdump.quantisation.ranges.statistics import SideRanges, side_ranges

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.quantisation.trials.integer_outputs import PlanOutputs
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range

FOLDS, MANY, OF_MANY = 3, 24, 2
# Images of a fold that judge.
JUDGED = 16
Totals = Mapping[str, Sums]
Room = Callable[[Mapping[str, "Range"], SideRanges, bool], Mapping[str, "Range"]]
"""Gives calibrated ranges with room; the last argument: whether weights have a scale for each output channel."""


@dataclass(frozen=True)
class Expected:
    """An error to expect on other images.

    expected       one standard error above the error over all images.
    median, worst  of the images, each alone.
    images         their number.
    """

    expected: float
    median: float
    worst: float
    images: int

    @property
    def figures(self) -> tuple[float, float, float]:
        """The expected error, and that of the median and of the worst image."""
        return self.expected, self.median, self.worst


def expected_error(by_image: Sequence[Totals], error: Callable[[Totals], float]) -> Expected:
    """Return the error to expect, of the sums of each image; ``error`` of the sums of several.

    Images whose error is NaN count as infinite.
    """
    alone = [_infinite(error(sums)) for sums in by_image]
    whole = error(_merged(by_image))
    if len(by_image) > 1 and 0 < whole < math.inf:
        rest = (error(_merged([*by_image[:index], *by_image[index + 1 :]])) for index in range(len(by_image)))
        logs = np.log(np.maximum([_infinite(each) for each in rest], 1e-300))
        count = len(by_image)
        whole *= math.exp(math.sqrt((count - 1) / count * float(np.sum((logs - np.mean(logs)) ** 2))))
    return Expected(_infinite(whole), float(np.median(alone)), max(alone), len(by_image))


def mean_error(sums: Totals) -> float:
    """Return the mean of the outputs' errors, as ``objective.output_error``; NaN where every output is zero."""
    errors = [error_of(each) for each in sums.values() if each.b1 != 0]
    return math.fsum(errors) / len(errors) if errors else math.nan


def _merged(by_image: Sequence[Totals]) -> Totals:
    return {name: merged_sums([sums[name] for sums in by_image]) for name in by_image[0]}


def _infinite(error: float) -> float:
    return math.inf if math.isnan(error) else error


@dataclass(frozen=True, eq=False)
class Unseen:
    """Fixed models that ``ran`` on images that nothing was fitted to, by what they are (``worth.AS_IT_IS`` …).

    folds  of how many calibrations the images were held out; 0 for images of their own.
    """

    ran: Mapping[str, PlanOutputs]
    folds: int = 0

    def expected(self, kind: str) -> Expected:
        """Return the outputs' mean error to expect of one."""
        return expected_error(list(self.ran[kind].by_picture.values()), mean_error)


@dataclass(frozen=True, eq=False)
class Calibrating:
    """How a network is calibrated, on whichever images.

    level    without bits: what the level raises stands in the configuration of a plan.
    room     gives ranges room, where a plan has it.
    """

    model: Model
    config: InputConfig
    level: str
    room: Room
    workers: Workers = ALONE


@dataclass(frozen=True, eq=False)
class Fold:
    """What calibrating without some images found."""

    ranges: Mapping[str, Range]
    side: SideRanges


@dataclass(frozen=True, eq=False)
class Folds:
    """Images that judge, each held out of a calibration on others.

    feeds    the images that judge, fold after fold; ``fold_of`` each its fold.
    """

    calibrating: Calibrating
    folds: tuple[Fold, ...]
    feeds: Feeds
    fold_of: tuple[int, ...]

    def fixed(self, config: InputConfig, room: bool, per_channel: bool = False) -> Callable[[int], ModelProto]:
        """Return what gives the fixed model of the fold of an image, made of its ranges.

        config       with the convolutions that the plan raises.
        room         whether its ranges have room.
        per_channel  a weight scale for each output channel, where the level has none.
        """
        made: dict[int, ModelProto] = {}

        def of(image: int) -> ModelProto:
            fold = self.fold_of[image]
            if fold not in made:
                made.clear()
                made[fold] = self._fixed(self.folds[fold], config, room, per_channel)
            return made[fold]

        return of

    def _fixed(self, fold: Fold, config: InputConfig, room: bool, per_channel: bool) -> ModelProto:
        how = self.calibrating
        channels = per_channel or how.level != "L1"
        ranges = how.room(fold.ranges, fold.side, channels) if room else fold.ranges
        return make_fixed(how.model, ranges, config, True, per_channel, fold.side).proto


def folds_for(calibrating: Calibrating, feeds: Feeds, progress: Progress = SILENT) -> Folds | None:
    """Calibrate without each fold; None for too few different images. Raises what calibrating raises."""
    feeds = by_content(feeds)
    if different(feeds) < FEWEST_HELD_OUT:
        return None
    made: list[Fold] = []
    judges: list[int] = []
    fold_of: list[int] = []
    for number, fold in enumerate(folds_of(feeds.keys, FOLDS if len(feeds) < MANY else OF_MANY)):
        others = ChosenFeeds(feeds, sorted({*range(len(feeds))} - {*fold}))
        how = calibrating
        found = calibrate(how.model, others, how.config, how.level, how.workers, progress)
        made.append(Fold(found.ranges, side_ranges(found.statistics)))
        judging = evenly(fold, JUDGED)
        judges += judging
        fold_of += [number] * len(judging)
    return Folds(calibrating, tuple(made), ChosenFeeds(feeds, tuple(judges)), tuple(fold_of))
