"""Sessions of onnxruntime: the model that each has loaded, which is kept, and the line that tells of it."""

import itertools
import os
import threading

import sgsdump_model_files
from sgsdump_records import folder_name

MARK = "_sgsdump_capture"
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

_lock = threading.Lock()
_numbers = itertools.count()
_of_name: dict = {}


def after_fork():
    global _lock
    _lock = threading.Lock()


class Capture:
    """A session of the program.

    number   of the session in its process; name: the model's, and which session of that name it is, ``net/0``.
    kept     the file that holds the model and the folder of its external data, below the dump's root; None so far.
    told     the processes (after a fork there are more) whose index has the model.
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


def given(args, kwargs, position, *names):
    """An argument of the program's call, None where it left it out."""
    if len(args) > position:
        return args[position]
    return next((kwargs[name] for name in names if name in kwargs), None)


def load(session, original, self, *args, **kwargs):
    """``InferenceSession.__init__``."""
    source = given(args, kwargs, 0, "path_or_bytes")
    capture = Capture(os.path.abspath(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else None)
    # The program may delete or overwrite the file as soon as it is loaded.
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
    """Whether this process is to be dumped at all, at whatever step."""
    control = session.control
    if not control["enabled"] or session.stopped:
        return False
    return not control["ranks"] or session.rank in control["ranks"]


def tell(session, capture, self):
    """The model's line, once in each process."""
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
    told = {
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
        seen=kept and kept.seen,
        changed=bool(kept and kept.changed),
        device=session.device,
        rank=session.rank,
        options=told,
    )


def _entries(options):
    known = {}
    for key in (*ENTRIES, FOLDER_ENTRY):
        try:
            known[key] = options.get_session_config_entry(key)
        except Exception:  # noqa: PERF203 - it was not set
            continue
    return known
