"""Recorded inputs of a reference that replace a program's inputs while it runs (``sgsdump exec --feed TREE``).

``feed.json`` in the dump's root tells the hook (``hook/for_torch/sgsdump_torch_feed.py``) where each tensor lies in the
reference's files::

    {"module": "",
     "ranks": {"0": {"3": {"": [{"dtype": "int64", "shape": [1, 4], "file": …, "offset": …, "size": …}]}}}}

Keys are rank, round and operator name: "" for the inputs of the outermost module, else the module's path (``layers.1``;
``layers.1_1`` for its second call).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.capture.programs.control import DumpControl
from sgsdump.capture.programs.process_index import Process, round_lines
from sgsdump.dumps.formats.rounds.round_file import INDEX_ENDING, Payload, values_file
from sgsdump.dumps.formats.shared.hooked import Line
from sgsdump.dumps.trees import list_runs, tree_of
from sgsdump.errors import ConfigError
from sgsdump.files.atomic_write import replacing

NAME, UNFIT = "feed.json", "unfit"
_AGAIN = "dump it again with sgsdump exec -er all, with tensors and operators"
_NEAR = 3

Fed = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Feed:
    """Recorded inputs; ``ranks`` maps rank -> round -> operator -> tensors."""

    reference: Path
    module: str
    ranks: Mapping[int, Mapping[int, Fed]]

    def write(self, root: Path) -> None:
        """Write the file that the hook reads."""
        with replacing(root / NAME) as file:
            file.write(json.dumps({"module": self.module, "ranks": self.ranks}).encode("ascii"))

    def unfed(self, processes: Sequence[Process], control: DumpControl) -> Iterator[str]:
        """Yield a sentence for each process that did not match the reference or ran fewer rounds."""
        for process in processes:
            if process.kinds.get(UNFIT):
                yield f"--feed {self.reference}: process {process.pid}: {process.stopped}"
            elif process.begun:
                steps = {step for rounds in self.ranks.values() for step in rounds if step in control.steps}
                missed = sorted(step for step in steps if step >= process.begun)
                if missed:
                    yield (
                        f"--feed {self.reference}: process {process.pid} ran {process.begun} rounds "
                        f"(calls of the outermost module), so rounds {missed[0]} to {missed[-1]} of "
                        "the reference were not used"
                    )


def feed_of(reference: Path, module: str = "") -> Feed:
    """Return the recorded inputs of the outermost module, or of one ``module`` by its path, for all rounds of a tree.

    Raises ConfigError if the tree has no rounds, no values of the inputs, or no such module.
    """
    tree = tree_of(reference)
    runs = [run for run in list_runs(reference) if run.place.endswith(INDEX_ENDING)]
    if not runs:
        raise ConfigError(
            f"--feed {reference}: the dump contains no round (call of the outermost module) of a program; {_AGAIN}"
        )
    ranks: dict[int, dict[int, Fed]] = {}
    names: set[str] = set()
    for run in runs:
        of_rank, step = ranks.setdefault(run.rank or 0, {}), run.step or 0
        if step in of_rank:
            raise ConfigError(
                f"--feed {reference}: several processes have rank {run.rank}; use the dump of a single program"
            )
        fed = _Round(tree / run.place)
        names |= fed.names
        of_rank[step] = fed.of_module(module) if module else fed.of_network()
    if module and not any(fed for rounds in ranks.values() for fed in rounds.values()):
        near = difflib.get_close_matches(module, names, _NEAR, cutoff=0.5)
        hint = f"; similar names: {', '.join(near)}" if near else ""
        raise ConfigError(f"--feed {reference}: no module {module!r} ran{hint}")
    return Feed(reference, module, ranks)


class _Round:
    """One round of the reference: values by number, and the inputs of its modules."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inputs: list[int] | None = None
        self._values: dict[int, Line] = {}
        self._modules: dict[str, dict[int, Line]] = {}
        self._paths: dict[str, str] = {}
        for line in round_lines(path):
            if line.get("event") == "step" and isinstance(line.get("inputs"), list):
                self._inputs = line["inputs"]
            elif "side" in line:
                self._add(line)

    @property
    def names(self) -> set[str]:
        return set(self._paths.values())

    def _add(self, line: Line) -> None:
        number = line.get("value")
        if isinstance(number, int) and ("payload" in line or number not in self._values):
            self._values[number] = line
        if line["side"] == "in" and "." not in str(line.get("type", ".")) and line.get("moment") == "before":
            name = str(line.get("op"))
            self._modules.setdefault(name, {})[int(line.get("slot") or 0)] = line
            self._paths[name] = str(line.get("module")).partition(".")[2]

    def of_network(self) -> Fed:
        """Return the inputs of the outermost module. Raises ConfigError if the tree does not hold them."""
        if self._inputs is None:
            raise ConfigError(f"{self._path}: the inputs of the program were not recorded; {_AGAIN}")
        return {"": [self._tensor(self._values.get(number)) for number in self._inputs]}

    def of_module(self, module: str) -> Fed:
        """Return the inputs of each call of a module."""
        calls = [name for name, path in self._paths.items() if path == module]
        return {name: [self._tensor(line) for _, line in sorted(self._modules[name].items())] for name in calls}

    def _tensor(self, line: Line | None) -> dict[str, Any]:
        """Return the place of an input's values. Raises ConfigError if they are missing."""
        match None if line is None else line.get("payload"):
            case [str(file), int(offset), int(size)] if line is not None and offset >= 0 and size >= 0:
                source = values_file(self._path.parents[1], file)
                why = source if isinstance(source, str) else Payload(source, offset, size).missing()
                if not isinstance(source, str) and not why:
                    place = {"file": str(source.path), "offset": offset, "size": size}
                    return {"dtype": line.get("dtype"), "shape": line.get("shape"), **place}
            case _:
                why = "an input was not dumped with its values"
        raise ConfigError(f"{self._path}: the inputs cannot be used: {why}; {_AGAIN}")
