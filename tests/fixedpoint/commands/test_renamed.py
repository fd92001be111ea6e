"""``advise`` and ``repair`` work as ``tune --explain`` and ``tune --first``, and name the new command."""

import shlex

import numpy as np
import onnx
import pytest
from small_nets import loud_net

import sgsdump
from sgsdump.cli import main
from sgsdump.fixedpoint.commands.renamed import advise_words, repair_words

EXPLAIN = ["tune", "--explain", "--ranges"]


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(loud_net(300.0).proto, "net.onnx")
    np.save("feed.npy", np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32))
    assert main("calibrate -m net.onnx -i feed.npy --quant-level L1 -o fixed.onnx".split()) == 0
    return tmp_path


@pytest.mark.parametrize(
    ("line", "ranges", "others"),
    [
        ("r.txt -m n.onnx", "r.txt", "-m n.onnx"),
        ("-m n.onnx r.txt --dump d.bin", "r.txt", "-m n.onnx --dump d.bin"),
        ("-m x --fixed x x --dump=x", "x", "-m x --fixed x --dump=x"),
        ("--input_config i.ini -m n.onnx --strict-sdk r.txt", "r.txt", "--input_config i.ini -m n.onnx --strict-sdk"),
        ("r.txt -m n.onnx --model-outputs r.txt b", "r.txt", "-m n.onnx --model-outputs r.txt b"),
    ],
)
def test_the_ranges_become_an_option(line, ranges, others):
    assert advise_words(line.split()) == [*EXPLAIN, ranges, *others.split()]


def test_without_ranges_nothing_is_made_up():
    assert advise_words(["-m", "n.onnx"]) == ["tune", "--explain", "-m", "n.onnx"]
    assert advise_words(["--help"]) == ["tune", "--explain", "--help"]


def test_an_older_spelling_becomes_todays():
    words = "-m n.onnx --debug-image=a.png --debug_image b.png".split()
    assert repair_words(words) == "tune --first -m n.onnx --evaluate=a.png --evaluate b.png".split()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("advise log/tensor_min_max.txt -m net.onnx -i feed.npy --json 'a b.json'",
         "tune --explain --ranges log/tensor_min_max.txt -m net.onnx -i feed.npy --json 'a b.json'"),
        ("repair -m net.onnx -i feed.npy --quant-level L1 -o out",
         "tune --first -m net.onnx -i feed.npy --quant-level L1 -o out"),
    ],
)  # fmt: skip
def test_an_older_command_runs_and_prints_the_new_one(net, capsys, old, new):
    capsys.readouterr()
    assert main(shlex.split(old)) == 0
    told = capsys.readouterr()
    renamed, *others = told.err.splitlines()
    assert renamed == f"sgsdump: warning: {old.split()[0]} is now: sgsdump {new}"
    assert main(shlex.split(new)) == 0
    again = capsys.readouterr()
    assert again.out == told.out and again.err.splitlines() == others
    assert main([*shlex.split(old), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["--help"], ["help"]])
def test_no_help_lists_them(words, capsys):
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr().out
    assert "tune" in said and "advise" not in said and "repair" not in said
    assert not {"advise", "repair", "Advised", "Repaired"} & {*dir(sgsdump), *sgsdump.__all__}


def test_the_help_of_an_older_command_is_that_of_the_new_one(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help", "advise"])
    told = capsys.readouterr()
    assert ended.value.code == 0 and told.out.startswith("usage: sgsdump tune ")
    assert told.err == "sgsdump: warning: advise is now: sgsdump tune --explain --help\n"


def test_an_older_command_that_is_mistyped_is_one_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main("advise r.txt --modl net.onnx".split())
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and "unrecognized arguments: --modl; did you mean '--model'" in said[-1]


def test_the_older_functions_warn_and_give_todays_results(net):
    with pytest.warns(FutureWarning, match=r"tune\(model, explain=True, ranges=ranges, \.\.\.\)"):
        found = sgsdump.advise("net.onnx", "log/tensor_min_max.txt", data="feed.npy")
    assert isinstance(found, sgsdump.Advised) and sgsdump.Advised is sgsdump.Explained
    with pytest.warns(FutureWarning, match=r"tune\(model, data, first=True, \.\.\.\)"):
        tuned = sgsdump.repair("net.onnx", "feed.npy", quant_level="L1")
    assert isinstance(tuned, sgsdump.Repaired) and isinstance(tuned, sgsdump.Tuned) and tuned.raised == ("ra",)
