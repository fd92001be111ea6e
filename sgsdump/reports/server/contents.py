"""What the local server sends: the page, the state of the comparison, and planes of tensors.

Values are read from the memory-mapped dumps when the page asks for a layer; one request reads at a time, so that memory
stays bounded.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.errors import SgsdumpError
from sgsdump.progress import Advance
from sgsdump.reports.report import Report
from sgsdump.reports.tensors.planes import PairPlanes, pair_planes
from sgsdump.reports.tensors.views import bars_of, errors_of, largest_of_parts

MOST_SIDE = 1024  # points of a plane in each direction
MOST_VECTOR = 1 << 16


@dataclass(frozen=True)
class Sent:
    """Answer to a request: content type, bytes, and further headers."""

    kind: str
    data: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Shown:
    """A page, and the pair of each of its layers; ``retried`` are places whose layouts were found by their values."""

    report: Report
    pairs: Sequence[Pair | None]
    retried: frozenset[int] = frozenset()


class Page:
    """Contents of a finished page, which has all its values."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def start(self) -> None:
        """Do nothing, because nothing is compared."""

    def stop(self) -> None:
        """Do nothing, because nothing is compared."""

    def answer(self, path: str) -> Sent | None:
        """Return the page for the empty path."""
        return None if path else Sent("text/html; charset=utf-8", self._data, {})


class Contents:
    """Contents of the server.

    Parameters
    ----------
    shown : Shown
        First page.
    compare : callable, optional
        Returns the page of the finished comparison; it runs in a thread and gets the progress. None if the first page
        is the last one.
    single : bool
        Whether both sides of each pair are the same tensor of a single dump.
    """

    def __init__(self, shown: Shown, compare: Callable[[_Counter], Shown] | None = None, single: bool = False) -> None:
        self._shown, self._single = shown, single
        self._reading = threading.Lock()
        self._page: bytes | None = None
        self._failure = ""
        self._counter = _Counter()
        self._is_running, self._is_compared = compare is not None, False
        if compare is not None:
            self._thread = threading.Thread(target=self._run, args=(compare,), daemon=True)

    def stop(self) -> None:
        """End the comparison after the layers that it reads now."""
        self._counter.is_stopped = True

    def start(self) -> None:
        """Start the comparison, if there is one."""
        if self._is_running:
            self._thread.start()

    def _run(self, compare: Callable[[_Counter], Shown]) -> None:
        try:
            shown = compare(self._counter)
            with self._reading:
                self._shown, self._page, self._is_compared = shown, None, True
        except SgsdumpError as error:
            self._failure = str(error)
        except _Stopped:
            pass
        finally:
            self._is_running = False

    def answer(self, path: str) -> Sent | None:
        """Return what belongs to a path below the token; None if nothing does."""
        match path.split("/"):
            case [""]:
                return self._page_sent()
            case ["state"]:
                return _json(self.state())
            case ["tensor", place] if (planes := self._planes(place)) is not None:
                return self._tensor(planes)
            case ["plane", place, number] if (planes := self._planes(place)) is not None:
                at = _number(number, planes.count)
                return None if at is None else self._plane(planes, at)
        return None

    def state(self) -> dict[str, Any]:
        """Return whether the comparison runs, and how far it is."""
        counter = self._counter
        return {
            "running": self._is_running,
            "isCompared": self._is_compared,
            "done": counter.done,
            "of": counter.of,
            "failure": self._failure,
        }

    def _page_sent(self) -> Sent:
        from sgsdump.reports.html.document import render

        with self._reading:
            if self._page is None:
                self._page = render(self._shown.report, served=True).encode()
            return Sent("text/html; charset=utf-8", self._page, {})

    def _planes(self, place: str) -> PairPlanes | None:
        shown = self._shown
        at = _number(place, len(shown.pairs))
        pair = None if at is None else shown.pairs[at]
        return None if pair is None or at is None else pair_planes(pair, at in shown.retried)

    def _tensor(self, planes: PairPlanes) -> Sent:
        with self._reading:
            errors = np.zeros(planes.count) if self._single else errors_of(planes)
        order = np.argsort(-np.where(np.isfinite(errors), errors, np.inf), kind="stable")
        return _json(
            {
                "noun": planes.noun,
                "vector": planes.is_vector,
                "single": self._single,
                "count": planes.count,
                "size": list(planes.size),
                "numbers": order.tolist(),
                "errors": [error if math.isfinite(error) else str(error) for error in bars_of(errors).tolist()],
            }
        )

    def _plane(self, planes: PairPlanes, number: int) -> Sent:
        with self._reading, np.errstate(all="ignore"):
            sample, benchmark = (side.astype("<f4") for side in planes.plane(number))
        with np.errstate(all="ignore"):
            size = np.abs(sample - benchmark)
        size[np.isnan(size)] = np.inf
        row, column = divmod(int(size.argmax()), size.shape[1])
        most = (1, MOST_VECTOR) if planes.is_vector else (MOST_SIDE, MOST_SIDE)
        grid = [math.ceil(length / math.ceil(length / limit)) for length, limit in zip(planes.size, most)]
        values = np.stack([sample, benchmark])
        if tuple(grid) != planes.size:
            at = largest_of_parts(size, (grid[0], grid[1]))
            values = np.stack([side.ravel()[at] for side in values])
        headers = {"X-Grid": f"{grid[0]} {grid[1]}", "X-Worst": f"{row} {column}"}
        return Sent("application/octet-stream", values.astype("<f4", copy=False).tobytes(), headers)


class _Stopped(Exception):
    """The server ends before the comparison does."""


class _Counter:
    """Progress of the comparison, for the page."""

    done = 0
    of = 0
    is_stopped = False

    @contextmanager
    def _counted(self, total: int | None) -> Any:
        self.done, self.of = 0, total or 0

        def advance(done: int, total: int | None = None) -> None:
            self.done = done
            if self.is_stopped:
                raise _Stopped

        yield advance

    def bar(self, what: str, unit: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Count the work in the ``with`` block."""
        return self._counted(total)

    def say(self, line: str) -> None:
        """Ignore a message; the report repeats it."""


def _number(text: str, count: int) -> int | None:
    """Return a number below ``count``; None for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        return None
    number = int(text)
    return number if number < count else None


def _json(data: Any) -> Sent:
    return Sent("application/json", json.dumps(data, allow_nan=False).encode(), {})
