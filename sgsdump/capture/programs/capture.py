"""The public function ``capture``, which dumps the tensors that torch computes in a ``with`` block of this process.

``capture`` uses the same hooks (``hook/``) and writes the same tree as ``sgsdump exec``. ``capture`` removes the
hooks at the end of the block.
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
    """Write to ``folder`` the tensors that torch modules compute in a ``with`` block.

    The result is the same tree that ``sgsdump exec`` writes.

    Parameters
    ----------
    folder : str or Path
        A new or empty folder, or the folder of an earlier capture, which is replaced.
    control : DumpControl, optional
        Selection of the tensors to dump. Default: all tensors of every round.
    statistics : bool, default False
        If True, store maximum, minimum, mean and L2 norm instead of values.
    feed : str or Path, optional
        A tree that an earlier run of the same program dumped. In each round, the inputs recorded in this tree replace
        the program's inputs. If ``control`` names a module, only the inputs of this module are replaced.

    Yields
    ------
    Path
        The tree.

    Raises
    ------
    ConfigError
        If the folder holds other files, if another capture or ``sgsdump exec`` is active, if no module ran, or if the
        recorded inputs do not match the program.
    MissingExtra
        If torch is not installed.
    OutputError
        If the folder cannot be written, or the disk is full.

    Notes
    -----
    Each call of an outermost module is a round, counted from 0. Inputs are dumped before an operator runs, outputs
    afterwards. If the block raises an exception, the caller gets this exception, and the tree holds all tensors that
    were dumped before the exception. Notes about the capture, such as tensors that could not be dumped, are issued as
    Python warnings.

    Examples
    --------
    ::

        import sgsdump

        with sgsdump.capture("mine") as tree:
            model(x)
        dump = sgsdump.open_dump("mine@step=0")
        result = sgsdump.compare("mine", "golden")
    """
    root = Path(folder)
    control = control or DumpControl()
    control = replace(control, content="stats") if statistics else control
    if os.environ.get("SGSDUMP_CAPTURE"):
        raise ConfigError(
            "capture: this program runs under sgsdump exec, which already dumps the program; use either "
            "capture or sgsdump exec"
        )
    if _running:
        raise ConfigError(f"capture: a capture into {_running[0]} is active; end that with-block first")
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
    """Create an empty folder. Raises ConfigError or OutputError."""
    try:
        names = set(os.listdir(root)) if os.path.lexists(root) else set()
        if names and not {CONTROL, PROCESSES} <= names:
            raise ConfigError(f"{root}: the folder holds files that do not belong to a capture; use a new folder")
        if names:
            shutil.rmtree(root)
    except OSError as error:
        raise OutputError(f"cannot write into {root}: {error.strerror or error}") from None
    make_folder(root)


def _hooked(root: Path) -> tuple[Any, Any]:
    """Install the hooks. Return the session to which the hooks write, and the function that removes the hooks."""
    torch = _torch()
    before = list(sys.path)
    sys.path[:0] = _FOLDERS
    try:
        session = importlib.import_module("sgsdump_session").Session(str(root.resolve()))
        session.begin("torch", str(torch.__version__))
        return session, importlib.import_module("sgsdump_hook_torch").install(torch, session)
    finally:
        sys.path[:] = before
