"""Cure a float model: rewrite it and widen its ranges so that 8 bits lose less accuracy.

    cured = cure(open_model("model.onnx"), images, config)
    print(cured.gain)                     # output error relative to the unchanged model

The steps are listed below. Each step is judged alone, in the hardware's integer arithmetic and on held-out images. A
step that does not help is left out.

    ranges     widen ranges for values that calibration images miss     ranges.py
    fold       fold BatchNormalization into the convolution before it   folding.py
    equalise   scale channels so that 8 bits suit all of them           equalisation.py
    absorb     move the constant part of a channel into the next bias   absorption.py
    bias       subtract the mean error of quantisation                  biases.py
    round      round weights so that the layer outputs are kept         rounding.py

Every error is the relative squared error of each output against the original float model, sum((y - r)^2) / sum(r^2).
Steps that change the function (round, bias) therefore pay for their change. Steps that must keep the function (fold,
equalise, absorb) are rejected if they change it.
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
    """The result of ``cure``.

    Attributes
    ----------
    proto : ModelProto
        The cured float model. Convert it, or pass it to ``calibrate`` with the same options.
    params : tuple of QuantParam or None
        Entries of the quant file, with widened ranges if the step ``ranges`` helps. None if ``ranges`` was not tried.
    steps : tuple of Step
        Every step that was tried, with its errors.
    as_it_is, errors : mapping of str to float
        Relative squared error of each output, for the original model and for the cured model.
    judged : int
        Number of images on which ``as_it_is`` and ``errors`` were measured.
    held_out : bool
        False if the cures were fitted to the judging images too, because there are too few images.
    changed : mapping of str to float
        Change of each output of the float model by the cures: sum((y - r)^2) / sum(r^2) against the original.
    scaled : tuple
        Model and quant file entries after only the steps that keep the function of the model (``steps.KEEPING``). Use
        them if convolutions get INT16, because corrections of INT8 errors are wrong at INT16.
    by_image : tuple of float
        For each judging image, the error of the cured model divided by the error of the original model.
    expected : mapping of str to float
        Expected error of each output on other images of the same kind: the measured error plus one standard error.
        Empty if no images were held out.
    expected_gain : float or None
        Geometric mean over the outputs of the expected error divided by the error of the original model.
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
        """Error of the cured model divided by the error of the original model: geometric mean over the outputs."""
        return mean_ratio(self.errors, self.as_it_is)

    @property
    def helps(self) -> bool:
        """True if at least one step was kept."""
        return any(step.taken for step in self.steps)

    def __repr__(self) -> str:
        taken = ", ".join(step.cure for step in self.steps if step.taken) or "nothing helps"
        return f"Cured({taken}: {self.gain:.3g} of the error)"

    def __str__(self) -> str:
        """Return the report: one line per step and the result."""
        told: str = ask("text of a cure", self)
        return told

    def save(self, path: str | Path) -> Path:
        """Write the model, and its quant files beside it.

        Parameters
        ----------
        path : str or Path
            ONNX file to write. Ranges are written to ``NAME.quant.json`` and ``NAME.quant.pkl`` in the same folder. If
            the result has no ranges, older quant files of this name are deleted.

        Returns
        -------
        Path
            ``path``.

        Raises
        ------
        ModelError
            If the model does not fit into one ONNX file of 2 GB.
        OutputError
            If a file cannot be written.
        """
        from sgsdump.files.atomic_write import replacing, together
        from sgsdump.fixedpoint.quantisation.float_model import save_model
        from sgsdump.sidecars import quant_param

        path, beside = Path(path), ranges_beside(Path(path))
        with together(), replacing(path) as file:
            save_model(self.proto, path, file)
            if self.params is not None:
                for target, form in zip(beside, ("json", "pickle")):
                    quant_param.write(self.params, target, form)
        if self.params is None:  # calibration would take an older file for this model's
            for target in beside:
                target.unlink(missing_ok=True)
        return path


def ranges_beside(model: Path) -> tuple[Path, Path]:
    """Return the paths of a cured model's quant files: for ``calibrate`` and for the SDK."""
    return model.with_name(f"{model.stem}.quant.json"), model.with_name(f"{model.stem}.quant.pkl")


def cure(
    model: Model,
    feeds: Feeds,
    config: InputConfig,
    options: CureOptions = EVERY,
    validate: Feeds | None = None,
    progress: Progress = SILENT,
) -> Cured:
    """Cure an opened float model.

    Parameters
    ----------
    model : Model
        A float model from ``models.model.open_model``, not simplified: names and opset stay as they are.
    feeds : Feeds
        Calibration images, with their input_config.
    config : InputConfig
        Image inputs, normalisation and INT16 convolutions, as for ``calibrate``.
    options : CureOptions, optional
        Calibration level and steps to try.
    validate : Feeds, optional
        Validation images of the kind that the model is used for. They judge the steps. Default: cross-validation.
        Each fold of ``feeds`` judges what was fitted to the others, and the result is fitted to all.
    progress : Progress, optional
        Receives the progress of calibration and of judging.

    Returns
    -------
    Cured
        The cured model, its ranges, and the errors before and after.

    Raises
    ------
    ConfigError
        If ``options`` names an unknown cure, or ``config`` does not fit the model.
    ModelError
        If the model cannot be quantised or run.
    InputError
        If an image does not fit the model.
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
    # Biases and weights are rebuilt last, from the model with all function-preserving steps.
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
    """Return the expected error of each output on other images, and its ratio to the error of the original model.

    fitted  the number of images of each fold; empty if validation images judge.
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
    """Return the configuration with the bits proposed for the original model, and the level without bits.

    The images of a fold, or the model after a cure, would give other bits.
    """
    level = WITHOUT_BITS[options.level]
    if level == options.level:
        return config, options
    calibration = calibrate(rewritten(source, source.proto), Fed(pairs), config, options.level, progress=progress)
    return calibration.config, replace(options, level=level)


def prepared(model: Model, feeds: Feeds) -> Model:
    """Return the model in the form that cures rewrite.

    Nodes are in canonical order, shape arithmetic is folded, values are float32, weights are not inputs, Identities are
    removed, and external weights are loaded. Opset and names stay. Raises what ``simplify`` raises.
    """
    simple = simplify(model, lambda: feeds)  # raises if the model cannot be quantised
    if simple.branches is not None or model.folder is not None or model.blobs is not None:
        return replace(simple, proto=in_canonical_order(simple.proto))
    proto = with_nodes(model.proto, sorted_nodes(model.proto.graph))
    unlist_weights(proto)
    proto = without_identities(single_precision(fold_constants(proto)))
    return replace(model, proto=in_canonical_order(proto), caffe=None)
