"""Where a hooked program's tensors go: ``Session``, one per process. Standard library only, Python 3.8 and later.

The folder named by ``SGSDUMP_CAPTURE`` is the dump's root. The parent put ``control.json`` there (``DumpControl`` in
plain JSON; whenever it is replaced the new one counts, within a second). A process writes::

    {root}/tensors/{device}_{pid}/{step}/{id}_{name}[/{id}_{name}]*/{before|after}/{in|out}tensor{slot}[_{label}].bin
    {root}/processes/{pid}/index.jsonl     a line for each tensor, at once; the last one is {"complete": true}
    {root}/processes/{pid}/…               what ``write`` is asked for (models, feeds)

Every file is written beside its place and renamed, so whatever ends the program leaves whole files.

For the hooks::

    session = sgsdump_spool.session()             None where there is nothing to do
    session.control                               the DumpControl in force, a dict: look again for each operator
    session.pid, session.rank, session.device     numbers; the device is LOCAL_RANK, 0 without it
    session.root, session.out                     folders (text): of the dump, of this process
    session.content                               tensor, stats, description or structure
    session.trouble(text)                         goes to the user at the program's end; never raise into the program

    session.wants_step(step)                      ask first: whether a step (from 0) is dumped at all
    session.wants(step, name, op_type, ids, model)  whether an operator is; ids is "3", or "3_1" for child 1 of layer 3
    session.moments("in")                         when inputs (or "out"puts) are dumped: of "before", "after"

    operator = Operator(step, ("3_Linear", "1_addmm"), op_type="aten.addmm", module="root.fc", model="Net")
    session.tensor(operator, "in", 0, "before", data, "float32", shape, …)     see there
    session.operator(operator, param={…}, nanoseconds=…)    once for each operator that ran: its line for topology and
                                                            CPU profiling; ``control["timing"]`` says whether it counts
    session.write("feeds/0.npy", bytes, …)        a file of any other kind in ``out``; returns its path or None
    session.copy("/a/net.onnx", "net.onnx")       the same, a copy of another file
    session.line(event="run", …)                  a line of any other kind
"""

import atexit
import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections import OrderedDict

DISK_FULL = "Disk space is not enough, it's must more than 2G, free size(MB) is:"
RELOAD_SECONDS = 1.0
MOST_REMEMBERED = 50000
MOST_SEEN = 5000
COPIED_AT_ONCE = 1 << 30
MOST_NAME = 100
INFINITE = float("inf")

# ATB's numbers of element types.
ATB_TYPES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
    "complex32": 33, "float8_e5m2": 35, "float8_e4m3fn": 36, "float8_e8m0fnu": 37,
}  # fmt: skip
FORMAT_ND = 2
STATISTICS = ("max", "min", "mean", "l2norm")
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")

# Until a control.json was read.
NOTHING = {
    **{"enabled": False, "content": "structure", "children": True},
    **dict.fromkeys(("names", "prefixes", "patterns", "models", "ids", "steps", "ranks", "devices"), ()),
}

_encode = json.JSONEncoder(default=str).encode
_session = None
_made = False


def session():
    """The process's session; None without SGSDUMP_CAPTURE or where that folder has no control.json."""
    global _session, _made
    if not _made:
        _made = True
        root = os.environ.get("SGSDUMP_CAPTURE", "")
        if root and os.path.isfile(os.path.join(root, "control.json")):
            _session = Session(os.path.abspath(root))
    return _session


class Operator:
    """One operator as it runs in one step.

    step      the outermost forward's number, from 0.
    folders   ``{id}_{name}`` of the layer, of its child …; the operator itself is the last one.
    op_type   what ``-opname`` looks at, with and without what stands before its first dot (``aten.addmm``); the name
              of the last folder when it is not given.
    module    where in the program's network it stands, ``root.layer1.0``.
    model     the graph's or outermost module's name.
    """

    __slots__ = ("_head", "folders", "ids", "model", "module", "name", "op_type", "step")

    def __init__(self, step, folders, op_type="", module="", model=""):
        self.step = step
        self.folders = tuple(folder_name(folder) for folder in folders)
        self.ids = "_".join(folder.partition("_")[0] for folder in self.folders)
        self.name = self.folders[-1].partition("_")[2]
        self.op_type = op_type or self.name
        self.module = module
        self.model = model
        self._head = ""

    def head(self):
        """What all its lines begin with, in JSON without the brackets."""
        if not self._head:
            fields = {
                "step": self.step,
                "model": self.model,
                "id": self.ids,
                "module": self.module,
                "op": self.name,
                "type": self.op_type,
                "folders": self.folders,
            }
            self._head = _encode(fields)[1:-1]
        return self._head


def folder_name(text):
    """A name as a folder may have it: letters, digits, ``_``, ``-`` and ``.``, at most 100 of them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:MOST_NAME]


class Session:
    def __init__(self, root):
        self.root = root
        self.rank = _number_in(RANKS)
        self.device = _number_in(LOCAL_RANKS)
        self.stopped = ""
        self.headers_later = False  # files that are no more than a header: by the parent, at the end
        self._held = threading.local()
        self._libraries = []
        self._told_multiprocessing = False
        self._control_path = os.path.join(root, "control.json")
        self._control_seen = None
        self._looked = 0.0
        self._control = {}
        self._matched: set = set()
        self._filter = _Filter(NOTHING, self._matched)
        self._seen: dict = {"names": set(), "types": set()}
        self._by_key = OrderedDict()
        self._by_digest = OrderedDict()
        self._after_fork()
        self._reload()
        atexit.register(self.finish)
        self._tell_multiprocessing()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._tell_multiprocessing, after_in_child=self._after_fork)

    # what is dumped

    @property
    def control(self):
        now = time.monotonic()
        if now - self._looked >= RELOAD_SECONDS:
            self._reload()
        return self._control

    @property
    def content(self):
        return self.control["content"]

    def wants_step(self, step):
        control = self.control
        if self.stopped or not control["enabled"]:
            return False
        if control["ranks"] and self.rank not in control["ranks"]:
            return False
        steps = control["steps"]
        return not steps or any(first <= step <= last for first, last in steps)

    def wants(self, step, name="", op_type="", ids="", model=""):
        if not self.wants_step(step):
            return False
        if self._filter.named and len(self._seen["names"]) < MOST_SEEN:
            self._seen["names"].add(name)
            self._seen["types"].add(op_type)
        return self._filter(name, op_type, ids, model)

    def moments(self, side):
        """``side`` is "in" or "out"."""
        control = self.control
        if control["mode"] not in ("all", "input" if side == "in" else "output"):
            return ()
        when = control["when"]
        if when == "inputs-before-outputs-after":
            return ("before",) if side == "in" else ("after",)
        return ("before", "after") if when == "both" else (when,)

    # what is written

    def begin(self, library, version):
        """A library that the program imported is hooked."""
        self._libraries.append((library, version))
        if self._index < 0:
            self._open()
        else:
            self._begin_line(library, version)

    def tensor(
        self,
        operator,
        side,
        slot,
        moment,
        data,
        dtype,
        shape,
        stats=None,
        device=None,
        key=None,
        value=None,
        label="",
        weight="",
    ):
        """One input or output of an operator: its file, if there is to be one, and its line.

        data     the elements in C order (bytes, or whatever memoryview takes), or a function that gives them and is
                 only called when they are written.
        dtype    the type's usual name, ``float32``, ``bfloat16``.
        stats    {"max":, "min":, "mean":, "l2norm":, …} where content is stats; None for what has no statistics.
        device   the number of the device that holds it; the process's without it.
        key      anything hashable that no other values will ever have in this process (the caller sees to that: memory
                 is used again): of values with one key there is one payload, however often they are given.
        value    a number that stands for the values: what reads a tensor and what made it have one number.
        label    the parameter's name in the operator, ``weight`` of ``intensor1_weight.bin``; usually none.
        weight   where the values are a weight's, its name in the program's network, ``root.fc.weight``.

        Returns the file's path in the dump, None when there is none.
        """
        device = self.device if device is None else device
        if not self._on(device):
            return None
        if stats and stats.get("l2norm") == INFINITE and abs(stats.get("max") or 0) < INFINITE:
            self.trouble(f"{operator.name}: the sum of squares of a tensor is beyond a double, its l2norm is inf")
        found: dict = {"file": None}
        if not self.stopped:
            folders = "/".join(operator.folders)
            stem = "{}tensor{}{}".format(side, slot, "_" + folder_name(label) if label else "")
            path = f"tensors/{device}_{self.pid}/{operator.step}/{folders}/{moment}/{stem}.bin"
            try:
                found = self._payload(path, data, dtype, shape, stats, key)
            except OSError as error:
                self.stop(f"{path}: {error.strerror or error}")
            except Exception as error:
                found["why"] = f"{type(error).__name__}: {error}"
        if weight:
            found["weight"] = weight
        self._line_of(
            operator,
            side=side,
            slot=slot,
            moment=moment,
            dtype=dtype,
            shape=[int(size) for size in shape],
            stats=stats,
            device=device,
            value=value,
            **found,
        )
        return found["file"]

    def operator(self, operator, param=None, nanoseconds=None):
        self._line_of(operator, event="operator", param=param, nanoseconds=nanoseconds)

    def write(self, name, *chunks):
        """A file in this process's folder, under a relative path; None (and no file) once dumping has stopped."""
        path = f"processes/{self.pid}/{name}"
        if self.stopped:
            return None
        try:
            return path if self._file(path, chunks) else None
        except OSError as error:
            self.stop(f"{path}: {error.strerror or error}")
            return None

    def copy(self, source, name):
        """A copy of another file in this process's folder; as ``write``. Raises OSError where it cannot be read."""
        path = f"processes/{self.pid}/{name}"
        with open(source, "rb") as file:
            if self.stopped:
                return None
            try:
                return path if self._file(path, (), file) else None
            except OSError as error:
                self.stop(f"{path}: {error.strerror or error}")
                return None

    def line(self, **fields):
        self._say(_encode(fields) + "\n")

    def _line_of(self, operator, **fields):
        self._say("{" + operator.head() + ", " + _encode(fields)[1:] + "\n")

    def _say(self, text):
        try:
            held = getattr(self._held, "lines", None)
            if held is None:
                self._put(text)
            else:
                held.append(text)
        except OSError as error:
            self.stopped = self.stopped or f"index.jsonl: {error}"

    @contextlib.contextmanager
    def together(self):
        """Lines of this thread that are written at once, at the end; where they are many, writing them is dear."""
        outer = getattr(self._held, "lines", None)
        self._held.lines = lines = [] if outer is None else outer
        try:
            yield
        finally:
            self._held.lines = outer
            if outer is None and lines:
                try:
                    self._put("".join(lines))
                except OSError as error:
                    self.stopped = self.stopped or f"index.jsonl: {error}"

    def _put(self, text):
        with self._lock:
            if self._index < 0:
                self._open()
            data = text.encode("utf-8")
            while data:
                data = data[os.write(self._index, data) :]
            self._complete = False

    def trouble(self, text):
        """What the user is told when the program has ended; once for one text."""
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            self.line(event="trouble", text=text[:1000])

    def stop(self, why):
        """Dump nothing more in this process."""
        if not self.stopped:
            self.stopped = why
            self.line(event="stop", text=why)

    def finish(self):
        """The index's last line: the process came to its end."""
        if self._index < 0 or self._complete:
            return
        if self._filter.named:
            seen = {side: sorted(self._seen[side]) for side in ("names", "types")}
            self.line(event="seen", matched=sorted(self._matched), **seen)
        self.line(complete=True)
        self._complete = True

    # inside

    def _reload(self):
        self._looked = time.monotonic()
        try:
            status = os.stat(self._control_path)
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen == self._control_seen:
                return
            with open(self._control_path, encoding="utf-8") as file:
                control = json.load(file)
            self._filter, self._control = _Filter(control, self._matched), control
            self._control_seen = seen
        except (OSError, ValueError) as error:
            if not self._control:
                self._control = NOTHING
                self.stopped = f"control.json: {error}"

    def _on(self, device):
        devices = self._control["devices"]
        return not devices or device in devices

    def _payload(self, path, data, dtype, shape, stats, key):
        """What the line says of a tensor's file: "file", its path, and where that is None perhaps "why"; or "same",
        the earlier file that stands for it."""
        content = self._control["content"]
        if content == "structure":
            return {"file": None}
        dims = ",".join(str(int(size)) for size in shape)
        number = ATB_TYPES.get(dtype)
        if number is None:
            return {"file": None, "why": f"ATB has no number for {dtype}"}
        if content != "tensor":
            if content == "stats" and not _known(stats):
                return {"file": None, "why": "it has no statistics"}
            if self.headers_later:
                return {"file": path, "later": True}
            header = header_alone(dtype, shape, stats if content == "stats" else None)
            return {"file": path if self._file(path, (header,)) else None}
        if key is not None:
            key = (key, dims, number)
            found = self._as_before(self._by_key, key, path)
            if found:
                return found
        data = data() if callable(data) else data
        if data is None:
            return {"file": None, "why": "its values cannot be had"}
        payload = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
        if not payload.nbytes:
            return {"file": None, "why": "it has no elements"}
        header = _header(number, dims, payload.nbytes, ())
        digest = None
        if self._control["links"] != "none":
            state = hashlib.blake2b(header, digest_size=16)
            state.update(payload)
            digest = state.digest()
            found = self._as_before(self._by_digest, digest, path)
            if found:
                return found
        if not self._file(path, (header, payload)):
            return {"file": None}
        with self._lock:
            for table, name in ((self._by_key, key), (self._by_digest, digest)):
                if name is not None:
                    table[name] = path
                    if len(table) > MOST_REMEMBERED:
                        table.popitem(last=False)
        return {"file": path}

    def _as_before(self, table, name, path):
        """What the line says where a file of these values is known; None where it is not, or cannot be linked to."""
        with self._lock:
            first = table.get(name)
            if first is not None:
                table.move_to_end(name)
        if first is None:
            return None
        if first == path:
            return {"file": path}
        if self._control["links"] == "index":
            self._folder(os.path.dirname(os.path.join(self.root, path)))
            return {"file": path, "same": first}
        return {"file": path} if self._link(first, path) else None

    def _link(self, first, path):
        """Let ``path`` be what ``first`` is; False where the file system has no links, so that it is written again."""
        source, target = os.path.join(self.root, first), os.path.join(self.root, path)
        self._folder(os.path.dirname(target))
        try:
            if os.path.lexists(target):
                os.unlink(target)
            if self._control["links"] == "symlink":
                os.symlink(os.path.relpath(source, os.path.dirname(target)), target)
            else:
                os.link(source, target)
        except OSError:
            return False
        return True

    def _file(self, path, chunks, copied=None):
        """Write a file whole, what is ``copied`` behind the chunks; False where the disk or the dump is full."""
        size = sum(memoryview(chunk).nbytes for chunk in chunks) + (os.fstat(copied.fileno()).st_size if copied else 0)
        if not self._room(size):
            return False
        target = os.path.join(self.root, path)
        self._folder(os.path.dirname(target))
        if self._index < 0:
            with self._lock:
                if self._index < 0:
                    self._open()
        part = os.path.join(self.out, f".part{threading.get_ident()}")
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
            try:
                for chunk in chunks:
                    left = memoryview(chunk).cast("B")
                    while left.nbytes:
                        left = left[os.write(number, left) :]
                while copied and _copied(copied.fileno(), number):
                    pass
            finally:
                os.close(number)
            os.replace(part, target)
        except OSError:
            if os.path.lexists(part):
                os.unlink(part)
            raise
        return True

    def _room(self, size):
        least = self._control["min_free"]
        if least and hasattr(os, "statvfs"):
            status = os.statvfs(self.root)
            free = status.f_bavail * status.f_frsize
            if free < least + size:
                self.stop(f"{DISK_FULL} {free >> 20}")
                return False
        most = self._control["max_bytes"]
        if most and not self._spend(size, most):
            self.stop(f"the dump has reached its {most} bytes (--max-size); nothing more is dumped")
            return False
        return True

    def _spend(self, size, most):
        """Count bytes for all processes of the dump together."""
        import fcntl

        number = os.open(os.path.join(self.root, "processes", ".bytes"), os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            spent = int(os.read(number, 30) or b"0")
            if spent + size > most:
                return False
            os.pwrite(number, b"%020d" % (spent + size), 0)
            return True
        finally:
            os.close(number)

    def _folder(self, folder):
        if folder not in self._folders:
            os.makedirs(folder, mode=0o750, exist_ok=True)
            self._folders.add(folder)
            if len(self._folders) > MOST_REMEMBERED:
                self._folders.clear()

    def _open(self):
        os.makedirs(self.out, mode=0o750, exist_ok=True)
        self._index = os.open(os.path.join(self.out, "index.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        for library, version in self._libraries:
            self._begin_line(library, version)

    def _begin_line(self, library, version):
        fields = {
            "event": "begin",
            "library": library,
            "version": version,
            "pid": self.pid,
            "rank": self.rank,
            "argv": [str(word)[:200] for word in getattr(sys, "argv", [])[:20]],
            "python": sys.version.split()[0],
        }
        os.write(self._index, (json.dumps(fields) + "\n").encode("utf-8"))

    def _tell_multiprocessing(self):
        """Its processes may end without atexit, but not without its own finalizers, which each begins without."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._told_multiprocessing:
            self._told_multiprocessing = True
            util.Finalize(None, self.finish, exitpriority=-100)
            util.register_after_fork(self, lambda session: util.Finalize(None, session.finish, exitpriority=-100))

    def _after_fork(self):
        self.pid = os.getpid()
        self.out = os.path.join(self.root, "processes", str(self.pid))
        self._lock = threading.RLock()
        self._index = -1  # the parent's, if it was open, stays the parent's
        self._complete = False
        self._told = set()
        self._folders = set()


class _Filter:
    """Whether an operator is among those that a control names; what named one goes into ``matched``."""

    def __init__(self, control, matched):
        self.names = frozenset(control["names"])
        self.prefixes = [(prefix, prefix.lower()) for prefix in control["prefixes"]]
        self.patterns = [(pattern, re.compile(pattern)) for pattern in control["patterns"]]
        self.ids = frozenset(control["ids"])
        self.children = control["children"]
        self.models = [(model, frozenset(names)) for model, names in control["models"]]
        self.named = bool(self.names or self.prefixes or self.patterns or self.models)
        self.matched = matched

    def __call__(self, name, op_type, ids, model):
        if self.ids:
            if ids not in self.ids and not (self.children and any(ids.startswith(id + "_") for id in self.ids)):
                return False
        elif not self.children and "_" in ids:
            return False
        if not self.named:
            return True
        found = self._named(name, op_type.lower(), model)
        self.matched.update(found)
        return bool(found)

    def _named(self, name, kind, model):
        found = [name] if name in self.names else []
        for among, names in self.models:
            if among in ("", model) and (not names or name in names):
                found.append(name)
        short = kind.partition(".")[2]
        found += [prefix for prefix, lower in self.prefixes if kind.startswith(lower) or short.startswith(lower)]
        return found + [text for text, pattern in self.patterns if pattern.search(name)]


def header_alone(dtype, shape, stats):
    """The file of a tensor that is only described, or of which there are statistics only."""
    return _header(ATB_TYPES[dtype], ",".join(str(int(size)) for size in shape), None, _known(stats))


def _known(stats):
    return [(name, stats[name]) for name in STATISTICS if stats and stats.get(name) is not None]


def _header(number, dims, size, statistics):
    """The text in front of an ATB tensor's payload; ``size`` None: the whole file of a tensor without payload."""
    lines = ["$Version=1.0", f"$Object.Count={int(size is not None)}", f"$Object.Length={size or 0}"]
    lines += [f"format={FORMAT_ND}", f"dtype={number}", f"dims={dims}"]
    lines += [f"{name}={value!r}" for name, value in statistics]
    lines += [f"$Object.data=0,{size}"] if size is not None else []
    return ("\n".join(lines) + "\n$End=1\n").encode("ascii")


def _copied(source, target):
    """Copy a piece of a file, within the kernel where it can; returns the number of bytes, 0 at its end."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, COPIED_AT_ONCE)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
    data = os.read(source, 1 << 20)
    left = memoryview(data)
    while left.nbytes:
        left = left[os.write(target, left) :]
    return len(data)


def _number_in(names):
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
