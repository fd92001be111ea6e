"""Expected output error on new images, measured on held-out images with the chip's integer arithmetic.

The images are divided into folds by their content: 3, or 2 from ``folds.MANY`` on. For each fold the model is
calibrated on the images of the other folds, with the same options and the same room in its ranges. The fixed model of
every plan then runs on the images of the fold and is compared with the float model. Fewer than
``folds.FEWEST_HELD_OUT`` different images are not divided.

The expected error is the pessimistic end: one standard error, found by leaving out each image (jackknife), above the
error over all held-out images. What a fold's calibration adds to the error of an image, compared with a calibration on
all images, counts by its ``folds.share``. The median and the worst image are reported as measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.metrics import Sums, merged_sums
from sgsdump.executors.workers.task_pool import ALONE, Workers
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.objective import error_of
from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges, side_ranges
from sgsdump.models.feeds.by_content import by_content, folds_of, judging, share
from sgsdump.models.feeds.feeds import ChosenFeeds
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range

Totals = Mapping[str, Sums]
Room = Callable[[Mapping[str, "Range"], SideRanges, bool], Mapping[str, "Range"]]
"""Returns calibration ranges with room; the last argument: whether weights have one scale per output channel."""


@dataclass(frozen=True)
class Expected:
    """The expected output error on new images.

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
        """Return the expected error, and the errors of the median and the worst image."""
        return self.expected, self.median, self.worst


@dataclass(frozen=True, eq=False)
class Run:
    """The results of a fixed model on held-out images.

    outputs  on these images.
    seen     outputs of the model calibrated on all images, if folds hold the images out.
    shares   for each image, the share of the error added to ``seen`` that counts.
    """

    outputs: PlanOutputs
    seen: PlanOutputs | None = None
    shares: tuple[float, ...] = ()

    def expected(self, error: Callable[[Totals], float]) -> Expected:
        """Return the expected error; ``error`` computes it from sums. NaN counts as infinite."""
        held = list(self.outputs.by_picture.values())
        if self.seen is None:
            return expected_error(held, held, error)
        pairs = zip(held, self.seen.by_picture.values(), self.shares)
        scaled = [{name: _scaled(ours[name], seen[name], share) for name in ours} for ours, seen, share in pairs]
        return expected_error(scaled, held, error)


def _scaled(held: Sums, seen: Sums, share: float) -> Sums:
    """Return the sums with a share of the differences that holding an image out adds."""
    return replace(held, dd=seen.dd + share * (held.dd - seen.dd), d1=seen.d1 + share * (held.d1 - seen.d1))


def expected_error(
    by_image: Sequence[Totals], measured: Sequence[Totals], error: Callable[[Totals], float]
) -> Expected:
    """Return the expected error from the sums of each image; median and worst image are those of ``measured``."""
    alone = [_infinite(error(sums)) for sums in measured]
    whole = error(_merged(by_image))
    if len(by_image) > 1 and 0 < whole < math.inf:
        rest = [error(_merged([*by_image[:index], *by_image[index + 1 :]])) for index in range(len(by_image))]
        away, count = np.array(rest) - np.mean(rest), len(by_image)
        whole += math.sqrt((count - 1) / count * float(np.sum(away**2)))
    return Expected(_infinite(whole), float(np.median(alone)), max(alone), len(by_image))


def mean_error(sums: Totals) -> float:
    """Return the mean of the outputs' errors, like ``objective.output_error``; NaN if every output is zero."""
    errors = [error_of(each) for each in sums.values() if each.b1 != 0]
    return math.fsum(errors) / len(errors) if errors else math.nan


def _merged(by_image: Sequence[Totals]) -> Totals:
    return {name: merged_sums([sums[name] for sums in by_image]) for name in by_image[0]}


def _infinite(error: float) -> float:
    return math.inf if math.isnan(error) else error


@dataclass(frozen=True, eq=False)
class Unseen:
    """The results of fixed models on held-out images, by their kind (``worth.AS_IT_IS`` …).

    folds  number of calibrations that the images were held out of; 0 for separate images.
    """

    runs: Mapping[str, Run]
    folds: int = 0

    @property
    def ran(self) -> dict[str, PlanOutputs]:
        """The outputs of each fixed model."""
        return {kind: run.outputs for kind, run in self.runs.items()}

    def expected(self, kind: str) -> Expected:
        """Return the expected mean error of the outputs of one fixed model."""
        return self.runs[kind].expected(mean_error)


@dataclass(frozen=True, eq=False)
class Calibrating:
    """Options for calibrating a network on any images.

    level    without bits, because the configuration of a plan contains what the level raises.
    room     adds room to ranges, for plans that have room.
    """

    model: Model
    config: InputConfig
    level: str
    room: Room
    workers: Workers = ALONE


@dataclass(frozen=True, eq=False)
class Fold:
    """The calibration without the images of one fold; ``share``: see ``Run``."""

    share: float
    ranges: Mapping[str, Range]
    side: SideRanges


@dataclass(frozen=True, eq=False)
class Folds:
    """Judging images, each held out of a calibration on other images.

    feeds    judging images, fold after fold; ``fold_of``: fold of each image.
    """

    calibrating: Calibrating
    folds: tuple[Fold, ...]
    feeds: Feeds
    fold_of: tuple[int, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the images; see ``Run``."""
        return tuple(self.folds[number].share for number in self.fold_of)

    def fixed(self, config: InputConfig, room: bool, per_channel: bool = False) -> Callable[[int], ModelProto]:
        """Return a function from the index of an image to the fixed model of its fold.

        config       with the convolutions that the plan raises.
        room         whether the ranges have room.
        per_channel  one weight scale per output channel, if the level has none.
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
    parts = folds_of(feeds.keys)
    if not parts:
        return None
    made: list[Fold] = []
    judges: list[int] = []
    fold_of: list[int] = []
    for number, fold in enumerate(parts):
        others = ChosenFeeds(feeds, sorted({*range(len(feeds))} - {*fold}))
        how = calibrating
        found = calibrate(how.model, others, how.config, how.level, how.workers, progress)
        made.append(Fold(share(len(others), len(feeds)), found.ranges, side_ranges(found.statistics)))
        some = judging(fold)
        judges += some
        fold_of += [number] * len(some)
    return Folds(calibrating, tuple(made), ChosenFeeds(feeds, tuple(judges)), tuple(fold_of))
