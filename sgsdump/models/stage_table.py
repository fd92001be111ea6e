"""Which tensor of a model made of a Caffe net is which stage of which blob: a table in the model's own metadata.

It travels with the fixed model, so that who reads a report, a range file or a dump needs no prototxt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from onnx import ModelProto

KEY = "sgsdump.stages"


class Stage(NamedTuple):
    """The tensor ``name`` is what ``layer`` made of ``blob``."""

    name: str
    blob: str
    layer: str


def write_stages(proto: ModelProto, stages: Iterable[Stage]) -> None:
    """Put the table into a model that has none, in the order of the net."""
    proto.metadata_props.add(key=KEY, value=json.dumps([list(stage) for stage in stages], ensure_ascii=False))


def read_stages(proto: ModelProto) -> tuple[Stage, ...]:
    """The stages in the order of the net; empty for a model of another framework, and where the table is damaged."""
    text = next((prop.value for prop in proto.metadata_props if prop.key == KEY), None)
    if text is None:
        return ()
    try:
        return tuple(Stage(*_texts(entry)) for entry in json.loads(text))
    except (ValueError, TypeError):
        return ()


def _texts(entry: object) -> list[str]:
    if not isinstance(entry, list) or not all(isinstance(part, str) for part in entry):
        raise ValueError(f"a stage is three names, not {entry!r}")
    return entry


def last_stages(stages: Iterable[Stage]) -> dict[str, str]:
    """For each blob the tensor of its last value."""
    return {stage.blob: stage.name for stage in stages}


def blob_stages(stages: Iterable[Stage]) -> dict[str, list[str]]:
    """For each blob its tensors, in order."""
    blobs: dict[str, list[str]] = {}
    for stage in stages:
        blobs.setdefault(stage.blob, []).append(stage.name)
    return blobs
