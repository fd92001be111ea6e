"""Rules of pairing, turning and judging that docstrings state and a small change could break unseen."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import sgsdump
from sgsdump import Dump, Quant, Record, Tensor
from sgsdump.comparison.distribution import describe
from sgsdump.comparison.layout_match import measure, without_overallocation
from sgsdump.comparison.metrics.base import Sums
from sgsdump.comparison.naming import ge_graph, mindie_map, name_map
from sgsdump.comparison.naming.layer_names import pairs_by_layer
from sgsdump.comparison.pairing.alignment import align
from sgsdump.comparison.vendor_metrics.msaccucmp import printed
from sgsdump.errors import FormatError, ValuesError
from sgsdump.tensors.tensor import Values
from sgsdump.tensors.types import Range


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def record(name, values, io="out", op_index=0, slot=0, op_type="ADD", constant=False, **facts) -> Record:
    return Record(io, slot, op_index, op_type, Tensor.of(name, np.asarray(values), **facts), constant)


# -- layouts -----------------------------------------------------------------------------------------------------------

NHWC = noise(2, 4, 5, 3)
NCHW = np.ascontiguousarray(NHWC.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("sample", "benchmark"),
    [(NCHW, NHWC), (NCHW.reshape(-1), NHWC), (NCHW, NHWC.reshape(-1))],
    ids=["both shaped", "sample flat", "benchmark flat"],
)
def test_known_layouts_decide_though_one_side_is_flat(sample, benchmark):
    measured = measure(Values(sample), Values(benchmark), layouts=("NCHW", "NHWC"))
    assert measured.sums.dd == 0 and measured.note == "benchmark transposed NHWC to NCHW"
    assert measured.sample.array.shape == measured.benchmark.array.shape == NCHW.shape


def test_known_layouts_of_other_letters_shapes_or_none_do_not_decide():
    for layouts in ((None, "NHWC"), ("NCHW", None), ("NCHW", "NCDHW"), ("ND", "NHWC")):
        assert "NHWC to NCHW" in measure(Values(NCHW), Values(NHWC), layouts=layouts).note
    flat = measure(Values(NCHW.reshape(-1)), Values(NCHW.reshape(-1)), layouts=("NCHW", "NHWC"))
    assert flat.sums.dd == 0 and flat.note == ""
    assert measure(Values(NHWC), Values(NHWC), layouts=("NHWC", "NHWC")).note == ""


@pytest.mark.parametrize("layouts", [(None, None), ("NCHW", "NHWC"), ("NHWC", "NHWC")])
@pytest.mark.parametrize("other", [NHWC[:1], NHWC[:, :2], NHWC[:1].reshape(-1)])
def test_other_sizes_are_refused_whatever_the_layouts(layouts, other):
    for pair in ((NHWC, other), (other, NHWC)):
        with pytest.raises(ValuesError, match="sizes differ"):
            measure(*map(Values, pair), layouts=layouts)


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [((12, 12), 12), ((16, 12), 12), ((12, 16), 12), ((17, 12), None), ((15, 12), None), ((9, 12), 9)],
)
def test_four_values_for_a_pixel_s_three(sizes, kept):
    a, b = (np.arange(size, dtype=np.float32) for size in sizes)
    x, y, note = without_overallocation(Values(a), Values(b))
    assert (x.array.size, y.array.size) == ((kept, kept) if kept else sizes)
    assert note.startswith(f"the first {kept} of {max(sizes)} values") is (kept is not None and sizes[0] != sizes[1])


# -- pairing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([], "no output of this name in the benchmark"),
        ([("in", 0, False)], "the benchmark has it only as an input"),
        ([("in", 0, True)], "the benchmark has it only as a constant"),
        ([("in", 0, False), ("in", 1, True)], "the benchmark has it only as an input"),
        ([("in", 0, True), ("in", 1, False)], "the benchmark has it only as a constant"),
        ([("out", 1, False)], "the benchmark has it only as output 1, not 0"),
        ([("out", 2, False), ("out", 1, False)], "the benchmark has it only as output 1 and 2, not 0"),
        ([("out", n, False) for n in (1, 2, 3)], "the benchmark has it only as output 1 and 2 and 3, not 0"),
        ([("out", n, False) for n in (1, 2, 3, 4)], r"the benchmark has it only as output 4 names (1 …), not 0"),
        ([("out", 1, True)], "the benchmark has it only as a constant"),
    ],
)
def test_why_a_tensor_has_no_partner(others, reason):
    benchmark = [record("x", [1.0], io, slot=slot, constant=constant) for io, slot, constant in others]
    found = align(Dump([record("x", [1.0])]), Dump([record("y", [1.0]), *benchmark]))
    assert [(one.record.name, one.reason) for one in found.only_in_sample] == [("x", reason)]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("balanced", [False, True], ids=["", "of mean 0"])
def test_values_pair_at_any_scale(scale, balanced):
    a, b = noise(40, 50) * scale, noise(40, 50, seed=1) * scale
    if balanced:
        a[20:], b[20:] = -a[:20], -b[:20]
    sample = Dump([record("p", a * (1 + 3e-4 * noise(40, 50, seed=2))), record("q", b)])
    benchmark = Dump([record("r", b), record("s", a)])
    comparison = sgsdump.compare(sample, benchmark, match_by_value=True)
    assert [(row.sample_name, row.name, row.paired) for row in comparison.rows] == [
        *(("q", "r", "value"), ("p", "s", "value")),
    ]


def test_a_pair_that_cannot_be_read_hides_no_misnamed_one():
    unknown = Quant(np.dtype(np.int16), 0.5)
    a, b = noise(30), noise(30, seed=1)
    benchmark = Dump([record("i", np.arange(30.0)), record("x", a), record("y", b), record("j", np.arange(30.0))])
    integers = np.arange(30, dtype=np.int16)
    sample = Dump(
        [record("i", integers, quant=unknown), record("x", b), record("y", a), record("j", integers, quant=unknown)]
    )
    for comparison in (sgsdump.compare(sample, benchmark), sgsdump.compare(benchmark, sample)):
        assert [row.name for row in comparison.suspects] == ["x", "y"]
        assert len(comparison.failed) == 2 and comparison.alike == ()


def test_rows_can_be_put_into_a_set():
    dump = Dump([record("x", noise(30)), record("y", noise(30, seed=1))])
    assert len(set(sgsdump.compare(dump, dump).rows)) == 2


# -- ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "overshoot", "outside"),
    [(-1, 9, 0.0, 0), (0, 8, 0.0, 0), (0, 4, 1.0, 4), (1, 9, 0.125, 1), (2, 6, 0.5, 4), (8, 8, np.inf, 8)],
)
def test_how_far_values_reach_beyond_their_range(low, high, overshoot, outside):
    values = np.arange(9, dtype=np.float32)
    found = describe(3, record("x", values), values, Range.of(low, high))
    assert (found.overshoot, found.outside, found.limits, found.index) == (overshoot, outside, (low, high), 3)
    assert describe(0, record("x", values), values, None).overshoot == 0.0


# -- names of other tools ----------------------------------------------------------------------------------------------


def test_attributes_of_a_graph_that_are_of_another_form_are_looked_over(tmp_path):
    names = {"key": "_datadump_original_op_names", "value": {"list": {"s": ["a"]}}}
    odd = [{"key": "_datadump_original_op_names", "value": "x"}, {"key": 3, "value": {"s": "y"}}, {"value": {}}]
    for attributes in ([*odd, names], [names, *odd]):
        op = {
            "name": "c",
            "attr": attributes,
            "output_desc": [{"attr": [{"key": "_datadump_origin_name", "value": 7}]}],
        }
        (tmp_path / "g.json").write_text(json.dumps({"graph": [{"op": [op]}]}))
        plain = {"name": "c", "attr": [names], "output_desc": [{"attr": []}]}
        (tmp_path / "h.json").write_text(json.dumps({"graph": [{"op": [plain]}]}))
        assert ge_graph.read(tmp_path / "g.json") == ge_graph.read(tmp_path / "h.json") != []


@pytest.mark.parametrize(
    ("row", "sound"),
    [
        ({"rt_layer": "r", "jit_node": "%a : x"}, True),
        ({"rt_layer": "r", "ge_op": "g", "id": 1}, True),
        ({"rt_layer": "r", "ge_op": "g", "id": 1, "fusion_op": "f"}, True),
        ({"rt_layer": "r", "ge_op": "g", "id": 1, "fusion_op": None}, True),
        ({"rt_layer": 3, "ge_op": "g", "id": 1}, False),
        ({"rt_layer": 3, "jit_node": "%a : x"}, False),
        ({"rt_layer": "r", "ge_op": "g", "id": 1, "fusion_op": 3}, False),
        ({"rt_layer": "r", "jit_node": "%a : x", "fusion_op": [1]}, False),
        ({"rt_layer": "r", "ge_op": "g"}, False),
        ({"rt_layer": "r", "ge_op": "g", "id": "1"}, False),
        ({"rt_layer": "r", "ge_op": "g", "id": True}, False),
        ({"rt_layer": "r", "ge_op": 3, "id": 1}, False),
        ({"rt_layer": "r"}, False),
    ],
)
def test_rows_of_mindie_s_files(tmp_path, row, sound):
    torch = [{"rt_layer": "r", "jit_node": "%b : x"}]
    engine = [{"rt_layer": "r", "ge_op": "h", "id": 2}]
    files = {tmp_path / "torch.json": torch, tmp_path / "engine.json": engine}
    for path, rows in files.items():
        path.write_text(json.dumps(rows))
    for path, rows in files.items():
        path.write_text(json.dumps([*rows, row]))
        if sound:
            assert mindie_map.read(*files)
        else:
            with pytest.raises(FormatError, match="names neither a jit_node nor a ge_op with its id"):
                mindie_map.read(*files)
        path.write_text(json.dumps(rows))


def test_a_written_map_is_indented_by_one_and_ends_its_last_line(tmp_path):
    name_map.write({"b": "a", "ü": "\udcff"}, tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text() == '{\n "b": "a",\n "\\u00fc": "\\udcff"\n}\n'
    assert name_map.read(tmp_path / "m.json") == {"b": "a", "ü": "\udcff"}


def test_an_origin_without_an_index_is_the_first_output(tmp_path):
    def links(*more):
        named = {"key": "_datadump_origin_name", "value": {"s": "o"}}
        op = {"name": "c", "attr": [], "output_desc": [{"attr": [named, *more]}]}
        (tmp_path / "g.json").write_text(json.dumps({"graph": [{"op": [op]}]}))
        return ge_graph.read(tmp_path / "g.json")

    first, second = ({"key": "_datadump_origin_output_index", "value": {"i": i}} for i in (0, 1))
    assert links() == links(first) != links(second)


@pytest.mark.parametrize("form", [lambda name: name, lambda name: [name, 7], lambda name: [name]])
def test_an_api_stands_in_the_module_that_construct_json_names(tmp_path, form):
    def dump(folder, names):
        (tmp_path / folder).mkdir()
        parents = {name: form(f"Module.{name.rpartition('!')[0] or 'net'}.Net.forward.0") for name in names}
        parents = {name.rpartition("!")[2]: parent for name, parent in parents.items()}
        (tmp_path / folder / "construct.json").write_text(json.dumps(parents))
        path = tmp_path / folder / "dump.json"
        for empty in (path, path.with_name("stack.json")):
            empty.write_text("{}")
        return Dump([record(f"{name}.output.0", noise(4)) for name in parents], "msprobe", path, path)

    sample = dump("a", ["one!Torch.relu.0.forward", "two!Torch.relu.1.forward"])
    benchmark = dump("b", ["two!Torch.relu.0.forward", "one!Torch.relu.1.forward"])
    pairs, _ = pairs_by_layer(sample, sample.records, benchmark, benchmark.records, {})
    assert {(pair.sample.name, pair.benchmark.name) for pair in pairs} == {
        ("Torch.relu.0.forward.output.0", "Torch.relu.1.forward.output.0"),
        ("Torch.relu.1.forward.output.0", "Torch.relu.0.forward.output.0"),
    }


def test_forward_and_backward_of_a_module_are_two_places(tmp_path):
    def dump(folder, words):
        (tmp_path / folder).mkdir()
        names = [f"Module.net.{word}.output.0" for word in words]
        parents = {f"Module.net.{word}": None for word in words}
        (tmp_path / folder / "construct.json").write_text(json.dumps(parents))
        path = tmp_path / folder / "dump.json"
        for empty in (path, path.with_name("stack.json")):
            empty.write_text("{}")
        return Dump([record(name, noise(4, seed=i)) for i, name in enumerate(names)], "msprobe", path, path)

    sample = dump("a", ["Net.forward.0", "Net.backward.0", "Net.forward.1"])
    benchmark = dump("b", ["Net.backward.0", "Net.forward.0", "Net.forward.1"])
    pairs, _ = pairs_by_layer(sample, sample.records, benchmark, benchmark.records, {})
    assert sorted((pair.sample.name, pair.benchmark.name) for pair in pairs) == [
        (name, name) for name in sorted(record.name for record in sample.records)
    ]
    assert all(not pair.note for pair in pairs)


def test_sums_begin_with_nothing_that_is_not_finite():
    sums = Sums(1, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    assert (sums.count, sums.aa, sums.bb, sums.ab, sums.dd, sums.d1, sums.b1) == (1, 2, 3, 4, 5, 6, 7)
    assert (sums.sample_nan, sums.sample_inf, sums.benchmark_nan, sums.benchmark_inf) == (0, 0, 0, 0)
    assert (sums.sample_minus_inf, sums.benchmark_minus_inf, sums.odd_apart) == (0, 0, 0)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("sample", "benchmark", "apart", "found"),
    [
        ([1, 2], [1, 2], 0, (0, 0, 0, 0, 0, 0)),
        ([NAN, 2], [1, 2], 1, (1, 0, 0, 0, 0, 0)),
        ([1, 2], [NAN, 2], 1, (0, 0, 0, 1, 0, 0)),
        ([NAN, 2], [NAN, 2], 0, (1, 0, 0, 1, 0, 0)),
        ([INF, 2], [1, 2], 1, (0, 1, 0, 0, 0, 0)),
        ([1, 2], [-INF, 2], 1, (0, 0, 0, 0, 1, 1)),
        ([INF, 2], [-INF, 2], 1, (0, 1, 0, 0, 1, 1)),
        ([-INF, 2], [-INF, 2], 0, (0, 1, 1, 0, 1, 1)),
        ([NAN, INF], [INF, NAN], 2, (1, 1, 0, 1, 1, 0)),
        ([NAN, INF, -INF, 1], [NAN, INF, INF, NAN], 2, (1, 2, 1, 2, 2, 0)),
    ],
)
def test_where_nan_and_inf_stand_apart(sample, benchmark, apart, found):
    dumps = (Dump([record("x", np.array(values, np.float32))]) for values in (sample, benchmark))
    (row,) = sgsdump.compare(*dumps).rows
    assert row.odd_apart == apart
    assert found == (
        *(row.sample_nan, row.sample_inf, row.sample_minus_inf),
        *(row.benchmark_nan, row.benchmark_inf, row.benchmark_minus_inf),
    )


def test_a_row_says_nothing_unless_told():
    """What a row is made without is none of it: no note, no rise, nothing counted."""
    (row,) = sgsdump.compare(Dump([record("x", noise(20))]), Dump([record("x", noise(20))])).rows
    defaults = {field.name: field.default for field in dataclasses.fields(row)}
    given = {name for name, default in defaults.items() if default is not dataclasses.MISSING}
    assert {defaults[name] for name in given} <= {"", 0, (), None}
    assert {"note", "rise", "sample_minus_inf", "benchmark_minus_inf", "odd_apart"} <= given


# -- a vendor's digits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(0, np.float32), "does not support empty data."),
        (np.array([True, False]), "does not support Boolean types."),
        (np.zeros(0, bool), "does not support empty data."),
    ],
)
def test_what_msaccucmp_does_not_support(values, message):
    found = printed(values, values)
    assert found.values["MaxAbsoluteError"] == "NaN" and message in found.message
    assert found.message.count("does not support") == len(found.values) - 1
