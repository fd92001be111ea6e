"""The convolutions a repair may raise, by the domain that each reads: the tensors of a domain share their bits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sgsdump.errors import ConfigError
from sgsdump.quantisation.domains import Analysis
from sgsdump.sidecars.input_config import with_tensor_arrays
from sgsdump.tuning.advice.rules_of_thumb import Convolution, convolutions
from sgsdump.tuning.repair.dump_trial import DumpRun


class Candidates:
    """All ``convolutions`` of a model, in execution order.

    own  the names in the user's tensor_arrays.
    """

    def __init__(self, analysis: Analysis, own: Sequence[str]):
        self.convolutions = convolutions(analysis)
        self._domain, self._own = analysis.domain, own

    def domain(self, name: str) -> str:
        """The domain of a tensor."""
        return self._domain[name]

    def name_of(self, domain: str) -> str:
        """The first name of a domain that input_config.ini can hold; "" without one."""
        return next((c.input for c in self.convolutions if c.domain == domain and _nameable(c.input)), "")

    def readers(self, domain: str) -> tuple[str, ...]:
        """The names of the convolutions that read a domain."""
        return tuple(conv.name for conv in self.convolutions if conv.domain == domain)

    def wide(self, run: DumpRun) -> tuple[str, ...]:
        """The names of those with INT16 inputs in a run."""
        return tuple(conv.name for conv in self.convolutions if run.is_wide(conv.input))

    def left(self, run: DumpRun, in_vain: Collection[str] = ()) -> list[Convolution]:
        """Those that can still be raised above a run; ``in_vain`` are tensors whose raising brought nothing."""
        barred = {self.domain(name) for name in in_vain}
        return [
            conv
            for conv in self.convolutions
            if not conv.reads_picture
            and conv.domain not in barred
            and conv.input in run.plan.tensors
            and not run.is_wide(conv.input)
            and self.name_of(conv.domain)
        ]

    def ordered(self, names: Collection[str]) -> tuple[str, ...]:
        """The user's own names first, the others in execution order."""
        own = [name for name in self._own if name in names]
        order = dict.fromkeys(conv.input for conv in self.convolutions if conv.input in names)
        return tuple(dict.fromkeys([*own, *order]))


def _nameable(name: str) -> bool:
    """Whether input_config.ini can hold the name."""
    try:
        with_tensor_arrays(b"", [name])
    except ConfigError:
        return False
    return True
