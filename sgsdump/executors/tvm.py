"""Executor ``tvm``: Apache TVM through its Relax importer, compiled for the local CPU, untuned.

Needs the extra ``tvm``. Relax's importer does not support LSTM, Loop, optional values and some float16 models. A Python
file can add your own optimisation passes, as accelerator vendors do. The file defines the function::

    def use_passes(ir_module, configs):        # or only (ir_module)
        return tvm.transform.Sequential([...])(ir_module)

The function receives the imported module and, as ``configs``, a dict of the options given to the executor.
"""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sgsdump.errors import ConfigError, MissingExtra, ModelError
from sgsdump.executors.base import Configs, Executor, reason_of
from sgsdump.files.user_module import blaming, import_file
from sgsdump.models.external_data import in_one_piece

if TYPE_CHECKING:
    from onnx import ModelProto


class TvmExecutor(Executor):
    """Back-end of Apache TVM."""

    name = "tvm"
    init_options: ClassVar = {
        "target": "TVM compilation target: llvm (default) or another CPU target such as 'llvm -mcpu=native'",
        "passes": "Python file with use_passes(ir_module, configs), which is called before the module is compiled",
    }
    _module: Any = None
    _machine: Any = None
    _said = io.StringIO()

    def on_init(self, configs: Configs) -> None:
        try:
            import tvm
            from tvm import relax
            from tvm.relax.frontend.onnx import from_onnx
        except ImportError:
            raise MissingExtra("executor tvm needs Apache TVM: pip install 'sgsdump[tvm]'") from None
        self._tvm, self._relax, self._from_onnx = tvm, relax, from_onnx
        self._configs = dict(configs)
        target = configs.get("target", "llvm")
        try:
            self._target = tvm.target.Target(target)
        except Exception as error:
            raise ConfigError(f"executor tvm: unknown target {target!r}: {self.plain(error)}") from error
        self._passes = _passes(Path(configs["passes"])) if configs.get("passes") else None

    def on_load(self, model: ModelProto, configs: Configs, folder: str | None) -> None:
        self._module = self._machine = None
        self._said = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(self._said):
            # The importer warns about outputs without a type, then infers the type. Its printed text names the operator
            # that failed (see ``plain``).
            warnings.simplefilter("ignore")
            module = self._from_onnx(in_one_piece(model, folder), keep_params_in_input=False)
        if self._passes:
            module = self._passes(module, self._configs)
            if not isinstance(module, self._tvm.IRModule):
                raise ConfigError(f"executor tvm: use_passes returned a {type(module).__name__}, not an IRModule")
        self._module = module
        executable = self._tvm.compile(module, target=self._target)
        self._machine = self._relax.VirtualMachine(executable, self._tvm.cpu())
        self._order = [spec.name for spec in self.inputs]
        self._index = {info.name: index for index, info in enumerate(model.graph.output)}

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        result = self._machine["main"](*(self._tvm.runtime.tensor(feed[name]) for name in self._order))
        tensors = [result] if len(self._index) == 1 else list(result)
        return [_array(tensors[self._index[name]]) for name in output_names]

    def ir_text(self) -> str:
        """Return the loaded model in Relax after the passes: one line per operator, with attributes, shapes and dtypes.

        Raises ModelError if no model is loaded.
        """
        if self._module is None:
            raise ModelError("executor tvm: no model is loaded; call load_model before ir_text")
        return self._module["main"].script(show_meta=False)

    def on_release(self) -> None:
        self._module = self._machine = None

    def plain(self, error: Exception) -> str:
        """Return the message, prefixed with the failing operator, which the importer prints but does not raise."""
        printed = self._said.getvalue().strip().splitlines()
        return ": ".join([*printed[-1:], reason_of(error)])


def _array(value: Any) -> np.ndarray:
    """Return a copy of a tensor; a shape or number that TVM computes itself becomes int64, as in ONNX."""
    return np.array(value.numpy()) if hasattr(value, "numpy") else np.array(value, np.int64)


def _passes(file: Path) -> Any:
    """Return the file's ``use_passes`` as a function of module and configs. Raises ConfigError, InputError."""
    if not file.is_file():
        raise ConfigError(f"executor tvm: passes file {file} not found")
    function = getattr(import_file(file, "passes"), "use_passes", None)
    if not callable(function):
        raise ConfigError(f"executor tvm: {file} has no function use_passes(ir_module, configs)")
    alone = len(inspect.signature(function).parameters) == 1

    def run(module: Any, configs: Mapping[str, Any]) -> Any:
        with blaming(file, "passes"):
            return function(module) if alone else function(module, dict(configs))

    return run
