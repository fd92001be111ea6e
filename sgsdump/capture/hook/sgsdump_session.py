"""Where a hooked program's tensors go: ``Session``, one per process. Standard library only, Python 3.8 and later.

The folder named by ``SGSDUMP_CAPTURE`` is the dump's root; the parent put ``control.json`` there. A process writes::

    {root}/processes/{pid}/index.jsonl     a line for each tensor, at once; the last one is {"complete": true}
    {root}/processes/{pid}/values/…        the values of tensors, each once
    {root}/processes/{pid}/…               what ``write`` is asked for (models, feeds)

The tree that users see is made of it by the parent while the program runs (``sgsdump/capture/tensor_tree.py``), so that
making folders and links costs the program nothing. A tensor's line has of its file::

    "file": its path below the root, null where it has none (then perhaps "why")
    "stored": the file below ``processes/`` that has it; without, ``file`` is a header made of the line
    "link": the earlier ``file`` that a symbolic link is to lead to;  "same": that stands for this one

For the hooks::

    session = sgsdump_session.session()           None where there is nothing to do
    session.control                               the DumpControl in force, a dict: look again for each operator
    session.pid, session.rank, session.device     numbers; the device is LOCAL_RANK, 0 without it
    session.root, session.out                     folders (text): of the dump, of this process
    session.trouble(text)                         goes to the user at the program's end; never raise into the program

    session.begins(step)                          a step (from 0) begins, whether it is dumped or not
    session.wants_step(step)                      ask then: whether it is dumped at all
    session.wants(step, name, op_type, ids, model)  whether an operator is; ids is "3", or "3_1" for child 1 of layer 3
    session.moments("in")                         when inputs (or "out"puts) are dumped: of "before", "after"

    operator = Operator(step, ("3_Linear", "1_addmm"), op_type="aten.addmm", module="root.fc", model="Net")
    session.tensor(operator, "in", 0, "before", Values("float32", shape), data)     see there
    session.operator(operator, param={…}, nanoseconds=…)    once for each operator that ran: its line for topology and
                                                            CPU profiling; ``control["timing"]`` says whether it counts
    session.write("feeds/0.npy", bytes, …)        a file of any other kind in ``out``; returns its path or None
    session.copy("/a/net.onnx", "net.onnx")       the same, a copy of another file
    session.line(event="run", …)                  a line of any other kind
"""

import atexit
import functools
import hashlib
import os
import sys
import threading
from collections import OrderedDict

from sgsdump_control import Control
from sgsdump_files import Files, Full
from sgsdump_header import ATB_TYPES, header_of
from sgsdump_index import Index
from sgsdump_records import encode, quoted

MOST_REMEMBERED = 50000
MOST_SEEN = 5000
NEXT_PROGRAM = 10_000_000  # more than any process's number
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")

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


class Session:
    def __init__(self, root):
        self.root = root
        self.rank = _number_in(RANKS)
        self.device = _number_in(LOCAL_RANKS)
        self.stopped = ""
        self._libraries = []
        self._told_multiprocessing = False
        self._control = Control(os.path.join(root, "control.json"))
        self.stopped = self._control.failed
        self._seen: dict = {"names": set(), "types": set()}
        self._steps = 0
        self._by_digest = OrderedDict()
        self._after_fork()
        atexit.register(self.finish)
        self._tell_exit()
        self._tell_multiprocessing()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._tell_multiprocessing, after_in_child=self._after_fork)

    # what is dumped

    @property
    def control(self):
        return self._control.fields()

    def begins(self, step):
        self._steps = max(self._steps, step + 1)

    def wants_step(self, step):
        control = self._control.fields()
        if self.stopped or not control["enabled"]:
            return False
        if control["ranks"] and self.rank not in control["ranks"]:
            return False
        steps = control["steps"]
        return not steps or any(first <= step <= last for first, last in steps)

    def wants(self, step, name="", op_type="", ids="", model=""):
        if not self.wants_step(step):
            return False
        chosen = self._control.chosen
        if chosen.named and len(self._seen["names"]) < MOST_SEEN:
            self._seen["names"].add(name)
            self._seen["types"].add(op_type)
        return chosen(name, op_type, ids, model)

    def moments(self, side):
        """``side`` is "in" or "out"."""
        return self._control.moments(side)

    # what is written

    def begin(self, library, version):
        """A library that the program imported is hooked."""
        self.index.begin(library, version)

    def tensor(self, operator, side, slot, moment, values, data=None, weight=""):
        """One input or output of an operator: its line, and its values where they are not stored yet.

        data     the elements in C order (bytes, or whatever memoryview takes), or a function that gives them and is
                 only called when they are written.
        weight   where the values are a weight's, its name in the program's network, ``root.fc.weight``.
        """
        device = self.device if values.device is None else values.device
        control = self._control.fields()
        if control["devices"] and device not in control["devices"]:
            return
        content = control["content"]
        path = f"tensors/{device}_{self.pid}/{operator.place}/{moment}/{side}tensor{slot}.bin"
        place = self._place(path, values, data, control)
        stats = values.stats or "null" if content == "stats" else "null"
        named = f', "weight": {quoted(weight)}' if weight else ""
        if values.beyond and content == "stats":
            self.trouble(f"{operator.name}: the sum of squares of a tensor is beyond a double, its l2norm is inf")
        self.index.say(
            f'{{{operator.head()}, "side": "{side}", "slot": {slot}, "moment": "{moment}", {values.text}, '
            f'"stats": {stats}, "device": {device}{named}, {place}}}\n'
        )

    def operator(self, operator, param=None, nanoseconds=None):
        text = "null" if param is None else encode(param)
        taken = "null" if nanoseconds is None else nanoseconds
        self.index.say(f'{{{operator.head()}, "event": "operator", "param": {text}, "nanoseconds": {taken}}}\n')

    def write(self, name, *chunks):
        """A file in this process's folder, under a relative path; None (and no file) once dumping has stopped."""
        return self._written(name, chunks)

    def copy(self, source, name):
        """A copy of another file in this process's folder; as ``write``. Raises OSError where it cannot be read."""
        with open(source, "rb") as file:
            return self._written(name, (), file)

    def line(self, **fields):
        self.index.line(**fields)

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
        seen: dict = {}
        if self._control.chosen.named:
            seen = {side: sorted(self._seen[side]) for side in ("names", "types")}
            seen["matched"] = sorted(self._control.matched)
        self.index.complete(self._steps, **seen)

    # inside

    def _place(self, path, values, data, control):
        """What the line says of a tensor's file."""
        content = control["content"]
        if content == "structure" or self.stopped:
            return '"file": null'
        if values.dtype not in ATB_TYPES:
            return _without(f"ATB has no number for {values.dtype}")
        if content == "stats" and not values.stats:
            return _without("it has no statistics")
        if content != "tensor":
            return f'"file": "{path}"'
        if values.stored is None:
            why = self._store(path, values, data, control)
            if why is not None:
                return _without(why)
        if values.first == path:
            return f'"file": "{path}", "stored": "{values.stored}"'
        if control["links"] == "index":
            return f'"file": "{path}", "same": "{values.first}"'
        link = f', "link": "{values.first}"' if control["links"] == "symlink" else ""
        return f'"file": "{path}", "stored": "{values.stored}"{link}'

    def _store(self, path, values, data, control):
        """Let values have a file; returns why they have none."""
        try:
            data = data() if callable(data) else data
            if data is None:
                return "its values cannot be had"
            payload = memoryview(data)
            if not payload.nbytes:
                return "it has no elements"
            payload = payload.cast("B")
            header = header_of(values.dtype, values.shape, payload.nbytes)
            digest = _digest(header, payload) if control["links"] != "none" else None
            known = None if digest is None else self._by_digest.get(digest)
            if known is None:
                known = self._files.store(control, header, payload), path
                if digest is not None:
                    self._remember(digest, known)
            values.stored, values.first = known
            return None
        except Full as full:
            self.stop(str(full))
        except OSError as error:
            self.stop(f"{path}: {error.strerror or error}")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _remember(self, digest, known):
        with self._lock:
            self._by_digest[digest] = known
            if len(self._by_digest) > MOST_REMEMBERED:
                self._by_digest.popitem(last=False)

    def _written(self, name, chunks, copied=None):
        if self.stopped:
            return None
        path = f"processes/{self.pid}/{name}"
        try:
            self.index.open()
            self._files.write(self._control.fields(), name, chunks, copied)
            return path
        except Full as full:
            self.stop(str(full))
        except OSError as error:
            self.stop(f"{path}: {error.strerror or error}")
        return None

    def _tell_exit(self):
        """A program that leaves by ``os._exit`` has come to its end."""
        leave = os._exit

        @functools.wraps(leave)
        def _exit(*args, **kwargs):
            self.finish()
            leave(*args, **kwargs)

        os._exit = _exit

    def _tell_multiprocessing(self):
        """Its processes may end without atexit, but not without its own finalizers, which each begins without."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._told_multiprocessing:
            self._told_multiprocessing = True
            util.Finalize(None, self.finish, exitpriority=-100)
            util.register_after_fork(self, lambda session: util.Finalize(None, session.finish, exitpriority=-100))

    def _after_fork(self):
        self.pid = _own_number(self.root)
        self._steps = 0
        self.out = os.path.join(self.root, "processes", str(self.pid))
        self.index = Index(self.out, self.rank, self._libraries, self._no_index)  # the parent's stays the parent's
        self._files = Files(self.root, self.pid)
        self._lock = threading.Lock()
        self._told: set = set()

    def _no_index(self, why):
        self.stopped = self.stopped or why


def _own_number(root):
    """The process's number; another where a program had it before: one that this was executed by, or long ended."""
    number = os.getpid()
    while os.path.exists(os.path.join(root, "processes", str(number))):
        number += NEXT_PROGRAM
    return number


def _without(why):
    return f'"file": null, "why": {quoted(why)}' if why else '"file": null'


def _digest(header, payload):
    state = hashlib.blake2b(header, digest_size=16)
    state.update(payload)
    return state.digest()


def _number_in(names):
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
