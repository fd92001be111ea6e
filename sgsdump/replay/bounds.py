"""Error bounds of operators: how far a result may be from the exact one; docs/check.md has the sources.

The error of an element is at most ``roundings * u * |r| + units * v * m``. r is the exact result (in float64) and u the
unit roundoff of the result's type. v is the unit roundoff of the type of the sums (float32 for narrow types). m is the
sum of the absolute values of the terms of the element. A sum of n terms adds ``terms(n)`` to ``units``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

# exact: the result is an input value or the nearest value of its type; "result": m is |r|; "terms": m is the
# operator on absolute values; "formula": ``formulas.py`` defines m.
Magnitude = Literal["exact", "result", "terms", "formula"]
OF_FLOAT32 = 2.0**-24  # unit roundoff of float32
_CONFIDENCE = 8.0
SLACK = 1.01  # m is computed in float32
NARROW_RANGE = 1e-30  # a larger smallest normal number belongs to a type with a smaller exponent range than float32's


@dataclass(frozen=True)
class Bound:
    """A bound; ``length`` names the rule for the number of terms (``torch_operators.py``), "" if there is no sum."""

    magnitude: Magnitude
    roundings: float = 1.0
    units: float = 2.0
    length: str = ""


@dataclass(frozen=True)
class FloatType:
    """A float type: unit roundoff u, largest finite value, smallest normal and subnormal values, digits in bits."""

    u: float
    largest: float
    normal: float
    subnormal: float
    digits: int

    @property
    def flushed(self) -> float:
        """The loss where a processor flushes subnormal numbers to zero, as bfloat16 products do on x86."""
        return self.normal if self.normal < NARROW_RANGE else self.subnormal


def float_type(dtype: np.dtype) -> FloatType:
    """Return the description of a float type of numpy or ml_dtypes; for a complex type, that of its parts."""
    if dtype.kind == "c":
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    info = ml_dtypes.finfo(dtype)
    eps = float(info.eps)
    return FloatType(
        eps / 2, float(info.max), float(info.smallest_normal), float(info.smallest_subnormal), round(1 - math.log2(eps))
    )


def accumulation(kind: FloatType) -> float:
    """Return the unit roundoff of the type in which an operator with such a result accumulates sums."""
    return min(kind.u, OF_FLOAT32)


def terms(count: int) -> float:
    """Return the error factor of a sum of ``count`` terms.

    It is n of the classic bound (Higham 2002, (3.5)), but at most lambda * sqrt(n) of the probabilistic bound (Higham
    and Mary 2019, theorem 3.1) with lambda = 8.
    """
    return min(float(count), _CONFIDENCE * math.sqrt(count)) + 2.0


def _of(bound: Bound, words: str) -> dict[str, Bound]:
    return dict.fromkeys(words.split(), bound)


_EXACT = Bound("exact")
TORCH: Mapping[str, Bound] = {
    **_of(
        _EXACT,
        "view _unsafe_view reshape _reshape_copy t transpose permute expand slice select unsqueeze squeeze split"
        " split_with_sizes unsafe_split chunk unbind unfold diagonal clone contiguous detach alias cat stack index"
        " _unsafe_index index_select gather take embedding where masked_fill masked_select relu neg abs maximum minimum"
        " max min amax amin argmax argmin eq ne lt le gt ge logical_and logical_or logical_xor logical_not bitwise_and"
        " bitwise_or bitwise_xor bitwise_not __and__ __or__ __xor__ isnan isinf isfinite sign floor ceil round trunc"
        " fill zero zeros ones full scalar_tensor zeros_like ones_like full_like new_zeros new_ones new_full tril triu"
        " flip roll repeat tile constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d"
        " replication_pad2d replication_pad3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices"
        " max_pool3d_with_indices adaptive_max_pool2d im2col pixel_shuffle pixel_unshuffle channel_shuffle nonzero"
        " scatter index_put _index_put_impl copy _to_copy lift_fresh any all clamp clamp_min clamp_max hardtanh"
        " threshold sort topk one_hot index_copy index_fill select_scatter slice_scatter view_as_real view_as_complex"
        " real imag _conj_physical conj_physical upsample_nearest1d upsample_nearest2d upsample_nearest3d"
        " _upsample_nearest_exact2d unique_consecutive isin bucketize searchsorted movedim as_strided_copy copysign"
        " tril_indices triu_indices eye repeat_interleave masked_scatter diag_embed equal aminmax median",
    ),
    **_of(
        Bound("result", units=4),
        "mul div reciprocal sqrt exp exp2 expm1 log log2 log10 log1p tanh sigmoid erf square leaky_relu _prelu_kernel"
        " prelu atan asin acos sinh cosh polar angle complex outer ger deg2rad rad2deg hypot sinc"
        " xlogy erfc",
    ),
    **_of(Bound("result", units=8), "silu softplus mish rsqrt atan2 tan glu log_sigmoid_forward"),
    **_of(Bound("formula", units=4), "sin cos gelu hardswish hardsigmoid elu celu selu"),
    **_of(Bound("result", roundings=3, units=16), "pow arange linspace"),
    **_of(Bound("terms", units=4), "add sub rsub addcmul addcdiv lerp cross remainder fmod"),
    **_of(
        Bound("terms", length="product"),
        "mm bmm mv dot vdot addmm baddbmm addmv addbmm linear matmul addr _int_mm _weight_int8pack_mm",
    ),
    **_of(Bound("terms", length="convolution"), "convolution _convolution mkldnn_convolution conv2d conv1d"),
    **_of(Bound("terms", roundings=2, length="reduced"), "sum mean nansum"),
    **_of(Bound("terms", length="axis"), "cumsum index_add scatter_add scatter_reduce trace"),
    **_of(
        Bound("terms", roundings=2, units=8, length="reduced"),
        "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d",
    ),
    **_of(
        Bound("formula", units=1),
        "_softmax softmax _log_softmax log_softmax _safe_softmax logsumexp native_layer_norm native_group_norm"
        " _fused_rms_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training batch_norm"
        " var var_mean std std_mean linalg_vector_norm norm prod cumprod upsample_bilinear2d upsample_linear1d"
        " upsample_trilinear3d upsample_bicubic2d"
        " _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention"
        " _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math",
    ),
}
ONNX: Mapping[str, Bound] = {
    **_of(
        _EXACT,
        "Reshape Transpose Identity Concat Split Slice Gather GatherElements GatherND Squeeze Unsqueeze Flatten Expand"
        " Tile Pad Relu Max Min Clip MaxPool Abs Neg Cast Where Equal Greater Less GreaterOrEqual LessOrEqual And Or"
        " Not Shape ConstantOfShape Constant Floor Ceil Round Sign DepthToSpace SpaceToDepth ReduceMax ReduceMin Trilu"
        " ScatterND ScatterElements NonZero IsNaN GlobalMaxPool OneHot Size MatMulInteger ConvInteger",
    ),
    **_of(Bound("result", units=4), "Mul Div Sqrt Exp Log Reciprocal LeakyRelu PRelu DequantizeLinear"),
    **_of(Bound("result", roundings=3, units=16), "Pow Range"),
    **_of(Bound("terms", units=4), "Add Sub Sum Mean"),
    **_of(Bound("terms", length="product"), "MatMul Gemm"),
    **_of(Bound("terms", length="convolution"), "Conv ConvTranspose"),
    **_of(Bound("terms", roundings=2, units=8, length="reduced"), "ReduceSum ReduceMean AveragePool GlobalAveragePool"),
    **_of(Bound("terms", length="axis"), "CumSum"),
    **_of(Bound("formula", units=1), "Softmax LogSoftmax LayerNormalization"),
    **_of(Bound("formula", units=8), "BatchNormalization Sin Cos Sigmoid Erf Tanh Elu HardSigmoid"),
    **_of(Bound("formula", units=8), "HardSwish Softplus Selu Gelu"),
}
RANDOM = frozenset(
    "native_dropout dropout bernoulli rand randn randint randperm rand_like randn_like randint_like normal multinomial"
    " uniform random exponential geometric cauchy log_normal poisson rrelu_with_noise _fused_dropout"
    " alpha_dropout feature_dropout".split()
)
# These read memory around a tensor, or return memory that was never written.
OF_MEMORY = frozenset(
    "as_strided set resize resize_as empty empty_like empty_strided new_empty new_empty_strided _local_scalar_dense"
    " _reshape_alias".split()
)
COLLECTIVE = frozenset("c10d _c10d_functional c10d_functional _dtensor symm_mem".split())
