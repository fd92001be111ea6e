"""Files of the SDK's converter, calibrator and compiler are read as they are, and damaged ones refused in one line."""

import lzma
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_files import unpacked

from sgsdump.cli import main
from sgsdump.dumps.formats.sigmastar import side_files
from sgsdump.dumps.io import open_dump
from sgsdump.errors import ModelError, SgsdumpError
from sgsdump.fixedpoint.quantisation.diagnosis.subject import given_fixed
from sgsdump.fixedpoint.sim import image, net
from sgsdump.fixedpoint.sim.file import CMODEL, DEBUG, FIXED, FLOAT, SimOperator, read
from sgsdump.fixedpoint.sim.onnx_graph import float_model
from sgsdump.fixedpoint.sim.plan import fixed_model
from sgsdump.fixedpoint.verbs.calibrate import calibrate
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.graph import attribute
from sgsdump.models.model import listing_of, net_of, open_model, ranges_of

KINDS = {"Debug_float.sim": DEBUG, "float.sim": FLOAT, "cmodel_float.sim": CMODEL, "fixed.sim": FIXED}


@pytest.fixture
def att(shared, tmp_path):
    folder = shared / "sigmastar/sim/att"
    return {name: unpacked(folder / f"{name}.xz", tmp_path) for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_known_by_its_content(att, tmp_path, name):
    other = att[name].rename(tmp_path / "model.bin")
    assert read(other).kind == KINDS[name]
    assert open_model(other).proto.graph.input[0].name == "data"


def test_a_tensor_has_type_format_scale_and_plan(att):
    sim = read(att["fixed.sim"])
    data = sim.by_name["data"]
    assert (data.shape, data.dtype, data.format, data.flags) == ((1, 16, 16, 3), np.uint8, "RGB", 1)
    assert data.quant is not None and data.quant.zero_point == 127
    assert data.quant.scale.dtype == np.float32 and data.quant.scale[0] == np.float32(0.007812502)
    assert sim.formats == (("RGB", "RGB"),)
    assert sim.version == "1.1.5_verified_21061809"
    planned = {tensor.name: tensor.planned for tensor in read(att["float.sim"]).tensors if not tensor.is_constant}
    assert set(map(str, planned.values())) <= {"uint8", "int16"} and str(planned["data"]) == "uint8"


def test_the_weights_of_float_sim_are_those_of_debug_float_sim(att):
    before, after = (read(att[name]) for name in ("Debug_float.sim", "float.sim"))
    names = [tensor.name for tensor in before.tensors if tensor.is_constant and len(tensor.shape) == 4]
    assert names
    for name in set(names) & set(after.by_name):
        np.testing.assert_array_equal(before.values(before.by_name[name]), after.values(after.by_name[name]))


def test_the_text_of_parse_net_is_the_vendors(shared, att):
    def comparable(text):
        import re

        lines = [line for line in text.splitlines() if line.startswith("|   |   |--> Tensor[")]
        lines = [re.sub(r"bVar: \d+", "bVar: 0", re.sub(r"buf: \S+\)\)?", "buf: (nil))", line)) for line in lines]
        return [line.rstrip() for line in lines]

    text = lzma.decompress((shared / "sigmastar/sim/att/parse_net.txt.xz").read_bytes()).decode()
    ours = comparable(net.text_of_sim(att["fixed.sim"]))
    assert ours and ours == comparable(text)[: len(ours)]


def test_a_fixed_sim_stands_in_for_parse_net_and_for_ranges(att):
    exact = net_of(att["fixed.sim"])
    assert exact.tensors["data"].exact and exact.tensors["data"].scale == float(np.float32(0.007812502))
    ranges = ranges_of(att["fixed.sim"])
    assert ranges["data"].high == 1.0
    with pytest.raises(ModelError, match=r"is a float model, which has no scales. Pass fixed\.sim"):
        net_of(att["float.sim"])


def test_the_listing_says_which_operators_are_one_of_the_dump(att):
    listing = listing_of(att["fixed.sim"])
    assert listing is not None and listing.kind == "fixed.sim"
    assert all(row["known"] for row in listing.operators)
    fused = [row["name"] for row in listing.tensors if row["role"] == "fused"]
    domains = {row["name"]: row["domain"] for row in listing.operators}
    assert len(set(domains.values())) == len(listing.operators) - len(fused)


def test_an_image_holds_the_fixed_model(shared):
    path = shared / "sigmastar/sim/add_of_two.img"
    read_image = image.read(path)
    assert [read_image.model.tensors[index].name for index in read_image.model.inputs] == ["data"]
    assert read_image.memory == 8192 and read_image.model.version.startswith("1.1.5")
    assert listing_of(path).facts["working memory"] == 8192


def test_each_of_two_pictures_has_its_own_formats(shared, tmp_path):
    """A byte per input says how it lies in memory, another what the network was trained on."""
    path = unpacked(shared / "sigmastar/sim/two_pictures/fixed.sim.xz", tmp_path)
    assert read(path).formats == (("RGB", "RGB"), ("BGR", "BGR"))
    entries = read_facts(open_model(path)).origin.inputs
    assert [(each.name, each.training_format, each.mean) for each in entries] == [
        ("a", "RGB", (127.0,) * 3),
        ("b", "BGR", (127.0,) * 3),
    ]


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_was_cut_off_is_refused(att, name):
    whole = att[name].read_bytes()
    for length in (8, 40, len(whole) // 3, len(whole) - 64):
        att[name].write_bytes(whole[:length])
        with pytest.raises(SgsdumpError) as error:
            open_model(att[name])
        assert "\n" not in str(error.value) and str(att[name]) in str(error.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"\xff\xd8\xff\xe0 JFIF" * 40, "is not a .sim file: the identifier TFL3 is missing"),
        (None, "cut off or damaged"),
    ],
)
def test_a_file_with_the_ending_is_refused_as_a_sim(att, capsys, data, why):
    path = att["fixed.sim"]
    path.write_bytes(path.read_bytes()[:2000] if data is None else data)
    for words in (
        ["show", str(path)],
        ["convert", str(path), "x.onnx"],
        ["histogram", str(path), "--parse-net", str(path)],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and (why in said or words[0] == "histogram")


def test_the_plan_of_a_fixed_model_goes_before_the_configurations(att, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    feeds = [
        {"data": np.random.default_rng(seed).normal(0, 0.5, (1, 3, 16, 16)).astype(np.float32)} for seed in range(3)
    ]
    ini = tmp_path / "input_config.ini"
    ini.write_text(
        "[INPUT_CONFIG]\ninputs = data;\ntraining_input_formats = RAWDATA_S16_NHWC;\n"
        "input_formats = RAWDATA_S16_NHWC;\nquantizations = TRUE;\n[CONV_CONFIG]\ninput_format = ALL_INT16;\n"
    )
    planned = calibrate(att["float.sim"], feeds, input_config=ini, quant_level="L1", plan_of=att["fixed.sim"])
    told = calibrate(att["float.sim"], feeds, input_config=ini, quant_level="L1")
    assert sum(bits == 16 for bits in planned.convolutions.values()) < sum(
        bits == 16 for bits in told.convolutions.values()
    )


def test_a_layout_that_is_not_known_is_refused(att):
    path = att["fixed.sim"]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Sigmastar Cmodel With IPU CTRL", b"Sigmastar Cmodel With IPU CRYP"))
    with pytest.raises(ModelError, match=r"unknown \.sim layout 'Sigmastar Cmodel With IPU CRYP' of version 3"):
        open_model(path)


def test_another_version_of_the_layout_is_refused(att):
    path = att["fixed.sim"]
    data = bytearray(path.read_bytes())
    root = struct.unpack_from("<I", data)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    place = root + struct.unpack_from("<H", data, vtable + 4)[0]
    assert data[place] == 3
    data[place] = 4
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"of version 4\. sgsdump reads"):
        open_model(path)


def test_pads_are_left_right_top_and_bottom(att, monkeypatch):
    whole = SimOperator.whole
    pads = {6: 0, 7: 2, 8: 1, 9: 1}
    sim = read(att["float.sim"])
    first = next(operator for operator in sim.operators if operator.kind == "CONV_2D")
    monkeypatch.setattr(
        SimOperator,
        "whole",
        lambda op, slot, default=0: (
            pads.get(slot, whole(op, slot, default)) if op is first else whole(op, slot, default)
        ),
    )
    model = float_model(sim)
    conv = next(node for node in model.proto.graph.node if node.op_type == "Conv")
    assert list(attribute(conv, "pads")) == [1, 0, 1, 2]  # top, left, bottom, right


def test_scales_per_channel_are_printed_as_parse_net_does(shared, tmp_path):
    path = unpacked(shared / "sigmastar/sim/ox_mix_L4/fixed.sim.xz", tmp_path)
    line = next(line for line in net.text_of_sim(path).splitlines() if "name(c0_w)" in line)
    text = lzma.decompress((shared / "sigmastar/probes3/ox_mix_L4/parse_net.txt.xz").read_bytes()).decode()
    theirs = next(
        line for line in text.splitlines() if "name(c0_w)" in line and line.startswith("|   |   |--> Tensor[")
    )
    assert " ..., Min: " in line
    assert line.partition("Quant:")[2] == theirs.partition("Quant:")[2].rstrip()


def test_a_softmax_keeps_the_steps_that_the_dump_prints(shared, tmp_path):
    """In the file is the scale that the Softmax's readers take."""
    exact = net_of(unpacked(shared / "sigmastar/sim/ox_mix_L4/fixed.sim.xz", tmp_path))
    dump = open_dump(shared / "sigmastar/probes3/ox_mix_L4/fixed.bin")
    quants, refused = side_files.scales_of(dump, exact)
    assert not refused and exact.tensors["sm"].scale < 1e-5
    assert quants["sm"].scale == 1 / 32768
    assert quants["y"].scale == exact.tensors["y"].scale


def test_a_convolution_of_fixed_sim_has_the_float_models_name(att):
    model = open_model(att["float.sim"])
    subject = given_fixed(model, att["fixed.sim"], None)
    facts = read_facts(subject.fixed_model)
    convolutions = {node.output[0] for node in model.proto.graph.node if node.op_type == "Conv"}
    assert facts is not None and set(facts.convolutions) == convolutions


def test_an_operator_that_is_not_known_is_named(att):
    path = att["float.sim"]
    sim = read(path)
    kinds = [operator.kind for operator in sim.operators]
    assert "CONV_2D" in kinds
    data = bytearray(path.read_bytes())
    root = struct.unpack_from("<I", data)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    codes = root + struct.unpack_from("<H", data, vtable + 4 + 2)[0]
    vector = codes + struct.unpack_from("<I", data, codes)[0]
    for index in range(struct.unpack_from("<I", data, vector)[0]):
        entry = vector + 4 + 4 * index
        table = entry + struct.unpack_from("<I", data, entry)[0]
        own = table - struct.unpack_from("<i", data, table)[0]
        place = struct.unpack_from("<H", data, own + 4)[0]
        if place and data[table + place] == 3:
            data[table + place] = 122
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"operator MATRIX_DIAG|operator [A-Z0-9_]+ with output '.*'"):
        open_model(path)


def test_a_range_that_is_not_finite_is_named(att):
    sim = read(att["fixed.sim"])
    last = sim.tensors[sim.outputs[0]]
    damaged = replace(last, quant=replace(last.quant, high=np.float32([np.nan])))
    with pytest.raises(ModelError, match=f"range or scale of tensor '{last.name}' that is not finite"):
        fixed_model(replace(sim, tensors=tuple(damaged if each is last else each for each in sim.tensors)))


def test_scales_that_no_multiplier_follows_from_are_refused(att):
    sim = read(att["fixed.sim"])
    convolution = next(operator for operator in sim.operators if operator.kind == "CONV_2D")
    weights = sim.tensors[convolution.inputs[1]]
    damaged = replace(weights, quant=replace(weights.quant, scale=np.float32([3e38])))
    with pytest.raises(ModelError, match="scales or ranges too large or too small for a multiplier"):
        fixed_model(replace(sim, tensors=tuple(damaged if each is weights else each for each in sim.tensors)))


def test_a_reduction_without_axes_is_refused(shared, tmp_path):
    sim = read(unpacked(shared / "sigmastar/sim/ox_rsum_hw/float.sim.xz", tmp_path))
    axes = sim.by_name["s_axis"]
    with pytest.raises(ModelError, match="has an empty list as attribute axes of the operator 's'"):
        float_model(
            replace(sim, tensors=tuple(replace(each, shape=(0,)) if each is axes else each for each in sim.tensors))
        )


@pytest.mark.parametrize(("name", "opened"), [("float.sim", float_model), ("fixed.sim", fixed_model)])
def test_a_constant_that_has_to_be_whole_numbers_is_finite(shared, tmp_path, name, opened):
    sim = read(unpacked(shared / f"sigmastar/sim/ox_rmean_fc/{name}.xz", tmp_path))
    constant = next(each for each in sim.tensors if each.name.startswith("Reshape") and each.is_constant)
    start, count = constant.extent
    data = bytearray(sim.data[:])
    data[start : start + count] = np.full(count // 4, np.nan, "<f4").tobytes()
    floats = replace(constant, dtype=np.dtype(np.float32))
    tensors = tuple(floats if each is constant else each for each in sim.tensors)
    with pytest.raises(ModelError, match=r"NaN or Inf in the constant 'Reshape.*Convert the model again"):
        opened(replace(sim, data=bytes(data), tensors=tensors))


def test_a_bias_takes_no_more_memory_than_its_convolution_has_filters(att):
    sim = read(att["fixed.sim"])
    biases = [sim.tensors[operator.inputs[2]] for operator in sim.operators if operator.kind == "CONV_2D"]
    huge = {bias.name: replace(bias, shape=(1 << 30, bias.shape[1])) for bias in biases}
    tracemalloc.start()
    try:
        fixed_model(replace(sim, tensors=tuple(huge.get(each.name, each) for each in sim.tensors)))
        assert biases and tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@given(st.data())
def test_damaged_files_end_in_one_line(shared, tmp_path_factory, data):
    name = data.draw(st.sampled_from(["float.sim", "fixed.sim"]))
    whole = bytearray(lzma.decompress((shared / f"sigmastar/sim/att/{name}.xz").read_bytes()))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 4))
        whole[place : place + 4] = data.draw(st.binary(min_size=4, max_size=4))
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(whole)
    try:
        open_model(path)
        listing_of(path)
    except SgsdumpError as error:
        assert "\n" not in str(error)
