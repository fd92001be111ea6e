"""Options of the sessions this package makes: none logs, as what is wrong comes back as an error."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

_FATAL = 4  # onnxruntime's severities are 0 verbose, 1 info, 2 warning, 3 error, 4 fatal


def quiet() -> ort.SessionOptions:
    """onnxruntime's defaults, without its log."""
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    return options


def unoptimised(folder: Path | None) -> ort.SessionOptions:
    """For a model or a part of it that runs node by node as it stands.

    ``folder`` is where the external data files are; None when there is none.
    """
    options = quiet()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = False
    if folder is not None:
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(folder.resolve()))
    return options


def fake_quantised(threads: int) -> ort.SessionOptions:
    """For a graph of QuantizeLinear-DequantizeLinear pairs that is run again and again; ``threads`` 0 is every core."""
    options = quiet()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = threads
    # Fake quantisation is meant as it stands; nothing may be folded into integer kernels.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options
