"""``calibrate``: the fixed model of a float model, pictures and input_config.ini, and the range of every tensor."""

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
# At these levels large weights stay in their file.
BY_PARTS = "L1", "L2"


@dataclass(frozen=True)
class How:
    """How the fixed model is made.

    level       L1 to L5.
    quant_file  ranges, bits and weights that a user decided.
    threshold   L4, L5: what changes the outputs by more is raised to 16 bits.
    fuse        operators that the hardware computes as one do not show.
    range_room  INT16 ranges are wider than the images fill, for images not seen.
    plan_of     a fixed model whose convolutions with INT16 weights have them here too; neither the configuration nor a
                level raises others.
    """

    level: str
    quant_file: Path | None = None
    threshold: float = THRESHOLD
    fuse: bool = True
    range_room: bool = False
    plan_of: Path | None = None


@dataclass(frozen=True, eq=False)
class FixedModel:
    """A fixed model, as it was calibrated: ONNX that computes in the hardware's integers.

    model        the fixed model; ``simulate`` and ``compare`` take it.
    calibration  what was measured on the feeds.
    imported     the float model that was calibrated, and what the quant file said of it.
    fixed        the plan of types, and what was noticed while it was made.
    how          how it was made.
    warnings     what was assumed, and what SDK 1.1.5 says of the model.
    metric       yours, of the float and of the fixed model, its mean over the feeds; None without one.
    measured     tensors whose ranges are measured on the feeds although a quant file was given, which does not tell
                 them.
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
        """Every float tensor's range by name, in the model's order."""
        return self.calibration.ranges

    @property
    def notes(self) -> tuple[str, ...]:
        """What is only approximate in it, a sentence each."""
        return self.fixed.notes

    @property
    def has_tight_int16(self) -> bool:
        """Whether convolutions read INT16 in ranges of these images alone: ``range_room`` would help on others."""
        from sgsdump.fixedpoint.quantisation.float_model import deployed
        from sgsdump.models.graph import Graph

        if self.how.quant_file is not None or self.how.range_room:
            return False
        graph = Graph(deployed(self.imported.model))  # inputs of the network have no room
        wide = (graph.producer[name] for name, bits in self.convolutions.items() if bits == 16)
        return any(node.input[0] not in graph.inputs for node in wide)

    @property
    def convolutions(self) -> dict[str, int]:
        """The bits of each convolution's weights."""
        return {name: 8 * quant.dtype.itemsize for name, quant in self.fixed.plan.weights.items() if quant.dtype}

    def save(self, path: str | Path, log: str | Path | None = None) -> Path:
        """Write the fixed model; into the folder ``log``, where one is given, the ranges as the SDK's calibrator does
        (``tensor_min_max.txt`` and what lies beside it). Raises OutputError."""
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
        """Into a file that becomes ``path``. Raises ModelError, OutputError."""
        from sgsdump.fixedpoint.quantisation.float_model import save_model

        save_model(self.fixed.proto, path, file)

    def write_log(self, folder: Path, form: Literal["text", "json"] = "text") -> Path:
        """Fill an empty folder; returns the file of the ranges. Raises OutputError."""
        from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log

        weights = self.how.level != "L1" or bool(self.imported.changed)
        options = LogOptions(self.how.fuse, form, weights, self.imported.changed)
        return write_log(folder, self.imported.model, self.calibration, self.fixed.plan, options)

    def to_pandas(self) -> Any:
        """The ranges as a DataFrame: ``name``, ``low`` and ``high``. Raises MissingExtra without pandas."""
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
    """The fixed model of a float model; as ``sgsdump calibrate``.

    model        ONNX, or Caffe's ``.prototxt`` (with ``weight_file``).
    data         pictures, a folder, a list file, ``.npy``, ``.npz`` or ``random``; a data loader ``FILE.py[:NAME]``; an
                 array, a dictionary of arrays by input name, or an iterable of these.
    quant_level  L1 to L5 (L5; of a quant file's ranges that of its log): weights per channel from L2 on, ranges fitted
                 at L3 and L5, 16 bits proposed at L4 and L5.
    quant_file   ranges, bits and weights of your own.
    processes    that run the feeds; the result is the same.
    metric       f(outputs, float_outputs) or ``FILE.py:f``, see ``tune``: its mean of the float and of the fixed model
                 over the feeds is ``fixed.metric``.
    range_room   widen INT16 ranges by half or more, for images not seen; ranges of the quant file stay.
    plan_of      a fixed model (``fixed.sim``, or of ``calibrate``), whose INT16 convolutions are INT16 here too.
    beside       ``preprocess``, ``input_config``, ``weight_file``, ``model_inputs``, ``model_outputs``, ``strict_sdk``.

    Raises SgsdumpError: what cannot be read, fed or quantised.
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
    """Raises what the metric raises."""
    from sgsdump.fixedpoint.tuning.worth import metrics_of
    from sgsdump.models.feeds.by_content import PicturePairs

    if metric is None:
        return made
    pairs = PicturePairs(feeds)
    of_float, of_fixed = metrics_of(made.imported.model, [made.fixed.proto], metric, pairs, progress)
    return replace(made, metric=(of_float, of_fixed))


def level_of(told: str | None, quant_file: Path | None, plan_of: Path | None = None) -> str:
    """The level that is wanted; of a quant file the one that its log was made at, unless the user told another. With a
    plan it raises nothing. Raises ConfigError for a quant file beside a plan."""
    from sgsdump.errors import ConfigError
    from sgsdump.fixedpoint.quantisation.calibration_log import has_weight_ranges
    from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS

    if plan_of is not None:
        if quant_file is not None:
            raise ConfigError("--quant-file and --plan-of both decide the bits; give one of them")
        return WITHOUT_BITS[told or DEFAULT]
    if quant_file is None:
        return told or DEFAULT
    if told is None and has_weight_ranges(quant_file) is False:
        return "L1"
    return WITHOUT_BITS[told or DEFAULT]


_PRINTED = 1e-5  # of a range's width, what a text file's digits leave


def _is_near(given: Range, seen: Range | None) -> bool:
    """Return whether two ranges are one, as far as a text file prints it."""
    if seen is None:
        return False
    width = max(seen.high - seen.low, 1e-12)
    return abs(given.low - seen.low) <= _PRINTED * width and abs(given.high - seen.high) <= _PRINTED * width


def calibrated(opened: OpenNetwork, feeds: Feeds, how: How, workers: Workers, progress: Progress) -> FixedModel:
    """The fixed model of a network that is open. Raises what calibrating and making it raise."""
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
    if how.plan_of is not None:  # in place of what the configuration raises
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
        # A log of this very calibration is completed by what its images show of channels and Softmaxes; no other is.
        # With a list of quant parameters the SDK takes both from the images (tests/golden/sigmastar/cured/ranged_L2).
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
