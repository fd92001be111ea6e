"""``capture``: dump what torch computes in this process within a with-block.

The hooks are those of ``sgsdump exec`` (``hook/``), and so is the tree; they are taken off when the block ends.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.control import DumpControl
from sgsdump.capture.programs.feed import feed_of
from sgsdump.capture.programs.msit_tree import write_beside
from sgsdump.capture.programs.process_index import PROCESSES, processes_of
from sgsdump.capture.programs.program import CONTROL, HOOK, disk_full, notes_of, put_control
from sgsdump.capture.programs.tensor_tree import TensorTree, TreeThread
from sgsdump.errors import ConfigError, MissingExtra, OutputError
from sgsdump.files.atomic_write import make_folder

_FOLDERS = (str(HOOK), str(HOOK / "for_torch"))
_TYPES = ("model", "layer", "tensor")
_running: list[Path] = []


@contextmanager
def capture(
    folder: str | Path,
    control: DumpControl | None = None,
    *,
    statistics: bool = False,
    feed: str | Path | None = None,
) -> Iterator[Path]:
    """Dump what torch modules compute within a ``with`` block into ``folder``, as ``sgsdump exec`` does of a program.

    Each call of an outermost module is a round, counted from 0; inputs are taken before, outputs after each operator.
    The folder is a tree as ``exec`` writes it: ``sgsdump.open_dump("folder@step=0")``, ``sgsdump compare``, ``check``.

    folder      new, empty, or with an earlier capture, which is replaced.
    control     what is dumped; all of every round without it.
    statistics  max, min, mean and norm in the place of values.
    feed        a tree of the same program, whose recorded inputs are put in the place of those of each round; of the
                module alone that ``control`` names, where it names one.

    Yields the tree's path. Whatever the block raises goes on to the caller, and the tree has what ran before. Notes
    are warnings. Raises ConfigError for a folder of anything else, within another capture or ``sgsdump exec``, where no
    module ran, and where the program and what it is fed do not fit; MissingExtra without torch; OutputError when the
    disk refuses.
    """
    root = Path(folder)
    control = control or DumpControl()
    control = replace(control, content="stats") if statistics else control
    if os.environ.get("SGSDUMP_CAPTURE"):
        raise ConfigError("capture: this program runs under sgsdump exec, which dumps it already; use one of the two")
    if _running:
        raise ConfigError(f"capture: {_running[0]} is being captured; end that with-block first")
    _torch()
    fed = None if feed is None else feed_of(Path(feed), control.operators.module)
    _make_room(root)
    if full := disk_full(root, control):
        raise OutputError(full)
    put_control(control, root)
    if fed is not None:
        fed.write(root)
    _running.append(root)
    session, take_off = _hooked(root)
    tree = TensorTree(root)
    try:
        with TreeThread(tree):
            yield root
    finally:
        _running.remove(root)
        take_off()
        session.close()
        tree.finish()
        processes = processes_of(root)
        write_beside(root, processes, (*_TYPES, *(["stats"] if control.content == "stats" else [])))
    notes = notes_of(processes, 0)
    unfed = [] if fed is None else list(fed.unfed(processes, control))
    if unfed:
        raise ConfigError(unfed[0])
    if not any(process.caught for process in processes):
        shutil.rmtree(root, ignore_errors=True)
        raise ConfigError(f"nothing was captured into {root}: {'; '.join(notes)}")
    for note in notes:
        warnings.warn(note, stacklevel=3)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtra(f"capture needs torch ({error}); pip install 'sgsdump[torch]'") from None


def _make_room(root: Path) -> None:
    """An empty folder. Raises ConfigError, OutputError."""
    try:
        names = set(os.listdir(root)) if os.path.lexists(root) else set()
        if names and not {CONTROL, PROCESSES} <= names:
            raise ConfigError(f"{root} holds something else than a capture; name a new folder")
        if names:
            shutil.rmtree(root)
    except OSError as error:
        raise OutputError(f"cannot write into {root}: {error.strerror or error}") from None
    make_folder(root)


def _hooked(root: Path) -> tuple[Any, Any]:
    """The hooks' session, and the function that takes the hooks off."""
    torch = _torch()
    before = list(sys.path)
    sys.path[:0] = _FOLDERS
    try:
        session = importlib.import_module("sgsdump_session").Session(str(root.resolve()))
        session.begin("torch", str(torch.__version__))
        return session, importlib.import_module("sgsdump_hook_torch").install(torch, session)
    finally:
        sys.path[:] = before
