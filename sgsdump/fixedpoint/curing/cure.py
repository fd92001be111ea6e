"""Cure a float model: rewritten, and its ranges with room, so that 8 bits lose less. ``cure`` is the whole of it.

    cured = cure(open_model("net.onnx"), pictures, config)
    print(cured.gain)                     # the outputs' error over that of the model as it is

The steps, each judged by itself in the hardware's integers on pictures that it was not fitted to, each left out where
it does not help:

    ranges     room for what the calibration pictures do not show     ranges.py
    fold       BatchNormalization into the convolutions before it     folding.py
    equalise   channels scaled so that 8 bits suit all of them        equalisation.py
    absorb     what a channel always holds, in the next bias          absorption.py
    bias       what quantising adds in the mean, taken off            biases.py
    round      weights on their grid so that outputs are kept         rounding.py

Every error is against the float model as it was given: sum((y - r)^2) / sum(r^2) of each output. What does not keep the
function (round, bias) so pays for its change; what should keep it (fold, equalise, absorb) is refused where it does
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sgsdump.fixedpoint.curing.errors import expected_errors, mean_ratio, ratios_by_image, shared, totals
from sgsdump.fixedpoint.curing.fold import AS_IT_IS, Fed, Fold, Made, Settings, rewritten
from sgsdump.fixedpoint.curing.search import Search
from sgsdump.fixedpoint.curing.steps import EVERY, KEEPING, RANGES, CureOptions, Step
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.models.canonical_order import in_canonical_order, in_file_order
from sgsdump.models.feeds.by_content import JUDGED, PicturePairs, by_content, folds_of, judging, share
from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.graph import sorted_nodes, unlist_weights, with_nodes
from sgsdump.models.model import Model
from sgsdump.models.passes.converted import without_identities
from sgsdump.models.passes.rewrites import fold_constants, single_precision
from sgsdump.plugins import ask
from sgsdump.progress import SILENT, Progress
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.quant_param_entries import QuantParam


@dataclass(frozen=True, eq=False)
class Cured:
    """proto      the cured float model, to be converted, or ``calibrate``d with the same options.
    params     the entries of its quant file: ranges with room, where that was taken. None without ``ranges``.
    as_it_is   by output the error of the model as it is, ``errors`` of the cured one, both on ``judged`` images that
               nothing was fitted to (or, of a few images, all of them: ``held_out`` False).
    by_image   [images] of the error of the cured model over that of the model as it is.
    expected   by output the error to expect of the cured model on other images of this kind, one standard error above
               the one measured; {} where none was held out. ``expected_gain``: over that of the model as it is.
    changed    by output how far the cured float model is from the original one: sum((y - r)^2) / sum(r^2).
    scaled     the model and its entries with those cures alone that keep what it computes (``steps.KEEPING``): where
               convolutions get 16 bits, what made up for their 8 is wrong.
    """

    proto: ModelProto
    params: tuple[QuantParam, ...] | None
    steps: tuple[Step, ...]
    as_it_is: Mapping[str, float]
    errors: Mapping[str, float]
    judged: int
    held_out: bool
    changed: Mapping[str, float]
    scaled: tuple[ModelProto, tuple[QuantParam, ...] | None]
    by_image: tuple[float, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)
    expected_gain: float | None = None

    @property
    def gain(self) -> float:
        """The geometric mean over the outputs of the error over that of the model as it is."""
        return mean_ratio(self.errors, self.as_it_is)

    @property
    def helps(self) -> bool:
        return any(step.taken for step in self.steps)

    def __repr__(self) -> str:
        taken = ", ".join(step.cure for step in self.steps if step.taken) or "nothing helps"
        return f"Cured({taken}: {self.gain:.3g} of the error)"

    def __str__(self) -> str:
        """What each step did, and the result, in lines."""
        told: str = ask("text of a cure", self)
        return told

    def save(self, path: str | Path) -> Path:
        """Write the model, and its ranges beside it where there are any. Raises ModelError, OutputError."""
        from sgsdump.files.atomic_write import replacing, together
        from sgsdump.fixedpoint.quantisation.float_model import save_model
        from sgsdump.sidecars import quant_param

        path, beside = Path(path), ranges_beside(Path(path))
        with together(), replacing(path) as file:
            save_model(self.proto, path, file)
            if self.params is not None:
                for target, form in zip(beside, ("json", "pickle")):
                    quant_param.write(self.params, target, form)
        if self.params is None:  # an older one would be taken for this model's
            for target in beside:
                target.unlink(missing_ok=True)
        return path


def ranges_beside(model: Path) -> tuple[Path, Path]:
    """The quant files of a cured model: for ``calibrate`` and for the SDK."""
    return model.with_name(f"{model.stem}.quant.json"), model.with_name(f"{model.stem}.quant.pkl")


def cure(
    model: Model,
    feeds: Feeds,
    config: InputConfig,
    options: CureOptions = EVERY,
    validate: Feeds | None = None,
    progress: Progress = SILENT,
) -> Cured:
    """Cure an opened float model (``models.model.open_model``, not simplified: names and opset stay as they are).

    feeds     the calibration pictures, with their configuration.
    validate  images of the kind that the network is for, to judge by; without them each fold of ``feeds`` judges what
              was fitted to the others, and the result is fitted to all.
    Raises what calibrating raises, and ConfigError for a cure that does not exist.
    """
    source, ordered = prepared(model, feeds), by_content(feeds)
    every, folds = PicturePairs(ordered), folds_of(ordered.keys)
    config, options = _with_bits(source, config, options, every, progress)
    whole = Fold(source, config, options, every, progress)
    few = validate is None and not folds
    if validate is not None:
        parts = [(whole, PicturePairs(validate, most=JUDGED))]
    elif few:
        parts = [(whole, every)]
    else:
        parts = []
        for fold in folds:
            others = replace(every, chosen=tuple(sorted({*range(len(ordered))} - {*fold})))
            judges = replace(every, chosen=tuple(judging(fold)))
            parts.append((Fold(source, config, options, others, progress), judges))
    search = Search(parts, progress, own_judges=validate is not None, few=few)
    state, steps = search.run()
    settings = state.settings
    made = state.made[0] if parts[0][0] is whole else whole.again(search.taken, settings)
    keeping = [name for name in search.taken if name in KEEPING]
    # Biases and weights are rebuilt from the model with those taken before, which all keep what it computes.
    scaled = made if keeping == search.taken else replace(made, proto=made.plain or made.proto, plain=None)

    def with_ranges(each: Made) -> tuple[ModelProto, tuple[QuantParam, ...] | None]:
        params = tuple(whole.params(each, settings)) if RANGES in options.cures else None
        return in_file_order(each.proto, model.proto.graph.node), params

    proto, params = with_ranges(made)
    by_image = ratios_by_image(search.now, search.before, search.names)
    fitted = [len(fold.pairs) for fold, _ in parts] if validate is None else []
    promised, gain = ({}, None) if few else _promise(search, whole, (made, settings), fitted)
    return Cured(
        proto,
        params,
        tuple(steps),
        *search.errors(),
        judged=sum(map(len, search.judges)),
        held_out=not few,
        changed=search.difference(state),
        scaled=(proto, params) if scaled is made else with_ranges(scaled),
        by_image=tuple(by_image.tolist()),
        expected=promised,
        expected_gain=gain,
    )


def _promise(
    search: Search, whole: Fold, result: tuple[Made, Settings], fitted: Sequence[int]
) -> tuple[dict[str, float], float]:
    """Return the error to expect of each output on other images, and its part of the error of the model as it is.

    fitted  the number of images of each fold; empty if images of their own judge.
    """
    now, before = search.now, search.before
    if fitted and search.taken:
        each = [share(count, len(whole.pairs)) for count in fitted]
        shares = np.repeat(each, [len(judges) for judges in search.judges])
        now = shared(now, search.judge_whole(whole, *result), shares)
        before = shared(before, search.judge_whole(whole, Made(search.source.proto), AS_IT_IS), shares)
    promised = expected_errors(now, search.names)
    return promised, mean_ratio(promised, totals(before, search.names))


def _with_bits(
    source: Model, config: InputConfig, options: CureOptions, pairs: PicturePairs, progress: Progress
) -> tuple[InputConfig, CureOptions]:
    """Return the configuration with the bits that the level proposes for the model as it is, and the level without
    bits. On the images of a fold, or after a cure, the level would propose other bits."""
    level = WITHOUT_BITS[options.level]
    if level == options.level:
        return config, options
    calibration = calibrate(rewritten(source, source.proto), Fed(pairs), config, options.level, progress=progress)
    return calibration.config, replace(options, level=level)


def prepared(model: Model, feeds: Feeds) -> Model:
    """The model as it is rewritten: in the canonical order, shape arithmetic folded away, in float32, of its own opset
    and names, weights not among its inputs, without Identities. Weights in files beside it are loaded. Raises what
    ``simplify`` raises."""
    simple = simplify(model, lambda: feeds)  # raises for what cannot be quantised
    if simple.branches is not None or model.folder is not None or model.blobs is not None:
        return replace(simple, proto=in_canonical_order(simple.proto))
    proto = with_nodes(model.proto, sorted_nodes(model.proto.graph))
    unlist_weights(proto)
    proto = without_identities(single_precision(fold_constants(proto)))
    return replace(model, proto=in_canonical_order(proto), caffe=None)
