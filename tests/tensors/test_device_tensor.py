"""Tensors to a device's layout and back, the blocks laid out by plain formulas written here."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from sgsdump import Statistics, Tensor, TensorInfo
from sgsdump.errors import ValuesError
from sgsdump.tensors.device import to_device
from sgsdump.tensors.tensor import in_device_layout, with_original_shape


def values(shape: tuple[int, ...], dtype: object = np.float32) -> np.ndarray:
    return (np.arange(1, int(np.prod(shape)) + 1) % 120).reshape(shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "c0"), [(np.float16, 16), (np.float32, 16), (np.int8, 32), (ml_dtypes.int4, 64)])
def test_each_element_of_nc1hwc0_is_where_the_formula_puts_it(dtype: object, c0: int) -> None:
    array = values((2, 70, 3, 4), dtype)
    made = in_device_layout(Tensor.of("x", array.transpose(0, 2, 3, 1), layout="NHWC"), "NC1HWC0")
    blocks = -(-70 // c0)
    assert made.shape == (2, blocks, 3, 4, c0) == made.stored().shape and made.stored().dtype == array.dtype
    expected = np.zeros(made.shape, dtype)
    for n, c, h, w in itertools.product(range(2), range(70), range(3), range(4)):
        expected[n, c // c0, h, w, c % c0] = array[n, c, h, w]
    assert made.stored().tobytes() == expected.tobytes()
    back = made.logical()
    assert back.layout == "NHWC" and back.stored().tobytes() == array.transpose(0, 2, 3, 1).tobytes()


def test_each_element_of_fractal_nz_and_z_is_where_the_formula_puts_it() -> None:
    array = values((2, 3, 18, 35))
    made = in_device_layout(Tensor.of("x", array), "FRACTAL_NZ")
    expected = np.zeros((2, 3, 3, 2, 16, 16), np.float32)
    for a, b, m, n in itertools.product(*map(range, array.shape)):
        expected[a, b, n // 16, m // 16, m % 16, n % 16] = array[a, b, m, n]
    assert made.shape == expected.shape and (made.stored() == expected).all()
    weights = values((20, 18, 2, 3))
    made = in_device_layout(Tensor.of("w", weights, layout="NCHW"), "FRACTAL_Z")
    expected = np.zeros((2, 2, 3, 2, 16, 16), np.float32)
    for n, c, h, w in itertools.product(*map(range, weights.shape)):
        expected[c // 16, h, w, n // 16, n % 16, c % 16] = weights[n, c, h, w]
    assert made.shape == (12, 2, 16, 16) and (made.stored() == expected.reshape(made.shape)).all()


@pytest.mark.parametrize(
    ("layout", "of", "shape"),
    [
        *(("NC1HWC0", of, (3, 5, 17, 2)) for of in ("NCHW", "NHWC", "HWCN", "CHWN")),
        *(("FRACTAL_Z", of, (3, 5, 17, 2)) for of in ("NCHW", "NHWC", "HWCN", "CHWN")),
        *(("NDC1HWC0", of, (2, 17, 3, 4, 5)) for of in ("NCDHW", "NDHWC", "DHWCN")),
        *(("FRACTAL_NZ", None, shape) for shape in ((7,), (33, 17), (5, 1, 16), (2, 3, 4, 5))),
        ("FRACTAL_NZ", "NHWC", (2, 3, 4, 5)),
    ],
)
def test_back_again_it_is_the_tensor(layout: str, of: str | None, shape: tuple[int, ...]) -> None:
    tensor = Tensor.of("x", values(shape), layout=of)
    made = in_device_layout(tensor, layout)
    assert made.stored().shape == made.shape and in_device_layout(made, layout) is made
    assert made.logical().info == tensor.info
    assert (made.logical().stored() == tensor.stored()).all()
    if layout == "NC1HWC0":
        assert in_device_layout(made, "FRACTAL_Z").logical().info == tensor.info


def test_what_cannot_become_a_devices_is_told() -> None:
    for tensor, layout in (
        (Tensor.of("x", values((1, 2, 3, 4))), "NC1HWC0"),
        (Tensor.of("x", values((2, 3)), layout="NC"), "FRACTAL_Z"),
        (Tensor.of("x", values((1, 2, 3, 4)), layout="NCHW"), "NDC1HWC0"),
        (Tensor.of("x", np.float32(1).reshape(())), "FRACTAL_NZ"),
        (Tensor.of("x", np.zeros((2, 0), np.float32)), "FRACTAL_NZ"),
        (Tensor(TensorInfo("x", None, np.dtype(np.int8)), lambda: values((4,))), "FRACTAL_NZ"),
        (Tensor.of_statistics(TensorInfo("x", (2, 2), np.dtype(np.int8)), Statistics()), "FRACTAL_NZ"),
    ):
        with pytest.raises(ValuesError, match=f"^tensor 'x' cannot become {layout}: "):
            in_device_layout(tensor, layout)


def test_an_original_shape_that_is_given_undoes_the_layout() -> None:
    array = values((3, 10, 20))
    stored = to_device(array, "", "FRACTAL_NZ")
    of_atb = stored.reshape(3, 2, 16, 16)  # (batch, N1, M, N0): ATB keeps M1 and M0 as one
    for given in (stored, of_atb):
        tensor = with_original_shape(Tensor.of("x", given, layout="FRACTAL_NZ"), (3, 10, 20))
        assert (tensor.logical().stored() == array).all() and tensor.logical().shape == (3, 10, 20)
    nchw = values((1, 3, 4, 5))
    tensor = Tensor.of("x", to_device(nchw, "NCHW", "NC1HWC0"), layout="NC1HWC0")
    assert (with_original_shape(tensor, (1, 3, 4, 5)).logical().stored() == nchw).all()
    with pytest.raises(ValuesError, match=r"FRACTAL_NZ .* does not fit its original shape \[3, 10, 40\]"):
        with_original_shape(Tensor.of("x", of_atb, layout="FRACTAL_NZ"), (3, 10, 40))
    with pytest.raises(ValuesError, match="does not fit its original shape"):
        with_original_shape(tensor, (1, 3, 4, 6))
    with pytest.raises(ValuesError, match="is not in a device's layout"):
        with_original_shape(Tensor.of("x", nchw, layout="NCHW"), nchw.shape)
