"""Running a program unchanged: its words, its status, its signals, and a control that changes on the way."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hooked_programs import MAIN, environment, program
from in_process import SGSDUMP
from platforms import unix_only

from sgsdump.capture.programs.control import EVERY, DumpControl, dump_control
from sgsdump.capture.programs.program import check_command, disk_full, run_program, split_command
from sgsdump.cli import main
from sgsdump.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python infer.py", ["python", "infer.py"]),
        ("python -c 'print(1 > 0 | 2)'", ["python", "-c", "print(1 > 0 | 2)"]),
        ('bash run.sh "a b" c\\ d \\>e', ["bash", "run.sh", "a b", "c d", ">e"]),
    ],
)
def test_words_of_a_command(text, words):
    assert split_command(text) == words


@pytest.mark.parametrize("text", ["a > b", "a>b", "a < b", "a 2>&1", "a | b", "a; b", "a && b", 'a "x" >"y"'])
def test_redirection_is_refused_with_msits_advice(text):
    with pytest.raises(ConfigError, match=r"shell script and use --exec 'bash script\.sh'"):
        split_command(text)


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), ("  ", "is empty"), ("a 'b", "cannot be split")])
def test_commands_that_are_none(text, message):
    with pytest.raises(ConfigError, match=message):
        split_command(text)


def test_a_program_that_is_not_there_with_the_nearest_names(tmp_path, monkeypatch):
    (tmp_path / "pythonic").touch(mode=0o755)
    (tmp_path / "script.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="program 'pythonix' not found; similar names: pythonic"):
        check_command(["pythonix", "infer.py"])
    with pytest.raises(ConfigError, match="cannot be executed"):
        check_command([str(tmp_path / "script.py")])
    with pytest.raises(ConfigError, match="no program given"):
        check_command([])


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", environment())
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def run(out, *argv, control=None, **more):
    return run_program([sys.executable, *map(str, argv)], control or DumpControl(), out, **more)


@pytest.mark.parametrize("status", [0, 3])
def test_status_output_and_processes(tmp_path, out, capfd, status):
    captured = run(out, program(tmp_path), status)
    assert (captured.status, captured.complete, captured.caught) == (status, True, True)
    assert capfd.readouterr().out == "result 42\n"
    (process,) = captured.processes
    assert (process.counts.tensors, process.steps) == (21, (0, 1, 2))


def test_a_crash_half_way_leaves_what_was_dumped(tmp_path, out):
    captured = run(
        out, program(tmp_path, "forward(0)\nforward(1)\nraise SystemError('half way')\n"), control=DumpControl()
    )
    assert (captured.status, captured.complete, captured.processes[0].counts.tensors) == (1, True, 14)


def test_a_program_that_a_signal_ends(tmp_path, out):
    captured = run(out, program(tmp_path, "import os\nforward(0)\nos.kill(os.getpid(), 9)\n"))
    assert (captured.status, captured.complete) == (128 + 9, False)
    assert "did not end normally: its dump is incomplete" in captured.notes[-1]


def test_nothing_captured_is_said_with_its_reasons(tmp_path, out):
    captured = run(out, "-I", "-c", "print(1)")
    assert not captured.caught and not captured.processes
    assert captured.notes[0].startswith("no process of the program imported torch or onnxruntime")
    program(tmp_path, "")
    captured = run(out, tmp_path / "infer.py", control=DumpControl(enabled=False))
    assert captured.notes[-1].startswith(
        "torch 9.9 was hooked, but ran nothing that is selected for the dump: no module was called. "
        "Computations outside"
    )
    program(tmp_path)
    captured = run(out, tmp_path / "infer.py", control=DumpControl(enabled=False))
    assert (
        captured.notes[-1] == "torch 9.9 was hooked, but ran nothing that is selected for the dump"
        and captured.steps == 3
    )


def test_a_full_disk_is_told_after_the_program_ended_as_ever(tmp_path, out, capfd):
    captured = run(out, program(tmp_path), 0, control=dump_control(min_free=1 << 62))
    assert captured.status == 0 and capfd.readouterr().out == "result 42\n"
    assert not captured.complete and any("it's must more than 2G" in note for note in captured.notes)


@pytest.mark.parametrize("status", [0, 3])
def test_on_a_full_disk_the_program_runs_and_is_not_dumped(tmp_path, monkeypatch, capfd, two_gib_are_left, status):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5 << 20))
    code = f"print('result 42'); raise SystemExit({status})"
    command = ["exec", "-o", str(tmp_path / "out"), "--", sys.executable, "-c", code]
    assert main(command) == (status or 2)
    told = capfd.readouterr()
    assert told.out == "result 42\n" and not list((tmp_path / "out").iterdir())
    assert "Disk space is not enough, it's must more than 2G, free size(MB) is: 5" in told.err
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2 << 30))
    assert disk_full(tmp_path, DumpControl()) == ""


def test_the_environment_keeps_what_was_there(tmp_path, out, monkeypatch, capfd):
    monkeypatch.setitem(os.environ, "PYTHONPATH", f"{tmp_path}{os.pathsep}/b")
    code = "import os, sys; print(os.environ['PYTHONPATH'].split(os.pathsep)[1:], sys.flags.hash_randomization)"
    run(out, "-c", code, control=DumpControl(seed=7))
    assert capfd.readouterr().out.split("] ")[0] == f"['{tmp_path}', '/b'"
    run(out, "-c", "import os; print(os.environ.get('PYTHONHASHSEED'))", control=DumpControl(seed=7))
    run(out, "-c", "import os; print(os.environ.get('PYTHONHASHSEED'))")
    assert capfd.readouterr().out.split() == ["7", str(environment().get("PYTHONHASHSEED"))]


WAITING = """
import time
for _ in range(600):
    if session.wants_step(5):
        break
    time.sleep(0.05)
forward(5)
"""


def test_a_control_that_changes_while_the_program_runs(tmp_path, out):
    first = DumpControl(enabled=False, steps=EVERY)
    asked = []

    def live():
        asked.append(1)
        return replace(first, enabled=True) if len(asked) == 2 else None

    captured = run(out, program(tmp_path, WAITING), control=first, live=live)
    assert captured.processes[0].steps == (5,) and len(asked) >= 2


def test_sigterm_reaches_the_program_and_the_tree_is_written(tmp_path):
    main = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
forward(0)
open("ready", "w").close()
time.sleep(60)
"""
    path = program(tmp_path, main)
    command = [sys.executable, "-c", SGSDUMP, "exec", "--tree", "--", sys.executable, str(path)]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "ready").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate()
    assert process.returncode == 5
    (tree,) = tmp_path.glob("msit_dump_*")
    assert (tree / "index.json").is_file() and "7 tensors of 1 process, step 0" in told


@unix_only
def test_a_second_sigterm_kills_a_program_that_stays(tmp_path):
    main = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: open("told", "w").close())
forward(0)
open("ready", "w").close()
for _ in range(600):
    time.sleep(0.1)
"""
    path = program(tmp_path, main)
    command = [sys.executable, "-c", SGSDUMP, "exec", "--tree", "--", sys.executable, str(path)]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    for file in ("ready", "told"):
        while not (tmp_path / file).exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
    _, messages = process.communicate()
    assert (
        process.returncode == 128 + signal.SIGKILL
        and "7 tensors of 1 process, step 0; the dump is incomplete" in messages
    )


@unix_only
def test_killed_at_any_moment_tensors_are_whole_and_the_tree_opens_as_not_complete(tmp_path):
    from sgsdump import open_dump

    path = program(tmp_path, MAIN.replace("range(3)", "range(10**9)"))
    told = 0
    for number in range(8):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        command = [sys.executable, "-c", SGSDUMP, "exec", "--tree", "-er", "all", "--", sys.executable, str(path)]
        process = subprocess.Popen(command, cwd=folder, env=environment(), start_new_session=True, stderr=-3)
        while not list(folder.glob("*/tensors/*/0/1_Softmax")) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.01 * number)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        (tree,) = folder.glob("msit_dump_*")
        dump = open_dump(tree, step=0)
        for record in dump.records:
            assert record.tensor.stored().shape == (2, 2)
        told += any("is not complete" in note for note in dump.notes)
        for file in (tree / "tensors").rglob("*.bin"):
            assert open_dump(file).records[0].tensor.stored().shape == (2, 2), file
        assert not list((tree / "tensors").rglob(".*"))
    assert told == 8
