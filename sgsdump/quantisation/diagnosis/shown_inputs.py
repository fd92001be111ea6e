"""Whether the float and the fixed model are shown the same picture, on the first one, before the work begins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sgsdump.models.feeds.feeds import PictureFeeds, feed_maker
from sgsdump.models.model import Model
from sgsdump.quantisation.fixed_model import pictures_of
from sgsdump.quantisation.input_agreement import input_differences
from sgsdump.sidecars.input_text import is_input_text


def disagreements(model: Model, feeds: PictureFeeds) -> Iterator[str]:
    """A sentence for each quantised picture input that the preprocess file and mean and std_value make differently.

    feeds  of the float model, with its input_config. Raises what making a feed raises.
    """
    assert feeds.config is not None
    known = {spec.name for spec in feeds.specs}
    quantised = [entry.name for entry in feeds.config.inputs if entry.quantised and entry.name in known]
    pictures = pictures_of(model, feeds.config, quantised)
    files = feeds.runs[0]
    make_raw = None
    # Arrays and texts go in as they are, normalised already.
    if feeds.preprocess is not None and not any(is_input_text(Path(file)) for file in files):
        make = feed_maker(feeds.preprocess, feeds.specs, feeds.config, normalised=False)
        make_raw = partial(make, files)
    label, feed = feeds[0]
    for difference in input_differences(feed, make_raw, pictures):
        if not difference.agrees:
            yield f"{label}: {difference}"
