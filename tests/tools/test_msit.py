"""``tools/msit`` with msit's own words: llm dump and debug dump."""

from pathlib import Path

import pytest
from hooked_programs import MAIN, environment, program, trees
from in_process import script

from sgsdump import open_dump

DOOR = Path(__file__).resolve().parents[2] / "tools" / "msit"


def msit(*words, cwd):
    return script(DOOR, list(map(str, words)), cwd, environment())


def test_it_is_installed_under_a_name_of_its_own():
    project = (DOOR.parents[1] / "pyproject.toml").read_text()
    assert 'sgsdump-msit = "sgsdump.capture.commands.msit:main"' in project and "\nmsit =" not in project


@pytest.fixture
def infer(tmp_path):
    return program(tmp_path / "code", MAIN)


def names(tree, **choice):
    return sorted({record.name.rpartition("/")[0] for record in open_dump(tree, **choice).records})


@pytest.mark.parametrize(
    "options",
    [
        ["--type", "model", "tensor"],
        ["--type", "onnx", "tensor"],
        ["--type", "model", "tensor", "stats"],
        ["--type", "model", "tensor", "-child", "True"],
        ["--type", "model", "tensor", "-er", "0,0"],
        ["-seed"],
        ["-seed", "1"],
        ["--enable-symlink", "-sd", "-tiling", "-l", "info", "-time", "3", "-stp", "2"],
    ],
)
def test_the_documentations_lines(tmp_path, infer, options):
    done = msit("llm", "dump", "--exec", f"python {infer}", *options, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("result 42\n", 0), done.stderr
    (tree,) = trees(tmp_path)
    assert names(tree) == ["0_Linear/0_addmm", "0_Linear/1_relu", "1_Softmax/0_softmax"]


def test_ids_with_a_blank_behind_the_comma(tmp_path, infer):
    msit("llm", "dump", "-ids", "1,", "0_1", "--exec", f"python {infer}", "-o", "aasx/sss", cwd=tmp_path)
    (tree,) = trees(tmp_path / "aasx" / "sss")
    assert names(tree) == ["0_Linear/1_relu", "1_Softmax/0_softmax"]


def test_debug_dump_takes_every_run_and_exact_names(tmp_path, infer):
    words = ["--exec", f"python {infer}", "--output", "npu", "--operation-name", "addmm,softmax"]
    done = msit("debug", "dump", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tree,) = trees(tmp_path / "npu")
    assert [names(tree, step=step) for step in range(3)] == [["0_Linear/0_addmm", "1_Softmax/0_softmax"]] * 3
    done = msit("debug", "dump", "--exec", f"python {infer}", "-opname", "soft", cwd=tmp_path)
    assert done.returncode == 2 and "no operator 'soft' ran; similar names: softmax" in done.stderr


@pytest.mark.parametrize("words", [["llm", "dump"], ["debug", "dump"]])
def test_help_and_errors_are_msits(tmp_path, words):
    shown = msit(*words, "-h", cwd=tmp_path)
    assert shown.returncode == 0 and "--exec" in shown.stdout
    done = msit(*words, "--exec", "python x > y", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("msit: error: --exec 'python x > y'")


def test_what_msit_has_besides_is_told_where_it_is(tmp_path):
    done = msit("llm", "compare", "-gp", "golden", "-mp", "mine", cwd=tmp_path)
    assert done.returncode == 2 and "use sgsdump compare MINE GOLDEN" in done.stderr
