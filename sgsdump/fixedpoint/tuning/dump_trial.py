"""One round of ``tune --first``: make a fixed model, dump it, and compare the dump with the float model's.

trial = DumpTrial(Calibrated(model, ranges, config), pictures, Path("float.bin"), progress)
run = trial.run(("conv3",), Path("folder"))       # tensor_arrays='conv3'; optimized.onnx and fixed.bin go to the folder
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.comparison.compare import compare
from sgsdump.comparison.comparison import Comparison
from sgsdump.dumps.dump import Record
from sgsdump.dumps.io import open_dump, save_dump
from sgsdump.errors import InputError, ValuesError
from sgsdump.files.atomic_write import replacing
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed, pictures_of, serialise
from sgsdump.fixedpoint.quantisation.objective import Score, Totals, score, total, watched_tensors
from sgsdump.fixedpoint.quantisation.quant_plan import QuantPlan
from sgsdump.fixedpoint.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
from sgsdump.fixedpoint.tuning.sensitivity_analysis import LabelledPictureFeed
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A simplified float model and its calibration; ``side``: results of calibration besides the ranges."""

    model: Model
    ranges: Mapping[str, Range]
    config: InputConfig
    side: SideRanges = NOTHING_BESIDE


@dataclass(frozen=True, eq=False)
class DumpRun:
    """The dump of a fixed model and its comparison with the float model.

    outputs       judged tensor -> sums against float over all images.
    layers        comparison of the first image's dumps, its rows only.
    weight_bytes  bytes of the convolutions' weights; ``rate``: as a share of their bytes at INT16.
    """

    plan: QuantPlan
    outputs: Totals
    layers: Comparison
    weight_bytes: int
    rate: float

    def is_wide(self, tensor: str) -> bool:
        """Return whether a tensor is stored as INT16."""
        quant = self.plan.tensors.get(tensor)
        return quant is not None and quant.dtype == INT16


class DumpTrial:
    """A simplified float model whose fixed models run on the same images. Raises InputError without images.

    judged      tensors that the outputs are judged by (``objective.watched_tensors``).
    float_path  dump of the float model on the first image. It is opened only while it is read, because Windows cannot
                rename a folder that contains an open file.
    """

    def __init__(
        self,
        calibrated: Calibrated,
        pictures: Sequence[LabelledPictureFeed],
        float_path: Path,
        progress: Progress = SILENT,
    ):
        if not pictures:
            raise InputError("there is no image to dump")
        self._calibrated, self._pictures, self._progress = calibrated, pictures, progress
        self._raw = set(pictures_of(calibrated.model, calibrated.config, calibrated.ranges))
        self.graph = Graph(deployed(calibrated.model))
        self.judged = [name for name in watched_tensors(self.graph.proto) if name in self.graph.producer]
        self._floats = list(self._values(calibrated.model, False, float_path, "dump float"))
        self.float_path = float_path

    def run(self, names: Iterable[str], folder: Path, what: str = "dump fixed") -> DumpRun:
        """Make the fixed model with these ``tensor_arrays``, as optimized.onnx; dump the first image to fixed.bin.

        Raises what ``make_fixed`` raises, and ValuesError when outputs cannot be compared.
        """
        calibrated = self._calibrated
        config = replace(calibrated.config, tensor_arrays=tuple(names))
        fixed = make_fixed(calibrated.model, calibrated.ranges, config, side=calibrated.side)
        with replacing(folder / "optimized.onnx") as file:
            file.write(serialise(fixed.proto))
        path = folder / "fixed.bin"
        values = list(self._values(replace(calibrated.model, proto=fixed.proto), True, path, what))
        with threadpool_limits(limits=1, user_api="blas"):
            outputs = total(map(self._score, values, self._floats)).sums
        with open_dump(path) as sample, open_dump(self.float_path) as benchmark:
            layers = compare(sample, benchmark)
        stored, widest = self._weight_bytes(fixed.plan)
        rate = stored / widest if widest else 0.5
        return DumpRun(fixed.plan, outputs, Comparison(layers.rows, (), (), ()), stored, rate)

    def _values(self, model: Model, fixed: bool, path: Path, what: str) -> Iterator[dict[str, np.ndarray]]:
        """Yield the judged tensors of each image; the first image is dumped."""
        for number, (_, feed, raw) in enumerate(self._pictures):
            if fixed:
                feed = {name: raw[name] if name in self._raw else feed[name] for name in feed}
            values: dict[str, np.ndarray] = {}
            with self._progress.bar(f"{what}, image {number + 1} of {len(self._pictures)}", "layer") as advance:
                records = _watched(simulate(model, feed, advance=advance).records, self.judged, values)
                if number == 0:
                    save_dump(records, path, "sigmastar_bin", on_loss="ignore")
                else:
                    for _ in records:
                        pass
            missing = next((name for name in self.judged if name not in values), None)
            if missing is not None:
                raise ValuesError(f"output {missing!r} cannot be dumped, so its error cannot be measured")
            yield values

    def _score(self, values: Mapping[str, np.ndarray], floats: Mapping[str, np.ndarray]) -> Score:
        for name in self.judged:
            if values[name].shape != floats[name].shape:
                raise ValuesError(
                    f"the shape of output {name!r} depends on the computed values "
                    f"({list(values[name].shape)} with the tried plan, {list(floats[name].shape)} in "
                    "the float model). Tune the model without post-processing"
                )
        return score(values, {name: floats[name] for name in self.judged})

    def _weight_bytes(self, plan: QuantPlan) -> tuple[int, int]:
        """Return the bytes of the convolutions' weights: as stored, and with all at INT16."""
        sizes = {
            name: math.prod(self.graph.constants[self.graph.producer[name].input[1]].dims) for name in plan.weights
        }
        stored = sum(size * np.dtype(plan.weights[name].dtype).itemsize for name, size in sizes.items())
        return stored, 2 * sum(sizes.values())


def _watched(records: Iterable[Record], names: Collection[str], values: dict[str, np.ndarray]) -> Iterator[Record]:
    """Yield the records unchanged; store the real values of the named outputs in ``values``."""
    for record in records:
        if record.io == "out" and record.name in names:
            values[record.name] = record.tensor.real()
        yield record
