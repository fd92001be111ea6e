"""Entry point of the hooks: every Python with this folder on its PYTHONPATH loads this file.

The file waits until the program imports torch or onnxruntime. It imports the standard library only, and until then
changes nothing in the program: this folder is removed from ``sys.path``, and a sitecustomize that this one shadows runs
as if it had been found first. Python 3.8 and later.
"""

import os
import sys

HOOK_FOLDER = os.path.dirname(os.path.abspath(__file__))
FOLDERS = [HOOK_FOLDER, os.path.join(HOOK_FOLDER, "for_torch")]
LIBRARIES = {"torch": "sgsdump_hook_torch", "onnxruntime": "sgsdump_hook_ort"}


class Waiting:
    """Finder that finds nothing itself; it adds a call of the hook to the loaders of ``LIBRARIES``."""

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
    """Install the hook of an imported library. Whatever goes wrong, the program continues without the hook."""
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
    """Run the sitecustomize that Python would have found without this folder, under its own name."""
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
        if library in sys.modules:  # a .pth file has imported it already
            waiting.names.discard(library)
            install(library, sys.modules[library])
    sys.meta_path.insert(0, waiting)
run_shadowed()
