"""Small Caffe nets that tests write as prototxt text and caffemodel bytes, and two ways to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import small_nets

from sgsdump.models.caffe.schema import messages
from sgsdump.models.model import Model, open_model

Arrays = Mapping[str, np.ndarray]
Weights = Mapping[str, Sequence[np.ndarray]]


def inputs_text(inputs: Mapping[str, tuple[int, ...]]) -> str:
    """An Input layer for each."""
    layers = []
    for name, shape in inputs.items():
        dims = " ".join(f"dim: {size}" for size in shape)
        layers.append(f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}')
    return "\n".join(layers) + "\n"


def caffemodel(weights: Weights) -> bytes:
    net = messages()["WeightsNet"]()
    for name, blobs in weights.items():
        layer = net.layer.add(name=name.encode(), type=b"Any")
        for array in blobs:
            blob = layer.blobs.add()
            blob.shape.dim.extend(array.shape)
            blob.data.append(array.astype("<f4").tobytes())
    return net.SerializeToString()


def save(folder: Path, text: str, weights: Weights | None = None) -> tuple[Path, Path]:
    prototxt, caffe = folder / "net.prototxt", folder / "net.caffemodel"
    prototxt.write_text(text, encoding="utf-8")
    caffe.write_bytes(caffemodel(weights or {"nothing": []}))
    return prototxt, caffe


def opened(folder: Path, text: str, weights: Weights | None = None) -> Model:
    return open_model(*save(folder, text, weights))


def ours(model: Model, feed: Arrays) -> dict[str, np.ndarray]:
    """Every tensor by onnxruntime; the shapes the importer said must be the shapes that come."""
    result = small_nets.run_all(model.proto, dict(feed))
    graph = model.proto.graph
    for info in [*graph.value_info, *graph.output]:
        said = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        assert result[info.name].shape == said, info.name
        assert result[info.name].dtype == np.float32, info.name
    return result


def by_opencv(text: str, weights: Weights | None, feed: Arrays, outputs: Sequence[str]) -> dict[str, np.ndarray]:
    """The blobs by OpenCV's Caffe importer."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV 4 is not installed")
    net = cv2.dnn.readNetFromCaffe(
        np.frombuffer(text.encode(), np.uint8), np.frombuffer(caffemodel(weights or {"nothing": []}), np.uint8)
    )
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.enableFusion(False)
    for name, array in feed.items():
        net.setInput(np.ascontiguousarray(array), name)
    return dict(zip(outputs, net.forward(list(outputs))))
