"""What is to be put right before any INT16: the data that a network was calibrated on, its normalisation, ranges, an
operator that no bits of convolutions cure, and weights that share one scale.

Each is proved by putting it right: the fixed model made anew must at least halve the outputs' error, or need fewer
convolutions at 16 bits. What is only thought to be at fault is no cause, so a sound network has none.
"""

from __future__ import annotations

from sgsdump.progress import SILENT, Progress
from sgsdump.tuning.causes_of_data import flat_pictures, hardly_moved, normalisation, odd_picture, of_given_ranges
from sgsdump.tuning.causes_of_network import operator, weights
from sgsdump.tuning.examined import Examined, RootCause


def root_cause(examined: Examined, progress: Progress = SILENT) -> RootCause | None:
    """The first that holds. Raises what calibrating and running the models raise."""
    if not examined.outputs.outputs:
        return None
    shown = normalisation(examined)
    if shown is not None:
        return shown
    reach = examined.reach()
    if reach is None:
        return None
    if examined.subject.made is None:
        found = of_given_ranges(examined, reach, progress)
    else:
        found = flat_pictures(examined, reach) or odd_picture(examined, reach, progress)
    if found is not None or examined.good or examined.advice is None:
        return found
    if all(figures.hardly_moved for figures in examined.outputs.outputs.values() if not figures.good(examined.limits)):
        return hardly_moved(examined)
    return operator(examined, examined.advice) or weights(examined, examined.advice)
