"""Executor ``ort``: onnxruntime runs the whole model in one session, by default on the CPU.

Graph optimisation is off by default: every tensor then matches the model, and a model that is cut anywhere gives the
same values. Large weights are shared, not copied. onnxruntime reads external data itself, at any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from sgsdump.errors import ConfigError, ModelError, hint
from sgsdump.executors.base import Configs, Executor
from sgsdump.executors.onnx_runtime.session import (
    CPU,
    from_array,
    header,
    message_of,
    providers,
    share_initializers,
    to_array,
    unoptimised,
    why_not,
)
from sgsdump.models.graph import weights_of
from sgsdump.models.passes.segment import segment, sub_model

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


class OrtExecutor(Executor):
    """Back-end of onnxruntime."""

    name = "ort"
    init_options: ClassVar = {
        "optimisation": f"graph optimisation level of onnxruntime: {', '.join(LEVELS)} (default: none)",
        "provider": "execution provider of onnxruntime, such as CUDAExecutionProvider or CUDA (default: CPU, which "
        "also runs operators that another provider lacks)",
        "threads": "threads within one operator (default: 0, one per processor core)",
    }
    _session: ort.InferenceSession | None = None
    _shared: Mapping[str, ort.OrtValue] = MappingProxyType({})

    def on_init(self, configs: Configs) -> None:
        level = configs.get("optimisation", "none")
        if level not in LEVELS:
            raise ConfigError(f"executor ort: unknown optimisation {level!r}{hint(str(level), LEVELS)}")
        self._providers = providers(str(configs.get("provider", CPU)))
        threads = str(configs.get("threads", 0))
        if not threads.isdecimal():
            raise ConfigError(f"executor ort: threads is {threads!r}; give a whole number of 0 or more")
        self._level, self._threads = LEVELS[level], int(threads)

    def on_load(self, model: ModelProto, configs: Configs, folder: str | None) -> None:
        self._session, self._shared = None, MappingProxyType({})
        graph = model.graph
        weights = weights_of(graph)
        fed = {info.name: info.type for info in graph.input if info.name not in weights}
        outputs = tuple(info.name for info in graph.output)
        part = segment(list(graph.node), set(weights))
        used = tuple(dict.fromkeys((*part.weights, *(name for name in outputs if name in weights))))
        part = replace(part, reads=tuple(fed), weights=used, makes=outputs)
        options = unoptimised(Path(folder) if folder else None)
        options.graph_optimization_level = self._level
        options.intra_op_num_threads = self._threads
        stubs, self._shared = share_initializers(options, {name: weights[name] for name in used})
        data = sub_model(header(model), part, stubs, fed)
        self._session = ort.InferenceSession(data, options, providers=self._providers)
        self._kinds = {name: kind.tensor_type.elem_type for name, kind in fed.items()}

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        assert self._session is not None
        fed = {name: from_array(array, self._kinds[name]) for name, array in feed.items()}
        values = self._session.run_with_ort_values(output_names, fed)
        for name, value in zip(output_names, values):
            reason = why_not(value)
            if reason:
                raise ModelError(f"executor ort: output {name!r} cannot be returned ({reason})")
        return [to_array(value) for value in values]

    def on_release(self) -> None:
        self._session, self._shared = None, MappingProxyType({})

    def check_model(self, model: ModelProto) -> None:
        header(model)

    def plain(self, error: Exception) -> str:
        return message_of(error)
