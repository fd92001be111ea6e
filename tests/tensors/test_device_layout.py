"""Device layouts against the vendor's own conversions, and against plain index formulas."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.errors import ValuesError
from sgsdump.tensors.device import PLAIN, conversion, in_order, is_device, to_device, to_logical
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Origin

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
    assert conversion(tensor.info).startswith("NC1HWC0 to NCHW (its shape would allow NHWC")
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
