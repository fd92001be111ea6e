"""The SDK's names of stages, as its dumps of Caffe networks show them (``../shared/data/sigmastar/probes_inplace``)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sgsdump.errors import FormatError
from sgsdump.tensors.stages import (
    Stage,
    StageNames,
    is_converters_own,
    last_of_table,
    last_stage,
    of_layers,
    table_of,
    without_copy,
)


@pytest.mark.parametrize(
    ("blob", "names", "last"),
    [
        ("conv1", ["conv1", "conv1_xx", "conv1_xx_xx", "conv1_xx_xx_xx", "pool1"], "conv1_xx_xx_xx"),
        ("conv1", ["conv1_xx_xx_xx", "conv1_1", "conv10_xx"], "conv1_xx_xx_xx"),  # fused: what is kept of it
        ("a", ["a", "a_MUL", "a_xx", "a_xx_xx"], "a_xx_xx"),
        ("a", ["a", "a_xx", "a_xx_MUL", "a_xx_xx_xx"], "a_xx_xx_xx"),
        ("a", ["a", "a_pow_MUL_output", "a_xx"], "a_xx"),
        ("prob", ["prob#0", "prob#0_xx", "prob"], "prob"),
        ("prob", ["prob#0", "prob#0_xx"], None),  # the last stage is the one of the blob's name
        ("c#1", ["c#1", "c#1_xx", "c"], "c"),
        ("pool1", ["pool1", "conv1"], "pool1"),
        ("up", ["up_tile_output"], "up_tile_output"),
        ("up", ["up_tile_output", "up"], "up"),
        ("a_x", ["a_x", "a_xx"], "a_x"),
        ("b", ["a", "a_xx"], None),
    ],
)
def test_the_last_stage_of_a_blob(blob, names, last):
    assert last_stage(blob, names) == last


def test_stages_are_numbered_by_the_layers_on_the_blob():
    names = StageNames(["a", "a_xx_xx", "o#0", "o#0_xx", "o", "a_xx"])
    assert names.of("a") == {"a": 0, "a_xx_xx": 2, "a_xx": 1}
    assert names.of("o") == {"o#0": 0, "o#0_xx": 1, "o": 2}


@example("#0#0", 1)
@example("#00#0", 1)
@given(st.text("ab_#@x01", min_size=1, max_size=8), st.integers(0, 4))
def test_a_blob_and_what_layers_in_place_append_to_it(blob, layers):
    names = [blob + "_xx" * number for number in range(layers + 1)]
    assert last_stage(blob, [*names, "other", f"{blob}y"]) == names[-1]


def test_copies_and_the_converters_own_tensors():
    assert without_copy("layer14-route#1#193") == "layer14-route"
    assert without_copy("fc#61") == "fc#61"
    own = ["fc#61", "fc_reshape#1_output#60", "c2_addn_output_tensor#15", "re#/Mul0Output#34", "up_tile_output"]
    own += ["g_split_output#0", "g_conv#1_output#1", "a_pow_MUL_output", "p1_pad_output", "s_transpose#1_output"]
    assert all(map(is_converters_own, own))
    assert not any(map(is_converters_own, ["conv1", "conv1_xx", "my_output", "conv#a", "data_MUL"]))


def test_the_table_of_a_model():
    table = table_of('[["c", "c", "c"], ["c_xx", "c", "c_scale"], ["p", "p", "pool"]]')
    assert last_of_table(table) == {"c": "c_xx", "p": "p"}
    assert of_layers(table)["c@c_scale"] == of_layers(table)["c_scale"] == "c_xx"
    assert table[2] == Stage("p", "p", "pool")


@pytest.mark.parametrize("text", ["", "{}", '[["a", "b"]]', '[["a", "b", 1]]', "[" * 100000, "1"])
def test_a_damaged_table_is_an_error(text):
    with pytest.raises(FormatError, match=r"not a list of \[stage, blob, layer\]"):
        table_of(text)
