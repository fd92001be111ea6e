"""Registry of the functions that convert Caffe layer types to ONNX: ``function(builder) -> values of the tops``.

To add a layer type, write the function in the module of its subject, and list it here.
"""

from collections.abc import Iterator

from sgsdump.registry import Registry

# Module: layer types, with the function name if it is not the type in lower case.
_FUNCTIONS = """
arithmetic:     ReLU PReLU ELU Sigmoid TanH AbsVal=absolute BNLL ReLU6 Clip Power Exp Log Eltwise Reduction
                ArgMax=arg_max Axpy CReLU Threshold
windows:        Convolution ConvolutionDepthwise=convolution DepthwiseConvolution=convolution Deconvolution
                InnerProduct=inner_product Pooling
normalisation:  BatchNorm=batch_norm BN LRN Normalize Softmax Scale Bias
arrangement:    Concat Slice=slices Split Dropout Flatten Reshape Permute Crop Tile ShuffleChannel=shuffle_channel
                Reorg Interp Upsample PriorBox=prior_box DummyData=dummy_data
"""


def _targets() -> Iterator[tuple[str, str]]:
    module = ""
    for word in _FUNCTIONS.split():
        if word.endswith(":"):
            module = word.removesuffix(":")
        else:
            kind, _, function = word.partition("=")
            yield kind, f"sgsdump.models.caffe.layers.{module}:{function or kind.lower()}"


LAYERS = Registry("layer type", dict(_targets()))

POST_PROCESSING = (
    *("DetectionOutput", "DetectionEvaluate", "RegionOutput"),
    *("YoloDetectionOutput", "Yolov3DetectionOutput", "YoloV3DetectionOutput"),
    *("Proposal", "ROIPooling", "PSROIPooling", "ROIAlign", "Python"),
)
"""Layers that are not computed: a network is cut before the first of them (net.py)."""
