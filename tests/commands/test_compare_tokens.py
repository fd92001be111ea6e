"""Two trees of many rounds on one screen: by token, by layer, by operator; and no further than the tokens agree."""

import json
import struct
import zlib

import pytest
from hooked_programs import sgsdump

from sgsdump.dumps.runs import Run, pair_runs
from sgsdump.dumps.trees import list_runs

EMBEDDING = {"model": "Net", "id": "0", "module": "root.embedding", "op": "embedding", "type": "Embedding"}
PLACES = [
    {**EMBEDDING, "folders": ["0_embedding"]},
    {**EMBEDDING, "id": "1", "module": "root.layers.0", "op": "layers.0", "type": "Layer", "folders": ["1_layers.0"]},
    {
        **EMBEDDING,
        **{"id": "1_0", "module": "root.layers.0", "op": "layers.0.mm", "type": "aten.mm"},
        "folders": ["1_layers.0", "0_mm"],
    },
]


def values(number, mean, dtype="float32"):
    stats = {"max": mean + 1.0, "min": mean - 1.0, "mean": mean, "l2norm": abs(mean) + 2.0}
    return {"value": number, "dtype": dtype, "shape": [4], "stats": stats}


def round_of(step, token, gain, dtype="float32", param=None):
    """Token ids -> embedding -> a layer with one product, whose output is ``gain`` times what it was."""
    ids, x, y = values(1, token, "int64"), values(2, token + 0.5, dtype), values(3, gain * (token + 3.0), dtype)
    sides = [(0, "in", ids), (0, "out", x), (1, "in", 2), (2, "in", 2), (2, "out", y), (1, "out", 3)]
    lines = [{"place": number, **place} for number, place in enumerate(PLACES)]
    lines += [
        {"step": step, "at": at, "side": side, "moment": "before" if side == "in" else "after", "values": [value]}
        for at, side, value in sides
    ]
    lines += [
        {"step": step, "at": at, "event": "operator", "param": param or {}, "nanoseconds": None} for at in (0, 2, 1)
    ]
    return [*lines, {"event": "round", "step": step}]


def put(folder, rounds):
    for step, lines in enumerate(rounds):
        path = folder / f"rounds/0_7/{step}.round"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        path.write_bytes(struct.pack("<8sIIII", b"SGSROUND", 1, 0, len(text), zlib.crc32(text)) + text)


def test_what_an_argument_explains_is_not_rounding_alone(tmp_path):
    for name, gain, scale in (("good", 1.0, 1.0), ("rounded", 1.001, 1.0), ("bad", 1.001, 1.25)):
        put(tmp_path / name, [round_of(step, 1.0, gain, "bfloat16", {"scale": scale}) for step in range(6)])
    text = sgsdump("compare", "rounded", "good", cwd=tmp_path).stdout
    assert "Runs compared: 6; different: 6, by rounding alone: 6." in text
    text = sgsdump("compare", "bad", "good", cwd=tmp_path).stdout
    assert "Runs compared: 6; different: 6.\n" in text and "by rounding alone" not in text
    assert "Cause: the argument scale differs at " in text and ": 1.25 in sample, 1.0 in benchmark." in text


def test_by_token_by_layer_by_operator_and_no_further_than_the_tokens_agree(tmp_path):
    tokens = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    put(tmp_path / "good", [round_of(step, token, 1.0) for step, token in enumerate(tokens)])
    gains = [1.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.0]
    other = [*tokens[:4], 9.0, 9.0, 9.0]
    put(tmp_path / "bad", [round_of(step, token, gains[step]) for step, token in enumerate(other)])
    done = sgsdump("compare", "bad", "good", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "Rounds: 5 compared, 3 equal in both dumps." in text
    assert "Layers of step 2, rank 0: 2 compared, 1 not equal in both dumps." in text
    assert "Operators of 1_layers.0 whose output differs between the dumps: 2" in text and "0_mm/output.0" in text
    assert (
        "From step 4, rank 0 on, the programs had different inputs (0_embedding/input.0), for example because an "
        "earlier token differs. Later differences are not errors; 2 later rounds not compared." in text
    )
    assert "The first run that differs is step 2, rank 0" in text
    assert len(text.splitlines()) < 40
    every = sgsdump("compare", "bad", "good", "--top", "3", cwd=tmp_path).stdout
    assert every.count("== step") == 7 and "Rounds:" not in every
    equal = sgsdump("compare", "good", "good", cwd=tmp_path).stdout
    assert "Rounds: 7 compared, 7 equal in both dumps." in equal and "Layers of" not in equal


def large(gain):
    """A round of 101 layers with 606 tensors; ``gain`` is that of the layer in the middle."""
    lines = []
    for layer in range(101):
        for number, place in enumerate(PLACES):
            folders = [f"{layer}_{place['folders'][0]}", *place["folders"][1:]]
            lines.append({**place, "place": 3 * layer + number, "folders": folders})
        of_layer = round_of(0, 1.0, gain if layer == 50 else 1.0)
        lines += [{**line, "at": line["at"] + 3 * layer} for line in of_layer if "at" in line]
    return [*lines, {"event": "round", "step": 0}]


def test_a_round_of_many_tensors_is_one_screen_until_it_is_asked_for(tmp_path):
    put(tmp_path / "good", [large(1.0)])
    put(tmp_path / "bad", [large(1.5)])
    text = sgsdump("compare", "bad", "good", "--csv", "all.csv", cwd=tmp_path).stdout
    assert "Rounds: 1 compared, 0 equal in both dumps." in text and len(text.splitlines()) < 40, text
    assert "Operators of 50_1_layers.0 whose output differs between the dumps: 2" in text
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 607
    for asked in (["bad@step=0", "good@step=0"], ["bad", "good", "--step", "0"], ["bad", "good", "--top", "600"]):
        assert len(sgsdump("compare", *asked, cwd=tmp_path).stdout.splitlines()) > 590
    put(tmp_path / "good", [large(1.0), large(1.0)])
    put(tmp_path / "bad", [large(1.0), large(1.0)[:-1]])
    text = sgsdump("compare", "bad", "good", cwd=tmp_path).stdout
    assert "Rounds: 2 compared, 2 equal in both dumps." in text and "== step" not in text
    assert "is not complete" in text, text


def put_threads(folder, requests):
    """Rounds as their processes began them: each is of a process, a thread, and fed a token."""
    counts = {}
    for process, thread, token in requests:
        step = counts[process] = counts.get(process, -1) + 1
        fed = zlib.crc32(str(token).encode())
        first = {"event": "step", "step": step, "model": "Net", "of_model": step, "thread": thread, "fed": f"{fed:08x}"}
        path = folder / f"rounds/0_{process}/{step}.round"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = b"".join(json.dumps(line).encode() + b"\n" for line in [first, *round_of(step, token, 1.0)])
        path.write_bytes(struct.pack("<8sIIII", b"SGSROUND", 1, 0, len(text), zlib.crc32(text)) + text)


@pytest.mark.parametrize(
    "orders",
    [
        ([(7, 0, 1.0), (7, 1, 2.0), (7, 0, 3.0)], [(7, 0, 2.0), (7, 1, 1.0), (7, 1, 3.0)]),
        ([(7, 0, 1.0), (8, 0, 2.0), (7, 0, 3.0)], [(7, 0, 2.0), (7, 0, 1.0), (7, 0, 3.0)]),
        ([(7, 0, 1.0), (8, 0, 2.0), (7, 0, 3.0)], [(9, 0, 3.0), (7, 0, 1.0), (9, 0, 2.0)]),
    ],
    ids=["threads", "a worker idle", "workers"],
)
def test_rounds_of_threads_and_workers_pair_by_their_inputs(tmp_path, orders):
    for name, requests in zip(("a", "b"), orders):
        put_threads(tmp_path / name, requests)
    text = sgsdump("compare", "a", "b", cwd=tmp_path).stdout
    assert "Runs compared: 3; different: 0." in text
    assert "Pairs of runs of several threads or processes, found by equal inputs: 3." in text
    assert "The order" not in text


def test_requests_that_are_fed_the_same_pair_as_their_threads_do(tmp_path):
    """Two requests of two rounds, whose second are fed the same: the first tell which is which."""
    put_threads(tmp_path / "a", [(7, 0, 1.0), (7, 1, 2.0), (7, 0, 5.0), (7, 1, 5.0)])
    put_threads(tmp_path / "b", [(7, 0, 2.0), (7, 1, 1.0), (7, 0, 5.0), (7, 1, 5.0)])
    pairs = pair_runs(*(list_runs(tmp_path / name) for name in ("a", "b"))).pairs
    assert [(one.step, other.step) for one, other in pairs] == [(1, 0), (0, 1), (3, 2), (2, 3)]


def test_where_inputs_pair_no_rounds_the_order_may_differ(tmp_path):
    put_threads(tmp_path / "a", [(7, 0, 1.0), (7, 1, 2.0), (7, 0, 4.0)])
    put_threads(tmp_path / "b", [(7, 0, 2.0), (7, 1, 3.0), (7, 1, 5.0)])
    text = sgsdump("compare", "a", "b", cwd=tmp_path).stdout
    assert (
        "Pairs of runs of several threads or processes, found by equal inputs: 1. "
        "Pairs whose two runs have different steps: 2; the first is step 1, rank 0 of the sample with step 0" in text
    )
    assert "The order of the runs may differ: 2 runs of several threads or processes were paired by position" in text


def test_networks_of_other_names_pair_by_their_inputs_too():
    names = [("Old", "Head"), ("New", "Head")]
    sides = [
        [Run(f"rounds/0_{pid}/0.round", 0, 0, name, 0, fed, 0) for pid, (name, fed) in enumerate(zip(of_side, "ab"))]
        for of_side in names
    ]
    pairs = pair_runs(*sides)
    assert [(one.graph, other.graph) for one, other in pairs.pairs] == [("Head", "Head"), ("Old", "New")]
    assert pairs.by_inputs == 2


def test_a_round_that_one_side_has_more_is_left_over(tmp_path):
    put_threads(tmp_path / "a", [(7, 0, 1.0), (8, 0, 2.0), (8, 0, 3.0)])
    put_threads(tmp_path / "b", [(7, 0, 4.0), (8, 0, 5.0)])
    pairs = pair_runs(*(list_runs(tmp_path / name) for name in ("a", "b")))
    assert (len(pairs.pairs), pairs.by_inputs, pairs.by_order) == (2, 0, 2)
    assert [run.place for run in pairs.only_in_sample] == ["rounds/0_8/1.round"] and not pairs.only_in_benchmark


def test_one_thread_that_was_fed_in_another_order_is_told(tmp_path):
    """Its rounds pair by their step: the order is the program's, and may be what is wrong with it."""
    put_threads(tmp_path / "a", [(7, 0, 1.0), (7, 0, 2.0), (7, 0, 3.0)])
    put_threads(tmp_path / "b", [(7, 0, 1.0), (7, 0, 3.0), (7, 0, 2.0)])
    text = sgsdump("compare", "a", "b", cwd=tmp_path).stdout
    assert (
        "The order of the runs differs: for 2 runs, the run with the same inputs is at another position in "
        "the other dump" in text
    )
    assert "paired by their inputs" not in text
