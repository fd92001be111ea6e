"""Which tensor of a model made of a Caffe net is which stage of which blob: a table in the model's own metadata.

It travels with the fixed model, so that who reads a report, a range file or a dump needs no prototxt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgsdump.errors import FormatError, ModelError
from sgsdump.tensors.stages import KEY, Stage, table_of

if TYPE_CHECKING:
    from onnx import ModelProto


def write_stages(proto: ModelProto, stages: Iterable[Stage]) -> None:
    """Put the table into a model that has none, in the order of the net."""
    proto.metadata_props.add(key=KEY, value=json.dumps([list(stage) for stage in stages], ensure_ascii=False))


def read_stages(proto: ModelProto) -> tuple[Stage, ...]:
    """The stages in the order of the net, none for other frameworks. Raises ModelError for a damaged table."""
    text = next((prop.value for prop in proto.metadata_props if prop.key == KEY), None)
    try:
        return () if text is None else table_of(text)
    except FormatError as error:
        raise ModelError(str(error)) from None
