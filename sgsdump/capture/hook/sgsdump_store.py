"""Values go to files, each once; with ``links`` other than "none" those that are equal to earlier ones, too."""

import errno
import hashlib
import threading
from collections import OrderedDict

from sgsdump_files import Full
from sgsdump_header import header_of

MOST_REMEMBERED = 50000


class Store:
    """``stop(why)`` is called when nothing more can be stored."""

    def __init__(self, stop):
        self._stop = stop
        self._by_digest = OrderedDict()

    def begin(self, files):
        """Use the files of this process; once more in one that was forked, which knows what the first has stored."""
        self._files = files
        self._lock = threading.Lock()

    def keep(self, control, path, values, data):
        """Let values have a file, which stands at ``path`` in the tree first. Returns why they have none, "" where that
        is told already, None where they have."""
        try:
            data = data() if callable(data) else data
            if data is None:
                return "its values cannot be had"
            payload = memoryview(data)
            if not payload.nbytes:
                return "it has no elements"
            payload = payload.cast("B")
            header = header_of(values.dtype, values.shape, payload.nbytes)
            digest = _digest(header, payload) if control["links"] != "none" else None
            known = None if digest is None else self._by_digest.get(digest)
            if known is None:
                known = self._files.store(control, header, payload), path
                if digest is not None:
                    self._remember(digest, known)
            values.stored, values.first = known
            return None
        except Full as full:
            self._stop(str(full))
        except OSError as error:
            if error.errno == errno.EFAULT:
                return "its memory cannot be read"
            self._stop(f"{path}: {error.strerror or error}")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _remember(self, digest, known):
        with self._lock:
            self._by_digest[digest] = known
            if len(self._by_digest) > MOST_REMEMBERED:
                self._by_digest.popitem(last=False)


def _digest(header, payload):
    state = hashlib.blake2b(header, digest_size=16)
    state.update(payload)
    return state.digest()
