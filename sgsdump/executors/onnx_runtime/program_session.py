"""Session that runs a model as a captured program did: same optimisation, threads, providers and entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime.session import CPU, message_of, quiet, to_array, why_not

LEVELS = {name: level for name, level in vars(ort.GraphOptimizationLevel).items() if name.startswith("ORT_")}
MODES = {name: mode for name, mode in vars(ort.ExecutionMode).items() if name.startswith("ORT_")}


class ProgramSession:
    """Session with the options of a captured program.

    model    model file, with its external data beside it.
    options  level (ORT_ENABLE_ALL …), mode, threads, providers and entries of the program's session; providers that are
             not installed are skipped.

    Raises ModelError if onnxruntime cannot load the model.
    """

    def __init__(self, model: Path, options: Mapping[str, Any]):
        settings = quiet()
        settings.graph_optimization_level = LEVELS.get(
            str(options.get("level")), ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        )
        settings.execution_mode = MODES.get(str(options.get("mode")), ort.ExecutionMode.ORT_SEQUENTIAL)
        threads, entries, preferred = (options.get(name) for name in ("threads", "entries", "providers"))
        settings.intra_op_num_threads = threads if isinstance(threads, int) and 0 <= threads < 1024 else 0
        available = ort.get_available_providers()
        chosen = [name for name in preferred if name in available] if isinstance(preferred, list) else []
        try:
            for key, value in (entries if isinstance(entries, Mapping) else {}).items():
                settings.add_session_config_entry(str(key), str(value))
            self._session = ort.InferenceSession(str(model), settings, providers=chosen or [CPU])
        except Exception as error:
            raise ModelError(f"onnxruntime cannot load {model}: {message_of(error)}") from error

    def run(self, feed: Mapping[str, ort.OrtValue | np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the named outputs that are tensors of numbers. Raises ModelError."""
        held = {n: v if isinstance(v, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(v) for n, v in feed.items()}
        try:
            values = self._session.run_with_ort_values(list(names), held)
        except Exception as error:
            raise ModelError(f"the model cannot run: {message_of(error)}") from error
        return {name: to_array(value) for name, value in zip(names, values) if not why_not(value)}
