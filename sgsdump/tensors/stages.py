"""Names that the SigmaStar SDK gives to the stages of a Caffe blob.

Layers that write in place (top = bottom) give a blob several values. pycaffe shows the last value under the blob's
name. The SDK's converter gives each value, called a *stage*, a tensor of its own. The names below were observed in
dumps of SDK 1.1.5; they are not documented:

``conv1 conv1_xx conv1_xx_xx``
    The first layer with the top conv1 writes conv1. Each further layer appends ``_xx``, once more if another blob has
    the name.
``prob#0 prob#0_xx prob``
    If the blob is an output of the network, its last stage is ``prob`` and earlier stages extend ``prob#0``.
``c#1 c#1_xx c``
    If the blob's own name has a ``#``, its last stage drops the ``#`` and all characters after it.
``conv1_MUL fc_power_MUL_output``
    Products within a BatchNorm, Scale or Power. The stage of such a layer is the sum after the product.
``n#1#193``
    A copy of ``n`` for a reader with other scales.
``fc#61 fc_reshape#1_output#60 up_tile_output``
    Tensors of the converter that Caffe does not have. If the last step of an Upsample is merged with the next operator,
    ``up_tile_output`` represents ``up``.

A chip keeps only the outputs of fused operators. Any of these names may be missing from a dump, most often all but the
last stage. Names cannot show whether a later stage is missing; the table of stages in the model's metadata can.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sgsdump.errors import FormatError

KEY = "sgsdump.stages"  # key of the table in the model's metadata
SUFFIX = "_xx"
_BEFORE_OUTPUT = "#0"
_SUFFIXES = re.compile(r"(?:_xx)+\Z")
_COPY = re.compile(r"#\d+#\d+\Z")
_PRODUCT, _UPSAMPLED = "_MUL", "_tile_output"
_OWN = re.compile(
    r"#\d+\Z"  # fc#61, c2_addn_output_tensor#15, re#/Mul0Output#34
    r"|_(?:reshape|transpose|pad|tile|dilation|lkyRelu|MUL|ADD)(?:#\d+)?_output\Z"
)


class Stage(NamedTuple):
    """A stage in the table, with its blob and layer.

    name is "" if the SDK has no tensor of the value: a BatchNorm whose Scale has a top of its own.
    """

    name: str
    blob: str
    layer: str


class StageNames:
    """Index over the names of a dump or of a range file, for finding the stages of a blob."""

    def __init__(self, names: Iterable[str]):
        self.names = dict.fromkeys(names)
        self._of_root: defaultdict[str, list[str]] = defaultdict(list)
        for name in self.names:
            self._of_root[root_of(name)].append(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def of(self, blob: str) -> dict[str, int]:
        """Return the names that may be stages of the blob, in dump order, with their numbers.

        Number 0 is the stage of the first layer. The last stage of an output has the highest other number plus one.
        """
        if self._is_alone(blob):
            return {blob: 0}
        before = self._numbered(blob + _BEFORE_OUTPUT)
        if before:
            return {**before, blob: max(before.values()) + 1} if blob in self else before
        stages = self._numbered(blob)
        if not stages and blob + _UPSAMPLED in self:
            return {blob + _UPSAMPLED: 0}
        bare = blob.partition("#")[0]
        return {**stages, bare: max(stages.values(), default=0) + 1} if bare != blob and bare in self else stages

    def last(self, blob: str) -> str | None:
        """Return the last stage of the blob that exists, or None."""
        if self._is_alone(blob):
            return blob
        if self._numbered(blob + _BEFORE_OUTPUT):
            return blob if blob in self else None
        stages = self.of(blob)
        return max(stages, key=stages.__getitem__, default=None)

    def copies_of(self, name: str) -> list[str]:
        """Return ``n#1#193`` and other copies of ``n``."""
        return [other for other in self._of_root.get(name, ()) if other != name and without_copy(other) == name]

    def _is_alone(self, blob: str) -> bool:
        return "#" not in blob and self._of_root.get(root_of(blob)) == [blob]

    def _numbered(self, first: str) -> dict[str, int]:
        same_root = self._of_root.get(root_of(first), ())
        return {
            name: (len(name) - len(first)) // len(SUFFIX)
            for name in same_root
            if name.startswith(first) and not name[len(first) :].replace(SUFFIX, "")
        }


def last_stage(blob: str, names: Iterable[str]) -> str | None:
    """Return the name in ``names`` that represents a blob: its last existing stage, or the blob's own name."""
    return StageNames(names).last(blob)


def root_of(name: str) -> str:
    """Return the name shared by all stages and copies of a blob, without the endings ``_xx``, ``#0`` and ``#1#193``."""
    while "#" in name or name.endswith(SUFFIX):
        endings = without_copy(name), _SUFFIXES.sub("", name), name.removesuffix(_BEFORE_OUTPUT)
        shorter = next((ending for ending in endings if ending != name), None)
        if shorter is None:
            break
        name = shorter
    return name


def without_copy(name: str) -> str:
    """Return the original of a copy: ``n`` for ``n#1#193``; any other name unchanged."""
    return _COPY.sub("", name) if "#" in name else name


def is_product(name: str) -> bool:
    """Return whether the ending of a name is that of the product within a BatchNorm or Scale.

    In the plain case the product has the name of the BatchNorm's own stage; only the operators can tell these apart.
    """
    return name.endswith(_PRODUCT)


def is_converters_own(name: str) -> bool:
    """Return whether the converter creates tensors of this name for itself."""
    return _OWN.search(name) is not None


def table_of(text: str) -> tuple[Stage, ...]:
    """Parse the table of stages in a model's metadata: a JSON list of [stage, blob, layer]. Raises FormatError."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise FormatError(f"the model's {KEY} is not a list of [stage, blob, layer]; create the model again")
    return tuple(Stage(*row) for row in rows)


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == len(Stage._fields) and all(isinstance(cell, str) for cell in row)


def last_of_table(table: Iterable[Stage]) -> dict[str, str]:
    """Return blob -> last stage; "" if no tensor holds the last stage."""
    return {stage.blob: stage.name for stage in table}


def of_layers(table: Iterable[Stage]) -> Mapping[str, str]:
    """Return name in ``dump --every-layer`` (a layer, or ``blob@layer``) -> stage after the layer."""
    stages: dict[str, str] = {}
    for stage in table:
        stages[stage.layer] = stages[f"{stage.blob}@{stage.layer}"] = stage.name
    return stages
