"""What every command does with trouble: one line on standard error, status 2, no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from platforms import unix_only

from sgsdump import Tensor, cli, save_dump
from sgsdump.cli import main

LONG = "9" * 300


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.bin", "b.bin"):
        save_dump([Tensor.of("x", np.ones(8, np.float32))], name)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["compare", LONG, "b.bin"], "too long"),
        (["compare", "a.bin", "b.bin", "--csv", LONG], "too long"),
        (["compare", "a.bin", "b.bin", "--csv", "a.bin"], "reads or writes that file already"),
        (["compare", "a.bin", "b.bin", "--csv", "t", "--json", "t"], "reads or writes that file already"),
        (["compare", "a.bin", "b.bin", "--min-cos", "2"], "the limit on COS must be between -1 and 1"),
        (["compare", "a.bin", "b.bin", "--min-cos", "nan"], "the limit on COS must be between -1 and 1"),
        (["compare", "a.bin", "b.bin", "--max-rmse", "-1"], "the limit on RMSE must be 0 or more"),
        (
            ["compare", "a.bin"],
            "not a watcher dump: no output was dumped again after a later operator. To compare two dumps, also give",
        ),
        (["demo", "-o", "."], "contains the current folder"),
        (["demo", "-o", "a.bin"], "a file has that name"),
    ],
)
def test_one_line_and_status_2(dumps, capsys, command, message):
    before = (dumps / "a.bin").read_bytes()
    assert main(command) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and message in captured.err
    assert (dumps / "a.bin").read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [["show", "a.bin", "--step", "x"], ["exec", "--links", "foo"], ["nosuch"], [], ["compare", "a.bin", "--nosuch"]],
)
def test_what_cannot_be_parsed_is_one_line_too(dumps, capsys, command):
    with pytest.raises(SystemExit) as stopped:
        main(command)
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and told.count("\n") == 1 and told.endswith(" --help\n"), told


@unix_only
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("compare a.bin b.bin --csv t.csv", 0),
        ("compare a.bin c.bin --max-rmse 0.1", 1),
        ("compare a.bin none.bin", 2),
        ("compare a.bin b.bin --json -", 0),
        ("show a.bin", 0),
        ("convert a.bin t.npz", 0),
        ("compare --help", 0),
        ("--version", 0),
    ],
)
def test_closed_standard_streams(dumps, command, status, closed):
    save_dump([Tensor.of("x", np.zeros(8, np.float32))], "c.bin")
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "sgsdump", *command.split()]
    done = subprocess.run(shell, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (status, status == 2 and closed == ">&-"), done.stderr
    for made in dumps.glob("t.*"):
        assert made.read_bytes().startswith((b"PK", b"status,")), made


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output(dumps):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sgsdump", "compare", "a.bin", "b.bin"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "No space left" in done.stderr


@pytest.mark.parametrize(
    ("files", "installed", "said"),
    [
        ([], "", "install it: {python} -m pip install tqdm"),  # in site-packages
        (["pyproject.toml"], "", "install what sgsdump needs: {python} -m pip install '{root}'"),  # never installed
        (["pyproject.toml"], "site", "install it: {python} -m pip install tqdm"),  # pip install -e
        (["pyproject.toml"], "a checkout", "install what sgsdump needs: {python} -m pip install '{root}'"),  # a build's
    ],
)
def test_a_missing_library_is_told_with_the_command_that_installs_it(
    tmp_path, monkeypatch, capsys, files, installed, said
):
    root = tmp_path / "a checkout"
    (root / "sgsdump").mkdir(parents=True)
    for name in files:
        (root / name).touch()
    if installed:
        (tmp_path / installed / "sgsdump-0.1.0.dist-info").mkdir(parents=True)
        (tmp_path / installed / "sgsdump-0.1.0.dist-info/METADATA").write_text("Name: sgsdump\nVersion: 0.1.0\n")
    monkeypatch.setattr(cli, "__file__", str(root / "sgsdump/cli.py"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / (installed or "nowhere"))])

    def run():
        raise ModuleNotFoundError("No module named 'tqdm'", name="tqdm")

    assert cli.exit_status("sgsdump", run) == 2
    command = said.format(python=sys.executable, root=root)
    assert capsys.readouterr().err == f"sgsdump: error: tqdm is not installed; {command}\n"


@pytest.mark.parametrize("command", ["compare a.bin b.bin", "show a.bin"])
def test_json_alone_goes_to_standard_output(dumps, capsys, command):
    assert main([*command.split(), "--json", "there.json"]) == 0
    assert capsys.readouterr().out
    assert main([*command.split(), "--json", "-"]) == 0
    assert capsys.readouterr().out == Path("there.json").read_text()
    assert not Path("-").exists()


def test_a_command_that_fails_prints_no_json(dumps, capsys):
    assert main(["compare", "a.bin", "absent.bin", "--json", "-"]) == 2
    out = capsys.readouterr()
    assert not out.out and "absent.bin" in out.err


def test_quiet_and_verbose(tmp_path, monkeypatch, capfd):
    """-q: errors alone, and what --json - asks for; -v: versions, times, and where an error arose."""
    monkeypatch.chdir(tmp_path)
    save_dump({"x": np.float32([1, 2])}, "a.npz")
    assert main("show a.npz".split()) == 0 and "x" in capfd.readouterr().out
    assert main("show a.npz -q".split()) == 0 and capfd.readouterr() == ("", "")
    assert main("show a.npz --quiet --json -".split()) == 0
    assert json.loads(capfd.readouterr().out)["format"] == "sgsdump dump"
    assert main("show absent.npz -q".split()) == 2
    assert capfd.readouterr() == ("", "sgsdump: error: no such file: absent.npz\n")
    assert main("show a.npz -v".split()) == 0
    said = capfd.readouterr()
    assert "onnxruntime" in said.err and "show took" in said.err and "ended after" in said.err and "x" in said.out
    assert main("show absent.npz -v".split()) == 2
    assert "Traceback" in (said := capfd.readouterr().err) and said.endswith(
        "sgsdump: error: no such file: absent.npz\n"
    )
    assert main("show a.npz".split()) == 0 and capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show --hepl", "sgsdump show: error: unrecognized arguments: --hepl; did you mean '--help'"),
        ("diagnose --sort worst", "sgsdump diagnose: error: unrecognized arguments: --sort"),
        (
            "pipeline once --nmae=c1",
            "sgsdump pipeline once: error: unrecognized arguments: --nmae; did you mean '--name'",
        ),
    ],
)
def test_a_misspelt_option_is_told_before_what_is_missing(line, said, capfd):
    with pytest.raises(SystemExit):
        main(line.split())
    assert said in capfd.readouterr().err
