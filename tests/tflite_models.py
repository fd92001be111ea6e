"""Small TFLite models, written by LiteRT's own schema: two convolutions, a fully connected layer, a softmax; in float32
and in int8 (weights per channel), int16 activations, or float32 with float16 weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

NAMES = ("first/Relu;first/BiasAdd", "second/BiasAdd", "flat", "dense/MatMul;dense/BiasAdd", "Identity")
CONV, CONNECTED, RESHAPE, SOFTMAX, DEQUANTIZE = 3, 9, 22, 25, 6
FLOAT32, FLOAT16, INT32, INT64, INT16, INT8 = 0, 1, 2, 4, 7, 9
_VERSIONS = {CONV: 5, CONNECTED: 4, SOFTMAX: 3, DEQUANTIZE: 3}
_TYPES = {"float32": FLOAT32, "float16": FLOAT16, "int32": INT32, "int64": INT64, "int16": INT16, "int8": INT8}


def picture(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((1, 8, 8, 3)).astype(np.float32)


def weights(seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "first/w": random.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32),
        "first/b": random.normal(0, 0.1, 4).astype(np.float32),
        "second/w": random.normal(0, 0.3, (6, 3, 3, 4)).astype(np.float32),
        "second/b": random.normal(0, 0.1, 6).astype(np.float32),
        "dense/w": random.normal(0, 0.1, (5, 384)).astype(np.float32),
        "dense/b": random.normal(0, 0.1, 5).astype(np.float32),
    }


@dataclass
class Builder:
    """A model in the making: ``tensors`` by name, its constants by name."""

    tensors: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema = schema
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.description = 3, b"made by a test"
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.graph.tensors, self.graph.operators, self.graph.name = [], [], b"main"

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: str,
        scale: float | np.ndarray | None = None,
        zero: int = 0,
        values: np.ndarray | None = None,
    ) -> int:
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), list(shape), _TYPES[kind], 0
        if scale is not None:
            tensor.quantization = self.schema.QuantizationParametersT()
            scales = np.atleast_1d(scale).astype(np.float32)
            tensor.quantization.scale = scales
            tensor.quantization.zeroPoint = np.full(len(scales), zero, np.int64)
        if values is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(values.astype(kind).tobytes(), np.uint8)
            tensor.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.tensors[name] = len(self.graph.tensors)
        self.graph.tensors.append(tensor)
        return self.tensors[name]

    def operator(self, code: int, inputs: list[str], outputs: list[str], options: object = None, kind: int = 0) -> None:
        codes = [each.builtinCode for each in self.model.operatorCodes]
        if code not in codes:
            entry = self.schema.OperatorCodeT()
            entry.builtinCode, entry.deprecatedBuiltinCode, entry.version = code, code, _VERSIONS.get(code, 1)
            self.model.operatorCodes.append(entry)
            codes.append(code)
        operator = self.schema.OperatorT()
        operator.opcodeIndex = codes.index(code)
        operator.inputs = [self.tensors[name] for name in inputs]
        operator.outputs = [self.tensors[name] for name in outputs]
        operator.builtinOptionsType, operator.builtinOptions = kind, options
        self.graph.operators.append(operator)

    def bytes(self, inputs: list[str], outputs: list[str]) -> bytes:
        import flatbuffers

        self.graph.inputs = [self.tensors[name] for name in inputs]
        self.graph.outputs = [self.tensors[name] for name in outputs]
        self.model.subgraphs = [self.graph]
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def float_model(
    held: Mapping[str, np.ndarray] | None = None, halves: bool = False, codes: float | None = None
) -> bytes:
    """``halves``: the weights are float16, dequantised by operators, as the converter writes them. ``codes``: they are
    int8 in steps of that, which the operators themselves dequantise."""
    builder = Builder()
    builder.tensor("x", (1, 8, 8, 3), "float32")
    for name, values in (held or weights()).items():
        if halves:
            builder.tensor(f"{name}16", values.shape, "float16", values=values)
            builder.tensor(name, values.shape, "float32")
            builder.operator(DEQUANTIZE, [f"{name}16"], [name])
        elif codes and values.ndim > 1:
            builder.tensor(name, values.shape, "int8", codes, values=np.clip(np.rint(values / codes), -127, 127))
        else:
            builder.tensor(name, values.shape, "float32", values=values)
    for name, shape in zip(NAMES, _SHAPES):
        builder.tensor(name, shape, "float32")
    return _with_operators(builder, "x", NAMES)


_SHAPES = ((1, 8, 8, 4), (1, 8, 8, 6), (1, 384), (1, 5), (1, 5))


def quantised_model(
    ranges: Mapping[str, tuple[float, float]],
    held: Mapping[str, np.ndarray] | None = None,
    kind: str = "int8",
    names: tuple[str, ...] = NAMES,
) -> bytes:
    """``ranges``: of x and of NAMES; what flat and dense need is taken from them. int16 is symmetric."""
    builder = Builder()
    held = held or weights()
    scales = {name: _scale(*ranges[name], kind) for name in ("x", *NAMES)}
    scales["flat"] = scales[NAMES[1]]
    scales["Identity"] = (1 / 256, -128) if kind == "int8" else (1 / 32768, 0)
    builder.tensor("x_int8", (1, 8, 8, 3), kind, *scales["x"])
    feeding = {"first": "x", "second": NAMES[0], "dense": "flat"}
    for layer, source in feeding.items():
        values = held[f"{layer}/w"]
        per_channel = np.abs(values).reshape(len(values), -1).max(1) / 127
        scale = per_channel if layer != "dense" else np.float32(per_channel.max())
        spread = scale.reshape(-1, *[1] * (values.ndim - 1)) if np.ndim(scale) else scale
        codes = np.rint(values / spread)
        builder.tensor(f"{layer}/w", values.shape, "int8", scale, values=codes)
        bias = held[f"{layer}/b"] / (scale * scales[source][0])
        builder.tensor(
            f"{layer}/b", bias.shape, "int32" if kind == "int8" else "int64", scale * scales[source][0],
            values=np.rint(bias),
        )  # fmt: skip
    for name, own, shape in zip(NAMES, names, _SHAPES):
        builder.tensor(own, shape, kind, *scales[name])
    return _with_operators(builder, "x_int8", names)


def _scale(low: float, high: float, kind: str) -> tuple[float, int]:
    low, high = min(low, 0.0), max(high, 0.0)
    if kind == "int16":
        return max(-low, high) / 32767, 0
    scale = (high - low) / 255
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


def _with_operators(builder: Builder, x: str, names: tuple[str, ...]) -> bytes:
    schema = builder.schema
    first, second, flat, dense, output = names

    def convolution(activation: int) -> object:
        options = schema.Conv2DOptionsT()
        options.padding, options.strideW, options.strideH, options.fusedActivationFunction = 0, 1, 1, activation
        return options

    options = schema.BuiltinOptions
    builder.operator(CONV, [x, "first/w", "first/b"], [first], convolution(1), options.Conv2DOptions)
    builder.operator(CONV, [first, "second/w", "second/b"], [second], convolution(0), options.Conv2DOptions)
    shape = schema.ReshapeOptionsT()
    shape.newShape = [1, 384]
    builder.operator(RESHAPE, [second], [flat], shape, options.ReshapeOptions)
    builder.operator(
        CONNECTED, [flat, "dense/w", "dense/b"], [dense], schema.FullyConnectedOptionsT(), options.FullyConnectedOptions
    )
    softmax = schema.SoftmaxOptionsT()
    softmax.beta = 1.0
    builder.operator(SOFTMAX, [dense], [output], softmax, options.SoftmaxOptions)
    return builder.bytes([x], [output])


def interpreted(path: Path, feed: np.ndarray) -> dict[str, tuple[np.ndarray, float, int]]:
    """LiteRT's own word: every activation's stored values, scale and zero point, by name."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    run = Interpreter(
        str(path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run.allocate_tensors()
    (details,) = run.get_input_details()
    scale, zero = details["quantization"]
    if scale:
        limits = np.iinfo(details["dtype"])
        feed = np.clip(np.rint(feed.astype(np.float64) / scale) + zero, limits.min, limits.max).astype(details["dtype"])
    run.set_tensor(details["index"], feed)
    run.invoke()
    facts = {each["index"]: each for each in run.get_tensor_details()}
    made = [index for operator in run._get_ops_details() for index in operator["outputs"].tolist()]
    return {facts[i]["name"]: (run.get_tensor(i), *facts[i]["quantization"]) for i in made if i in facts}


def pair(folder: Path, kind: str = "int8") -> tuple[Path, Path]:
    """The float and the quantised model, as files, with ranges of the float one."""
    float_path, quantised_path = folder / "float.tflite", folder / f"{kind}.tflite"
    float_path.write_bytes(float_model())
    values = [interpreted(float_path, picture(seed)) for seed in range(3)]
    ranges = {name: _range([each[name][0] for each in values]) for name in NAMES}
    names = (*NAMES[:-1], f"Identity_{kind}")
    quantised_path.write_bytes(quantised_model({"x": (0.0, 1.0)} | ranges, kind=kind, names=names))
    return float_path, quantised_path


def _range(arrays: list[np.ndarray]) -> tuple[float, float]:
    return float(min(a.min() for a in arrays)), float(max(a.max() for a in arrays))
