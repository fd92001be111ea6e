"""Registry of model readers, in the order in which ``open_model`` tries them; bundled plug-ins come first."""

from functools import partial

from sgsdump.plugins import further, own_table
from sgsdump.registry import Registry

MODELS = Registry(
    "model reader",
    {
        **own_table("models"),
        "caffe": "sgsdump.models.readers:CAFFE",
        "tflite": "sgsdump.models.readers:TFLITE",
        "openvino": "sgsdump.models.readers:OPENVINO",
        "onnx": "sgsdump.models.onnx_file:READER",
    },
    partial(further, "models", "recognises"),
)
