"""A process's ``index.jsonl``: a line for each thing that it dumped, at once; the last one is {"complete": true}."""

import json
import os
import sys
import threading

from sgsdump_records import encode


class Index:
    """``failed(why)`` is called when nothing more can be written to it."""

    def __init__(self, folder, rank, libraries, failed):
        self._failed = failed
        self._folder = folder
        self._rank = rank
        self._libraries = libraries
        self._number = -1
        self._complete = False
        self._lock = threading.RLock()

    def begin(self, library, version):
        """A library that the program imported is hooked."""
        self._libraries.append((library, version))
        with self._lock:
            if self._number < 0:
                self._open()
            else:
                self._begin_line(library, version)

    def open(self):
        with self._lock:
            if self._number < 0:
                self._open()

    def line(self, **fields):
        self.say(encode(fields) + "\n")

    def complete(self, steps, **seen):
        """The last line: the process came to its end, after so many steps, dumped or not."""
        if self._number < 0 or self._complete:
            return
        self.line(event="steps", ran=steps)
        if seen:
            self.line(event="seen", **seen)
        self.line(complete=True)
        self._complete = True

    def say(self, text):
        """Lines as they are."""
        try:
            with self._lock:
                if self._number < 0:
                    self._open()
                data = text.encode("utf-8")
                while data:
                    data = data[os.write(self._number, data) :]
                self._complete = False
        except OSError as error:
            self._failed(f"index.jsonl: {error}")

    def _open(self):
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        path = os.path.join(self._folder, "index.jsonl")
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        for library, version in self._libraries:
            self._begin_line(library, version)

    def _begin_line(self, library, version):
        fields = {
            "event": "begin",
            "library": library,
            "version": version,
            "pid": os.getpid(),
            "rank": self._rank,
            "argv": [str(word)[:200] for word in getattr(sys, "argv", [])[:20]],
            "python": sys.version.split()[0],
        }
        os.write(self._number, (json.dumps(fields) + "\n").encode("utf-8"))
