"""The lines of ``processes/{pid}/index.jsonl``, which the hooks of ``sgsdump exec`` write.

They say once what an operator is and, in each step, what the values of a tensor are; here every input and output
becomes a line that has all of it. Source: docs/formats/ascend.md#trees-of-a-hooked-program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgsdump.files.bounded_read import open_file

MOST_BYTES = 1 << 20
# Lines of this many steps at most stand among one another: those of threads.
_OPEN_STEPS = 64
Line = Mapping[str, Any]


def lines_in(path: Path, step: int | None = None) -> Iterator[Line]:
    """The lines of an index that can be read; of a ``step`` only where one is given. Raises OSError."""
    lines = Lines(path.parent.name)
    own = f'{{"step": {step},'.encode()
    with open_file(path) as file:
        while data := file.readline(MOST_BYTES):
            if step is None or data.startswith(own) or not data.startswith(b'{"step": '):
                yield from lines.read(data)


class Lines:
    """The lines of the process ``pid``, given in order."""

    def __init__(self, pid: str) -> None:
        self._pid = pid
        self._places: dict[int, Line] = {}
        self._values: dict[int, dict[int, Line]] = {}

    def read(self, data: bytes) -> list[Line]:
        """What a line says, in full; nothing where it is damaged."""
        try:
            line = json.loads(data)
        except (ValueError, RecursionError):
            return []
        if not isinstance(line, Mapping):
            return []
        place = line.get("place")
        if isinstance(place, int):
            self._places[place] = {key: line[key] for key in line if key != "place"}
            return []
        if "at" not in line:
            return [line]
        at = line["at"]
        known = self._places.get(at) if isinstance(at, int) else None
        if known is None:
            return []
        return list(self._tensors(known, line)) if "values" in line else [{**known, **line}]

    def _tensors(self, place: Line, line: Line) -> Iterator[Line]:
        step, side, moment, values = (line.get(key) for key in ("step", "side", "moment", "values"))
        first = line.get("slot", 0)
        if not (isinstance(step, int) and isinstance(first, int) and isinstance(values, list)):
            return
        known = self._of_step(step)
        for slot, one in enumerate(values, first):
            value = known.get(one) if isinstance(one, int) else one
            if not isinstance(value, Mapping):
                continue
            number = value.get("value")
            if isinstance(number, int):
                known[number] = value
            yield self._full(place, {"step": step, "side": side, "slot": slot, "moment": moment, **value})

    def _full(self, place: Line, tensor: dict[str, Any]) -> Line:
        full = {**place, **tensor}
        if "file" not in full:
            folders = full.get("folders")
            inside = "/".join(map(str, folders)) if isinstance(folders, list) else ""
            full["file"] = (
                f"tensors/{full.get('device')}_{self._pid}/{full['step']}/{inside}/"
                f"{full['moment']}/{full['side']}tensor{full['slot']}.bin"
            )
        for kind in ("link", "same"):
            if kind in full and full[kind] == full["file"]:
                del full[kind]
        return full

    def _of_step(self, step: int) -> dict[int, Line]:
        known = self._values.get(step)
        if known is None:
            known = self._values[step] = {}
            if len(self._values) > _OPEN_STEPS:
                del self._values[next(iter(self._values))]
        return known
