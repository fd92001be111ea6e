"""Where a hooked program's tensors go: ``Session``, one per process. Standard library only, Python 3.8 and later.

The folder named by ``SGSDUMP_CAPTURE`` is the dump's root; the parent put ``control.json`` there. A process writes::

    {root}/processes/{pid}/index.jsonl     what it dumped, at once; the last line is {"complete": true}
    {root}/processes/{pid}/values/…        the values of tensors, each once
    {root}/processes/{pid}/…               what ``write`` is asked for (models, feeds)

The tree that users see is made of it by the parent while the program runs (``sgsdump/capture/tensor_tree.py``), so that
making folders and links costs the program nothing. What the index says is said once: what an operator is, in the first
line of its ``place``; what the values of a tensor are, where they come first in a step. All other lines have numbers::

    {"place": 7, "model": "Net", "id": "3_1", "module": "root.fc", "op": …, "type": …, "folders": […]}
    {"step": 0, "at": 7, "side": "in", "moment": "before", "values": [12, {"value": 13, "dtype": …, "shape": …}, …]}
    {"step": 0, "at": 7, "event": "operator", "param": {…}, "nanoseconds": null}

Of the file of values that are described there is::

    "file": null     where it has none (then perhaps "why"); else its name follows from its place
    "stored"         the file below ``processes/`` that has it; without, the file is a header made of what is described
    "link"           the earlier file that a symbolic link is to lead to;  "same": that stands for this one

``sgsdump/dumps/formats/atb/hook_lines.py`` reads it as a line for each input and output.

For the hooks::

    session = sgsdump_session.session()           None where there is nothing to do
    session.control                               the DumpControl in force, a dict: look again for each step
    session.pid, session.rank, session.device     numbers; the device is LOCAL_RANK, 0 without it
    session.root, session.out                     folders (text): of the dump, of this process
    session.trouble(text)                         goes to the user at the program's end; never raise into the program

    session.begins(step)                          a step (from 0) begins, whether it is dumped or not
    session.wants_step(step)                      ask then: whether it is dumped at all
    operator = Operator(("3_Linear", "1_addmm"), op_type="aten.addmm", module="root.fc", model="Net")
    session.wants(step, operator)                 whether an operator is
    session.moments("in")                         when inputs (or "out"puts) are dumped: of "before", "after"
    told = [session.tensor(step, operator, "in", 0, "before", Values("float32", shape), data), …]     see there
    lines = [
        session.tensors(step, operator, "in", "before", told),
        session.operator(step, operator, param={…}, nanoseconds=…),     of each operator that ran: for topology and
    ]                                                                   CPU profiling
    session.say(lines)                            writes them
    session.write("feeds/0.npy", bytes, …)        a file of any other kind in ``out``; returns its path or None
    session.copy("/a/net.onnx", "net.onnx")       the same, a copy of another file
    session.line(event="run", …)                  a line of any other kind
"""

import atexit
import functools
import itertools
import os
import sys
import threading
from json.encoder import encode_basestring_ascii as quoted

from sgsdump_control import Control
from sgsdump_files import Files, Full
from sgsdump_header import ATB_TYPES
from sgsdump_index import Index
from sgsdump_records import param_text
from sgsdump_store import Store

MOST_SEEN = 5000
NEXT_PROGRAM = 10_000_000  # more than any process's number
MOST_IN_LINE = 1000
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
        self._era: tuple = (None, None)  # the control and the index that what is told is told for
        self._control = Control(os.path.join(root, "control.json"))
        self.stopped = self._control.failed
        self._seen: dict = {"names": set(), "types": set()}
        self._steps = 0
        self._store = Store(self.stop)
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

    @property
    def content(self):
        """What is dumped of tensors, as of the operator that was asked for last."""
        return self._control.now["content"]

    def wants_step(self, step):
        control = self._control.fields()
        if self.stopped or not control["enabled"]:
            return False
        if control["ranks"] and self.rank not in control["ranks"]:
            return False
        steps = control["steps"]
        return not steps or any(first <= step <= last for first, last in steps)

    def wants(self, step, operator):
        if not self.wants_step(step):
            return False
        chosen = self._control.chosen
        asked, wanted = operator.wanted
        if asked is not chosen:
            if chosen.named and len(self._seen["names"]) < MOST_SEEN:
                self._seen["names"].add(operator.name)
                self._seen["types"].add(operator.op_type)
            wanted = chosen(operator.name, operator.op_type, operator.ids, operator.model)
            operator.wanted = chosen, wanted
        if self._era[0] is not self._control.now:
            self._era = (self._control.now, self.index)
        return wanted

    def moments(self, side):
        """``side`` is "in" or "out"; as ``content``."""
        return self._control.moments[side]

    # what is written

    def begin(self, library, version):
        """A library that the program imported is hooked."""
        self.index.begin(library, version)

    def tensor(self, step, operator, side, slot, moment, values, data=None):
        """What the line of an operator's inputs or outputs says of one of them: its number, where it was described in
        this step. Its values are stored where they are not yet.

        data     the elements in C order (bytes, or whatever memoryview takes), or a function that gives them and is
                 only called when they are written.
        """
        era = self._era
        if values.told == step and values.era is era:
            return values.word
        if values.text is None or values.era is not era:
            values.era = era
            values.text = self._described(step, operator, side, slot, moment, values, data)
        if values.number is not None:
            values.told = step
        return values.text

    def tensors(self, step, operator, side, moment, told):
        """The line, for ``say``, of an operator's inputs or outputs, of each what ``tensor`` gave."""
        start = f'{{"step": {step}, "at": {self._place(operator)}, "side": "{side}", "moment": "{moment}", '
        if len(told) <= MOST_IN_LINE:
            return f'{start}"values": [{", ".join(told)}]}}\n'
        parts = range(0, len(told), MOST_IN_LINE)
        return "".join(
            f'{start}"slot": {first}, "values": [{", ".join(told[first : first + MOST_IN_LINE])}]}}\n'
            for first in parts
        )

    def operator(self, step, operator, param=None, nanoseconds=None):
        """The line of an operator that ran, for ``say``."""
        text = "null" if param is None else param_text(param)
        taken = "null" if nanoseconds is None or not self._control.now.get("timing") else nanoseconds
        place = self._place(operator)
        return f'{{"step": {step}, "at": {place}, "event": "operator", "param": {text}, "nanoseconds": {taken}}}\n'

    def say(self, lines):
        self.index.say("".join(lines))

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

    def _place(self, operator):
        """The number of an operator, which the index knows."""
        if operator.index is not self.index:
            with self._lock:
                if operator.index is not self.index:
                    operator.number = next(self._places)
                    self.index.say(operator.line())
                    operator.index = self.index
        return operator.number

    def _described(self, step, operator, side, slot, moment, values, data):
        control, device = self._control.now, self.device if values.device is None else values.device
        if control["devices"] and device not in control["devices"]:
            return "null"
        content, stats = control["content"], "null"
        if content == "stats":
            stats = values.stats or "null"
            if values.beyond:
                self.trouble(f"{operator.name}: the sum of squares of a tensor is beyond a double, its l2norm is inf")
        if content == "structure" or self.stopped:
            file = _without("")
        elif values.dtype not in ATB_TYPES:
            file = _without(f"ATB has no number for {values.dtype}")
        elif content == "stats" and not values.stats:
            file = _without("it has no statistics")
        elif content == "tensor":
            place = f"{step}/{'/'.join(operator.folders)}/{moment}/{side}tensor{slot}.bin"
            file = self._stored(control, f"tensors/{device}_{self.pid}/{place}", values, data)
        else:
            file = ""
        named = f', "weight": {quoted(values.weight)}' if values.weight else ""
        return f'{{{values.facts()}, "stats": {stats}, "device": {device}{named}{file}}}'

    def _stored(self, control, path, values, data):
        """What is said of the file of values; ``path`` is their place in the tree."""
        if values.stored is None:
            why = self._store.keep(control, path, values, data)
            if why is not None:
                return _without(why)
        kind = {"index": "same", "symlink": "link"}.get(control["links"])
        first = "" if kind is None else f', "{kind}": "{values.first}"'
        return f', "stored": "{values.stored}"{first}'

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
        self._store.begin(self._files)
        self._places = itertools.count()
        self._era = (None, None)
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
    """What is said of values that have no file."""
    return f', "file": null, "why": {quoted(why)}' if why else ', "file": null'


def _number_in(names):
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
