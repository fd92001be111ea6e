"""The inputs of the model of a pipeline: what the user gave for them, and the arrays that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sgsdump.models.input_spec import InputSpec
from sgsdump.pipeline.inputs.given import Given, InputSource, check_names, give
from sgsdump.pipeline.inputs.random import DEFAULTS, InputDefaults


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """A model's inputs (``specs``), and what they are given by: ``source`` for some, ``defaults`` for the others.

    shapes  the shape of inputs with open sizes, by name.
    """

    specs: tuple[InputSpec, ...]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    defaults: InputDefaults = DEFAULTS
    source: InputSource = field(default_factory=InputSource)

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @cached_property
    def given(self) -> dict[str, Given]:
        """Every input, by name; made once. Raises what ``give`` raises."""
        return give(self.specs, self.source, self.shapes, self.defaults)

    def given_by(self, source: InputSource) -> ModelInputs:
        """The same inputs, given by another source. Raises ConfigError where it names one that the model has not."""
        check_names((*source.ranges, *source.arrays), {spec.name: spec for spec in self.specs})
        return replace(self, source=source)

    def of_part(self, specs: tuple[InputSpec, ...]) -> ModelInputs:
        """The inputs of a part of the model, with what was given for those that it still has."""
        left = {spec.name for spec in specs}
        source = InputSource(*({n: v for n, v in part.items() if n in left} for part in vars(self.source).values()))
        return replace(self, specs=specs, shapes={n: s for n, s in self.shapes.items() if n in left}, source=source)
