"""Models in memory, their inputs, the ``ModelReader`` interface, and ``open_model``.

Every model is an ONNX ModelProto in memory, whatever its file format. To add a framework, write ``models/NAME.py`` with
a module-level ``READER = ModelReader(...)`` and list it in ``models/__init__.py``.

A model made from a Caffe network has a table in its metadata that maps tensors to stages of blobs. The fixed model
keeps the table, so readers of reports, range files and dumps need no prototxt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_dtypes import iinfo

from sgsdump.errors import ConfigError, FormatError, InputError, ModelError, hint
from sgsdump.files.bounded_read import open_file
from sgsdump.models import MODELS
from sgsdump.models.graph import dtype_of, needs, sizes_of, weight_names
from sgsdump.models.passes.extract import extract
from sgsdump.tensors.dtypes import dtype_named, is_float, is_integer
from sgsdump.tensors.stages import KEY, Stage, table_of
from sgsdump.tensors.types import NCHW, NHWC, Quant, Range, fits, shape_text, to_nchw, to_nhwc

if TYPE_CHECKING:
    import onnx

    from sgsdump.models.converter_facts import ConverterFacts
    from sgsdump.models.listing import ModelListing
    from sgsdump.models.passes.branches import Branches
    from sgsdump.models.passes.converted import RunningStatistics
    from sgsdump.sidecars.parse_net import ParseNet

HEAD_BYTES = 4096
NATIVE = ("tflite", "openvino")
"""Names of readers whose models only the framework of the same name can run."""
CODES = "sgsdump.codes"
"""Metadata key of an input that is declared as float32 real values, and also accepts codes of this type."""
_NO_TENSORS = {
    "sequence_type": "a sequence",
    "optional_type": "an optional value",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
}


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    shape  None for each size that is not fixed; 4-D is NCHW or NHWC
    dtype  numpy type; float32 for bfloat16
    also   further types that are accepted unchanged: bfloat16 if the model's input has this type, or the code type of a
           quantised input
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype
    also: tuple[np.dtype, ...] = ()


def fit(array: np.ndarray, spec: InputSpec, layout: str, what: str) -> np.ndarray:
    """Return ``array`` in the input's shape and dtype, C-contiguous; ``what`` begins the error messages.

    A missing batch axis is added. A 4-D array is transposed if only the transposed array fits. If both fit, NHWC is
    transposed and NCHW is not. Raises InputError for another shape, NaN or Inf, and values that the dtype cannot
    represent.
    """
    batched = array[None] if array.ndim == len(spec.shape) - 1 else array
    transposed = [to_nchw(batched), to_nhwc(batched)]
    ways = [transposed[0], batched, transposed[1]] if layout == NHWC else [batched, *transposed]
    fitting = next((way for way in ways if fits(way.shape, spec.shape)), None)
    if fitting is None:
        raise InputError(
            f"{what} has shape {shape_text(array.shape)}, "
            f"but the model's input {spec.name!r} takes {shape_text(spec.shape)}{_of_batch(ways, spec)}"
        )
    if fitting.dtype.kind == "f" and not np.isfinite(fitting).all():
        raise InputError(f"{what} holds {np.count_nonzero(~np.isfinite(fitting))} NaN or infinite values")
    return np.asarray(_cast(fitting, spec, what), order="C")


def _of_batch(ways: Sequence[np.ndarray], spec: InputSpec) -> str:
    """Return advice for an array that differs from the input only in its first axis, otherwise ""."""
    batch = spec.shape[0] if spec.shape else None
    sizes = {len(way) for way in ways if way.ndim and fits(way.shape[1:], spec.shape[1:])}
    if batch == 1 and sizes:
        return ": give one file per sample, or a data loader that yields one at a time (--data-loader-script)"
    return f": give .npy files with a batch of {batch}, or export the model for batch 1" if batch and 1 in sizes else ""


def _cast(array: np.ndarray, spec: InputSpec, what: str) -> np.ndarray:
    if array.dtype in spec.also:
        return array
    if is_integer(spec.dtype) and array.size:
        limits = iinfo(spec.dtype)
        rounded = np.rint(array) if array.dtype.kind == "f" else array
        low, high = rounded.min(), rounded.max()
        if low < limits.min or high > limits.max:
            raise InputError(
                f"{what} holds values from {low} to {high}, but the model's input {spec.name!r} is {spec.dtype}"
            )
        return rounded.astype(spec.dtype, copy=False)
    with np.errstate(over="ignore"):
        cast = array.astype(spec.dtype, copy=False)
    if cast is not array and is_float(spec.dtype) and not np.isfinite(cast).all():
        raise InputError(f"{what} holds values too large for the model's input {spec.name!r}, which is {spec.dtype}")
    return cast


def check_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> None:
    """Raise InputError, with expected and given type and shape, if a feed does not fit the inputs."""
    specs = {spec.name: spec for spec in inputs}
    for name in feed:
        if name not in specs:
            raise InputError(f"the model has no input {name!r}{hint(name, specs)}")
    for name, spec in specs.items():
        expected = f"{spec.dtype} {shape_text(spec.shape)}"
        if name not in feed:
            raise InputError(f"no value is given for the model's input {name!r}, which expects {expected}")
        array = feed[name]
        if array.dtype not in (spec.dtype, *spec.also) or not fits(array.shape, spec.shape):
            actual = f"{array.dtype} {shape_text(array.shape)}"
            raise InputError(f"the model's input {name!r} expects {expected}, got {actual}")


def fitted(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    """Check the feed and return it in the model's own dtypes; raises InputError as ``check_feed``.

    A float32 array for a bfloat16 input is rounded to nearest even.
    """
    check_feed(feed, inputs)
    rounded = {spec.name: spec.also[0] for spec in inputs if spec.also}
    return {name: array.astype(rounded[name]) if name in rounded else array for name, array in feed.items()}


@dataclass(frozen=True)
class PostProcessingCut:
    """Position at which a network was cut before its final post-processing, which sgsdump does not compute.

    first    name and type of the first post-processing layer
    layers   names of all removed layers in network order, including layers that only served them
    blobs    outputs of the removed layers, and inputs that no other layer reads
    outputs  outputs of the cut network, in order
    """

    first: tuple[str, str]
    layers: tuple[str, ...]
    blobs: frozenset[str]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Native:
    """Facts from the file of a model that only its own framework runs; the model's ``proto`` is the graph alone.

    runtime    runtime that runs the model, a name in ``executors.native.RUNTIMES``
    kind       model type in messages
    layout     order of the axes of 4-D tensors
    quants     quantisation of quantised tensors, including constants, by name
    keys       key of a tensor in the runtime, by name
    unseen     reason why no run gives a tensor, by name
    constants  start and size in bytes of a constant's values in the file, by name, if the file gives them
    """

    runtime: str
    kind: str
    layout: str
    quants: Mapping[str, Quant]
    keys: Mapping[str, tuple[str | int, ...]]
    unseen: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CaffeLayers:
    """Layers of a Caffe network: name, type and message of each.

    other_weights  layers with double- or half-precision weights
    """

    layers: tuple[tuple[str, str, Any], ...]
    other_weights: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A model in memory.

    proto            graph, without weights kept in external data files
    path             file of the model, or path shown in messages
    folder           folder of the external data files; None if there are none
    blobs            tensors that the framework itself shows, if not all (Caffe: its blobs)
    overwritten      tensors overwritten by an in-place layer of the framework
    cut              post-processing that was removed from the framework's model
    repeated_layers  names shared by several layers of the framework's file
    caffe            layers of a Caffe network that was read as by the SDK's converter
    converter        parts that the SDK's converter refuses or changes, if checked
    native           facts of a model that only its own framework runs
    branches         Ifs that were replaced by the branch they run, if checked
    trained          running statistics of BatchNormalizations that are written as factors and offsets
    """

    proto: onnx.ModelProto
    path: Path
    folder: Path | None = None
    blobs: frozenset[str] | None = None
    overwritten: frozenset[str] = frozenset()
    cut: PostProcessingCut | None = None
    repeated_layers: tuple[str, ...] = ()
    caffe: CaffeLayers | None = None
    converter: ConverterFacts | None = None
    native: Native | None = None
    branches: Branches | None = None
    trained: tuple[RunningStatistics, ...] = ()

    @property
    def layout(self) -> str:
        """Order of the axes of the model's 4-D tensors."""
        return self.native.layout if self.native else NCHW


@dataclass(frozen=True)
class Part:
    """The part of a model between these tensors; empty means the model's own inputs or outputs."""

    model_inputs: Sequence[str] = ()
    model_outputs: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.model_inputs or self.model_outputs)

    def of(self, model: Model) -> Model:
        """Return this part of a model.

        Raises ConfigError for an unknown name, for outputs that do not depend on a named input, and if no operator is
        left. Raises ModelError if the element type of an input is unknown.
        """
        if not self:
            return model
        if model.native is not None:
            raise ConfigError(
                f"{model.path}: {model.native.kind} runs the model only as a whole; "
                f"remove --model-inputs and --model-outputs"
            )
        graph = model.proto.graph
        proto = extract(model.proto, self.model_inputs, self.model_outputs or [info.name for info in graph.output])
        if not proto.graph.node:
            raise ConfigError("no operator lies between --model-inputs and --model-outputs; name other tensors")
        read = {name for node in proto.graph.node for name in needs(node)}
        unread = [name for name in self.model_inputs if name not in read]
        if unread:
            raise ConfigError(
                f"no output of the selected part depends on {unread[0]!r} in --model-inputs; remove "
                "this name, or select an output that depends on this tensor"
            )
        return replace(model, proto=proto, cut=None if self.model_outputs else model.cut)


WHOLE = Part()


@dataclass(frozen=True)
class ModelReader:
    """Reader of one model format, implemented by plug-ins.

    Attributes
    ----------
    name : str
        Format name.
    recognises : callable
        ``recognises(path, head) -> bool``: whether the file has this format. ``head`` is the first HEAD_BYTES bytes.
    read : callable
        ``read(path) -> Model``, or ``read(path, weights) -> Model`` if ``takes_weights``, where ``weights`` is the path
        of the weight file or None. Raises ModelError for a file that cannot be read.
    takes_weights : bool
        Whether the weights are in a separate file.
    read_in_place : callable, optional
        ``read_in_place(path) -> Model``: as ``read``, but large weights stay in the model's file.
    read_staged : callable, optional
        ``read_staged(path, weights, outputs) -> Model``: the model with the tensors and names of the SDK's converter,
        if these differ from the framework's.
    listing : callable, optional
        ``listing(path) -> ModelListing``: content of the file for ``sgsdump show``.
    net : callable, optional
        ``net(path) -> ParseNet``: tensors of a fixed model of the SDK, as its parse_net prints them.
    net_text : callable, optional
        ``net_text(path) -> str``: text that parse_net prints for a fixed model.
    endings : tuple of str
        File name endings that belong to this reader even if the file is empty or damaged.

    Raises
    ------
    ModelError
        By every function that reads a file, if the file is damaged or not supported.

    Examples
    --------
    A reader for files that begin with ``MINE``; ``read_mine`` returns a ``Model``::

        READER = ModelReader("mine", lambda path, head: head.startswith(b"MINE"), read_mine)
    """

    name: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[..., Model]
    takes_weights: bool = False
    read_in_place: Callable[[Path], Model] | None = None
    read_staged: Callable[[Path, Path | None, Sequence[str]], Model] | None = None
    listing: Callable[[Path], ModelListing] | None = None
    net: Callable[[Path], ParseNet] | None = None
    net_text: Callable[[Path], str] | None = None
    endings: tuple[str, ...] = ()


def open_model(
    path: str | Path,
    weights: str | Path | None = None,
    in_place: bool = False,
    staged_outputs: Sequence[str] | None = None,
    native: bool = False,
    part: Part = WHOLE,
) -> Model:
    """Read a model of any known framework, recognised by its content.

    weights         .caffemodel of a Caffe model
    in_place        True for callers that run the model without changing it: large weights may stay in its file, as
                    external data whose file is the model's own
    staged_outputs  for quantisation and simulation: read a Caffe model as the SDK's converter does, with these blobs as
                    outputs besides blobs that no layer reads
    native          True for callers that use ``executors.native`` for models that only their own framework can run
    part            part of the model, with the reader's names

    Raises ModelError, one line, if the file is missing, empty, damaged or of an unknown kind, and the errors of
    ``Part.of``.
    """
    path = Path(path)
    head = _head(path)
    for reader in MODELS.values():
        if reader.recognises(path, head):
            if reader.read_staged and staged_outputs is not None:
                return part.of(reader.read_staged(path, Path(weights) if weights else None, staged_outputs))
            if reader.takes_weights:
                return part.of(reader.read(path, Path(weights) if weights else None))
            if weights:
                raise ModelError(f"{path} holds its own weights; give a weight file only with a Caffe .prototxt")
            model = ((in_place and reader.read_in_place) or reader.read)(path)
            if model.native and not native:
                raise ModelError(
                    f"{path} is a {model.native.kind} model, which sgsdump can run only as a "
                    "whole. Use sgsdump dump or sgsdump pipeline, or compare the model with its quantised copy: "
                    "sgsdump diagnose -m FLOAT --fixed QUANTISED. For other commands, convert the model to ONNX"
                )
            return part.of(model)
    raise ModelError(f"{path} is not a model of a known framework ({', '.join(MODELS)})")


def listing_of(path: Path) -> ModelListing | None:
    """Return the contents of a model file in its own format, or None if no reader lists them. Raises ModelError."""
    reader = _reader_with("listing", path)
    return reader.listing(path) if reader is not None and reader.listing is not None else None


def net_of(path: Path | str) -> ParseNet:
    """Return the tensors of a fixed model, from its own file or from parse_net text.

    Raises ModelError, FormatError and ConfigError.
    """
    from sgsdump.sidecars import parse_net

    reader = _reader_with("net", Path(path))
    return reader.net(Path(path)) if reader is not None and reader.net is not None else parse_net.read(path)


def is_listed(path: Path) -> bool:
    """Return whether ``listing_of`` lists the file."""
    return _reader_with("listing", path) is not None


def net_text_of(path: Path) -> str:
    """Return the text that parse_net prints for a fixed model's file. Raises ModelError, also for another file."""
    reader = _reader_with("net_text", path)
    if reader is None or reader.net_text is None:
        raise ModelError(
            f"{path} is neither a fixed.sim nor an offline image; parse_net text exists only for these "
            "two types of file"
        )
    return reader.net_text(path)


def has_net(path: Path | str) -> bool:
    """Return whether a file is a fixed model of the SDK, which ``net_of`` and ``ranges_of`` read."""
    return _reader_with("net", Path(path)) is not None


def ranges_of(path: Path | str) -> dict[str, Range]:
    """Return the calibration ranges of a range file, or of a fixed model of the SDK.

    Raises ModelError, FormatError and ConfigError.
    """
    from sgsdump.sidecars.tensor_min_max import read_ranges

    if not has_net(path):
        return read_ranges(path)
    tensors = net_of(path).tensors.values()
    return {
        each.name: Range.of(each.low, each.high) for each in tensors if each.low is not None and each.high is not None
    }


def _reader_with(function: str, path: Path) -> ModelReader | None:
    """Return the reader of a file if it has this function, otherwise None."""
    if not path.is_file():
        return None
    readers = [reader for reader in MODELS.own.values() if getattr(reader, function) is not None]
    if not path.stat().st_size and not any(path.suffix in reader.endings for reader in readers):
        return None
    head = _head(path)
    return next((reader for reader in readers if reader.recognises(path, head)), None)


def runtime_of(path: Path) -> str:
    """Return the only runtime that runs a model, or "" if any executor can; from the file header. Raises ModelError."""
    head = _head(path)
    reader = next((name for name, reader in MODELS.items() if reader.recognises(path, head)), "")
    return reader if reader in NATIVE else ""


def graph_inputs(proto: onnx.ModelProto) -> tuple[InputSpec, ...]:
    """Return the inputs that a user has to feed, in the model's order.

    Older models list their weights among the graph inputs; weights are skipped. bfloat16 inputs are fed as float32,
    which users have, or as bfloat16. Other types beyond numpy are those of ml_dtypes. Raises ModelError for an input
    that is not a tensor with a shape and type that can be fed.
    """
    weights = weight_names(proto.graph)
    return tuple(_input_spec(info) for info in proto.graph.input if info.name not in weights)


def _input_spec(info: onnx.ValueInfoProto) -> InputSpec:
    import onnx

    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"input {info.name!r} of the model is {_NO_TENSORS.get(kind, 'untyped')}; sgsdump feeds only tensors: "
            f"export the model with a tensor input"
        )
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        raise ModelError(f"input {info.name!r} of the model has no shape; export the model with a shape")
    shape = tuple(sizes_of(info.type) or ())
    if tensor.elem_type == onnx.TensorProto.STRING:
        raise ModelError(f"input {info.name!r} of the model takes text; sgsdump feeds only numbers")
    if tensor.elem_type == onnx.TensorProto.BFLOAT16:
        import ml_dtypes

        return InputSpec(info.name, shape, np.dtype(np.float32), (np.dtype(ml_dtypes.bfloat16),))
    dtype = dtype_of(tensor.elem_type)
    codes = next((prop.value for prop in info.metadata_props if prop.key == CODES), "")
    if codes and dtype == np.float32:
        return InputSpec(info.name, shape, dtype, (dtype_named(codes),))
    if dtype is None:
        raise ModelError(f"input {info.name!r} of the model has an unknown element type {tensor.elem_type}")
    if dtype.name in ("int2", "uint2"):
        raise ModelError(f"input {info.name!r} of the model is {dtype.name}, which sgsdump cannot feed")
    return InputSpec(info.name, shape, dtype)


def _head(path: Path) -> bytes:
    if path.is_dir():
        raise ModelError(f"{path} is a folder; give the path of the model file in this folder")
    try:
        with open_file(path) as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise ModelError(f"no such model file: {path}") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    if not head:
        raise ModelError(f"{path} is empty; export or download the model again")
    return head


def write_stages(proto: onnx.ModelProto, stages: Iterable[Stage]) -> None:
    """Add the table of stages, in network order, to a model that has none."""
    proto.metadata_props.add(key=KEY, value=json.dumps([list(stage) for stage in stages], ensure_ascii=False))


def read_stages(proto: onnx.ModelProto) -> tuple[Stage, ...]:
    """Return the stages in network order, () for other frameworks. Raises ModelError for a damaged table."""
    text = next((prop.value for prop in proto.metadata_props if prop.key == KEY), None)
    try:
        return () if text is None else table_of(text)
    except FormatError as error:
        raise ModelError(str(error)) from None
