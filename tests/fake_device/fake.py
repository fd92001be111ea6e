"""The fake device as a torch module: ``import fake`` registers it, then tensors go to ``fake:0`` and ``fake:1``.

The environment variable FAKE_DEVICE names the library that ``fake_device.cpp`` was compiled to. The functions have the
names and meanings of ``torch.cuda``.
"""

import contextlib
import ctypes
import os
import sys

import torch

_library = ctypes.CDLL(os.environ["FAKE_DEVICE"], mode=ctypes.RTLD_GLOBAL)
_library.fake_fill.argtypes = [ctypes.c_void_p, ctypes.c_float, ctypes.c_long]
_library.fake_capture_begins.restype = ctypes.c_long
_library.fake_is_capturing.restype = ctypes.c_bool
_library.fake_fails.argtypes = [ctypes.c_bool]
_library.fake_replay.argtypes = [ctypes.c_long]
KINDS = ("device", "stream", "event", "copy", "number")
Stream, Event = torch.Stream, torch.Event


def waits():
    """Return how often the host has waited for the device, by kind."""
    counts = (ctypes.c_long * len(KINDS))()
    _library.fake_waits(counts)
    return dict(zip(KINDS, counts))


def fill(tensor, value):
    """Write to a tensor's memory without torch, as a Triton kernel does."""
    _library.fake_fill(tensor.data_ptr(), value, tensor.numel())


def fail():
    """From now on every wait for the device is an error, as after an illegal access."""
    _library.fake_fails(True)


def recover():
    _library.fake_fails(False)


def is_available():
    return True


def _is_in_bad_fork():
    return False


def manual_seed_all(seed):
    """Nothing: random numbers are those of the CPU."""


def is_initialized():
    return True


def device_count():
    return 2


def current_device():
    return torch.accelerator.current_device_index()


def synchronize(device=None):
    torch.accelerator.synchronize(device)


def current_stream(device=None):
    return torch.accelerator.current_stream(device)


def stream(of):
    return of  # torch.Stream is its own context manager


def is_current_stream_capturing():
    return _library.fake_is_capturing()


class CUDAGraph:
    """A captured graph, as ``torch.cuda.CUDAGraph``."""

    def __init__(self):
        self._number = None

    def capture_begin(self, *args, **kwargs):
        self._number = _library.fake_capture_begins()

    def capture_end(self):
        _library.fake_capture_ends()

    def replay(self):
        with torch._C._DisableTorchDispatch():  # the kernels run without torch
            _library.fake_replay(self._number)


@contextlib.contextmanager
def graph(captured):
    synchronize()
    captured.capture_begin()
    try:
        yield
    finally:
        captured.capture_end()


_library.fake_register()
torch.utils.rename_privateuse1_backend("fake")
torch._register_device_module("fake", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend()
