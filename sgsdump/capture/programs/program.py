"""Run a program unchanged with the hooks on its PYTHONPATH, and report.

The program inherits standard input, output and error; it is started without a shell. Its processes find
``hook/sitecustomize.py`` and write below the dump's root (``hook/sgsdump_session.py`` says what); the tree of
tensors is made of that at the same time. A configuration file may be edited meanwhile (``LiveConfig``).
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sgsdump.capture.programs.control import DISK_FULL, DumpControl, to_json
from sgsdump.capture.programs.feed import Feed
from sgsdump.capture.programs.process_index import Process, processes_of
from sgsdump.capture.programs.tensor_tree import TensorTree, TreeThread
from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.process import Terminated

HOOK = Path(__file__).parent / "hook"
CONTROL = "control.json"
LOOK_EVERY = 0.5
NOTHING = (
    "no process of the program imported torch or onnxruntime with the hooks in place; python -I, -E and -S and env -i "
    "keep them out, and a program of another language cannot be hooked"
)


@dataclass(frozen=True)
class Captured:
    """status      the program's exit status as a shell has it: 128 + the signal's number where one ended it.
    processes   those that imported a library that is hooked.
    complete    every one of them came to its end, or was ended between two steps of a program that ended well, and
                none stopped dumping before.
    notes       what the user should know, a sentence each.
    """

    status: int
    processes: tuple[Process, ...]
    complete: bool
    notes: tuple[str, ...]

    @property
    def steps(self) -> int | None:
        """How many steps the process with the most of them began; None where one did not tell."""
        begun = [process.begun for process in self.processes]
        return max((steps for steps in begun if steps is not None), default=None) if None not in begun else None

    @property
    def caught(self) -> bool:
        """Whether anything was dumped."""
        return any(process.caught for process in self.processes)


def run_program(
    argv: Sequence[str],
    control: DumpControl,
    out: Path,
    *,
    live: Callable[[], DumpControl | None] | None = None,
    feed: Feed | None = None,
) -> Captured:
    """Run ``argv`` to its end, dumping below ``out``, an empty folder. ``feed``: what a reference was given.

    ``live`` is asked every half second while the program runs: a control it returns is put in the place of the last.
    Raises ConfigError for a program that cannot be started.
    """
    check_command(argv)
    put_control(control, out)
    if feed is not None:
        feed.write(out)
    program = _started(argv, environment(os.environ, control, out))
    tree = TensorTree(out)
    with TreeThread(tree):
        status = _wait(program, out, live)
    tree.finish()
    found = processes_of(out)
    processes = tuple(replace(process, complete=process.complete or _is_whole(process, status)) for process in found)
    return Captured(
        status if status >= 0 else 128 - status,
        processes,
        bool(processes) and all(process.complete and not process.stopped for process in processes),
        tuple(notes_of(found, status)),
    )


class LiveConfig:
    """Called again and again, it returns the control of a file that has changed since, else None.

    ``read`` makes the control of the file; where it cannot, ``tell`` is called with the reason, and the last control
    stays in force: ``latest`` is the last that it gave.
    """

    def __init__(self, path: Path, read: Callable[[], DumpControl], tell: Callable[[str], None]) -> None:
        self._path, self._read, self._tell = path, read, tell
        self._version = self._state()
        self.latest: DumpControl | None = None

    def __call__(self) -> DumpControl | None:
        state = self._state()
        if state == self._version:
            return None
        self._version = state
        try:
            self.latest = self._read()
        except SgsdumpError as error:
            self._tell(f"the changed configuration is ignored: {error}")
            return None
        return self.latest

    def _state(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino


def split_command(text: str) -> list[str]:
    """The words of ``--exec "…"``. Raises ConfigError for redirection and what else only a shell understands."""
    try:
        words = shlex.split(text)
        shell = [word for word in _unquoted(text) if word in "<>|&;"]
    except ValueError as error:
        raise ConfigError(f"--exec {text[:80]!r} cannot be split into words: {error}") from None
    if not words:
        raise ConfigError("--exec is empty; give the program as it is started, --exec 'python infer.py'")
    if shell:
        raise ConfigError(
            f"--exec {text[:80]!r}: {shell[0]!r} is for a shell, and none is started; write the command with its "
            f"redirection into a shell script and give --exec 'bash script.sh'"
        )
    return words


def _unquoted(text: str) -> list[str]:
    """The characters of a command that stand outside quotes."""
    unquoted, quote, escaped = [], "", False
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            unquoted.append(letter)
    return unquoted


def check_command(argv: Sequence[str]) -> None:
    """Raises ConfigError for a program that is not there."""
    if not argv:
        raise ConfigError("no program is given; write it after --, as in sgsdump exec -- python infer.py")
    if shutil.which(argv[0]) is None:
        if Path(argv[0]).is_dir():
            raise ConfigError(f"the program {argv[0][:200]!r} is a folder; name the program in it")
        near = difflib.get_close_matches(Path(argv[0]).name, _programs(), 3)
        hint = f"; near it are {', '.join(near)}" if near else ""
        state = "cannot be executed" if Path(argv[0]).is_file() else "is not there"
        raise ConfigError(f"the program {argv[0][:200]!r} {state}{hint}")


def disk_full(folder: Path, control: DumpControl) -> str:
    """What is said where the disk has no room for a dump to begin with; "" where it has."""
    free = shutil.disk_usage(folder).free
    return f"{DISK_FULL} {free >> 20}" if free < control.storage.min_free else ""


def run_undumped(argv: Sequence[str]) -> int:
    """Run ``argv`` to its end as it is; its exit status. Raises ConfigError for a program that cannot be started."""
    check_command(argv)
    status = _wait(_started(argv, None))
    return status if status >= 0 else 128 - status


def _started(argv: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen:
    try:
        return subprocess.Popen(list(argv), env=environment)
    except OSError as error:
        raise ConfigError(f"the program {argv[0][:200]!r} cannot be started: {error.strerror or error}") from None


def _programs() -> list[str]:
    names: set[str] = set()
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        with contextlib.suppress(OSError):
            names.update(os.listdir(folder or "."))
    return sorted(names)


def put_control(control: DumpControl, out: Path) -> None:
    """Where the hooks look for it; whole at any moment."""
    with replacing(out / CONTROL) as file:
        file.write(to_json(control).encode("utf-8"))


def environment(base: Mapping[str, str], control: DumpControl, out: Path) -> dict[str, str]:
    """The program's environment: ``base``, the hooks in front of PYTHONPATH, and the dump's root."""
    paths = [str(HOOK), *filter(None, [base.get("PYTHONPATH", "")])]
    seed = {} if control.seed is None else {"PYTHONHASHSEED": str(control.seed % 2**32)}
    return {**base, **seed, "PYTHONPATH": os.pathsep.join(paths), "SGSDUMP_CAPTURE": str(out.resolve())}


def _wait(
    program: subprocess.Popen, out: Path | None = None, live: Callable[[], DumpControl | None] | None = None
) -> int:
    """The program's return code. Ctrl-C reaches it from the terminal by itself; SIGTERM is passed on to it, and a
    second one kills it."""
    while True:
        try:
            return _ended(program, out, live)
        except Terminated:  # noqa: PERF203 - a signal may come again
            program.terminate()
            signal.signal(signal.SIGTERM, lambda *_: program.kill())  # it is ignored since the first one
        except KeyboardInterrupt:
            continue


def _ended(program: subprocess.Popen, out: Path | None, live: Callable[[], DumpControl | None] | None) -> int:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return program.wait(LOOK_EVERY if live else None)
        control = live() if live else None
        if control is not None and out is not None:
            put_control(control, out)


def notes_of(processes: Sequence[Process], status: int) -> list[str]:
    """What the user should know of a program that ended with this status, a sentence each."""
    if not processes:
        return [NOTHING]
    notes = [f"process {process.pid}: {text}" for process in processes for text in process.troubles]
    notes += [note for process in processes for note in _left_out(process)]
    notes += [process.stopped for process in processes if process.stopped]
    notes += [_cut_off(process, status) for process in processes if not process.complete]
    if not any(process.caught for process in processes):
        libraries = sorted({library for process in processes for library in process.libraries})
        why = "" if status else _why(processes)
        notes.append(f"{' and '.join(libraries)} was hooked, but ran nothing that is to be dumped{why}")
    return list(dict.fromkeys(notes))


def _left_out(process: Process) -> Iterator[str]:
    """A sentence for each reason why tensors of the program have no values in the dump."""
    for why, (count, first) in process.counts.unreadable.items():
        these = f"{count} inputs and outputs are" if count > 1 else "an input or output is"
        named = f"the first is {first}" if count > 1 else first
        yield f"process {process.pid}: {these} left out, {named}: {why}"
    if process.counts.unwritten:
        yield (
            f"process {process.pid}: {process.counts.unwritten} inputs and outputs were memory to which nothing had "
            "been written yet (torch.empty and its like): they are not dumped, and not compared"
        )


def _is_whole(process: Process, status: int) -> bool:
    """Whether a process that did not come to its end dumped all of what it ran, in a program that ended well."""
    return not status and not process.broken_off


def _cut_off(process: Process, status: int) -> str:
    if not _is_whole(process, status):
        return f"process {process.pid} did not come to its end: its dump is not complete"
    has_steps = process.kinds.get("step", 0) + process.kinds.get("ort_run", 0)
    when = "between two steps" if has_steps else "before its first step"
    return (
        f"process {process.pid} was ended {when} (killed, as a "
        "multiprocessing.Pool ends its workers, or turned into another program): the steps that it began are whole"
    )


def _why(processes: Sequence[Process]) -> str:
    """Why a program has no steps at all; "" where it has."""
    if any(process.begun != 0 for process in processes):
        return ""
    if any(library.startswith("torch") for process in processes for library in process.libraries):
        return (
            ": no module was called. What is computed outside a torch.nn.Module is not seen; put it into one's "
            "forward, or give its function to torch.compile"
        )
    return ": no session was run"
