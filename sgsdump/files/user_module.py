"""Import of a user's Python file or function, with its errors reported in one line with file and line number."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sgsdump.errors import InputError, MissingExtra, SgsdumpError
from sgsdump.files.escaping import quoted

_numbers = itertools.count(1)


def import_file(file: Path, what: str) -> ModuleType:
    """Import the file under a unique name; its folder is importable only during the import.

    ``what`` describes the file in messages. Raises InputError if the import fails, MissingExtra if cv2 is not
    installed.
    """
    name = f"sgsdump_{what}_{next(_numbers)}_{file.stem}"
    spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    wrote_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.modules[name] = module  # dataclasses and pickle inside the file look the module up
    sys.path.insert(0, folder)
    try:
        with blaming(file, what):
            spec.loader.exec_module(module)
    except SgsdumpError:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
        sys.dont_write_bytecode = wrote_bytecode
    return module


def import_function(text: str, option: str, what: str, parameters: str) -> tuple[Path, str, Callable[..., Any]]:
    """Import ``FILE.py:function`` and return the file, the function's name and the function.

    ``option`` and ``what`` describe the function in messages. Raises InputError if the file or function does not exist,
    or if the file fails.
    """
    path, colon, name = text.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier():
        raise InputError(f"{option} {text!r} is not FILE.py:function")
    if not file.is_file():
        raise InputError(f"there is no {what} file {file}")
    function = getattr(import_file(file, what), name, None)
    if not callable(function):
        raise InputError(f"{file} has no function {name}({parameters})")
    return file, name, function


@contextmanager
def blaming(file: Path, what: str, on: str = "") -> Iterator[None]:
    """Convert any exception of the user's code to InputError with file, line number and exception."""
    try:
        yield
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing == "cv2":
            raise MissingExtra(f"{file} needs OpenCV (cv2): pip install 'sgsdump[cv]'") from error
        if missing:
            raise InputError(f"{file} needs the Python package {missing}, which is not installed") from error
        line = _line(error, file)
        where = f"{file}:{line}" if line else str(file)
        text = " ".join(str(error).split())
        raise InputError(f"{where}: the {what} failed{on}: {type(error).__name__}: {quoted(text)}") from error


def _line(error: BaseException, file: Path) -> int | None:
    """Return the innermost line of the user's file in the traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else None
