"""Which function says in ONNX what a Caffe layer type computes: ``function(builder) -> values of the tops``.

To add a layer type: write the function in the module whose idea it shares, and list it here.
"""

from sgsdump.registry import Registry

_MODULES = {
    "arithmetic": {
        "ReLU": "relu",
        "PReLU": "prelu",
        "ELU": "elu",
        "Sigmoid": "sigmoid",
        "TanH": "tanh",
        "AbsVal": "absolute",
        "BNLL": "bnll",
        "ReLU6": "relu6",
        "Clip": "clip",
        "Power": "power",
        "Exp": "exp",
        "Log": "log",
        "Eltwise": "eltwise",
        "Reduction": "reduction",
        "ArgMax": "arg_max",
        "Axpy": "axpy",
        "CReLU": "crelu",
        "Threshold": "threshold",
    },
    "windows": {
        "Convolution": "convolution",
        "ConvolutionDepthwise": "convolution",
        "DepthwiseConvolution": "convolution",
        "Deconvolution": "deconvolution",
        "InnerProduct": "inner_product",
        "Pooling": "pooling",
    },
    "normalisation": {
        "BatchNorm": "batch_norm",
        "BN": "bn",
        "LRN": "lrn",
        "Normalize": "normalize",
        "Softmax": "softmax",
        "Scale": "scale",
        "Bias": "bias",
    },
    "arrangement": {
        "Concat": "concat",
        "Slice": "slices",
        "Split": "split",
        "Dropout": "dropout",
        "Flatten": "flatten",
        "Reshape": "reshape",
        "Permute": "permute",
        "Crop": "crop",
        "Tile": "tile",
        "ShuffleChannel": "shuffle_channel",
        "Reorg": "reorg",
        "Interp": "interp",
        "Upsample": "upsample",
        "PriorBox": "prior_box",
        "DummyData": "dummy_data",
    },
}

LAYERS = Registry(
    "layer type",
    {
        kind: f"sgsdump.models.caffe.layers.{module}:{function}"
        for module, members in _MODULES.items()
        for kind, function in members.items()
    },
)

POST_PROCESSING = (
    *("DetectionOutput", "DetectionEvaluate", "RegionOutput"),
    *("YoloDetectionOutput", "Yolov3DetectionOutput", "YoloV3DetectionOutput"),
    *("Proposal", "ROIPooling", "PSROIPooling", "ROIAlign", "Python"),
)
"""Layers that are not computed: a net is cut before the first of them (net.py)."""
