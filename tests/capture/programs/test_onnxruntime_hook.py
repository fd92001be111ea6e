"""What programs feed to onnxruntime, however they do, is captured and computed again; the programs do not notice."""

import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hooked_programs import environment, sgsdump, trees
from ort_programs import PICTURE, SMALL, all_tensors, capture, dumped, matrix_net, net, written
from small_nets import conv, model, weights

from sgsdump import open_dump
from sgsdump.capture.programs.captured_models import captured_models
from sgsdump.capture.programs.replay import replay
from sgsdump.dumps.trees import list_runs

HOOK = Path(__file__).parents[3] / "sgsdump/capture/programs/hook"
CALLS = {
    "run": "session.run(None, {'x': picture})",
    "keywords": "session.run(output_names=['conv2'], input_feed={'x': picture}, run_options=None)",
    "not contiguous": "session.run(None, {'x': np.asfortranarray(picture)})",
    "a list": "session.run(['conv2'], {'x': picture.tolist()})",
    "ort values": "session.run_with_ort_values(['conv2'], {'x': ort.OrtValue.ortvalue_from_numpy(picture)})",
    "ort values by keyword": (
        "session.run_with_ort_values(output_names=None, "
        "input_dict_ort_values={'x': ort.OrtValue.ortvalue_from_numpy(picture)})"
    ),
    "bound array": "bound(lambda b: b.bind_cpu_input('x', picture))",
    "bound by keyword": "bound(lambda b: b.bind_cpu_input(name='x', arr_on_cpu=picture))",
    "bound in another order": "bound(lambda b: b.bind_cpu_input('x', np.asfortranarray(picture)))",
    "bound value": "bound(lambda b: b.bind_ortvalue_input('x', ort.OrtValue.ortvalue_from_numpy(picture)))",
    "bound address": "bound(lambda b: b.bind_input('x', 'cpu', 0, np.float32, picture.shape, picture.ctypes.data))",
    "bound twice": "bound(lambda b: [b.bind_cpu_input('x', p) for p in (picture * 0, picture)])",
    "bound after clearing": (
        "bound(lambda b: [b.bind_cpu_input('x', picture + 1), b.clear_binding_inputs(), "
        "b.bind_cpu_input('x', picture)])"
    ),
}
BOUND = """
def bound(bind):
    binding = session.io_binding()
    bind(binding)
    binding.bind_output("conv2")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
"""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_way_to_run_a_session(tmp_path, call):
    path = net(tmp_path / "net.onnx")
    _, replayed = dumped(tmp_path, f"session = load(sys.argv[1])\n{BOUND}\nnp.save('out.npy', {call}[0])\n", path)
    (entry,) = replayed.entries
    tree = open_dump(tmp_path / "out")
    expected = all_tensors(path, {"x": PICTURE})
    assert list(tree) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(tree[name].real().reshape(-1), array.transpose(0, 2, 3, 1).reshape(-1))
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected["conv2"])
    assert [(output["name"], output["equal"]) for output in entry.outputs] == [("conv2", True)]
    assert replayed.complete and replayed.agrees and not replayed.notes and not replayed.differences


def test_what_is_bound_counts_as_it_is_when_the_session_runs(tmp_path):
    text = """
session = load(sys.argv[1])
binding = session.io_binding()
binding.bind_cpu_input("x", picture)
binding.bind_output("conv2")
for factor in (2, 3):
    picture *= factor
    session.run_with_iobinding(binding)
"""
    path = net(tmp_path / "net.onnx")
    tree, replayed = dumped(tmp_path, text, path)
    for step, factor in enumerate((2, 6)):
        expected = all_tensors(path, {"x": PICTURE * np.float32(2) * np.float32(factor // 2)})["relu1"]
        got = open_dump(tree, step=step)["relu1"].real()
        np.testing.assert_array_equal(got.reshape(-1), expected.transpose(0, 2, 3, 1).reshape(-1))
    assert all(output["equal"] for entry in replayed.entries for output in entry.outputs)


def test_two_models_in_one_program(tmp_path):
    text = """
first, second = load(sys.argv[1]), load(open(sys.argv[2], "rb").read())
again = load(sys.argv[1])
for step in range(2):
    first.run(None, {"x": picture + step})
    second.run(["t"], {"a": np.full((2, 5), step, np.float32)})
again.run(None, {"x": picture})
"""
    paths = net(tmp_path / "detect.onnx"), matrix_net(tmp_path / "classify.onnx")
    tree, replayed = dumped(tmp_path, text, *paths)
    told = [(run.graph, run.step, run.rank) for run in list_runs(tree)]
    assert told == [("detect/0", 0, 0), ("detect/1", 0, 0), ("net/0", 0, 0), ("detect/0", 1, 0), ("net/0", 1, 0)]
    assert all(output["equal"] for entry in replayed.entries for output in entry.outputs)
    expected = all_tensors(paths[1], {"a": np.ones((2, 5), np.float32)})
    dump = open_dump(f"{tree}@step=1,graph=net")
    assert list(dump) == ["mm", "t"]
    for name, array in expected.items():
        np.testing.assert_array_equal(dump[name].real(), array)


def test_a_run_is_dumped_byte_for_byte_as_sgsdump_dump_writes_it(tmp_path):
    path = net(tmp_path / "net.onnx")
    tree, _ = dumped(tmp_path, "load(sys.argv[1]).run(None, {'x': picture})", path)
    proto = onnx.load(path)
    for axis, size in ((2, 8), (3, 8)):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    onnx.save(proto, tmp_path / "fixed.onnx")
    np.save(tmp_path / "x.npy", PICTURE)
    (tmp_path / "same.py").write_text(
        "import numpy as np\ndef image_preprocess(path, norm=True):\n    return np.load(path).transpose(0, 2, 3, 1)\n"
    )
    done = sgsdump("dump", "-m", "fixed.onnx", "-i", "x.npy", "-o", "own.bin", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = list_runs(tree)
    assert (tree / run.place).read_bytes() == (tmp_path / "own.bin").read_bytes()


@pytest.mark.parametrize(
    "after", ["os.unlink(path)", "open(path, 'wb').write(b'another')"], ids=["deleted", "overwritten"]
)
@pytest.mark.parametrize("external", [False, True], ids=["in one file", "external data"])
def test_a_model_file_that_goes_when_it_is_loaded(tmp_path, after, external):
    # Weights that are overwritten change under the session, which has them mapped.
    files = "temporary.*" if "unlink" in after else "temporary.onnx"
    text = f"""
import os
import glob
session = load(sys.argv[1])
for path in glob.glob("{files}"):
    {after}
session.run(None, {{"x": picture}})
"""
    path = net(tmp_path / "temporary.onnx", external=external)
    expected = all_tensors(path, {"x": PICTURE})
    tree, replayed = dumped(tmp_path, text, path)
    assert replayed.agrees and not replayed.differences
    got = open_dump(tree)["conv1"].real()
    np.testing.assert_array_equal(got.reshape(-1), expected["conv1"].transpose(0, 2, 3, 1).reshape(-1))


def test_a_large_model_is_linked_and_its_change_is_told(tmp_path):
    text = """
import glob, os
import sgsdump_model_files
sgsdump_model_files.COPIED = 100
session = load(sys.argv[1])
if sys.argv[2] == "delete":
    os.unlink(sys.argv[1])
else:
    open(sys.argv[1], "ab").write(b"\\n\\0")
session.run(None, {"x": picture})
"""
    for what in ("delete", "write"):
        folder = tmp_path / what
        folder.mkdir()
        tree, replayed = dumped(folder, text, net(folder / "big.onnx"), what)
        (kept,) = folder.glob("out/processes/*/onnxruntime/0/model.onnx")
        assert kept.stat().st_nlink == (1 if what == "delete" else 2)
        told = any("was overwritten after the program loaded it" in note for note in replayed.notes)
        assert told == (what == "write")
        assert len(open_dump(tree)) == 3


def test_threads_share_a_session(tmp_path):
    text = """
import threading
session = load(sys.argv[1])


def work(number):
    for _ in range(5):
        session.run(None, {"x": picture * number})


threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    tree, replayed = dumped(tmp_path, text, net(tmp_path / "net.onnx"))
    assert [run.step for run in list_runs(tree)] == list(range(20))
    assert all(output["equal"] for entry in replayed.entries for output in entry.outputs)


def test_workers_that_are_forked_and_spawned(tmp_path):
    text = """
import multiprocessing
before = load(sys.argv[1])


def work(number):
    load(sys.argv[1]).run(None, {"x": picture * number})
    if number == 1:
        before.run(None, {"x": picture * 7})


if __name__ == "__main__":
    for kind in ("fork", "spawn"):
        process = multiprocessing.get_context(kind).Process(target=work, args=(1 if kind == "fork" else 2,))
        process.start()
        process.join()
        assert process.exitcode == 0
    before.run(None, {"x": picture})
"""
    _, replayed = dumped(tmp_path, text, net(tmp_path / "net.onnx"))
    graphs = sorted((entry.run.place.split("/")[0], entry.run.graph) for entry in replayed.entries)
    assert len({process for process, _ in graphs}) == 3
    assert sorted(graph for _, graph in graphs) == ["net/0", "net/0", "net/1", "net/1"] or len(graphs) == 4
    assert all(output["equal"] for entry in replayed.entries for output in entry.outputs)
    assert replayed.complete


def test_the_program_prints_and_computes_the_same(tmp_path):
    text = """
session = load(sys.argv[1], None)
from onnxruntime import InferenceSession
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as Inner
assert isinstance(session, InferenceSession) and Inner is InferenceSession
class Own(InferenceSession):
    def run(self, *args):
        return [each * 2 for each in super().run(*args)]
out = session.run(None, {"x": picture})[0]
twice = Own(sys.argv[1]).run(None, {"x": picture})[0]
print([o.name for o in session.get_outputs()], out.tobytes().hex(), (twice == out * 2).all())
try:
    session.run(None, {"y": picture})
except ValueError as error:
    print(error)
try:
    session.run()
except TypeError as error:
    print(str(error).split("(")[0])
sys.exit(7)
"""
    path = net(tmp_path / "net.onnx")
    program = written(tmp_path, text)
    plain = subprocess.run(
        [sys.executable, program, path], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=False
    )
    hooked = sgsdump("exec", "-o", "dumps", "--", sys.executable, program, path, cwd=tmp_path)
    assert (plain.stdout, plain.returncode) == (hooked.stdout, hooked.returncode)
    assert plain.returncode == 7 and "True" in plain.stdout


def test_behind_a_bash_wrapper_with_the_command(tmp_path):
    program = written(tmp_path, "for step in range(3):\n    load(sys.argv[1]).run(None, {'x': picture})\n")
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\ncd /\n'{sys.executable}' {program} $1 > {tmp_path}/log\n")
    done = sgsdump("exec", "-o", "dumps", "--", "bash", "run.sh", net(tmp_path / "net.onnx"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "9 tensors of 1 process, step 0" in done.stderr
    shown = sgsdump("show", trees(tmp_path / "dumps")[0], cwd=tmp_path)
    assert shown.stdout.splitlines()[0].split() == ["step", "rank", "graph", "folder"]
    assert [line.split()[2] for line in shown.stdout.splitlines()[1:4]] == ["net/0", "net/1", "net/2"]


def test_a_run_that_fails_is_there_with_what_it_was_fed(tmp_path):
    text = """
session = load(sys.argv[1])
session.run(None, {"a": np.ones((2, 5), np.float32)})
try:
    session.run(None, {"a": np.ones((2, 4), np.float32)})
except Exception as error:
    print(type(error).__name__)
"""
    path = matrix_net(tmp_path / "net.onnx")
    proto = onnx.load(path)
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = dim.dim_param or "n" + str(dim.dim_value)
    onnx.save(proto, path)
    _, replayed = dumped(tmp_path, text, path)
    first, *rest = replayed.entries
    assert not first.notes and all(output["equal"] for output in first.outputs)
    assert not rest and not replayed.complete
    notes = " ".join(replayed.notes)
    assert "step 1" in notes and "mm (MatMul)" in notes and "cannot run" in notes


def test_a_run_that_fails_half_way_is_dumped_so_far(tmp_path):
    text = """
session = load(sys.argv[1])
for size in (6, 5):
    try:
        session.run(None, {"a": np.ones(size, np.float32)})
    except Exception as error:
        print(type(error).__name__)
"""
    make = onnx.helper.make_node
    nodes = [make("Neg", ["a"], ["n"], name="neg"), make("Reshape", ["n", "shape"], ["r"], name="reshape")]
    net = model([*nodes, make("Abs", ["r"], ["b"], name="abs")], {"shape": np.int64([2, 3])}, {"a": (None,)}, ["b"])
    onnx.save(net.proto, tmp_path / "net.onnx")
    tree, replayed = dumped(tmp_path, text, tmp_path / "net.onnx")
    assert list(open_dump(tree, step=0)) == ["n", "r", "b"] and list(open_dump(tree, step=1)) == ["n"]
    assert any("the program's run failed" in note for note in open_dump(tree, step=1).notes)
    notes = [note for note in replayed.notes if "not dumped" in note]
    assert "r (Reshape): " in notes[0] and "cannot run" in notes[0]
    assert "b (Abs): needs 'r', which failed" in notes[1]


def test_weights_that_only_the_session_was_given(tmp_path):
    text = """
weights = np.ones((4, 3, 1, 1), np.float32)
plain.add_external_initializers(["conv1.w"], [ort.OrtValue.ortvalue_from_numpy(weights)])
load(sys.argv[1]).run(None, {"x": picture})
"""
    net = model([conv("conv1", "x")], weights("conv1", (4, 3, 1, 1)), {"x": (1, 3, 8, 8)}, ["conv1"]).proto
    for weight in net.graph.initializer:
        if weight.name == "conv1.w":
            weight.ClearField("raw_data")
            weight.data_location = onnx.TensorProto.EXTERNAL
            weight.external_data.add(key="location", value="nowhere.bin")
    (tmp_path / "net.onnx").write_bytes(net.SerializeToString())
    _, replayed = dumped(tmp_path, text, tmp_path / "net.onnx")
    assert not replayed.entries and not replayed.complete
    assert "is not replayed" in replayed.notes[0] and "nowhere.bin, which is missing" in replayed.notes[0]


def test_half_precision_and_types_beyond_numpy(tmp_path):
    text = """
session = load(sys.argv[1])
values = {"x": ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.arange(4, dtype=np.uint16) * 4000, 16)}
for value in session.run_with_ort_values(["y"], values):
    assert value.element_type() == 16
"""
    info = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.BFLOAT16
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["f"], name="up", to=1),
        onnx.helper.make_node("Sqrt", ["f"], ["s"], name="root"),
        onnx.helper.make_node("Cast", ["s"], ["y"], name="down", to=kind),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", kind, [4])], [info("y", kind, [4])])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "b.onnx",
    )
    _, replayed = dumped(tmp_path, text, tmp_path / "b.onnx")
    assert [output["equal"] for entry in replayed.entries for output in entry.outputs] == [True]


def test_idle_hooks_take_nothing(tmp_path):
    captured = capture(
        tmp_path,
        "load(sys.argv[1]).run(None, {'x': picture})",
        net(tmp_path / "net.onnx"),
        control=replace(SMALL, enabled=False),
    )
    (process,) = captured.processes
    assert not process.caught and captured.status == 0
    assert replay(tmp_path / "out", captured.processes, SMALL).folder is None


def test_what_is_not_seen_is_told(tmp_path):
    text = """
import threading
session, done = load(sys.argv[1]), threading.Event()
session.run(None, {"x": picture})
session.run_async(None, {"x": picture}, lambda results, data, error: done.set(), None)
done.wait(20)
"""
    captured = capture(tmp_path, text, net(tmp_path / "net.onnx"))
    assert any("run_async is not captured: its runs are not dumped" in note for note in captured.notes)
    (found,) = captured_models(tmp_path / "out", captured.processes)
    assert [run.step for run in found.runs] == [0]


def test_a_forked_process_has_a_lock_of_its_own(monkeypatch):
    monkeypatch.syspath_prepend(str(HOOK))
    hook = importlib.import_module("sgsdump_hook_ort")
    held = hook._lock
    with held:
        hook.after_fork()
        assert hook._lock is not held and not hook._lock.locked()
    for name in [name for name in sys.modules if name.startswith("sgsdump_")]:
        del sys.modules[name]


def test_text_is_not_kept_and_that_is_told(tmp_path):
    text = """
session = load(sys.argv[1])
session.run(None, {"x": np.array(["a", "b"], dtype=object)})
"""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [info("x", 8, [2])],
        [info("y", 8, [2])],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "t.onnx",
    )
    _, replayed = dumped(tmp_path, text, tmp_path / "t.onnx")
    assert not replayed.entries and not replayed.complete
    assert "takes text" in replayed.notes[0]
