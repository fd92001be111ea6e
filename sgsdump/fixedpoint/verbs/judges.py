"""Options for judging plans and models: the user's metric, images to judge by, and held-out images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from sgsdump.fixedpoint.verbs.network import OpenNetwork, check_apart

if TYPE_CHECKING:
    from sgsdump.fixedpoint.tuning.criteria import UserMetric
    from sgsdump.fixedpoint.tuning.setup import PictureFeed
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.network import Data


# Calibration images that judge with --first and --explain, if no others are given.
JUDGING = 4


class JudgedBy(TypedDict, total=False):
    """Options for judging.

    Attributes
    ----------
    metric : str or callable, optional
        Your accuracy metric: a function f(outputs, float_outputs) -> number, or ``FILE.py:f``; higher is better. The
        arguments are dictionaries of arrays by output name. Optional parameters named ``picture`` and ``label`` receive
        the image and its label.
    evaluate : str, Path, array, mapping or iterable, optional
        Images to judge by, in any form that ``data`` can have. Default: some of the images in ``data``.
    validate : str, Path, array, mapping or iterable, optional
        Held-out images, which are not used to choose plans. A plan that is worse on these images is not recommended.
    """

    metric: str | UserMetric | None
    evaluate: Data | None
    validate: Data | None


@dataclass(frozen=True, eq=False)
class Judges:
    """The options of ``JudgedBy`` as given by a command or a caller."""

    metric: str | UserMetric | None = None
    evaluate: Data | None = None
    validate: Data | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """Images to judge by and held-out images, as text in the user's words."""
        given = (self.evaluate, self.validate)
        evaluate, validate = (str(data) if isinstance(data, (str, Path)) else "the feeds" for data in given)
        return evaluate, validate

    @property
    def files(self) -> list[Path]:
        """Files that are read and therefore must not be overwritten."""
        from sgsdump.models.feeds.image_list import places

        given = (str(data) for data in (self.evaluate, self.validate) if isinstance(data, (str, Path)))
        return [path for images in given for path in places(images)]

    @property
    def counts_agreement(self) -> bool:
        """Whether the verdict counts the answers that agree with the float model."""
        from sgsdump.comparison.agreement import NONE

        return self.metric != NONE

    @property
    def given(self) -> list[str]:
        """Names of the given options."""
        names = {"--metric": self.metric, "--evaluate": self.evaluate, "--validate": self.validate}
        return [name for name, value in names.items() if value is not None]

    def loaded(self) -> UserMetric | None:
        """Return the metric as a function; None without a metric, and for ``none``. Raises InputError."""
        from sgsdump.fixedpoint.tuning.criteria import load_metric

        return load_metric(self.metric) if isinstance(self.metric, str) else self.metric

    def feeds(self, opened: OpenNetwork) -> JudgingFeeds:
        """Return all images of a judgement. Raises ConfigError if a held-out image is used elsewhere too."""
        feeds = opened.feeds()
        judging = None if self.evaluate is None else opened.feeds(self.evaluate)
        held = None if self.validate is None else opened.feeds(self.validate)
        if held is not None:
            check_apart(held, feeds, "-i", "plan")
            if judging is not None:
                check_apart(held, judging, "--evaluate", "plan")
        return JudgingFeeds(feeds, judging, held)


def judges_of(options: JudgedBy) -> Judges:
    """Return the judging options as one record."""
    return Judges(options.get("metric"), options.get("evaluate"), options.get("validate"))


@dataclass(frozen=True, eq=False)
class JudgingFeeds:
    """The images of a judgement: calibration images, separate judging images if given, and held-out images."""

    calibrated: Feeds
    evaluated: Feeds | None = None
    held_out: Feeds | None = None

    @property
    def coverage(self) -> Feeds:
        """Images that predict the error on other images: unseen images, else the calibration images."""
        return self.unseen or self.calibrated

    @property
    def unseen(self) -> Feeds | None:
        """Held-out images, else the judging images if none of them calibrated the model."""
        from sgsdump.models.feeds.by_content import by_content

        if self.held_out is not None or self.evaluated is None:
            return self.held_out
        same = {*by_content(self.evaluated).keys} & {*by_content(self.calibrated).keys}
        return None if same else self.evaluated

    @property
    def judges(self) -> Feeds:
        """Given judging images, or else the calibration images."""
        return self.evaluated or self.calibrated

    def judged(self) -> Iterator[PictureFeed]:
        """Yield all given judging images, or some of the calibration images."""
        from sgsdump.fixedpoint.tuning.setup import PICTURES
        from sgsdump.models.feeds.image_list import evenly

        every = range(len(self.judges))
        yield from _given(self.judges, every if self.evaluated else evenly(every, PICTURES))

    def validated(self) -> Iterator[PictureFeed]:
        """Yield all held-out images."""
        if self.held_out is not None:
            yield from _given(self.held_out, range(len(self.held_out)))


def _given(feeds: Feeds, indices: Sequence[int]) -> Iterator[PictureFeed]:
    for index in indices:
        name, feed, raw = feeds.both(index)
        yield feed, raw, name, feeds.truth(index)
