"""Dumps of the SDK's tools against dumps of a Caffe network: blobs pair with their last stages."""

import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgsdump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.io import open_dump
from sgsdump.tensors.stages import Stage
from sgsdump.tensors.tensor import Tensor

RNG = np.random.default_rng(24)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape or (1, 6, 6, 4)).astype(np.float32)


class Sdk:
    """A dump as the SDK's simulator writes it, operator by operator, and the values it holds."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.values: dict[str, np.ndarray] = {"data": noise()}
        self.count = 0

    def add(self, op_type, reads, name, array=None, weights=(), fused=None):
        """An operator; ``fused`` is the word of the last of those that it stands for."""
        for slot, read in enumerate(reads.split()):
            self.records.append(Record("in", slot, self.count, op_type, Tensor.of(read, self.values[read])))
        for weight in weights:
            self.records.append(Record("in", 9, self.count, op_type, Tensor.of(weight, noise(4)), constant=True))
        self.values[name] = noise() if array is None else array
        self.records.append(Record("out", 0, self.count, fused or op_type, Tensor.of(name, self.values[name])))
        self.count += 1
        return self

    def conv(self, reads, name, **more):
        return self.add("CONV_2D", reads, name, weights=(f"{name}_filter", f"{name}_bias"), **more)

    def scaled(self, product, total):
        """BatchNorm and Scale."""
        read = self.records[-1].name
        self.add("MUL", read, product, weights=(f"bn_{read}_scale",))
        return self.add("ADD", product, total, weights=(f"bn_{read}_offset",))

    @property
    def dump(self) -> Dump:
        return Dump(self.records)

    def caffe(self, **blobs: str) -> Dump:
        """What pycaffe shows: each blob under its name, whose value is that of a stage."""
        return caffe({name.replace("__at__", "@"): self.values[stage] for name, stage in blobs.items()})


def caffe(values: dict[str, np.ndarray]) -> Dump:
    return Dump([Record("out", 0, i, name, Tensor.of(name, array)) for i, (name, array) in enumerate(values.items())])


def resnet_block() -> Sdk:
    """The names of the table in the SDK's manual, of the first block of a float ResNet."""
    sdk = Sdk().conv("data", "conv1").scaled("conv1_xx", "conv1_xx_xx").add("RELU", "conv1_xx_xx", "conv1_xx_xx_xx")
    sdk.add("MAX_POOL_2D", "conv1_xx_xx_xx", "pool1")
    sdk.conv("pool1", "res2a_branch1").scaled("res2a_branch1_xx", "res2a_branch1_xx_xx")
    sdk.conv("pool1", "res2a_branch2b").scaled("res2a_branch2b_xx", "res2a_branch2b_xx_xx")
    sdk.add("ADD", "res2a_branch1_xx_xx res2a_branch2b_xx_xx", "res2a").add("RELU", "res2a", "res2a_xx")
    return sdk.add("RESHAPE", "res2a_xx", "fc_reshape#1_output#60").conv("fc_reshape#1_output#60", "fc")


def names_of(comparison) -> dict[str, str]:
    return {row.name: row.sample_name for row in comparison.rows}


def expected_of(unpaired) -> set[str]:
    return {one.record.name for one in unpaired if one.expected}


BLOBS = {
    "conv1": "conv1_xx_xx_xx",
    "pool1": "pool1",
    "res2a_branch1": "res2a_branch1_xx_xx",
    "res2a_branch2b": "res2a_branch2b_xx_xx",
    "res2a": "res2a_xx",
    "fc": "fc",
}


def test_a_blob_is_its_last_stage_and_nothing_is_missing():
    sdk = resnet_block()
    reference = sdk.caffe(**BLOBS)
    found = sgsdump.compare(sdk.dump, reference)
    assert names_of(found) == BLOBS and found.worst.error == 0 and not found.suspects and not found.failed
    assert not found.only_in_benchmark and all(one.expected for one in found.only_in_sample)
    assert {row.stage for row in found.rows} == {stage for blob, stage in BLOBS.items() if stage != blob} | {""}
    assert [row.paired for row in found.rows] == ["stage", "name", "stage", "stage", "stage", "name"]
    # either dump may be the reference
    turned = sgsdump.compare(reference, sdk.dump)
    assert {row.sample_name: row.name for row in turned.rows} == BLOBS and turned.worst.error == 0
    assert found["conv1"] is found["conv1_xx_xx_xx"] and "conv1_xx_xx_xx" in found


def test_a_fused_dump_has_what_the_chip_keeps():
    whole, sdk = resnet_block(), Sdk()
    sdk.values |= whole.values
    kept = ["conv1_xx_xx_xx", "pool1", "res2a_branch1_xx_xx", "res2a_xx"]
    words = [("CONV_2D", "RELU"), ("MAX_POOL_2D", None), ("CONV_2D", "ADD"), ("CONV_2D", "RELU")]
    for (word, fused), read, name in zip(words, ["data", *kept], kept):
        sdk.add(word, read, name, whole.values[name], fused=fused)
    found = sgsdump.compare(sdk.dump, whole.caffe(**BLOBS))
    assert names_of(found) == {blob: stage for blob, stage in BLOBS.items() if stage in kept}
    assert found.worst.error == 0 and not found.only_in_sample
    assert [one.record.name for one in found.only_in_benchmark] == ["res2a_branch2b", "fc"]
    # two dumps of the SDK's pair by name, whichever has fewer stages
    for dumps in ((sdk.dump, whole.dump), (whole.dump, sdk.dump)):
        found = sgsdump.compare(*dumps)
        assert names_of(found) == {name: name for name in kept} and not found.suspects


def test_what_was_written_over_pairs_by_the_order_of_the_records():
    sdk = resnet_block()
    values = sdk.values
    every = {"conv1@conv1": values["conv1"], "bn1": noise(), "scale1": values["conv1_xx_xx"]}
    every |= {"conv1": values["conv1_xx_xx_xx"], "pool1": values["pool1"], "res2a@res2a": values["res2a"]}
    found = sgsdump.compare(sdk.dump, caffe({**every, "res2a": values["res2a_xx"]}))
    assert names_of(found) == {
        **{"conv1@conv1": "conv1", "scale1": "conv1_xx_xx", "conv1": "conv1_xx_xx_xx", "pool1": "pool1"},
        **{"res2a@res2a": "res2a", "res2a": "res2a_xx"},
    }
    assert found.worst.error == 0 and found["scale1"].paired == "the order of the layers in place"
    # a BatchNorm has no stage of its own where its Scale follows: the product is another tensor
    assert [one.record.name for one in found.only_in_benchmark] == ["bn1"] and "no stage" in found.only_in_benchmark[
        0
    ].reason


def test_layers_read_while_others_write_over_the_blob_between():
    sdk = Sdk().conv("data", "c").conv("c", "m")
    sdk.add("RELU", "c", "c_xx").conv("c_xx", "k").add("LOGISTIC", "c_xx", "c_xx_xx").conv("c_xx_xx", "l")
    reference = sdk.caffe(c__at__c="c", m="m", c_relu="c_xx", k="k", c="c_xx_xx", l="l")
    found = sgsdump.compare(sdk.dump, reference)
    assert found.worst.error == 0 and len(found) == 6 and not found.only_in_sample


def test_a_dropout_is_a_stage_of_the_sdk_alone():
    sdk = Sdk().conv("data", "c").add("RESHAPE", "c", "c_xx").add("RELU", "c_xx", "c_xx_xx")
    sdk.add("LOGISTIC", "c_xx_xx", "c_xx_xx_xx")
    every = {"c@c": "c", "relu": "c_xx_xx", "c": "c_xx_xx_xx"}
    found = sgsdump.compare(sdk.dump, caffe({name: sdk.values[stage] for name, stage in every.items()}))
    assert names_of(found) == every and found.worst.error == 0


def test_a_blob_that_the_sdk_does_not_have_is_not_taken_for_one_written_over():
    """BatchNorm and Scale, each with a top of its own, are one sum under the Scale's: probe n_bnscaleout."""
    sdk = Sdk().conv("data", "c").scaled("c_MUL", "s").add("RELU", "s", "s_xx")
    found = sgsdump.compare(
        sdk.dump, caffe({**sdk.values, "b": noise(), "s": sdk.values["s_xx"]}).select("c", "b", "s")
    )
    assert names_of(found) == {"c": "c", "s": "s_xx"} and found.worst.error == 0
    assert [one.record.name for one in found.only_in_benchmark] == ["b"]


def test_two_dumps_of_the_sdk_pair_by_name_whatever_is_left_of_them():
    sdk = Sdk().conv("data", "a").add("RELU", "a", "a_xx").conv("a_xx", "b")
    for dumps in ((sdk.dump, sdk.dump.select("data", "a", "b")), (sdk.dump.select("data", "a", "b"), sdk.dump)):
        found = sgsdump.compare(*dumps)
        assert names_of(found) == {"a": "a", "b": "b"} and found.worst.error == 0


def test_a_copy_in_one_of_two_dumps_of_the_sdk():
    sdk = Sdk().conv("data", "a").add("RELU", "a", "a_xx").add("CONCATENATION", "a_xx", "route#1#193")
    ours = Sdk().conv("data", "a", array=sdk.values["a"]).add("CONCATENATION", "a", "route", sdk.values["route#1#193"])
    for dumps in ((sdk.dump, ours.dump), (ours.dump, sdk.dump)):
        found = sgsdump.compare(*dumps)
        assert [(row.paired, row.error) for row in found] == [("name", 0), ("copy", 0)]
    both = Sdk().conv("data", "a").add("RELU", "a", "a#1#9")
    found = sgsdump.compare(both.dump, both.dump.select("data", "a"))
    assert names_of(found) == {"a": "a"}


def test_outputs_have_their_last_stage_under_their_own_name():
    sdk = Sdk().conv("data", "o#0").scaled("o#0_MUL", "o")
    found = sgsdump.compare(sdk.dump, sdk.caffe(o="o"))
    assert names_of(found) == {"o": "o"} and found.worst.error == 0
    assert expected_of(found.only_in_sample) == {"o#0", "o#0_MUL"}


def test_blobs_that_are_called_as_stages_of_others():
    """c, c_xx and c_xx_xx are blobs, the first two with a ReLU in place: the vendor's own names, probe n_taken."""
    sdk = Sdk().conv("data", "c").add("RELU", "c", "c_xx").conv("c_xx", "c_xx_xx")
    sdk.add("RELU", "c_xx_xx", "c_xx_xx_xx").conv("c_xx_xx_xx", "c_xx_xx_xx_xx")
    found = sgsdump.compare(sdk.dump, sdk.caffe(c="c_xx", c_xx="c_xx_xx_xx", c_xx_xx="c_xx_xx_xx_xx"))
    assert names_of(found) == {"c": "c_xx", "c_xx": "c_xx_xx_xx", "c_xx_xx": "c_xx_xx_xx_xx"}
    assert found.worst.error == 0
    # what their layers wrote over is left open
    every = {"c@c": "c", "c": "c_xx", "c_xx@c_xx": "c_xx_xx", "c_xx": "c_xx_xx_xx", "c_xx_xx": "c_xx_xx_xx_xx"}
    found = sgsdump.compare(sdk.dump, caffe({name: sdk.values[stage] for name, stage in every.items()}))
    assert names_of(found).items() <= every.items() and len(found) >= 3


def test_a_copy_is_the_tensor_and_a_shape_that_does_not_fit_gives_way():
    sdk = Sdk().conv("data", "a").add("CONCATENATION", "a", "route#1#193").add("RELU", "a", "b")
    sdk.add("RELU", "b", "b_xx", noise(1, 3, 3, 4))
    found = sgsdump.compare(sdk.dump, sdk.caffe(a="a", route="route#1#193", b="b"))
    assert names_of(found) == {"a": "a", "route": "route#1#193", "b": "b"}
    assert found["route"].paired == "copy" and found.worst.error == 0


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_concat_whose_parts_the_converter_aligned(layout):
    """Channels go up to a multiple of 8 within the Concat; the probe is yoloface's layer14-route, 18 and 18 to 48."""
    a, b = noise(), noise(1, 6, 6, 6)
    whole = np.concatenate([a, b], axis=3)
    sdk = Sdk().conv("data", "a", array=a).conv("data", "b", array=b)
    sdk.add("Align2", "a", "a#1#9", np.pad(a, [(0, 0)] * 3 + [(0, 4)]))
    sdk.add("Align2", "b", "b#1#8", np.pad(b, [(0, 0)] * 3 + [(0, 2)]))
    aligned = np.concatenate([sdk.values["a#1#9"], sdk.values["b#1#8"]], axis=3)
    sdk.add("CONCATENATION", "a#1#9 b#1#8", "route#1#10", aligned.reshape(-1))
    shown = whole if layout == "NHWC" else np.ascontiguousarray(whole.transpose(0, 3, 1, 2))
    reference = [Record("out", 0, 0, "route", Tensor.of("route", shown, layout=layout))]
    (row,) = sgsdump.compare(sdk.dump, Dump(reference)).rows
    assert (row.sample_name, row.error, row.count) == ("route#1#10", 0, whole.size)
    assert "without the alignment zeros of its 2 parts" in row.note
    (turned,) = sgsdump.compare(Dump(reference), sdk.dump).rows
    assert turned.error == 0


@pytest.mark.parametrize("words", [("Conv", "Relu"), ("Conv2d", "ReLU")])
def test_dumps_of_other_tools_pair_by_name_whatever_they_call_their_tensors(words):
    values = {name: noise() for name in ("a", "a_xx", "a_MUL", "b#0", "b")}
    sample = Dump(
        [Record("out", 0, i, words[i % 2], Tensor.of(name, array)) for i, (name, array) in enumerate(values.items())]
    )
    found = sgsdump.compare(sample, caffe({name: values[name] for name in ("a", "b")}))
    assert names_of(found) == {"a": "a", "b": "b"} and not expected_of(found.only_in_sample)
    # the SDK's own dump of an ONNX model: the other side has the names
    sdk = Sdk().conv("data", "a").add("RELU", "a", "a_xx").add("MUL", "a_xx", "a_MUL")
    found = sgsdump.compare(sdk.dump, sdk.caffe(a="a", a_xx="a_xx", a_MUL="a_MUL"))
    assert names_of(found) == {"a": "a", "a_xx": "a_xx", "a_MUL": "a_MUL"} and found.worst.error == 0


def test_a_format_without_operators_pairs_by_stages_where_they_explain_every_name():
    values = {name: noise() for name in ("c", "c_MUL", "c_xx", "c_xx_xx", "fc#61", "fc")}
    sample, reference = (caffe(values), caffe({"c": values["c_xx_xx"], "fc": values["fc"]}))
    for record in sample.records:
        assert record.op_type == record.name
    assert names_of(sgsdump.compare(sample, reference)) == {"c": "c_xx_xx", "fc": "fc"}
    more = caffe({**values, "another": noise()})
    assert names_of(sgsdump.compare(more, reference)) == {"c": "c", "fc": "fc"}


def test_a_table_of_stages_tells_what_names_cannot():
    """The chip keeps an InnerProduct's own value, and not the one after BatchNorm and Scale: c is not the blob c."""
    sdk = Sdk().conv("data", "c").add("ADD", "c c", "e_xx")
    values = {"c": noise(), "bn": noise(), "e": sdk.values["e_xx"]}
    table = [Stage("c", "c", "ip"), Stage("c_xx", "c", "bn"), Stage("e", "e", "sum"), Stage("e_xx", "e", "relu")]
    found = sgsdump.compare(sdk.dump, caffe(values), stages=table)
    assert names_of(found) == {"e": "e_xx"} and found["e"].paired == "the model's stages"
    assert expected_of(found.only_in_sample) == {"c"}
    (alone,) = (one for one in found.only_in_benchmark if one.record.name == "c")
    assert "'c_xx' is not in the sample, only earlier ones" in alone.reason
    every = caffe({"c@ip": sdk.values["c"], **values})
    assert names_of(sgsdump.compare(sdk.dump, every, stages=table)) == {"c@ip": "c", "e": "e_xx"}
    # the table of another model says nothing
    assert names_of(sgsdump.compare(sdk.dump, caffe(values), stages=[Stage("z_xx", "z", "z")]))["e"] == "e_xx"


def test_a_value_that_the_table_says_is_in_no_tensor_has_no_pair():
    """A BatchNorm in place, whose Scale has a top of its own: the SDK has the sum of both alone."""
    sdk = Sdk().conv("data", "c").add("MUL", "c", "c_MUL").add("ADD", "c_MUL", "s")
    values = {"c": noise(), "s": sdk.values["s"]}
    table = [Stage("c", "c", "c"), Stage("", "c", "bn"), Stage("c_MUL", "s", "bn"), Stage("s", "s", "scale")]
    found = sgsdump.compare(sdk.dump, caffe(values), stages=table)
    assert names_of(found) == {"s": "s"}
    (alone,) = (one for one in found.only_in_benchmark if one.record.name == "c")
    assert alone.reason == "the sample has no stage for it (a BatchNorm and its Scale form one stage)"
    every = caffe({"c@c": sdk.values["c"], **values})
    assert names_of(sgsdump.compare(sdk.dump, every, stages=table)) == {"c@c": "c", "s": "s"}


class TestUntrueRuns:
    """A run that goes wrong is never taken for a right one under another name."""

    LENIENT = Thresholds(min_cos=-1.0, max_rmse=1e9)

    def chain(self) -> Sdk:
        sdk = Sdk().conv("data", "a").add("RELU", "a", "a_xx")
        sdk.values["a_xx"] = np.maximum(sdk.values["a"], 0)
        sdk.records[-1] = Record("out", 0, 1, "RELU", Tensor.of("a_xx", sdk.values["a_xx"]))
        return sdk.conv("a_xx", "o1").conv("a_xx", "o2")

    def sample(self, sdk: Sdk, **values: np.ndarray) -> Dump:
        """The run with other values of some tensors."""
        return Dump(
            [
                Record(
                    r.io,
                    r.slot,
                    r.op_index,
                    r.op_type,
                    Tensor.of(r.name, values.get(r.name, r.tensor.real())),
                    r.constant,
                )
                for r in sdk.records
            ]
        )

    def references(self, sdk: Sdk) -> tuple[Dump, Dump]:
        return sdk.dump, sdk.caffe(a="a_xx", o1="o1", o2="o2")

    def test_swapped_outputs(self):
        sdk = self.chain()
        swapped = self.sample(sdk, o1=sdk.values["o2"], o2=sdk.values["o1"])
        for reference in self.references(sdk):
            found = sgsdump.compare(swapped, reference)
            assert {name: names_of(found)[name] for name in ("o1", "o2")} == {"o1": "o1", "o2": "o2"}
            assert [row.name for row in found.past()] == ["o1", "o2"] and not found.suspects
            assert found.worst.name in ("o1", "o2") and found["o1"].verdict() == "fail"
            assert "holds the values of o2" in found["o1"].note

    def test_a_dropped_relu(self):
        sdk = self.chain()
        dropped = self.sample(sdk, a_xx=sdk.values["a"])
        for reference, name in zip(self.references(sdk), ("a_xx", "a")):
            found = sgsdump.compare(dropped, reference)
            assert names_of(found)[name] == "a_xx"
            assert found.worst.name == name and [row.name for row in found.past()] == [name]
            assert found[name].verdict() == "fail" and not found.passes()
        by_name = sgsdump.compare(dropped, sdk.dump)
        assert "values is a, the output of CONV_2D (COS 1.000000, RMSE 0.000000)" in str(by_name["a_xx"].misnamed)
        assert by_name["a_xx"].rmse > 0.1 and not by_name.passes(self.LENIENT)

    def test_a_layer_that_reads_one_too_early(self):
        sdk = self.chain()
        early = self.sample(sdk, o1=noise())
        for reference in self.references(sdk):
            found = sgsdump.compare(early, reference)
            assert names_of(found)["o1"] == "o1" and [row.name for row in found.past()] == ["o1"]
            assert not found.suspects

    def test_tensors_of_zeros(self):
        sdk = self.chain()
        zeros = np.zeros((1, 6, 6, 4), np.float32)
        for changed in ({"a_xx": zeros}, {"a": zeros, "a_xx": zeros}, dict.fromkeys(["a", "a_xx", "o1", "o2"], zeros)):
            for reference in self.references(sdk):
                found = sgsdump.compare(self.sample(sdk, **changed), reference)
                assert {row.sample_name for row in found.past()} == {*changed} & {row.sample_name for row in found}
                assert not found.suspects
        # zeros on both sides agree
        assert sgsdump.compare(self.sample(sdk, a_xx=zeros), self.sample(sdk, a_xx=zeros)).passes()

    def test_pairs_of_a_map_are_what_they_are(self):
        sdk = self.chain()
        moved = self.sample(sdk, a=sdk.values["a_xx"], a_xx=sdk.values["a"])
        found = sgsdump.compare(moved, caffe({"x": sdk.values["a_xx"]}), name_map={"x": "a_xx"})
        assert [(row.sample_name, row.paired) for row in found] == [("a_xx", "map")]
        assert not found.suspects and "holds the values of a of the sample" in found["x"].note
        assert not found.passes()


PROBES = "none bnonly relubn dropfirst power outs outread midread elt2 scalenob scaleonly layname datainp".split()


def run_whole(proto, picture: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor of a model."""
    import onnx
    import onnxruntime

    names = [name for node in proto.graph.node for name in node.output]
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    return dict(zip(names, session.run(names, {session.get_inputs()[0].name: picture})))


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("name", PROBES)
def test_the_vendors_dumps_against_ours_of_the_prototxt(shared, tmp_path, name, every):
    """Every layer that the SDK keeps is paired with the right tensor: the values agree to float32's rounding."""
    from sgsdump.models.model import open_model

    folder = shared / f"sigmastar/probes_inplace/{name}"
    model = open_model(folder / "net.prototxt", folder / "net.caffemodel")
    picture = (np.load(folder / "input.npy").astype(np.float32) - 127) / 128
    shown = model.blobs | (model.overwritten if every else frozenset())
    tensors = run_whole(model.proto, picture.transpose(2, 0, 1)[None])
    values = {n: array for n, array in tensors.items() if n in shown}
    reference = caffe({n: a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for n, a in values.items()})
    path = tmp_path / "float.bin"
    path.write_bytes(lzma.decompress((folder / "float.bin.xz").read_bytes()))
    with open_dump(path) as dump:
        found = sgsdump.compare(dump, reference)
        left = {one.record.name for one in found.only_in_benchmark}
        assert len(found) + len(left) == len(values) and not found.failed
        assert max(row.error for row in found) < 1e-5 and not found.suspects
        assert all(one.expected for one in found.only_in_sample)
        # a BatchNorm that a Scale follows has no stage
        assert all(every and name.endswith("bn") for name in left)


NAMES = ["c", "c_xx", "c_xx_xx", "c_xx_xx_xx", "d", "d#0", "e_MUL", "e", "x@y", "x"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True).flatmap(
        lambda blobs: st.lists(st.integers(0, 3), min_size=len(blobs), max_size=len(blobs)).map(
            lambda counts: list(zip(blobs, counts))
        )
    ),
    st.booleans(),
    st.booleans(),
)
def test_whatever_a_network_calls_its_blobs(blobs, is_sample, is_fused):
    """Chains of convolutions with layers in place; the names by the rule: of the first top that is free."""
    sdk, taken, stages = Sdk(), {"data"}, {}
    read = "data"
    for blob, count in blobs:
        for number in range(count + 1):
            name = blob
            while name in taken:
                name += "_xx"
            taken.add(name)
            if is_fused:
                stages[blob] = name
            elif number:
                sdk.add("RELU", read, name)
            else:
                sdk.conv(read, name)
            read = name if not is_fused else read
        if is_fused:
            sdk.conv(read, stages[blob], fused="RELU" if count else None)
        read = stages[blob] = stages.get(blob, read)
    reference = caffe({blob: sdk.values[stage] for blob, stage in stages.items()})
    found = sgsdump.compare(sdk.dump, reference) if is_sample else sgsdump.compare(reference, sdk.dump)
    pairs = {(r.name, r.sample_name) if is_sample else (r.sample_name, r.name) for r in found}
    assert pairs == set(stages.items()) and found.worst.error == 0


def test_a_table_settles_blobs_that_are_called_as_stages_of_others():
    sdk = Sdk().conv("data", "c").add("RELU", "c", "c_xx").conv("c_xx", "c_xx_xx").add("RELU", "c_xx_xx", "c_xx_xx_xx")
    table = [Stage("c", "c", "c"), Stage("c_xx", "c", "r"), Stage("c_xx_xx", "c_xx", "d")]
    table += [Stage("c_xx_xx_xx", "c_xx", "s")]
    every = {"c@c": "c", "c": "c_xx", "d": "c_xx_xx", "c_xx": "c_xx_xx_xx"}
    found = sgsdump.compare(sdk.dump, caffe({name: sdk.values[stage] for name, stage in every.items()}), stages=table)
    assert names_of(found) == every and found.worst.error == 0
    assert {row.paired for row in found} == {"the model's stages"}


def test_the_converters_own_tensors_are_not_missing():
    sdk = Sdk().conv("data", "a").add("RESHAPE", "a", "fc_reshape#1_output#3").conv("fc_reshape#1_output#3", "fc#5")
    sdk.add("RESHAPE", "fc#5", "fc").add("RESHAPE", "fc", "fc/flatten").conv("fc/flatten", "left")
    found = sgsdump.compare(sdk.dump, sdk.caffe(a="a", fc="fc"))
    assert expected_of(found.only_in_sample) == {"fc_reshape#1_output#3", "fc#5", "fc/flatten"}
    assert [one.record.name for one in found.only_in_sample if not one.expected] == ["left"]
