"""Writer of the two files of each round of a process, ``rounds/{rank}_{pid}/{step}.round`` and ``.values``.

``sgsdump/dumps/formats/rounds/round_file.py`` specifies the files. A frame of the index is handed to the system in one
piece, and a payload before the frame that names it: whatever ends the process, the index never names missing data. A
piece that cannot be written completely (full disk) is removed.
"""

import os
import struct
import threading
import zlib

from sgsdump_files import AT_ONCE, BINARY, Full, in_blocks
from sgsdump_records import encode

MAGIC, VALUES_MAGIC, VERSION = b"SGSROUND", b"SGSVALUE", 1
ALIGNED = 64
MOST_TEXT = 1 << 26
HEAD, FRAME, PAYLOAD = struct.Struct("<8sII"), struct.Struct("<II"), struct.Struct("<QI")
# Maximum number of rounds that run at the same time, in threads; beyond it the oldest is closed.
MOST_OPEN = 64


class Rounds:
    """Rounds of the process ``pid`` below ``root``; ``stop(why)`` is called if no more can be written."""

    def __init__(self, root, rank, pid, stop):
        self._root, self._pid = root, pid
        self.move(rank)
        self._stop = stop
        self._open = {}
        self._lock = threading.RLock()

    def move(self, rank):
        """Set the rank of the process, which determines the place of later rounds."""
        self._place = "{}_{}".format(rank, self._pid)
        self._folder = os.path.join(self._root, "rounds", self._place)

    def of(self, step, files, control):
        """Return the round of a step; create it at its first use."""
        found = self._open.get(step)
        if found is None:
            with self._lock:
                found = self._open.get(step)
                if found is None:
                    if len(self._open) >= MOST_OPEN:
                        self._open.pop(next(iter(self._open))).close()
                    paths = os.path.join(self._folder, str(step)), "{}/{}".format(self._place, step)
                    found = self._open[step] = Round(step, paths, (files, control), self._stop)
        return found

    def end(self, step):
        """End a round."""
        found = self._open.pop(step, None)
        if found is not None:
            found.end()

    def end_all(self):
        for step in list(self._open):
            self.end(step)


class Round:
    """One round; ``numbers`` counts its operators.

    tensors, files, operators, unwritten   counts of inputs and outputs, payloads, operators, and inputs and outputs in
                unwritten memory.
    unreadable  inputs and outputs without readable values, by reason: how many, and the first one.
    """

    def __init__(self, step, paths, room, stop):
        self.step = step
        self.numbers = 0
        self.tensors = self.files = self.operators = self.unwritten = 0
        self.unreadable = {}
        self._path, self._place = paths
        self._files, self._control = room
        self._stop = stop
        self._form = 0
        self._has_gap = False  # lines were lost, and later lines may refer to them
        self._index = self._values = None
        self._lock = threading.RLock()

    def place(self, text):
        """Return an operator's first line in the round, and add it to the round's form."""
        self._form = zlib.crc32(text.encode("utf-8"), self._form)
        return text

    def say(self, text):
        """Write lines unchanged."""
        if self._has_gap:
            return
        data = text.encode("utf-8")
        if len(data) > MOST_TEXT:
            lines = text.splitlines(True)
            if len(lines) > 1:
                self.say("".join(lines[: len(lines) // 2]))
                self.say("".join(lines[len(lines) // 2 :]))
            return
        try:
            with self._lock:
                if self._index is None:
                    self._index = self._opened(".round", HEAD.pack(MAGIC, VERSION, 0))
                self._index.add(self._control(), FRAME.pack(len(data), zlib.crc32(data)) + data)
        except (Full, OSError) as error:
            self._failed(".round", error)

    def store(self, payload):
        """Write the elements of a tensor; return their place, [file, offset, size]. Raises Full, OSError."""
        size = payload.nbytes
        head = PAYLOAD.pack(size, zlib.crc32(payload)).ljust(ALIGNED, b"\0")
        with self._lock:
            if self._values is None:
                first = HEAD.pack(VALUES_MAGIC, VERSION, 0).ljust(ALIGNED, b"\0")
                self._values = self._opened(".values", first)
            offset = self._values.size + ALIGNED
            self._values.add(self._control(), head, payload, b"\0" * (-size % ALIGNED))
            self.files += 1
        return '["{}", {}, {}]'.format(self._place, offset, size)

    def _opened(self, ending, head):
        return File(self._path + ending, head, self._control(), self._files)

    def left_out(self, why, which):
        count, first = self.unreadable.get(why, (0, which))
        if count or len(self.unreadable) < 100:
            self.unreadable[why] = count + 1, first

    def summary(self):
        counts = {"tensors": self.tensors, "files": self.files, "operators": self.operators}
        facts = {"unwritten": self.unwritten, "unreadable": self.unreadable, "form": self._form}
        return {"event": "round", "step": self.step, **counts, **facts}

    def end(self):
        """Write the last line."""
        if self._index is not None:
            self.say(encode(self.summary()) + "\n")
        self.close()

    def close(self):
        with self._lock:
            for file in (self._index, self._values):
                if file is not None:
                    file.close()

    def _failed(self, ending, error):
        self._has_gap = True
        self.close()
        why = str(error) if isinstance(error, Full) else error.strerror or error
        self._stop(why if isinstance(error, Full) else "rounds/{}{}: {}".format(self._place, ending, why))


class File:
    """A file that grows by whole pieces, starting with ``head``. Raises Full, OSError."""

    def __init__(self, path, head, control, files):
        self._files = files
        self._held = in_blocks(len(head))  # bytes on disk that have been counted
        files.take_room(control, self._held)
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o750, exist_ok=True)
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | BINARY, 0o640)
        self.size = 0
        try:
            self.add(control, head)
        except OSError:
            self.close()
            os.unlink(path)
            raise

    def add(self, control, *chunks):
        """Write a piece completely or not at all. Raises Full, OSError."""
        is_one = len(chunks) == 1
        size = len(chunks[0]) if is_one else sum(memoryview(chunk).nbytes for chunk in chunks)
        if self.size + size > self._held:
            more = in_blocks(self.size + size - self._held)
            if not control["max_bytes"]:  # without a size limit, reserve more at once
                more = max(more, AT_ONCE)
            self._files.take_room(control, more)
            self._held += more
        try:
            many = hasattr(os, "writev") and not is_one
            done = os.writev(self._number, chunks) if many else os.write(self._number, chunks[0])
            if done < size:
                self._finish(chunks, done)
        except OSError:
            os.ftruncate(self._number, self.size)
            raise
        self.size += size

    def _finish(self, chunks, done):
        for chunk in chunks:
            rest = memoryview(chunk).cast("B")
            skipped = min(done, rest.nbytes)
            rest, done = rest[skipped:], done - skipped
            while rest:
                rest = rest[os.write(self._number, rest) :]

    def close(self):
        if self._number >= 0:
            os.close(self._number)
            self._number = -1
