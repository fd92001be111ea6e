"""Run a model and give its tensors one after another, by any executor, in one of two ways.

fast      every node runs once, segment by segment (``fast``).
isolated  every tensor comes from a sub-model of its own, in which it is the only output (``isolated``): for back-ends
          that fuse operators.

What cannot be given is named with the reason, and one tensor's failure never stops the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError
from sgsdump.executor import Configs, Executor, Layer, Progress, open_executor
from sgsdump.family import hint

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.model import Model

FAST, ISOLATED = "fast", "isolated"
MODES = (FAST, ISOLATED)


@dataclass(frozen=True)
class NotDumped:
    """A tensor that was not given, and why.

    failed  True: running failed, an error. False: it is nothing that can be given (inside a body, text, a sequence).
    """

    name: str
    node: str
    op_type: str
    reason: str
    failed: bool


@dataclass(frozen=True)
class ExecutorConfigs:
    """Options for the three calls of an executor that take some."""

    init: Configs = field(default_factory=dict)
    load: Configs = field(default_factory=dict)
    execute: Configs = field(default_factory=dict)


def run(
    model: Model,
    executor: str | Executor,
    feed: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    mode: str = FAST,
    configs: ExecutorConfigs = ExecutorConfigs(),
    progress: Progress | None = None,
) -> Iterator[Layer | NotDumped]:
    """The wanted tensors of one run, in an order in which they can be computed.

    executor  a name of ``executors()``, or an executor, which is initialised anew and released at the end.
    feed      array by input name, of the declared dtype and shape.
    names     node outputs; None gives every one that has a topological index, and names what cannot be given.
    progress  called with (done, in all) as the run goes on: nodes or tensors.

    Raises ConfigError for an unknown name, mode or executor, InputError for a feed that does not fit, ModelError for
    a graph that cannot be run by anything.
    """
    raise NotImplementedError
    yield
