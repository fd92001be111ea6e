"""File names for the values of tensors in our own formats; the manifest beside them has the tensors' own names."""

from __future__ import annotations

from sgsdump.files.names.safe_names import safe


def file_stem(name: str) -> str:
    """``name`` as part of a file's name on any system: ``conv1_Relu_0`` for ``conv1/Relu:0``."""
    return safe(_encodable(name).replace("\\", "_").replace('"', "_")) or "unnamed"


def label(name: str) -> str:
    """``name`` as a key in an archive, as much of it kept as is safe: no control characters, and no ``..`` that would
    lead whoever unpacks it out of the folder."""
    kept = "".join(character if character.isprintable() else "_" for character in _encodable(name))
    return "/".join("__" if part == ".." else part for part in kept.replace("\\", "_").split("/")) or "unnamed"


def _encodable(name: str) -> str:
    """Without lone surrogates, which stand for bytes that are not UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")
