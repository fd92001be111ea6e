"""Observations of SDK 1.1.5: forms of operators that it refuses or computes differently.

Each row was observed. A small network with this form went through the SDK's converter, calibrator and simulators, which
ended with these words (``said``) or computed another function; ``probe`` names the network. The tables in
docs/sdk_converter.md are generated from this file.

A row is text: types, form, stage, words, probe, and the function of ``converter_forms.py`` that detects the form. If no
function is named, ``ASKED`` there has it under the probe. An indented line continues the row before.

Stages: ``convert`` (the converter ends), ``calibrate`` (the calibrator ends), ``simulate`` (the simulator crashes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sgsdump.fixedpoint.sdk import converter_forms as forms
from sgsdump.fixedpoint.sdk.converter_forms import Operator

# The longest name that the calibrator accepts; one character more ends it.
LONGEST_NAME = 246
NO_TYPE = "Mace does not support onnx op type {} yet"
_NO_CAFFE_TYPE = "Mace does not support caffe op type {} yet"
_NO_STATISTICS = "Run Statistics MinMax failed!"
_CRASH = "a crash (signal 11)"


def _any(subject: Any) -> bool:
    return True


@dataclass(frozen=True)
class Refusal:
    """A form that the SDK refuses; ``form`` follows the operator's name, "" if every form is refused."""

    types: tuple[str, ...]
    form: str
    stage: str
    said: str
    probe: str
    applies: Callable[[Operator], bool] = field(default=_any, compare=False)

    def words(self, op_type: str) -> str:
        return self.said.format(op_type)


@dataclass(frozen=True)
class Change:
    """A form for which the SDK computes another function.

    followed  sgsdump's fixed model computes it too (``sdk.semantics``); otherwise it follows ONNX.
    """

    types: tuple[str, ...]
    form: str
    becomes: str
    probe: str
    applies: Callable[[Operator], bool] = field(default=_any, compare=False)
    followed: bool = False


@dataclass(frozen=True)
class LayerRefusal:
    """A form of a Caffe layer that the SDK refuses.

    applies  receives the layer's message.
    last     only if no layer reads its top.
    """

    type: str
    form: str
    said: str
    probe: str
    applies: Callable[[Any], bool] = field(compare=False)
    stage: str = "convert"
    last: bool = False


_UNKNOWN_TYPES = (
    "Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh CumSum Det Einsum Elu Erf Floor GatherElements GatherND "
    "GlobalLpPool Greater GridSample GRU HardSigmoid HardSwish Hardmax InstanceNormalization LayerNormalization Less "
    "Log LpPool LRN MaxRoiPool Mean MeanVarianceNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare RNN RoiAlign ScatterElements ScatterND Selu Shrink Sign Sin Sinh Softplus Softsign Tan "
    "ThresholdedRelu TopK"
).split()
_KEY_ERRORS = {
    "Cast": "Cast",
    "Gather": "Gather",
    "LpNormalization": "LpNorm",
    "Min": "Eltwise",
    "Neg": "Eltwise",
    "Pow": "Eltwise",
    "Reciprocal": "Eltwise",
    "Round": "ReplaceIndex",
    "Sqrt": "Eltwise",
}
# The types that a probe shows as accepted, in at least one form.
TAKEN = frozenset(
    "Abs Add ArgMax ArgMin AveragePool BatchNormalization Clip Concat Constant Conv ConvTranspose DepthToSpace Div "
    "Dropout Exp Flatten Gemm GlobalAveragePool GlobalMaxPool Identity LeakyRelu LogSoftmax MatMul Max MaxPool Mul "
    "PRelu Pad ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize Sigmoid Slice Softmax "
    "SpaceToDepth Split Squeeze Sub Sum Tile Transpose Unsqueeze Upsample".split()
)
NEWEST_OPSET = 18
# Abbreviations used in rows.
_GROUPS = {
    "(reducing)": ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin", "ReduceProd"),
    "(in place)": forms.IN_PLACE,
}
_SAID = {"NO STATISTICS": _NO_STATISTICS, "CRASH": _CRASH}

_REFUSED = """
LSTM |  | convert | TypeError: array([0.], dtype=float32) has type numpy.ndarray | ox_lstm
Tanh |  | convert | CRASH | ox_tanh_out
Expand |  | calibrate | NO STATISTICS | qg_expand
QuantizeLinear DequantizeLinear |  | convert | Not supported tensor type: uint8 | ro_qdq
Clip | from 0 to a maximum other than 6 | convert | Clip OP only support max value is 6. | ox_clip
Clip | from a minimum other than 0 | convert | KeyError: 'Eltwise' | ox_clip_m11 | not_from_0
Sum | of other than two tensors | convert | CRASH | ox_sum3
Max | of other than two tensors | convert | CRASH | q3_max
Add Sub | a constant of several values, neither one per channel nor of the tensor's shape | calibrate |
    NO STATISTICS | rb_add_11h1 | odd_broadcast
Mul Max | a constant of several values, neither one per channel nor of the tensor's shape | simulate |
    Assertion `0' failed. | rb_mul_11hw | odd_broadcast
Div | by a constant of several numbers | convert | Aborted | qc_div_c | by_vector
Div | of a constant of several numbers | calibrate | NO STATISTICS | qr_div_c | into_vector
Div | of two variable tensors | calibrate | Assertion `0' failed. | ox_div_var | two_variables
PRelu | with a slope that is not constant | calibrate | NO STATISTICS | q2_prelu
PRelu | with a separate slope for each element | simulate | Assertion `0' failed. | ra_prelu_full | is_wide_slope
Exp | that a convolution reads | calibrate | Aborted | ox_exp | read_by_convolution
MatMul | of two variable tensors | convert | ValueError: cannot reshape array | ox_matmul_dyn | two_variables
MatMul | with the constant first | convert | ValueError: cannot reshape array | qm_matmul_left
MatMul | of other than two dimensions | convert | only support 2 dims MatMul | qm_matmul3
Gemm | without a bias | convert | IndexError: list index (2) out of range | qm_gemm_nobias
Gemm | with alpha or beta | convert | AttributeError: 'OnnxConverter' object has no attribute 'get_tensor_len' |
    qm_gemm_alpha | factors
Gemm | with one bias for all outputs | calibrate | CRASH | re_gemm_scalarbias | one_bias
Conv | over one dimension | calibrate | NO STATISTICS | ox_conv1d
Conv | over three dimensions | convert | CRASH | x_conv3d
MaxPool AveragePool | over other than two dimensions | convert | AssertionError | re_maxpool3d
Conv MaxPool AveragePool | with auto_pad SAME_LOWER | convert | Does not support AutoPad type yet. | au_lower
Conv | with auto_pad SAME_UPPER and no strides | convert | UnboundLocalError: local variable 'strides' referenced
    before assignment | aw_nostride
Conv | with auto_pad SAME_UPPER and dilations | convert | onnxruntime: Dilation not supported for
    AutoPadType::SAME_UPPER | aw_dil2
Conv | with auto_pad SAME_UPPER, and a stride above 1 or a kernel of even size | calibrate | NO STATISTICS | au_k3s2 |
    padded_unevenly
MaxPool AveragePool GlobalMaxPool GlobalAveragePool | of a Transpose | convert | AssertionError | pn_max |
    of_transpose
ReduceMean | over H and W of a Transpose | simulate | Pooling_operation_16bitInput: Assertion `input_tensor->c ==
    output_tensor->c' failed. | pt_mean
Resize | of a Transpose | calibrate | NO STATISTICS | pt_resize | of_transpose
Conv ConvTranspose MaxPool AveragePool | with auto_pad NOTSET and no pads | convert | Does not support AutoPad type
    yet. | qv_notset | padded_by_neither
Conv | whose weights are not constant | convert | Mace does not support non-const filter convolution. | qv_dyn
ConvTranspose | with output_padding | convert | not support convtranspose with output_padding yet. | ox_convt_op
ConvTranspose | with dilations | convert | not support convtranspose with dilation != 1 yet. | qt_dil | dilated
ConvTranspose | in groups | convert | KeyError: '' | ox_convt_g2 | grouped
ConvTranspose | with auto_pad | calibrate | NO STATISTICS | qt_same | auto_padded
ConvTranspose | with different pads before and after | calibrate | NO STATISTICS | qt_asym | padded_on_one_side
Slice | with its limits as attributes (opset 9) | convert | TypeError: [0] has type list | qs9_c
Slice | of several axes at once | simulate | CRASH | ox_slice | sliced_along_several
Slice | to negative rows or columns | simulate | CRASH | ng_w1
Pad | of another mode than the SDK supports | convert | Pad only support `constant` mode! | ox_pad_reflect |
    padded_otherwise
Pad | with a value | convert | Pad value only support padding 0! | ox_pad_val | padded_with
Pad | that a convolution reads | calibrate | NO STATISTICS | x_pad10_relu_conv | padding_read
Pad | of opset 11 or newer | calibrate | NO STATISTICS | ox_pad | padding
Resize | of another mode than the SDK supports | convert | Do not support cubic mode | rz_cubic_asymmetric_2
Resize | half_pixel | convert | Resize OP only support 'coordinate_transformation_mode' : align_corners and asymmetric
    | ox_resize_b_half | half_pixel
Resize | without roi | convert | KeyError: '' | rz_linear_asym_noroi13
Resize Upsample | of different scales for H and W | convert | Upsample OP only support same scale on H W |
    ox_resize_n_sizes | unequal
Resize | to a smaller size | convert | Resize OP only support UpSample case | rz_linear_asymmetric_half | smaller
Resize | with mode nearest and a non-integer scale factor | simulate | Drv_Bdma_MoveData: Assertion failed |
    rz_nearest_asymmetric_1p5 | fraction
Upsample | with scales as an attribute (opset 8) | convert | IndexError: list index (1) out of range | rz_upsample8
(reducing) | with axes as an input | convert | IndexError: list index out of range | q_reducesum13 | axes_as_input
(reducing) | of all axes | convert | IndexError: list index (0) out of range | re_reduce_all | no_axes
(reducing) | over several axes other than (H, W) and (C, H, W) | convert | only support multi axes [2,3] |
    re_reduce_neg | odd_axes
(reducing) | over a negative axis | simulate | CRASH | x_reducemean_m1 | from_the_end
ReduceMax ReduceSum | over C, H and W | simulate | CRASH | q_reducemax_123_1 | three_axes
Squeeze Unsqueeze | with axes as an input (opset 13) | convert | AssertionError | q_squeeze13 | axes_as_input
Split | with its sizes as an input (opset 13) | calibrate | Aborted | q_split13 | axes_as_input
Identity | as an output of the model | convert | KeyError | q_identity
Transpose | to N, H, W, C, as an output of the model | calibrate | Fail to get 1 output tensors. |
    q_transpose_0231 | to_nhwc_output
Add Mul Div | of five dimensions, with a constant | convert | AssertionError | d5_addc
Relu LeakyRelu Clip Add Sub Mul | of five dimensions | calibrate | NO STATISTICS | d5_relu | of_five_axes
Sigmoid | of five dimensions | simulate | Assertion failed | d5_sig | of_five_axes
Concat | that reads a fully connected operator | calibrate | NO STATISTICS | fcr_24_16_rn | of_fully_connected
"""

_CAFFE_FORMS = """
Clip | from 0 to a maximum other than 6 | convert | only support max is 6 | v_clip_0_1
Clip | from a minimum other than 0 | convert | only support min is 0 | v_clip_m1_1
Power | to a power other than 1, 2, 3 | convert | power value not support yet. | v_power_0p5_1_1
Eltwise | PROD or MAX of more than two | convert | CRASH | v_elt_max_three
ArgMax | with top_k | convert | only support top 1 | v_argmax_top2
ArgMax | with out_max_val | convert | only output index | v_argmax_val
Deconvolution | in groups | convert | Mace do not support group convolution yet | v_deconv_g2
InnerProduct | along another axis | convert | ValueError: cannot reshape array | v_ip_axis2
Reorg | of another stride than 2 | convert | only support stride is 2 | reorg5
Permute | to N, H, W, C, as an output of the model | calibrate | NO STATISTICS | nhwc3
"""

_CHANGED = """
ReduceMax ReduceSum ReduceMin ReduceProd | over H and W | as ONNX | a mean | ox_rmax_hw | over_two
Softmax | over another axis | as the SDK | a Softmax over the channels | ox_softmax_w | other_softmax
LogSoftmax |  | as ONNX | a Softmax over the channels, without the logarithm | ox_lsoftmax
AveragePool | with count_include_pad | as the SDK | an AveragePool that does not count padding | ql_averagepool_3
Slice | of an input, of several axes at once | as the SDK | a Slice of the first axis only, from its start |
    fs_32 | sliced_input
DepthToSpace | that a convolution reads | as ONNX | a DepthToSpace with another order of pixels | ox_d2s |
    read_by_convolution
MaxPool | with dilations | as ONNX | a MaxPool without dilations | ql_maxpool_6 | dilated_pool
Slice | backwards | as ONNX | a Slice that selects wrong values | qs_rev | backwards
Slice | between a Reshape or Transpose and a conv | as ONNX | a Slice that selects wrong values (use
    a Split instead) | v2s_L1 | sliced_in_model_order
Slice | with negative indices | as ONNX | a Slice that selects wrong values | ng_c1 | counted_from_the_end
Sub | of a constant per channel | as ONNX | the unchanged tensor | ox_sub_const | per_channel_off
Sub | from a constant number | as ONNX | the tensor minus the number | qr_sub_s | scalar_first
Div | of a constant number | as ONNX | the tensor divided by the number | qr_div_s | scalar_first
ArgMin |  | as ONNX | an ArgMax | ro_argmin
(in place) | after a Transpose to N, H, W, C | as ONNX | an operator on rows of another length, in fixed models | tt5 |
    of_turned
Transpose | back from N, H, W, C | as ONNX | a Transpose with another order of axes | sc13 | turned_back
Resize | of another mode than the SDK supports | as ONNX | a Resize that repeats every pixel |
    rz_nearest_align_corners_2 | not_repeated
"""

_CAFFE_CHANGED = """
Softmax | over another axis | a Softmax over the channels | v_softmax_2
Eltwise | with coefficients | a plain sum | v_elt_sum_coeff2
Threshold |  | a Threshold whose 1 becomes one step of the input's scale, nearly 0 | cf_threshold
"""


def _rows(text: str, columns: int) -> Iterator[tuple[list[str], Callable[[Any], bool]]]:
    """Yield the columns of each row, and the condition of its form."""
    for line in text.replace("\n    ", " ").strip().splitlines():
        cells = [_SAID.get(cell.strip(), cell.strip()) for cell in line.split(" |")]
        *cells, name = cells if len(cells) > columns else [*cells, ""]
        yield cells, getattr(forms, name) if name else forms.ASKED.get(cells[-1], _any)


def _types(words: str) -> tuple[str, ...]:
    return _GROUPS.get(words) or tuple(words.split())


REFUSED: tuple[Refusal, ...] = (
    *(Refusal((name,), "", "convert", NO_TYPE, f"q_{name.lower()}") for name in _UNKNOWN_TYPES),
    *(
        Refusal((name,), "", "convert", f"KeyError: '{word}'", f"q_{name.lower()}")
        for name, word in _KEY_ERRORS.items()
    ),
    *(
        Refusal(_types(kinds), form, stage, said, probe, applies)
        for (kinds, form, stage, said, probe), applies in _rows(_REFUSED, 5)
    ),
)
_CAFFE_TYPES = (
    "AbsVal BN BNLL BatchReindex Bias ELU Exp Filter HardSigmoid HardSwish Identity LRN Log MVN Mish Normalize ReLU6 "
    "Reduction SELU SPP Silence Softplus Sqrt Square Swish"
).split()
CAFFE_REFUSED: tuple[Refusal, ...] = (
    *(Refusal((name,), "", "convert", _NO_CAFFE_TYPE, f"v_{name.lower()}") for name in _CAFFE_TYPES),
    Refusal(("ShuffleChannel",), "", "convert", "KeyError: 'ChannelShuffle'", "cf_shuffle"),
    Refusal(("Interp",), "", "convert", "text_format.ParseError: no field interp_param", "v_interp"),
)
# A Permute is refused only as the last layer.
CAFFE_FORMS = tuple(
    LayerRefusal(kind, form, said, probe, applies, stage, kind == "Permute")
    for (kind, form, stage, said, probe), applies in _rows(_CAFFE_FORMS, 5)
)
CHANGED = tuple(
    Change(_types(kinds), form, becomes, probe, applies, ours == "as the SDK")
    for (kinds, form, ours, becomes, probe), applies in _rows(_CHANGED, 5)
)
CAFFE_CHANGED: tuple[tuple[str, str, str, str, Callable[[Any], bool]], ...] = tuple(
    (kind, form, becomes, probe, applies) for (kind, form, becomes, probe), applies in _rows(_CAFFE_CHANGED, 4)
)
# Weights of a caffemodel that are in other fields than `data`: what, stage, words and probe.
OTHER_WEIGHTS = (
    "weights as doubles (`double_data`) or half-precision numbers (NVCaffe's `raw_data`): save them as float32",
    "convert",
    "ValueError: cannot reshape array of size 0",
    "hf_half",
)
# Training formats that end the parser of input_config.ini, and the probe of each.
REFUSED_FORMATS = {"GRAY": "ox_gray", "RAWDATA_F32_NHWC": "w_raw_f32"}
# Stage, words and probe of an image of shape N, H, W, C.
CHANNELS_LAST = ("calibrate", "Segmentation fault", "nhwc_rgb")
# The same for a mean or std that several images share; each of two images needs its own.
ONE_FOR_ALL = ("convert", "sgs_ParserInOutConfigFile: Assertion `0' failed.", "tp_once")
# The same for a file with `mean = R:G:B`, as newer SDKs have it, and for one without any mean.
NO_COLOURS = ("convert", "sgs_ParserInOutConfigFile: Assertion `0' failed.", "cfg_mean1")
# ONNX, not Caffe: the change of a one-channel input that is not an image and that a convolution reads; and the probe.
# With (x, 0, 0) its ranges are those of ONNX, and the other two channels change nothing.
RAWDATA = "RAWDATA_S16_NHWC"
ONE_CHANNEL = (
    "an input of one channel that a convolution of ONNX reads",
    "one of three channels, of which the model uses the first: it reads H x W x 3 values, so the preprocess file must "
    "give x, 0 and 0 for each x",
    "raw1_7x9",
)
# The same for an image of one channel, in ONNX and Caffe.
GREY_PICTURE = (
    "an image of one channel as RGB with GRAY",
    "one of three channels in its calibrator and float simulator, of which the model uses the first: the preprocess "
    "file must give H x W x 3 values for norm=True, and H x W for norm=False",
    "gx_both",
)
