"""A platform that has no more than Windows: no ``fcntl``, no ``fork``, no reads at an offset, none of Unix's signals;
and that refuses what Windows refuses: to rename or delete a file that is open or mapped, and names such as ``a:b`` or
``aux.npy``.

A plugin of pytest: ``pytest -p windows_like``. It takes the names away before ``sgsdump`` is imported, so what would be
an AttributeError or ImportError there is one here. It refuses to sgsdump alone, not to the tests, nor in the processes
that these start; other line ends of text files it cannot show.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import mmap
import os
import re
import shutil
import signal
import sys
from collections import namedtuple
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# Other people's code is the same there as here, and asks the system when it is imported: so it is, before.
LIBRARIES = """concurrent.futures.process distributed hypothesis jinja2 matplotlib.pyplot ml_dtypes
    multiprocessing.popen_fork multiprocessing.resource_tracker multiprocessing.spawn numpy onnx onnxruntime PIL.Image
    scipy subprocess threadpoolctl tqdm"""

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
# Where it is installed, be it from this checkout or elsewhere.
PACKAGE = str(Path(str(find_spec("sgsdump").origin)).parent) + os.sep  # type: ignore[union-attr]
RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9])(\..*)?", re.IGNORECASE)
_usage = namedtuple("usage", "total used free")
_statvfs, _scandir = os.statvfs, os.scandir


def _disk_usage(path: object) -> _usage:
    status = _statvfs(path)  # type: ignore[call-overload]
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return _usage(total, total - free, free)


def _is_asked_by_sgsdump() -> bool:
    """Whether sgsdump itself asks, be it by pathlib or shutil."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "pathlib",
        "shutil",
        __name__,
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE)


def _open_paths() -> set[str]:
    """Of the files that this process has open or mapped."""
    found = set()
    for descriptor in _scandir("/proc/self/fd"):
        with suppress(OSError):
            found.add(os.readlink(descriptor))  # noqa: PTH115
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        found.update(line[line.index("/") :].rstrip("\n") for line in file if "/" in line)
    return found


def _check_free(path: str) -> None:
    """Raises PermissionError for a file that is open or mapped, or a folder with such a file in it."""
    whole, used = str(Path(path).parent.resolve() / Path(path).name), _open_paths()
    if whole in used or (Path(whole).is_dir() and any(each.startswith(whole + os.sep) for each in used)):
        raise PermissionError(errno.EACCES, "open or mapped, which Windows refuses", whole)


def _check_name(path: object) -> None:
    """Raises OSError for a name that no file may have there."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    name = Path(os.fsdecode(path)).name
    if re.search(r'[<>:"|?*\\\x00-\x1f]', name) or (name not in (".", "..") and name.endswith((".", " "))):
        raise OSError(errno.EINVAL, "a name that Windows refuses", name)
    if RESERVED.fullmatch(name):
        raise OSError(errno.EINVAL, "a device of Windows", name)


def _refusing(module: ModuleType, function: str, free: int, named: int) -> None:
    """Let the first ``free`` arguments be checked for open files, and the argument at ``named`` for its name."""
    real = getattr(module, function)

    def refused(*args, **kwargs):
        if _is_asked_by_sgsdump():
            for path in args[:free]:
                _check_free(path)
            if len(args) > named:
                _check_name(args[named])
        return real(*args, **kwargs)

    refused.__module__, refused.__qualname__ = module.__name__, function  # for pickle
    setattr(module, function, refused)


def _opening(module: object) -> None:
    real = module.open  # type: ignore[attr-defined]

    def refused(file, mode="r", *args, **kwargs):
        if set(str(mode)) & set("wax") and _is_asked_by_sgsdump():
            _check_name(file)
        return real(file, mode, *args, **kwargs)

    module.open = refused  # type: ignore[attr-defined]


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
shutil._USE_CP_SENDFILE = shutil._use_fd_functions = False  # type: ignore[attr-defined]
shutil.disk_usage = _disk_usage  # type: ignore[assignment]
sys.modules["multiprocessing.resource_tracker"]._HAVE_SIGMASK = False  # type: ignore[attr-defined]


def _end(process: Any) -> None:
    """As Windows ends a process: at once, and without those that it started."""
    if process.poll() is None:
        os.kill(process.pid, 9)


for _name in ("subprocess", "multiprocessing.popen_fork"):
    sys.modules[_name].Popen.kill = sys.modules[_name].Popen.terminate = _end  # type: ignore[attr-defined]
if Path("/proc/self/fd").is_dir():
    for _function, _free in (("replace", 2), ("rename", 2), ("unlink", 1), ("remove", 1), ("rmdir", 1)):
        _refusing(os, _function, _free, 1)
_refusing(os, "mkdir", 0, 0)
_opened, os.O_BINARY = os.open, 0x8000  # type: ignore[attr-defined]


def _open_number(path, flags, *args, **kwargs):
    writes = flags & (os.O_WRONLY | os.O_RDWR) and path != os.devnull
    by_sgsdump = sys._getframe(1).f_code.co_filename.startswith(PACKAGE)  # pathlib's touch() writes nothing
    if writes and by_sgsdump and not flags & os.O_BINARY:  # type: ignore[attr-defined]
        raise OSError(errno.EINVAL, "opened as text, which Windows writes with other line ends", path)
    return _opened(path, flags, *args, **kwargs)


os.open = _open_number
for _module in (io, builtins):
    _opening(_module)
_function_of = ctypes.CDLL.__getattr__


def _windows_function(library: ctypes.CDLL, name: str) -> object:
    if name in ("malloc_trim", "renameat2"):
        raise AttributeError(name)
    return _function_of(library, name)


ctypes.CDLL.__getattr__ = _windows_function  # type: ignore[method-assign]
# Which characters a name may not have, and that case does not count, is asked of the system once.
_system = os.name, sys.platform
os.name, sys.platform = "nt", "win32"
import_module("sgsdump.files.names")
os.name, sys.platform = _system
