"""The file names of a dump folder as the SDAA dump tool lays it out.

    <folder>/dump_info.json
    <folder>/inputs/<input>.npy
    <folder>/outputs/topoidx_00012__relu_1.tmp_0.npy     dumped with its topological index
    <folder>/outputs/relu_3.tmp_0.npy                    dumped without

A name is made a file name by percent-encoding what file systems do not take (and ``%``), which ``named`` undoes; a name
that is too long is cut and made unique by its hash, and then only the JSON has it whole.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from sgsdump.files.names import fitting

INPUTS, OUTPUTS = "inputs", "outputs"
_UNSAFE = re.compile(r'[/\\:*?"<>|%\x00-\x1f\x7f]')
_INDEXED = re.compile(r"topoidx_(\d{5,})__(.*)\.npy", re.DOTALL)


def quoted(name: str) -> str:
    """``name`` as part of a file name: unsafe characters, ``%`` and a leading dot as ``%2F`` and the like."""
    text = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    return "%2E" + text[1:] if text.startswith(".") else text


def inputs_file(name: str) -> str:
    """``images.npy``: the file of an input, below ``inputs/``."""
    return fitting(quoted(name), ".npy")


def outputs_file(index: int | None, name: str) -> str:
    """``topoidx_00012__relu_1.tmp_0.npy``, or ``relu_1.tmp_0.npy`` without an index: below ``outputs/``."""
    return fitting(quoted(name) if index is None else f"topoidx_{index:05d}__{quoted(name)}", ".npy")


def named(file: str) -> tuple[int | None, str]:
    """The topological index, or None, and the tensor name that a file name of ``inputs/`` or ``outputs/`` stands for.

    A name that was cut comes back cut; the JSON has it whole.
    """
    match = _INDEXED.fullmatch(file)
    if match:
        return int(match[1]), unquote(match[2])
    return None, unquote(file.removesuffix(".npy"))
