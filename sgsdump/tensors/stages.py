"""The names under which the SigmaStar SDK shows the stages of a Caffe blob, read from names alone.

Layers that write in place (top = bottom) give a blob several values. pycaffe shows the last one under the blob's name;
the SDK's converter gives each value, a *stage*, a tensor of its own. Observed in dumps of SDK 1.1.5, never documented:

``conv1 conv1_xx conv1_xx_xx``  the first layer with the top conv1 makes conv1, each further one appends ``_xx``, and
                                once more while the name is taken by another blob.
``prob#0 prob#0_xx prob``       where the blob is an output of the network, its last stage is ``prob`` and those before
                                hang on ``prob#0``.
``c#1 c#1_xx c``                where the blob's own name has a ``#``, its last stage is without it and what follows.
``conv1_MUL fc_power_MUL_output``  products within a BatchNorm, Scale or Power, whose stage is the sum after them.
``n#1#193``                     a copy of ``n``, for a reader that wants other scales.
``fc#61 fc_reshape#1_output#60 up_tile_output``  the converter's own tensors, which Caffe does not have; but where an
                                Upsample's last step is merged with what follows, ``up_tile_output`` stands for ``up``.

A chip keeps only what its fused operators give, so any of these may be missing from a dump, most often all but the last
stage. Names cannot tell whether a later stage is missing; the table of stages that a model carries does.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sgsdump.errors import FormatError

KEY = "sgsdump.stages"  # of the table in a model's metadata
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
    """A stage that a table names: of which blob, and of which layer. No name: the SDK has no tensor of that value (of a
    BatchNorm whose Scale has a top of its own)."""

    name: str
    blob: str
    layer: str


class StageNames:
    """The names of a dump (or of a file of ranges), to ask for the stages of a blob."""

    def __init__(self, names: Iterable[str]):
        self.names = dict.fromkeys(names)
        self._of_root: defaultdict[str, list[str]] = defaultdict(list)
        for name in self.names:
            self._of_root[root_of(name)].append(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def of(self, blob: str) -> dict[str, int]:
        """Every name that may be a stage of the blob, by the dump's order, and its number: 0 is the first layer's. That
        of the last stage of an output is one more than the highest."""
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
        """The last stage of the blob that is there; None where none is."""
        if self._is_alone(blob):
            return blob
        if self._numbered(blob + _BEFORE_OUTPUT):
            return blob if blob in self else None
        stages = self.of(blob)
        return max(stages, key=stages.__getitem__, default=None)

    def copies_of(self, name: str) -> list[str]:
        """``n#1#193`` and other copies of ``n``."""
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
    """The name that stands for a blob among ``names``: the last stage that is there, the blob's own name included."""
    return StageNames(names).last(blob)


def root_of(name: str) -> str:
    """The common name of all stages of a blob and its copies, without the endings ``_xx`` and ``#1#193``,
    and without ``#0``."""
    while "#" in name or name.endswith(SUFFIX):
        endings = without_copy(name), _SUFFIXES.sub("", name), name.removesuffix(_BEFORE_OUTPUT)
        shorter = next((ending for ending in endings if ending != name), None)
        if shorter is None:
            break
        name = shorter
    return name


def without_copy(name: str) -> str:
    """The tensor that a copy is of: ``n`` for ``n#1#193``, any other name as it is."""
    return _COPY.sub("", name) if "#" in name else name


def is_product(name: str) -> bool:
    """Whether a name is of the product within a BatchNorm or Scale, by its ending; in the plain case it is named as the
    BatchNorm's own stage, which only the operators tell."""
    return name.endswith(_PRODUCT)


def is_converters_own(name: str) -> bool:
    """Whether a name is one that the converter makes for itself."""
    return _OWN.search(name) is not None


def table_of(text: str) -> tuple[Stage, ...]:
    """The table of stages as a model carries it, JSON: a list of [stage, blob, layer]. Raises FormatError."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise FormatError(f"the model's {KEY} is not a list of [stage, blob, layer]; make the model again")
    return tuple(Stage(*row) for row in rows)


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == len(Stage._fields) and all(isinstance(cell, str) for cell in row)


def last_of_table(table: Iterable[Stage]) -> dict[str, str]:
    """Blob -> its last stage; "" where that is in no tensor."""
    return {stage.blob: stage.name for stage in table}


def of_layers(table: Iterable[Stage]) -> Mapping[str, str]:
    """The names of ``dump --every-layer``, a layer's or ``blob@layer``, -> the stage after that layer."""
    stages: dict[str, str] = {}
    for stage in table:
        stages[stage.layer] = stages[f"{stage.blob}@{stage.layer}"] = stage.name
    return stages
