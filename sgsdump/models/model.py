"""Models in memory, their inputs and how an array fits one, the contract of a model reader, and ``open_model``.

Whatever a model was written in, it is an ONNX ModelProto from here on. To add a framework: write ``models/NAME.py``
with a module-level ``READER = ModelReader(...)`` and list it in ``models/__init__.py``.

A model made of a Caffe net carries a table in its metadata: which tensor is which stage of which blob. It travels with
the fixed model: a reader of a report, a range file or a dump needs no prototxt.
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
"""Readers of models that only their own framework runs, which has the same name."""
CODES = "sgsdump.codes"
"""Key of an input's metadata: it is declared as the float32 that it means, and takes codes of this type too."""
_NO_TENSORS = {
    "sequence_type": "a sequence",
    "optional_type": "an optional value",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
}


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    shape  None for every size that is not fixed; 4-D is NCHW, or NHWC.
    dtype  numpy's; float32 for bfloat16.
    also   the model's own dtype where that is bfloat16, or that of a quantised input's codes; such arrays are taken as
           they are.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype
    also: tuple[np.dtype, ...] = ()


def fit(array: np.ndarray, spec: InputSpec, layout: str, what: str) -> np.ndarray:
    """``array`` in the input's shape and dtype, C-contiguous; ``what`` begins the error messages.

    A missing batch axis is added; a 4-D array is transposed when only so it fits. Where both ways fit, NHWC is
    transposed and NCHW left. Raises InputError for another shape, NaN or Inf, and values the dtype cannot hold.
    """
    batched = array[None] if array.ndim == len(spec.shape) - 1 else array
    transposed = [to_nchw(batched), to_nhwc(batched)]
    ways = [transposed[0], batched, transposed[1]] if layout == NHWC else [batched, *transposed]
    fitting = next((way for way in ways if fits(way.shape, spec.shape)), None)
    if fitting is None:
        raise InputError(
            f"{what} has the shape {shape_text(array.shape)}, "
            f"the model's input {spec.name!r} takes {shape_text(spec.shape)}{_of_batch(ways, spec)}"
        )
    if fitting.dtype.kind == "f" and not np.isfinite(fitting).all():
        raise InputError(f"{what} holds {np.count_nonzero(~np.isfinite(fitting))} NaN or infinite values")
    return np.asarray(_cast(fitting, spec, what), order="C")


def _of_batch(ways: Sequence[np.ndarray], spec: InputSpec) -> str:
    """What to do about an array that the input would take but for its first axis; empty where it is not that."""
    batch = spec.shape[0] if spec.shape else None
    sizes = {len(way) for way in ways if way.ndim and fits(way.shape[1:], spec.shape[1:])}
    if batch == 1 and sizes:
        return ": give a file for each of them, or a data loader that yields one at a time (--data-loader-script)"
    return f": give .npy files of {batch} at once, or export it for a batch of 1" if batch and 1 in sizes else ""


def _cast(array: np.ndarray, spec: InputSpec, what: str) -> np.ndarray:
    if array.dtype in spec.also:
        return array
    if is_integer(spec.dtype) and array.size:
        limits = iinfo(spec.dtype)
        rounded = np.rint(array) if array.dtype.kind == "f" else array
        low, high = rounded.min(), rounded.max()
        if low < limits.min or high > limits.max:
            raise InputError(
                f"{what} holds values from {low} to {high}, the model's input {spec.name!r} is {spec.dtype}"
            )
        return rounded.astype(spec.dtype, copy=False)
    with np.errstate(over="ignore"):
        cast = array.astype(spec.dtype, copy=False)
    if cast is not array and is_float(spec.dtype) and not np.isfinite(cast).all():
        raise InputError(f"{what} holds values too large for the model's input {spec.name!r}, which is {spec.dtype}")
    return cast


def check_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> None:
    """Raises InputError, naming the expected and the given type and shape, when a feed does not fit the inputs."""
    specs = {spec.name: spec for spec in inputs}
    for name in feed:
        if name not in specs:
            raise InputError(f"the model has no input {name!r}{hint(name, specs)}")
    for name, spec in specs.items():
        expected = f"{spec.dtype} {shape_text(spec.shape)}"
        if name not in feed:
            raise InputError(f"the model's input {name!r} is not fed; it expects {expected}")
        array = feed[name]
        if array.dtype not in (spec.dtype, *spec.also) or not fits(array.shape, spec.shape):
            actual = f"{array.dtype} {shape_text(array.shape)}"
            raise InputError(f"the model's input {name!r} expects {expected}, got {actual}")


def fitted(feed: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    """The feed, checked, in the model's own dtypes: what goes to a bfloat16 input may come as float32 too, and is
    rounded to nearest even. Raises InputError as ``check_feed``."""
    check_feed(feed, inputs)
    rounded = {spec.name: spec.also[0] for spec in inputs if spec.also}
    return {name: array.astype(rounded[name]) if name in rounded else array for name, array in feed.items()}


@dataclass(frozen=True)
class PostProcessingCut:
    """Where a network was cut before the post-processing that it ends in, which is not computed here.

    first    name and type of its first layer of post-processing.
    layers   the names of all layers that went, in the network's order: also those that only served them.
    blobs    what those made, and the inputs that nothing else reads.
    outputs  what the network ends in now, in its order.
    """

    first: tuple[str, str]
    layers: tuple[str, ...]
    blobs: frozenset[str]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Native:
    """What is known of a model that only its own framework runs, from its file; its ``proto`` is the graph alone.

    runtime  who runs it, a name in ``executors.native.RUNTIMES``.
    kind     what it is called in messages.
    layout   the order of the axes of its 4-D tensors.
    quants   how its quantised tensors are dequantised, by name, constants among them.
    keys     how the runtime finds a tensor, by name.
    unseen   by name what no run gives, and why.
    constants  by name where a constant's values begin in the file, and how many bytes they take, as far as it says so.
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
    """The layers of a Caffe net: the name, the type and the message of each.

    other_weights  the layers whose weights are doubles or half-precision numbers.
    """

    layers: tuple[tuple[str, str, Any], ...]
    other_weights: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A model in memory.

    proto    the graph; weights kept in external data files are not in it.
    path     the file it was read from, or that it stands for in messages.
    folder   where its external data files are; None when it has none.
    blobs    the tensors the framework itself would show, when that is not all of them (Caffe: its blobs).
    overwritten  tensors that an in-place layer of the framework wrote over.
    cut      the post-processing that the framework's file has and this has not.
    repeated_layers  names that several layers of the framework's file have.
    caffe    the layers of a Caffe net that was read as the SDK's converter has it.
    converter  what the SDK's converter refuses and changes of it, where that was looked at.
    native   of a model that only its own framework runs.
    branches  which of its Ifs were replaced by what they run, where there are any and that was looked at.
    trained  what its BatchNormalizations saw in training, where they are written as factors and offsets.
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
        """The order of the axes of its 4-D tensors."""
        return self.native.layout if self.native else NCHW


@dataclass(frozen=True)
class Part:
    """The part of a model between these tensors; none: from its own inputs, to its own outputs."""

    model_inputs: Sequence[str] = ()
    model_outputs: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.model_inputs or self.model_outputs)

    def of(self, model: Model) -> Model:
        """Raises ConfigError for an unknown name, for outputs that do not depend on an input named, and where nothing
        is left to run; ModelError where the element type of an input is unknown."""
        if not self:
            return model
        if model.native is not None:
            raise ConfigError(
                f"{model.path} runs as a whole, by {model.native.kind}; leave --model-inputs and --model-outputs out"
            )
        graph = model.proto.graph
        proto = extract(model.proto, self.model_inputs, self.model_outputs or [info.name for info in graph.output])
        if not proto.graph.node:
            raise ConfigError("nothing of the model lies between --model-inputs and --model-outputs; name others")
        read = {name for node in proto.graph.node for name in needs(node)}
        unread = [name for name in self.model_inputs if name not in read]
        if unread:
            raise ConfigError(
                f"no output of the part needs {unread[0]!r} of --model-inputs; leave it out, or name an output after it"
            )
        return replace(model, proto=proto, cut=None if self.model_outputs else model.cut)


WHOLE = Part()


@dataclass(frozen=True)
class ModelReader:
    """One framework's reader: ``recognises(path, first HEAD_BYTES bytes)`` and ``read(path)``, raising ModelError.

    Where the weights are a file of their own, ``takes_weights`` is True and it is ``read(path, weight file or None)``.
    ``read_in_place(path)`` leaves big weights in the model's file. ``read_staged(path, weights, outputs)`` gives the
    tensors that the SDK's converter makes of the model, under its names, where those are not the framework's.
    ``listing(path)`` gives what ``show`` lists of the file itself; ``net(path)`` of a fixed model of the SDK's what its
    parse_net prints, and ``net_text(path)`` the text of that. Files with one of the ``endings`` are of this reader even
    where they are empty or damaged.
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

    weights   a Caffe model's .caffemodel.
    in_place  for callers that run the model and do not change it: big weights may stay in its file, as external data
              whose file is the model's own.
    staged_outputs  for quantising and simulating: a Caffe model as the SDK's converter has it, with these blobs as
              outputs beside those that nothing reads.
    native  for callers that run the model by ``executors.native`` where only its own framework can.
    part      of the model; its names are those of the reader.

    Raises what ``Part.of`` raises, and ModelError, one line, when the file is missing, empty, damaged or of an unknown
    kind.
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
                raise ModelError(f"{path} holds its own weights; a weight file goes with a Caffe .prototxt only")
            model = ((in_place and reader.read_in_place) or reader.read)(path)
            if model.native and not native:
                raise ModelError(
                    f"{path} is a model of {model.native.kind}, which sgsdump dumps and compares as it is but does not "
                    f"take apart: dump and pipeline take it, and diagnose beside its quantised copy (-m FLOAT --fixed "
                    f"QUANTISED); for all else convert it to ONNX"
                )
            return part.of(model)
    raise ModelError(f"{path} is not a model of a known framework ({', '.join(MODELS)})")


def listing_of(path: Path) -> ModelListing | None:
    """List a model file as its own format has it; None for a file that no reader lists. Raises ModelError."""
    reader = _reader_with("listing", path)
    return reader.listing(path) if reader is not None and reader.listing is not None else None


def net_of(path: Path | str) -> ParseNet:
    """Return what is known of a fixed model's tensors: of its own file, or of the text that parse_net printed of it.
    Raises ModelError, FormatError and ConfigError."""
    from sgsdump.sidecars import parse_net

    reader = _reader_with("net", Path(path))
    return reader.net(Path(path)) if reader is not None and reader.net is not None else parse_net.read(path)


def is_listed(path: Path) -> bool:
    """Return whether a file is a model that ``listing_of`` lists."""
    return _reader_with("listing", path) is not None


def net_text_of(path: Path) -> str:
    """Return the text that parse_net prints of a fixed model's file. Raises ModelError, also for another file."""
    reader = _reader_with("net_text", path)
    if reader is None or reader.net_text is None:
        raise ModelError(f"{path} is no fixed.sim and no image; of others there is no parse_net text")
    return reader.net_text(path)


def has_net(path: Path | str) -> bool:
    """Return whether a file is a fixed model of the SDK's, which ``net_of`` and ``ranges_of`` read."""
    return _reader_with("net", Path(path)) is not None


def ranges_of(path: Path | str) -> dict[str, Range]:
    """Return the calibrated ranges of a file of ranges, or of a fixed model of the SDK's.

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
    """The reader of a file, where it has this function."""
    if not path.is_file():
        return None
    readers = [reader for reader in MODELS.own.values() if getattr(reader, function) is not None]
    if not path.stat().st_size and not any(path.suffix in reader.endings for reader in readers):
        return None
    head = _head(path)
    return next((reader for reader in readers if reader.recognises(path, head)), None)


def runtime_of(path: Path) -> str:
    """The runtime that alone runs a model, "" where any executor may; by the file's first bytes. Raises ModelError."""
    head = _head(path)
    reader = next((name for name, reader in MODELS.items() if reader.recognises(path, head)), "")
    return reader if reader in NATIVE else ""


def graph_inputs(proto: onnx.ModelProto) -> tuple[InputSpec, ...]:
    """The inputs a user has to feed, in the model's order.

    Older models list their weights among the graph inputs: those are weights, not inputs. bfloat16 inputs are fed as
    float32, which users have, or as bfloat16; other types beyond numpy are those of ml_dtypes. Raises ModelError for an
    input that is not a tensor of a shape and type to feed.
    """
    weights = weight_names(proto.graph)
    return tuple(_input_spec(info) for info in proto.graph.input if info.name not in weights)


def _input_spec(info: onnx.ValueInfoProto) -> InputSpec:
    import onnx

    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"input {info.name!r} of the model is {_NO_TENSORS.get(kind, 'of no type')}; sgsdump feeds tensors only: "
            f"export the model with a tensor there"
        )
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        raise ModelError(f"input {info.name!r} of the model has no shape; export the model with one")
    shape = tuple(sizes_of(info.type) or ())
    if tensor.elem_type == onnx.TensorProto.STRING:
        raise ModelError(f"input {info.name!r} of the model takes text; sgsdump feeds numbers only")
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
        raise ModelError(f"{path} is a folder; name the model file in it")
    try:
        with open_file(path) as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise ModelError(f"no such model file: {path}") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    if not head:
        raise ModelError(f"{path} is empty; was its export or download cut off?")
    return head


def write_stages(proto: onnx.ModelProto, stages: Iterable[Stage]) -> None:
    """Put the table into a model that has none, in the order of the net."""
    proto.metadata_props.add(key=KEY, value=json.dumps([list(stage) for stage in stages], ensure_ascii=False))


def read_stages(proto: onnx.ModelProto) -> tuple[Stage, ...]:
    """The stages in the order of the net, none for other frameworks. Raises ModelError for a damaged table."""
    text = next((prop.value for prop in proto.metadata_props if prop.key == KEY), None)
    try:
        return () if text is None else table_of(text)
    except FormatError as error:
        raise ModelError(str(error)) from None
