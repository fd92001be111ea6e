"""The values that go into a run of onnxruntime and come out of it, as bytes."""

import ctypes
import sys

WORDS = {
    **{"float": "float32", "double": "float64", "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn"},
    **{"float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz"},
    **{"float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz"},
}


def saved(session, capture, step, stem, name, value):
    """Write a value into the session's folder; returns its line."""
    line = {"name": name}
    try:
        dtype, shape, data = _data(value)
    except Exception as error:
        return dict(line, why=f"{type(error).__name__}: {error}" if not isinstance(error, NotKept) else str(error))
    line.update(dtype=dtype, shape=shape)
    file = session.write(f"{capture.folder}/{step}_{stem}.raw", data)
    return dict(line, file=file) if file else dict(line, why=session.stopped or "it could not be written")


class NotKept(Exception):
    """A value that is no tensor of numbers, with the reason."""


def as_fed(self, name, value):
    """A list in the element type that the model's input has."""
    if not isinstance(value, (list, int, float, bool)):
        return value
    word = next(each.type for each in self.get_inputs() if each.name == name)[len("tensor(") : -1]
    return sys.modules["numpy"].asarray(value, dtype=WORDS.get(word, word))


def _data(value):
    """Element type, shape and elements of a value, whichever way it was given."""
    if isinstance(value, tuple):
        return _pointed(*value)
    if hasattr(value, "data_type") and hasattr(value, "is_tensor"):
        return _of_ort_value(value)
    numpy = sys.modules["numpy"]
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise NotKept(f"a {type(value).__name__}, not a tensor")
    array = numpy.asarray(value)
    if array.dtype.kind in "OSUM" or array.dtype.hasobject:
        raise NotKept("it holds text or objects, not numbers")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    data = numpy.ascontiguousarray(array).reshape(-1).view("u1").data if array.size else b""
    return array.dtype.name, list(array.shape), data


def _of_ort_value(value):
    if not value.has_value():
        raise NotKept("an optional value that is absent")
    kind = value.data_type()
    if not value.is_tensor():
        raise NotKept(f"a {kind}, not a tensor")
    word = kind[len("tensor(") : -1]
    if word == "string":
        raise NotKept("it holds text, not numbers")
    shape = [int(size) for size in value.shape()]
    if value.device_name().lower() != "cpu" or not hasattr(value, "tensor_size_in_bytes"):
        return WORDS.get(word, word), shape, _data(value.numpy())[2]
    size = value.tensor_size_in_bytes()
    data = memoryview((ctypes.c_ubyte * size).from_address(value.data_ptr())) if size else b""
    return WORDS.get(word, word), shape, data


def _pointed(args, kwargs):
    """Memory that a program binds by its address: of ``bind_input(name, device, number, type, shape, address)``."""
    names = ("device_type", "device_id", "element_type", "shape", "buffer_ptr")
    given = dict(zip(names, args), **kwargs)
    if given["device_type"].lower() != "cpu":
        raise NotKept(f"bound by its address on {given['device_type']}")
    numpy = sys.modules["numpy"]
    try:
        dtype = numpy.dtype(given["element_type"])
    except TypeError:
        raise NotKept("bound by its address with a type that numpy has not") from None
    shape = [int(size) for size in given["shape"]]
    size = dtype.itemsize
    for each in shape:
        size *= each
    return dtype.name, shape, memoryview((ctypes.c_ubyte * size).from_address(given["buffer_ptr"])) if size else b""
