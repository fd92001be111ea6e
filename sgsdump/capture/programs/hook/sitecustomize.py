"""Loaded by every Python that has this folder on its PYTHONPATH: waits until the program imports torch or onnxruntime.

Only the standard library is imported, and of the program nothing changes until then: this folder leaves ``sys.path``
again, and a sitecustomize that this one shadows is run as if it had been found first. Python 3.8 and later.
"""

import os
import sys

HOOK_FOLDER = os.path.dirname(os.path.abspath(__file__))
FOLDERS = [HOOK_FOLDER, os.path.join(HOOK_FOLDER, "for_torch")]
LIBRARIES = {"torch": "sgsdump_hook_torch", "onnxruntime": "sgsdump_hook_ort"}


class Waiting:
    """A finder that finds nothing itself: it adds to what the others find of ``LIBRARIES`` a call of the hook."""

    def __init__(self):
        self.names = set(LIBRARIES)
        self.looking = set()

    def find_spec(self, name, path=None, target=None):
        if name not in self.names or name in self.looking:
            return None
        self.looking.add(name)
        try:
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            self.looking.discard(name)
        if hasattr(spec.loader, "exec_module"):
            self._call_after(name, spec.loader)
        return spec

    def _call_after(self, name, loader):
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                del loader.exec_module
            except AttributeError:
                pass
            if name in self.names:
                self.names.discard(name)
                install(name, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass


def install(name, module):
    """Hook a library that was imported. Whatever goes wrong, the program goes on without it."""
    before = list(sys.path)
    sys.path[:0] = FOLDERS
    session = None
    try:
        import sgsdump_session

        session = sgsdump_session.session()
        if session is None:
            return
        session.begin(name, str(getattr(module, "__version__", "")))
        __import__(LIBRARIES[name]).install(module, session)
    except ImportError as error:
        if session is not None:
            session.trouble(f"{name} is not hooked: {error}")
    except Exception as error:
        if session is not None:
            session.trouble(f"{name} is not hooked: {type(error).__name__}: {error}")
    finally:
        sys.path[:] = before


def run_shadowed():
    """Run the sitecustomize that would have been found without this folder, under its own name."""
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.getcwd()) != HOOK_FOLDER]
if os.environ.get("SGSDUMP_CAPTURE"):
    waiting = Waiting()
    for library in LIBRARIES:
        if library in sys.modules:  # a .pth file was faster
            waiting.names.discard(library)
            install(library, sys.modules[library])
    sys.meta_path.insert(0, waiting)
run_shadowed()
