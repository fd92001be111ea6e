"""Writing a dump folder: arrays into ``inputs/`` and ``outputs/``, and a ``dump_info.json`` that keeps up with them.

One folder holds one run. When the folder has a dump already, the first thing written sets the old one aside, whole, as
``FOLDER_DATE``: nothing stale is ever compared, and a dump that took an hour is not deleted by a second call. What was
recorded about a tensor before in the same run is replaced.

The JSON is rewritten whole at most once a second and at the end, so that a run that is killed leaves a valid one of
what is there, and a dump of N tensors does not cost N rewrites of N entries.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.formats.arrays import npy_file
from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import DumpInfo, InputEntry, OutputEntry
from sgsdump.executors.runner import Layer
from sgsdump.files.atomic_write import check_folder, make_folder, replacing, set_aside
from sgsdump.pipeline.inputs.given import Given
from sgsdump.pipeline.not_dumped import NotDumped
from sgsdump.pipeline.topology_index import NodeOutput
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.layout import NCHW

SECONDS = 1.0


class DumpFolder:
    """A folder being written; ``meta`` is the JSON's ``meta_info`` without the time.

    Raises OutputError when it cannot be written.
    """

    def __init__(self, root: Path, meta: Mapping[str, Any], progress: Progress = SILENT):
        self.root = root
        if is_dump(root):
            check_folder(root)
            aside = set_aside(root)
            progress.say(f"the earlier dump in {root} is now {aside}")
        self._meta = {"date_time": datetime.now().strftime(dump_info.DATE), **meta}
        self._inputs: dict[str, InputEntry] = {}
        self._outputs: dict[tuple[str, bool], OutputEntry] = {}
        for part in (dump_info.INPUTS, dump_info.OUTPUTS):
            make_folder(root / part)
        self.flush()

    def put_input(self, name: str, given: Given) -> None:
        file = f"{dump_info.INPUTS}/{dump_info.inputs_file(name)}"
        _save(self.root / file, given.array)
        facts, layout = dump_info.facts(given.array), _layout(given.array)
        self._inputs[name] = InputEntry(
            name, facts, given.seed, given.low, given.high, given.use_external, file, layout
        )
        self._flush_if_due()

    def put_output(self, layer: Layer, place: NodeOutput | None, with_index: bool) -> None:
        """A tensor; ``place`` is None for one without topological index, ``with_index`` puts it in the file's name."""
        file = _file(layer.name, place, with_index)
        _save(self.root / file, layer.array)
        index, inputs = (None, ()) if place is None else (place.index, place.inputs)
        layout = _layout(layer.array)
        facts = dump_info.facts(layer.array)
        entry = OutputEntry(layer.name, facts, layer.node, layer.op_type, inputs, index, file, layout)
        self._outputs[layer.name, with_index] = entry
        self._flush_if_due()

    def put_lost(self, lost: NotDumped, place: NodeOutput | None, with_index: bool) -> None:
        """Record why a tensor is missing; arguments as of ``put_output``."""
        (self.root / _file(lost.name, place, with_index)).unlink(missing_ok=True)
        index = None if place is None else place.index
        self._outputs[lost.name, with_index] = OutputEntry(
            lost.name, None, lost.node, lost.op_type, topo_index=index, error=lost.reason, failed=lost.failed
        )
        self._flush_if_due()

    def flush(self) -> None:
        """Bring dump_info.json up to date."""
        info = DumpInfo(self._meta, tuple(self._inputs.values()), tuple(self._outputs.values()))
        dump_info.write(info, self.root)
        self._written = time.monotonic()

    def _flush_if_due(self) -> None:
        if time.monotonic() - self._written >= SECONDS:
            self.flush()


def is_dump(root: Path) -> bool:
    """Whether a folder holds a dump, or what is left of one."""
    return any((root / part).exists() for part in (dump_info.JSON_NAME, dump_info.INPUTS, dump_info.OUTPUTS))


def _layout(array: np.ndarray) -> str | None:
    """A 4-D tensor is noted as NCHW, ONNX's own layout."""
    return NCHW if array.ndim == 4 else None


def _file(name: str, place: NodeOutput | None, with_index: bool) -> str:
    index = place.index if with_index and place is not None else None
    return f"{dump_info.OUTPUTS}/{dump_info.outputs_file(index, name)}"


def _save(path: Path, array: np.ndarray) -> None:
    with replacing(path) as file:
        npy_file.write(file, array)
