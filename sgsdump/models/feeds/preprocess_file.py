"""Loader of the user's preprocess file: ``get_image(path, ..., nchw=)`` or ``image_preprocess(path, norm=)``.

The SDK's convention is ``get_image(img_path, resizeH=224, ..., norm=True, ..., nchw=False)``, called with ``nchw=True``
for an ONNX or Caffe model. Older files have no ``nchw`` and return NHWC, as does ``image_preprocess``. ``norm=False``
returns the raw 0..255 values of a fixed model; without this parameter, mean and std give the raw values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.errors import InputError
from sgsdump.files.user_module import blaming, import_file
from sgsdump.tensors.dtypes import as_array
from sgsdump.tensors.types import NCHW, NHWC

FUNCTIONS = ("get_image", "image_preprocess")


@dataclass(frozen=True)
class Preprocess:
    """The user's function, whether it accepts ``norm`` and ``nchw``, and the layout of its 4-D result."""

    file: Path
    function: Callable[..., Any]
    takes_norm: bool
    takes_nchw: bool

    @property
    def layout(self) -> str:
        return NCHW if self.takes_nchw else NHWC

    def __call__(self, image: str, normalised: bool = True) -> np.ndarray:
        """Return the function's array for an image path. Raises InputError, also for any error of the function."""
        if not normalised and not self.takes_norm:
            raise InputError(
                f"{self.file}: {self.function.__name__} has no parameter norm and cannot return the raw image for a "
                f"fixed model; add the parameter norm=True, and skip normalisation if norm is False"
            )
        keywords = {"norm": normalised} if self.takes_norm else {}
        if self.takes_nchw:
            keywords["nchw"] = True
        with blaming(self.file, "preprocess", f" on {image}"):
            array = as_array(self.function(image, **keywords))
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.file}: {self.function.__name__} returned no array of numbers for {image}; add "
                "a return statement"
            )
        return array


def load_preprocess(path: Path | str) -> Preprocess:
    """Import a preprocess file under a unique name; its folder is importable only during the import.

    ``net`` may stand for ``net.py``: the SDK's tools accept the name of a preset. Raises InputError for a missing file,
    a file without either function, or a file that fails. Raises MissingExtra if cv2 is needed and not installed.
    """
    file = Path(path)
    if not file.is_file() and not file.suffix:
        file = file.with_name(f"{file.name}.py") if file.name else file
    if not file.is_file():
        raise InputError(f"there is no preprocess file {file}; -n takes the path of a Python file")
    module = import_file(file, "preprocess")
    for name in FUNCTIONS:
        function = getattr(module, name, None)
        if callable(function):
            parameters = inspect.signature(function).parameters
            open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            takes_norm, takes_nchw = (open_ended or keyword in parameters for keyword in ("norm", "nchw"))
            return Preprocess(file, function, takes_norm, takes_nchw and name == "get_image")
    raise InputError(f"{file} has no function get_image(path, ..., nchw=) or image_preprocess(path, norm=)")
