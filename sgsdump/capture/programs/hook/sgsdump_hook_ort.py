"""Hook of onnxruntime: keeps a program's models, feeds and results; the parent computes the inner tensors afterwards.

Methods of ``InferenceSession`` and ``IOBinding`` are patched in place: the program's classes, sessions and results are
unchanged. The hook needs no onnx, and of numpy only arrays. Files below the process's folder::

    onnxruntime/{session}/model.onnx, …           the model as it was loaded, with its external data
    onnxruntime/{session}/{step}_in0.raw, …       and out0: elements in C order, little-endian, as in memory

Lines of the index, with file paths below the dump's root::

    {"event": "ort_model", "session": 0, "name": "net/0", "path": …, "file": …, "options": {…}, "device", "rank",
        "why": no file, "seen": [bytes, nanoseconds] of the program's file, "linked": it is that file, "changed": since}
    {"event": "ort_run", "session": 0, "step": 0, "thread": 0, "feeds": [{"name", "dtype", "shape", "file" or "why"}]}
    {"event": "ort_end", "session": 0, "step": 0, "outputs": [the same] or "failed": the error}

A step is a run of one session, from 0. Not captured: runs by C++ code, the binding's own class
(``onnxruntime.capi._pybind_state.InferenceSession``), and weights that are only in ``add_external_initializers``.
"""

import ctypes
import functools
import itertools
import os
import sys
import threading
from typing import Any

import sgsdump_model_files
from sgsdump_records import folder_name

NOT_SEEN = ("run_async", "run_with_ortvaluevector")
MARK = "_sgsdump_capture"
# Numbers of the threads that ran a session.
_threads: dict = {}
FOLDER_ENTRY = "session.model_external_initializers_file_folder_path"
# Configuration entries of a session that change what it computes.
ENTRIES = (
    "session.disable_quant_qdq",
    "session.disable_double_qdq_remover",
    "session.enable_quant_qdq_cleanup",
    "session.set_denormal_as_zero",
    "session.disable_prepacking",
    "session.disable_aot_function_inlining",
    "session.x64quantprecision",
    "session.qdqisint8allowed",
    "session.enable_dq_matmulnbits_fusion",
    "optimization.enable_gelu_approximation",
    "optimization.minimal_build_optimizations",
    "optimization.disable_specified_optimizers",
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "mlas.use_lut_gemm",
)
# onnxruntime's names of element types -> numpy's, if they differ.
WORDS = {
    **{"float": "float32", "double": "float64", "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn"},
    **{"float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz"},
    **{"float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz"},
}

_lock = threading.Lock()
_numbers = itertools.count()
_of_name: dict = {}


def install(onnxruntime, session):
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)
    if session.control["seed"] is not None and hasattr(onnxruntime, "set_seed"):
        onnxruntime.set_seed(session.control["seed"])
    sessions, bindings = onnxruntime.InferenceSession, onnxruntime.IOBinding
    _patch(sessions, "__init__", functools.partial(load, session))
    _patch(sessions, "run", functools.partial(run, session))
    _patch(sessions, "run_with_ort_values", functools.partial(run, session))
    _patch(sessions, "run_with_iobinding", functools.partial(run_bound, session))
    for name in NOT_SEEN:
        _patch(sessions, name, functools.partial(unseen, session, name))
    for name in ("bind_cpu_input", "bind_input", "bind_ortvalue_input"):
        _patch(bindings, name, functools.partial(bind, "inputs"))
    for name in ("bind_output", "bind_ortvalue_output"):
        _patch(bindings, name, functools.partial(bind, "outputs"))
    _patch(bindings, "clear_binding_inputs", functools.partial(clear, "inputs"))
    _patch(bindings, "clear_binding_outputs", functools.partial(clear, "outputs"))


def _patch(kind, name, around):
    """Replace a method by ``around(original, self, …)``, in the class that defines it."""
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


def after_fork():
    global _lock
    _lock = threading.Lock()


class Capture:
    """A session of the program.

    number   number of the session in its process; name: the model's name and the index of its sessions, ``net/0``.
    kept     preserved files of the model, or None so far.
    told     processes (more than one after a fork) whose index has the model.
    """

    def __init__(self, path):
        self.number = next(_numbers)
        self.steps = itertools.count()
        self.path = path
        self.name = ""
        self.kept = None
        self.told = set()

    @property
    def folder(self):
        return f"onnxruntime/{self.number}"


def _argument(args, kwargs, position, *names):
    """Return an argument of the program's call, or None if it was omitted."""
    if len(args) > position:
        return args[position]
    return next((kwargs[name] for name in names if name in kwargs), None)


def load(session, original, self, *args, **kwargs):
    """Wrap ``InferenceSession.__init__``."""
    source = _argument(args, kwargs, 0, "path_or_bytes")
    capture = Capture(os.path.abspath(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else None)
    # Preserve the file during loading: the program may delete or overwrite it directly afterwards.
    keeping = threading.Thread(target=_keep, args=(session, capture), daemon=True)
    if capture.path is not None:
        keeping.start()
    try:
        original(self, *args, **kwargs)
    finally:
        if capture.path is not None:
            keeping.join()
    try:
        capture.name = _named(self, capture.path)
        setattr(self, MARK, capture)
    except Exception as error:
        session.trouble(f"a model is not captured: {type(error).__name__}: {error}")


def _keep(session, capture):
    try:
        capture.kept = sgsdump_model_files.keep(session, capture.path, capture.folder, _dumps(session))
    except Exception as error:
        session.trouble(f"the model {capture.path} is not kept: {type(error).__name__}: {error}")


def _named(self, path):
    name = os.path.splitext(os.path.basename(path))[0] if path else self.get_modelmeta().graph_name
    name = folder_name(name or "model")
    with _lock:
        count = _of_name[name] = _of_name.get(name, -1) + 1
    return f"{name}/{count}"


def _dumps(session):
    """Return whether this process dumps at all, in any step."""
    control = session.control
    if not control["enabled"] or session.stopped:
        return False
    return not control["ranks"] or session.rank in control["ranks"]


def _tell(session, capture, self):
    """Write the model's line, once per process."""
    with _lock:
        if session.pid in capture.told:
            return
        capture.told.add(session.pid)
        if capture.kept is None or capture.kept.linked:
            if capture.path is None:
                beside = _entries(self.get_session_options()).get(FOLDER_ENTRY) or os.getcwd()
                capture.kept = sgsdump_model_files.write(session, self._model_bytes, capture.folder, beside)
            else:
                capture.kept = sgsdump_model_files.keep(session, capture.path, capture.folder, True, capture.kept)
    options = self.get_session_options()
    facts = {
        "level": str(options.graph_optimization_level).rsplit(".", 1)[-1],
        "mode": str(options.execution_mode).rsplit(".", 1)[-1],
        "threads": options.intra_op_num_threads,
        "providers": list(self.get_providers()),
        "entries": _entries(options),
    }
    kept = capture.kept
    session.line(
        event="ort_model",
        session=capture.number,
        name=capture.name,
        path=capture.path,
        file=kept and kept.file,
        why=kept and kept.why,
        linked=bool(kept and kept.linked),
        seen=kept and kept.loaded_as,
        changed=bool(kept and kept.changed),
        device=session.device,
        rank=session.rank,
        options=facts,
    )


def _entries(options):
    entries = {}
    for key in (*ENTRIES, FOLDER_ENTRY):
        try:
            entries[key] = options.get_session_config_entry(key)
        except Exception:  # noqa: PERF203 - the entry is not set
            continue
    return entries


def run(session, original, self, *args, **kwargs):
    """Wrap ``run`` and ``run_with_ort_values``."""
    feeds = _argument(args, kwargs, 1, "input_feed", "input_dict_ort_values")
    capture, step = _step(session, self)
    if step is None or not hasattr(feeds, "items"):
        return original(self, *args, **kwargs)
    _begin(session, capture, step, self, feeds)
    results = _ran(session, capture, step, original, self, *args, **kwargs)
    names = _argument(args, kwargs, 0, "output_names") or [output.name for output in self.get_outputs()]
    _end(session, capture, step, zip(names, results))
    return results


def run_bound(session, original, self, *args, **kwargs):
    """Wrap ``run_with_iobinding``."""
    binding = _argument(args, kwargs, 0, "iobinding")
    capture, step = _step(session, self)
    if step is None or not hasattr(binding, "get_outputs"):
        return original(self, *args, **kwargs)
    bound = binding.__dict__.get(MARK, {})
    _begin(session, capture, step, self, bound.get("inputs", {}))
    results = _ran(session, capture, step, original, self, *args, **kwargs)
    try:
        outputs = list(zip(bound.get("outputs", {}), binding.get_outputs()))
    except Exception as error:
        outputs = []
        session.trouble(f"{capture.name}: outputs are not captured: {error}")
    _end(session, capture, step, outputs)
    return results


def unseen(session, name, original, self, *args, **kwargs):
    session.trouble(f"{name} is not captured: its runs are not dumped")
    return original(self, *args, **kwargs)


def bind(side, original, self, name, *args, **kwargs):
    result = original(self, name, *args, **kwargs)
    values = (*args, *kwargs.values())
    value: Any = values[0] if len(values) == 1 else (args, kwargs)
    if hasattr(value, "flags") and not value.flags.c_contiguous:
        value = value.copy()  # onnxruntime has its own copy of such an array
    self.__dict__.setdefault(MARK, {}).setdefault(side, {})[name] = value
    return result


def clear(side, original, self, *args, **kwargs):
    self.__dict__.get(MARK, {}).pop(side, None)
    return original(self, *args, **kwargs)


def _wants(session, capture, step):
    if not session.wants_step(step):
        return False
    control = session.control
    if control["content"] == "structure" and step:
        return False
    if control["devices"] and session.device not in control["devices"]:
        return False
    if not control["models"] or control["names"] or control["prefixes"] or control["patterns"]:
        return True
    return any(model in ("", capture.name, capture.name.partition("/")[0]) for model, _ in control["models"])


def _step(session, self):
    """Return the session's capture and the number of the run; None for both if the run is not dumped."""
    capture = self.__dict__.get(MARK)
    if capture is not None:
        step = next(capture.steps)
        session.begins(step)
        if _wants(session, capture, step):
            return capture, step
    return None, None


def _ran(session, capture, step, original, self, *args, **kwargs):
    try:
        return original(self, *args, **kwargs)
    except Exception as error:
        session.line(event="ort_end", session=capture.number, step=step, failed=str(error)[:1000])
        raise


def _begin(session, capture, step, self, feeds):
    """Write the feeds before the run, so that they exist even if it fails or is killed."""
    try:
        _tell(session, capture, self)
        fed = [(name, _as_fed(self, name, value)) for name, value in feeds.items()]
        lines = [_saved(session, capture, step, f"in{i}", *feed) for i, feed in enumerate(fed)]
        thread = _threads.setdefault(threading.get_ident(), len(_threads))
        session.line(event="ort_run", session=capture.number, step=step, thread=thread, feeds=lines)
    except Exception as error:
        session.trouble(f"{capture.name}: step {step} is not captured: {type(error).__name__}: {error}")


def _end(session, capture, step, results):
    try:
        lines = [_saved(session, capture, step, f"out{i}", *result) for i, result in enumerate(results)]
        session.line(event="ort_end", session=capture.number, step=step, outputs=lines)
    except Exception as error:
        session.trouble(f"{capture.name}: outputs of step {step} are not captured: {type(error).__name__}: {error}")


def _saved(session, capture, step, stem, name, value):
    """Write a value to the session's folder; return its line."""
    line = {"name": name}
    try:
        dtype, shape, data = _data(value)
    except Exception as error:
        return dict(line, why=f"{type(error).__name__}: {error}" if not isinstance(error, NotKept) else str(error))
    line.update(dtype=dtype, shape=shape)
    file = session.write(f"{capture.folder}/{step}_{stem}.raw", data)
    return dict(line, file=file) if file else dict(line, why=session.stopped or "it could not be written")


class NotKept(Exception):
    """Error: the value is not a tensor of numbers; the text is the reason."""


def _as_fed(self, name, value):
    """Convert a list to the element type of the model's input."""
    if not isinstance(value, (list, int, float, bool)):
        return value
    word = next(model_input.type for model_input in self.get_inputs() if model_input.name == name)[len("tensor(") : -1]
    return sys.modules["numpy"].asarray(value, dtype=WORDS.get(word, word))


def _data(value):
    """Return element type, shape and elements of a value of any form."""
    if isinstance(value, tuple):
        return _pointed(*value)
    if hasattr(value, "data_type") and hasattr(value, "is_tensor"):
        return _of_ort_value(value)
    numpy = sys.modules["numpy"]
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise NotKept(f"the value is a {type(value).__name__}, not a tensor")
    array = numpy.asarray(value)
    if array.dtype.kind in "OSUM" or array.dtype.hasobject:
        raise NotKept("the value holds text or objects, not numbers")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    data = numpy.ascontiguousarray(array).reshape(-1).view("u1").data if array.size else b""
    return array.dtype.name, list(array.shape), data


def _of_ort_value(value):
    if not value.has_value():
        raise NotKept("the optional value is absent")
    kind = value.data_type()
    if not value.is_tensor():
        raise NotKept(f"the value is a {kind}, not a tensor")
    word = kind[len("tensor(") : -1]
    if word == "string":
        raise NotKept("the value holds text, not numbers")
    shape = [int(size) for size in value.shape()]
    if value.device_name().lower() != "cpu" or not hasattr(value, "tensor_size_in_bytes"):
        return WORDS.get(word, word), shape, _data(value.numpy())[2]
    size = value.tensor_size_in_bytes()
    data = memoryview((ctypes.c_ubyte * size).from_address(value.data_ptr())) if size else b""
    return WORDS.get(word, word), shape, data


def _pointed(args, kwargs):
    """Return the memory that a program binds by address: ``bind_input(name, device, number, type, shape, address)``."""
    names = ("device_type", "device_id", "element_type", "shape", "buffer_ptr")
    bound = dict(zip(names, args), **kwargs)
    if bound["device_type"].lower() != "cpu":
        raise NotKept(
            f"the program bound the value to a memory address on {bound['device_type']}; the dump cannot "
            "read this memory"
        )
    numpy = sys.modules["numpy"]
    try:
        dtype = numpy.dtype(bound["element_type"])
    except TypeError:
        raise NotKept("the program bound the value to a memory address with an element type that numpy lacks") from None
    shape = [int(size) for size in bound["shape"]]
    size = dtype.itemsize
    for length in shape:
        size *= length
    return dtype.name, shape, memoryview((ctypes.c_ubyte * size).from_address(bound["buffer_ptr"])) if size else b""
