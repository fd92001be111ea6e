"""The line of the program that calls an operator or a module (``line_of_program``).

Frames of torch and of the hook are passed over, and so is code without a file (what Dynamo and FX make). The name of a
file is its path below the folder that it is imported from: ``net.py:28``, ``transformers/models/llama/….py:230``.
"""

import os
import sys
from typing import Any

import torch

HOOK = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PASSED_OVER = tuple(os.path.join(folder, "") for folder in (HOOK, os.path.dirname(os.path.abspath(torch.__file__))))
OURS = os.path.join("sgsdump", "programs", "capture.py")
MOST_FILES, MOST_FRAMES = 10000, 200

_names: dict = {}


def line_of_program():
    """``net.py:28``; "" where no code of the program is on the stack."""
    frame: Any = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        code = frame.f_code
        name = _names.get(code)
        if name is None:
            if len(_names) >= MOST_FILES:
                _names.clear()
            name = _names[code] = _name_of(code.co_filename)
        if name:
            return "{}:{}".format(name, frame.f_lineno)
        frame = frame.f_back
        if frame is None:
            break
    return ""


def _name_of(file):
    """How a file is called; "" for one whose code is passed over."""
    if file.startswith("<") and not file.startswith(("<stdin>", "<string>", "<ipython-input")):
        return ""
    path = os.path.abspath(file)
    if path.startswith(PASSED_OVER) or path.endswith(OURS):
        return ""
    folders = [os.path.join(os.path.abspath(entry or os.getcwd()), "") for entry in sys.path]
    inside = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
    return (path[len(inside) :] if inside else os.path.basename(path)).replace("\\", "/")
