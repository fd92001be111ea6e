"""The model readers, in the order in which ``open_model`` asks them whether a file is theirs."""

from sgsdump.family import Family

MODELS = Family(
    "model reader",
    {
        "caffe": "sgsdump.models.caffe:READER",
        "onnx": "sgsdump.models.onnx_file:READER",
    },
)
