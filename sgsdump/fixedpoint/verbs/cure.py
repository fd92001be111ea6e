"""``cure``: a float model rewritten so that 8 bits lose less, before any convolution gets 16."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.fixedpoint.verbs.network import check_apart, open_network
from sgsdump.models.network import named_network

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.curing.steps import CureOptions
    from sgsdump.fixedpoint.verbs.network import OpenNetwork
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.network import Beside, Data, Network
    from sgsdump.progress import Progress

LEVEL = "L2"


def cure(
    model: str | Path,
    data: Data,
    *,
    quant_level: str = LEVEL,
    cures: Sequence[str] = (),
    validate: Data | None = None,
    **beside: Unpack[Beside],
) -> Cured:
    """A float model rewritten so that 8 bits lose less; as ``sgsdump cure``.

    model, data, beside  see ``calibrate``.
    quant_level  that the model is cured for.
    cures        which are tried, of ``ranges``, ``fold``, ``equalise``, ``absorb``, ``bias`` and ``round``; without it
                 all.
    validate     images of the kind that the network is for, or other data, to judge by; without it the folds of
                 ``data`` in turn, by content.

    ``save`` writes the model and, beside it, its ranges. Raises SgsdumpError: what cannot be read, fed or calibrated,
    and a cure that does not exist.
    """
    from sgsdump.fixedpoint.curing.steps import CURES, CureOptions
    from sgsdump.progress import bars

    network = named_network(model, data, beside)
    opened = open_network(network, quant_level)
    how = CureOptions(quant_level, tuple(cures) or CURES)
    judges = None if validate is None else opened.feeds(validate)
    return cured(network, opened, how, (opened.feeds(), judges), bars())


def cured(
    network: Network, opened: OpenNetwork, how: CureOptions, feeds: tuple[Feeds, Feeds | None], progress: Progress
) -> Cured:
    """Of a network that is open; ``feeds``: those that it is fitted to, and those that judge. Raises what curing does,
    and ConfigError for data that is in both."""
    from sgsdump.fixedpoint.curing.cure import cure
    from sgsdump.fixedpoint.quantisation.fixed_model import rehearse
    from sgsdump.models.model import open_model

    fitted, judges = feeds
    if judges is not None:
        check_apart(judges, fitted, "-i", "cure")
    rehearse(opened.model, fitted[0], opened.config)
    outputs = [entry.name for entry in opened.config.outputs]
    model = network.part.of(open_model(network.model, network.weight_file, staged_outputs=outputs))
    return cure(model, fitted, opened.config, how, judges, progress)
