"""The user's preprocess file: Python with ``get_image(path, ..., nchw=)`` or ``image_preprocess(path, norm=)``.

The SDK's convention: ``get_image(img_path, resizeH=224, ..., norm=True, ..., nchw=False)`` is called with ``nchw=True``
to feed an ONNX or Caffe model; older files have no ``nchw`` and return NHWC, as ``image_preprocess`` does.
``norm=False`` asks for the raw 0..255 values a fixed model takes; of a file without it they are found by mean and std.
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
        with blaming(self.file, "preprocess", f" on {image}"):
            array = as_array(self.function(image, **keywords))
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.file}: {self.function.__name__} gave no array of numbers for {image}; does it return one?"
            )
        return array


def load_preprocess(path: Path | str) -> Preprocess:
    """Import the file under a name of its own; its folder is importable only meanwhile. ``net`` may mean ``net.py``, as
    the SDK's tools are given the name of a preset.

    Raises InputError for a missing file, one without either function, or one that fails; MissingExtra when it wants
    cv2 and that is not installed.
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
    raise InputError(f"{file} has no function get_image(path, ..., nchw=) nor image_preprocess(path, norm=)")
