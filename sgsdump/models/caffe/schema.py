"""Protobuf messages of Caffe: the used field numbers, types and defaults of its public caffe.proto.

Each entry of the table is ``NUMBER TYPE NAME [= DEFAULT]``; ``*`` after the type means repeated. Unlisted fields are
skipped. Forks assign the same number to different layers (143 is Input or Interp). Therefore only text, where names
count, is read with ``NetParameter``. Of a caffemodel only the fields of ``WeightsNet`` are read, on which all forks
agree.

Numbers in a blob are declared as ``bytes``, which has the same encoding as a packed list of floats. A hundred megabytes
then become one array instead of a hundred million Python numbers.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_LINE = re.compile(r"(\d+) (\w+)(\*?) (\w+)(?: = ([^\s;]+))?")
_ENUMS = {
    "Phase": "TRAIN=0 TEST=1",
    "PoolMethod": "MAX=0 AVE=1 STOCHASTIC=2",
    "RoundMode": "CEIL=0 FLOOR=1",
    "EltwiseOp": "PROD=0 SUM=1 MAX=2",
    "NormRegion": "ACROSS_CHANNELS=0 WITHIN_CHANNEL=1",
    "ReductionOp": "SUM=1 ASUM=2 SUMSQ=3 MEAN=4",
    "LayerType": (
        "NONE=0 ACCURACY=1 BNLL=2 CONCAT=3 CONVOLUTION=4 DATA=5 DROPOUT=6 EUCLIDEAN_LOSS=7 FLATTEN=8 HDF5_DATA=9 "
        "HDF5_OUTPUT=10 IM2COL=11 IMAGE_DATA=12 INFOGAIN_LOSS=13 INNER_PRODUCT=14 LRN=15 MULTINOMIAL_LOGISTIC_LOSS=16 "
        "POOLING=17 RELU=18 SIGMOID=19 SOFTMAX=20 SOFTMAX_LOSS=21 SPLIT=22 TANH=23 WINDOW_DATA=24 ELTWISE=25 POWER=26 "
        "SIGMOID_CROSS_ENTROPY_LOSS=27 HINGE_LOSS=28 MEMORY_DATA=29 ARGMAX=30 THRESHOLD=31 DUMMY_DATA=32 SLICE=33 "
        "MVN=34 ABSVAL=35 SILENCE=36 CONTRASTIVE_LOSS=37 EXP=38 DECONVOLUTION=39"
    ),
}

_PARAMETERS = """
    104 ConcatParameter concat_param; 103 ArgMaxParameter argmax_param; 106 ConvolutionParameter convolution_param
    109 DummyDataParameter dummy_data_param; 110 EltwiseParameter eltwise_param; 111 ExpParameter exp_param
    117 InnerProductParameter inner_product_param; 118 LRNParameter lrn_param; 121 PoolingParameter pooling_param
    122 PowerParameter power_param; 123 ReLUParameter relu_param; 125 SoftmaxParameter softmax_param
    128 ThresholdParameter threshold_param; 126 SliceParameter slice_param; 131 PReLUParameter prelu_param
    133 ReshapeParameter reshape_param; 134 LogParameter log_param; 135 FlattenParameter flatten_param
    136 ReductionParameter reduction_param; 138 TileParameter tile_param; 139 BatchNormParameter batch_norm_param
    140 ELUParameter elu_param; 141 BiasParameter bias_param; 142 ScaleParameter scale_param
    143 InputParameter input_param; 144 CropParameter crop_param; 148 ClipParameter clip_param
    202 PermuteParameter permute_param; 206 NormalizeParameter norm_param; 203 PriorBoxParameter prior_box_param
    1137 BNParameter bn_param; 2143 InterpParameter interp_param; 5137 UpsampleParameter upsample_param
    164 ShuffleChannelParameter shuffle_channel_param; 100000 ReLUParameter relu6_param
    100001 CReLUParameter crelu_param; 100002 ReorgParameter reorg_param
"""

_LAYER_RULES = """
    {include} NetStateRule* include
    {exclude} NetStateRule* exclude
"""

_MESSAGES = {
    "BlobShape": "1 int64* dim",
    "NetState": "1 Phase phase = TEST; 2 int32 level = 0; 3 string* stage",
    "NetStateRule": "1 Phase phase; 2 int32 min_level; 3 int32 max_level; 4 string* stage; 5 string* not_stage",
    "NetParameter": """
        1 string name; 2 V1LayerParameter* layers; 3 string* input; 4 int32* input_dim; 6 NetState state
        8 BlobShape* input_shape; 100 LayerParameter* layer
    """,
    "LayerParameter": "1 string name; 2 string type; 3 string* bottom; 4 string* top"
    + _LAYER_RULES.format(include=8, exclude=9)
    + _PARAMETERS,
    "V1LayerParameter": "4 string name; 5 LayerType type; 2 string* bottom; 3 string* top; 1 V0LayerParameter layer"
    + _LAYER_RULES.format(include=32, exclude=33)
    + _PARAMETERS,
    "V0LayerParameter": "1 string name; 2 string type",
    "ArgMaxParameter": "1 bool out_max_val = false; 2 uint32 top_k = 1; 3 int32 axis",
    "BatchNormParameter": "1 bool use_global_stats; 3 float eps = 1e-5; 7 bool scale_bias = false",
    "BiasParameter": "1 int32 axis = 1; 2 int32 num_axes = 1",
    "BNParameter": "4 float eps = 1e-5",
    "ClipParameter": "1 float min; 2 float max",
    "ConcatParameter": "1 uint32 concat_dim = 1; 2 int32 axis = 1",
    "ConvolutionParameter": """
        1 uint32 num_output; 2 bool bias_term = true; 3 uint32* pad; 4 uint32* kernel_size; 5 uint32 group = 1
        6 uint32* stride; 9 uint32 pad_h; 10 uint32 pad_w; 11 uint32 kernel_h; 12 uint32 kernel_w
        13 uint32 stride_h; 14 uint32 stride_w; 16 int32 axis = 1; 18 uint32* dilation
    """,
    "CReLUParameter": "1 float negative_slope = 0; 3 int32 concat_axis = 1",
    "CropParameter": "1 int32 axis = 2; 2 uint32* offset",
    "DummyDataParameter": """
        1 FillerParameter* data_filler; 2 uint32* num; 3 uint32* channels; 4 uint32* height; 5 uint32* width
        6 BlobShape* shape
    """,
    "EltwiseParameter": "1 EltwiseOp operation = SUM; 2 float* coeff",
    "ELUParameter": "1 float alpha = 1",
    "ExpParameter": "1 float base = -1; 2 float scale = 1; 3 float shift = 0",
    "FillerParameter": "1 string type = constant; 2 float value = 0",
    "FlattenParameter": "1 int32 axis = 1; 2 int32 end_axis = -1",
    "InnerProductParameter": """
        1 uint32 num_output; 2 bool bias_term = true; 5 int32 axis = 1; 6 bool transpose = false
    """,
    "InputParameter": "1 BlobShape* shape",
    "InterpParameter": """
        1 int32 height = 0; 2 int32 width = 0; 3 int32 zoom_factor = 1; 4 int32 shrink_factor = 1
        5 int32 pad_beg = 0; 6 int32 pad_end = 0
    """,
    "LogParameter": "1 float base = -1; 2 float scale = 1; 3 float shift = 0",
    "LRNParameter": """
        1 uint32 local_size = 5; 2 float alpha = 1; 3 float beta = 0.75; 4 NormRegion norm_region = ACROSS_CHANNELS
        5 float k = 1
    """,
    "NormalizeParameter": "1 bool across_spatial = true; 3 bool channel_shared = true; 4 float eps = 1e-10",
    "PermuteParameter": "1 uint32* order",
    "PoolingParameter": """
        1 PoolMethod pool = MAX; 2 uint32 kernel_size; 3 uint32 stride = 1; 4 uint32 pad = 0; 5 uint32 kernel_h
        6 uint32 kernel_w; 7 uint32 stride_h; 8 uint32 stride_w; 9 uint32 pad_h = 0; 10 uint32 pad_w = 0
        12 bool global_pooling = false; 13 RoundMode round_mode = CEIL; 1013 bool ceil_mode = true
    """,
    "PowerParameter": "1 float power = 1; 2 float scale = 1; 3 float shift = 0",
    "PReLUParameter": "2 bool channel_shared = false",
    "PriorBoxParameter": """
        1 float* min_size; 2 float* max_size; 3 float* aspect_ratio; 4 bool flip = true; 5 bool clip = false
        6 float* variance; 7 uint32 img_size; 8 uint32 img_h; 9 uint32 img_w; 10 float step; 11 float step_h
        12 float step_w; 13 float offset = 0.5
    """,
    "ReductionParameter": "1 ReductionOp operation = SUM; 2 int32 axis = 0; 3 float coeff = 1",
    "ReLUParameter": "1 float negative_slope = 0",
    "ReorgParameter": "1 uint32 stride; 2 bool reverse = false",
    "ReshapeParameter": "1 BlobShape shape; 2 int32 axis = 0; 3 int32 num_axes = -1",
    "ScaleParameter": "1 int32 axis = 1; 2 int32 num_axes = 1; 4 bool bias_term = false",
    "ShuffleChannelParameter": "1 uint32 group = 1",
    "SliceParameter": "1 uint32 slice_dim = 1; 2 uint32* slice_point; 3 int32 axis = 1",
    "SoftmaxParameter": "2 int32 axis = 1",
    "ThresholdParameter": "1 float threshold = 0",
    "TileParameter": "1 int32 axis = 1; 2 int32 tiles",
    "UpsampleParameter": """
        1 uint32 scale = 2; 2 uint32 scale_h; 3 uint32 scale_w; 4 bool pad_out_h = false; 5 bool pad_out_w = false
        6 uint32 upsample_h; 7 uint32 upsample_w
    """,
    "WeightsNet": "2 WeightsV1* layers; 100 WeightsLayer* layer",
    "WeightsLayer": "1 bytes name; 2 bytes type; 7 WeightsBlob* blobs",
    "WeightsV1": "4 bytes name; 6 WeightsBlob* blobs",
    "WeightsBlob": """
        1 int32 num; 2 int32 channels; 3 int32 height; 4 int32 width; 5 bytes* data; 7 BlobShape shape
        8 bytes* double_data; 10 int32 raw_data_type; 12 bytes raw_data
    """,
    "UnpackedBlob": "5 float* data; 8 double* double_data",
}


@cache
def messages() -> dict[str, Any]:
    """Return the message classes by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="sgsdump/caffe.proto", package="sgsdump.caffe", syntax="proto2")
    for name, values in _ENUMS.items():
        # Wrapped in its own message: enum values belong to the enclosing scope, and MAX is in two enums.
        enum = file.message_type.add(name=f"{name}Scope").enum_type.add(name=name)
        for label, _, number in (value.partition("=") for value in values.split()):
            enum.value.add(name=label, number=int(number))
    for name, table in _MESSAGES.items():
        message = file.message_type.add(name=name)
        message.field.extend(_field(*match.groups()) for match in _LINE.finditer(table))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(types[name]) for name in _MESSAGES}


def enum_label(message: Any, field: str) -> str:
    """Return the label of an enum field's value, such as ``AVE``."""
    return message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(message, field)].name


def _field(number: str, kind: str, repeated: str, name: str, default: str | None) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    field = Field(name=name, number=int(number), label=label, default_value=default)
    if kind in _ENUMS:
        field.type, field.type_name = Field.TYPE_ENUM, f".sgsdump.caffe.{kind}Scope.{kind}"
    elif kind in _MESSAGES:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".sgsdump.caffe.{kind}"
    else:
        field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    return field
