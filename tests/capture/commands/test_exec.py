"""``sgsdump exec`` as a user runs it, from a folder that is not the program's."""

import json
import os
import sys

import pytest
from hooked_programs import MAIN, ROOT, program, sgsdump, trees

from sgsdump import open_dump


@pytest.fixture
def infer(tmp_path):
    return program(tmp_path / "code", MAIN)


def test_output_and_status_are_the_programs_and_messages_go_to_standard_error(tmp_path, infer):
    done = sgsdump("exec", "-o", "dumps", "--", sys.executable, infer, "3", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("result 42\n", 3)
    (tree,) = trees(tmp_path / "dumps")
    assert done.stderr.splitlines()[-1] == f"sgsdump: dumps/{tree.name}: 7 tensors of 1 process, step 0"
    assert [record.name for record in open_dump(tree).records][-1] == "1_Softmax/0_softmax/output.0"


def test_the_program_in_one_text(tmp_path, infer):
    done = sgsdump("exec", "--exec", f"{sys.executable} '{infer}' 0", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("result 42\n", 0)
    assert len(trees(tmp_path)) == 1


def test_the_programs_own_options_stay_its_own(tmp_path):
    path = program(tmp_path / "code", "print(sys.argv[1:])\nforward(0)\n")
    done = sgsdump("exec", "-er", "0,0", "--", "python", path, "--type", "x", "-o", "y", "--", "-z", cwd=tmp_path)
    assert done.stdout == "['--type', 'x', '-o', 'y', '--', '-z']\n"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["-ids", "1"], ["1_Softmax/0_softmax"]),
        (["-ids", "0_1,", "1"], ["0_Linear/1_relu", "1_Softmax/0_softmax"]),
        (["-opname", "RE"], ["0_Linear/1_relu"]),
        (["--operation-name", "soft,aten.add"], ["0_Linear/0_addmm", "1_Softmax/0_softmax"]),
        (["--dump-layer", "relu softmax"], ["0_Linear/1_relu", "1_Softmax/0_softmax"]),
        (["--operation-regex", "^s", "--operation-regex", "mm$"], ["0_Linear/0_addmm", "1_Softmax/0_softmax"]),
    ],
)
def test_which_operators(tmp_path, infer, options, names):
    done = sgsdump("exec", *options, "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {record.name.rpartition("/")[0] for record in open_dump(trees(tmp_path)[0]).records}
    assert sorted(found) == names


@pytest.mark.parametrize(
    ("options", "sides", "moments"),
    [
        ([], {"in", "out"}, {"before/intensor0.bin", "after/outtensor0.bin", "before/intensor1.bin"}),
        (["-stp", "0"], {"in"}, {"before/intensor0.bin", "before/intensor1.bin"}),
        (["--save-tensor-part", "1"], {"out"}, {"after/outtensor0.bin"}),
        (["--dump-mode", "output"], {"out"}, {"after/outtensor0.bin"}),
        (["-time", "1", "-stp", "0"], {"in"}, {"after/intensor0.bin", "after/intensor1.bin"}),
        (["-time", "2", "-stp", "1"], {"out"}, {"before/outtensor0.bin", "after/outtensor0.bin"}),
    ],
)
def test_which_side_at_which_moment(tmp_path, infer, options, sides, moments):
    sgsdump("exec", "--tree", *options, "--", "python", infer, cwd=tmp_path)
    (tree,) = trees(tmp_path)
    assert {record.io for record in open_dump(tree).records} == sides
    assert {"/".join(path.parts[-2:]) for path in tree.rglob("*.bin")} == moments


@pytest.mark.parametrize(
    ("options", "steps"),
    [(["-er", "1,2"], [1, 2]), (["-er", "all"], [0, 1, 2]), (["--dump-step", "0|2-9"], [0, 2])],
)
def test_which_steps(tmp_path, infer, options, steps):
    sgsdump("exec", *options, "--", "python", infer, cwd=tmp_path)
    (tree,) = trees(tmp_path)
    assert json.loads((tree / "index.json").read_text())["processes"][0]["steps"] == steps
    shown = sgsdump("show", tree.name, cwd=tmp_path).stdout
    assert f"{len(steps)} runs" in shown
    one = sgsdump("show", f"{tree.name}@step={steps[-1]}", cwd=tmp_path)
    assert "7 tensors, rounds" in one.stdout


@pytest.mark.parametrize("options", [["--type", "model", "tensor", "stats"], ["--dump-data", "stats"], ["-sd"]])
def test_statistics_and_descriptions(tmp_path, infer, options):
    assert sgsdump("exec", "--tree", *options, "--", "python", infer, cwd=tmp_path).returncode == 0
    (tree,) = trees(tmp_path)
    assert open_dump(tree).records[-1].tensor.statistics.max == (None if options == ["-sd"] else 5)
    assert max(path.stat().st_size for path in tree.rglob("*.bin")) < 150


@pytest.mark.parametrize("option", ["-symlink", "--enable-symlink"])
def test_links(tmp_path, infer, option):
    sgsdump("exec", option, "-er", "all", "--", "python", infer, cwd=tmp_path)
    (tree,) = trees(tmp_path)
    links = [path for path in tree.rglob("*.bin") if path.is_symlink()]
    assert len(links) == 14 and all(path.resolve().is_relative_to(tree.resolve()) for path in links)


def test_where_links_are_not_allowed_the_values_are_there_all_the_same(tmp_path, infer, monkeypatch):
    def refuse(*_):
        raise OSError(1314, "a required privilege is not held by the client")  # as Windows does

    monkeypatch.setattr("os.symlink", refuse)
    sgsdump("exec", "-symlink", "-er", "all", "--", "python", infer, cwd=tmp_path)
    (tree,) = trees(tmp_path)
    found = list(tree.rglob("*.bin"))
    assert len(found) > 14 and not any(path.is_symlink() for path in found)
    assert len({path.stat().st_ino for path in found}) == len(found) - 14  # or a copy, where there are no hard links


def test_one_device(tmp_path, infer):
    done = sgsdump("exec", "-device", "1", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 2 and "the selection was devices 1 (-device); the program ran 3 steps" in done.stderr
    sgsdump("exec", "--device-id", "1", "--", "python", infer, cwd=tmp_path, LOCAL_RANK="1")
    assert [path.name.partition("_")[0] for path in trees(tmp_path)[0].glob("rounds/*")] == ["1"]


@pytest.mark.parametrize(("options", "size", "files"), [(["--tree"], 40, "*.bin"), ([], 14, "rounds/*/*")])
def test_a_size_cap(tmp_path, infer, options, size, files):
    done = sgsdump("exec", *options, "--max-size", f"{size}K", "-er", "all", "--", "python", infer, cwd=tmp_path)
    (tree,) = trees(tmp_path)
    assert done.returncode == 0 and "--max-size" in done.stderr and "the dump is incomplete" in done.stderr
    assert 0 < sum(path.stat().st_blocks for path in tree.rglob(files)) * 512 <= size * 1024
    assert "is not complete" in sgsdump("show", tree.name, cwd=tmp_path).stdout


def test_nothing_captured_is_said_and_the_status_is_not_zero(tmp_path, infer):
    done = sgsdump("exec", "--", "python", "-c", "print(1)", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("1\n", 2)
    assert "python -I, -E, -S and env -i disable the hooks" in done.stderr
    assert done.stderr.splitlines()[-1] == "sgsdump: error: nothing was dumped"
    assert sgsdump("exec", "--", "python", "-c", "raise SystemExit(7)", cwd=tmp_path).returncode == 7
    done = sgsdump("exec", "-er", "7,9", "-ids", "3_1", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.splitlines()[-1].endswith(
        "nothing was dumped; the selection was steps 7 to 9 (counted from 0; -er), operators 3_1 (-ids); "
        "the program ran 3 steps from 0 to 2"
    )
    done = sgsdump("exec", "-opname", "sotfmax", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 2
    assert "no operator with a type that begins with 'sotfmax' ran; similar names: softmax" in done.stderr
    done = sgsdump("exec", "--dump-layer", "rleu softmax", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 2 and "error: no operator 'rleu' ran; similar names: relu" in done.stderr
    assert len(trees(tmp_path)) == 1


@pytest.fixture(scope="module")
def dumped_before(tmp_path_factory):
    """A folder with a dump of a program, and the command's words that name the program."""
    folder = tmp_path_factory.mktemp("before")
    path = program(folder / "code", MAIN)
    path.write_text("print('started')\n" + path.read_text())
    command = ["--", "python", path]
    assert sgsdump("exec", *command, cwd=folder).returncode == 0
    return folder, command


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-opname", "sotfmax"], "no operator with a type that begins with 'sotfmax' ran; similar names:"),
        (
            ["--dump-layer", "relu rleu"],
            "no operator 'rleu' ran; similar names: relu. To run the program anyway, select another output folder",
        ),
        (["--operation-regex", "^conv"], "no operator with a name that matches '^conv' ran"),
        (["-ids", "0_1", "7"], "no operator has the id 7"),
        (["-ids", "0_11"], "no operator has the id 0_11; the existing ids inside the parent are 0_0 to 0_1"),
        (["-ids", "4_0"], "no operator has the id 4_0; the existing ids are 0 to 1"),
    ],
)
def test_an_unknown_operator_of_a_program_that_was_dumped_before(dumped_before, options, message):
    """The first dump tells which operators there are; the second is not even started."""
    folder, command = dumped_before
    done = sgsdump("exec", *options, *command, cwd=folder)
    assert (done.stdout, done.returncode, len(done.stderr.splitlines())) == ("", 2, 1)
    assert message in done.stderr and "select another output folder with -o." in done.stderr


def test_a_known_operator_of_a_program_that_was_dumped_before_or_another_folder(dumped_before):
    folder, command = dumped_before
    done = sgsdump("exec", "-o", "other", "-ids", "7", *command, cwd=folder)
    assert done.stdout == "started\nresult 42\n"
    assert sgsdump("exec", "-ids", "0", "1_0", *command, cwd=folder).returncode == 0


def test_wrong_ids_and_steps_beside_right_ones_are_told_by_the_first_run(tmp_path, infer):
    done = sgsdump("exec", "-ids", "0", "0_7", "9", "1_0_2", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 2 and len(trees(tmp_path)) == 1
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert [line.partition("no operator has the id ")[2] for line in errors] == [
        "0_7; the existing ids inside the parent are 0_0 to 0_1",
        "9; the existing ids are 0 to 1",
        "1_0_2; 1_0 has no operators inside",
    ]
    done = sgsdump("exec", "-er", "1,1,2,9,5,8,7,7", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "never ran" in line] == [
        "sgsdump: warning: steps 5 to 8 never ran (-er); the program ran 3 steps from 0 to 2",
        "sgsdump: warning: step 7 never ran (-er); the program ran 3 steps from 0 to 2",
    ]


TORCH_FILES = {
    "torchgen/packaged/ATen/native/native_functions.yaml": "- func: softmax.int(Tensor self, int dim) -> Tensor\n",
    "torch/nn/modules/__init__.py": "from .activation import (\n    Softmax2d,\n)\n",
}


@pytest.mark.parametrize("names", ["sotfmax", "SOFT,aten.softm,QLinearAdd,fusedconv"])
def test_a_type_that_no_library_has_is_told_before_the_program_starts(tmp_path, infer, names):
    """torch's own files tell its types; the types of ONNX and of onnxruntime's own operators are known too."""
    for file, text in TORCH_FILES.items():
        path = tmp_path / "packages" / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
    infer.write_text("sys = __import__('sys')\nprint('started', file=sys.stderr, flush=True)\n" + infer.read_text())
    path = f"{ROOT}{os.pathsep}{tmp_path / 'packages'}"
    done = sgsdump("exec", "-opname", names, "--", "python", infer, cwd=tmp_path, PYTHONPATH=path)
    first, second, *_ = done.stderr.splitlines()
    if names != "sotfmax":
        assert first == "started" and "begins with 'fusedconv'" in done.stderr and done.returncode == 2
        return
    assert first.startswith(
        "sgsdump: warning: no operator type of torch or onnxruntime begins with 'sotfmax'; similar names"
    )
    assert "softmax, Softmax2d" in first or "Softmax, Softmax2d" in first
    assert (second, done.returncode) == ("started", 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "pythonn", "x"], "error: program 'pythonn' not found; similar names:"),
        (["--", "./code"], "error: program './code' is a folder; give the path of a program file in this folder"),
        ([], "error: no program given"),
        (["--exec", "python x > y"], "into a shell script"),
        (["--exec", "python x", "--", "python", "y"], "the program is given twice"),
        (["-o", "code/infer.py", "--", "python", "started"], "infer.py"),
        (["-o", "/proc/no", "--", "python", "started"], "/proc/no"),
        (["--type", "stats", "--", "python", "started"], 'also requires "tensor", as in --type model tensor stats'),
        (["-er", "2", "--", "python", "started"], "is not a list of pairs"),
        (["-config", "nowhere.json", "--", "python", "started"], "nowhere.json"),
        (["--dump-step", "1", "-er", "1,1", "--", "python", "started"], "both choose steps"),
        (["--max-size", "much", "--", "python", "started"], "is not a size; write 500M or 20G"),
    ],
)
def test_bad_input_is_one_line_before_the_program_starts(tmp_path, infer, words, message):
    (tmp_path / "started").write_text("open('it_ran', 'w')")
    done = sgsdump("exec", *words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr and not (tmp_path / "it_ran").exists()
    assert not trees(tmp_path)


def test_levels_of_messages(tmp_path, infer):
    words = ["-tiling", "--type", "tensor", "kernel", "--", "python", infer]
    shown = sgsdump("exec", *words, cwd=tmp_path).stderr
    assert "warning: -tiling has no effect" in shown and "warning: --type kernel has no effect" in shown
    assert "tensors of 1 process" not in sgsdump("exec", "-l", "warning", *words, cwd=tmp_path).stderr
    assert sgsdump("exec", "--log-level", "error", *words, cwd=tmp_path).stderr == ""


def test_a_configuration_switched_on_while_the_program_runs(tmp_path):
    config = tmp_path / "c.json"
    config.write_text('{"dump_enable": "false", "er": "5,5"}')
    main = f"""
import time
from pathlib import Path
assert not session.wants_step(5)
Path({str(config)!r}).write_text('{{"dump_enable": "true", "er": "5,5", "ids": "1"}}')
for _ in range(600):
    if session.wants_step(5):
        break
    time.sleep(0.05)
forward(5)
"""
    done = sgsdump(
        "exec", "-config", config, "-er", "1,1", "--", "python", program(tmp_path / "code", main), cwd=tmp_path
    )
    assert done.returncode == 0 and f"{config} overrides -er" in done.stderr
    names = {record.name for record in open_dump(trees(tmp_path)[0]).records}
    assert names == {"1_Softmax/0_softmax/input.0", "1_Softmax/0_softmax/output.0"}


def test_acl_json_says_what_is_dumped(tmp_path, infer):
    config = tmp_path / "acl.json"
    entries = [{"model_name": "Net", "layer": ["relu"]}, {"model_name": "Other"}]
    config.write_text(json.dumps({"dump": {"dump_path": ".", "dump_list": entries, "dump_step": "1"}}))
    done = sgsdump("exec", "-config", config, "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = open_dump(trees(tmp_path)[0]).records
    assert (record.name, record.io) == ("0_Linear/1_relu/output.0", "out")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"dump_debug": "on"}, "acl.json: dump_debug on needs the graph of a compiled program; use the file with"),
        (
            {"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["relu"]}]},
            "acl.json: dump_scene watcher needs",
        ),
        (
            {"dump_op_switch": "on", "dump_path": "10.0.0.7:/x"},
            "'10.0.0.7:/x' is on another machine; give a local folder with -o",
        ),
    ],
)
def test_what_only_a_compiled_graph_or_another_machine_has_is_refused(tmp_path, infer, section, message):
    (tmp_path / "acl.json").write_text(json.dumps({"dump": {"dump_path": ".", **section}}))
    done = sgsdump("exec", "-config", "acl.json", "--", "python", infer, cwd=tmp_path)
    assert (done.stdout, done.returncode, len(done.stderr.splitlines())) == ("", 2, 1)
    assert message in done.stderr and not trees(tmp_path)


def test_acl_json_says_where_the_dump_goes_and_what_of_it_is_of_graphs_alone(tmp_path, infer):
    (tmp_path / "there").mkdir()
    entry = {"model_name": "Net", "opname_range": [{"begin": "relu", "end": "relu"}]}
    section = {
        "dump_path": "there",
        "dump_level": "op",
        "dump_data": "stats",
        "dump_stats": ["Max"],
        "dump_list": [entry],
    }
    (tmp_path / "acl.json").write_text(json.dumps({"dump": section}))
    done = sgsdump("exec", "-config", "acl.json", "--", "python", infer, cwd=tmp_path)
    assert done.returncode == 0 and len(trees(tmp_path / "there")) == 1 and not trees(tmp_path)
    assert "opname_range have no effect here: they apply to compiled graphs (sgsdump.torchair)" in done.stderr
    assert "dump_stats has no effect here" in done.stderr
    sgsdump("exec", "-config", "acl.json", "-o", "other", "--", "python", infer, cwd=tmp_path)
    assert len(trees(tmp_path / "other")) == len(trees(tmp_path / "there")) == 1


def test_checking_a_configuration_for_the_real_hardware(tmp_path):
    (tmp_path / "good.json").write_text('{"dump": {"dump_path": ".", "dump_op_switch": "on"}}')
    (tmp_path / "idle.json").write_text('{"dump": {"dump_path": "."}}')
    (tmp_path / "scene.json").write_text('{"dump": {"dump_scene": "lite_exception"}}')
    (tmp_path / "bad.json").write_text('{"dump": {"dump_path": ".", "dump_mode": "INPUT"}}')
    (tmp_path / "msit.json").write_text('{"dump_enable": "true"}')

    def check(name):
        done = sgsdump("exec", "--check-config", name, cwd=tmp_path)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    assert check("good.json") == (0, ["good.json: valid; dump type tensor"])
    assert check("idle.json") == (0, ["idle.json: valid; nothing is dumped"])
    status, (first, second) = check("scene.json")
    assert (status, first) == (0, "scene.json: valid; dump type aic_err_brief_dump") and "no effect" in second
    assert check("msit.json") == (0, ["msit.json: valid for msit llm dump; dumps are enabled"])
    expected = "sgsdump: error: bad.json: dump_mode is 'INPUT': it must be input, output or all (EP0002)"
    assert check("bad.json") == (2, [expected])
