"""The model readers, in the order in which ``open_model`` asks them whether a file is theirs."""

from sgsdump.registry import Registry

MODELS = Registry(
    "model reader",
    {
        "caffe": "sgsdump.models.caffe.reader:READER",
        "onnx": "sgsdump.models.onnx_file:READER",
    },
)
