"""The contract of an executor: one back-end behind four calls.

The calls are made in this order, which the base class checks: ``init``, ``load_model``, ``execute`` (as often as
wanted; another ``load_model`` may follow), ``release``. Every back-end that can be dumped or compared is an executor;
plug-ins are found by the entry point group ``sgsdump.executors``. As a context manager it releases itself, after a
failure too:

    with open_executor("ort") as executor:
        executor.load_model(proto)
        scores, boxes = executor.execute(["scores", "boxes"], {"input": array})

To write one: docs/own_executor.md; to prove it: ``sgsdump.executors.conformance``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sgsdump.errors import ConfigError, ModelError, SgsdumpError, hint
from sgsdump.models.graph import dtype_of, infer_types, sizes_of
from sgsdump.models.model import fitted, graph_inputs
from sgsdump.tensors.types import fits, shape_text

if TYPE_CHECKING:
    import onnx

    from sgsdump.models.model import InputSpec


Configs = Mapping[str, Any]


class Executor(ABC):
    """One back-end. A subclass writes ``on_load`` and ``on_execute``, and where it needs them ``on_init``,
    ``on_release`` and ``plain``; the four calls themselves check order, options, names, feeds and results.

    name             how it is called in ``--executor`` and in messages.
    init_options     what ``init`` takes: option -> one line that says what it does. Others are refused.
    load_options     the same for ``load_model``.
    execute_options  the same for ``execute``.
    inputs           what the loaded model takes.

    What a back-end raises while it loads or runs a model becomes one line, a ModelError; an error of its own making
    (SgsdumpError) goes through as it is.
    """

    name = ""
    init_options: ClassVar[Mapping[str, str]] = {}
    load_options: ClassVar[Mapping[str, str]] = {}
    execute_options: ClassVar[Mapping[str, str]] = {}
    inputs: tuple[InputSpec, ...] = ()
    _state = "new"
    _model: onnx.ModelProto | None = None

    def init(self, configs: Configs | None = None) -> None:
        """Set the back-end up. Raises ConfigError for an unknown option, MissingExtra for an absent package."""
        self._expect("init", "new", "released")
        configs = self._known("init", configs, self.init_options)
        self._state = "ready"
        try:
            self.on_init(configs)
        except BaseException:
            self.release()
            raise

    def load_model(self, model: onnx.ModelProto, configs: Configs | None = None, folder: str | None = None) -> None:
        """Make a model ready to run, in place of the one before; ``folder`` is where its external data files are.

        ``model`` is never changed. Raises ModelError.
        """
        self._expect("load_model", "ready", "loaded")
        configs = self._known("load_model", configs, self.load_options)
        self._state = "ready"
        self.inputs, self._model = graph_inputs(model), model
        with self._in_one_line("cannot load the model"):
            self.on_load(model, configs, folder)
        self._state = "loaded"

    def execute(
        self, output_names: Sequence[str], feed: Mapping[str, np.ndarray], configs: Configs | None = None
    ) -> list[np.ndarray]:
        """The named outputs of the loaded model, in the order of ``output_names``, in their own dtype and shape.

        feed  array by input name, of the declared dtype and shape (a bfloat16 input may come as float32).

        The arrays belong to the caller. Raises InputError for a feed that does not fit, ModelError for a name that is
        no output of the model, for an output that cannot be an array, for one of another element type or shape than
        the model's, and for a model that fails.
        """
        self._expect("execute", "loaded")
        assert self._model is not None
        outputs = [info.name for info in self._model.graph.output]
        configs = self._known("execute", configs, self.execute_options)
        for name in output_names:
            if name not in outputs:
                known = hint(name, outputs)
                raise ModelError(f"executor {self.name}: the loaded model has no output {name!r}{known}")
        feed = {name: _read_only(array) for name, array in fitted(feed, self.inputs).items()}
        with self._in_one_line("cannot run the model"):
            arrays = self.on_execute(list(output_names), feed, configs)
        _check_outputs(self._model, output_names, arrays, feed, f"executor {self.name}")
        return arrays

    def release(self) -> None:
        """Free everything; may be called in any state, and twice. ``init`` may follow."""
        if self._state not in ("new", "released"):
            self._state, self._model = "released", None
            self.on_release()

    def on_init(self, configs: Configs) -> None:  # noqa: B027 - setting up is optional
        """Nothing, unless a back-end has to be set up; ``configs`` holds known options only."""

    @abstractmethod
    def on_load(self, model: onnx.ModelProto, configs: Configs, folder: str | None) -> None:
        """Load ``model``, letting any earlier one go, without changing it; outputs may be without type and shape."""

    @abstractmethod
    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        """Newly allocated arrays for ``output_names``, never views of an internal buffer.

        The names are outputs of the model; ``feed`` fits it, in the model's own dtypes, and its arrays are read-only:
        the caller goes on using them.
        """

    def on_release(self) -> None:  # noqa: B027 - releasing is optional
        """Nothing, unless a back-end holds something; called once, also when ``on_init`` failed half-way."""

    def check_model(self, model: onnx.ModelProto) -> None:  # noqa: B027 - looking at it is optional
        """Nothing, unless a back-end sees in a whole model that it runs no part of it; raises ModelError then.

        Called before a model is run part by part, so that one line says it and not one for each tensor.
        """

    def plain(self, error: Exception) -> str:
        """The back-end's message as one line; override to name the node or to leave out noise."""
        return reason_of(error)

    def __enter__(self) -> Executor:
        if self._state in ("new", "released"):
            self.init()
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    def _expect(self, call: str, *states: str) -> None:
        if self._state not in states:
            raise ConfigError(
                f"executor {self.name}: {call} comes after {' or '.join(states)}, not when it is {self._state} "
                f"(the order is init, load_model, execute, release)"
            )

    def _known(self, call: str, configs: Configs | None, options: Mapping[str, str]) -> Configs:
        for key in configs or {}:
            if key not in options:
                takes = hint(key, options) if options else ", it takes none"
                raise ConfigError(f"executor {self.name}: {call} knows no option {key!r}{takes}")
        return configs or {}

    @contextmanager
    def _in_one_line(self, failure: str) -> Iterator[None]:
        try:
            yield
        except SgsdumpError:
            raise
        except Exception as error:
            raise ModelError(f"executor {self.name} {failure}: {self.plain(error)}") from error


def _check_outputs(
    model: onnx.ModelProto, names: Sequence[str], arrays: Sequence[Any], feed: Mapping[str, np.ndarray], giver: str
) -> None:
    """Raises ModelError for too few or too many outputs, and for an array of another element type or shape than the
    model's. Anything but an array (a sequence, nothing) is left to the caller.

    A shape that the model declares may be wrong, as exporters write some: where the array differs from it, or the model
    says nothing, inference from the feed's shapes decides. What inference does not know passes.
    """
    if len(arrays) != len(names):
        raise ModelError(f"{giver} gave {len(arrays)} arrays for {len(names)} outputs")
    declared = {info.name: info.type for info in model.graph.output}
    inferred: Mapping[str, onnx.TypeProto] | None = None
    for name, array in zip(names, arrays):
        if not isinstance(array, np.ndarray | np.generic) or _is_declared(array, declared[name]):
            continue
        if inferred is None:
            inferred = infer_types(model, {fed: value.shape for fed, value in feed.items()})
        kind = inferred.get(name, declared[name])
        dtype = _dtype(declared[name]) or _dtype(kind)
        if dtype is not None and array.dtype != dtype:
            raise ModelError(f"{giver} gave {array.dtype} for the output {name!r}, which is {dtype} in the model")
        sizes = sizes_of(kind)
        if name in inferred and sizes is not None and not fits(array.shape, sizes):
            raise ModelError(
                f"{giver} gave the shape {list(array.shape)} for the output {name!r}, "
                f"which is {shape_text(sizes)} in the model"
            )


def _is_declared(array: np.ndarray | np.generic, kind: onnx.TypeProto) -> bool:
    """Whether an array is what the model declares in full."""
    sizes = sizes_of(kind)
    return sizes is not None and array.dtype == _dtype(kind) and fits(array.shape, sizes)


def _dtype(kind: onnx.TypeProto) -> np.dtype | None:
    """The element type of a declared tensor as numpy has it; None where the model does not say, or for text."""
    dtype = dtype_of(kind.tensor_type.elem_type) if kind.tensor_type.elem_type else None
    return None if dtype is None or dtype.hasobject else dtype


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def reason_of(error: BaseException) -> str:
    """First non-empty line of the message, prefixed with the exception type when the message is too short."""
    line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
    return line if len(line.split()) > 3 else f"{type(error).__name__}: {line}".rstrip(": ")
