"""msprobe's layer mapping: how modules of one framework's network are called in the other's, by the module's class.

::

    TopLayer:                                  # or Cell
      network_with_loss: module
    ParallelAttention:
      flash_attention_score: core_attention_flash.npu_fusion_attention

YAML (the extra ``yaml``) or the same as JSON: inside a ParallelAttention of the sample, what is called
flash_attention_score is in the benchmark npu_fusion_attention inside core_attention_flash. Names that are not in it
are the same on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of, yaml_of

TOP = "TopLayer"
_OLD_TOP = "Cell"

Layers = Mapping[str, Mapping[str, str]]


def read(path: Path | str) -> Layers:
    """Class -> name in the sample -> name in the benchmark, dots between the parts. Raises FormatError."""
    path = Path(path)
    text = decode(read_bytes(path), path)
    return layers_of(json_of(text, path) if text.lstrip().startswith("{") else yaml_of(text, path), path)


def recognises(document: Any) -> bool:
    """Whether a document is one: an object of objects of texts."""
    return (
        isinstance(document, dict)
        and bool(document)
        and all(
            isinstance(names, dict) and names and all(isinstance(name, str) for name in names.values())
            for names in document.values()
        )
    )


def layers_of(document: Any, path: Path) -> Layers:
    """The mapping of a recognised document. Raises FormatError."""
    if not recognises(document):
        raise FormatError(f"{path} is no layer mapping: it is not {{class: {{name: name}}}}")
    for old, new in ((old, new) for names in document.values() for old, new in names.items()):
        if not all((*old.split("."), *new.split("."))):
            raise FormatError(f"{path}: {quoted(old)}: {quoted(new)} has an empty part")
    return {TOP if key == _OLD_TOP else key: names for key, names in document.items()}
