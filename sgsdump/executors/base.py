"""The interface of an executor, which runs models with one back-end.

There are four calls: ``init``, ``load_model``, ``execute`` (any number of times, then possibly another ``load_model``)
and ``release``. The base class checks the order of these calls. sgsdump runs every back-end through an executor.
sgsdump finds executors of plug-ins through the entry-point group ``sgsdump.executors``. At the end of a ``with``
statement, an executor releases its resources, also after an error::

    with open_executor("ort") as executor:
        executor.load_model(proto)
        scores, boxes = executor.execute(["scores", "boxes"], {"input": array})

docs/own_executor.md explains how to write an executor. The module ``sgsdump.executors.conformance`` tests an executor.
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
    """Base class of all back-ends.

    A subclass implements ``on_load`` and ``on_execute``, and overrides ``on_init``, ``on_release``, ``check_model`` and
    ``plain`` if needed. The four public methods check the order of the calls, and check all options, names, feeds and
    results.

    Attributes
    ----------
    name : str
        Name of the executor in ``--executor`` and in messages.
    init_options, load_options, execute_options : Mapping[str, str]
        Options that ``init``, ``load_model`` and ``execute`` accept, each with one line of help. Any other option
        raises ConfigError.
    inputs : tuple of InputSpec
        Inputs of the loaded model.

    Notes
    -----
    If a back-end raises an exception while it loads or runs a model, a ModelError of one line is raised instead. An
    SgsdumpError of the back-end is not converted to a ModelError, but raised unchanged.

    Examples
    --------
    ::

        class MyExecutor(Executor):
            name = "mine"

            def on_load(self, model, configs, folder):
                self._session = my_runtime.Session(model.SerializeToString())

            def on_execute(self, output_names, feed, configs):
                return self._session.run(output_names, feed)
    """

    name = ""
    init_options: ClassVar[Mapping[str, str]] = {}
    load_options: ClassVar[Mapping[str, str]] = {}
    execute_options: ClassVar[Mapping[str, str]] = {}
    inputs: tuple[InputSpec, ...] = ()
    _state = "new"
    _model: onnx.ModelProto | None = None

    def init(self, configs: Configs | None = None) -> None:
        """Set up the back-end.

        Parameters
        ----------
        configs : Mapping[str, Any], optional
            Values of the options in ``init_options``.

        Raises
        ------
        ConfigError
            If an option is unknown, or if the executor is already initialised.
        MissingExtra
            If a package that the back-end needs is not installed.
        """
        self._expect("init", "new", "released")
        configs = self._known("init", configs, self.init_options)
        self._state = "ready"
        try:
            self.on_init(configs)
        except BaseException:
            self.release()
            raise

    def load_model(self, model: onnx.ModelProto, configs: Configs | None = None, folder: str | None = None) -> None:
        """Load a model and make it ready to run. The model replaces any previous model.

        Parameters
        ----------
        model : onnx.ModelProto
            The model. ``load_model`` never changes the model.
        configs : Mapping[str, Any], optional
            Values of the options in ``load_options``.
        folder : str, optional
            Folder of the model's external data files.

        Raises
        ------
        ModelError
            If the back-end cannot load the model.
        ConfigError
            If an option is unknown, or ``init`` was not called.
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
        """Run the loaded model and return the named outputs.

        Parameters
        ----------
        output_names : sequence of str
            Names of model outputs.
        feed : Mapping[str, np.ndarray]
            Arrays by input name, each with the declared dtype and shape. A bfloat16 input may be given as float32.
        configs : Mapping[str, Any], optional
            Values of the options in ``execute_options``.

        Returns
        -------
        list of np.ndarray
            The outputs in the order of ``output_names``, with the dtype and shape of the model. The caller is allowed
            to modify the returned arrays.

        Raises
        ------
        InputError
            If the feed does not match the inputs of the model.
        ModelError
            If a name is not an output of the model, if the model fails, or if an output is not an array of the declared
            element type and shape.
        ConfigError
            If an option is unknown, or no model is loaded.
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
        """Free all resources.

        This method may be called at any time and repeatedly. After ``release``, ``init`` can be called again.
        """
        if self._state not in ("new", "released"):
            self._state, self._model = "released", None
            self.on_release()

    def on_init(self, configs: Configs) -> None:  # noqa: B027 - overriding is optional
        """Set up the back-end. Override this method if the back-end needs a set-up; the default does nothing.

        Parameters
        ----------
        configs : Mapping[str, Any]
            Options that the caller set. Each name is a key of ``init_options``.
        """

    @abstractmethod
    def on_load(self, model: onnx.ModelProto, configs: Configs, folder: str | None) -> None:
        """Load ``model`` and drop any earlier model.

        Parameters
        ----------
        model : onnx.ModelProto
            The model; it must not be changed. The model's outputs may lack type and shape.
        configs : Mapping[str, Any]
            Options that the caller set. Each name is a key of ``load_options``.
        folder : str or None
            Folder of the external data files.

        Raises
        ------
        Exception
            Any exception becomes a ModelError. The method ``plain`` returns the message of the ModelError.
        """

    @abstractmethod
    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        """Return newly allocated arrays for ``output_names``, never views of an internal buffer.

        Parameters
        ----------
        output_names : list of str
            Names of model outputs; the base class has checked the names.
        feed : Mapping[str, np.ndarray]
            Arrays that match the model's inputs in dtype and shape. The arrays are read-only, because the caller
            still uses their memory.
        configs : Mapping[str, Any]
            Options that the caller set. Each name is a key of ``execute_options``.

        Returns
        -------
        list of np.ndarray
            One array per name, in the same order, each with the dtype and shape of this output of the model.

        Raises
        ------
        Exception
            Any exception becomes a ModelError. The method ``plain`` returns the message of the ModelError.
        """

    def on_release(self) -> None:  # noqa: B027 - overriding is optional
        """Free the resources of the back-end. The default does nothing.

        The base class calls this method one time for each call of ``init``, even if ``on_init`` raised an exception.
        """

    def check_model(self, model: onnx.ModelProto) -> None:  # noqa: B027 - overriding is optional
        """Raise ModelError if the back-end cannot run any part of the model. The default does nothing.

        Before sgsdump runs a model part by part, sgsdump calls this method. If the method raises an error, the user
        sees one error message instead of one message per tensor.
        """

    def plain(self, error: Exception) -> str:
        """Return the back-end's error message as one line.

        Override this method to name the failing node or to remove irrelevant text from the message.
        """
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
                f"executor {self.name}: {call} needs the state {' or '.join(states)}, but the state is {self._state}. "
                f"Call init, load_model, execute, release in this order."
            )

    def _known(self, call: str, configs: Configs | None, options: Mapping[str, str]) -> Configs:
        for key in configs or {}:
            if key not in options:
                takes = hint(key, options) if options else "; it accepts no options"
                raise ConfigError(f"executor {self.name}: {call} has no option {key!r}{takes}")
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
    """Raise ModelError if the number of arrays, an element type or a shape differs from the model.

    Values that are not arrays, such as a sequence or None, may be returned; the caller rejects or converts
    them. Exporters sometimes declare a wrong shape or no shape. An array must therefore have either the declared
    shape or the shape inferred from the feed. If a dimension cannot be inferred, any size of this dimension is
    accepted.
    """
    if len(arrays) != len(names):
        raise ModelError(f"{giver} returned {len(arrays)} arrays for {len(names)} outputs")
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
            raise ModelError(f"{giver} returned {array.dtype} for output {name!r}; the model declares {dtype}")
        sizes = sizes_of(kind)
        if name in inferred and sizes is not None and not fits(array.shape, sizes):
            raise ModelError(
                f"{giver} returned shape {list(array.shape)} for output {name!r}; the model declares "
                f"{shape_text(sizes)}"
            )


def _is_declared(array: np.ndarray | np.generic, kind: onnx.TypeProto) -> bool:
    """Return whether an array has exactly the declared element type and shape."""
    sizes = sizes_of(kind)
    return sizes is not None and array.dtype == _dtype(kind) and fits(array.shape, sizes)


def _dtype(kind: onnx.TypeProto) -> np.dtype | None:
    """Return the numpy dtype of a declared tensor; None if the type is unknown or the tensor holds text."""
    dtype = dtype_of(kind.tensor_type.elem_type) if kind.tensor_type.elem_type else None
    return None if dtype is None or dtype.hasobject else dtype


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def reason_of(error: BaseException) -> str:
    """Return the first non-empty line of an exception's message.

    If this line has at most three words, the type of the exception is put before the line.
    """
    line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
    return line if len(line.split()) > 3 else f"{type(error).__name__}: {line}".rstrip(": ")
