"""Apache TVM by its Relax importer, compiled for this machine's processor, untuned. Extra ``tvm``.

LSTM, Loop and optional values are beyond Relax's importer, and so are some float16 models. Your own optimising
passes come from a Python file, as users of accelerators have them, with a function

    def use_passes(ir_module, configs):        # or only (ir_module)
        return tvm.transform.Sequential([...])(ir_module)

that is called with the imported module and, as ``configs``, a dict of the options given to the executor.
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
    name = "tvm"
    init_options: ClassVar = {
        "target": "what TVM compiles for: llvm, the default, or another CPU target such as 'llvm -mcpu=native'",
        "passes": "a Python file with use_passes(ir_module, configs), run on the module before it is compiled",
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
            raise MissingExtra("the executor tvm needs Apache TVM: pip install 'sgsdump[tvm]'") from None
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
            # The importer calls outputs without a type a mistake, and goes on to infer it; what it prints says where
            # it failed.
            warnings.simplefilter("ignore")
            module = self._from_onnx(in_one_piece(model, folder), keep_params_in_input=False)
        if self._passes:
            module = self._passes(module, self._configs)
            if not isinstance(module, self._tvm.IRModule):
                raise ConfigError(f"executor tvm: use_passes gave a {type(module).__name__}, not an IRModule")
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
        """The loaded model in Relax, after the passes: one line an operator, with attributes, shapes and dtypes.

        Raises ModelError when no model is loaded.
        """
        if self._module is None:
            raise ModelError("executor tvm: no model is loaded; ir_text comes after load_model")
        return self._module["main"].script(show_meta=False)

    def on_release(self) -> None:
        self._module = self._machine = None

    def plain(self, error: Exception) -> str:
        """The importer prints the operator at fault and raises something else."""
        printed = self._said.getvalue().strip().splitlines()
        return ": ".join([*printed[-1:], reason_of(error)])


def _array(value: Any) -> np.ndarray:
    """A copy of a tensor; a shape or a number computed by TVM itself as int64, as ONNX has them."""
    return np.array(value.numpy()) if hasattr(value, "numpy") else np.array(value, np.int64)


def _passes(file: Path) -> Any:
    """The file's ``use_passes`` as a function of module and configs. Raises ConfigError, InputError."""
    if not file.is_file():
        raise ConfigError(f"executor tvm: no such passes file: {file}")
    function = getattr(import_file(file, "passes"), "use_passes", None)
    if not callable(function):
        raise ConfigError(f"executor tvm: {file} has no function use_passes(ir_module, configs)")
    alone = len(inspect.signature(function).parameters) == 1

    def run(module: Any, configs: Mapping[str, Any]) -> Any:
        with blaming(file, "passes"):
            return function(module) if alone else function(module, dict(configs))

    return run
