"""The error of each quantised tensor and weight of a model that another tool quantised, and operators to keep in float.

Errors are measured on a few inputs, with switches in the model (``fixedpoint/quantisation/others/trial.py``).

Quantisers exclude operators, not tensors. A tensor is float again if every operator that makes or reads it is excluded,
a weight if its operator is. So proposals and expected errors are of whole units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgsdump.comparison.metrics import Sums, cos, merged_sums, mse, rmse
from sgsdump.comparison.sums.summation import pair_sums
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.quantisation.others.link import QuantisedTensor, QuantisedWeight, Unit
from sgsdump.fixedpoint.quantisation.others.trial import SwitchedNetwork
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.tensor import Values

Feed = Mapping[str, np.ndarray]
Totals = dict[str, Sums]
# Weights this close to their originals are not measured, because keeping them in float gains nothing.
NEAR = 60.0  # decibels
TAKEN_OUT = 16  # number of worst items for which the remaining error without the item is measured too
PLANS = 12  # proposals tried at most
WORTH = 0.02  # least share of the output error that a unit must remove


@dataclass(frozen=True)
class QuantisedError:
    """The effect of one quantised tensor or weight on the outputs.

    alone    output error with only this item quantised.
    left     output error with all other items quantised; None if not measured.
    sqnr     of a weight, in decibels; None for a tensor.
    units    operators that keep the item quantised.
    with_it  biases with the same scale, which are switched together with the item.
    factor   ratio of a weight's scale to the scale that fits.
    """

    name: str
    is_weight: bool
    alone: float
    left: float | None
    sqnr: float | None
    units: frozenset[Unit]
    with_it: tuple[str, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Exclusion:
    """Operators to keep in float: ``units``, most helpful first, and the expected output ``error``."""

    units: tuple[Unit, ...]
    error: float
    good: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the units' nodes, without unnamed nodes."""
        return tuple(dict.fromkeys(name for unit in self.units for name in unit.names if name))

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The outputs of units that have an unnamed node."""
        return tuple(unit.output for unit in self.units if not all(unit.names))


@dataclass(frozen=True, eq=False)
class MeasuredExclusions:
    """The measured errors of all quantised tensors and weights.

    errors     worst first.
    all_on     output error with everything quantised that has a switch, on these inputs.
    exclusion  operators to keep in float; None if nothing helps.
    inputs     number of inputs.
    """

    errors: tuple[QuantisedError, ...]
    all_on: float
    exclusion: Exclusion | None
    inputs: int

    def brings(self, error: QuantisedError) -> float:
        return error.alone / self.all_on if self.all_on else 0.0

    def gives_back(self, error: QuantisedError) -> float | None:
        return None if error.left is None or not self.all_on else 1 - error.left / self.all_on


class ExclusionTrial:
    """Trials of a network with switches on the same inputs. Raises ValuesError if the outputs cannot be measured."""

    def __init__(self, network: SwitchedNetwork, feeds: Sequence[Feed]):
        self._network = network
        self.feeds = feeds
        self.outputs = tuple(network.outputs)
        self._real = [network.run(feed, ()) for feed in feeds]

    def totals(self, quantised: Collection[str]) -> Totals:
        """Return the sums of each output over all inputs, with these tensors and weights quantised."""
        return self.totals_of(self._network.run(feed, quantised) for feed in self.feeds)

    def totals_of(self, outputs: Iterable[Feed]) -> Totals:
        """Return the sums of outputs that another session computed, one mapping per input."""
        runs = [
            {
                name: pair_sums(Values(given[name]), Values(values))
                for name, values in real.items()
                if name in given and given[name].shape == values.shape
            }
            for given, real in zip(outputs, self._real)
        ]
        shared = [name for name in runs[0] if all(name in run for run in runs)]
        return {name: merged_sums([run[name] for run in runs]) for name in shared}

    def measure(self, limits: Thresholds, good: bool, progress: Progress = SILENT) -> MeasuredExclusions:
        """Measure every tensor and weight; ``good``: the outputs are within the limits, so nothing is proposed."""
        network = self._network
        items: list[QuantisedTensor | QuantisedWeight] = [*network.tensors]
        far = [weight for weight in network.weights if weight.sqnr < NEAR]
        leaders = {weight.name for weight in far}
        items += [weight for weight in far if weight.scaled_with not in leaders]
        with_it = {
            name: tuple(weight.name for weight in network.weights if weight.scaled_with == name) for name in leaders
        }
        every = set(network.names)
        all_on = output_error(self.totals(every))
        with progress.bar("measure", "run", len(items) + min(TAKEN_OUT, len(items))) as advance:
            alone = []
            for number, item in enumerate(items):
                alone.append((output_error(self.totals((item.name, *with_it.get(item.name, ())))), item))
                advance(number + 1, len(items) + min(TAKEN_OUT, len(items)))
            alone.sort(key=lambda pair: -pair[0])
            errors = []
            for number, (error, item) in enumerate(alone):
                both = with_it.get(item.name, ())
                left = output_error(self.totals(every - {item.name, *both})) if number < TAKEN_OUT else None
                errors.append(_error_of(item, error, left, both))
                if left is not None:
                    advance(len(items) + number + 1, len(items) + min(TAKEN_OUT, len(items)))
        ranked = sorted(errors, key=lambda e: (e.left is None, e.left if e.left is not None else -e.alone, -e.alone))
        exclusion = None if good else self._exclusion(ranked, all_on, limits)
        return MeasuredExclusions(tuple(ranked), all_on, exclusion, len(self.feeds))

    def _exclusion(self, ranked: Sequence[QuantisedError], before: float, limits: Thresholds) -> Exclusion | None:
        """Add units one by one while the outputs are bad and each unit helps."""
        best: Exclusion | None = None
        tried: set[frozenset[Unit]] = set()
        for error in ranked[:PLANS]:
            units = tuple(dict.fromkeys([*(best.units if best else ()), *_ordered(error.units)]))
            if not error.units or frozenset(units) in tried:
                continue
            tried.add(frozenset(units))
            totals = self.totals(self.quantised_without(units))
            found = output_error(totals)
            if found <= (best.error if best else before) - WORTH * before:
                best = Exclusion(units, found, is_good(totals, limits))
            if best is not None and best.good:
                break
        return best

    def quantised_without(self, units: Iterable[Unit]) -> set[str]:
        """Return the tensors and weights that stay quantised if these units are excluded."""
        excluded = set(units)
        kept = {tensor.name for tensor in self._network.tensors if not tensor.units or tensor.units - excluded}
        return kept | {weight.name for weight in self._network.weights if not weight.units & excluded}


def is_good(totals: Totals, limits: Thresholds) -> bool:
    return all(limits.hold(cos(sums), 0.0 if sums.d1 == 0 else rmse(sums), mse(sums)) for sums in totals.values())


def _ordered(units: Iterable[Unit]) -> Iterator[Unit]:
    return iter(sorted(units, key=lambda unit: unit.output))


def _error_of(
    item: QuantisedTensor | QuantisedWeight, alone: float, left: float | None, with_it: tuple[str, ...]
) -> QuantisedError:
    if isinstance(item, QuantisedTensor):
        return QuantisedError(item.name, False, alone, left, None, item.units)
    return QuantisedError(item.name, True, alone, left, item.sqnr, item.units, with_it, item.factor)
