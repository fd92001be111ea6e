"""Dump pipeline: one model, one executor, its inputs, and the folder for the dumped tensors.

    pipeline = Pipeline("net.onnx", "ort", "ort_dump")
    pipeline.set_input_data({"x": {"seed": 1, "low": -1, "high": 1}})
    pipeline.dump_range("relu_1.tmp_0", step=10)
    for lost in pipeline.failures:
        ...

The methods are those of the SDAA dump tool's pipeline. The given model is never changed; after ``extract_subgraph`` the
pipeline works on the extracted part. The folder contains one run: new inputs or another part of the model begin a new
run, for which an earlier dump in the folder is moved (``pipeline/dump_folder.py``). Each dumping call writes all of its
tensors or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.executors.base import Executor
from sgsdump.executors.runner import Layer
from sgsdump.models.feeds.drawn import (
    DEFAULTS,
    InputDefaults,
    InputSource,
    ModelInputs,
    checked_ranges,
    from_folder,
    from_json,
    table_lengths,
)
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.models.passes.extract import extract
from sgsdump.models.passes.rewrites import inline_functions
from sgsdump.models.quantised_model import graph_for_dump
from sgsdump.pipeline.dump_folder import DumpFolder
from sgsdump.pipeline.not_dumped import NotDumped
from sgsdump.pipeline.run import run, run_once
from sgsdump.pipeline.selection import (
    NodeOutput,
    Position,
    by_name,
    check_list,
    node_outputs,
    select,
    with_indexes,
)
from sgsdump.pipeline.steps import FAST, Engine, ExecutorConfigs
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    import onnx


Ranges = Mapping[str, Mapping[str, Any]]


class Pipeline:
    """Model, executor and dump folder.

    model               path, Model, or ModelProto.
    executor            name in ``executors()``, ``FILE.py:Class``, or an Executor; ignored for a model that only its
                        own framework runs (TFLite, OpenVINO).
    dump_info           folder to write, created with the first tensor; None means ``EXECUTOR_dump``.
    init_configs, load_model_configs, execute_configs
                        options for the executor's calls.
    mode                ``fast`` or ``isolated``: how dump_full, dump_list and dump_range run (``pipeline/run.py``).
    defaults            seed and ranges of random inputs without own settings.
    shapes              shapes of inputs with open sizes, by name.
    model_dtype         value of ``model_dtype`` in dump_info.json; the executor does not see it.
    progress            receives the progress of a dump, and a line for each input and output written; see
                        ``sgsdump.progress``.

    Raises ConfigError for an unknown mode or executor, ModelError for an unreadable model.
    """

    def __init__(
        self,
        model: str | Path | Model | onnx.ModelProto,
        executor: str | Executor = "ort",
        dump_info: str | Path | None = None,
        init_configs: Mapping[str, Any] | None = None,
        load_model_configs: Mapping[str, Any] | None = None,
        execute_configs: Mapping[str, Any] | None = None,
        mode: str = FAST,
        *,
        defaults: InputDefaults = DEFAULTS,
        shapes: Mapping[str, Sequence[int]] | None = None,
        model_dtype: str = "",
        progress: Progress = SILENT,
    ):
        configs = ExecutorConfigs(init_configs or {}, load_model_configs or {}, execute_configs or {})
        self.engine = Engine(executor, mode, configs)
        self.model = _model(model)
        native = self.model.native
        self.folder = Path(dump_info or f"{native.runtime if native else self.engine.name}_dump")
        self.model_dtype = model_dtype
        self._executor_class = native.kind if native else self.engine.class_name
        self._progress = progress
        self._extracted = False
        self._marked: tuple[str, ...] | None = None
        self._dump: DumpFolder | None = None
        self._outputs = node_outputs(self.model.proto.graph)
        specs = tuple(graph_inputs(self.model.proto))
        tables = table_lengths(self.model.proto.graph)
        self._inputs = ModelInputs(specs, dict(shapes or {}), defaults, tables=tables)

    @property
    def written(self) -> Path:
        """Place of the current run's dump: the folder, or where another process has moved it."""
        return self.folder if self._dump is None else self._dump.path

    @property
    def not_dumped(self) -> list[NotDumped]:
        """Tensors that the current run has not dumped so far."""
        return [] if self._dump is None else list(self._dump.not_dumped.values())

    @property
    def failures(self) -> list[NotDumped]:
        """Tensors that failed to run: errors, unlike tensors that no executor can return as an array."""
        return [lost for lost in self.not_dumped if lost.failed]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Arrays that are fed to the model, by input name. Raises InputError or ConfigError."""
        return {name: value.array for name, value in self._inputs.arrays.items()}

    def extract_subgraph(
        self, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None
    ) -> None:
        """Continue with the part of the model between these tensors; None means its own inputs or outputs.

        Topological indices then refer to the part. Settings of remaining inputs are kept. Raises ConfigError for an
        unknown name, ModelError if the model cannot be cut.
        """
        for names in (input_names, output_names):
            check_list(names or ())
        outputs = output_names or [info.name for info in self.model.proto.graph.output]
        self.model = replace(self.model, proto=extract(self.model.proto, input_names, outputs))
        self._extracted = True
        self._marked = None
        self._outputs = node_outputs(self.model.proto.graph)
        self._begin_with(self._inputs.of_part(tuple(graph_inputs(self.model.proto))))

    def get_node_output_names(self) -> list[str]:
        """Return the names of all tensors with a topological index, in that order."""
        return [output.name for output in self._outputs]

    def mark_outputs(self, output_names: Sequence[str] | None = None) -> None:
        """Choose the outputs of ``dump_once``: these tensors, or all. Raises ConfigError for an unknown name."""
        check_list(output_names or ())
        chosen = self._outputs if output_names is None else by_name(self._outputs, output_names)
        self._marked = tuple(output.name for output in chosen) if output_names is None else tuple(output_names)

    def set_input_data(
        self,
        input_data_range: Ranges | None = None,
        external_input_data: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Set inputs by name from ranges ``{name: {"seed": 42, "low": 0, "high": 1}}`` (each key optional) and arrays.

        Other inputs are random with the defaults. Raises ConfigError or InputError.
        """
        arrays = external_input_data or {}
        self._begin_with(self._inputs.given_by(InputSource(checked_ranges(input_data_range or {}), arrays)))

    def set_input_data_from_json(self, json: str | Path) -> None:
        """Draw the random inputs of an earlier run again, from its dump_info.json.

        Raises FormatError for a damaged file, InputError if it lacks an input or an input was an external array.
        """
        self._begin_with(self._inputs.given_by(from_json(json, self._inputs.names)))

    def set_input_data_from_file(self, folder: str | Path) -> None:
        """Read every input from ``NAME.npy`` in a folder or below it. Raises InputError if one is missing."""
        self._begin_with(self._inputs.given_by(from_folder(folder, self._inputs.names)))

    def dump_once(self, topo_indexes: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Run the model once for the marked outputs, or its own, dump them as ``NAME.npy`` and return them by name.

        topo_indexes  one index per output; the files are then named ``topoidx_INDEX__NAME.npy``.

        Only the nodes that the outputs need are run, in one go. If this fails, they are run again in fast mode, so that
        the failing node is identified and the other outputs are dumped.
        """
        names = self._marked or tuple(info.name for info in self.model.proto.graph.output)
        indexed = {output.name: output for output in self._outputs}
        if topo_indexes is not None:
            indexed = with_indexes(indexed, names, topo_indexes)
        outcomes = run_once(self.model, self.engine, self.inputs, names)
        return self._write(outcomes, indexed, topo_indexes is not None)

    def dump_full(self, dump_with_index: bool = True) -> None:
        """Dump every tensor with a topological index."""
        self.dump_range(dump_with_index=dump_with_index)

    def dump_list(self, output_names: Sequence[str] | None = None, dump_with_index: bool = True) -> None:
        """Dump the named tensors; None dumps all. Raises ConfigError for an unknown name."""
        if output_names is None:
            self.dump_full(dump_with_index)
            return
        check_list(output_names)
        self._dump_chosen(by_name(self._outputs, output_names), dump_with_index)

    def dump_range(
        self,
        start_tensor: Position | None = None,
        end_tensor: Position | None = None,
        step: int = 1,
        dump_with_index: bool = True,
        *,
        name_pattern: str | None = None,
        op_types: Collection[str] = (),
    ) -> None:
        """Dump every ``step``-th tensor between two names or topological indices, always including both ends.

        See ``pipeline/selection.py`` for the filters. Raises ConfigError for an unknown name or index, a start after
        the end, or a step below 1.
        """
        chosen = select(self._outputs, start_tensor, end_tensor, step, name_pattern, op_types)
        self._dump_chosen(chosen, dump_with_index)

    def _dump_chosen(self, chosen: Sequence[NodeOutput], with_index: bool) -> None:
        names = None if len(chosen) == len(self._outputs) else [output.name for output in chosen]
        with self._progress.bar(f"dump by {self.engine.name}", "step") as advance:
            layers = run(self.model, self.engine, self.inputs, names, advance)
            self._write(layers, {output.name: output for output in chosen}, with_index, keep=False)

    def _write(
        self,
        layers: Iterable[Layer | NotDumped],
        indexed: Mapping[str, NodeOutput],
        with_index: bool,
        keep: bool = True,
    ) -> dict[str, np.ndarray]:
        if self._dump is None:
            graph = graph_for_dump(self.model)
            self._dump = DumpFolder(self.folder, self._meta(), self._progress, graph, self.model.layout)
        return self._dump.write(layers, self._inputs.arrays, indexed, with_index, keep)

    def _begin_with(self, inputs: ModelInputs) -> None:
        """Begin a new run with these inputs."""
        self._inputs = inputs
        self._dump = None

    def _meta(self) -> dict[str, Any]:
        return {
            "model_name": self.model.path.name,
            "model_dtype": self.model_dtype,
            **{f"default_{name}": value for name, value in vars(self._inputs.defaults).items()},
            "executor": self._executor_class,
            "extract_subgraph": self._extracted,
            "input_names": self._inputs.names,
            "output_names": [info.name for info in self.model.proto.graph.output],
            "node_output_names": self.get_node_output_names(),
        }


def _model(model: str | Path | Model | onnx.ModelProto) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Path):
        return open_model(model, native=True)
    return Model(inline_functions(model), Path("model.onnx"))
