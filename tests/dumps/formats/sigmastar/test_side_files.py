"""Dumps read with the facts of parse_net, against the SDK's own unpadded and dequantised dumps of the same run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.sigmastar.made import F32, I8, I16, U8, integer_record

import sgsdump
from sgsdump import Dump, Quant, Record, Tensor, TensorInfo
from sgsdump.dumps.formats.sigmastar.side_files import scales_of, unpadded, with_net_scales, with_side_files
from sgsdump.errors import ConfigError, ValuesError
from sgsdump.sidecars import parse_net
from sgsdump.sidecars.parse_net import NetTensor, ParseNet


@pytest.fixture(scope="module")
def net(shared):
    return parse_net.read(shared / "sigmastar/model/parse_net_tiny_fixed_L5.txt")


def genuine(shared, name):
    return sgsdump.open_dump(shared / "sigmastar/dumps" / name / "sigma_outtensor_dump.bin")


@pytest.mark.parametrize(
    ("padded", "twin"),
    [
        ("tiny_fixed_d_plain", "tiny_fixed_b_elim"),
        ("tiny_all16_plain", "tiny_all16_elim"),
        ("tiny_fixed_g_plain_string", "tiny_fixed_b_elim"),
        ("tiny_fixed_b_elim", "tiny_fixed_b_elim"),
        ("tiny_all16_elim", "tiny_all16_elim"),
    ],
)
def test_genuine_buffers_unpad_to_their_twin(shared, net, padded, twin):
    found, expected = unpadded(genuine(shared, padded), net), genuine(shared, twin)
    assert len(found.records) == len(expected.records) == 41
    for ours, theirs in zip(found.records, expected.records):
        assert ours.name == theirs.name
        stored, wanted = ours.tensor.stored(), theirs.tensor.stored()
        assert stored.dtype == wanted.dtype
        np.testing.assert_array_equal(stored.reshape(-1), wanted.reshape(-1), err_msg=ours.name)
        if not ours.constant:
            assert ours.tensor.info.shape == stored.shape == net.tensors[ours.name].shape
            assert ours.tensor.info.layout == "NHWC"
    assert found.constants["conv2_bias"].info.shape == (2, 7)
    assert found.constants["conv2_filter"].info.shape is None  # in the hardware's order


@pytest.mark.parametrize("pair", [("tiny_fixed_d_plain", "tiny_fixed_b_elim"), ("tiny_all16_plain", "tiny_all16_elim")])
def test_saved_again_it_is_the_eliminategarbage_file(shared, net, tmp_path, pair):
    sgsdump.save_dump(unpadded(genuine(shared, pair[0]), net), tmp_path / "out.bin")
    expected = shared / "sigmastar/dumps" / pair[1] / "sigma_outtensor_dump.bin"
    assert (tmp_path / "out.bin").read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("name", ["tiny_fixed_b_elim", "tiny_fixed_d_plain", "tiny_fixed_f_elim_string"])
def test_genuine_dump_dequantises_bit_for_bit(shared, net, name):
    raw, expected = genuine(shared, name), genuine(shared, "tiny_fixed_a_elim_dequant")
    found, refused = scales_of(raw, net)
    assert not refused and found.keys() == {r.name for r in raw.records if not r.constant}
    real = with_net_scales(unpadded(raw, net), net)
    for ours, theirs in zip(real.records, expected.records):
        if not ours.constant:
            values, wanted = ours.tensor.real().reshape(-1), theirs.tensor.stored().reshape(-1)
            np.testing.assert_array_equal(values, wanted[: values.size], err_msg=ours.name)


def test_the_string_dump_is_the_dequantised_one_as_printed(shared, net):
    printed = unpadded(genuine(shared, "tiny_fixed_e_elim_dequant_string"), net)
    expected = genuine(shared, "tiny_fixed_a_elim_dequant")
    for ours, theirs in zip(printed.records, expected.records):
        if not ours.constant:
            assert ours.tensor.info.shape == net.tensors[ours.name].shape
            wanted = np.array([f"{value:.6f}" for value in theirs.tensor.stored()], np.float32)
            count = ours.tensor.stored().size
            np.testing.assert_array_equal(ours.tensor.stored().reshape(-1), wanted[:count], err_msg=ours.name)


def test_ranges_of_another_conversion_are_refused(shared, net):
    """Its ``add`` would print the header's scale too, and be 0.3 % off."""
    raw, expected = genuine(shared, "tiny_all16_elim"), genuine(shared, "tiny_all16_elim_dequant")
    found, refused = scales_of(raw, net)
    assert refused.keys() == {"relu1", "block/dw", "add", "pool1"}
    assert all("UINT8" in reason and "int16" in reason for reason in refused.values())
    real = with_net_scales(raw, net)
    for name in found.keys() - {"data"}:
        np.testing.assert_array_equal(real[name].real(), expected[name].stored(), err_msg=name)
    with pytest.raises(ValuesError, match="true scale"):
        real["add"].real()


def test_compare_takes_a_padded_dump_like_the_dequantised_one(shared, net):
    benchmark = genuine(shared, "tiny_float_a_full")
    ours = sgsdump.compare(with_side_files(genuine(shared, "tiny_fixed_d_plain"), net=net), benchmark, inputs=True)
    theirs = sgsdump.compare(genuine(shared, "tiny_fixed_a_elim_dequant"), benchmark, inputs=True)
    assert not ours.failed and len(ours.rows) == 14
    metrics = [[(r.name, r.mse, r.cos, r.rmse) for r in found.rows] for found in (ours, theirs)]
    assert metrics[0] == metrics[1]


def facts(order, shape, name="x", dtype=np.uint8):
    return NetTensor(name, np.dtype(dtype).name.upper(), np.dtype(dtype), shape, f"IPU_{order}", -1.0, 1.0, 0.0, 0)


def text(*tensors, ambiguous=()):
    return ParseNet(Path("net.txt"), {t.name: t for t in tensors}, frozenset(ambiguous))


def buffer(size, name="x", dtype=np.uint8, shape=None, **record):
    array = np.arange(size).astype(dtype)
    info = TensorInfo(name, shape, array.dtype, quant=Quant(array.dtype, 0.5))
    return Record("out", 0, 0, "OP", Tensor(info, lambda: array), **record)


def stored(net, *records):
    return [record.tensor.stored() for record in unpadded(Dump(records), net).records]


def test_a_size_that_fits_neither_is_refused_with_sizes():
    with pytest.raises(
        ValuesError,
        match=r"holds 100 values, but IPU_NHWC \[1, 2, 2, 10\] needs 64 values with padding or 40 values without",
    ):
        stored(text(facts("NHWC", (1, 2, 2, 10))), buffer(100))


def test_where_both_sizes_fit_the_other_tensors_tell():
    blocks = facts("NHWX", (1, 1, 2, 32))
    plain, padded = buffer(40, "y"), buffer(64, "y")
    other = facts("NHWC", (1, 2, 2, 10), "y")
    assert stored(text(blocks, other), buffer(64), plain)[0].reshape(-1).tolist() == list(range(64))
    found = stored(text(blocks, other), buffer(64), padded)[0]
    assert found[0, 0, 0, [0, 15, 16, 31]].tolist() == [0, 15, 32, 47]
    with pytest.raises(ValuesError, match="with and without padding"):
        stored(text(blocks), buffer(64))
    # the two ways contradict each other
    third = facts("NHWC", (1, 2, 2, 10), "z")
    with pytest.raises(ValuesError, match="with and without padding"):
        stored(text(blocks, other, third), buffer(64), plain, buffer(64, "z"))
    assert stored(text(facts("NHWC", (1, 1, 2, 32))), buffer(64))[0].shape == (1, 1, 2, 32)


def test_an_unknown_order_is_read_only_when_nothing_is_padded():
    odd, other = facts("HNWX", (1, 2, 2, 10)), facts("NHWC", (1, 2, 2, 10), "y")
    assert stored(text(odd, other), buffer(40), buffer(40, "y"))[0].shape == (1, 2, 2, 10)
    with pytest.raises(ValuesError, match="IPU_HNWX"):
        stored(text(odd, other), buffer(64), buffer(64, "y"))
    with pytest.raises(ValuesError, match="HNWX"):
        stored(text(facts("HNWX", (1, 2, 2, 16))), buffer(64))
    assert stored(text(odd), buffer(40))[0].shape == (1, 2, 2, 10)  # no padded buffer has 40 bytes


def test_rgba_pictures():
    net = text(NetTensor("x", "UINT8", np.dtype(np.uint8), (1, 4, 4, 3), "RGBA", 0.0, 1.0, 0.0, 0))
    picture = stored(net, buffer(64))[0]
    assert picture[0, 0, 1].tolist() == [4, 5, 6]
    with pytest.raises(ValuesError, match="without eliminateGarbage"):
        stored(net, buffer(48))


def test_constants():
    weight = NetTensor("w", "INT8", np.dtype(np.int8), (7, 3, 3, 10), "IPU_S8_KB", None, None, None, None)
    bias = facts("NHWC", (2, 7), "b", np.int16)
    net = text(weight, bias)
    found = stored(net, buffer(864, "w", np.int8, constant=True), buffer(16, "b", np.int16, constant=True))
    assert found[0].shape == (630,) and found[1].tolist() == [list(range(7)), list(range(8, 15))]
    with pytest.raises(ValuesError, match="needs 630"):
        stored(net, buffer(600, "w", np.int8, constant=True))


def test_what_is_not_listed_stays_and_what_is_ambiguous_is_refused():
    net = text(facts("NHWC", (1, 2, 2, 10)), ambiguous={"twice"})
    assert stored(net, buffer(64), buffer(5, "other"))[1].shape == (5,)
    with pytest.raises(ValuesError, match="different tensors with the name 'twice'"):
        stored(net, buffer(64), buffer(5, "twice"))
    with pytest.raises(ConfigError, match="lists no tensor"):
        unpadded(Dump([buffer(64, "other")]), net)
    float_dump = Dump([Record("out", 0, 0, "OP", Tensor.of("y", np.zeros(3, np.float32)))])
    assert unpadded(float_dump, net)["y"].stored().shape == (3,)


def test_a_shape_in_the_dump_must_agree():
    net = text(facts("NHWC", (1, 2, 2, 10)))
    assert stored(net, buffer(64, shape=(1, 2, 2, 10)))[0].shape == (1, 2, 2, 10)
    assert stored(net, buffer(64, shape=(2, 2, 10)))[0].shape == (2, 2, 10)
    with pytest.raises(ValuesError, match=r"\[1, 2, 2, 12\] in the dump and \[1, 2, 2, 10\] in net.txt"):
        stored(net, buffer(64, shape=(1, 2, 2, 12)))


def test_a_cut_name_is_known_by_its_beginning():
    long = "block/" * 40
    net = text(facts("NHWC", (1, 2, 2, 10), long + "conv"), facts("NHWC", (1, 2, 2, 10), "y"))
    assert stored(net, buffer(64, long, cut=True))[0].shape == (1, 2, 2, 10)


def listed(name="x", dtype=I16, shape=(1,), ddr="IPU_S16_NHWC", low=-4.0, high=2.0) -> NetTensor:
    return NetTensor(name, str(np.dtype(dtype)).upper(), np.dtype(dtype), shape, ddr, low, high, 0.0, 0)


def listing(*tensors, ambiguous=()) -> ParseNet:
    return ParseNet(Path("net.txt"), {tensor.name: tensor for tensor in tensors}, frozenset(ambiguous))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (listed(), None),
        (listed(low=None), "has no range"),
        (listed(high=None), "has no range"),
        (listed(low=3.0), "has no range"),
        (listed(dtype=I8), "is INT8 in net.txt, but int16 in the dump: they come from different"),
        (listed("y"), "net.txt does not list the tensor"),
        (listed(low=-8.0), "the ranges give scale"),
    ],
)
def test_which_ranges_of_parse_net_are_used(facts, reason):
    dump = Dump([integer_record("x", 4 / 32767)])
    found, refused = scales_of(dump, listing(facts))
    scaled = with_net_scales(dump, listing(facts))["x"].info.quant
    if reason is None:
        assert not refused and scaled == found["x"] and scaled.exact
        assert scaled.scale == pytest.approx(4 / 32767, rel=1e-6)
    else:
        assert not found and reason in refused["x"] and not scaled.exact


def test_equal_ends_and_names_of_several_tensors():
    found, _ = scales_of(Dump([integer_record("x", 4 / 32767)]), listing(listed(low=4.0, high=4.0)))
    assert found["x"].exact
    _, refused = scales_of(Dump([integer_record("x", 4 / 32767)]), listing(listed("y"), ambiguous={"x"}))
    assert refused["x"] == "net.txt lists different tensors of this name"


def test_constants_keep_their_scale():
    dump = Dump([integer_record("x", 4 / 32767), integer_record("x", 4 / 32767, io="in", constant=True)])
    scaled = with_net_scales(dump, listing(listed()))
    assert [r.tensor.info.quant.exact for r in scaled.records] == [True, False]


def floats(size, name="x", **facts):
    return Record("out", 0, 0, "OP", Tensor(TensorInfo(name, None, F32), lambda: np.arange(size, dtype=F32)), **facts)


@pytest.mark.parametrize(
    ("size", "ddr", "shape"),
    [
        (36, "IPU_U8_NHWX", (1, 3, 4, 3)),
        (35, "IPU_U8_NHWX", None),
        (64, "IPU_U8_NHWX", None),
        (64, "RGB", (1, 3, 4, 3)),  # only a picture may be over-allocated
        (64, "BGR", (1, 3, 4, 3)),
        (64, "RGBA", None),
        (63, "RGB", None),
    ],
)
def test_floats_take_the_shape_that_fits(size, ddr, shape):
    known = listing(listed(dtype=U8, shape=(1, 3, 4, 3), ddr=ddr))
    tensor = unpadded(Dump([floats(size)]), known)["x"]
    assert tensor.info.shape == shape and tensor.info.layout == (None if shape is None else "NHWC")
    assert tensor.stored().reshape(-1)[:36].tolist() == list(range(min(size, 36)))
    (constant,) = unpadded(Dump([floats(36, constant=True)]), known).records
    assert constant.tensor.info.shape is None


def test_other_ranks_have_a_shape_but_no_layout():
    tensor = unpadded(Dump([floats(6)]), listing(listed(shape=(2, 3))))["x"]
    assert tensor.info.shape == (2, 3) and tensor.info.layout is None


@pytest.mark.parametrize(
    ("shape", "fits"), [((2, 3), True), ((1, 2, 1, 3), True), ((2, 4), False), ((2, 2), False), ((3, 2), False)]
)
def test_a_shape_of_the_dump_is_the_listed_one_but_for_ones(shape, fits):
    made = integer_record("x")
    values = np.zeros(shape, I16)
    made = replace(made, tensor=Tensor(replace(made.tensor.info, shape=shape), lambda: values))
    tensor = unpadded(Dump([made]), listing(listed(shape=(2, 3))))["x"]
    if fits:
        assert tensor.stored().shape == shape
    else:
        with pytest.raises(
            ValuesError, match=r"in the dump and \[2, 3\] in net\.txt\. Check that both are of the same model"
        ):
            tensor.stored()


@pytest.mark.parametrize(("names", "shape"), [(["xyz"], (2, 3)), (["xyz", "xya"], None), (["yxz"], None)])
def test_a_cut_name_must_begin_one_name_only(names, shape):
    known = listing(*(listed(name, shape=(2, 3)) for name in names))
    assert unpadded(Dump([floats(6, "xy", cut=True)]), known)["xy"].info.shape == shape
    assert unpadded(Dump([floats(6, "xy")]), known)["xy"].info.shape is None
