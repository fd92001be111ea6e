"""The user's own preprocess file: Python with ``get_image(path, ..., nchw=)`` or ``image_preprocess(path, norm=)``.

The SDK's convention: ``get_image(img_path, resizeH=224, ..., norm=True, ..., nchw=False)`` is called with ``nchw=True``
to feed an ONNX or Caffe model; older files have no ``nchw`` and return NHWC, as ``image_preprocess`` does.
``norm=False`` asks for the raw 0..255 values a fixed model takes.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from sgsdump.errors import InputError, MissingExtra, SgsdumpError
from sgsdump.layout import NCHW, NHWC
from sgsdump.sidecar import printable

FUNCTIONS = ("get_image", "image_preprocess")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Preprocess:
    """The user's function, which of ``norm`` and ``nchw`` it takes, and the layout its 4-D result has."""

    file: Path
    function: Callable[..., Any]
    takes_norm: bool
    takes_nchw: bool

    @property
    def layout(self) -> str:
        return NCHW if self.takes_nchw else NHWC

    def __call__(self, image: str, normalised: bool = True) -> np.ndarray:
        """The array the function makes of the image path. Raises InputError, also for anything it raises itself."""
        if not normalised and not self.takes_norm:
            raise InputError(
                f"{self.file}: {self.function.__name__} has no parameter norm, so the raw picture that a fixed model "
                f"takes cannot be asked for; add norm=True and skip the normalising when it is False"
            )
        keywords = {"norm": normalised} if self.takes_norm else {}
        if self.takes_nchw:
            keywords["nchw"] = True
        with _blaming(self.file, f" on {image}"):
            array = np.asarray(self.function(image, **keywords))
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.file}: {self.function.__name__} gave no array of numbers for {image}; does it return one?"
            )
        return array


def load(path: Path | str) -> Preprocess:
    """Import the file under a name of its own; its folder is importable only meanwhile.

    Raises InputError for a missing file, one without either function, or one that fails; MissingExtra when it wants
    cv2 and that is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no preprocess file {file}; -n takes the path of a Python file")
    module = _import(file)
    for name in FUNCTIONS:
        function = getattr(module, name, None)
        if callable(function):
            parameters = inspect.signature(function).parameters
            open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            takes_norm, takes_nchw = (open_ended or keyword in parameters for keyword in ("norm", "nchw"))
            return Preprocess(file, function, takes_norm, takes_nchw and name == "get_image")
    raise InputError(f"{file} has no function get_image(path, ..., nchw=) nor image_preprocess(path, norm=)")


def _import(file: Path) -> ModuleType:
    name = f"sgsdump_preprocess_{next(_numbers)}_{file.stem}"
    spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    wrote_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.modules[name] = module  # dataclasses and pickling inside the file look it up
    sys.path.insert(0, folder)
    try:
        with _blaming(file, ""):
            spec.loader.exec_module(module)
    except SgsdumpError:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
        sys.dont_write_bytecode = wrote_bytecode
    return module


@contextmanager
def _blaming(file: Path, on: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one line with its file, line number and exception."""
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
        raise InputError(f"{where}: the preprocess failed{on}: {type(error).__name__}: {printable(text)}") from error


def _line(error: BaseException, file: Path) -> int | None:
    """The innermost line of the user's file in the traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else None
