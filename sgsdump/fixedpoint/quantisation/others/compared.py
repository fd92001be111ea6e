"""Comparison of a float model and its quantised copy on the same inputs, and the loss of quantising each tensor.

The results include the figures of onnxruntime's qdq_loss_debug, as it defines them. They are signal-to-noise ratios in
decibels over all inputs together: of a tensor against itself before quantisation (``before_after``), of a tensor
against the float model's (the SQNR of rows), and of each weight against its original (``QuantisedWeight.sqnr``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from sgsdump.comparison.compare import compare
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.merge import Compared, merge_each
from sgsdump.comparison.metrics import Sums, merged_sums, rmse
from sgsdump.comparison.sums.summation import pair_sums
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.onnx_network import of_nodes
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.runner import with_found_scales
from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import spooled
from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair, decibels
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FEWEST_FOR_MEAN, HELD_BYTES, OutputFigures
from sgsdump.models.model import Model
from sgsdump.models.quantised_model import QuantisedModel, nodes_of
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.tensor import Tensor, Values

LabelledFeed = tuple[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class ComparedNetworks:
    """The comparison of two models.

    compared      layer by layer over all inputs, with the dumps of one input for facts.
    outputs       float outputs of the quantised model against those of the float model.
    before_after  by float tensor, its signal-to-noise ratio after quantisation in decibels.
    errors        mean error of the outputs on each input, in input order.
    worst         position of the input with the largest error, and its outputs by name: of the quantised and of the
                  float model. None if there is no error.
    """

    compared: Compared
    outputs: Mapping[str, OutputFigures]
    before_after: Mapping[str, float]
    errors: tuple[float, ...]
    worst: tuple[int, Mapping[str, tuple[np.ndarray, np.ndarray]]] | None


class NetworkRunner:
    """A model of which every run is a dump: dequantised values and the network."""

    def __init__(self, model: Model):
        self._model = model
        self._runner = SegmentRunner(model, keep_sessions=True)
        self._quantised = QuantisedModel(model.proto)
        self._nodes = list(nodes_of(model.proto))

    def dump(self, feed: Mapping[str, np.ndarray], folder: Path) -> Dump:
        """Return a dump of every tensor with values in a file in ``folder``. Raises what running the model raises."""
        dump = spooled(self._records(feed), folder)
        network = cache(partial(of_nodes, dump.records, self._nodes, self._quantised.quants))
        return Dump(dump.records, network=network)

    def _records(self, feed: Mapping[str, np.ndarray]) -> Iterator[Record]:
        for index, layer in enumerate(with_found_scales(self._runner.run(feed), self._quantised.groups.dynamic)):
            quant = self._quantised.quants.get(layer.name)
            tensor = Tensor.of(layer.name, layer.array, quant=quant, op_type=layer.op_type)
            yield Record("out", 0, index, layer.node or layer.op_type, tensor)


def compared_networks(
    pair: QuantisedPair,
    models: tuple[Model, Model],
    feeds: Sequence[LabelledFeed],
    folder: Path,
    progress: Progress = SILENT,
) -> ComparedNetworks:
    """Compare the models layer by layer.

    models  the float model and the quantised model.
    folder  holds the values of one input at a time.
    """
    runners = [NetworkRunner(model) for model in models]
    names = [info.name for info in models[0].proto.graph.output]
    sums: dict[str, list[Sums]] = {}
    outputs = _Outputs(pair, names)
    dumps: list[Dump] = []

    def each_compared() -> Iterator[tuple[str, Comparison]]:
        for label, feed in each(progress, feeds, "compare", "input", len(feeds)):
            for earlier in dumps:  # the dumps of the last input stay open for the report
                earlier.close()
            benchmark, sample = (runner.dump(feed, folder) for runner in runners)
            dumps[:] = [sample, benchmark]
            for tensor in pair.tensors:
                before = feed.get(tensor.root)
                if before is None and tensor.root in sample and tensor.root != tensor.holder:
                    before = sample[tensor.root].real()
                if before is not None and tensor.holder in sample:
                    after = sample[tensor.holder].real()
                    sums.setdefault(tensor.name, []).append(pair_sums(Values(after), Values(before)))
            outputs.add(sample, benchmark)
            comparison = compare(sample, benchmark, details=True)
            yield label, comparison

    comparison = merge_each(each_compared())
    before_after = {name: decibels(*_norms(merged_sums(of_each))) for name, of_each in sums.items()}
    return ComparedNetworks(
        Compared(comparison, dumps[0], dumps[1], feeds[-1][0]),
        outputs.figures(),
        before_after,
        tuple(outputs.errors),
        outputs.worst(),
    )


def _norms(sums: Sums) -> tuple[float, float]:
    return float(np.sqrt(sums.bb)), float(np.sqrt(sums.dd))


class _Outputs:
    """The outputs of the model over all inputs."""

    def __init__(self, pair: QuantisedPair, names: Iterable[str]):
        roots = pair.twins.roots
        groups = pair.quantised.groups.groups
        self._holders = {name: groups[roots[name]].holder if name in roots else name for name in names}
        self._steps = {
            name: float(np.max(quant.scale))
            for name, holder in self._holders.items()
            if (quant := pair.quantised.quants.get(holder)) is not None
        }
        self._sums: dict[str, list[Sums]] = {}
        self._largest: dict[str, float] = {}
        self._reach: dict[str, list[float]] = {}
        self._held: list[dict[str, tuple[np.ndarray, np.ndarray]]] = []
        self._room = HELD_BYTES
        self.errors: list[float] = []

    def add(self, sample: Dump, benchmark: Dump) -> None:
        held, errors = {}, []
        for name, holder in self._holders.items():
            if name not in benchmark or holder not in sample or benchmark[name].dtype.kind != "f":
                continue
            real, values = np.array(benchmark[name].real()), np.array(sample[holder].real())
            if real.shape != values.shape or not real.size:
                continue
            held[name] = values, real
            pair = pair_sums(Values(values), Values(real))
            self._sums.setdefault(name, []).append(pair)
            errors.append(rmse(pair) if pair.b1 and pair.d1 else 0.0)
            largest = float(np.abs(values.astype(np.float64) - real).max())
            self._largest[name] = max(self._largest.get(name, 0.0), largest)
            self._reach.setdefault(name, []).extend((float(real.min()), float(real.max())))
        self._room -= sum(2 * real.nbytes for _, real in held.values())
        self._held.append(held)
        self.errors.append(float(np.mean(errors)) if errors else 0.0)

    def figures(self) -> dict[str, OutputFigures]:
        found = {}
        for name, sums in self._sums.items():
            ends = self._reach[name]
            span = max(ends) - min(ends)
            step, largest = self._steps.get(name, 0.0), self._largest[name]
            found[name] = OutputFigures(merged_sums(sums), self._centred(name), step, span, largest)
        return found

    def worst(self) -> tuple[int, dict[str, tuple[np.ndarray, np.ndarray]]] | None:
        """Return the position of the input with the largest error, and its output values."""
        errors = [np.inf if np.isnan(error) else error for error in self.errors]
        place = int(np.argmax(errors)) if errors else 0
        return (place, self._held[place]) if errors and errors[place] > 0 else None

    def _centred(self, name: str) -> Sums | None:
        """Return sums about the float model's mean over the inputs; None if there are too few or they were not kept."""
        both = [held[name] for held in self._held if name in held]
        same = len({real.shape for _, real in both}) == 1
        if self._room < 0 or len(both) < FEWEST_FOR_MEAN or not same:
            return None
        mean = np.mean([real for _, real in both], axis=0, dtype=np.float64)
        merged = merged_sums([pair_sums(Values(values - mean), Values(real - mean)) for values, real in both])
        return merged if merged.bb > 0 else None
