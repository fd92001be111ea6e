"""What a bisection finds: the tensors that it tried, and the first that differs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """A tensor that one executor does not give, or neither; ``failed``: running the model for it went wrong."""

    executors: tuple[str, ...]
    reason: str
    failed: bool = False

    @property
    def one_sided(self) -> bool:
        """Whether the other executor gives the tensor."""
        return len(self.executors) == 1


Answer = float | Missing | None
"""What comparing a tensor gave: its difference, who does not give it, or None when nothing is known of it."""


@dataclass(frozen=True)
class Tried:
    """A tensor that was asked of both; ``difference`` is Inf where only one gives it, None where neither does."""

    name: str
    difference: float | None
    missing: Missing | None = None


@dataclass(frozen=True)
class FirstDifference:
    """A tensor that disagrees while the tensors it is made from agree.

    missing the executor that does not give it, and why; None where both give it.
    node    name of the node that makes it, or "".
    inputs  the tensors that agree: what the node reads, weights and inputs of the model left out; in the
            place of a tensor that cannot be dumped, what that one is made from.
    """

    name: str
    node: str
    op_type: str
    difference: float
    inputs: tuple[Tried, ...]
    missing: Missing | None = None


@dataclass(frozen=True)
class Bisection:
    """The first tensor that differs (None when all tried agree), those tried in order, and how many there are."""

    first: FirstDifference | None
    tried: tuple[Tried, ...]
    in_all: int

    @property
    def failed(self) -> tuple[Tried, ...]:
        """Those tried that neither executor could compute, so that nothing is known of them."""
        return tuple(each for each in self.tried if each.difference is None and each.missing and each.missing.failed)
