"""Device layouts against the vendor's own conversions, and against plain index formulas.

Tensors to a device's layout and back, the blocks laid out by plain formulas written here.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump import Statistics, Tensor, TensorInfo
from sgsdump.errors import ValuesError
from sgsdump.tensors.device import PLAIN, conversion, in_order, is_device, to_device, to_logical
from sgsdump.tensors.tensor import in_device_layout, with_original_shape
from sgsdump.tensors.types import Origin

U8 = np.dtype(np.uint8)

DEVICE = ("NC1HWC0", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_NZ")


def vendor_cases():
    names = "nz_nd_exact nz_nd_crop nz_nd_int8_c32 nz_nd_batch nz_nd_4d nz_nd_1d nz_nchw nz_nhwc 5hd_nchw 5hd_nhwc "
    names += "5hd_hwcn fz_nchw fz_hwcn fz_nchw_c2n2 nchw_fz nhwc_fz hwcn_fz nchw_nhwc nhwc_nchw hwcn_nchw hwcn_nhwc "
    return (names + "nhwc_hwcn 6hd_ncdhw 6hd_nd").split()


@pytest.mark.parametrize("name", vendor_cases())
def test_the_vendors_conversions(shared, name):
    """All 24. Where the vendor's tool keeps the padded channels (NC1HWC0) ours equals its array but for those, and
    where it merges leading dimensions (FRACTAL_NZ) ours has them apart."""
    folder = shared / "ascend" / "golden_msaccucmp"
    case = json.loads((folder / "format_convert_expected.json").read_text())[name]
    arrays = np.load(folder / "format_convert.npz")
    given, wanted = arrays[f"{name}__in"], arrays[f"{name}__out"]
    source, target = case["converter"].split("_to_")
    shape = tuple(case["shape_to"])
    if source in PLAIN and target in PLAIN:
        found = in_order(given, source, target)
    elif target in DEVICE:
        found = to_device(given, source, target)
    elif source == "FRACTAL_NZ":
        found = to_logical(given, source, Origin(shape)).reshape(wanted.shape)
    else:
        target = "NCDHW" if target == "ND" else target
        found = to_logical(given, source, Origin(shape, target))
        assert found.shape == shape
        if source == "NC1HWC0":
            wanted = wanted[tuple(map(slice, shape))]
            assert wanted.size < arrays[f"{name}__out"].size
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_the_vendors_cases_are_all_there(shared):
    known = json.loads((shared / "ascend" / "golden_msaccucmp" / "format_convert_expected.json").read_text())
    assert sorted(known) == sorted(vendor_cases()) and len(known) == 24


def up(size, block):
    return -(-size // block)


def by_formula(array, of, layout, c0, n0, groups=1):
    """The device's array, an element at a time; FRACTAL_Z by the vendor's index formula for grouped weights."""
    if layout == "FRACTAL_NZ":
        *lead, m, n = array.shape
        out = np.zeros((*lead, up(n, c0), up(m, n0), n0, c0), array.dtype)
        for index in np.ndindex(array.shape):
            *outer, row, column = index
            out[(*outer, column // c0, row // n0, row % n0, column % c0)] = array[index]
        return out
    sizes = dict(zip(of, array.shape))
    if layout == "FRACTAL_Z":
        h_size, w_size, cin, cout = sizes["H"], sizes["W"], sizes["C"], sizes["N"] // groups
        e = min(math.lcm(math.lcm(cin, c0) // cin, math.lcm(cout, n0) // cout), groups)
        c_opt, n_opt = up(e * cin, c0) * c0, up(e * cout, n0) * n0
        out = np.zeros(up(groups, e) * c_opt * h_size * w_size * n_opt, array.dtype)
        for group in range(groups):
            for c, h, w, n in itertools.product(range(cin), range(h_size), range(w_size), range(cout)):
                to_c, to_n = group % e * cin + c, group % e * cout + n
                block = (group // e) * (c_opt // c0) + to_c // c0
                place = ((block * h_size + h) * w_size + w) * n_opt * c0 + to_n * c0 + to_c % c0
                at = {"N": group * cout + n, "C": c, "H": h, "W": w}
                out[place] = array[tuple(at[letter] for letter in of)]
        return out.reshape(-1, n_opt // n0, n0, c0)
    order = "NDCHW" if "D" in layout else "NCHW"
    sizes = {letter: sizes.get(letter, 1) for letter in order}
    outer = [up(sizes[letter], c0) if letter == "C" else sizes[letter] for letter in order]
    out = np.zeros((*outer, c0), array.dtype)
    for index in np.ndindex(array.shape):
        at = dict.fromkeys(order, 0) | dict(zip(of, index))
        inner = at["C"] % c0
        at["C"] //= c0
        out[(*(at[letter] for letter in order), inner)] = array[index]
    return out


LAYOUTS = [
    *(("NC1HWC0", of) for of in ("NCHW", "NHWC", "HWCN", "CHWN", "NC", "C")),
    *(("NDC1HWC0", of) for of in ("NCDHW", "NDHWC", "DHWCN")),
    *(("FRACTAL_Z", of) for of in ("NCHW", "HWCN", "NHWC", "CHWN")),
    *(("FRACTAL_NZ", "?" * rank) for rank in (2, 3, 4)),
]


@st.composite
def tensors(draw):
    layout, of = draw(st.sampled_from(LAYOUTS))
    groups = draw(st.integers(1, 6)) if layout == "FRACTAL_Z" else 1
    shape = [draw(st.integers(1, 7)) * (groups if letter == "N" else 1) for letter in of]
    dtype = draw(st.sampled_from([np.float32, np.float16, np.int8]))
    array = np.arange(1, math.prod(shape) + 1).astype(dtype).reshape(shape)
    return layout, of, array, groups, draw(st.sampled_from([2, 4, 16])), draw(st.sampled_from([2, 3, 16]))


@given(tensors())
def test_there_and_back(case):
    layout, of, array, groups, c0, n0 = case
    device = to_device(array, of, layout, c0, n0, groups)
    np.testing.assert_array_equal(device, by_formula(array, of, layout, c0, n0, groups))
    assert device.dtype == array.dtype
    back = to_logical(device, layout, Origin(array.shape, of, groups))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("order", ["NHWC", "NHWX"])
@pytest.mark.parametrize("channels", [1, 8, 16, 20])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_sigmastars_padded_buffers(order, channels, dtype):
    array = np.arange(1, 2 * 3 * 5 * channels + 1).astype(dtype).reshape(2, 3, 5, channels)
    block = 16 // array.itemsize
    flat = to_device(array, "NHWC", order)
    assert flat.ndim == 1 and flat.nbytes % 64 == 0
    for n, h, w, c in np.ndindex(array.shape):
        if order == "NHWC":
            place = ((n * 3 + h) * 5 + w) * up(channels, block) * block + c
        else:
            place = (((n * up(channels, block) + c // block) * 3 + h) * 5 + w) * block + c % block
        assert flat[place] == array[n, h, w, c]
    np.testing.assert_array_equal(to_logical(flat, order, Origin(array.shape, "NHWC")), array)


def device_tensor(layout, array, of, origin, **how):
    values = to_device(array, of, layout, **how)
    return Tensor.of("t", values, layout=layout, origin=origin)


def test_a_tensor_becomes_logical_when_it_is_read():
    array = np.arange(60, dtype=np.float32).reshape(1, 5, 3, 4)
    tensor = device_tensor("NC1HWC0", array, "NCHW", Origin((1, 5, 3, 4), "NCHW")).logical()
    assert (tensor.info.shape, tensor.info.layout, tensor.info.origin) == ((1, 5, 3, 4), "NCHW", None)
    np.testing.assert_array_equal(tensor.real(), array)


def test_the_shapes_tell_a_layout_that_the_file_does_not_name():
    array = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
    for named in (None, "NCHW"):  # a wrong one: the vendor writes NCHW where nothing was set
        tensor = device_tensor("NC1HWC0", array, "NHWC", Origin((1, 3, 4, 5), named))
        assert tensor.logical().info.layout == "NHWC"
        np.testing.assert_array_equal(tensor.logical().stored(), array)
        assert conversion(tensor.info) == "NC1HWC0 to NHWC"


def test_what_the_shapes_leave_open_is_said():
    array = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    tensor = device_tensor("NC1HWC0", array, "NCHW", Origin((1, 4, 4, 4)))
    assert tensor.logical().info.layout == "NCHW"
    assert conversion(tensor.info).startswith("NC1HWC0 to NCHW (the shape also allows NHWC")
    named = Tensor.of("t", tensor.stored(), layout="NC1HWC0", origin=Origin((1, 4, 4, 4), "NHWC"))
    assert conversion(named.info) == "NC1HWC0 to NHWC"


def test_without_the_original_shape_nothing_is_guessed():
    tensor = Tensor.of("t", np.zeros((1, 1, 2, 2, 16), np.float16), layout="NC1HWC0")
    with pytest.raises(ValuesError, match="does not give the original shape"):
        tensor.logical()
    assert conversion(tensor.info) == ""


@pytest.mark.parametrize(
    "layout, stored, origin",
    [
        ("NC1HWC0", (1, 1, 2, 2, 16), Origin((1, 17, 2, 2))),
        ("NC1HWC0", (1, 0, 2, 2, 0), Origin((1, 17, 2, 2))),
        ("NC1HWC0", (), Origin((1, 17, 2, 2))),
        ("NDC1HWC0", (1, 1, 2, 2, 16), Origin((1, 1, 2, 2, 3))),
        ("FRACTAL_Z", (9, 1, 16, 16), Origin((17, 5, 3, 3))),
        ("FRACTAL_Z", (9, 1, 16, 16), Origin((10, 5, 3, 3), "NCHW", 3)),
        ("FRACTAL_Z", (9, 1, 16, 16), Origin((0, 0, 3, 3), "NCHW", 2)),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((17, 32))),
        ("FRACTAL_NZ", (16, 16), Origin((16, 16))),
        ("FRACTAL_ZZ", (2, 1, 16, 16), Origin((16, 32))),
        ("C1HWNCoC0", (2, 1, 16, 16), Origin((16, 32))),
    ],
)
def test_what_does_not_fit_is_refused(layout, stored, origin):
    tensor = Tensor.of("t", np.zeros(stored, np.float16), layout=layout, origin=origin)
    with pytest.raises(ValuesError) as caught:
        tensor.logical()
    assert "\n" not in str(caught.value) and "'t'" in str(caught.value)


def test_which_layouts_are_a_devices():
    assert not any(map(is_device, [None, "ND", *PLAIN, "NCL", "NC"]))
    assert all(map(is_device, [*DEVICE, "NC1HWC0_C04", "FRACTAL_ZZ", "C1HWNC0", "NHWX"]))


@pytest.mark.parametrize("layout, of", [("NC1HWC0_C04", "NC1HWC0"), ("FRACTAL_NZ_C0_16", "FRACTAL_NZ")])
def test_another_name_of_a_layout_is_the_same_layout(layout, of):
    array = np.arange(2 * 5 * 3 * 4, dtype=np.float32).reshape(2, 5, 3, 4)
    stored = to_device(array, "NCHW", of, 4 if of == "NC1HWC0" else 16)
    tensor = Tensor.of("t", stored, layout=layout, origin=Origin(array.shape, "NCHW"))
    assert is_device(layout) and conversion(tensor.info) == f"{layout} to NCHW"
    np.testing.assert_array_equal(tensor.logical().stored(), array)


def test_blocks_of_32_have_a_name_of_their_own():
    array = np.arange(20 * 40, dtype=np.int32).astype(np.int8).reshape(20, 40)
    stored = to_device(array, "", "FRACTAL_NZ_C0_32", 32)
    assert stored.shape == (2, 2, 16, 32)
    tensor = Tensor.of("t", stored, layout="FRACTAL_NZ_C0_32", origin=Origin(array.shape))
    np.testing.assert_array_equal(tensor.logical().stored(), array)


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
        with pytest.raises(ValuesError, match=f"^tensor 'x' cannot be converted to {layout}: "):
            in_device_layout(tensor, layout)


def test_an_original_shape_that_is_given_undoes_the_layout() -> None:
    array = values((3, 10, 20))
    stored = to_device(array, "", "FRACTAL_NZ")
    of_atb = stored.reshape(3, 2, 16, 16)  # (batch, N1, M, N0): ATB keeps M1 and M0 as one
    for blocks in (stored, of_atb):
        tensor = with_original_shape(Tensor.of("x", blocks, layout="FRACTAL_NZ"), (3, 10, 20))
        assert (tensor.logical().stored() == array).all() and tensor.logical().shape == (3, 10, 20)
    nchw = values((1, 3, 4, 5))
    tensor = Tensor.of("x", to_device(nchw, "NCHW", "NC1HWC0"), layout="NC1HWC0")
    assert (with_original_shape(tensor, (1, 3, 4, 5)).logical().stored() == nchw).all()
    with pytest.raises(ValuesError, match=r"FRACTAL_NZ .* does not fit its original shape \[3, 10, 40\]"):
        with_original_shape(Tensor.of("x", of_atb, layout="FRACTAL_NZ"), (3, 10, 40))
    with pytest.raises(ValuesError, match="does not fit its original shape"):
        with_original_shape(tensor, (1, 3, 4, 6))
    with pytest.raises(ValuesError, match="is not in a device layout"):
        with_original_shape(Tensor.of("x", nchw, layout="NCHW"), nchw.shape)


def device(layout, shape, origin, dtype=np.float16):
    return Tensor.of("t", np.zeros(shape, dtype), layout=layout, origin=origin)


@pytest.mark.parametrize(
    ("layout", "shape", "origin", "becomes"),
    [
        ("NC1HWC0", (1, 1, 2, 3, 16), Origin((1, 5, 2, 3)), "NCHW"),
        ("NC1HWC0", (1, 2, 1, 1, 16), Origin((1, 20), "NC"), None),
        ("NC1HWC0", (1, 2, 1, 1, 16), Origin((20,)), None),
        ("NC1HWC0_C04", (1, 1, 2, 3, 4), Origin((1, 3, 2, 3)), "NCHW"),
        ("NC1HWC0", (1, 1, 0, 3, 16), Origin((1, 5, 0, 3)), "NCHW"),
        ("NDC1HWC0", (1, 6, 1, 2, 3, 16), Origin((1, 5, 6, 2, 3)), "NCDHW"),
        ("FRACTAL_Z", (6, 1, 16, 16), Origin((9, 5, 2, 3)), "NCHW"),
        ("FRACTAL_Z", (6, 1, 16, 16), Origin((9, 5, 2, 3), None, 0), "NCHW"),  # no groups: one
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((9, 32)), None),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((9, 32), "ND"), "ND"),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((9, 32), "NCHW"), None),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((32,)), None),
        ("FRACTAL_NZ_C0_16", (2, 1, 16, 16), Origin((9, 32)), None),
        ("FRACTAL_NZ_C0_32", (1, 1, 16, 32), Origin((9, 32)), None),
        ("FRACTAL_NZ", (3, 2, 2, 1, 16, 16), Origin((3, 2, 9, 32)), None),
        ("NHWX", (64,), Origin((1, 2, 2, 5), "NCHW"), "NHWC"),
    ],
)
def test_the_layout_and_shape_behind_a_device_layout(layout, shape, origin, becomes):
    tensor = device(layout, shape, origin, U8 if layout == "NHWX" else np.float16).logical()
    assert (tensor.info.layout, tensor.info.shape, tensor.info.origin) == (becomes, origin.shape, None)
    assert tensor.stored().shape == origin.shape
    assert conversion(device(layout, shape, origin).info).startswith(f"{layout} to {becomes or list(origin.shape)}")


@pytest.mark.parametrize(
    ("shape", "origin"),
    [
        ((1, 1, 2, 16), Origin((1, 5, 2, 3))),
        ((1, 2, 2, 3, 16), Origin((1, 5, 2, 3))),
        ((1, 1, 2, 3, 0), Origin((1, 5, 2, 3))),
        ((1, 1, 2, 0, 16), Origin((1, 5, 2, 0))),
    ],
)
def test_blocks_that_do_not_fit(shape, origin):
    assert conversion(device("NC1HWC0", shape, origin).info) == ""
    with pytest.raises(ValuesError, match=r"does not fit (its|the) original shape"):
        device("NC1HWC0", shape, origin).logical()
    with pytest.raises(ValuesError, match="does not fit the original shape"):
        to_logical(np.zeros(shape), "NC1HWC0", origin)


@pytest.mark.parametrize(
    "origin", [Origin((4, 0, 3, 3), None, 2), Origin((0, 4, 3, 3), None, 2), Origin((5, 4, 3, 3), None, 2)]
)
def test_groups_need_channels_and_whole_outputs(origin):
    with pytest.raises(ValuesError):
        to_logical(np.zeros((9, 1, 16, 16)), "FRACTAL_Z", origin)


@pytest.mark.parametrize(
    ("groups", "shape", "stored"),
    [
        (1, (6, 3, 1, 1), (1, 1, 16, 16)),
        (2, (6, 3, 1, 1), (1, 1, 16, 16)),  # two groups of 3 channels and 3 outputs lie in one block
        (3, (48, 16, 1, 1), (3, 1, 16, 16)),  # whole blocks already: each group has its own
        (4, (32, 4, 1, 1), (1, 2, 16, 16)),
        (8, (64, 8, 1, 1), (4, 1, 16, 16)),
    ],
)
def test_groups_share_a_block_along_its_diagonal(groups, shape, stored):
    weights = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    device_array = to_device(weights, "NCHW", "FRACTAL_Z", groups=groups)
    assert device_array.shape == stored and np.count_nonzero(device_array) == weights.size
    np.testing.assert_array_equal(to_logical(device_array, "FRACTAL_Z", Origin(shape, "NCHW", groups)), weights)


def test_what_else_the_shapes_would_allow():
    info = device("NC1HWC0", (4, 1, 4, 4, 16), Origin((4, 4, 4, 4))).info
    assert conversion(info) == (
        "NC1HWC0 to NCHW (the shape also allows NHWC or HWCN or CHWN; the file does not name the original layout)"
    )
    assert conversion(replace(info, layout="NCHW")) == "" == conversion(replace(info, origin=None))


def test_a_plain_tensor_and_one_of_unknown_stored_shape():
    plain = Tensor.of("t", np.zeros((1, 2)), layout="NCHW")
    assert plain.logical() is plain
    flat = to_device(np.arange(20, dtype=U8).reshape(1, 2, 2, 5), "NHWC", "NHWX")
    tensor = Tensor(TensorInfo("t", None, U8, "NHWX", origin=Origin((1, 2, 2, 5))), lambda: flat)
    assert tensor.logical().stored().reshape(-1).tolist() == list(range(20))
    with pytest.raises(ValuesError, match=r"a padded NHWX buffer of shape \[1, 2, 2, 5\] needs 64 values, but has 63"):
        to_logical(flat[:63], "NHWX", Origin((1, 2, 2, 5)))


def test_blocks_are_of_sixteen_unless_said():
    assert to_device(np.ones((1, 17, 2, 3)), "NCHW", "NC1HWC0").shape == (1, 2, 2, 3, 16)
    assert to_device(np.ones((17, 33)), "", "FRACTAL_NZ").shape == (3, 2, 16, 16)
    assert to_device(np.ones((17, 33)), "", "FRACTAL_NZ_C0_32", c0=32).shape == (2, 2, 16, 32)
    assert to_device(np.ones((17, 5, 2, 3)), "NCHW", "FRACTAL_Z").shape == (6, 2, 16, 16)
    assert to_device(np.ones((1, 2, 2, 20), U8), "NHWC", "NHWC").shape == (128,)
