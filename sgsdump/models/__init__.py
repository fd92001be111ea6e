"""The model readers, in the order in which ``open_model`` tries them."""

from sgsdump.registry import Registry

MODELS = Registry(
    "model reader",
    {
        "caffe": "sgsdump.models.readers:CAFFE",
        "tflite": "sgsdump.models.readers:TFLITE",
        "openvino": "sgsdump.models.readers:OPENVINO",
        "onnx": "sgsdump.models.onnx_file:READER",
    },
)
