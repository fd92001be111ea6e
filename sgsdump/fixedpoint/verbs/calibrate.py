"""``calibrate``: create the fixed model and compute all ranges from a float model, images and input_config.ini."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import feeds_of, named_network

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.quantisation import fixed_model
    from sgsdump.fixedpoint.quantisation.calibration import Calibration
    from sgsdump.fixedpoint.quantisation.quant_file import Imported
    from sgsdump.fixedpoint.tuning.criteria import UserMetric
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.models.network import Beside, Data
    from sgsdump.progress import Progress
    from sgsdump.tensors.types import Range

DEFAULT = "L5"
THRESHOLD = 0.002
# These levels read one weight at a time, so large weights can stay in their file.
BY_PARTS = "L1", "L2"


@dataclass(frozen=True)
class How:
    """Calibration options.

    level       L1 to L5
    quant_file  ranges, bit widths and weights from the user
    threshold   L4, L5: largest change of the outputs for which a convolution stays at INT8
    fuse        omit tensors between operators that the hardware computes in one step
    range_room  widen INT16 ranges for unseen images
    plan_of     fixed model that selects the INT16 convolutions; the configuration and the level then raise no
                convolution
    """

    level: str
    quant_file: Path | None = None
    threshold: float = THRESHOLD
    fuse: bool = True
    range_room: bool = False
    plan_of: Path | None = None


@dataclass(frozen=True, eq=False)
class FixedModel:
    """A calibrated fixed model: ONNX model that computes in the hardware's integer arithmetic.

    Attributes
    ----------
    model : Model
        Fixed model in memory. To simulate this model, pass the ``FixedModel`` to ``simulate``.
    calibration : Calibration
        Ranges and statistics measured on the calibration data.
    imported : Imported
        The float model that was calibrated, and the entries of the quant file.
    fixed : fixed_model.FixedModel
        Type, scale and zero point of each tensor, with notes.
    how : How
        Calibration options.
    warnings : tuple of str
        Inferred settings, and restrictions of SDK 1.1.5 that the model violates.
    metric : tuple of (float, float) or None
        Mean of your metric over the calibration data, for the float model and for the fixed model.
    measured : tuple of str
        Tensors without a range in the given quant file. The ranges of these tensors were measured on the calibration
        data.
    """

    model: Model
    calibration: Calibration
    imported: Imported
    fixed: fixed_model.FixedModel
    how: How
    warnings: tuple[str, ...] = ()
    metric: tuple[float, float] | None = None
    measured: tuple[str, ...] = ()

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Calibration range of each float tensor by name, in the order of the model."""
        return self.calibration.ranges

    @property
    def notes(self) -> tuple[str, ...]:
        """Operators whose results in the fixed model are only approximate, one sentence per item."""
        return self.fixed.notes

    @property
    def has_tight_int16(self) -> bool:
        """True if a convolution reads an INT16 tensor with a range that unseen images can exceed (``range_room``)."""
        from sgsdump.fixedpoint.quantisation.float_model import deployed
        from sgsdump.models.graph import Graph

        if self.how.quant_file is not None or self.how.range_room:
            return False
        graph = Graph(deployed(self.imported.model))  # inputs of the model never get room
        wide = (graph.producer[name] for name, bits in self.convolutions.items() if bits == 16)
        return any(node.input[0] not in graph.inputs for node in wide)

    @property
    def convolutions(self) -> dict[str, int]:
        """Bit width (8 or 16) of each convolution's weights, by name."""
        return {name: 8 * quant.dtype.itemsize for name, quant in self.fixed.plan.weights.items() if quant.dtype}

    def save(self, path: str | Path, log: str | Path | None = None) -> Path:
        """Write the fixed model; if ``log`` is given, write the calibration ranges too.

        Parameters
        ----------
        path : str or Path
            ONNX file to write.
        log : str or Path, optional
            Folder for the ranges, in the format of the SDK's calibrator (``tensor_min_max.txt`` and further files).

        Returns
        -------
        Path
            ``path``.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        from contextlib import nullcontext

        from sgsdump.files.atomic_write import replacing, replacing_folder, together
        from sgsdump.fixedpoint.quantisation.calibration_log import FILES

        path = Path(path)
        ranges = replacing_folder(Path(log), keep=lambda name: name not in FILES) if log else nullcontext(None)
        with together(), replacing(path) as file, ranges as folder:
            self.write(path, file)
            if folder is not None:
                self.write_log(folder)
        return path

    def write(self, path: Path, file: IO[bytes]) -> None:
        """Write the fixed model to an open file that the caller renames to ``path``."""
        from sgsdump.fixedpoint.quantisation.float_model import save_model

        save_model(self.fixed.proto, path, file)

    def write_log(self, folder: Path, form: Literal["text", "json"] = "text") -> Path:
        """Write the ranges into an empty folder and return the path of tensor_min_max.txt. Raises OutputError."""
        from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log

        weights = self.how.level != "L1" or bool(self.imported.changed)
        options = LogOptions(self.how.fuse, form, weights, self.imported.changed)
        return write_log(folder, self.imported.model, self.calibration, self.fixed.plan, options)

    def to_pandas(self) -> Any:
        """Return the ranges as a DataFrame with ``name``, ``low`` and ``high``. Raises MissingExtra without pandas."""
        from sgsdump.dumps.tables import data_frame

        rows = [(name, float(each.low), float(each.high)) for name, each in self.ranges.items()]
        return data_frame(rows, ["name", "low", "high"])

    def __repr__(self) -> str:
        wide = sum(bits == 16 for bits in self.convolutions.values())
        return f"FixedModel({self.model.path.name}: {len(self.convolutions)} convolutions, {wide} of them INT16)"


def calibrate(
    model: str | Path,
    data: Data,
    *,
    quant_level: str | None = None,
    quant_file: str | Path | None = None,
    processes: int = 1,
    metric: str | UserMetric | None = None,
    range_room: bool = False,
    plan_of: str | Path | None = None,
    **beside: Unpack[Beside],
) -> FixedModel:
    """Make the fixed model of a float model, as ``sgsdump calibrate`` does.

    Parameters
    ----------
    model : str or Path
        ONNX model, or Caffe ``.prototxt`` (with ``weight_file``).
    data : str, Path, array, mapping or iterable
        Calibration data: images (a file, a folder, a list file), ``.npy``, ``.npz`` or ``random``; a data loader
        ``FILE.py[:NAME]``; an array in the shape and type of the model's input, a dictionary of arrays by input name,
        or an iterable of arrays or dictionaries.
    quant_level : str, optional
        Calibration level, L1 to L5. From L2 on, weights have one scale per output channel. At L3 and L5, activation
        ranges are optimised. At L4 and L5, some convolutions are raised to INT16.
        Default: L5, or the level of the log if ``quant_file`` is the log of a calibration.
    quant_file : str or Path, optional
        Your own ranges, bit widths and weights.
    processes : int
        Number of processes that run the model on the data. The number does not change the result.
    metric : str or callable, optional
        Your accuracy metric: a function f(outputs, float_outputs) -> number, or ``FILE.py:f``. The attribute
        ``metric`` of the result has the mean of this function over the images, for the float model and for the fixed
        model.
    range_room : bool
        If True, make INT16 ranges at least 50 % wider than measured, for unseen images. Ranges of a quant file are not
        widened.
    plan_of : str or Path, optional
        Another fixed model (``fixed.sim``, or made by ``calibrate``). The convolutions that this model computes at
        INT16 are raised to INT16.
    **beside
        ``preprocess``: your preprocess file; for several inputs, one per input, separated by commas.
        ``input_config``: the path of input_config.ini. This file is required for images; for arrays, the settings are
        inferred.
        ``weight_file``: weights of a Caffe model.
        ``model_inputs``, ``model_outputs``: names of the first and last tensors, if only a part of the model is used.
        ``strict_sdk``: raise ModelError if SDK 1.1.5 refuses the model.

    Returns
    -------
    FixedModel
        Fixed model with its ranges.

    Raises
    ------
    SgsdumpError
        If a file cannot be read, if the data do not fit the model, or if the model cannot be quantised.

    Examples
    --------
    >>> fixed = sgsdump.calibrate("net.onnx", "images/", input_config="input_config.ini")  # doctest: +SKIP
    >>> fixed.ranges["conv1"]  # doctest: +SKIP
    >>> fixed.save("net_fixed.onnx", log="log")  # doctest: +SKIP
    """
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.tuning.criteria import load_metric
    from sgsdump.progress import bars

    network = named_network(model, data, beside)
    file = Path(quant_file) if quant_file else None
    plan = Path(plan_of) if plan_of else None
    how = How(level_of(quant_level, file, plan), file, range_room=range_room, plan_of=plan)
    judge = load_metric(metric) if isinstance(metric, str) else metric
    outside = how.level in BY_PARTS and judge is None
    opened = open_network(network, quant_level or DEFAULT, outside=outside)
    feeds, progress = feeds_of(opened.source, opened.specs), bars()
    return with_metric(calibrated(opened, feeds, how, Workers(processes), progress), feeds, judge, progress)


def with_metric(made: FixedModel, feeds: Feeds, metric: UserMetric | None, progress: Progress) -> FixedModel:
    """Return ``made`` with its ``metric`` set: the mean metric of the float model and of the fixed model.

    The metric's exceptions are not caught.
    """
    from sgsdump.fixedpoint.tuning.worth import metrics_of
    from sgsdump.models.feeds.by_content import PicturePairs

    if metric is None:
        return made
    pairs = PicturePairs(feeds)
    of_float, of_fixed = metrics_of(made.imported.model, [made.fixed.proto], metric, pairs, progress)
    return replace(made, metric=(of_float, of_fixed))


def level_of(told: str | None, quant_file: Path | None, plan_of: Path | None = None) -> str:
    """Return the calibration level: the level that the user gave, otherwise L1 or the default level.

    Without a level, L1 is returned if ``quant_file`` belongs to the log folder of a calibration at L1. If a plan or a
    quant file is given, the calibration level does not raise any convolution to INT16. Raises ConfigError if both a
    plan and a quant file are given.
    """
    from sgsdump.errors import ConfigError
    from sgsdump.fixedpoint.quantisation.calibration_log import has_weight_ranges
    from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS

    if plan_of is not None:
        if quant_file is not None:
            raise ConfigError("--quant-file and --plan-of both set the bit widths; give only one")
        return WITHOUT_BITS[told or DEFAULT]
    if quant_file is None:
        return told or DEFAULT
    if told is None and has_weight_ranges(quant_file) is False:
        return "L1"
    return WITHOUT_BITS[told or DEFAULT]


_PRINTED = 1e-5  # rounding of a text file's digits, relative to the width of the range


def _is_near(given: Range, seen: Range | None) -> bool:
    """Return whether two ranges differ only by the rounding of numbers in a text file."""
    if seen is None:
        return False
    width = max(seen.high - seen.low, 1e-12)
    return abs(given.low - seen.low) <= _PRINTED * width and abs(given.high - seen.high) <= _PRINTED * width


def calibrated(opened: OpenNetwork, feeds: Feeds, how: How, workers: Workers, progress: Progress) -> FixedModel:
    """Calibrate an opened model and return its fixed model.

    Exceptions of the calibration, and of the code that reads the data, are passed on to the caller.
    """
    from sgsdump.fixedpoint.quantisation.calibration import CalibrationOptions, calibrate, is_long
    from sgsdump.fixedpoint.quantisation.calibration_log import read_log
    from sgsdump.fixedpoint.quantisation.fixed_model import check_that_it_runs, make_fixed, rehearse
    from sgsdump.fixedpoint.quantisation.quant_file import (
        Imported,
        import_params,
        is_log,
        measured_beside,
        plan_params,
        read_quant_file,
    )
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges, side_ranges, updated, with_softmax

    model, config, first = opened.model, opened.config, feeds[0]
    if how.plan_of is not None:  # the plan replaces the INT16 of the configuration
        config = replace(config, conv_format=None, tensor_arrays=(), by_level=(), by_quant_file=())
    imported, side = Imported(model, config), SideRanges()
    if how.quant_file is not None:
        params = read_quant_file(how.quant_file)
        beside, side = read_log(how.quant_file, model, weights=how.level != "L1")
        imported = import_params(model, [*params, *beside], config, how.fuse, str(how.quant_file), how.level == "L1")
    planned = plan_params(how.plan_of) if how.plan_of is not None else []
    if planned:
        imported = import_params(model, planned, config, how.fuse, str(how.plan_of))
    options = CalibrationOptions(how.level, how.fuse, how.threshold)
    if is_long(how.level, len(feeds)):
        rehearse(imported.model, first, imported.config, how.fuse)
    calibration = calibrate(imported.model, feeds, imported.config, options, workers, progress)
    others: set[str] = set()
    if how.quant_file is not None and is_log(how.quant_file):
        # Ranges of channels and softmax tables are measured on the images only if the log is of this calibration.
        # With a list of quant parameters, the SDK measures both (tests/golden/sigmastar/cured/ranged_L2).
        own = with_softmax(calibration.ranges, side_ranges(calibration.statistics).softmax)
        seen = calibration.ranges, calibration.seen, own
        others = {n for n, given in imported.ranges.items() if not any(_is_near(given, each.get(n)) for each in seen)}
    ranges = calibration.ranges
    if how.range_room:
        from sgsdump.fixedpoint.curing.ranges import with_int16_room

        channels = side_ranges(calibration.statistics).channels
        ranges = with_int16_room(imported.model, ranges, channels, how.level != "L1")
    calibration = replace(calibration, ranges={**ranges, **imported.ranges})
    side = updated(side_ranges(calibration.statistics, others), side)
    fixed = make_fixed(imported.model, calibration.ranges, calibration.config, how.fuse, side=side)
    check_that_it_runs(imported.model, fixed.proto, config, first[1])
    measured = measured_beside(imported, fixed.plan, calibration.statistics.whole) if how.quant_file is not None else []
    warnings = (*opened.assumed, *opened.warnings)
    made = FixedModel(replace(model, proto=fixed.proto), calibration, imported, fixed, how, warnings)
    return replace(made, measured=tuple(measured))
