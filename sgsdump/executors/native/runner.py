"""Runner of models that only their own framework runs, each as a whole.

The framework works in its own process; if the process ends, one error line reports it. A quantised input accepts real
values, which are rounded to integers here (half to even, clipped), or integers of the model's own type unchanged.
Quantised tensors are returned as integers, with their scale and zero point.
"""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump import errors
from sgsdump.errors import ModelError
from sgsdump.executors.native.worker import receive, send
from sgsdump.executors.runner import Layer, Skip
from sgsdump.models.model import Model, Native, check_feed, graph_inputs
from sgsdump.progress import Advance, unwatched
from sgsdump.tensors.types import Quant


class NativeRunner:
    """Runner of a native model; see ``Runner``.

    Raises MissingExtra without the framework's package, ModelError for a model that the framework cannot load.
    """

    def __init__(self, model: Model):
        assert model.native is not None
        self._path, self._native, self._graph = model.path, model.native, model.proto.graph
        self._inputs = graph_inputs(model.proto)
        self._process = _Process(self._native, self._path)
        self.skipped = {name: Skip(name, "", why) for name, why in self._native.unseen.items()}
        made = [name for node in self._graph.node for name in node.output]
        keys = [list(self._native.keys[name]) for name in made]
        self._process.ask({"load": self._native.runtime, "path": str(self._path.resolve()), "tensors": keys})

    def run(
        self, feed: Mapping[str, np.ndarray], only: Collection[str] | None = None, advance: Advance = unwatched
    ) -> Iterator[Layer]:
        """Yield the layers as ``Runner.run``; a tensor that the framework cannot return is listed in ``skipped``."""
        check_feed(feed, self._inputs)
        quants, keys = self._native.quants, self._native.keys
        arrays = [_stored(array, quants.get(name)) for name, array in feed.items()]
        self._process.ask({"run": [list(keys[name]) for name in feed]}, arrays)
        for number, node in enumerate(self._graph.node, 1):
            for name in node.output:
                if only is not None and name not in only:
                    continue
                value = self._process.value(keys[name])
                if isinstance(value, str):
                    self.skipped[name] = Skip(name, node.op_type, value)
                else:
                    yield Layer(name, node.name, node.op_type, value)
            advance(number, len(self._graph.node))


def _stored(array: np.ndarray, quant: Quant | None) -> np.ndarray:
    """Return a fed array as the model stores it."""
    if quant is None or quant.dtype is None or array.dtype == quant.dtype:
        return array
    limits = np.iinfo(quant.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        codes = np.rint(array.astype(np.float64) / quant.scale) + quant.zero_point
    return np.clip(codes, limits.min, limits.max).astype(quant.dtype)


class _Process:
    """The framework's process, which ends with this object."""

    def __init__(self, native: Native, path: Path):
        self._kind, self._path = native.kind, path
        command = [sys.executable, "-m", "sgsdump.executors.native.worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._end = weakref.finalize(self, _ended, self._process)

    def ask(self, question: dict[str, Any], arrays: Collection[np.ndarray] = ()) -> list[np.ndarray]:
        """Return the arrays of the answer. Raises ModelError, or the error that the process reports."""
        answer, given = self._answer(question, arrays)
        if "error" in answer:
            kind = getattr(errors, answer["error"], None) if answer["error"] else None
            raise kind(answer["reason"]) if kind else self._trouble(f"cannot run the model: {answer['reason']}")
        return given

    def value(self, key: tuple[str | int, ...]) -> np.ndarray | str:
        """Return a tensor of the last run, or the reason why it is not available."""
        answer, given = self._answer({"value": list(key)}, ())
        return answer["reason"] if "error" in answer else given[0]

    def _answer(self, question: dict[str, Any], arrays: Collection[np.ndarray]) -> tuple[dict, list[np.ndarray]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, question, list(arrays))
            return receive(self._process.stdout)
        except (EOFError, OSError, ValueError):
            status = self._process.wait()
            raise self._trouble(f"crashed (status {status}). Check whether the file is damaged.") from None

    def _trouble(self, what: str) -> ModelError:
        return ModelError(f"{self._path}: {self._kind} {what}")


def _ended(process: subprocess.Popen) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # the process may have ended already
                pipe.close()
    process.wait()
