"""The hook in a program's process: it changes nothing but that it is there, and it is there wherever Python starts."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hooked_programs import MAIN, environment, program

from sgsdump.capture.programs.control import EVERY, DumpControl
from sgsdump.capture.programs.process_index import processes_of
from sgsdump.capture.programs.program import HOOK, put_control
from sgsdump.capture.programs.program import environment as hooked

HOOKED = {"torch": "torch", "hook_torch": "torch"}  # what else a file of the hook may import, by how its name begins
OWN = sorted(HOOK.rglob("*.py"))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_the_hook_is_python_3_8_and_imports_the_standard_library_and_the_hooked_library_only(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    roots = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    roots |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    hooked = {library for name, library in HOOKED.items() if path.stem.startswith(f"sgsdump_{name}")}
    assert roots <= {*sys.stdlib_module_names, *(one.stem for one in [*OWN, *HOOK.glob("*.pyi")]), *hooked}


@pytest.fixture
def run(tmp_path):
    """``run(command)`` in a folder with the program, under the hook; ``run.processes()`` what was dumped."""
    root = tmp_path / "dump"
    root.mkdir()
    control = DumpControl(steps=EVERY)
    put_control(control, root)

    def start(*command, **more):
        variables = hooked(environment(), control, root) | more
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    start.processes = lambda: processes_of(root)
    start.root = root
    return start


def ids(processes):
    return [(process.counts.tensors, process.complete) for process in processes]


def test_through_a_bash_script_and_a_background_job(tmp_path, run):
    program(tmp_path)
    (tmp_path / "run.sh").write_text(f"(cd . && {sys.executable} infer.py 0) & wait $!\necho $(echo done)\n")
    found = run("bash", "run.sh")
    assert (found.stdout, found.returncode) == ("result 42\ndone\n", 0)
    assert ids(run.processes()) == [(21, True)]


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_in_processes_of_multiprocessing(tmp_path, run, how):
    main = f"""
def work(step):
    forward(step)

if __name__ == "__main__":
    import multiprocessing
    forward(0)
    process = multiprocessing.get_context("{how}").Process(target=work, args=(1,))
    process.start()
    process.join()
    forward(2)
"""
    found = run(sys.executable, program(tmp_path, main))
    assert found.returncode == 0, found.stderr
    steps = sorted((process.steps, process.complete) for process in run.processes())
    assert steps == [((0, 2), True), ((1,), True)]


def test_in_a_pool_of_forked_workers(tmp_path, run):
    main = """
if __name__ == "__main__":
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(forward, range(4), chunksize=1)
        pool.close()
        pool.join()
"""
    found = run(sys.executable, program(tmp_path, main))
    assert found.returncode == 0, found.stderr
    assert sorted(step for process in run.processes() for step in process.steps) == [0, 1, 2, 3]
    assert all(process.complete for process in run.processes())


def test_a_forked_process_that_leaves_at_once_is_complete_and_one_that_is_killed_is_not(tmp_path, run):
    main = """
import os
for step in (1, 2):
    if not os.fork():
        forward(step)
        os._exit(0) if step == 1 else os.kill(os.getpid(), 9)
    os.wait()
forward(0)
"""
    run(sys.executable, program(tmp_path, main))
    found = sorted((process.steps, process.complete, process.begun) for process in run.processes())
    assert found == [((0,), True, 1), ((1,), True, 2), ((2,), False, None)]


def test_a_program_that_executes_another_leaves_both(tmp_path, run):
    """They are one process; what the first dumped is not written over."""
    program(tmp_path, "forward(1)\nforward(2)\n", "other.py")
    main = "import os\nforward(0)\nforward(1)\nos.execv(sys.executable, [sys.executable, 'other.py'])\n"
    run(sys.executable, program(tmp_path, main))
    first, second = run.processes()
    assert (first.steps, second.steps) == ((0, 1), (1, 2)) and second.pid == first.pid + 10_000_000
    assert (first.complete, first.broken_off, second.complete) == (False, False, True)


def test_in_threads_and_where_a_thread_imports_first(tmp_path, run):
    main = """
import threading
threads = [threading.Thread(target=forward, args=(step,)) for step in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    path = program(tmp_path, main)
    lazy = "from threading import Thread\nt = Thread(target=lambda: __import__('infer'))\nt.start()\nt.join()\n"
    (tmp_path / "lazy.py").write_text(lazy)
    assert run(sys.executable, "lazy.py").returncode == 0
    (process,) = run.processes()
    assert (process.steps, process.counts.tensors, process.complete) == (tuple(range(8)), 56, True)
    assert path.is_file()


def test_the_program_sees_its_own_sys_path_loader_and_sitecustomize(tmp_path, run):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = __file__\n")
    main = """
import json, os, torch
import sitecustomize
print(json.dumps([sys.path[1:], type(torch.__loader__).__name__, "exec_module" in vars(torch.__spec__.loader),
      customized, sitecustomize.__file__, os.environ.get("PYTHONSTARTUP")]))
"""
    path = program(tmp_path, main)
    site = str(tmp_path / "site")
    plain = subprocess.run(
        [sys.executable, "-c", "import sys, json; print(json.dumps(sys.path[1:]))"],
        env=environment(PYTHONPATH=site),
        capture_output=True,
        text=True,
        check=True,
    )
    found = run(sys.executable, path, PYTHONPATH=os.pathsep.join([str(HOOK), site]))
    paths, loader, patched, *files, _ = json.loads(found.stdout)
    assert paths == json.loads(plain.stdout)
    assert (loader, patched) == ("SourceFileLoader", False)
    assert files == [str(tmp_path / "site" / "sitecustomize.py")] * 2


def test_an_error_in_the_shadowed_sitecustomize_is_told_as_ever(tmp_path, run):
    (tmp_path / "sitecustomize.py").write_text("1 / 0\n")
    variables = {"PYTHONPATH": os.pathsep.join([str(HOOK), str(tmp_path)])}
    found = run(sys.executable, "-c", "print(1)", **variables)
    plain = run(sys.executable, "-c", "print(1)", PYTHONPATH=str(tmp_path))
    assert found.stdout == plain.stdout == "1\n"
    assert found.stderr.splitlines()[0] == plain.stderr.splitlines()[0]
    assert "ZeroDivisionError" in found.stderr


def test_a_program_that_imports_neither_library_imports_nothing_of_ours(run):
    code = "import sys; print([name for name in sys.modules if name.startswith(('sgsdump', 'torch'))])"
    assert run(sys.executable, "-c", code).stdout == "[]\n"
    assert not run.processes()


def test_a_library_whose_import_fails_fails_as_ever_and_may_come_later(tmp_path, run):
    (tmp_path / "torch.py").write_text(
        "import os\nif not os.environ.pop('READY', ''): os.environ['READY'] = '1'; 1 / 0\n"
    )
    code = "try:\n    import torch\nexcept ZeroDivisionError:\n    import torch\nprint(torch.__name__)"
    (tmp_path / "again.py").write_text(code)
    found = run(sys.executable, "again.py")
    assert found.stdout == "torch\n", found.stderr
    assert len(run.processes()) == 1


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_options_that_keep_the_hook_out_leave_no_trace(tmp_path, run, option):
    path = program(tmp_path, "print('alone')")
    run(sys.executable, option, path)
    assert not run.processes() and not list(run.root.glob("tensors"))


def test_the_hook_writes_nothing_into_its_own_folder(tmp_path, run):
    def files():
        found = [path for path in HOOK.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
        return {path: path.stat().st_mtime_ns for path in found}

    before = files()
    run(sys.executable, program(tmp_path, MAIN))
    assert before == files()
    assert Path(HOOK, "__init__.py").exists() is False
