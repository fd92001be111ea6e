"""Run of an unchanged program with the hooks on its PYTHONPATH, and the report of the run.

The program starts without a shell and inherits standard input, output and error. Its processes load
``hook/sitecustomize.py`` and write below the dump's root (see ``hook/sgsdump_session.py``). The tree of tensors is
built from these files at the same time. A configuration file may be edited meanwhile (``LiveConfig``).
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
    "no process of the program imported torch or onnxruntime with the hooks in place. python -I, -E, -S and env -i "
    "disable the hooks; programs in other languages cannot be hooked"
)


@dataclass(frozen=True)
class Captured:
    """Result of a program's run.

    status      exit status as in a shell: 128 + the signal's number if a signal ended the program.
    processes   processes that imported a hooked library.
    complete    True if every process ended normally, or was ended between two steps of a program that ended well, and
    no
                process stopped dumping before.
    notes       sentences for the user.
    """

    status: int
    processes: tuple[Process, ...]
    complete: bool
    notes: tuple[str, ...]

    @property
    def steps(self) -> int | None:
        """Largest number of steps that a process began; None if a process did not report it."""
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
    """Run ``argv`` to its end and dump below ``out``, an empty folder; ``feed`` replaces the program's inputs.

    ``live`` is called every half second while the program runs; a control that it returns replaces the last one.
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
    """Callable that returns the control of a configuration file if the file has changed, else None.

    ``read`` reads the control. If it fails, ``tell`` receives the reason and the last control stays in force.
    ``latest`` is the last control that was returned.
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
            self._tell(f"changed configuration ignored: {error}")
            return None
        return self.latest

    def _state(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino


def split_command(text: str) -> list[str]:
    """Split the text of ``--exec "…"`` into words. Raises ConfigError for redirection and other shell syntax."""
    try:
        words = shlex.split(text)
        shell = [word for word in _unquoted(text) if word in "<>|&;"]
    except ValueError as error:
        raise ConfigError(f"--exec {text[:80]!r} cannot be split into words: {error}") from None
    if not words:
        raise ConfigError("--exec is empty; give the program's command line, as in --exec 'python infer.py'")
    if shell:
        raise ConfigError(
            f"--exec {text[:80]!r}: {shell[0]!r} is shell syntax, but sgsdump exec starts no shell. "
            "Write the command into a shell script and use --exec 'bash script.sh'."
        )
    return words


def _unquoted(text: str) -> list[str]:
    """Return the characters of a command that are outside quotes."""
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
    """Raise ConfigError for a program that does not exist or cannot run."""
    if not argv:
        raise ConfigError("no program given; write it after --, as in sgsdump exec -- python infer.py")
    if shutil.which(argv[0]) is None:
        if Path(argv[0]).is_dir():
            raise ConfigError(f"program {argv[0][:200]!r} is a folder; give the path of a program file in this folder")
        near = difflib.get_close_matches(Path(argv[0]).name, _programs(), 3)
        hint = f"; similar names: {', '.join(near)}" if near else ""
        state = "cannot be executed" if Path(argv[0]).is_file() else "not found"
        raise ConfigError(f"program {argv[0][:200]!r} {state}{hint}")


def disk_full(folder: Path, control: DumpControl) -> str:
    """Return the message if the disk is too full to begin a dump, else ""."""
    free = shutil.disk_usage(folder).free
    return f"{DISK_FULL} {free >> 20}" if free < control.storage.min_free else ""


def run_undumped(argv: Sequence[str]) -> int:
    """Run ``argv`` without a dump; return its exit status. Raises ConfigError if it cannot be started."""
    check_command(argv)
    status = _wait(_started(argv, None))
    return status if status >= 0 else 128 - status


def _started(argv: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen:
    try:
        return subprocess.Popen(list(argv), env=environment)
    except OSError as error:
        raise ConfigError(f"program {argv[0][:200]!r} cannot be started: {error.strerror or error}") from None


def _programs() -> list[str]:
    names: set[str] = set()
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        with contextlib.suppress(OSError):
            names.update(os.listdir(folder or "."))
    return sorted(names)


def put_control(control: DumpControl, out: Path) -> None:
    """Write the control to the file that the hooks read; the file is whole at any moment."""
    with replacing(out / CONTROL) as file:
        file.write(to_json(control).encode("utf-8"))


def environment(base: Mapping[str, str], control: DumpControl, out: Path) -> dict[str, str]:
    """Return the program's environment: ``base`` with the hooks at the front of PYTHONPATH, and the dump's root."""
    paths = [str(HOOK), *filter(None, [base.get("PYTHONPATH", "")])]
    seed = {} if control.seed is None else {"PYTHONHASHSEED": str(control.seed % 2**32)}
    return {**base, **seed, "PYTHONPATH": os.pathsep.join(paths), "SGSDUMP_CAPTURE": str(out.resolve())}


def _wait(
    program: subprocess.Popen, out: Path | None = None, live: Callable[[], DumpControl | None] | None = None
) -> int:
    """Return the program's return code.

    Ctrl-C reaches the program from the terminal by itself. SIGTERM is passed on to it; a second SIGTERM kills it.
    """
    while True:
        try:
            return _ended(program, out, live)
        except Terminated:  # noqa: PERF203 - a signal may come again
            program.terminate()
            signal.signal(signal.SIGTERM, lambda *_: program.kill())  # ignored since the first SIGTERM
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
    """Return sentences for the user about a program that ended with this status."""
    if not processes:
        return [NOTHING]
    notes = [f"process {process.pid}: {text}" for process in processes for text in process.troubles]
    notes += [note for process in processes for note in _left_out(process)]
    notes += [process.stopped for process in processes if process.stopped]
    notes += [_cut_off(process, status) for process in processes if not process.complete]
    if not any(process.caught for process in processes):
        libraries = sorted({library for process in processes for library in process.libraries})
        why = "" if status else _why(processes)
        notes.append(f"{' and '.join(libraries)} was hooked, but ran nothing that is selected for the dump{why}")
    return list(dict.fromkeys(notes))


def _left_out(process: Process) -> Iterator[str]:
    """Yield a sentence for each reason why tensors have no values in the dump."""
    for why, (count, first) in process.counts.unreadable.items():
        these = f"{count} inputs and outputs are" if count > 1 else "an input or output is"
        named = f"the first is {first}" if count > 1 else first
        yield f"process {process.pid}: {these} not dumped ({named}). Reason: {why}"
    if process.counts.unwritten:
        yield (
            f"process {process.pid}: {process.counts.unwritten} inputs and outputs were uninitialised "
            "memory (torch.empty and similar). Their values are not dumped and not compared"
        )


def _is_whole(process: Process, status: int) -> bool:
    """Return whether a process without a normal end dumped everything that it ran, in a program that ended well."""
    return not status and not process.broken_off


def _cut_off(process: Process, status: int) -> str:
    if not _is_whole(process, status):
        return f"process {process.pid} did not end normally: its dump is incomplete"
    has_steps = process.kinds.get("step", 0) + process.kinds.get("ort_run", 0)
    when = "between two steps" if has_steps else "before its first step"
    return (
        f"process {process.pid} was killed (for example by multiprocessing.Pool) or replaced by "
        f"another program {when}. All steps that this process began were dumped completely"
    )


def _why(processes: Sequence[Process]) -> str:
    """Return the reason why a program has no steps at all, or ""."""
    if any(process.begun != 0 for process in processes):
        return ""
    if any(library.startswith("torch") for process in processes for library in process.libraries):
        return (
            ": no module was called. Computations outside a torch.nn.Module are not dumped; move them into the forward "
            "of a module, or compile their function with torch.compile"
        )
    return ": no session was run"
