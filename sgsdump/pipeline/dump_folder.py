"""Write a dump folder: arrays in ``inputs/`` and ``outputs/``, and a ``dump_info.json`` that describes them.

One folder contains one run. It is written beside its final place and moved there when complete, so that a run that
fails or is killed leaves the previous contents. A complete dump of an earlier run is moved to ``FOLDER_DATE``: no stale
file is ever compared, and a second call does not delete a dump that took an hour. A later call of the same run adds to
its dump in the same way, and replaces earlier records of a tensor. Other files of the folder stay. The lines printed
for inputs and outputs are exactly those of the SDAA dump tool.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.dumps.formats.sdaa.dump_info import DumpInfo, InputEntry, OutputEntry, facts_of
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.dumps.graph_file import save_graph
from sgsdump.errors import OutputError
from sgsdump.executors.runner import Layer
from sgsdump.files.atomic_write import make_folder, replacing_folder
from sgsdump.files.escaping import shown
from sgsdump.models.feeds.drawn import InputArray
from sgsdump.pipeline.not_dumped import NotDumped
from sgsdump.pipeline.selection import NodeOutput
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.types import NCHW

_TRIES, _PAUSE = 50, 0.02


class DumpFolder:
    """Folder of one run.

    meta        ``meta_info`` of the JSON file, without the time.
    graph       serialised graph of the model, which is stored in the folder (``dumps/graph_file.py``).
    layout      layout recorded for 4-D tensors.
    not_dumped  tensors that are currently missing in the folder, by name.
    """

    def __init__(
        self,
        root: Path,
        meta: Mapping[str, Any],
        progress: Progress = SILENT,
        graph: bytes = b"",
        layout: str = NCHW,
    ):
        self.root = root
        self._layout = layout
        self._graph = graph
        self.not_dumped: dict[str, NotDumped] = {}
        self._progress = progress
        self._meta = {"date_time": datetime.now().strftime(dump_info.DATE), **meta}
        self._inputs: dict[str, InputEntry] = {}
        self._outputs: dict[tuple[str, bool], OutputEntry] = {}
        self._is_begun = False
        self._written: os.stat_result | None = None

    @property
    def path(self) -> Path:
        """Current place of the dump: ``root``, or where another process that wrote there has moved it."""
        if self._written is None:
            return self.root
        for _ in range(_TRIES):
            for path in (self.root, *self._others()):
                with suppress(OSError):
                    if os.path.samestat(path.stat(), self._written):
                        return path
            time.sleep(_PAUSE)  # no name at the moment: another process is moving it
        return self.root

    def _others(self) -> Iterator[Path]:
        name = glob.escape(self.root.name)
        yield from self.root.parent.glob(f"{name}_*")
        yield from self.root.parent.glob(f".{name}.*")

    def write(
        self,
        layers: Iterable[Layer | NotDumped],
        inputs: Mapping[str, InputArray],
        indexed: Mapping[str, NodeOutput],
        with_index: bool,
        keep: bool = True,
    ) -> dict[str, np.ndarray]:
        """Write the layers as they come, with a line for each, and the inputs unless the folder already contains them.

        indexed     tensors with a topological index; ``with_index`` puts it into the file names.
        keep        whether to return the arrays by name.

        Raises the errors of the iterable, and OutputError; the folder is then unchanged.
        """
        arrays: dict[str, np.ndarray] = {}
        layers = iter(layers)
        # Errors at the start are raised here, before an earlier dump is moved.
        first = list(islice(layers, 1))
        with self._writing():
            if not self._is_begun:
                for name, value in inputs.items():
                    self._put_input(name, value)
            for layer in chain(first, layers):
                output = indexed.get(layer.name)
                self.not_dumped.pop(layer.name, None)
                if isinstance(layer, NotDumped):
                    self.not_dumped[layer.name] = layer
                    self._put_missing(layer, output, with_index)
                    continue
                self._put_output(layer, output, with_index)
                if keep:
                    arrays[layer.name] = layer.array
        self._is_begun = True
        return arrays

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Put the tensors of the block into the folder if it succeeds; otherwise leave the folder unchanged."""
        before = dict(self._inputs), dict(self._outputs), dict(self.not_dumped)
        keep_files = None if not self._is_begun and is_dump(self.root) else lambda _: True
        try:
            with replacing_folder(self.root, self._set_aside, keep_files) as self._folder:
                for part in (dump_info.INPUTS, dump_info.OUTPUTS):
                    make_folder(self._folder / part)
                yield
                info = DumpInfo(self._meta, tuple(self._inputs.values()), tuple(self._outputs.values()))
                dump_info.write(info, self._folder)
                if self._graph and (why := save_graph(self._graph, self._folder)):
                    self._progress.say(why.replace(str(self._folder), str(self.root)))
                self._written = self._folder.stat()
        except BaseException:
            self._inputs, self._outputs, self.not_dumped = before
            raise

    def _set_aside(self, aside: Path) -> None:
        self._progress.say(f"the earlier dump in {self.root} was moved to {aside}")

    def _put_input(self, name: str, value: InputArray) -> None:
        array = value.array
        file = f"{dump_info.INPUTS}/{dump_info.inputs_file(name)}"
        self._save(file, array)
        self._inputs[name] = InputEntry(
            name, facts_of(array), value.seed, value.low, value.high, value.use_external, file, self._layout_of(array)
        )
        self._progress.say(f'input "{shown(name)}", shape {list(array.shape)}, dtype {array.dtype}')

    def _put_output(self, layer: Layer, output: NodeOutput | None, with_index: bool) -> None:
        """Write a tensor.

        ``output`` is None without topological index, ``with_index`` puts the index into the file name.
        """
        array, file = layer.array, _file(layer.name, output, with_index)
        self._save(file, array)
        index, inputs = (None, ()) if output is None else (output.index, output.inputs)
        self._outputs[layer.name, with_index] = OutputEntry(
            layer.name,
            facts_of(array),
            layer.node,
            layer.op_type,
            inputs,
            index,
            file,
            self._layout_of(array),
        )
        line = f"output {shown(layer.name)}, shape {array.shape}, dtype {array.dtype}"
        self._progress.say(f"topology index {index}, {line}" if with_index and output is not None else line)

    def _put_missing(self, lost: NotDumped, output: NodeOutput | None, with_index: bool) -> None:
        """Record why a tensor is missing; arguments as in ``_put_output``."""
        (self._folder / _file(lost.name, output, with_index)).unlink(missing_ok=True)
        index = None if output is None else output.index
        self._outputs[lost.name, with_index] = OutputEntry(
            lost.name, None, lost.node, lost.op_type, topo_index=index, error=lost.reason, failed=lost.failed
        )

    def _layout_of(self, array: np.ndarray) -> str | None:
        return self._layout if array.ndim == 4 else None

    def _save(self, name: str, array: np.ndarray) -> None:
        path = self._folder / name
        # Create a new file: an existing one may be a hard link to the file in the current folder.
        path.unlink(missing_ok=True)
        try:
            with open(path, "wb") as file:
                npy_file.write(file, array)
        except OSError as error:
            raise OutputError(f"cannot write {path.name}: {error.strerror or error}") from error


def is_dump(root: Path) -> bool:
    """Return whether a folder contains a dump, or remains of one."""
    return any((root / part).exists() for part in (dump_info.JSON_NAME, dump_info.INPUTS, dump_info.OUTPUTS))


def _file(name: str, output: NodeOutput | None, with_index: bool) -> str:
    index = output.index if with_index and output is not None else None
    return f"{dump_info.OUTPUTS}/{dump_info.outputs_file(index, name)}"
