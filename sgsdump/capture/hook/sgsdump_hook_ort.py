"""What a program feeds to onnxruntime and gets from it; the tensors between are computed afterwards, by the parent.

The methods of ``InferenceSession`` and ``IOBinding`` are patched in place, so that the program's classes, sessions and
results stay what they are. Neither onnx nor more of numpy than arrays have is needed. Below the process's folder::

    onnxruntime/{session}/model.onnx, …           the model as it was loaded, with its external data
    onnxruntime/{session}/{step}_in0.raw, …       and out0: elements in C order, little-endian, as they lay in memory

In the index, files with their path below the dump's root::

    {"event": "ort_model", "session": 0, "name": "net/0", "path": …, "file": …, "options": {…}, "device", "rank",
        "why": no file, "seen": [bytes, nanoseconds] of the program's file, "linked": it is that file, "changed": since}
    {"event": "ort_run", "session": 0, "step": 0, "feeds": [{"name", "dtype", "shape", "file" or "why"}]}
    {"event": "ort_end", "session": 0, "step": 0, "outputs": [the same] or "failed": the error}

A step is a run of one session, from 0. Not seen: what C++ code runs, the binding's own class
(``onnxruntime.capi._pybind_state.InferenceSession``), weights that only ``add_external_initializers`` knows.
"""

import functools
import os

import sgsdump_ort_runs as runs
import sgsdump_ort_sessions as loading

NOT_SEEN = ("run_async", "run_with_ortvaluevector")


def install(onnxruntime, session):
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=loading.after_fork)
    if session.control["seed"] is not None and hasattr(onnxruntime, "set_seed"):
        onnxruntime.set_seed(session.control["seed"])
    sessions, bindings = onnxruntime.InferenceSession, onnxruntime.IOBinding
    _patch(sessions, "__init__", functools.partial(loading.load, session))
    _patch(sessions, "run", functools.partial(runs.run, session))
    _patch(sessions, "run_with_ort_values", functools.partial(runs.run, session))
    _patch(sessions, "run_with_iobinding", functools.partial(runs.run_bound, session))
    for name in NOT_SEEN:
        _patch(sessions, name, functools.partial(runs.unseen, session, name))
    for name in ("bind_cpu_input", "bind_input", "bind_ortvalue_input"):
        _patch(bindings, name, functools.partial(runs.bind, "inputs"))
    for name in ("bind_output", "bind_ortvalue_output"):
        _patch(bindings, name, functools.partial(runs.bind, "outputs"))
    _patch(bindings, "clear_binding_inputs", functools.partial(runs.clear, "inputs"))
    _patch(bindings, "clear_binding_outputs", functools.partial(runs.clear, "outputs"))


def _patch(kind, name, around):
    """Let ``around(original, self, …)`` stand for a method, in the class that has it."""
    for owner in kind.__mro__:
        original = owner.__dict__.get(name)
        if original is not None and owner is not object:
            break
    else:
        return

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        return around(original, self, *args, **kwargs)

    setattr(owner, name, method)
