"""Run the sub-model that some outputs need in one go, for ``Pipeline.dump_once``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgsdump.executors.base import Executor
from sgsdump.executors.runner import Layer
from sgsdump.models.model import Model
from sgsdump.models.passes.extract import extract
from sgsdump.pipeline.running.attempt import NO_CONFIGS, ExecutorConfigs, Failed, attempt, opened
from sgsdump.pipeline.running.not_dumped import NotDumped, why_no_array
from sgsdump.pipeline.running.run import FAST, run


def run_once(
    model: Model,
    executor: str | Executor,
    feed: Mapping[str, np.ndarray],
    names: Sequence[str],
    configs: ExecutorConfigs = NO_CONFIGS,
) -> list[Layer | NotDumped]:
    """The named tensors of the model, in that order; a name given twice comes twice.

    feed  array by input name, of the declared dtype and shape.

    Only what the outputs need is run. When that fails they are run again the fast way, so that the node at fault has a
    name and the others are dumped. Raises what ``extract`` and ``run`` raise.
    """
    cut = extract(model.proto, None, names)
    reads = {info.name for info in cut.graph.input}
    each_once = list(dict.fromkeys(names))
    with opened(executor, configs.init) as ready:
        needed = {name: array for name, array in feed.items() if name in reads}
        values = attempt(ready, cut, each_once, needed, configs, model.folder)
    if isinstance(values, Failed):
        return _singly(model, executor, feed, names, configs, values)
    by_name = dict(zip(each_once, values))
    return [_outcome(model, name, by_name[name]) for name in names]


def _singly(
    model: Model,
    executor: str | Executor,
    feed: Mapping[str, np.ndarray],
    names: Sequence[str],
    configs: ExecutorConfigs,
    why: Failed,
) -> list[Layer | NotDumped]:
    """The outputs one by one, after running them together failed."""
    made = {name for node in model.proto.graph.node for name in node.output}
    outcomes = list(run(model, executor, feed, [n for n in names if n in made], FAST, configs))
    return [*outcomes, *(NotDumped(name, "", "", why.reason, True) for name in names if name not in made)]


def _outcome(model: Model, name: str, value: Any) -> Layer | NotDumped:
    maker = next((node for node in model.proto.graph.node if name in node.output), None)
    node, op_type = (maker.name, maker.op_type) if maker is not None else ("", "")
    reason = why_no_array(value)
    if reason:
        return NotDumped(name, node, op_type, reason, False)
    return Layer(name, node, op_type, np.asarray(value))
