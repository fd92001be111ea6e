"""The hooks' side of a dump: ``Session``, one per process. Standard library only, Python 3.8 and later.

The folder named by ``SGSDUMP_CAPTURE`` is the dump's root, where the parent has put ``control.json``. A process
writes::

    {root}/processes/{pid}/index.jsonl     a line for each dumped thing, at once; the last line is {"complete": true}
    {root}/processes/{pid}/values/…        the values of tensors, each once
    {root}/rounds/{rank}_{pid}/…           if the control asks for rounds: two files for each round, instead of the
                                           values and of the lines of tensors and operators (``sgsdump_rounds.py``)
    {root}/processes/{pid}/…               files of ``write`` (models, feeds)

The parent builds the tree that users see while the program runs (``capture/programs/tensor_tree.py``), so folders and
links cost the program nothing.

Interface for the hooks::

    session = sgsdump_session.session()           None if there is nothing to do
    session.control                               current DumpControl, a dict: read again at each step
    session.pid, session.rank, session.device     numbers; the device is LOCAL_RANK, else the rank
    session.root, session.out                     folders (text): of the dump, of this process
    session.trouble(text)                         report to the user at the program's end; never raise into the program

    session.begins(step)                          a step (from 0) begins, dumped or not
    session.wants_step(step)                      whether the step is dumped at all
    operator = Operator(("3_Linear", "1_addmm"), op_type="aten.addmm", module="root.fc", model="Net")
    session.wants(step, operator)                 whether the operator is dumped
    session.moments("in")                         moments of inputs (or "out"puts): "before", "after"
    told = [session.tensor((step, operator, "in", 0, "before"), Values("float32", shape), data), …]
    lines = [                                     (sgsdump_records.py has all three)
        session.tensors(step, operator, "in", "before", told),
        session.operator(step, operator, param={…}, nanoseconds=…),     each operator that ran: for topology and
    ]                                                                   CPU profiling
    session.say(lines, step)                      writes the lines
    session.ends(step)                            the step is over
    session.write("feeds/0.npy", bytes, …)        a file of any other kind in ``out``; returns its path or None
    session.copy("/a/net.onnx", "net.onnx")       the same, as a copy of another file
    session.line(event="run", …)                  a line of any other kind (for example "source",
                                                  ``for_torch/sgsdump_torch_source.py``)
"""

import atexit
import functools
import json
import os
import sys
import threading

from sgsdump_control import Control, Selection
from sgsdump_files import BINARY, Files, Full, Store
from sgsdump_records import Lines, encode
from sgsdump_rounds import Rounds

NEXT_PROGRAM = 10_000_000  # greater than any process number
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")

_session = None
_looked_for = False


def session():
    """Return the process's session; None without SGSDUMP_CAPTURE or without control.json in that folder."""
    global _session, _looked_for
    if not _looked_for:
        _looked_for = True
        root = os.environ.get("SGSDUMP_CAPTURE", "")
        if root and os.path.isfile(os.path.join(root, "control.json")):
            _session = Session(os.path.abspath(root))
    return _session


class Session:
    """Dump of one process."""

    def __init__(self, root):
        self.root = root
        rank, self._told_device = _number_in(RANKS), _number_in(LOCAL_RANKS)
        self.device = self._told_device or 0
        self.rank = self.device if rank is None else rank
        self._steps = 0
        self._libraries = []
        self._control = control = Control(os.path.join(root, "control.json"))
        self._store = Store(self.stop)
        self._lines = lines = Lines(control, self._store, self.device, self.trouble)
        self._selection = selection = Selection(control, self.rank)
        self.wants_step, self.wants, self.moments = selection.step, selection.operator, selection.moments
        self.tensor, self.tensors, self.operator, self.era = lines.tensor, lines.tensors, lines.operator, lines.era
        self._begin()
        self._end = End(self._begin, self.finish)

    @property
    def control(self):
        return self._control.fields()

    @property
    def content(self):
        """Content that is dumped of tensors, as of the last operator."""
        return self._control.now["content"]

    @property
    def stopped(self):
        """Reason why nothing more is dumped, or ""."""
        return self._control.stopped

    def begin(self, library, version):
        """Record that a library which the program imported is hooked."""
        self.index.begin(library, version)

    def of_rank(self, rank):
        """Set the rank of the process among those that run together, as the library reports it."""
        if rank == self.rank:
            return
        self.rank = rank
        if self._told_device is None:
            self.device = rank
            self._lines.move(rank)
        self._selection.move(rank)
        self._rounds.move(rank)
        self.line(event="rank", rank=rank)

    def begins(self, step):
        self._steps = max(self._steps, step + 1)
        self.index.open()

    def ends(self, step):
        self._rounds.end(step)

    def say(self, lines, step):
        self.index_of(step).say("".join(lines))

    def index_of(self, step):
        """Return the index for a step's lines: the round's or the process's."""
        control = self._control
        return self.index if control.now["layout"] == "files" else self._rounds.of(step, self._files, control.fields)

    def statistics_of(self, step):
        """Return control, era, index and device of a step whose round gets statistics only, or None.

        The conditions: inputs before and outputs after, all devices, no times.
        """
        now, moments = self._control.fields(), [self.moments(side) for side in ("in", "out")]
        if now["layout"] != "rounds" or now["content"] != "stats" or moments != [("before",), ("after",)]:
            return None
        if now["devices"] or now.get("timing") or self.stopped:
            return None
        return self._control, self.era(), self.index_of(step), self.device

    def line(self, **fields):
        self.index.line(**fields)

    def write(self, name, *chunks):
        """Write a file under a relative path in this process's folder.

        Return its path, or None once dumping has stopped.
        """
        return self._written(name, chunks)

    def copy(self, source, name):
        """Copy another file to this process's folder, as ``write``. Raises OSError if it cannot be read."""
        with open(source, "rb") as file:
            return self._written(name, (), file)

    def trouble(self, text):
        """Report a text to the user after the program has ended; each text once."""
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            self.line(event="trouble", text=text[:1000])

    def stop(self, why):
        """Stop dumping in this process."""
        if not self.stopped:
            self._control.stopped = why
            self.line(event="stop", text=why)

    def finish(self):
        """Write the index's last line: the process ended normally."""
        self._rounds.end_all()
        self.index.complete(self._steps, **self._selection.met())

    def close(self):
        """End the dump while the process continues."""
        self.finish()
        self._control.stopped = self.stopped or "the dump has ended"
        self._end.release()
        self.index.close()

    def _begin(self):
        """Set up the per-process parts; called again in a forked process."""
        self.pid = _process_number(self.root)
        self.out = os.path.join(self.root, "processes", str(self.pid))
        self.index = Index(self.out, self.rank, self._libraries, self._no_index)
        self._files = Files(self.root, self.pid)
        self._store.begin(self._files)
        self._rounds = Rounds(self.root, self.rank, self.pid, self.stop)
        self._lines.begin(self.pid, self.index, self.index_of, self._take_room)
        self._steps = 0
        self._told: set = set()

    def _take_room(self, size):
        try:
            self._files.take_room(self._control.fields(), size)
        except (Full, OSError) as error:
            self.stop(str(error))

    def _no_index(self, why):
        self._control.stopped = self.stopped or why

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


def _process_number(root):
    """Return the process's number; another one if a program that executed this, or ended long ago, had it."""
    number = os.getpid()
    while os.path.exists(os.path.join(root, "processes", str(number))):
        number += NEXT_PROGRAM
    return number


def _number_in(names):
    """Return the first of these variables that is a number, or None."""
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


class End:
    """Caller of ``finish`` when the process ends, and of ``begin`` in each forked process.

    A process ends by atexit's functions, by ``os._exit``, or, in ``multiprocessing``, by its finalizers alone.
    """

    def __init__(self, begin, finish):
        self._begin, self._finish = begin, finish
        self._knows_multiprocessing = False
        atexit.register(self._finished)
        self._tell_exit()
        self._tell_multiprocessing()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._tell_multiprocessing, after_in_child=self._begun)

    def release(self):
        """Stop all calls; the registrations with Python stay."""
        self._begin = self._finish = _nothing

    def _begun(self):
        self._begin()

    def _finished(self):
        self._finish()

    def _tell_exit(self):
        """Treat ``os._exit`` as a normal end of the program."""
        leave = os._exit

        @functools.wraps(leave)
        def _exit(*args, **kwargs):
            self._finished()
            leave(*args, **kwargs)

        os._exit = _exit

    def _tell_multiprocessing(self):
        """Register finalizers: processes of multiprocessing may end without atexit, and inherit no finalizers."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._knows_multiprocessing:
            self._knows_multiprocessing = True
            util.Finalize(None, self._finished, exitpriority=-100)
            util.register_after_fork(self, lambda end: util.Finalize(None, end._finished, exitpriority=-100))


def _nothing():
    pass


class Index:
    """A process's ``index.jsonl``: a line for each dumped thing, at once; the last is {"complete": true}.

    ``failed(why)`` is called if the index can no longer be written. The counters are those of a round.
    """

    def __init__(self, folder, rank, libraries, failed):
        self.numbers = self.tensors = self.operators = self.unwritten = 0
        self._failed = failed
        self._folder = folder
        self._rank = rank
        self._libraries = libraries
        self._number = -1
        self._complete = False
        self._lock = threading.RLock()

    def begin(self, library, version):
        """Record that a library which the program imported is hooked."""
        self._libraries.append((library, version))
        with self._lock:
            if self._number < 0:
                self._open()
            else:
                self._begin_line(library, version)

    def open(self):
        with self._lock:
            if self._number < 0:
                self._open()

    def line(self, **fields):
        self.say(encode(fields) + "\n")

    def complete(self, steps, **met):
        """Write the last lines: the process ended normally after this number of steps, dumped or not."""
        if self._number < 0 or self._complete:
            return
        self.line(event="steps", ran=steps)
        if met:
            self.line(event="seen", **met)
        self.line(complete=True)
        self._complete = True

    def close(self):
        """Close the file; Windows does not delete a folder that holds an open file."""
        with self._lock:
            if self._number >= 0:
                os.close(self._number)
            self._number = -1

    def place(self, text):
        """Write an operator's first line at once, before other threads that share the index refer to it."""
        self.say(text)
        return ""

    def say(self, text):
        """Write lines unchanged."""
        try:
            with self._lock:
                if self._number < 0:
                    self._open()
                data = text.encode("utf-8")
                while data:
                    data = data[os.write(self._number, data) :]
                self._complete = False
        except OSError as error:
            self._failed(f"index.jsonl: {error}")

    def _open(self):
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        path = os.path.join(self._folder, "index.jsonl")
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | BINARY, 0o640)
        for library, version in self._libraries:
            self._begin_line(library, version)

    def _begin_line(self, library, version):
        fields = {
            "event": "begin",
            "library": library,
            "version": version,
            "pid": os.getpid(),
            "rank": self._rank,
            "argv": [str(word)[:200] for word in getattr(sys, "argv", [])[:20]],
            "python": sys.version.split()[0],
        }
        os.write(self._number, (json.dumps(fields) + "\n").encode("utf-8"))
