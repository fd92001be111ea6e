"""Measured contributions of convolutions: each convolution alone at INT8 and INT16, and plans in integer arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import PlanOutputs
    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.causes import Exact
    from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import (
        LabelledPictureFeed,
        Measurement,
        SensitivityAnalysis,
        Totals,
    )
    from sgsdump.fixedpoint.verbs.network import OpenNetwork
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.sidecars.input_config import InputConfig
    from sgsdump.tensors.types import Range


@dataclass(frozen=True, eq=False)
class Measured:
    """Contributions measured in a float approximation, entries of tensor_arrays to write, and the expected outputs."""

    trial: SensitivityAnalysis
    measurement: Measurement
    words: tuple[str, ...]
    foreseen: Totals | None


def measured_words(
    trial: SensitivityAnalysis,
    measurement: Measurement,
    feeds: PicturePairs,
    verdicts: tuple[Advice, ...],
    convolutions: Sequence[Convolution],
) -> Measured:
    """Return the measurement, with the entries of tensor_arrays that follow from the verdict on each convolution."""
    from sgsdump.fixedpoint.tuning.advice import tensor_arrays
    from sgsdump.fixedpoint.tuning.rules_of_thumb import config_names

    names = tensor_arrays(verdicts, convolutions)
    foreseen = trial.try_plan(names, both(feeds)) if names else None
    return Measured(trial, measurement, tuple(config_names(names, convolutions)), foreseen)


def sources(
    measured: Measured, verdicts: tuple[Advice, ...], made: Plans, exact: Exact, limits: Thresholds
) -> tuple[Finding, ...]:
    """Return the causes of the output error, measured in integer arithmetic."""
    from sgsdump.fixedpoint.quantisation.objective import output_error
    from sgsdump.fixedpoint.tuning.causes import named_causes, with_contributions

    inputs = {entry.convolution.name: entry.convolution.input for entry in verdicts}

    def left(convolutions: Sequence[str], held: Mapping[str, Range]) -> float:
        if not convolutions:
            return output_error(exact.all_16.sums)
        plan = made.plan(tuple(inputs[name] for name in convolutions))
        return output_error(made.outputs([plan], held)[0].sums)

    causes = named_causes(verdicts, measured.measurement, exact.all_8, limits, left)
    return with_contributions(causes, measured.trial, measured.measurement, both(made.feeds))


@dataclass(frozen=True, eq=False)
class Plans:
    """Fixed models of one float model, each with different convolution inputs at INT16."""

    quant_level: str
    network: OpenNetwork
    ranges: Mapping[str, Range]
    side: SideRanges
    feeds: PicturePairs

    def plan(self, names: tuple[str, ...] = (), conv_format: str = "ALL_UINT8") -> InputConfig:
        return replace(self.network.config, conv_format=conv_format, tensor_arrays=names)

    def outputs(self, plans: Iterable[InputConfig], held: Mapping[str, Range] = {}) -> list[PlanOutputs]:
        """Return the outputs of plans in integer arithmetic; ranges in ``held`` replace calibration ranges."""
        from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
        from sgsdump.fixedpoint.quantisation.float_model import deployed
        from sgsdump.fixedpoint.quantisation.objective import watched_tensors
        from sgsdump.fixedpoint.quantisation.trials.integer_outputs import outputs_of
        from sgsdump.tensors.types import Range

        model, ranges = self.network.model, {**self.ranges, **held}
        per_channel = self.quant_level != "L1"
        made = [make_fixed(model, ranges, plan, True, per_channel, self.side).proto for plan in plans]
        spans = {name: found.high - found.low for name, found in self.ranges.items() if isinstance(found, Range)}
        return outputs_of(model, made, both(self.feeds), watched_tensors(deployed(model)), spans)

    def exact(self, names: tuple[str, ...]) -> Exact:
        """Return the outputs with all convolutions at INT8, with only these inputs at INT16, and with all at INT16."""
        from sgsdump.fixedpoint.tuning.causes import Exact

        raised = [self.plan(names)] if names else []
        all_8, all_16, *others = self.outputs([self.plan(), self.plan(conv_format="ALL_INT16"), *raised])
        return Exact(all_8, all_16, others[0] if others else None)


def both(feeds: PicturePairs) -> Iterator[LabelledPictureFeed]:
    """Yield the input data of every run, for the float model and for the fixed model."""
    return map(feeds.feeds.both, feeds.indices)
