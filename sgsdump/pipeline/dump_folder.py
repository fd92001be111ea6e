"""Writing a dump folder: arrays into ``inputs/`` and ``outputs/``, and a ``dump_info.json`` that describes them.

One folder holds one run. It is written beside its place and put there when it is whole, so that a run that fails or is
killed leaves in its place what stood there. A dump of an earlier run is set aside then, whole, as ``FOLDER_DATE``:
nothing stale is ever compared, and a dump that took an hour is not deleted by a second call. A later call of the same
run adds to its dump, in the same way; what was recorded about a tensor before is replaced. Other files of the folder
stay in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import DumpInfo, InputEntry, OutputEntry, facts_of
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.errors import OutputError
from sgsdump.executors.runner import Layer
from sgsdump.files.atomic_write import make_folder, replacing_folder
from sgsdump.pipeline.inputs.given import Given
from sgsdump.pipeline.running.not_dumped import NotDumped
from sgsdump.pipeline.topology_index import NodeOutput
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.types import NCHW


class DumpFolder:
    """The folder of one run; ``meta`` is the JSON's ``meta_info`` without the time."""

    def __init__(self, root: Path, meta: Mapping[str, Any], progress: Progress = SILENT):
        self.root = root
        self._progress = progress
        self._meta = {"date_time": datetime.now().strftime(dump_info.DATE), **meta}
        self._inputs: dict[str, InputEntry] = {}
        self._outputs: dict[tuple[str, bool], OutputEntry] = {}
        self._begun = False

    @property
    def begun(self) -> bool:
        """Whether this run's dump is in its place."""
        return self._begun

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What is put in this block is in the folder once it ends well; when it fails the folder is as before.

        Raises OutputError when it cannot be written.
        """
        before = dict(self._inputs), dict(self._outputs)
        earlier = not self._begun and is_dump(self.root)
        try:
            with replacing_folder(self.root, self._set_aside, None if earlier else _everything) as self._place:
                for part in (dump_info.INPUTS, dump_info.OUTPUTS):
                    make_folder(self._place / part)
                yield
                info = DumpInfo(self._meta, tuple(self._inputs.values()), tuple(self._outputs.values()))
                dump_info.write(info, self._place)
        except BaseException:
            self._inputs, self._outputs = before
            raise
        self._begun = True

    def _set_aside(self, aside: Path) -> None:
        self._progress.say(f"the earlier dump in {self.root} is now {aside}")

    def put_input(self, name: str, given: Given) -> None:
        file = f"{dump_info.INPUTS}/{dump_info.inputs_file(name)}"
        _save(self._place / file, given.array)
        facts, layout = facts_of(given.array), _layout(given.array)
        self._inputs[name] = InputEntry(
            name, facts, given.seed, given.low, given.high, given.use_external, file, layout
        )

    def put_output(self, layer: Layer, place: NodeOutput | None, with_index: bool) -> None:
        """A tensor; ``place`` is None for one without topological index, ``with_index`` puts it in the file's name."""
        file = _file(layer.name, place, with_index)
        _save(self._place / file, layer.array)
        index, inputs = (None, ()) if place is None else (place.index, place.inputs)
        layout = _layout(layer.array)
        facts = facts_of(layer.array)
        entry = OutputEntry(layer.name, facts, layer.node, layer.op_type, inputs, index, file, layout)
        self._outputs[layer.name, with_index] = entry

    def put_lost(self, lost: NotDumped, place: NodeOutput | None, with_index: bool) -> None:
        """Record why a tensor is missing; arguments as of ``put_output``."""
        (self._place / _file(lost.name, place, with_index)).unlink(missing_ok=True)
        index = None if place is None else place.index
        self._outputs[lost.name, with_index] = OutputEntry(
            lost.name, None, lost.node, lost.op_type, topo_index=index, error=lost.reason, failed=lost.failed
        )


def is_dump(root: Path) -> bool:
    """Whether a folder holds a dump, or what is left of one."""
    return any((root / part).exists() for part in (dump_info.JSON_NAME, dump_info.INPUTS, dump_info.OUTPUTS))


def _everything(name: str) -> bool:
    return True


def _layout(array: np.ndarray) -> str | None:
    """A 4-D tensor is noted as NCHW, ONNX's own layout."""
    return NCHW if array.ndim == 4 else None


def _file(name: str, place: NodeOutput | None, with_index: bool) -> str:
    index = place.index if with_index and place is not None else None
    return f"{dump_info.OUTPUTS}/{dump_info.outputs_file(index, name)}"


def _save(path: Path, array: np.ndarray) -> None:
    # A new file: what stands here may be the same file as in the folder that is still in its place.
    path.unlink(missing_ok=True)
    try:
        with open(path, "wb") as file:
            npy_file.write(file, array)
    except OSError as error:
        raise OutputError(f"cannot write {path.name}: {error.strerror or error}") from error
