"""``cure``: rewrite a float model so that INT8 loses less accuracy, without raising convolutions to INT16."""

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
    """Rewrite a float model so that INT8 loses less accuracy, as ``sgsdump cure`` does.

    Parameters
    ----------
    model : str or Path
        Float model, see ``calibrate``.
    data : str, Path, array, mapping or iterable
        Images or arrays to fit the cures to, see ``calibrate``.
    quant_level : str
        Calibration level at which the cured model will be quantised, L1 to L5.
    cures : sequence of str
        Cures to try: ``ranges``, ``fold``, ``equalise``, ``absorb``, ``bias`` and ``round``. Default: all.
    validate : str, Path, array, mapping or iterable, optional
        Held-out images on which the cures are judged. By default, ``data`` is split into folds, and each fold is held
        out in turn.
    **beside
        ``preprocess``, ``input_config``, ``weight_file`` and other options, as in ``calibrate``.

    Returns
    -------
    Cured
        Rewritten model with its ranges, and the effect of each step. ``Cured.save`` writes the rewritten model and its
        ranges.

    Raises
    ------
    SgsdumpError
        If a file cannot be read, if the data do not fit the model, if calibration fails, or if a cure is unknown.

    Examples
    --------
    >>> cured = sgsdump.cure("net.onnx", "images/", input_config="input_config.ini")  # doctest: +SKIP
    >>> cured.save("cured.onnx")  # doctest: +SKIP
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
    """Apply cures to an opened model. ``feeds`` holds images to fit the cures and, optionally, held-out images.

    Raises ConfigError if an image is used for fitting and is also held out. If a cure raises an exception, the
    caller receives this exception.
    """
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
