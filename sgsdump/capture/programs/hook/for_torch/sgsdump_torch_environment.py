"""The environment of a round (``Environment``): everything besides network and inputs that affects the numbers.

A line of the index, written at the round's begin::

    {"step": 0, "event": "environment", "selection": {}, "versions": {"python": "3.13.5", "torch": "2.13.0", …},
     "variables": {"OMP_NUM_THREADS": "1", …}, "settings": {"threads": 1, "matmul precision": "highest", …},
     "random": {"seed": 0, "state": "5f0c21a7"}}

``state`` is a checksum of the state of torch's generator. This module must not change anything in the program, not even
which warnings it has shown.
"""

import ctypes
import os
import sys
import types
import zlib

import torch
from sgsdump_records import encode

# Prefixes of environment variables that change the computations of libraries.
VARIABLES = (
    *("TORCH", "PYTORCH", "ATEN_", "CUBLAS", "CUDNN", "CUDA_LAUNCH", "NVIDIA_TF32", "OMP_", "GOMP_", "KMP_", "MKL_"),
    *("ONEDNN_", "DNNL_", "OPENBLAS_", "TRITON_", "XLA_", "HIP", "MIOPEN", "ROCBLAS", "NCCL_", "HCCL_", "LCCL_"),
    *("ASCEND", "ATB_", "ASDOPS_", "CLOSE_MATMUL", "INF_NAN", "PYTHONHASHSEED", "VLLM_", "TRANSFORMERS_", "FLASH_"),
)
KINDS = ("cpu", "cuda", *(("npu",) if hasattr(torch, "npu") else ()))
MOST_VARIABLES, MOST_VERSIONS, MOST_TEXT = 200, 300, 200


class Environment:
    """Environment of the rounds; versions, variables and slow settings are read in the first round only."""

    def __init__(self):
        self._first = self._last = None
        self._text = ""

    def line(self, round, selection):
        """Return the line of a round that begins; ``selection`` states the selected module and the fed inputs."""
        quick, random = asked(QUICK), asked(RANDOM)
        if self._first is None:
            self._first = encode({"versions": versions(), "variables": variables()})[1:-1], asked(SLOW)
        fixed, slow = self._first
        known = selection, quick
        if known != self._last:
            self._last, self._text = known, encode({"selection": selection, "settings": {**quick, **slow}})[1:-1]
        return '{{"step": {}, "event": "environment", {}, {}, "random": {}}}\n'.format(
            round.step, self._text, fixed, encode(random)
        )


def asked(questions):
    """Return the answers, without those that this torch lacks."""
    answers = ((name, _answer(question)) for name, question in questions.items())
    return {name: answer for name, answer in answers if answer is not None}


def _answer(question):
    try:
        return question()
    except Exception:
        return None


def versions():
    """Return the versions of Python and of all imported packages that state one."""
    found = {"python": sys.version.split()[0]}
    known = getattr(sys, "stdlib_module_names", ())
    for name, module in list(sys.modules.items()):
        if "." in name or name in known or name.startswith("_") or len(found) > MOST_VERSIONS:
            continue
        try:
            version = vars(module).get("__version__")
            if version is None and type(module) is not types.ModuleType:
                version = getattr(module, "__version__", None)
        except Exception:
            continue
        if isinstance(version, str):
            found[name] = str(version)[:MOST_TEXT]
    return found


def variables():
    names = sorted(name for name in os.environ if name.upper().startswith(VARIABLES))
    return {name: os.environ[name][:MOST_TEXT] for name in names[:MOST_VARIABLES]}


def _autocast():
    """Return device and type of each active autocast, or "off"."""
    on = [kind for kind in KINDS if torch.is_autocast_enabled(kind)]
    return ", ".join("{} {}".format(kind, torch.get_autocast_dtype(kind)) for kind in on) or "off"


def _state():
    state = torch.get_rng_state()
    return "{:08x}".format(zlib.crc32(ctypes.string_at(state.data_ptr(), state.numel())))


QUICK = {
    "threads": torch.get_num_threads,
    "default dtype": lambda: str(torch.get_default_dtype()),
    "matmul precision": lambda: torch.get_float32_matmul_precision(),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "autocast": _autocast,
}
SLOW = {
    "interop threads": torch.get_num_interop_threads,
    "processor": lambda: torch.backends.cpu.get_cpu_capability(),
    "oneDNN": lambda: torch.backends.mkldnn.enabled,
    "cuda": lambda: torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
    "cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": (
        lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "cuda.matmul.allow_bf16_reduced_precision_reduction": (
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
}
RANDOM = {"seed": torch.initial_seed, "state": _state}
