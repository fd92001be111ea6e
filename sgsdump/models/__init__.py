"""The model readers, in the order in which ``open_model`` tries them."""

from sgsdump.registry import Registry

MODELS = Registry(
    "model reader",
    {
        "caffe": "sgsdump.models.caffe:READER",
        "tflite": "sgsdump.models.native_files:TFLITE",
        "openvino": "sgsdump.models.native_files:OPENVINO",
        "onnx": "sgsdump.models.onnx_file:READER",
    },
)
