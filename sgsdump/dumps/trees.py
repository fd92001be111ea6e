"""Functions that find the format of a path and, in a tree of runs, the selected run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sgsdump.dumps.format import HEAD_BYTES
from sgsdump.dumps.formats import FORMATS, OF_FILES, OWNERS
from sgsdump.dumps.runs import Choice, Run, chosen, how_to_choose, joined, one_of, split_choice
from sgsdump.errors import ConfigError, FormatError, SgsdumpError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.plugins import leave_out

TOPOLOGY = "model/*/*.json"
ANY_FILES = ("folder", "tensor_file")
_HOOKED = "msit_dump_*/control.json"


def located(path: Path, choice: Choice) -> tuple[Any, Path]:
    """Return the format of the selected dump, and the file or folder to read. Raises FormatError or ConfigError."""
    tree, choice = _split(path, choice)
    format = format_of(tree)
    runs = _runs(tree, format, [])
    if choice and not runs:
        raise ConfigError(f"{tree} is a single dump, not a tree of runs; {choice} cannot be selected in it")
    if not choice and len(runs) < 2:
        return next((FORMATS[name] for name in OWNERS if FORMATS[name].owns(tree)), format), tree
    return format, tree / one_of(tree, chosen(tree, runs, choice), choice).place


def list_runs(
    path: str | Path, step: int | None = None, rank: int | None = None, notes: list[str] | None = None
) -> list[Run]:
    """Return the runs of a tree that match a selection.

    Parameters
    ----------
    path : str or Path
        A tree of runs, optionally with a selection: ``tree@step=3,rank=0,graph=NAME``.
    step : int, optional
        Step (iteration, token) of the runs.
    rank : int, optional
        Rank of the runs.
    notes : list of str, optional
        List that receives a message for each skipped file.

    Returns
    -------
    list of Run
        Runs sorted by step, rank, graph and folder. The list is empty if the path is a dump without runs.

    Raises
    ------
    FormatError
        If the path is missing or damaged, or if its format is unknown.
    ConfigError
        If the tree has no matching run, or if the selection is invalid.
    """
    tree, choice = _split(Path(path), Choice(step, rank))
    return chosen(tree, _runs(tree, format_of(tree), [] if notes is None else notes), choice)


def tree_of(path: Path) -> Path:
    """Return the path without its run selection (``@step=3``). Raises ConfigError for an invalid selection."""
    return _split(path, Choice())[0]


def how_to_choose_of(path: Path, runs: Sequence[Run], step: int | None = None, rank: int | None = None) -> str:
    """Return advice on how to select one of the runs in the tree at ``path``."""
    return how_to_choose(*_split(path, Choice(step, rank), enter=False), runs)


def _split(path: Path, choice: Choice, enter: bool = True) -> tuple[Path, Choice]:
    with reading(path):
        exists = path.exists()
    if not exists:
        path, suffix = split_choice(path)
        choice = joined(path, suffix, choice)
    return _entered(path) if enter else path, choice


def _entered(path: Path) -> Path:
    """Return the only tree in an output folder of ``sgsdump exec``; for any other path, return ``path`` itself."""
    trees = list(islice(path.glob(_HOOKED), 2)) if path.is_dir() else []
    return trees[0].parent if len(trees) == 1 else path


def _runs(tree: Path, format: Any, notes: list[str]) -> Sequence[Run]:
    return format.runs(tree, notes) if format.runs is not None and tree.is_dir() else ()


def format_of(path: Path) -> Any:
    """Return the format that recognises the path. Raises FormatError if no format recognises the path."""
    head, own, is_folder = _head(path), FORMATS.own, path.is_dir()
    for name in own:
        if not (is_folder and name in OF_FILES) and own[name].recognises(path, head):
            return own[name]
    for name in FORMATS:
        if name not in own and _recognised(name, FORMATS[name], path, head):
            return FORMATS[name]
    if not head and path.is_file():
        raise FormatError(f"{path} is empty. Check that the run finished and that dumpTensor is on")
    if any(path.glob(TOPOLOGY)):
        raise FormatError(
            f"{path} has no tensors, only the topology of a program (dumped with --type without tensor). List it with: "
            f"sgsdump show --operators {path}"
        )
    several = sorted(path.glob(_HOOKED)) if path.is_dir() else []
    if several:
        raise FormatError(f"{path} holds {len(several)} dumps. Name one dump; the latest is {several[-1].parent}")
    from sgsdump.dumps.refusal import refusal

    raise refusal(path, head)


def known_format(path: Path) -> str:
    """Return the name of the format that recognises a path; "" if no format does. ``TREE@step=1`` is a path too."""
    try:
        return str(format_of(tree_of(path)).name)
    except SgsdumpError:
        return ""


def is_known(path: Path) -> bool:
    """Return whether a format other than ``ANY_FILES`` recognises a path.

    If the user gives a reader and this function returns False, the user's reader reads the path. ``ANY_FILES`` lists
    two formats: folders with one tensor per file, and files whose names contain type and shape.
    """
    return known_format(path) not in ("", *ANY_FILES)


def _recognised(name: str, format: Any, path: Path, head: bytes) -> bool:
    """Return whether a plug-in's reader recognises a file. If the reader raises an exception, warn and return False."""
    try:
        return bool(format.recognises(path, head))
    except Exception as error:
        leave_out(f"plug-in's {name!r} of formats", error)
        return False


def _head(path: Path) -> bytes:
    if path.is_dir():
        return b""
    if not path.exists():
        raise FormatError(f"no such file: {path}")
    if not path.is_file():
        raise FormatError(f"cannot read {path}: it is a device or a pipe; name a file or a folder")
    with reading(path, SgsdumpError), open_file(path) as file:
        return file.read(HEAD_BYTES)
