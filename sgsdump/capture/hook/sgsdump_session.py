"""What a hook has of the dump: ``Session``, one per process. Standard library only, Python 3.8 and later.

The folder named by ``SGSDUMP_CAPTURE`` is the dump's root; the parent put ``control.json`` there. A process writes::

    {root}/processes/{pid}/index.jsonl     what it dumped, at once; the last line is {"complete": true}
    {root}/processes/{pid}/values/…        the values of tensors, each once
    {root}/processes/{pid}/…               what ``write`` is asked for (models, feeds)

The tree that users see is made of it by the parent while the program runs (``sgsdump/capture/tensor_tree.py``), so that
making folders and links costs the program nothing.

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
    told = [session.tensor(step, operator, "in", 0, "before", Values("float32", shape), data), …]
    lines = [                                     (sgsdump_lines.py has all three)
        session.tensors(step, operator, "in", "before", told),
        session.operator(step, operator, param={…}, nanoseconds=…),     of each operator that ran: for topology and
    ]                                                                   CPU profiling
    session.say(lines)                            writes them
    session.write("feeds/0.npy", bytes, …)        a file of any other kind in ``out``; returns its path or None
    session.copy("/a/net.onnx", "net.onnx")       the same, a copy of another file
    session.line(event="run", …)                  a line of any other kind
"""

import os

import sgsdump_process
from sgsdump_control import Control
from sgsdump_files import Files, Full
from sgsdump_index import Index
from sgsdump_lines import Lines
from sgsdump_store import Store
from sgsdump_wanted import Wanted

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
        self.rank, self.device = sgsdump_process.rank(), sgsdump_process.device()
        self._steps = 0
        self._libraries = []
        self._control = control = Control(os.path.join(root, "control.json"))
        self._store = Store(self.stop)
        self._lines = lines = Lines(control, self._store, self.device, self.trouble)
        self._wanted = wanted = Wanted(control, self.rank)
        self.wants_step, self.wants, self.moments = wanted.step, wanted.operator, wanted.moments
        self.tensor, self.tensors, self.operator = lines.tensor, lines.tensors, lines.operator
        self._begin()
        sgsdump_process.End(self._begin, self.finish)

    @property
    def control(self):
        return self._control.fields()

    @property
    def content(self):
        """What is dumped of tensors, as of the operator that was asked for last."""
        return self._control.now["content"]

    @property
    def stopped(self):
        """Why nothing is dumped any more, "" as ever."""
        return self._control.stopped

    def begin(self, library, version):
        """A library that the program imported is hooked."""
        self.index.begin(library, version)

    def begins(self, step):
        self._steps = max(self._steps, step + 1)

    def say(self, lines):
        self.index.say("".join(lines))

    def line(self, **fields):
        self.index.line(**fields)

    def write(self, name, *chunks):
        """A file in this process's folder, under a relative path; None (and no file) once dumping has stopped."""
        return self._written(name, chunks)

    def copy(self, source, name):
        """A copy of another file in this process's folder; as ``write``. Raises OSError where it cannot be read."""
        with open(source, "rb") as file:
            return self._written(name, (), file)

    def trouble(self, text):
        """What the user is told when the program has ended; once for one text."""
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            self.line(event="trouble", text=text[:1000])

    def stop(self, why):
        """Dump nothing more in this process."""
        if not self.stopped:
            self._control.stopped = why
            self.line(event="stop", text=why)

    def finish(self):
        """The index's last line: the process came to its end."""
        self.index.complete(self._steps, **self._wanted.seen())

    def _begin(self):
        """What a process has for itself, one that was forked too: the parent's index stays the parent's."""
        self.pid = sgsdump_process.own_number(self.root)
        self.out = os.path.join(self.root, "processes", str(self.pid))
        self.index = Index(self.out, self.rank, self._libraries, self._no_index)
        self._files = Files(self.root, self.pid)
        self._store.begin(self._files)
        self._lines.begin(self.pid, self.index)
        self._steps = 0
        self._told: set = set()

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
