"""A platform that has no more than Windows: no ``fcntl``, no ``fork``, no reads at an offset, none of Unix's signals.

A plugin of pytest: ``pytest -p windows_like``. It takes the names away before ``sgsdump`` is imported, so what would be
an AttributeError or ImportError there is one here. It does not reach the processes that a test starts, and cannot show
what Windows does otherwise: a mapped file cannot be replaced there, and text files have other line ends.
"""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import sys
from contextlib import suppress
from importlib import import_module

# Other people's code is the same there as here, and asks the system when it is imported: so it is, before.
LIBRARIES = """concurrent.futures.process hypothesis jinja2 matplotlib.pyplot ml_dtypes multiprocessing.resource_tracker
    multiprocessing.spawn numpy onnx onnxruntime PIL.Image scipy subprocess threadpoolctl tqdm"""

ABSENT = {
    os: """copy_file_range fchmod fchown fork forkpty getpgid killpg lchown mkfifo mknod
        nice posix_fadvise posix_fallocate pread preadv pwrite pwritev readv sched_getaffinity
        sched_setaffinity sendfile setsid statvfs fstatvfs waitid writev O_CLOEXEC O_DIRECTORY O_NOFOLLOW
        O_NONBLOCK O_PATH""",
    signal: """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 SIG_BLOCK SIG_SETMASK
        SIG_UNBLOCK alarm pthread_kill pthread_sigmask setitimer sigpending sigtimedwait sigwait""",
    mmap: "MADV_DONTNEED MADV_SEQUENTIAL MADV_WILLNEED",
}
MODULES = "fcntl", "grp", "posix_ipc", "pwd", "resource", "termios"

for _name in LIBRARIES.split():
    with suppress(ImportError):
        import_module(_name)
for _module, _names in ABSENT.items():
    for _name in _names.split():
        if hasattr(_module, _name):
            delattr(_module, _name)
for _name in MODULES:
    sys.modules[_name] = None  # type: ignore[assignment]
# The standard library looked for these when it was imported.
shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
