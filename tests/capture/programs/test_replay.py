"""What is dumped of captured runs, what it is held against, and trees of programs that did not come to their end."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hooked_programs import sgsdump
from ort_programs import PICTURE, SMALL, all_tensors, capture, dumped, net
from platforms import unix_only
from small_nets import model
from verdict_words import sentences

from sgsdump import Dump, Record, Tensor, compare, open_dump
from sgsdump.capture.programs.agreement import agreement
from sgsdump.capture.programs.control import DISK_FULL, DumpControl, Steps, with_fields
from sgsdump.capture.programs.replay import nodes_of, replay
from sgsdump.dumps.formats.replays.tree import NOT_COMPLETE
from sgsdump.dumps.onnx_network import of_nodes
from sgsdump.dumps.runs import pair_runs
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import FormatError

RUNS = """
session = load(sys.argv[1])
for step in range(4):
    session.run(None, {"x": picture + step})
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captured")
    return capture(folder, RUNS, net(folder / "net.onnx")), folder


@pytest.fixture
def tree(captured, tmp_path):
    """The same program's captured runs in a folder of its own, as ``replay`` takes them."""
    shutil.copytree(captured[1] / "out", tmp_path / "out")
    root = tmp_path / "out"
    return root, [replace(p, folder=root / "processes" / p.folder.name) for p in captured[0].processes]


SELECTIONS = {
    "all": ({}, ["conv1", "relu1", "conv2"], []),
    "outputs": ({"mode": "output"}, ["conv1", "relu1", "conv2"], []),
    "inputs": ({"mode": "input"}, ["conv1", "relu1"], ["x"]),
    "by name": ({"names": ("relu1",)}, ["conv1", "relu1"], []),
    "by name, outputs": ({"names": ("relu1",), "mode": "output"}, ["relu1"], []),
    "by type": ({"prefixes": ("CON",), "mode": "output"}, ["conv1", "conv2"], []),
    "by type with inputs": ({"prefixes": ("conv",)}, ["conv1", "relu1", "conv2"], ["x"]),
    "by pattern": ({"patterns": ("v2$",), "mode": "output"}, ["conv2"], []),
    "by id": ({"ids": ("0", "2_1"), "mode": "output"}, ["conv1"], []),
    "of a model": ({"models": (("net", ("relu1",)),), "mode": "output"}, ["relu1"], []),
    "of any model": ({"models": (("", ("conv1",)),), "mode": "output"}, ["conv1"], []),
}


@pytest.mark.parametrize(("options", "outputs", "inputs"), SELECTIONS.values(), ids=SELECTIONS)
def test_what_is_selected(tree, options, outputs, inputs):
    root, processes = tree
    replay(root, processes, with_fields(SMALL, **options))
    dump = open_dump(root, step=2)
    assert (list(dump.outputs), list(dump.inputs)) == (outputs, inputs)
    assert isinstance(dump, Dump)
    expected = all_tensors(_model(root), _fed(2))
    for name in outputs:
        np.testing.assert_array_equal(dump[name].real().reshape(-1), expected[name].transpose(0, 2, 3, 1).reshape(-1))
    for name in inputs:
        np.testing.assert_array_equal(dump[name].real().reshape(-1), _fed(2)[name].transpose(0, 2, 3, 1).reshape(-1))


def _model(root):
    return next(root.glob("processes/*/onnxruntime/0/model.onnx"))


def _fed(step):
    return {"x": PICTURE + np.float32(step)}


def test_names_that_no_operator_has_are_known_to_the_command(tmp_path):
    (tmp_path / "infer.py").write_text(
        "import numpy, onnxruntime, sys\n"
        "onnxruntime.InferenceSession(sys.argv[1]).run(None, {'x': numpy.ones((1, 3, 4, 4), 'f')})\n"
    )
    words = ("--dump-layer", "relu1 conv9", "--", sys.executable, "infer.py", net(tmp_path / "net.onnx"))
    done = sgsdump("exec", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "no operator 'conv9' ran; similar names: conv" in done.stderr and "'relu1'" not in done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a whole dump of a program, and the command's words that name the program."""
    folder = tmp_path_factory.mktemp("whole")
    source = "import numpy, onnxruntime, sys\nprint('started')\n"
    source += "onnxruntime.InferenceSession(sys.argv[1]).run(None, {'x': numpy.ones((1, 3, 4, 4), 'f')})\n"
    (folder / "infer.py").write_text(source)
    command = ("--", sys.executable, "infer.py", net(folder / "net.onnx"))
    assert sgsdump("exec", *command, cwd=folder).returncode == 0
    return folder, command


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dump-layer", "relu1 conv9"], "no operator 'conv9' ran; similar names: conv"),
        (["-opname", "cnv"], "no operator with a type that begins with 'cnv' ran; similar names: Conv"),
        (["-ids", "2", "3"], "no operator has the id 3"),
        (["--operation-regex", "^soft"], "no operator with a name that matches '^soft' ran"),
    ],
)
def test_after_a_whole_dump_an_unknown_operator_of_a_model_is_refused_before_the_start(whole, options, message):
    folder, command = whole
    done = sgsdump("exec", *options, *command, cwd=folder)
    assert (done.stdout, done.returncode) == ("", 2)
    assert message in done.stderr.splitlines()[-1] and "in the previous dump of this command (msit_dump_" in done.stderr


def test_after_a_whole_dump_known_operators_of_a_model_are_dumped(whole):
    folder, command = whole
    known = ("--dump-layer", "relu1", "-ids", "1", "-opname", "relu")
    assert sgsdump("exec", *known, *command, cwd=folder).returncode == 0


def test_only_the_steps_asked_for_are_captured(tmp_path):
    control = replace(SMALL, steps=Steps(((1, 1), (3, 9))))
    tree, replayed = dumped(tmp_path, RUNS, net(tmp_path / "net.onnx"), control=control)
    assert [run.step for run in list_runs(tree)] == [1, 3] == sorted(replayed.steps)


def test_statistics_only(tree):
    root, processes = tree
    replayed = replay(root, processes, replace(SMALL, content="stats"))
    dump, expected = open_dump(root, step=1), all_tensors(_model(root), _fed(1))
    assert list(dump) == list(expected) and replayed.tensors == 12
    for name, array in expected.items():
        known, real = dump[name].statistics, array.astype(np.float64)
        figures = [known.max, known.min, known.mean, known.l2norm]
        assert figures == pytest.approx([real.max(), real.min(), real.mean(), np.linalg.norm(real)], rel=1e-9)
    assert not list((root / "onnxruntime").rglob("*.npy"))


def test_descriptions_only(tree):
    root, processes = tree
    replay(root, processes, replace(SMALL, content="description"))
    dump = open_dump(root, step=0)
    assert [(name, dump[name].shape, str(dump[name].dtype)) for name in dump] == [
        ("conv1", (1, 4, 8, 8), "float32"),
        ("relu1", (1, 4, 8, 8), "float32"),
        ("conv2", (1, 2, 8, 8), "float32"),
    ]
    assert [path.name for path in (root / "onnxruntime").rglob("*") if path.is_file()] == ["runs.json"]


@pytest.mark.parametrize("format", ["npz", "safetensors", "npy_dir", "atb_tree", "sigmastar_text"])
def test_other_formats_of_dumps(tree, format):
    root, processes = tree
    replay(root, processes, SMALL, format)
    dump, expected = open_dump(root, step=3), all_tensors(_model(root), _fed(3))
    assert dump.format == format
    for name, array in expected.items():
        got = (
            dump[name].real()
            if format != "sigmastar_text"
            else dump[name].real().reshape(1, 8, 8, -1).transpose(0, 3, 1, 2)
        )
        np.testing.assert_allclose(got, array, rtol=0, atol=1e-6 if format == "sigmastar_text" else 0)


def test_what_optimisation_changes_is_said_to_be_that(tmp_path):
    text = """
session = load(sys.argv[1], None)
session.run(None, {"x": picture})
"""
    rng = np.random.default_rng(1)
    nodes, last = [], "x"
    constants = {}
    for number in range(6):
        constants[f"w{number}"] = rng.standard_normal((16, 3 if number == 0 else 16, 3, 3), np.float32) / 5
        constants |= {f"{kind}{number}": rng.uniform(0.5, 2, 16).astype("f") for kind in ("s", "b", "m", "v")}
        nodes.append(onnx.helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], pads=[1] * 4))
        given = [f"c{number}", *(f"{kind}{number}" for kind in ("s", "b", "m", "v"))]
        nodes.append(onnx.helper.make_node("BatchNormalization", given, [f"n{number}"]))
        last = f"n{number}"
    from small_nets import model

    onnx.save(model(nodes, constants, {"x": (1, 3, 8, 8)}, [last], opset=15).proto, tmp_path / "bn.onnx")
    _, replayed = dumped(tmp_path, text, tmp_path / "bn.onnx")
    (entry,), (output,) = replayed.entries, replayed.entries[0].outputs
    assert not output["equal"] and 0 < output["relative"] < 1e-4
    assert replayed.agrees and not entry.notes
    assert (
        "the recomputed outputs differ from the program's outputs. The largest difference is in output n5: by at most"
        in replayed.differences[0]
    )
    assert (
        "with the program's session options (ORT_ENABLE_ALL), the model reproduces the program's outputs"
        in (replayed.differences[0])
    )


def test_outputs_that_are_far_from_the_programs_are_told(tree):
    root, processes = tree
    (file,) = root.glob("processes/*/onnxruntime/0/2_out0.raw")
    array = np.fromfile(file, np.float32)
    array[5] += 3 * np.abs(array).max()
    file.write_bytes(array.tobytes())
    replayed = replay(root, processes, SMALL)
    assert not replayed.agrees and replayed.complete
    assert "the model does not reproduce the program's outputs either" in replayed.differences[0]
    assert [bool(entry.notes) for entry in replayed.entries] == [False, False, True, False]
    assert any("output conv2 differs from the program's" in note for note in open_dump(root, step=2).notes)
    assert not open_dump(root, step=1).notes


@pytest.mark.parametrize(
    ("replayed", "program", "told"),
    [
        ([1.0, 2.0], [1.0, 2.5], (False, 0.5, 0.2, "")),
        ([1.0, np.nan], [1.0, np.nan], (True, None, None, "")),
        ([1.0, np.nan], [1.5, np.nan], (False, 0.5, 0.5 / 1.5, "")),
        ([1.0, np.inf], [1.0, -np.inf], (False, 0.0, 0.0, "1 values are NaN or Inf on one side only")),
        ([0.0], [-0.0], (False, 0.0, 0.0, "")),
        ([1.0], [0.0], (False, 1.0, None, "")),
        ([1.0], [[1.0]], (False, None, None, "the program's output has shape (1, 1), the model's (1,)")),
        (
            np.int64([1]),
            np.float64([1]),
            (False, None, None, "the program's output has type float64, the model's int64"),
        ),
    ],
)
def test_agreement(replayed, program, told):
    found = agreement("y", *(np.asarray(a, None if isinstance(a, np.ndarray) else "f") for a in (replayed, program)))
    assert (found.equal, found.max_abs, found.why) == (told[0], told[1], told[3])
    assert found.relative == (None if told[2] is None else pytest.approx(told[2]))


def test_a_model_that_was_not_kept_and_files_that_are_damaged(tree):
    root, processes = tree
    (out,) = root.glob("processes/*/onnxruntime/0/0_in0.raw")
    out.write_bytes(b"short")
    replayed = replay(root, processes, SMALL)
    assert [entry.run.step for entry in replayed.entries] == [1, 2, 3] and not replayed.complete
    assert (
        "step 0 is not replayed" in replayed.notes[0]
        and "has 5 bytes; shape (1, 3, 8, 8) needs 768" in replayed.notes[0]
    )
    notes: list[str] = []
    list_runs(root, notes=notes)
    assert NOT_COMPLETE in notes
    _model(root).unlink()
    replayed = replay(root, processes, SMALL)
    assert (
        not replayed.entries and "net/0 of process" in replayed.notes[0] and "no such model file" in replayed.notes[0]
    )
    with pytest.raises(FormatError, match="holds no run"):
        open_dump(root)


def test_a_tree_that_nobody_replayed_says_so(tree):
    root, processes = tree
    assert not list_runs(root)
    with pytest.raises(FormatError, match="the dump was stopped before the tensors were computed"):
        open_dump(root)
    replay(root, processes, SMALL)
    assert len(list_runs(root)) == 4


def test_an_index_that_leads_out_of_the_tree_is_not_followed(tree, tmp_path):
    root, processes = tree
    (tmp_path / "secret").write_bytes(b"\0" * 768)
    (index,) = root.glob("processes/*/index.jsonl")
    index.write_text(index.read_text().replace('"file": "processes', '"file": "../secret/../processes'))
    replayed = replay(root, processes, SMALL)
    assert not replayed.entries and not replayed.complete


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"sgsdump_runs": 2, "complete": true, "notes": [], "runs": []}',
        '{"sgsdump_runs": 1, "complete": true, "notes": [3], "runs": []}',
        '{"sgsdump_runs": 1, "complete": true, "notes": [], "runs": [{}]}',
        '{"sgsdump_runs": 1, "complete": true, "notes": [], "runs": [7]}',
        '{"sgsdump_runs": 1, "complete": true, "notes": [], "runs": [{"place": "x", "step": Infinity, "rank": 0}]}',
        json.dumps(
            {
                **{"sgsdump_runs": 1, "complete": True, "notes": []},
                "runs": [{"place": "../x.bin", "step": 0, "rank": 0, "graph": "", "notes": [], "outputs": []}],
            }
        ),
    ],
)
def test_a_damaged_index_of_runs_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(FormatError, match=r"runs\.json"):
        list_runs(tmp_path)
    with pytest.raises(FormatError, match=r"runs\.json"):
        open_dump(tmp_path)


def test_a_run_without_tensors_whose_folder_is_the_tree_itself_is_refused(tmp_path):
    run = {"place": "", "step": 0, "rank": 0, "graph": "", "notes": [], "outputs": []}
    index = {"sgsdump_runs": 1, "complete": True, "notes": [], "runs": [run]}
    (tmp_path / "runs.json").write_text(json.dumps(index))
    with pytest.raises(FormatError, match="nor a separate folder"):
        open_dump(tmp_path)


def test_a_full_disk_and_a_full_dump_end_it(tree):
    root, processes = tree
    replayed = replay(root, processes, with_fields(SMALL, max_bytes=2000))
    assert [entry.run.step for entry in replayed.entries] == [0] and not replayed.complete
    assert "has reached 2000 bytes" in replayed.notes[0]
    replayed = replay(root, processes, with_fields(SMALL, min_free=1 << 60))
    assert not replayed.entries and replayed.notes[0].startswith(DISK_FULL)


def test_a_tree_may_have_executions_of_torch_too(tree):
    root, processes = tree
    replay(root, processes, SMALL)
    folder = root / "tensors/0_77/1/0_Linear/after"
    folder.mkdir(parents=True)
    header = "$Version=1.0\n$Object.Count=1\n$Object.Length=8\nformat=2\ndtype=0\ndims=2\n$Object.data=0,8\n$End=1\n"
    (folder / "outtensor0.bin").write_bytes(header.encode() + np.float32([1, 2]).tobytes())
    runs = list_runs(root)
    assert [(run.step, run.graph) for run in runs] == [(0, "net/0"), (1, ""), (1, "net/0"), (2, "net/0"), (3, "net/0")]
    assert list(open_dump(f"{root}@step=1,graph=net")) == ["conv1", "relu1", "conv2"]
    (atb,) = (run for run in runs if not run.graph)
    assert open_dump(root / atb.place)["0_Linear/output.0"].real().tolist() == [1, 2]


def test_two_trees_compare_step_by_step(tree):
    root, processes = tree
    replay(root, processes, SMALL)
    done = sgsdump("compare", root, root, cwd=root.parent)
    assert "Runs compared: 4; different: 0." in done.stdout, done.stdout + done.stderr


THREADS = """
import threading
session = load(sys.argv[1])
for number in map(int, sys.argv[2]):
    one = threading.Thread(target=session.run, args=(None, {"x": picture + number}))
    one.start()
    one.join()
session.run(None, {"x": picture})
"""


def test_runs_of_threads_pair_by_their_feeds(tmp_path):
    path = net(tmp_path / "net.onnx")
    trees = []
    for order in ("123", "312"):
        folder = tmp_path / order
        folder.mkdir()
        replay(folder / "out", capture(folder, THREADS, path, order).processes, SMALL)
        trees.append(list_runs(folder / "out"))
    pairs = pair_runs(*trees)
    assert [(one.step, other.step) for one, other in pairs.pairs] == [(2, 0), (0, 1), (1, 2), (3, 3)]
    assert (pairs.by_inputs, pairs.by_order) == (4, 0)


KILLED = """
import os, threading, time
threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), 9)).start()
session = load(sys.argv[1])
step = 0
while True:
    session.run(None, {"x": picture + step})
    step += 1
"""


@unix_only
def test_killed_at_any_moment_the_tree_is_whole_and_says_it_is_not_complete(tmp_path):
    path = net(tmp_path / "net.onnx")
    seen = []
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        captured = capture(folder, KILLED, path, 0.005 * number)
        assert captured.status == 128 + 9 and not captured.complete
        replayed = replay(folder / "out", captured.processes, SMALL)
        assert not replayed.complete or replayed.folder is None
        seen.append(len(replayed.entries))
        if replayed.folder is None:
            continue
        notes: list[str] = []
        runs = list_runs(folder / "out", notes=notes)
        assert NOT_COMPLETE in notes and len(runs) == len(replayed.entries)
        for run in runs:
            expected = all_tensors(path, _fed(run.step))
            dump = open_dump(folder / "out" / run.place)
            for name, array in expected.items():
                got = dump[name].real().reshape(-1)
                np.testing.assert_array_equal(got, array.transpose(0, 2, 3, 1).reshape(-1))
        for entry in replayed.entries[:-1]:
            assert [output["equal"] for output in entry.outputs] == [True]
    assert max(seen) > 1


def scoped(kind, reads, makes, *scopes):
    """A node as torch's newer exporter writes it."""
    node = onnx.helper.make_node(kind, reads, makes, name=f"node_{kind}")
    node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value="['Net', 'aten.x']")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(["", *scopes]))
    return node


def test_a_run_that_raised_and_was_caught_leaves_the_tree_complete(tmp_path):
    program = """
    session = load(sys.argv[1])
    for channels in (3, 5, 3):
        try:
            session.run(None, {"x": np.ones((1, channels, 4, 4), np.float32)})
        except Exception:
            print("caught")
    """
    text = "\n".join(line[4:] for line in program.splitlines())
    _, replayed = dumped(tmp_path, text, net(tmp_path / "net.onnx"))
    assert replayed.complete and replayed.steps == {0, 2}
    [note] = replayed.notes
    assert "step 1 failed in the program and has no dump" in note and "\n" not in note


def test_an_initializer_that_was_changed_is_named(tmp_path):
    def run(proto):
        onnx.save(proto, tmp_path / "net.onnx")
        tensors = all_tensors(tmp_path / "net.onnx", {"x": PICTURE})
        records = [
            Record("out", 0, number, name, Tensor.of(name, array))
            for number, (name, array) in enumerate(tensors.items())
        ]
        nodes = tuple(nodes_of(proto.graph))
        return Dump(records, network=lambda: of_nodes(records, nodes))

    proto = onnx.load(net(tmp_path / "net.onnx"))
    other = onnx.load(net(tmp_path / "net.onnx"))
    changed = next(tensor for tensor in other.graph.initializer if tensor.name == "conv2.w")
    values = onnx.numpy_helper.to_array(changed) * np.float32(1.5)
    changed.CopyFrom(onnx.numpy_helper.from_array(values, changed.name))
    cause = sentences(compare(run(other), run(proto)))[1]
    assert cause.startswith("Cause: the initializer conv2.w differs at conv2 (conv2)") and ": checksum " in cause
    assert compare(run(proto), run(proto)).causes == ()


def test_minus_infinity_alone_is_what_masks_have(tmp_path):
    nodes = [onnx.helper.make_node("Identity", ["x"], ["y"], name="y"), onnx.helper.make_node("Neg", ["y"], ["z"])]
    onnx.save(model(nodes, {}, {"x": (1, 3, 8, 8)}, ["z"]).proto, tmp_path / "net.onnx")
    program = "load(sys.argv[1]).run(None, {'x': np.where(picture > 0, picture, np.float32('-inf'))})\n"
    _, replayed = dumped(tmp_path, program, tmp_path / "net.onnx")
    count = np.count_nonzero(PICTURE <= 0)
    assert replayed.entries[0].notes == (
        f"y: {count} of {PICTURE.size} values are -Inf, as in masks",
        f"not finite: z: 0 NaN, {count} Inf of {PICTURE.size} values",
    )


def test_modules_that_stand_in_the_metadata_of_nodes(tmp_path):
    """A convolution that took the normalisation behind it in stands where its weight does."""
    kernel = onnx.numpy_helper.from_array(np.ones((4, 3, 1, 1), "f"), "block.0.conv.weight")
    nodes = [
        scoped("Conv", ["x", "block.0.conv.weight"], ["getitem"], "block", "block.0", "block.0.bn", "batch_norm"),
        scoped("Relu", ["getitem"], ["relu"], "block", "block.0", "relu"),
        scoped("Neg", ["relu"], ["neg"], "neg"),
        onnx.helper.make_node("Abs", ["neg"], ["y"], name="/head/act/Abs"),
    ]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["a", "b", "c", "d"]) for name in "xy")
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "main_graph", [x], [y], [kernel]),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    onnx.save(model, tmp_path / "new.onnx")
    captured = capture(
        tmp_path, 'load(sys.argv[1]).run(None, {"x": np.ones((1, 3, 4, 4), "f")})', tmp_path / "new.onnx"
    )
    replay(tmp_path / "out", captured.processes, DumpControl())
    dump = open_dump(tmp_path / "out")
    found = {record.name: dump.network()[record.op_index].module for record in dump.records if record.io == "out"}
    assert found == {"getitem": "block.0.conv", "relu": "block.0", "neg": "", "y": "head.act"}
    (run,) = list_runs(tmp_path / "out")
    alone = open_dump(tmp_path / "out" / run.place)  # as a comparison of several runs opens each
    assert alone.network() == dump.network() and alone.notes == dump.notes
    index = tmp_path / "out" / "onnxruntime" / "runs.json"
    older = json.loads(index.read_text())
    older["graphs"] = {name: [row[:4] for row in rows] for name, rows in older["graphs"].items()}
    index.write_text(json.dumps(older))
    dump = open_dump(tmp_path / "out")
    assert {one.module for one in dump.network().values()} == {"", "head.act"}
